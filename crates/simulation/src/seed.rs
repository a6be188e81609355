//! One seed: the world it makes, lived through to the quiet end.

mod servers;
mod setting;

mod opening;
mod troubles;

mod quiet;

mod looking;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine_api::Position;
use router::{Limits, ShardName};
use tokio::time::Instant;

use crate::chance::Chance;
use crate::checks;
use crate::control::FaultyControl;
use crate::link::Link;
use crate::recording::{History, Recording};
use crate::serving::{Moving, Site};
use crate::shopper::Shared;
use crate::visitor::Hall;
use servers::Servers;

const HISTORY_STATUSES: [&str; 3] = ["delivered", "cancelled", "returned"];

#[derive(Clone, Copy, Debug)]
struct Company {
    shoppers: usize,
    visitors: usize,
}

/// A seed lived through: what happened, and what should not have.
#[derive(Debug)]
pub struct Lived {
    pub seed: u64,
    pub history: History,
    pub breaches: Vec<String>,
}

/// Runs a seed on this thread, in virtual time.
pub fn live(seed: u64) -> Lived {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without input and output needs nothing that could be missing");
    let history = runtime.block_on(async { Stage::set(seed).play().await });
    let breaches = checks::judge(&history);
    Lived {
        seed,
        history,
        breaches,
    }
}

struct Stage {
    chance: Chance,
    started: Instant,
    recording: Recording,
    servers: Servers,
    control: Arc<FaultyControl>,
    company: Company,
    moving: Moving,
    site: Arc<Site>,
    limits: Limits,
    shared: Arc<Shared>,
    hall: Arc<Hall>,
    origins: BTreeMap<ShardName, Position>,
}

impl Stage {
    async fn play(mut self) -> History {
        self.open().await;
        let moved = self.draw_moves();
        let operators = self.operators(&moved).await;
        self.links().for_each(Link::disturb);
        self.site.is_calm.store(false, Ordering::Relaxed);
        let mut tasks = self.shoppers();
        tasks.extend(self.visitors());
        tasks.extend(self.watchers());
        tasks.extend(self.movers(&moved, operators));
        tasks.extend(self.crashes());
        tasks.extend(self.pauses());
        for task in tasks {
            if let Err(error) = task.await {
                self.recording
                    .breach(format!("a task of the world ended early: {error}"));
            }
        }
        self.links().for_each(Link::calm);
        self.site.is_calm.store(true, Ordering::Relaxed);
        self.end_moves().await;
        let processes = self.hall.processes.iter();
        processes.for_each(|process| {
            process.stop_sweeper();
            process.stop_archiver();
        });
        self.wait_for_late_deliveries().await;
        self.sweep_up().await;
        self.archive_up().await;
        self.look_at_everything().await;
        self.look_behind().await;
        self.read_journals().await;
        self.recording.history()
    }

    fn links(&self) -> impl Iterator<Item = &Link> {
        self.servers
            .all()
            .map(|(_, engine)| &engine.link)
            .chain([&self.control.link])
    }
}
