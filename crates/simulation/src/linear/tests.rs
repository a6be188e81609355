//! Histories that are known to be good or bad: a checker that finds nothing wrong with
//! the bad ones proves nothing.

use std::collections::BTreeMap;
use std::fmt;

use super::*;

const TRIES_MAX: usize = 10_000;

/// A place that holds a number, and pieces that orders take once each.
struct Shelf {
    pieces: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OnShelf {
    value: i64,
    pieces: i64,
    taken: BTreeMap<char, i64>,
}

#[derive(Clone, Debug)]
enum Act {
    Write(i64),
    /// Writes if the first is there, and was told that it was.
    Replace(i64, i64),
    Read(i64),
    Take(char, i64),
    SoldOut(i64),
    Pieces(i64),
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl Specification for Shelf {
    type State = OnShelf;
    type Operation = Act;

    fn first(&self) -> OnShelf {
        OnShelf {
            value: 0,
            pieces: self.pieces,
            taken: BTreeMap::new(),
        }
    }

    fn observes(&self, operation: &Act) -> bool {
        matches!(operation, Act::Read(_) | Act::SoldOut(_) | Act::Pieces(_))
    }

    fn step(&self, state: &OnShelf, operation: &Act) -> Option<OnShelf> {
        let mut next = state.clone();
        match *operation {
            Act::Write(value) => next.value = value,
            Act::Replace(from, to) => {
                (state.value == from).then_some(())?;
                next.value = to;
            }
            Act::Read(value) => (state.value == value).then_some(())?,
            Act::Take(order, _) if state.taken.contains_key(&order) => {}
            Act::Take(order, pieces) => {
                (state.pieces >= pieces).then_some(())?;
                next.pieces -= pieces;
                next.taken.insert(order, pieces);
            }
            Act::SoldOut(pieces) => (state.pieces < pieces).then_some(())?,
            Act::Pieces(pieces) => (state.pieces == pieces).then_some(())?,
        }
        Some(next)
    }
}

fn answered(operation: Act, invoked: u64, returned: u64) -> Call<Act> {
    Call {
        operation,
        invoked: Moment(invoked),
        returned: Some(Moment(returned)),
    }
}

fn unanswered(operation: Act, invoked: u64) -> Call<Act> {
    Call {
        operation,
        invoked: Moment(invoked),
        returned: None,
    }
}

fn judged(calls: &[Call<Act>]) -> Verdict {
    judge(&Shelf { pieces: 3 }, calls, TRIES_MAX)
}

#[track_caller]
fn holds(calls: &[Call<Act>]) {
    assert_eq!(judged(calls), Verdict::Linearizable);
}

#[track_caller]
fn breaks(calls: &[Call<Act>]) {
    let verdict = judged(calls);
    assert!(matches!(verdict, Verdict::Broken { .. }), "{verdict:?}");
}

#[test]
fn one_after_the_other_holds() {
    holds(&[]);
    holds(&[
        answered(Act::Read(0), 1, 2),
        answered(Act::Write(1), 3, 4),
        answered(Act::Read(1), 5, 6),
    ]);
}

#[test]
fn a_stale_read_is_found() {
    breaks(&[answered(Act::Write(1), 1, 2), answered(Act::Read(0), 3, 4)]);
    breaks(&[
        answered(Act::Write(1), 1, 2),
        answered(Act::Write(2), 3, 4),
        answered(Act::Read(1), 5, 6),
    ]);
}

#[test]
fn a_lost_update_is_found() {
    // Both saw nothing there, both were told that they replaced it.
    breaks(&[
        answered(Act::Replace(0, 1), 1, 10),
        answered(Act::Replace(0, 2), 2, 9),
    ]);
}

#[test]
fn a_double_take_is_found() {
    // Five of three pieces are promised.
    breaks(&[
        answered(Act::Take('a', 2), 1, 8),
        answered(Act::Take('b', 3), 2, 9),
    ]);
    // One order, taken for twice.
    breaks(&[
        answered(Act::Take('a', 1), 1, 2),
        answered(Act::Take('a', 1), 3, 4),
        answered(Act::Pieces(1), 5, 6),
    ]);
    holds(&[
        answered(Act::Take('a', 1), 1, 2),
        answered(Act::Take('a', 1), 3, 4),
        answered(Act::Pieces(2), 5, 6),
    ]);
}

#[test]
fn sold_out_is_said_only_when_it_is() {
    breaks(&[
        answered(Act::Take('a', 1), 1, 2),
        answered(Act::SoldOut(2), 3, 4),
    ]);
    holds(&[
        unanswered(Act::Take('a', 2), 1),
        answered(Act::SoldOut(2), 3, 4),
    ]);
}

#[test]
fn a_value_from_nowhere_is_found() {
    breaks(&[answered(Act::Read(7), 1, 2)]);
    // Not before it was asked for.
    breaks(&[answered(Act::Read(7), 1, 2), answered(Act::Write(7), 3, 4)]);
}

#[test]
fn a_read_that_goes_back_is_found() {
    // The write is under way; who has seen it does not see the time before it.
    let write = || answered(Act::Write(1), 1, 20);
    breaks(&[
        write(),
        answered(Act::Read(1), 2, 3),
        answered(Act::Read(0), 4, 5),
    ]);
    holds(&[
        write(),
        answered(Act::Read(0), 2, 3),
        answered(Act::Read(1), 4, 5),
    ]);
    // The same if nobody ever answers it.
    breaks(&[
        unanswered(Act::Write(1), 1),
        answered(Act::Read(1), 2, 3),
        answered(Act::Read(0), 4, 5),
    ]);
}

#[test]
fn a_write_without_an_answer_lands_late_or_never_and_once() {
    let lost = || unanswered(Act::Write(1), 1);
    holds(&[lost(), answered(Act::Read(0), 2, 3)]);
    let late = [
        lost(),
        answered(Act::Write(2), 2, 3),
        answered(Act::Read(2), 4, 5),
        answered(Act::Read(1), 6, 7),
    ];
    holds(&late);
    let again = [
        answered(Act::Write(3), 8, 9),
        answered(Act::Read(1), 10, 11),
    ];
    breaks(&[&late[..], &again].concat());
}

#[test]
fn reads_beside_a_write_may_see_either_side() {
    holds(&[
        answered(Act::Write(1), 1, 10),
        answered(Act::Read(1), 2, 9),
        answered(Act::Read(0), 3, 8),
    ]);
    // Whatever the order in which they stand in the ledger.
    holds(&[
        answered(Act::Read(2), 3, 12),
        answered(Act::Write(2), 1, 9),
        answered(Act::Read(1), 4, 11),
        answered(Act::Write(1), 2, 10),
    ]);
    // But not two in opposite orders.
    breaks(&[
        answered(Act::Write(1), 1, 20),
        answered(Act::Write(2), 2, 20),
        answered(Act::Read(1), 21, 22),
        answered(Act::Read(2), 23, 24),
    ]);
}

#[test]
fn where_it_breaks_is_told() {
    let calls = [
        answered(Act::Write(1), 1, 2),
        answered(Act::Read(1), 3, 4),
        answered(Act::Read(0), 5, 6),
    ];
    let Verdict::Broken { stuck } = judged(&calls) else {
        panic!("a stale read holds");
    };
    assert_eq!(stuck, "Read(0) (asked at 5)");
}

#[test]
fn what_is_tried_in_vain_is_tried_once() {
    // Twelve writes at once, and a read of what was replaced: without a memory of sets
    // and states those would be 479 001 600 orders.
    let mut calls: Vec<Call<Act>> = (0..12).map(|_| answered(Act::Write(1), 1, 90)).collect();
    calls.push(answered(Act::Write(2), 91, 92));
    calls.push(answered(Act::Read(1), 93, 94));
    let verdict = judge(&Shelf { pieces: 3 }, &calls, 1 << 14);
    assert!(matches!(verdict, Verdict::Broken { .. }), "{verdict:?}");
}

#[test]
fn what_is_too_much_is_said_and_not_passed() {
    let many: Vec<Call<Act>> = (0..=CALLS_MAX as u64)
        .map(|number| answered(Act::Read(0), 2 * number + 1, 2 * number + 2))
        .collect();
    assert!(matches!(judged(&many), Verdict::TooMuch { .. }));
    holds(&many[1..]);
    let mut wide: Vec<Call<Act>> = (0..20)
        .map(|number| answered(Act::Write(number), 1, 90))
        .collect();
    wide.push(answered(Act::Read(99), 91, 92));
    assert!(matches!(judged(&wide), Verdict::TooMuch { .. }));
}
