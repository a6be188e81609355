//! Applying a change: read, decide, swap, and again if somebody was faster.
//!
//! A decision to write needs no care about what was read: the swap finds out.
//! A decision to answer does: what the primary shows may still be lost in a
//! failover, and nobody may be told of it. So an answer is decided a second
//! time, on what the majority holds, not before the moment of the first read.
//! Fences judge answers too, by the rules document instead of the validator.

use std::time::Duration;

use engine_api::{
    Authority, Change, Decision, EngineError, Outcome, Record, RecordKey, WriteContext, decide,
};
use mongodb::Collection;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, doc};
use mongodb::options::ReadConcern;

use crate::document::{Stored, from_document, stamp_of, to_document};
use crate::engine::MongoEngine;
use crate::failure::{Asked, DOCUMENT_VALIDATION_FAILURE, DUPLICATE_KEY, Failure, answer};

/// How often one change is decided anew because others changed the record in
/// between. Whenever one loses, another has won.
const LOSSES_MAX: u32 = 128;

/// A writer that lost waits this long for each time it lost, up to the maximum.
const PAUSE_STEP: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);

enum Swap {
    Done,
    /// The document is no longer the one that was read.
    Overtaken,
}

impl MongoEngine {
    pub(crate) async fn apply_alone(
        &self,
        change: &Change,
        context: &WriteContext,
    ) -> Result<Outcome, EngineError> {
        if let Some(outcome) = self.take_at_once(change, context).await? {
            return Ok(outcome);
        }
        let key = change.key();
        let documents = self.documents(key.collection)?;
        let mut turn = None;
        let mut lost = 0;
        while lost < LOSSES_MAX {
            let (stored, decision) = self.look(&documents, change, context).await?;
            let (record, kind, revision) = match decision {
                Decision::Answer(outcome) => {
                    self.admit(key, &context.authority).await?;
                    if let (Change::PutImage { .. }, Some(stored)) = (change, &stored)
                        && stored.condemned
                        && !self.spare(key, stored).await?
                    {
                        lost += 1;
                        continue;
                    }
                    return Ok(outcome);
                }
                // Many want the same stock at once: not even a first try without a turn.
                Decision::Write { .. } if turn.is_none() && (lost > 0 || is_stock(change)) => {
                    turn = Some(self.turn(key).await?);
                    continue;
                }
                Decision::Write {
                    record,
                    kind,
                    revision,
                } => (record, kind, revision),
            };
            let document = to_document(&record, kind, revision, context)?;
            let stamp = stored.map(|stored| stored.stamp);
            let swapping = self.swap(&documents, key, stamp, document, &context.authority);
            match swapping.await? {
                Swap::Done => return Ok(Outcome::Done { revision }),
                Swap::Overtaken => lost += 1,
            }
            tokio::time::sleep((PAUSE_STEP * lost).min(PAUSE_MAX)).await;
        }
        let reason = format!("{key} was changed by others {LOSSES_MAX} times in a row");
        Err(EngineError::Unavailable { reason })
    }

    /// Puts the whole document of the image in the place of whatever stands there. The validator judges the
    /// term in the same step.
    pub(crate) async fn restore_alone(
        &self,
        image: &Record,
        context: &WriteContext,
    ) -> Result<Outcome, EngineError> {
        let key = &image.key;
        let documents = self.documents(key.collection)?;
        let revision = image.newest_revision();
        for _ in 0..LOSSES_MAX {
            let finding = documents
                .find_one(self.named(key))
                .projection(doc! { "stamp": 1 })
                .read_concern(ReadConcern::local());
            let found = answer(self.limit(), Asked::Read, finding).await?;
            let stamp = found.map(|document| stamp_of(key.collection, &document));
            let document = to_document(image, image.change_kind(), revision, context)?;
            let stamp = stamp.transpose()?;
            let swapping = self.swap(&documents, key, stamp, document, &context.authority);
            if let Swap::Done = swapping.await? {
                return Ok(Outcome::Done { revision });
            }
        }
        let reason = format!("{key} was changed by others {LOSSES_MAX} times in a row");
        Err(EngineError::Unavailable { reason })
    }

