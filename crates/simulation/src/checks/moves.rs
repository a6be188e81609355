//! Moves, by their records and the maps: told again in other words than the mover's own.
//!
//! - Terms rise with every holder, phases follow one another, and what has ended stays so.
//! - Two moves never have a key in common while both go on (W30).
//! - A freeze is announced before its map, and keys are given away only behind one, with a proof that is for
//!   this map, and thawed by the same map (W20, W35).
//! - The record and the map agree on who serves; whoever was aborted or rolled back left the source what it was.
//! - No mover changes a record where it is served (W26).
//! - Every cutover has a certificate that holds.

mod maps;

mod records;

mod certificates;

use std::collections::BTreeMap;

use crate::recording::{History, Moment, Recorded};

pub fn check(history: &History) -> Vec<String> {
    let mut breaches = records::check(history);
    // A script moves keys as well, without a record.
    if !history.records.is_empty() {
        breaches.extend(maps::check(history));
        breaches.extend(certificates::check(history));
    }
    breaches
}

/// The newest record of each move.
type Standing<'a> = BTreeMap<&'a str, &'a Recorded>;

/// The records of all moves as they stood just before this moment.
fn standing(history: &History, moment: Moment) -> Standing<'_> {
    let before = history.records.iter();
    let before = before.take_while(|recorded| recorded.moment < moment);
    before
        .map(|recorded| (recorded.name.as_str(), recorded))
        .collect()
}

#[cfg(test)]
mod tests;
