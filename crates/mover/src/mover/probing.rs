//! How busy both engines are: one record is read between two pieces of the copy, and the time it takes.
//!
//! Shoppers of other processes are not seen here, and a process that only moves serves none: what they share with the
//! copy are the engines. A read beside the copy would wait for the copy's own puts, in the connections of this process,
//! which nobody else feels: every copy would look like too much, however slow.

use std::sync::Arc;
use std::time::Duration;

use engine_api::{Engine, Freshness, ReadContext, RecordKey, Scan, World};

use super::Runner;
use super::copying::Fed;
use crate::error::MoveError;
use crate::plan::End;

/// Reads of each side before the copy begins.
const READS_AT_REST: usize = 9;
/// Fewer in a window tell nothing. After a piece that more follow so many are made: on a slow engine it takes the window.
const READS_LEAST: usize = 3;
/// More in a window are not kept.
const READS_MAX: usize = 256;

/// Reads since the window began.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// What is read, once it was looked for; `None` inside: nothing was there.
    key: Option<Option<RecordKey>>,
    source_us: Vec<u64>,
    target_us: Vec<u64>,
}

/// One read of each side, ready to be made.
pub(super) struct Probe {
    key: RecordKey,
    source: Arc<dyn Engine>,
    target: Arc<dyn Engine>,
    world: Arc<dyn World>,
}

/// What it took; `None` of a side that failed: whoever copies meets that, too, and tells it.
pub(super) struct Probed {
    source_us: Option<u64>,
    target_us: Option<u64>,
}

impl Probes {
    pub fn begin(&mut self) {
        self.source_us.clear();
        self.target_us.clear();
    }

    pub fn add(&mut self, probed: Probed) {
        let sides = [
            (&mut self.source_us, probed.source_us),
            (&mut self.target_us, probed.target_us),
        ];
        for (all, us) in sides {
            all.extend(us.filter(|_| all.len() < READS_MAX));
        }
    }

    /// What a read usually takes on the slower side.
    pub fn slower_us(&self) -> Option<u64> {
        let usual = |all: &Vec<u64>| {
            let mut all = all.clone();
            all.sort_unstable();
            (all.len() >= READS_LEAST).then(|| all[all.len() / 2])
        };
        usual(&self.source_us).max(usual(&self.target_us))
    }
}

impl Probe {
    /// One side after the other: both at once would be twice the load.
    pub async fn read(&self) -> Probed {
        Probed {
            source_us: self.time(&self.source).await,
            target_us: self.time(&self.target).await,
        }
    }

    async fn time(&self, engine: &Arc<dyn Engine>) -> Option<u64> {
        let began = self.world.elapsed();
        let context = ReadContext {
            now: self.world.now(),
            freshness: Freshness::Latest,
        };
        engine.get(&self.key, context).await.ok()?;
        Some(micros(self.world.elapsed().saturating_sub(began)))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Runner<'_> {
    /// What a read of one record takes before anything is copied.
    pub(super) async fn probe_at_rest(&mut self) -> Result<Option<u64>, MoveError> {
        let Some(probe) = self.probe().await? else {
            return Ok(None);
        };
        let mut at_rest = Probes::default();
        for _ in 0..READS_AT_REST {
            at_rest.add(probe.read().await);
        }
        Ok(at_rest.slower_us())
    }

    /// Some reads after a piece of the copy that more follow, or one where little is copied.
    pub(super) async fn probe_after(&mut self, fed: Fed) -> Result<(), MoveError> {
        let reads = match fed {
            Fed::Behind => READS_LEAST,
            Fed::Waits { .. } | Fed::CaughtUp | Fed::Throttled { .. } => 1,
        };
        let Some(probe) = self.probe().await? else {
            return Ok(());
        };
        for _ in 0..reads {
            self.work.pace.probes.add(probe.read().await);
        }
        Ok(())
    }

    /// A read of some record that is moved; none if the first page of the source had none when this process looked.
    pub(super) async fn probe(&mut self) -> Result<Option<Probe>, MoveError> {
        let (source, target) = (self.left(End::Source)?, self.entered(End::Target)?);
        if self.work.pace.probes.key.is_none() {
            let plan = self.plan();
            let first = Scan {
                collection: plan.collection,
                scope: plan.scope().clone(),
                after: None,
                until: None,
                limit: 1,
            };
            let page = source.scan(&first).await;
            let page = page.map_err(|error| self.of_end(End::Source, error))?;
            let first = page.images.into_iter().next();
            self.work.pace.probes.key = Some(first.map(|image| image.key));
        }
        let key = self.work.pace.probes.key.clone().flatten();
        let world = self.config.world.clone();
        Ok(key.map(|key| Probe {
            key,
            source,
            target,
            world,
        }))
    }
}
