//! A move, and `kill -9` for whoever takes part in it, at every step: the process that holds the move, another process,
//! the server it leaves and the one it enters. The move goes on by itself or by command to its end, and a ledger that is
//! not the shop's finds nothing lost, doubled or wrong.
//!
//! ```text
//!   step × victim      the mover ends or stands still at a fault point of the program that ships;
//!                      while it stands still, the victim is killed
//!   random             several kills in one move, at moments drawn from a printed seed
//! ```
//!
//! A few cells on MongoDB, others every day, or those that `CARAVAN_MOVE_FAULTS` names (`frozen/mover,ready/router,random`),
//! on the engines of `CARAVAN_MOVE_FAULTS_PAIR`. With `CARAVAN_TESTBED_ALL` set: the whole table. It is kept in
//! `target/move-faults.md`.

#![allow(clippy::unwrap_used)]

mod cell;
mod moving;
mod pair;
mod place;
mod striking;
mod table;

#[path = "../support/mod.rs"]
mod support;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cell::Cell;
use judge::shop::disturbed::{self, Plan};
use pair::{PAIRS, Pair, Start};
use place::Place;
use table::Table;

/// Cells of a run that is not the whole table, the random one not counted.
const SLICE: usize = 3;
const SECONDS_A_DAY: u64 = 24 * 60 * 60;

#[test]
fn whoever_is_killed_in_a_move_nothing_is_lost_and_it_comes_to_its_end() {
    let table = Table::create();
    let pairs: Vec<_> = match std::env::var("CARAVAN_MOVE_FAULTS_PAIR") {
        Ok(named) => vec![pair_named(&named)],
        Err(_) if is_whole() => PAIRS.to_vec(),
        Err(_) => vec![PAIRS[0]],
    };
    for (name, start) in pairs {
        let seed = judge::together::run_number();
        println!("{name}, seed {seed}");
        if let Some(pair) = start() {
            run(name, pair, seed, &table);
        }
    }
    println!("{}", table.text());
}

fn run(name: &str, pair: Pair, seed: u64, table: &Table) {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::start(pair, chosen(), seed, table.clone());
    let plan = Plan {
        load: Duration::from_secs(1),
        shoppers: 6,
        seed,
        ledger: folder.path().join("ledger"),
        patience: Duration::from_secs(8),
        settle: Duration::from_secs(120),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let verdict = runtime.block_on(disturbed::run(place, &plan)).unwrap();
    if !verdict.holds() {
        let kept = folder.keep();
        panic!(
            "{name}, ledger in {}: {verdict}\n{}",
            kept.display(),
            table.text()
        );
    }
    table.judged(name, seed);
}

fn pair_named(name: &str) -> (&'static str, Start) {
    let found = PAIRS.iter().find(|(known, _)| *known == name);
    *found.unwrap_or_else(|| panic!("no pair {name:?} among {:?}", PAIRS.map(|(name, _)| name)))
}

fn chosen() -> Vec<Cell> {
    let all = cell::all();
    if let Ok(named) = std::env::var("CARAVAN_MOVE_FAULTS") {
        let find = |name: &str| all.iter().find(|cell| cell.to_string() == name).copied();
        let named = named.split(',');
        return named
            .map(|name| find(name).unwrap_or_else(|| panic!("no cell {name}")))
            .collect();
    }
    if is_whole() {
        return all;
    }
    let named: Vec<Cell> = all
        .iter()
        .copied()
        .filter(|cell| *cell != Cell::Random)
        .collect();
    let today = (0..SLICE).map(|number| named[(today() * SLICE + number) % named.len()]);
    today.chain([Cell::Random]).collect()
}

fn is_whole() -> bool {
    std::env::var_os("CARAVAN_TESTBED_ALL").is_some()
}

fn today() -> usize {
    let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    usize::try_from(today.as_secs() / SECONDS_A_DAY).unwrap()
}
