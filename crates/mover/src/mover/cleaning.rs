//! After the completion: the source forgets what it does not own any more (W47).
//!
//! ```text
//! grace ─▶ does anybody still read there? ─▶ a page ─▶ condemn ─▶ is the move still ours, the keys still not the source's?
//!                                             ▲                                                      │
//!                                             └───────────────────────────────────── forget ◀────────┘
//! ```
//!
//! A mover that sleeps on any of these lines takes nothing along that lives. As long as the record says `cleaning`, no
//! move may bring these keys to the source. Once it does not, whoever brings them puts images, which take the records out
//! of what was condemned. And what is condemned after that is not forgotten, because the record is asked in between.

use std::time::Duration;

use engine_api::{
    Authority, EngineError, Record, RecordKey, Revision, Scan, ScanPosition, WriteContext,
};
use router::{Map, ShardName};

use super::{Pass, Runner, stepped};
use crate::error::MoveError;
use crate::phase::{Event, Settled};
use crate::plan::{End, overlap_at};
use crate::preflight::engine_of;
use crate::registry;

/// What this process remembers of a cleaning; none of it outlives the process.
#[derive(Debug, Default)]
pub(super) struct Tidying {
    /// Up to when the grace was counted, by `World::elapsed`.
    pub rested: Option<Duration>,
    sweep: Option<Sweep>,
    /// When the next records go, by `World::elapsed`.
    resume_at: Duration,
    /// Those before this process took the move included.
    pub removed: u64,
    pub in_use: Option<String>,
}

impl Tidying {
    pub fn after(removed: u64) -> Tidying {
        Tidying {
            removed,
            ..Tidying::default()
        }
    }
}

/// How far the source was gone through since this process took the move, or since it was last found clean of nothing.
#[derive(Debug, Default)]
struct Sweep {
    /// Which of the source's shards.
    shard: usize,
    after: Option<ScanPosition>,
    /// Records that were met and are not the source's.
    met: u64,
}

