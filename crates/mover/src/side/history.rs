//! Finished records behind the live ones (decision 24).
//!
//! ```text
//!   live shards:  a  b  mark of c  ·        what lives there counts
//!   history:      a₀ ·  c          d        what does not is looked for here
//!   the side:     a  b  c          d
//! ```
//!
//! A record goes to the history by a copy and a removal, which leave the side as it was: the mark of the removal does
//! not hide the copy. So a removal that comes late, of a process that slept, changes nothing either. Nothing is ever
//! written to the history: what changes over there comes back among the live ones, and shadows the copy.
//!
//! Live first, then the history: what leaves the first has arrived in the second.

use engine_api::{
    ChangeKind, EngineError, Freshness, JournalEntry, JournalEvent, ReadContext, Record, RecordKey,
    Timestamp,
};
use futures::stream::{self, StreamExt, TryStreamExt};

use super::engine::is_mark;
use super::{Shard, Side, of};

/// Records of one page of a scan that are looked for on the other store at the same time.
const LOOKS_MAX: usize = 32;

impl Side {
    /// The image that counts, under this side's own key.
    pub(super) async fn kept(
        &self,
        name: &RecordKey,
        context: ReadContext,
    ) -> Result<Option<Record>, EngineError> {
        let live = self.stored(name, context).await?;
        if live.as_ref().is_some_and(|image| !is_mark(image)) {
            return Ok(live);
        }
        Ok(self.archived(name, context).await?.or(live))
    }

    /// What the history has of the record; without one, nothing.
    pub(super) async fn archived(
        &self,
        name: &RecordKey,
        context: ReadContext,
    ) -> Result<Option<Record>, EngineError> {
        let Some(history) = &self.history else {
            return Ok(None);
        };
        let key = self.common.key_in(&self.placement, name);
        let found = history.engine.get(key.as_ref().unwrap_or(name), context);
        let found = found.await.map_err(|error| of(history, error))?;
        Ok(found.filter(|image| !is_mark(image)))
    }

    /// Whether an image shows through from the history as it is, so that putting it among the live ones would only
    /// bring back what was archived: a layout that is entered again has its old history.
    pub(super) async fn shows_through(
        &self,
        image: &Record,
        now: Timestamp,
    ) -> Result<bool, EngineError> {
        if is_mark(image) {
            return Ok(false);
        }
        let archived = self.archived(&image.key, latest(now)).await?;
        let is_same = |kept: &Record| kept.header == image.header && kept.parts == image.parts;
        if !archived.is_some_and(|archived| is_same(&archived)) {
            return Ok(false);
        }
        let live = self.stored(&image.key, latest(now)).await?;
        Ok(live.is_none_or(|live| is_mark(&live)))
    }

    /// The removal of a record that the history has shows as the copy: nothing newer is ever to be seen of it.
    pub(super) async fn look_behind(&self, entry: &mut JournalEntry) -> Result<(), EngineError> {
        let JournalEvent::Changed {
            key,
            kind: kind @ ChangeKind::Removed,
            revision,
        } = &mut entry.event
        else {
            return Ok(());
        };
        if key.collection != self.collection {
            return Ok(());
        }
        if let Some(copy) = self.archived(key, latest(entry.written_at)).await? {
            (*kind, *revision) = (ChangeKind::Written, copy.newest_revision());
        }
        Ok(())
    }

    /// Of a page of one store, what counts: each record is met once, where it counts.
    pub(super) async fn counting(
        &self,
        shard: &Shard,
        images: Vec<Record>,
    ) -> Result<Vec<Record>, EngineError> {
        let Some(history) = &self.history else {
            return Ok(images);
        };
        let of_history = shard.name == history.name;
        let looked = images.into_iter().map(|image| async move {
            let counts = match (of_history, is_mark(&image)) {
                (false, false) => true,
                // A record that is finished: it is met in the history.
                (false, true) => self.is_nowhere_else(&image).await?,
                (true, false) => self.is_not_live(&image).await?,
                (true, true) => false,
            };
            Ok::<_, EngineError>(counts.then_some(image))
        });
        let looked = stream::iter(looked).buffered(LOOKS_MAX);
        let counting: Vec<Option<Record>> = looked.try_collect().await?;
        Ok(counting.into_iter().flatten().collect())
    }

    async fn is_nowhere_else(&self, mark: &Record) -> Result<bool, EngineError> {
        let name = self.name_of(&mark.key);
        let archived = self.archived(&name, latest(mark.header.revision.time()));
        Ok(archived.await?.is_none())
    }

    async fn is_not_live(&self, image: &Record) -> Result<bool, EngineError> {
        let name = self.name_of(&image.key);
        let live = self.stored(&name, latest(image.header.revision.time()));
        Ok(live.await?.is_none_or(|live| is_mark(&live)))
    }
}

/// Images are read whether they have expired or not; the time only has to be one.
fn latest(now: Timestamp) -> ReadContext {
    ReadContext {
        now,
        freshness: Freshness::OfEveryCopy,
    }
}
