//! What befalls the world while people shop: moves, deaths, processes that stand still.

use std::sync::Arc;
use std::time::Duration;

use engine_api::{ControlStore, World};
use layout::Collection;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::Stage;
use crate::clock::SimulatedWorld;
use crate::hand_made::Supervisor;
use crate::moving::Operator;
use crate::serving::Moving;

const EARLY_PERCENT: u64 = 65;
const CRASHES_MAX: u64 = 2;
/// How often one process stands still, and for how many leases at most.
const PAUSES_MAX: u64 = 2;
const PAUSED_LEASES_MAX: u64 = 2;
const PAUSE_AT_MS_MAX: u64 = 1_500;
const CRASH_AT_MS_MAX: u64 = 900;
const DOWN_MS_MAX: u64 = 250;

impl Stage {
    /// Those who move keys, one for each collection that is moved about.
    pub(super) fn draw_moves(&mut self) -> Vec<Collection> {
        let first = *self.chance.pick(&Collection::ALL);
        let second = *self.chance.pick(&Collection::ALL);
        let mut collections = vec![first];
        if second != first && self.chance.percent(60) {
            collections.push(second);
        }
        collections
    }

    /// Some of the shipped movers' first moves are ready before anything disturbs them, so that
    /// their cutovers fall among the shoppers.
    pub(super) async fn operators(&mut self, collections: &[Collection]) -> Vec<Operator> {
        let mut operators = Vec::new();
        if self.moving == Moving::HandMade {
            return operators;
        }
        for collection in collections {
            let mut operator = self.operator(*collection);
            if self.chance.percent(EARLY_PERCENT) {
                operator.begin_early().await;
            }
            operators.push(operator);
        }
        operators
    }

    pub(super) fn movers(
        &self,
        collections: &[Collection],
        operators: Vec<Operator>,
    ) -> Vec<JoinHandle<()>> {
        let operators = operators.into_iter();
        let shipped = operators.map(|operator| tokio::spawn(operator.move_about()));
        let by_hand = collections
            .iter()
            .filter(|_| self.moving == Moving::HandMade);
        let by_hand = by_hand.map(|collection| {
            let supervisor = self.supervisor(*collection);
            tokio::spawn(supervisor.move_about())
        });
        shipped.chain(by_hand).collect()
    }

    fn operator(&self, collection: Collection) -> Operator {
        let places = self.servers.shards_for(collection);
        Operator {
            collection,
            shards: self.servers.engines(),
            places: places.into_keys().collect(),
            control: Arc::clone(&self.control) as Arc<dyn ControlStore>,
            recording: self.recording.clone(),
            chance: self.chance.stream(&format!("operator of {collection}")),
            named: 0,
            begun: None,
        }
    }

    fn supervisor(&self, collection: Collection) -> Supervisor {
        Supervisor {
            collection,
            shards: self.servers.shards_for(collection),
            control: Arc::clone(&self.control) as Arc<dyn ControlStore>,
            limits: self.limits.clone(),
            world: self.movers_world(collection),
            recording: self.recording.clone(),
            chance: self.chance.stream(&format!("mover of {collection}")),
        }
    }

    pub(super) fn crashes(&mut self) -> Vec<JoinHandle<()>> {
        (0..self.chance.below(CRASHES_MAX + 1))
            .map(|_| {
                let sweeps = self.company.visitors > 0;
                let archives = self.servers.archive.is_some();
                let moves = self.moving == Moving::Shipped;
                let process = Arc::clone(self.chance.pick(&self.shared.processes));
                let at = Duration::from_millis(self.chance.below(CRASH_AT_MS_MAX));
                let down = Duration::from_millis(self.chance.between(1, DOWN_MS_MAX));
                tokio::spawn(async move {
                    sleep(at).await;
                    process.crash();
                    sleep(down).await;
                    process.start().await;
                    if sweeps {
                        process.start_sweeper();
                    }
                    if archives {
                        process.start_archiver();
                    }
                    if moves {
                        process.start_movers();
                    }
                })
            })
            .collect()
    }

    pub(super) fn pauses(&self) -> Vec<JoinHandle<()>> {
        let mut tasks = Vec::new();
        for (number, process) in self.shared.processes.iter().enumerate() {
            let mut chance = self.chance.stream(&format!("pauses of {number}"));
            let process = Arc::clone(process);
            let lease_ms = self.limits.lease_ms;
            tasks.push(tokio::spawn(async move {
                for _ in 0..chance.below(PAUSES_MAX + 1) {
                    sleep(Duration::from_millis(chance.below(PAUSE_AT_MS_MAX))).await;
                    let time_ms = chance.between(1, PAUSED_LEASES_MAX * lease_ms);
                    process.stand_still(Duration::from_millis(time_ms)).await;
                }
            }));
        }
        tasks
    }

    fn movers_world(&self, collection: Collection) -> Arc<dyn World> {
        let chance = self.chance.stream(&format!("world of {collection}"));
        Arc::new(SimulatedWorld::exact(self.started, chance))
    }
}
