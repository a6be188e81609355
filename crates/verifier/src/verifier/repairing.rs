//! Putting one record of the target right. Nothing here is done unless somebody asks for it.

use std::collections::BTreeMap;

use engine_api::{
    Authority, Change, Content, EngineError, Header, MoverTerm, Outcome, Record, RecordKey,
    Revision, WriteContext,
};

use super::Verifier;
use crate::difference::discord;
use crate::error::VerifyError;
use crate::progress::Side;

/// What became of a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    Repaired,
    /// It differs still: the source has moved on, or the target's engine cannot restore a record.
    Stays,
    /// It was none any more.
    Agrees,
}

impl Verifier {
    /// Puts the source's image of one record to the target, under the mover's term. It is merged like any other; where
    /// that changes nothing, because the damage has the very revision of the source or hides it, it replaces what is there.
    ///
    /// The feed may bring a newer image at the same moment, and lose it to this one. The target's journal names the
    /// record then, and it is compared again.
    pub async fn repair(
        &mut self,
        key: &RecordKey,
        term: &MoverTerm,
    ) -> Result<Repair, VerifyError> {
        let (source, target) = self.read_both(key).await?;
        let now = self.world.now();
        if discord(source.as_ref(), target.as_ref(), now).is_none() {
            self.suspects.remove(key);
            return Ok(Repair::Agrees);
        }
        let image = match (source, target) {
            (Some(source), _) => source,
            (None, Some(target)) => removal_of(target),
            (None, None) => return Ok(Repair::Agrees),
        };
        let context = WriteContext {
            authority: Authority::Mover { term: term.clone() },
            now,
            revision: image.newest_revision(),
        };
        let change = Change::PutImage {
            image: image.clone(),
        };
        let put = self.pair.target.apply(change, context.clone()).await;
        put.map_err(VerifyError::of(Side::Target))?;
        if self.look_at(key).await?.is_none() {
            return Ok(Repair::Repaired);
        }
        match self.pair.target.restore(image, context).await {
            Ok(Outcome::Done { .. }) => {}
            Ok(refused) => tracing::warn!(%key, ?refused, "the target does not restore the record"),
            Err(EngineError::Unsupported { .. }) => return Ok(Repair::Stays),
            Err(error) => return Err(VerifyError::of(Side::Target)(error)),
        }
        Ok(match self.look_at(key).await? {
            None => Repair::Repaired,
            Some(_) => Repair::Stays,
        })
    }
}

/// A removal that is newer than everything the target has of the record.
fn removal_of(target: Record) -> Record {
    let newest = target.newest_revision();
    let revision = Revision::from_i64(newest.to_i64() + 1).unwrap_or(newest);
    Record {
        key: target.key,
        header: Header {
            revision,
            cleared: newest,
            content: Content::Removed,
        },
        parts: BTreeMap::new(),
    }
}
