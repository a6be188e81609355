//! Whole collections go from one engine to another by the real command line, there, back, and there again for good,
//! while shoppers buy; judged over HTTP by a ledger that is not the shop's. And to another shard key.
//!
//! ```text
//!   embedded ◀──▶ mongo-sharded ◀──▶ cassandra-orders ◀──▶ embedded      carts, sessions, orders; products with them
//!   mongo-sharded ──▶ mongo-rekeyed                                      products by id alone, orders by zone and user
//! ```
//!
//! One direction, another every day, in which one collection goes back; or with all of them going back those that
//! `CARAVAN_DIRECTIONS` names (`embedded/mongo-sharded`), with `CARAVAN_TESTBED_ALL` set every one. The table is kept in
//! `target/directions.md`.

#![allow(clippy::unwrap_used)]

mod folders;
mod place;
mod side;
mod table;

#[path = "../support/mod.rs"]
mod support;

use std::net::SocketAddr;
use std::process::Output;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use judge::shop::disturbed::{self, Fleet, Plan};
use place::Place;
use serde_json::Value;
use side::{CASSANDRA, EMBEDDED, MONGO, REKEYED};
use table::Table;

const DIRECTIONS: [[&str; 2]; 6] = [
    [EMBEDDED, MONGO],
    [MONGO, EMBEDDED],
    [EMBEDDED, CASSANDRA],
    [CASSANDRA, EMBEDDED],
    [MONGO, CASSANDRA],
    [CASSANDRA, MONGO],
];

const ALL: [&str; 4] = ["sessions", "carts", "products", "orders"];

const SECONDS_A_DAY: u64 = 24 * 60 * 60;

/// A directory takes more orders in a second than Cassandra, and the way back has to follow.
const REST: Duration = Duration::from_millis(30);

/// The orders that are sent again and again are this user's.
const OWN_USER: &str = "own-user";

#[test]
fn collections_go_from_each_engine_to_each_other_and_back_while_shoppers_buy() {
    let table = Table::create("directions");
    let (directions, back) = chosen();
    for direction in directions {
        run(direction, &ALL, back, &table);
    }
    println!("{}", table.text());
}

#[test]
fn products_and_orders_get_another_shard_key_and_go_back_while_shoppers_buy() {
    let table = Table::create("shard-keys");
    let both = &["products", "orders"];
    run([MONGO, REKEYED], both, both, &table);
    println!("{}", table.text());
}

/// Moves the collections, some of them back once and there again.
fn run(
    sides: [&'static str; 2],
    collections: &'static [&'static str],
    back: &'static [&'static str],
    table: &Table,
) {
    let Some(place) = Place::start(sides) else {
        return;
    };
    let seed = judge::together::run_number();
    let [from, to] = sides;
    println!("{from} to {to}, seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan {
        load: Duration::from_secs(1),
        shoppers: 3,
        rest: REST,
        seed,
        ledger: folder.path().join("ledger"),
        patience: Duration::from_secs(60),
        settle: Duration::from_secs(120),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let journey = Journey {
        place,
        collections,
        back,
        table: table.clone(),
    };
    let verdict = runtime.block_on(disturbed::run(journey, &plan)).unwrap();
    let breaches = verdict.breaches.len().to_string();
    let direction = format!("{from} to {to}");
    let acknowledged = plan.acknowledged().unwrap().to_string();
    table.row([&direction, "all", "", "", "", "", &acknowledged, &breaches]);
    if !verdict.holds() {
        let kept = folder.keep();
        panic!("{direction}, ledger in {}: {verdict}", kept.display());
    }
}

/// Moves instead of breaking things.
struct Journey {
    place: Place,
    collections: &'static [&'static str],
    back: &'static [&'static str],
    table: Table,
}

impl Journey {
    /// Each collection there, back, and there again; then the old side is left, if nothing is left there.
    fn travel(&mut self) -> anyhow::Result<()> {
        let place = &self.place;
        place.put_own_product()?;
        let order = place.order("before", OWN_USER)?;
        self.is_planned("to be moved")?;
        let mut moves = Vec::new();
        for collection in self.collections {
            let first = place.start_move(collection)?;
            let there = place.bring(&first, "cutover", "ready", "settling")?;
            self.is_one_order(&order)?;
            place.succeeds(&["move", "certificate", "--verify", "--name", &first])?;
            if !self.back.contains(collection) {
                self.tell(collection, &[&there]);
                moves.push(first);
                continue;
            }
            let back = place.bring(&first, "rollback", "settling", "rolled back")?;
            self.is_one_order(&order)?;
            let of_rollback = ["move", "certificate", "--verify", "--rollback", "--name"];
            place.succeeds(&[&of_rollback[..], &[&first]].concat())?;
            // By a second move over the copies of the first.
            let again = place.start_move(collection)?;
            let good = place.bring(&again, "cutover", "ready", "settling")?;
            self.is_one_order(&order)?;
            self.tell(collection, &[&there, &back, &good]);
            moves.push(again);
        }
        if self.is_everything() {
            // Nobody may leave the old side while a way back leads there.
            is_refused_at_the_start(place, &place.left())?;
        }
        for name in &moves {
            place.bring(name, "complete", "settling", "cleaned up")?;
        }
        self.is_planned("arrived")?;
        self.is_one_order(&order)?;
        if self.is_everything() {
            self.place.restart_with(self.place.left())?;
            self.is_one_order(&order)?;
        }
        Ok(())
    }

