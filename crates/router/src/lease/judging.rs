//! Waiting for other processes (W18).
//!
//! Whoever moves keys publishes a map and waits until no process can answer
//! under an older one any more: each has acknowledged it, or its lease has run
//! out by the clock of who waits.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine_api::{ControlStore, Generation, Remedy, World, Writer};

use super::observing::{Observations, Standing};
use super::{LeaseError, Term, load};
use crate::limits::Limits;
use crate::map::ShardName;
use crate::stalls::HeldFor;

/// Looks at the leases of others, and remembers what it saw: it judges the
/// better the longer it has looked.
#[derive(Debug)]
pub struct LeaseJudge {
    control: Arc<dyn ControlStore>,
    world: Arc<dyn World>,
    margin_percent: u32,
    poll: Duration,
    observations: Mutex<Observations>,
}

/// A lease as the judge sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSeen {
    pub process: String,
    pub writer: Writer,
    pub term: Term,
    /// What it has acknowledged; 0 before the first.
    pub generation: Generation,
    /// The shards that it has open.
    pub shards: BTreeSet<ShardName>,
    pub standing: Standing,
    /// For how long it was surely not renewed, as far as the judge has looked.
    pub age: Duration,
    /// What its process has held for the last freezes that are over for it.
    pub stalls: Vec<HeldFor>,
}

impl LeaseJudge {
    pub fn new(
        control: Arc<dyn ControlStore>,
        world: Arc<dyn World>,
        limits: &Limits,
    ) -> LeaseJudge {
        LeaseJudge {
            control,
            world,
            margin_percent: limits.lease_margin_percent,
            poll: limits.hold_poll(),
            observations: Mutex::default(),
        }
    }

    /// All leases, by writer number.
    pub async fn look(&self) -> Result<Vec<LeaseSeen>, LeaseError> {
        let sent = self.world.elapsed();
        let (table, _) = load(&*self.control).await?;
        let mut observations = self
            .observations
            .lock()
            .expect("no code panics while it holds the lock");
        observations.look(&table, sent, self.world.elapsed());
        let seen = table.leases().map(|(writer, record)| LeaseSeen {
            process: record.process.clone(),
            writer,
            term: record.term,
            generation: record.generation,
            shards: record.shards.clone(),
            standing: observations.standing(record, self.margin_percent),
            age: observations.age(record),
            stalls: record.stalls.clone(),
        });
        Ok(seen.collect())
    }

    /// Returns when every lease has acknowledged the generation, has run out or
    /// was given up. From then on no process answers under an older one: one
    /// that wakes up later needs a new term first, and reads the map after it.
    /// The generation must have been published before.
    pub async fn wait_for(
        &self,
        generation: Generation,
        patience: Duration,
    ) -> Result<(), LeaseError> {
        let deadline = self.world.elapsed() + patience;
        loop {
            let behind = match self.look().await {
                Ok(seen) => seen.into_iter().find(|lease| lease.is_behind(generation)),
                Err(error) if error.remedy() == Remedy::GiveUp => return Err(error),
                Err(error) if self.world.elapsed() >= deadline => return Err(error),
                Err(_) => {
                    self.world.sleep(self.poll).await;
                    continue;
                }
            };
            let Some(behind) = behind else {
                return Ok(());
            };
            if self.world.elapsed() >= deadline {
                return Err(LeaseError::Behind {
                    behind: behind.process,
                    generation,
                    patience_ms: patience.as_millis(),
                });
            }
            self.world.sleep(self.poll).await;
        }
    }
}

impl LeaseSeen {
    /// Whether its process may still answer under an older generation.
    pub fn is_behind(&self, generation: Generation) -> bool {
        match self.standing {
            Standing::Live => self.generation < generation,
            Standing::RunOut | Standing::GivenUp => false,
        }
    }

    /// Whether its process serves and could not under a map that names the shard (W44).
    pub fn lacks(&self, shard: &ShardName) -> bool {
        match self.standing {
            Standing::Live => !self.shards.contains(shard),
            Standing::RunOut | Standing::GivenUp => false,
        }
    }
}
