//! A move made by hand: the shortest script that keeps the rules, so that the
//! router and the engines are tried under it. Movers pause and die on the way;
//! another takes over under a higher term.
//!
//! ```text
//! claim ─▶ position ─▶ backfill ─▶ catch up ─▶ freeze ─▶ wait for all leases ─▶ fence ─▶ drain to the seal ─▶ cut over
//!                                     └──────────┴──── or give up: thaw, one generation higher
//! ```

mod carrying;
mod supervising;

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine_api::{ControlStore, Engine, EngineError, Fence, Generation, MoverTerm, World};
use layout::{Collection, Scope, ShardKey};
use router::{Edit, KeeperError, LeaseJudge, Limits, Map, MapKeeper, ShardName};
use tokio::time::sleep;

use crate::chance::Chance;
use crate::engine::FaultyEngine;
use crate::recording::Recording;

pub use supervising::Supervisor;

/// How often a call is made again while its answers get lost.
const ATTEMPTS_MAX: u32 = 500;
const AGAIN_AFTER: Duration = Duration::from_millis(4);
/// How often one mover begins again because the scope thawed under it.
const BEGINNINGS_MAX: u32 = 20;
const PAUSE_MS_MAX: u64 = 900;
/// Longer than any lease and any request under way.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is to be moved, and where.
#[derive(Clone, Debug)]
pub struct Plan {
    pub name: String,
    pub collection: Collection,
    pub scope: Scope,
    /// One of the scope's keys, to see who owns it.
    pub example: ShardKey,
    pub source: ShardName,
    pub target: ShardName,
}

/// One mover at work on a plan, under a term.
#[derive(Debug)]
pub struct Mover {
    pub plan: Plan,
    pub term: u64,
    pub source: Arc<FaultyEngine>,
    pub target: Arc<FaultyEngine>,
    pub keeper: MapKeeper,
    pub control: Arc<dyn ControlStore>,
    pub limits: Limits,
    pub world: Arc<dyn World>,
    pub recording: Recording,
    pub chance: Mutex<Chance>,
    pub temper: Temper,
}

/// What may befall a mover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temper {
    /// Goes through with it.
    Steady,
    /// May pause, die or give up at each step.
    Fickle,
}

/// Why a mover ended without cutting over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    TermLost,
    Died,
    GaveUp,
    /// The scope is no longer as this mover left it.
    Thawed,
    /// Already said as a breach.
    Broken,
}

/// What to do with the map that stands now.
enum Wish {
    Publish(Vec<Edit>),
    Standing,
    Stop(Stop),
}

impl Mover {
    pub async fn run(&self) -> Result<(), Stop> {
        for _ in 0..BEGINNINGS_MAX {
            match self.begin().await {
                Err(Stop::Thawed) => sleep(AGAIN_AFTER).await,
                ended => return ended,
            }
        }
        self.broken("the scope does not stay frozen")
    }

    async fn begin(&self) -> Result<(), Stop> {
        self.claim().await?;
        self.fate("claimed").await?;
        if self.is_cut_over(&*self.load().await?) {
            return Ok(());
        }
        let position = self.insist(|| self.source.journal_end()).await?;
        self.backfill().await?;
        let position = self.catch_up(position).await?;
        self.fate("caught up").await?;
        let frozen = self.publish(|map| self.freezing(map)).await?;
        self.fate("frozen").await?;
        self.wait_for_routers(frozen.generation).await?;
        self.fate("alone with it").await?;
        let fence = Fence {
            collection: self.plan.collection,
            scope: self.plan.scope.clone(),
            generation: frozen.generation.next(),
        };
        let raise = || {
            self.source
                .raise_fence(fence.clone(), self.term(), self.world.now())
        };
        let seal = self.insist(raise).await?;
        self.fate("fenced").await?;
        self.drain(position, &seal).await?;
        self.fate("drained").await?;
        self.publish(|map| self.cutting_over(map)).await?;
        self.recording.note(format!("{} has cut over", self.term()));
        Ok(())
    }

    /// Until no router answers under an older map any more (W18).
    async fn wait_for_routers(&self, generation: Generation) -> Result<(), Stop> {
        let (control, world) = (Arc::clone(&self.control), Arc::clone(&self.world));
        let judge = LeaseJudge::new(control, world, &self.limits);
        match judge.wait_for(generation, PATIENCE).await {
            Ok(()) => {
                let term = self.term();
                self.recording
                    .note(format!("{term}: nobody is behind {generation}"));
                Ok(())
            }
            Err(error) => self.broken(error),
        }
    }

    /// Thaws what may be frozen. Publishes in any case, so that no freeze still
    /// under way can arrive later (W20).
    pub async fn give_up(&self) -> Result<(), Stop> {
        self.publish(|map| {
            if self.is_cut_over(map) {
                return Wish::Standing;
            }
            let thaw = Edit::Thaw {
                scope: self.plan.scope.clone(),
            };
            Wish::Publish(if self.is_frozen(map) {
                vec![thaw]
            } else {
                vec![]
            })
        })
        .await?;
        self.recording.note(format!("{} has given up", self.term()));
        Ok(())
    }