    /// What is there, and what becomes of the change.
    async fn look(
        &self,
        documents: &Collection<Document>,
        change: &Change,
        context: &WriteContext,
    ) -> Result<(Option<Stored>, Decision), EngineError> {
        let stored = self.read_newest(documents, change.key()).await?;
        let decision = decide(record_of(&stored), change, context)?;
        if let Decision::Write { .. } = decision {
            return Ok((stored, decision));
        }
        let confirmed = self.read_confirmed(documents, change.key()).await?;
        let decision = decide(record_of(&confirmed), change, context)?;
        Ok((confirmed, decision))
    }

    /// What the primary has, committed by the majority or not.
    async fn read_newest(
        &self,
        documents: &Collection<Document>,
        key: &RecordKey,
    ) -> Result<Option<Stored>, EngineError> {
        let finding = documents
            .find_one(self.named(key))
            .read_concern(ReadConcern::local());
        let found = answer(self.limit(), Asked::Read, finding).await?;
        found
            .map(|document| from_document(key.collection, &document))
            .transpose()
    }

    async fn read_confirmed(
        &self,
        documents: &Collection<Document>,
        key: &RecordKey,
    ) -> Result<Option<Stored>, EngineError> {
        let found = self.find_confirmed(documents, self.named(key)).await?;
        found
            .map(|document| from_document(key.collection, &document))
            .transpose()
    }

    /// What the majority has, waiting until that includes all that the primary shows now.
    pub(crate) async fn find_confirmed(
        &self,
        documents: &Collection<Document>,
        named: Document,
    ) -> Result<Option<Document>, EngineError> {
        let starting = documents.client().start_session().causal_consistency(true);
        let mut session = answer(self.limit(), Asked::Read, starting).await?;
        let newest = documents
            .find_one(named.clone())
            .projection(doc! { "_id": 1 })
            .read_concern(ReadConcern::local())
            .session(&mut session);
        answer(self.limit(), Asked::Read, newest).await?;
        let confirmed = documents
            .find_one(named)
            .read_concern(ReadConcern::majority())
            .session(&mut session);
        Ok(answer(self.limit(), Asked::Read, confirmed).await?)
    }

    async fn swap(
        &self,
        documents: &Collection<Document>,
        key: &RecordKey,
        stamp: Option<ObjectId>,
        document: Document,
        authority: &Authority,
    ) -> Result<Swap, EngineError> {
        let result = match stamp {
            Some(stamp) => {
                let mut filter = self.named(key);
                filter.insert("stamp", stamp);
                let replacing = documents.replace_one(filter, document);
                let replaced = answer(self.limit(), Asked::Write, replacing).await;
                replaced.map(|result| {
                    if result.matched_count == 1 {
                        Swap::Done
                    } else {
                        Swap::Overtaken
                    }
                })
            }
            None => {
                let inserted =
                    answer(self.limit(), Asked::Write, documents.insert_one(document)).await;
                inserted.map(|_| Swap::Done)
            }
        };
        match result {
            Ok(swap) => Ok(swap),
            Err(Failure::Refused {
                code: DUPLICATE_KEY,
                ..
            }) => Ok(Swap::Overtaken),
            Err(Failure::Refused {
                code: DOCUMENT_VALIDATION_FAILURE,
                message,
            }) => {
                self.admit(key, authority).await?;
                let reason =
                    format!("the validator refused {key}, but no fence or term does: {message}");
                Err(EngineError::Unavailable { reason })
            }
            Err(failure) => Err(failure.into()),
        }
    }

    /// Fences stop routers, lost terms stop movers.
    async fn admit(&self, key: &RecordKey, authority: &Authority) -> Result<(), EngineError> {
        let rules = self.guards().rules().await?;
        match authority {
            Authority::Router { generation } => match rules.stopping(key, *generation) {
                Some(fence) => Err(EngineError::Fenced {
                    used: *generation,
                    fence,
                }),
                None => Ok(()),
            },
            Authority::Mover { term } => rules.hold_term(term),
        }
    }
}

fn is_stock(change: &Change) -> bool {
    matches!(change, Change::Stock { .. })
}

fn record_of(stored: &Option<Stored>) -> Option<&engine_api::Record> {
    stored.as_ref().map(|stored| &stored.record)
}