    fn is_everything(&self) -> bool {
        self.collections == ALL
    }

    /// Where each collection stands; of what is still to come, how much it is.
    fn is_planned(&self, stands: &str) -> anyhow::Result<()> {
        let plan = self.place.plan()?;
        let planned = plan["moves"].as_array().context("a list")?;
        ensure!(planned.len() == ALL.len(), "{plan:#}");
        for one in planned {
            let name = one["collection"].as_str().context("a name")?;
            if !self.collections.contains(&name) {
                continue;
            }
            ensure!(one["stands"] == stands, "{plan:#}");
            let counted = one["size"]["records"].is_u64() && one["forecast_s"].is_f64();
            ensure!(counted == (stands == "to be moved"), "{plan:#}");
        }
        Ok(())
    }

    /// An order that was first sent before everything, and its stock, however often it is sent.
    fn is_one_order(&self, order: &str) -> anyhow::Result<()> {
        let place = &self.place;
        let again = place.order("before", OWN_USER)?;
        ensure!(again == order, "{order} was made again as {again}");
        let count = place.orders_of(OWN_USER)?;
        ensure!(count == 1, "{count} orders with one key");
        Ok(())
    }

    fn tell(&self, collection: &str, ways: &[&Value]) {
        let direction = format!("{} to {}", self.place.from.name, self.place.to.name);
        let freeze = |way: usize| match ways.get(way) {
            Some(status) => format!("{} ms", status["shown"]["freeze_ms"]),
            None => "-".to_owned(),
        };
        let [there, back, again] = [0, 1, 2].map(freeze);
        let copied = ways.last().map(|status| &status["shown"]["records_copied"]);
        let copied = copied.map_or_else(String::new, ToString::to_string);
        self.table.row([
            &direction, collection, &there, &back, &again, &copied, "", "",
        ]);
    }
}

impl Fleet for Journey {
    fn addresses(&self) -> Vec<SocketAddr> {
        let members = self.place.members.iter();
        members.map(|(address, _)| *address).collect()
    }

    fn disturb(&mut self, _until: Instant) -> anyhow::Result<()> {
        self.travel()
    }

    fn restart(&mut self) -> anyhow::Result<()> {
        self.place.kill_and_restart()
    }
}

/// What a directory's own process has open is refused by its lock, everything else because of the way back.
fn is_refused_at_the_start(place: &Place, arguments: &[String]) -> anyhow::Result<()> {
    let refused = place.serve_in_vain(arguments)?;
    match place.from.is_directory() || place.to.is_directory() {
        true => ends_with(&refused, "another process", ""),
        false => ends_with(&refused, "needs shard", "until it is completed"),
    }
}

/// A failure with one sentence, behind what the servers are warned of.
fn ends_with(output: &Output, what: &str, remedy: &str) -> anyhow::Result<()> {
    let told = String::from_utf8_lossy(&output.stderr);
    let last = told.lines().last().unwrap_or_default();
    ensure!(!output.status.success(), "{told}");
    ensure!(last.contains(what) && last.contains(remedy), "{told}");
    Ok(())
}

/// The directions, and the collections that go back in them.
fn chosen() -> (Vec<[&'static str; 2]>, &'static [&'static str]) {
    if let Ok(named) = std::env::var("CARAVAN_DIRECTIONS") {
        let find = |name: &str| {
            let mut all = DIRECTIONS.into_iter();
            all.find(|sides| sides.join("/") == name)
        };
        let named = named.split(',');
        let named = named.map(|name| find(name).unwrap_or_else(|| panic!("no direction {name}")));
        return (named.collect(), &ALL);
    }
    if std::env::var_os("CARAVAN_TESTBED_ALL").is_some() {
        return (DIRECTIONS.to_vec(), &ALL);
    }
    let day = today();
    // Every pair of them comes, in four weeks.
    let back = (day / DIRECTIONS.len()) % ALL.len();
    let direction = DIRECTIONS[day % DIRECTIONS.len()];
    (vec![direction], &ALL[back..=back])
}

fn today() -> usize {
    let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    usize::try_from(today.as_secs() / SECONDS_A_DAY).unwrap()
}