impl Runner<'_> {
    /// Counts the grace by this process's own clock. What was counted since the last save is counted again by whoever
    /// takes over: it is never shorter than it was asked to be.
    pub(super) async fn rest(&mut self, grace_ms: u64) -> Result<Pass, MoveError> {
        let now = self.config.world.elapsed();
        let since = *self.work.tidying.rested.get_or_insert(now);
        let rested = now.saturating_sub(since);
        let left = Duration::from_millis(grace_ms).saturating_sub(rested);
        if left.is_zero() {
            self.event(Event::GraceOver).await?;
            return Ok(Pass::Behind);
        }
        if rested >= Duration::from_millis(self.config.limits.renew_ms) {
            let grace_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            self.work.tidying.rested = Some(now);
            self.event(Event::Rested { grace_ms }).await?;
        }
        Ok(self.waiting())
    }

    /// What is left at the source stays there.
    pub(super) async fn keep(&mut self) -> Result<Pass, MoveError> {
        self.work.tidying.sweep = None;
        self.work.tidying.in_use = None;
        self.update(|state| {
            stepped(state, Event::Kept)?;
            state.wish = None;
            Ok(())
        })
        .await?;
        Ok(Pass::Ended)
    }

    pub(super) async fn clean(&mut self, settled: &Settled) -> Result<Pass, MoveError> {
        let now = self.config.world.elapsed();
        if now < self.work.tidying.resume_at {
            let left = self.work.tidying.resume_at - now;
            let ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
            return Ok(Pass::Waiting { ms });
        }
        if self.work.tidying.sweep.is_none() {
            // Once: who has acknowledged the cutover does not go back, and no move may begin there any more.
            self.work.tidying.in_use = self.reader(settled).await?;
            if self.work.tidying.in_use.is_some() {
                return Ok(self.waiting());
            }
            self.work.tidying.sweep = Some(Sweep::default());
        }
        let sweep = self.work.tidying.sweep.take().unwrap_or_default();
        let gone = self.work.tidying.removed;
        let sweep = self.sweep(sweep).await?;
        let gone = self.work.tidying.removed - gone;
        self.work.tidying.resume_at = now + self.pause_of(gone);
        let sources = self.plan().shards(End::Source).len();
        match sweep {
            sweep if sweep.shard < sources => {
                self.work.tidying.sweep = Some(sweep);
                Ok(Pass::Behind)
            }
            Sweep { met: 0, .. } => {
                self.event(Event::Cleaned).await?;
                Ok(Pass::Ended)
            }
            // Once more: a copy that was late may have come behind the sweep.
            Sweep { .. } => {
                self.work.tidying.sweep = Some(Sweep::default());
                Ok(Pass::Behind)
            }
        }
    }

    /// One page of one shard.
    async fn sweep(&mut self, mut sweep: Sweep) -> Result<Sweep, MoveError> {
        let sources = self.plan().shards(End::Source);
        let shard = sources.into_iter().nth(sweep.shard).cloned();
        let Some(shard) = shard else {
            return Ok(sweep);
        };
        let engine = engine_of(&self.config.shards, &shard)?.clone();
        let of_shard = |source: EngineError| self.of_end(End::Source, source);
        let scan = Scan {
            collection: self.plan().collection,
            scope: self.plan().scope().clone(),
            after: sweep.after.take(),
            until: None,
            limit: self.config.limits.clean_records_max,
        };
        let page = engine.scan(&scan).await.map_err(of_shard)?;
        let map = self.load_map().await?;
        let mut foreign = page.images;
        foreign.retain(|image| !is_owned(&map, &shard, &image.key));
        if !foreign.is_empty() {
            let keys: Vec<_> = foreign.iter().map(|image| image.key.clone()).collect();
            sweep.met += keys.len() as u64;
            let context = self.cleaner(&foreign);
            let condemned = engine.condemn(&keys, context.clone()).await;
            let mut condemned = condemned.map_err(of_shard)?;
            let map = self.load_map().await?;
            condemned.retain(|one| !is_owned(&map, &shard, &one.key));
            // Ours still, and still to be cleaned, after they were condemned.
            self.update(|_| Ok(())).await?;
            let gone = engine.forget(&condemned, context).await;
            let gone = gone.map_err(|source| self.of_end(End::Source, source))?;
            self.work.tidying.removed += gone;
        }
        match page.next {
            Some(next) => sweep.after = Some(next),
            None => sweep.shard += 1,
        }
        Ok(sweep)
    }

    fn cleaner(&self, images: &[Record]) -> WriteContext {
        let newest = images.iter().map(Record::newest_revision).max();
        WriteContext {
            authority: Authority::Mover {
                term: self.tenure.mover_term(&self.work.held),
            },
            now: self.config.world.now(),
            revision: newest.unwrap_or(Revision::ZERO),
        }
    }

    fn pause_of(&self, gone: u64) -> Duration {
        let most = self.config.limits.clean_records_per_s_max;
        let asked = self.work.held.state.throttle.records_per_second_max;
        let rate = asked.map_or(most, |asked| asked.min(most)).max(1);
        Duration::from_micros(gone.saturating_mul(1_000_000) / u64::from(rate))
    }

    /// Whoever may still read these keys where they were.
    async fn reader(&mut self, settled: &Settled) -> Result<Option<String>, MoveError> {
        let generation = settled.generation;
        let seen = self.work.judge.look().await?;
        if let Some(lease) = seen.iter().find(|lease| lease.is_behind(generation)) {
            let process = &lease.process;
            return Ok(Some(format!(
                "process {process} has not acknowledged generation {generation}, and may still read there: end it, or wait"
            )));
        }
        let own = &self.config.name;
        for (name, record) in registry::list(self.config.control.as_ref()).await? {
            let Some(record) = record.filter(|_| name != *own) else {
                continue;
            };
            let (other, phase) = (&record.state.plan, &record.state.phase);
            if phase.is_over() || phase.is_tidying() {
                continue;
            }
            if let Some(shard) = overlap_at(self.plan(), other) {
                let phase = phase.name();
                return Ok(Some(format!(
                    "move {name} ({phase}) works with {shard}: it goes on when that has ended"
                )));
            }
        }
        Ok(None)
    }
}

/// Whether the map gives the record to this shard. One whose key is not of the map's shard key counts as owned: nobody
/// can tell, and what is kept harms nobody.
fn is_owned(map: &Map, shard: &ShardName, key: &RecordKey) -> bool {
    let Ok(collection) = map.collection(key.collection) else {
        return true;
    };
    if !collection.shards().contains(shard) {
        return false;
    }
    let width = key.shard_key.values().len();
    width != collection.shard_key.len() || collection.owner(&key.shard_key) == shard
}
