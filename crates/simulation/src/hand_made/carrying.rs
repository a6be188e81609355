//! Carrying images over: all of them once, then those the journal names.

use engine_api::{
    Authority, Change, Engine, Freshness, JournalEvent, JournalPage, Outcome, Position,
    ReadContext, Record, RecordKey, Scan, Seal, WriteContext,
};

use super::{Mover, Stop};

const SCAN_RECORDS_MAX: usize = 2;
const JOURNAL_ENTRIES_MAX: usize = 8;
/// Rounds of catching up before the freeze.
const ROUNDS_MAX: usize = 3;
/// Pages read behind the freeze before something must be wrong.
const DRAIN_PAGES_MAX: usize = 10_000;

impl Mover {
    pub(super) async fn backfill(&self) -> Result<(), Stop> {
        let mut after = None;
        loop {
            let scan = Scan {
                collection: self.plan.collection,
                scope: self.plan.scope.clone(),
                after,
                until: None,
                limit: SCAN_RECORDS_MAX,
            };
            let page = self.insist(|| self.source.scan(&scan)).await?;
            self.fate("backfilling").await?;
            for image in page.images {
                self.put(image).await?;
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    pub(super) async fn catch_up(&self, mut position: Position) -> Result<Position, Stop> {
        for _ in 0..ROUNDS_MAX {
            let page = self.read_journal(&position).await?;
            if page.entries.is_empty() {
                break;
            }
            self.carry(&page).await?;
            position = page.next;
        }
        Ok(position)
    }

    /// Carries everything up to the seal.
    pub(super) async fn drain(&self, mut position: Position, seal: &Seal) -> Result<(), Stop> {
        for _ in 0..DRAIN_PAGES_MAX {
            if position >= seal.position {
                return Ok(());
            }
            let page = self.read_journal(&position).await?;
            if page.entries.is_empty() {
                return self.broken("the journal ends before the seal");
            }
            self.carry(&page).await?;
            position = page.next;
        }
        self.broken("the journal does not end")
    }

    async fn read_journal(&self, from: &Position) -> Result<JournalPage, Stop> {
        self.insist(|| self.source.journal_read(from, JOURNAL_ENTRIES_MAX))
            .await
    }

    async fn carry(&self, page: &JournalPage) -> Result<(), Stop> {
        for entry in &page.entries {
            let JournalEvent::Changed { key, revision, .. } = &entry.event else {
                continue;
            };
            if !self.is_in_scope(key) {
                continue;
            }
            let context = ReadContext {
                now: self.world.now(),
                freshness: Freshness::Latest,
            };
            let image = self.insist(|| self.source.get(key, context)).await?;
            match image {
                Some(image) if image.newest_revision() >= *revision => self.put(image).await?,
                _ => return self.broken(format!("the source does not show {revision} of {key}")),
            }
        }
        Ok(())
    }

    async fn put(&self, image: Record) -> Result<(), Stop> {
        let context = WriteContext {
            authority: Authority::Mover { term: self.term() },
            now: self.world.now(),
            revision: image.newest_revision(),
        };
        let change = Change::PutImage { image };
        match self
            .insist(|| self.target.apply(change.clone(), context.clone()))
            .await?
        {
            Outcome::Done { .. } => Ok(()),
            other => self.broken(format!("an image was answered {other:?}")),
        }
    }

    fn is_in_scope(&self, key: &RecordKey) -> bool {
        key.collection == self.plan.collection && self.plan.scope.contains(&key.shard_key)
    }
}
