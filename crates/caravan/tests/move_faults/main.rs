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
//! A few cells on the embedded engine and on one pair with servers, others every day; or the cells, steps or victims that
//! `CARAVAN_MOVE_FAULTS` names (`frozen/mover,ready,router`), on the engines of `CARAVAN_MOVE_FAULTS_PAIR`. With
//! `CARAVAN_TESTBED_ALL` set: the whole table. It is kept in `target/move-faults.md`.

#![allow(clippy::unwrap_used)]

mod cell;
mod errands;
mod moving;
mod pair;
mod place;
mod running;
mod striking;
mod table;

#[path = "../support/mod.rs"]
mod support;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cell::Cell;
use errands::Errands;
use judge::shop::disturbed::{self, Plan};
use pair::{KINDS, Kind, Pair, Slice};
use place::Place;
use table::Table;

const SECONDS_A_DAY: u64 = 24 * 60 * 60;

/// What is moved is to stay small, and the slower of two engines has to follow.
const REST: Duration = Duration::from_millis(60);

/// Cells on one shop: shoppers fill it all the time, and what is moved is to stay small.
const CELLS_MAX: usize = 10;

#[test]
fn whoever_is_killed_in_a_move_nothing_is_lost_and_it_comes_to_its_end() {
    let table = Table::create();
    let kinds: Vec<Kind> = match std::env::var("CARAVAN_MOVE_FAULTS_PAIR") {
        Ok(named) => vec![kind_named(&named)],
        Err(_) if is_whole() => KINDS.to_vec(),
        Err(_) => {
            let with_servers = &KINDS[1..];
            vec![KINDS[0], with_servers[today() % with_servers.len()]]
        }
    };
    for kind in kinds {
        let Some(servers) = (kind.start)() else {
            continue;
        };
        let victims = (kind.begin)(&servers, 0).victims();
        let cells = chosen(kind, cell::all(victims));
        for (number, cells) in cells.chunks(CELLS_MAX).enumerate() {
            run(kind.name, (kind.begin)(&servers, number), cells, &table);
        }
    }
    println!("{}", table.text());
    assert_eq!(table.failures(), 0, "moves that failed");
}

/// Tells in the table how it went.
fn run(name: &str, pair: Pair, cells: &[Cell], table: &Table) {
    let seed = judge::together::run_number();
    println!("{name}, seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let errands = Errands::new(&pair, cells);
    let place = Place::start(pair, errands, seed, table.clone());
    let plan = Plan {
        load: Duration::from_secs(1),
        shoppers: 3,
        rest: REST,
        seed,
        ledger: folder.path().join("ledger"),
        patience: Duration::from_secs(8),
        settle: Duration::from_secs(120),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let verdict = match runtime.block_on(disturbed::run(place, &plan)) {
        Ok(verdict) => verdict,
        Err(error) => return table.failed(name, &format!("not judged: {error:#}")),
    };
    let acknowledged = plan.acknowledged().unwrap();
    if verdict.holds() {
        return table.judged(name, seed, acknowledged);
    }
    let kept = folder.keep();
    table.failed(name, &format!("ledger in {}: {verdict}", kept.display()));
}

fn kind_named(name: &str) -> Kind {
    let found = KINDS.into_iter().find(|kind| kind.name == name);
    found.unwrap_or_else(|| panic!("no pair {name:?} among {:?}", KINDS.map(|kind| kind.name)))
}

fn chosen(kind: Kind, all: Vec<Cell>) -> Vec<Cell> {
    if let Ok(named) = std::env::var("CARAVAN_MOVE_FAULTS") {
        let names: Vec<&str> = named.split(',').collect();
        for name in &names {
            let is_known = all.iter().any(|cell| cell.is_called(name));
            assert!(is_known, "no cell, step or victim {name:?}");
        }
        let is_meant = |cell: &Cell| names.iter().any(|name| cell.is_called(name));
        return all.into_iter().filter(is_meant).collect();
    }
    if is_whole() {
        return all;
    }
    let is_named = |cell: &Cell| *cell != Cell::Random;
    let named: Vec<Cell> = all.into_iter().filter(is_named).collect();
    let Slice { named: few, random } = kind.slice;
    // A pair with servers comes once in so many days.
    let turn = today() / (KINDS.len() - 1);
    let today = (0..few).map(|number| named[(turn * few + number) % named.len()]);
    today
        .chain(std::iter::repeat_n(Cell::Random, random))
        .collect()
}

fn is_whole() -> bool {
    std::env::var_os("CARAVAN_TESTBED_ALL").is_some()
}

fn today() -> usize {
    let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    usize::try_from(today.as_secs() / SECONDS_A_DAY).unwrap()
}
