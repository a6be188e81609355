//! Stock under every order of steps, repeated and late, against a plain ledger that
//! never forgets anything.

#![allow(clippy::unwrap_used)]

use model::{
    ClaimOutcome, GiveOutcome, OrderId, Quantity, RESERVATIONS_HELD_MAX, RESERVATIONS_KEPT_MAX,
    ReservationState, Stock, StockCounts, StockError, TakeOutcome, Timestamp,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy)]
enum Step {
    Receive(u64),
    Take(usize),
    Claim(usize),
    Give(usize),
    GiveForgotten(usize),
}

/// What really happened to each order, whatever the stock remembers.
#[derive(Default)]
struct Ledger {
    stock: Stock,
    received: u64,
    states: BTreeMap<usize, ReservationState>,
}

fn id(number: usize) -> OrderId {
    OrderId::parse(&format!("o-{number}")).unwrap()
}

fn at(number: usize) -> Timestamp {
    Timestamp::from_unix_micros(i64::try_from(number).unwrap())
}

/// Fixed per order, as its record fixes them.
fn quantity(number: usize) -> Quantity {
    Quantity::new(u32::try_from(1 + number % 3).unwrap()).unwrap()
}

/// Later than the first crowd of orders and earlier than the second.
fn returned_at(number: usize) -> Timestamp {
    at(number + 2_500)
}

impl Ledger {
    fn apply(&mut self, step: Step) {
        let before = self.stock.counts();
        match step {
            Step::Receive(pieces) => self.receive(pieces),
            Step::Take(number) => self.take(number, before),
            Step::Claim(number) => {
                if self.stock.claim(&id(number)) == ClaimOutcome::Claimed {
                    let was = self.states.insert(number, ReservationState::Sold);
                    assert_eq!(was, Some(ReservationState::Held), "order {number}");
                }
            }
            Step::Give(number) => {
                // Who sold and was forgotten comes back by the other way.
                let known = self.stock.reservation(&id(number)).is_some();
                if !known && self.states.contains_key(&number) {
                    return;
                }
                let outcome = self
                    .stock
                    .give(&id(number), quantity(number), returned_at(number));
                self.note_given(number, outcome);
            }
            Step::GiveForgotten(number) => {
                // Only an order whose record says that it was sold comes this way.
                let sold = [ReservationState::Sold, ReservationState::Returned];
                if !self.states.get(&number).is_some_and(|s| sold.contains(s)) {
                    return;
                }
                let result =
                    self.stock
                        .give_forgotten(&id(number), quantity(number), returned_at(number));
                if let Ok(outcome) = result {
                    self.note_given(number, outcome);
                }
            }
        }
    }

    fn receive(&mut self, pieces: u64) {
        self.stock.receive(pieces).unwrap();
        self.received += pieces;
    }

    fn take(&mut self, number: usize, before: StockCounts) {
        let outcome = self.stock.take(&id(number), quantity(number), at(number));
        match outcome {
            TakeOutcome::Taken => {
                let was = self.states.insert(number, ReservationState::Held);
                assert_eq!(was, None, "order {number} took twice");
            }
            TakeOutcome::SoldOut { available } => {
                assert_eq!(available, before.available);
                assert!(available < quantity(number).pieces());
            }
            TakeOutcome::AlreadyTaken => {
                assert_eq!(self.states[&number], ReservationState::Held);
            }
            TakeOutcome::AlreadySold => assert_eq!(self.states[&number], ReservationState::Sold),
            TakeOutcome::AlreadyReturned => {
                assert_eq!(self.states[&number], ReservationState::Returned);
            }
            TakeOutcome::BelowFloor { floor } => assert!(at(number) <= floor),
            TakeOutcome::QuantityDiffers { .. } => panic!("order {number} has one quantity"),
            TakeOutcome::TooManyHeld => assert!(self.pieces(ReservationState::Held) > 0),
        }
        if outcome != TakeOutcome::Taken {
            assert_eq!(self.stock.counts(), before);
        }
    }

    fn note_given(&mut self, number: usize, outcome: GiveOutcome) {
        if outcome == GiveOutcome::NothingHeld {
            let was = self.states.insert(number, ReservationState::Returned);
            assert_eq!(was, None, "order {number} held something");
        }
        if outcome == GiveOutcome::Given {
            let was = self.states.insert(number, ReservationState::Returned);
            let held_or_sold = [Some(ReservationState::Held), Some(ReservationState::Sold)];
            assert!(
                held_or_sold.contains(&was),
                "order {number} gave back from {was:?}"
            );
        }
    }

    fn pieces(&self, state: ReservationState) -> u64 {
        let numbers = self.states.iter().filter(|(_, known)| **known == state);
        numbers.map(|(number, _)| quantity(*number).pieces()).sum()
    }

