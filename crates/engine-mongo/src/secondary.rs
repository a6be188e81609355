//! Asking a secondary, within the bound that [`lag`](crate::lag) keeps.

use std::time::Duration;

use engine_api::{Because, Freshness, ReadContext, Revision};
use futures::TryStreamExt;
use mongodb::bson::{self, Document};
use mongodb::options::{ReadPreference, SelectionCriteria};

use crate::connect::Deployment;
use crate::engine::MongoEngine;
use crate::failure::{Asked, Failure, MAX_TIME_EXPIRED, answer};
use crate::lag::{Sample, covers};
use crate::read::Wanted;

/// How much longer than the server itself waits its answer is waited for, so that it
/// can say why there is none.
const ANSWER_MARGIN: Duration = Duration::from_millis(50);

/// What a read that may lag asks of a secondary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lagging {
    /// The cluster time to wait for.
    sample: Sample,
    lag_max: Duration,
    /// What the caller has seen.
    pub seen: Revision,
    /// Whether waiting for the sample is sure to show it.
    pub covered: bool,
}

impl MongoEngine {
    /// What to ask of a secondary, or why the primary is to be asked. Through
    /// `mongos` it always is: one shard's cluster time says nothing of another's.
    pub(crate) fn lagging(&self, context: ReadContext) -> Result<Lagging, Because> {
        let Freshness::MayLag { seconds, seen } = context.freshness else {
            return Err(Because::Asked);
        };
        let Deployment::ReplicaSet { members: 2.. } = self.deployment() else {
            return Err(Because::Asked);
        };
        let lag_max = Duration::from_secs(u64::from(seconds));
        let sample = self.lag().required(
            self.database(),
            lag_max,
            self.secondary_max() + ANSWER_MARGIN,
        )?;
        Ok(Lagging {
            sample,
            lag_max,
            seen,
            covered: covers(sample, seen, context.now),
        })
    }

    /// Documents and how old they are at the most, or why the primary has to answer:
    /// mostly because no secondary has caught up in time.
    pub(crate) async fn ask_secondary(
        &self,
        documents: &mongodb::Collection<Document>,
        wanted: &Wanted,
        lagging: &Lagging,
    ) -> Result<(Vec<Document>, Duration), Because> {
        let asking = self.find_after(documents, wanted, lagging.sample.time);
        let limit = self.secondary_max() + ANSWER_MARGIN;
        let (found, shown) = match answer(limit, Asked::Read, asking).await {
            Ok(answered) => answered,
            Err(failure) => {
                let because = reason_of(&failure);
                self.lag().rest(because);
                return Err(because);
            }
        };
        let age = self.lag().age(lagging.sample, shown, lagging.lag_max);
        Ok((found, age.ok_or(Because::Behind)?))
    }

    /// The documents on a secondary that has reached `after`, and how far it has got.
    async fn find_after(
        &self,
        documents: &mongodb::Collection<Document>,
        wanted: &Wanted,
        after: bson::Timestamp,
    ) -> mongodb::error::Result<(Vec<Document>, Option<bson::Timestamp>)> {
        let starting = documents.client().start_session().causal_consistency(true);
        let mut session = starting.await?;
        session.advance_operation_time(after);
        let secondary = ReadPreference::Secondary { options: None };
        let mut cursor = wanted
            .find(documents)
            .selection_criteria(SelectionCriteria::ReadPreference(secondary))
            // The server gives up by itself, so that no read waits there for ever.
            .max_time(self.secondary_max())
            .session(&mut session)
            .await?;
        let found = cursor.stream(&mut session).try_collect().await?;
        Ok((found, session.operation_time()))
    }
}

/// A secondary that has not reached the sample says so, or says nothing in time.
fn reason_of(failure: &Failure) -> Because {
    match failure {
        Failure::Refused {
            code: MAX_TIME_EXPIRED,
            ..
        } => Because::Behind,
        Failure::Refused { .. } | Failure::Engine(_) => Because::Unavailable,
    }
}