    fn freezing(&self, map: &Map) -> Wish {
        if self.is_cut_over(map) {
            return Wish::Stop(Stop::Thawed);
        }
        match self.is_frozen(map) {
            true => Wish::Standing,
            false => Wish::Publish(vec![Edit::Freeze {
                scope: self.plan.scope.clone(),
            }]),
        }
    }

    fn cutting_over(&self, map: &Map) -> Wish {
        if self.is_cut_over(map) {
            return Wish::Standing;
        }
        if !self.is_frozen(map) {
            return Wish::Stop(Stop::Thawed);
        }
        let scope = self.plan.scope.clone();
        Wish::Publish(vec![
            Edit::Move {
                scope: scope.clone(),
                to: self.plan.target.clone(),
            },
            Edit::Thaw { scope },
        ])
    }

    /// Publishes what follows from the standing map, under the mover's term: the
    /// term is held after the map was read, so that whoever took over since has
    /// either published, and this loses, or comes after it.
    async fn publish(&self, wish: impl Fn(&Map) -> Wish) -> Result<Arc<Map>, Stop> {
        for _ in 0..ATTEMPTS_MAX {
            let map = self.load().await?;
            let edits = match wish(&map) {
                Wish::Publish(edits) => edits,
                Wish::Standing => return Ok(map),
                Wish::Stop(stop) => return Err(stop),
            };
            self.claim().await?;
            let edits: Vec<_> = edits
                .into_iter()
                .map(|edit| (self.plan.collection, edit))
                .collect();
            let next = match map.edited(&edits) {
                Ok(next) => next,
                Err(error) => return self.broken(format!("a map cannot be edited: {error}")),
            };
            match self.keeper.publish(&next).await {
                Ok(()) => return Ok(Arc::new(next)),
                Err(
                    KeeperError::Lost { .. }
                    | KeeperError::NotNext { .. }
                    | KeeperError::OutcomeUnknown { .. }
                    | KeeperError::Control(_),
                ) => sleep(AGAIN_AFTER).await,
                Err(error @ (KeeperError::TooLong { .. } | KeeperError::Map(_))) => {
                    return self.broken(error);
                }
            }
        }
        self.broken("no map can be published")
    }

    async fn claim(&self) -> Result<(), Stop> {
        self.insist(|| self.source.claim_term(self.term())).await?;
        self.insist(|| self.target.claim_term(self.term())).await
    }

    async fn load(&self) -> Result<Arc<Map>, Stop> {
        for _ in 0..ATTEMPTS_MAX {
            match self.keeper.load().await {
                Ok(Some(map)) => return Ok(map),
                Ok(None) => return self.broken("there is no map"),
                Err(_) => sleep(AGAIN_AFTER).await,
            }
        }
        self.broken("the map cannot be read")
    }

    /// Makes a call again while its answers get lost; all of a mover's are idempotent.
    async fn insist<T, F>(&self, call: impl Fn() -> F) -> Result<T, Stop>
    where
        F: Future<Output = Result<T, EngineError>>,
    {
        for _ in 0..ATTEMPTS_MAX {
            match call().await {
                Ok(answer) => return Ok(answer),
                Err(EngineError::Unavailable { .. } | EngineError::OutcomeUnknown { .. }) => {
                    sleep(AGAIN_AFTER).await;
                }
                Err(EngineError::TermLost { .. }) => return Err(Stop::TermLost),
                Err(error) => return self.broken(format!("{} was told: {error}", self.term())),
            }
        }
        self.broken("a server does not answer any more")
    }

    /// What happens to a fickle mover between two steps.
    async fn fate(&self, step: &str) -> Result<(), Stop> {
        let (drawn, pause_ms) = {
            let mut chance = self
                .chance
                .lock()
                .expect("no code panics while it holds the lock");
            (chance.below(100), chance.between(1, PAUSE_MS_MAX))
        };
        if self.temper == Temper::Steady {
            return Ok(());
        }
        match drawn {
            0..=11 => {
                self.recording
                    .note(format!("{} pauses, {step}", self.term()));
                sleep(Duration::from_millis(pause_ms)).await;
                Ok(())
            }
            12..=19 => {
                self.recording.note(format!("{} dies, {step}", self.term()));
                Err(Stop::Died)
            }
            20..=25 => {
                self.give_up().await?;
                Err(Stop::GaveUp)
            }
            _ => Ok(()),
        }
    }

    pub fn is_cut_over(&self, map: &Map) -> bool {
        let collection = map.collection(self.plan.collection);
        collection.is_ok_and(|collection| *collection.owner(&self.plan.example) == self.plan.target)
    }

    fn is_frozen(&self, map: &Map) -> bool {
        let collection = map.collection(self.plan.collection);
        collection.is_ok_and(|collection| collection.frozen.contains(&self.plan.scope))
    }

    fn term(&self) -> MoverTerm {
        MoverTerm {
            move_name: self.plan.name.clone(),
            term: self.term,
        }
    }

    fn broken<T>(&self, why: impl std::fmt::Display) -> Result<T, Stop> {
        self.recording.breach(why);
        Err(Stop::Broken)
    }
}
