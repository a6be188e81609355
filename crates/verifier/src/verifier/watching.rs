//! What changes while a verification goes on: both journals name it, and both sides are read again (W35).

use std::ops::Bound;
use std::time::Duration;

use engine_api::{
    Freshness, JournalEntry, JournalEvent, Query, ReadContext, Record, RecordKey, Remedy,
};
use futures::future::{join, join_all};

use super::{Phase, Verifier, since};
use crate::difference::{Discord, discord};
use crate::digest::digest;
use crate::error::VerifyError;
use crate::invariants::Sole;
use crate::progress::Side;

/// Records that are asked for where one must stand alone: two are too many.
const TOGETHER_MAX: usize = 16;

/// A record that changed, or looked different.
#[derive(Clone, Debug, Default)]
pub(super) struct Suspect {
    /// As the last look found it; `None` before the first.
    pub discord: Option<Discord>,
    /// Since when the source has stood like this, by `World::elapsed`.
    stands: Option<(Option<u128>, Duration)>,
    /// Different for longer than a copy may lag.
    pub is_confirmed: bool,
    /// Another record may stand where this one must stand alone.
    pub is_crowded: bool,
}

impl Verifier {
    /// One page of each journal. Answers whether both were read to their ends.
    pub(super) async fn read_journals(&mut self) -> Result<bool, VerifyError> {
        if self.suspects.len() >= self.limits.suspects_max {
            return Ok(false);
        }
        let limit = self.limits.journal_entries_max;
        let source = self
            .engine(Side::Source)
            .journal_read(&self.source_at, limit);
        let target = self
            .engine(Side::Target)
            .journal_read(&self.target_at, limit);
        let (source, target) = join(source, target).await;
        let mut at_end = true;
        for (side, page) in [(Side::Source, source), (Side::Target, target)] {
            let page = page.map_err(VerifyError::of(side))?;
            at_end &= page.entries.len() < limit;
            for entry in &page.entries {
                if let Some(key) = self.changed(entry) {
                    // It has to be looked at after this, whatever an earlier look found.
                    let before = self.suspects.remove(&key);
                    let is_crowded = before.is_some_and(|before| before.is_crowded);
                    let suspect = Suspect {
                        is_crowded,
                        ..Suspect::default()
                    };
                    self.suspects.insert(key, suspect);
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
        let after = match self.looked_at.take() {
            Some(key) => Bound::Excluded(key),
            None => Bound::Unbounded,
        };
        let wanted = self.limits.looks_at_once_max.min(self.suspects.len());
        let later = self.suspects.range((after, Bound::Unbounded));
        let in_turn = later.chain(self.suspects.range(..)).take(wanted);
        let mut keys: Vec<RecordKey> = in_turn.map(|(key, _)| key.clone()).collect();
        self.look_at_each(&keys).await?;
        self.looked_at = keys.pop();
        self.settle();
        Ok(())
    }

    pub(super) async fn look_at_all(&mut self) -> Result<(), VerifyError> {
        let keys: Vec<RecordKey> = self.suspects.keys().cloned().collect();
        self.look_at_each(&keys).await
    }

    /// Some at a time: behind a freeze shoppers wait for it.
    async fn look_at_each(&mut self, keys: &[RecordKey]) -> Result<(), VerifyError> {
        for some in keys.chunks(self.limits.reads_at_once_max) {
            let reading = some.iter().map(|key| self.read_both(key));
            for (key, images) in some.iter().zip(join_all(reading).await) {
                self.weigh(key, images?).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn look_at(
        &mut self,
        key: &RecordKey,
    ) -> Result<Option<Discord>, VerifyError> {
        let images = self.read_both(key).await?;
        self.weigh(key, images).await
    }

    /// One whose images agree is suspect no more.
    async fn weigh(
        &mut self,
        key: &RecordKey,
        (source, target): (Option<Record>, Option<Record>),
    ) -> Result<Option<Discord>, VerifyError> {
        self.looked_again += 1;
        let found = match discord(source.as_ref(), target.as_ref(), self.world.now()) {
            None => self.breach(key, source.as_ref(), target.as_ref()).await?,
            found => found,
        };
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

    /// A rule that the target breaks and the source keeps. One that both break is told of the source.
    async fn breach(
        &mut self,
        key: &RecordKey,
        source: Option<&Record>,
        target: Option<&Record>,
    ) -> Result<Option<Discord>, VerifyError> {
        let (Some(invariants), Some(target)) = (self.invariants.clone(), target) else {
            return Ok(None);
        };
        let now = self.world.now();
        if let Some(rule) = invariants.broken(target, now) {
            if source
                .and_then(|source| invariants.broken(source, now))
                .as_ref()
                != Some(&rule)
            {
                return Ok(Some(Discord::Breaks(rule)));
            }
            self.find(key, rule);
        }
        let is_crowded = self.suspects.get(key).is_some_and(|it| it.is_crowded);
        let Some(sole) = invariants.sole(target, now).filter(|_| is_crowded) else {
            return Ok(None);
        };
        if self.stand_together(Side::Target, &sole).await? < 2 {
            return Ok(None);
        }
        let rule = sole.rule();
        if self.stand_together(Side::Source, &sole).await? < 2 {
            return Ok(Some(Discord::Breaks(rule)));
        }
        self.find(key, rule);
        Ok(None)
    }

    /// How many live records of the scope answer where one may; none on a side that cannot be asked.
    async fn stand_together(&self, side: Side, sole: &Sole) -> Result<usize, VerifyError> {
        let query = Query::first(sole.path, sole.equals.clone(), TOGETHER_MAX);
        let context = ReadContext {
            now: self.world.now(),
            freshness: Freshness::Latest,
        };
        match self.engine(side).query(&query, context).await {
            Ok(page) => {
                let ours = |record: &&Record| self.pair.scope.contains(&record.key.shard_key);
                Ok(page.records.iter().filter(ours).count())
            }
            Err(error) if error.remedy() == Remedy::GiveUp => Ok(0),
            Err(error) => Err(VerifyError::of(side)(error)),
        }
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
