//! What changes while a verification goes on: both journals name it, and both sides are read again (W35).

use std::time::Duration;

use engine_api::{JournalEntry, JournalEvent, RecordKey};

use super::{Phase, Verifier, since};
use crate::difference::{Discord, discord};
use crate::digest::digest;
use crate::error::VerifyError;
use crate::progress::Side;

/// A record that changed, or looked different.
#[derive(Clone, Debug, Default)]
pub(super) struct Suspect {
    /// As the last look found it; `None` before the first.
    pub discord: Option<Discord>,
    /// Since when the source has stood like this, by `World::elapsed`.
    stands: Option<(Option<u128>, Duration)>,
    /// Different for longer than a copy may lag.
    pub is_confirmed: bool,
}

impl Verifier {
    /// One page of each journal. Answers whether both were read to their ends.
    pub(super) async fn read_journals(&mut self) -> Result<bool, VerifyError> {
        if self.suspects.len() >= self.limits.suspects_max {
            return Ok(false);
        }
        let limit = self.limits.journal_entries_max;
        let mut at_end = true;
        for side in [Side::Source, Side::Target] {
            let from = match side {
                Side::Source => &self.source_at,
                Side::Target => &self.target_at,
            };
            let page = self.engine(side).journal_read(from, limit).await;
            let page = page.map_err(VerifyError::of(side))?;
            at_end &= page.entries.len() < limit;
            for entry in &page.entries {
                if let Some(key) = self.changed(entry) {
                    // It has to be looked at after this, whatever an earlier look found.
                    self.suspects.insert(key, Suspect::default());
                }
            }
            match side {
                Side::Source => self.source_at = page.next,
                Side::Target => self.target_at = page.next,
            }
        }
        self.settle();
        Ok(at_end)
    }

    fn changed(&self, entry: &JournalEntry) -> Option<RecordKey> {
        let JournalEvent::Changed { key, .. } = &entry.event else {
            return None;
        };
        let ours =
            key.collection == self.pair.collection && self.pair.scope.contains(&key.shard_key);
        ours.then(|| key.clone())
    }

    /// Reads a bounded number of suspects again, each in its turn.
    pub(super) async fn look_again(&mut self) -> Result<(), VerifyError> {
        let after = self.looked_at.take();
        let mut keys: Vec<RecordKey> = self.suspects.keys().cloned().collect();
        let first = keys.partition_point(|key| after.as_ref().is_some_and(|after| key <= after));
        keys.rotate_left(first);
        keys.truncate(self.limits.looks_at_once_max);
        for key in &keys {
            self.look_at(key).await?;
        }
        self.looked_at = keys.pop();
        self.settle();
        Ok(())
    }

    pub(super) async fn look_at_all(&mut self) -> Result<(), VerifyError> {
        let keys: Vec<RecordKey> = self.suspects.keys().cloned().collect();
        for key in &keys {
            self.look_at(key).await?;
        }
        Ok(())
    }

    /// Reads both sides; one that agrees is suspect no more.
    pub(super) async fn look_at(
        &mut self,
        key: &RecordKey,
    ) -> Result<Option<Discord>, VerifyError> {
        let (source, target) = self.read_both(key).await?;
        self.looked_again += 1;
        let found = discord(source.as_ref(), target.as_ref(), self.world.now());
        let Some(found) = found else {
            self.suspects.remove(key);
            return Ok(None);
        };
        let (now, stands) = (self.world.elapsed(), source.as_ref().map(digest));
        let lag_max = Duration::from_millis(self.limits.lag_ms_max);
        let suspect = self.suspects.entry(key.clone()).or_default();
        let began = match suspect.stands {
            Some((before, began)) if before == stands => began,
            _ => now,
        };
        suspect.stands = Some((stands, began));
        suspect.is_confirmed = since(began, now) >= lag_max;
        suspect.discord = Some(found.clone());
        Ok(Some(found))
    }

    /// With no suspect left, everything before both places was compared.
    fn settle(&mut self) {
        if self.suspects.is_empty() {
            self.settled = (self.source_at.clone(), self.target_at.clone());
            if matches!(self.phase, Phase::Watching { .. }) {
                self.unsettled.clear();
            }
        }
    }

    /// Whether every suspect is a difference, and none waits for a copy to arrive.
    pub(super) fn nothing_is_open(&self) -> bool {
        self.suspects.values().all(|suspect| suspect.is_confirmed)
    }
}
