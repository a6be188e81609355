//! Reading journals on, and looking at what they name.

use std::collections::BTreeMap;
use std::time::Duration;

use engine_api::{ChangeKind, JournalEvent, JournalPage, Record, RecordKey, Revision};
use layout::Collection;
use router::ShardName;

use super::{Caught, Following, Reached, Sources, of_shard};
use crate::error::FollowError;

/// Entries in one read of a journal.
const JOURNAL_PAGE_ENTRIES: usize = 1000;

/// Pages of one journal in one pass, so that a busy shard does not starve the others.
const JOURNAL_PAGES_MAX: usize = 100;

/// How long an entry waits for its owner to show the change (W22). Then it
/// counts as one that failed half-way (E18).
const SHOW_MS_MAX: u64 = 600_000;

/// Entries that wait at once; while there are more, journals are not read on.
const WAITING_MAX: usize = 10_000;

/// An entry whose change the owner does not show yet.
pub(super) struct Waiting {
    entry: Entry,
    /// By `World::elapsed`.
    until: Duration,
}

#[derive(Clone, Copy)]
struct Entry {
    kind: ChangeKind,
    revision: Revision,
}

impl Sources {
    pub(super) async fn follow(
        &self,
        following: &mut Following,
        caught: &mut Caught,
    ) -> Result<Reached, FollowError> {
        self.look_again(following).await?;
        let mut reached = Reached::End;
        let shards: Vec<ShardName> = following.positions.keys().cloned().collect();
        for shard in &shards {
            match self.follow_shard(following, shard, caught).await? {
                Reached::End => {}
                Reached::Behind => reached = Reached::Behind,
            }
        }
        Ok(reached)
    }

    async fn follow_shard(
        &self,
        following: &mut Following,
        shard: &ShardName,
        caught: &mut Caught,
    ) -> Result<Reached, FollowError> {
        let engine = self.engine(shard)?;
        for _ in 0..JOURNAL_PAGES_MAX {
            if following.waiting.len() >= WAITING_MAX {
                break;
            }
            let Some(position) = following.positions.get(shard) else {
                break;
            };
            let page = engine.journal_read(position, JOURNAL_PAGE_ENTRIES).await;
            let page = page.map_err(of_shard(shard))?;
            for (key, entry) in changed_products(&page) {
                self.look(following, key, entry).await?;
            }
            self.index.commit()?;
            let entries = page.entries.len() as u64;
            caught.entries += entries;
            self.counts.entries.add(entries);
            following.positions.insert(shard.clone(), page.next);
            if page.entries.is_empty() {
                return Ok(Reached::End);
            }
        }
        Ok(Reached::Behind)
    }

    /// Looks again at what was not shown at the last pass.
    async fn look_again(&self, following: &mut Following) -> Result<(), FollowError> {
        let keys: Vec<RecordKey> = following.waiting.keys().cloned().collect();
        for key in keys {
            let Some(entry) = following.waiting.get(&key).map(|waiting| waiting.entry) else {
                continue;
            };
            self.look(following, key, entry).await?;
        }
        let now = self.world.elapsed();
        let before = following.waiting.len();
        following.waiting.retain(|_, waiting| waiting.until > now);
        let given_up = before - following.waiting.len();
        if given_up > 0 {
            tracing::warn!(given_up, "journal entries whose change never showed");
            self.counts.never_shown.add(given_up as u64);
        }
        self.counts.waiting.set(following.waiting.len() as u64);
        Ok(self.index.commit()?)
    }

    /// Brings one product to what its owner shows now; the entry waits if that
    /// is older than the entry (W22).
    async fn look(
        &self,
        following: &mut Following,
        key: RecordKey,
        entry: Entry,
    ) -> Result<(), FollowError> {
        let image = self.router.image(&key).await?;
        let live = image
            .as_deref()
            .filter(|image| image.live_at(self.world.now()).is_some());
        let header = live.map(|image| image.header.revision);
        if header.is_none() || following.headers.get(&key.id) != header.as_ref() {
            self.take_over(&key, image.as_deref())?;
            match header {
                Some(header) => following.headers.insert(key.id.clone(), header),
                None => following.headers.remove(&key.id),
            };
        }
        if entry.shown_by(image.as_deref()) {
            following.waiting.remove(&key);
        } else {
            let until = self.world.elapsed() + Duration::from_millis(SHOW_MS_MAX);
            let waiting = following.waiting.entry(key);
            let waiting = waiting.or_insert(Waiting { entry, until });
            if entry.revision > waiting.entry.revision {
                *waiting = Waiting { entry, until };
            }
        }
        self.counts.waiting.set(following.waiting.len() as u64);
        Ok(())
    }
}

impl Entry {
    /// A removal whose mark is forgotten already is shown by nothing at all.
    fn shown_by(&self, image: Option<&Record>) -> bool {
        match image {
            Some(image) => image.newest_revision() >= self.revision,
            None => self.kind == ChangeKind::Removed,
        }
    }
}

/// The products that the page names, each with its newest entry: one changed a
/// hundred times is read once.
fn changed_products(page: &JournalPage) -> BTreeMap<RecordKey, Entry> {
    let mut changed: BTreeMap<RecordKey, Entry> = BTreeMap::new();
    for entry in &page.entries {
        let JournalEvent::Changed {
            key,
            kind,
            revision,
        } = &entry.event
        else {
            continue;
        };
        if key.collection != Collection::Products {
            continue;
        }
        let entry = Entry {
            kind: *kind,
            revision: *revision,
        };
        let newest = changed.entry(key.clone()).or_insert(entry);
        if newest.revision < entry.revision {
            *newest = entry;
        }
    }
    changed
}