    fn check(&self) {
        let counts = self.stock.counts();
        assert_eq!(
            counts.available + counts.reserved + counts.sold,
            counts.received
        );
        assert_eq!(counts.received, self.received);
        assert_eq!(counts.reserved, self.pieces(ReservationState::Held));
        assert_eq!(counts.sold, self.pieces(ReservationState::Sold));
    }
}

fn steps(orders: usize, count: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        1 => (0..50_u64).prop_map(Step::Receive),
        4 => (0..orders).prop_map(Step::Take),
        3 => (0..orders).prop_map(Step::Claim),
        2 => (0..orders).prop_map(Step::Give),
        1 => (0..orders).prop_map(Step::GiveForgotten),
    ];
    prop::collection::vec(step, 0..count)
}

proptest! {
    #[test]
    fn the_identity_holds_after_every_step(steps in steps(8, 120)) {
        let mut ledger = Ledger::default();
        for step in steps {
            ledger.apply(step);
            ledger.check();
            let counts = ledger.stock.counts();
            let stored = ledger.stock.reservations().map(|(id, known)| (id.clone(), *known));
            let restored = Stock::restore(counts, stored.collect(), ledger.stock.floor());
            prop_assert_eq!(restored.as_ref(), Ok(&ledger.stock));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Everything is tried, forgotten behind a crowd of later orders, and tried again.
    #[test]
    fn a_forgotten_order_never_takes_or_gives_twice(steps in steps(40, 200)) {
        let mut ledger = Ledger::default();
        ledger.receive(10_000);
        for step in &steps {
            ledger.apply(*step);
            ledger.check();
        }
        for crowd in [1_000..2_100, 3_000..4_100] {
            let newest = crowd.start;
            for number in crowd {
                ledger.apply(Step::Take(number));
                ledger.apply(Step::Claim(number));
            }
            prop_assert!(ledger.stock.floor() >= Some(at(newest)));
            for step in &steps {
                ledger.apply(*step);
                ledger.check();
            }
        }
        let kept = ledger.stock.reservations().count();
        prop_assert!(kept <= RESERVATIONS_KEPT_MAX + RESERVATIONS_HELD_MAX);
    }
}

#[test]
fn a_held_reservation_outlives_all_settled_ones_and_can_still_be_claimed() {
    let mut ledger = Ledger::default();
    ledger.receive(10_000);
    ledger.apply(Step::Take(0));
    for number in 1..=RESERVATIONS_KEPT_MAX + 2 {
        ledger.apply(Step::Take(number));
        ledger.apply(Step::Claim(number));
    }
    let floor = ledger.stock.floor();
    assert_eq!(floor, Some(at(2)));
    assert_eq!(ledger.stock.claim(&id(1)), ClaimOutcome::Unknown);
    let late = ledger.stock.take(&id(1), quantity(1), at(1));
    assert_eq!(late, TakeOutcome::BelowFloor { floor: at(2) });
    assert_eq!(
        ledger.stock.take(&id(0), quantity(0), at(0)),
        TakeOutcome::AlreadyTaken
    );
    assert_eq!(ledger.stock.claim(&id(0)), ClaimOutcome::Claimed);
}

#[test]
fn undecided_orders_are_limited() {
    let mut stock = Stock::default();
    stock.receive(10_000).unwrap();
    for number in 0..RESERVATIONS_HELD_MAX {
        assert_eq!(
            stock.take(&id(number), quantity(number), at(number)),
            TakeOutcome::Taken
        );
    }
    let next = RESERVATIONS_HELD_MAX;
    assert_eq!(
        stock.take(&id(next), quantity(next), at(next)),
        TakeOutcome::TooManyHeld
    );
    stock.claim(&id(0));
    assert_eq!(
        stock.take(&id(next), quantity(next), at(next)),
        TakeOutcome::Taken
    );
}

#[test]
fn the_same_order_with_another_quantity_is_not_a_repeat() {
    let mut stock = Stock::default();
    stock.receive(10).unwrap();
    stock.take(&id(1), quantity(1), at(1));
    let taken = quantity(1);
    assert_eq!(
        stock.take(&id(1), quantity(2), at(1)),
        TakeOutcome::QuantityDiffers { taken }
    );
}

#[test]
fn stored_stock_that_does_not_add_up_is_refused() {
    let counts = StockCounts {
        received: 3,
        available: 1,
        reserved: 1,
        sold: 0,
    };
    let broken = Stock::restore(counts, BTreeMap::new(), None);
    assert_eq!(broken, Err(StockError::IdentityBroken { counts }));
    let counts = StockCounts { sold: 1, ..counts };
    let unexplained = Stock::restore(counts, BTreeMap::new(), None);
    assert_eq!(unexplained, Err(StockError::ReservationsDiffer { counts }));
    assert!(Stock::default().receive(u64::MAX).is_ok());
}
