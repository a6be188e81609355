//! Who starts movers, and starts another when one is not heard of any more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine_api::{ControlStore, Engine, FenceKind, World};
use layout::Collection;
use router::{Limits, MapKeeper, ShardName};
use tokio::time::{sleep, timeout};

use super::{Mover, Plan, Stop, Temper};
use crate::chance::Chance;
use crate::engine::FaultyEngine;
use crate::moving::pick;
use crate::recording::Recording;

/// The last of them is steady.
const TERMS_MAX: u64 = 3;
const PATIENCE_MS_LEAST: u64 = 150;
const PATIENCE_MS_MOST: u64 = 700;
/// Moves that follow one another on one collection.
const MOVES_MAX: u64 = 3;
const BETWEEN_MOVES_MS_MAX: u64 = 400;

/// Moves of one collection, one after the other.
#[derive(Debug)]
pub struct Supervisor {
    pub collection: Collection,
    pub shards: BTreeMap<ShardName, Arc<FaultyEngine>>,
    pub control: Arc<dyn ControlStore>,
    pub limits: Limits,
    pub world: Arc<dyn World>,
    pub recording: Recording,
    pub chance: Chance,
}

impl Supervisor {
    pub async fn move_about(mut self) {
        // Without fences a straggler may stand at a former owner, unknown to
        // anybody: nothing moves back onto it.
        let mut shards = self.shards.values();
        let moves = if shards.all(|shard| shard.capabilities().fence == FenceKind::InStore) {
            self.chance.between(1, MOVES_MAX)
        } else {
            1
        };
        for number in 1..=moves {
            sleep(Duration::from_millis(
                self.chance.below(BETWEEN_MOVES_MS_MAX),
            ))
            .await;
            let keeper = MapKeeper::new(Arc::clone(&self.control));
            let Ok(Some(map)) = keeper.load().await else {
                continue;
            };
            let shards: Vec<ShardName> = self.shards.keys().cloned().collect();
            let name = format!("{}-{number}", self.collection);
            let Some(picked) = pick(&map, self.collection, &shards, &mut self.chance) else {
                continue;
            };
            let plan = Plan {
                name,
                collection: self.collection,
                scope: picked.scope,
                example: picked.example,
                source: picked.source,
                target: picked.target,
            };
            self.recording.note(format!("move {plan:?}"));
            self.carry_out(plan).await;
        }
    }

    async fn carry_out(&mut self, plan: Plan) {
        let mut unheard = Vec::new();
        for term in 1..=TERMS_MAX {
            let temper = if term < TERMS_MAX {
                Temper::Fickle
            } else {
                Temper::Steady
            };
            let mover = Arc::new(self.mover(plan.clone(), term, temper));
            let running = Arc::clone(&mover);
            let mut task = tokio::spawn(async move { running.run().await });
            let patience = self.chance.between(PATIENCE_MS_LEAST, PATIENCE_MS_MOST);
            let ended = match temper {
                Temper::Fickle => timeout(Duration::from_millis(patience), &mut task)
                    .await
                    .ok(),
                Temper::Steady => Some((&mut task).await),
            };
            match ended {
                Some(Ok(Ok(()))) => {
                    self.recording.with(|history| history.moves_done += 1);
                    break;
                }
                Some(Ok(Err(Stop::GaveUp))) => {
                    self.recording.with(|history| history.moves_given_up += 1);
                    break;
                }
                Some(_) => {}
                // It is paused somewhere and will wake up later.
                None => unheard.push(task),
            }
        }
        for task in unheard {
            // Whatever it met was recorded where it happened.
            drop(task.await);
        }
    }

    fn mover(&self, plan: Plan, term: u64, temper: Temper) -> Mover {
        let chance = self.chance.stream(&format!("{} {term}", plan.name));
        Mover {
            term,
            source: Arc::clone(&self.shards[&plan.source]),
            target: Arc::clone(&self.shards[&plan.target]),
            plan,
            keeper: MapKeeper::new(Arc::clone(&self.control)),
            control: Arc::clone(&self.control),
            limits: self.limits.clone(),
            world: Arc::clone(&self.world),
            recording: self.recording.clone(),
            chance: Mutex::new(chance),
            temper,
        }
    }
}
