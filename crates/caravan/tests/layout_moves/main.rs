//! A shop goes from layout to layout, every collection to another shard key, table model and engine, by the real command
//! line while shoppers buy at two processes over real servers; judged over HTTP by a ledger that is not the shop's.
//!
//! ```text
//! mongo-sharded ─▶ cassandra-orders ─▶ hybrid ─▶ adr-010-1 ─▶ embedded
//! ```
//!
//! Each collection goes there, back, and there again; then all of them stay, and the old layout is left. One step a
//! day, or from the layout that `CARAVAN_LAYOUT_STEP` names. With `CARAVAN_TESTBED_ALL` set: all that are on servers by
//! one shop, whose map stays where it was first, and the last one by another shop, whose directory lets one process in.

#![allow(clippy::unwrap_used)]

mod place;
#[path = "../support/mod.rs"]
mod support;

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use judge::shop::disturbed::{self, Fleet, Plan};
use place::{Control, EMBEDDED, Place, ends_with};
use serde_json::Value;

const PROCESSES: usize = 2;
const SECONDS_A_DAY: u64 = 24 * 60 * 60;

/// A directory takes more orders in a second than Cassandra, and the way back has to follow.
const REST: Duration = Duration::from_millis(30);
const CHAIN: [&str; 5] = [
    "mongo-sharded",
    "cassandra-orders",
    "hybrid",
    "adr-010-1",
    EMBEDDED,
];
/// As `move layout` takes them, one after the other.
const COLLECTIONS: [&str; 4] = ["sessions", "carts", "products", "orders"];
/// Before a layout with a history is left, it has so many orders in it.
const ARCHIVED_LEAST: u64 = 3;

#[test]
fn a_whole_layout_is_moved_to_another_one_while_shoppers_buy() {
    for layouts in journeys() {
        go_through(layouts);
    }
}

fn go_through(layouts: &[&'static str]) {
    let processes = match layouts.contains(&EMBEDDED) {
        true => 1,
        false => PROCESSES,
    };
    let Some(place) = Place::start(layouts, processes) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let seed = judge::together::run_number();
    println!("{layouts:?}, seed {seed}");
    let plan = Plan {
        load: Duration::from_secs(1),
        shoppers: 4,
        rest: REST,
        seed,
        ledger: folder.path().join("ledger"),
        patience: Duration::from_secs(10),
        settle: Duration::from_secs(120),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let moved = Moved { place };
    let verdict = runtime.block_on(disturbed::run(moved, &plan)).unwrap();
    if !verdict.holds() {
        let kept = folder.keep();
        panic!("ledger in {}: {verdict}", kept.display());
    }
}

/// The layouts that each shop goes through.
fn journeys() -> Vec<&'static [&'static str]> {
    let last = CHAIN.len() - 2;
    if std::env::var_os("CARAVAN_TESTBED_ALL").is_some() {
        return vec![&CHAIN[..=last], &CHAIN[last..]];
    }
    let first = match std::env::var("CARAVAN_LAYOUT_STEP") {
        Ok(named) => CHAIN.iter().position(|name| *name == named).unwrap(),
        Err(_) => {
            let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let day = usize::try_from(today.as_secs() / SECONDS_A_DAY).unwrap();
            day % (CHAIN.len() - 1)
        }
    };
    vec![&CHAIN[first..first + 2]]
}

struct Moved {
    place: Place,
}

impl Moved {
    fn step(&self) -> anyhow::Result<()> {
        let place = &self.place;
        let to = place.to();
        let plan = place.plan()?;
        for (planned, collection) in moves_of(&plan)?.iter().zip(COLLECTIONS) {
            ensure!(planned["collection"] == collection, "{plan:#}");
            ensure!(planned["stands"] == "to be moved", "{plan:#}");
        }
        place.await_archived(ARCHIVED_LEAST)?;
        for collection in COLLECTIONS {
            let begun = place.start_next(None)?;
            let name = format!("{to}-{collection}");
            ensure!(begun.starts_with(&format!("{name}: ")), "{begun}");
            place.bring(&name, "cutover", "ready", "settling")?;
            place.succeeds(&["move", "certificate", "--verify", "--name", &name])?;
            // Back once, and there again by a second move over the copies of the first.
            place.bring(&name, "rollback", "settling", "rolled back")?;
            place.start_next(Some(collection))?;
            let again = format!("{name}-2");
            place.bring(&again, "cutover", "ready", "settling")?;
        }
        // Nobody may leave the old layout while a way back leads there.
        let alone = place.serve_alone(Control::Told)?;
        match place.enters_directory() {
            // Its lock comes before everything else.
            true => ends_with(&alone, "another process", "")?,
            false => ends_with(&alone, "needs shard", "until it is completed")?,
        }
        for collection in COLLECTIONS {
            let again = format!("{to}-{collection}-2");
            place.bring(&again, "complete", "settling", "cleaned up")?;
        }
        let plan = place.plan()?;
        let arrived = |planned: &Value| planned["stands"] == "arrived";
        ensure!(moves_of(&plan)?.iter().all(arrived), "{plan:#}");
        let left = place.layout("start", &[])?;
        ends_with(&left, "nothing is left to move", to)?;
        if place.enters_directory() {
            return Ok(());
        }
        // Without the map that gives the records away, this would be a second shop.
        let alone = place.serve_alone(Control::Forgotten)?;
        ends_with(&alone, "has no map", "--control")
    }
}

impl Fleet for Moved {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.place.members()
    }

    /// Moves everything instead of breaking things, as long as that takes.
    fn disturb(&mut self, _until: Instant) -> anyhow::Result<()> {
        loop {
            self.step()?;
            let goes_on = self.place.leave();
            self.place.serve_anew()?;
            if !goes_on {
                return Ok(());
            }
        }
    }

    fn restart(&mut self) -> anyhow::Result<()> {
        self.place.restart()
    }
}

fn moves_of(plan: &Value) -> anyhow::Result<&Vec<Value>> {
    plan["moves"].as_array().context("a list")
}
