//! The gate before each shard: how many requests may be under way there, and how
//! often requests may go again.
//!
//! Without the first, a shard that hangs collects every request of the process.
//! Without the second, a shard that is away is asked several times as often as one
//! that answers, just when it tries to come back.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::allowance::Precedence;
use crate::counts::Counter;
use crate::error::RouterError;
use crate::limits::Limits;
use crate::map::ShardName;
use crate::router::Router;

/// What one retry costs; an answer earns a percentage of it.
const RETRY_COSTS: u32 = 100;

/// What is known of one shard's gate, for metrics.
#[derive(Debug)]
pub struct Gate {
    under_way: AtomicUsize,
    /// Hundredths of a retry.
    budget: AtomicU32,
    /// Requests refused because too many were under way.
    pub refused: Counter,
    pub retries: Counter,
    /// Retries that the budget had nothing left for.
    pub retries_refused: Counter,
}

/// A request's place at a shard, given back also when the request is dropped.
#[derive(Debug)]
pub struct Place<'a>(Option<&'a Gate>);

impl Gate {
    pub(crate) fn new(limits: &Limits) -> Gate {
        Gate {
            under_way: AtomicUsize::new(0),
            budget: AtomicU32::new(full_budget(limits)),
            refused: Counter::default(),
            retries: Counter::default(),
            retries_refused: Counter::default(),
        }
    }

    /// Requests that have a place now.
    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    fn enter(&self, places: usize) -> Option<Place<'_>> {
        if self.under_way.fetch_add(1, Ordering::Relaxed) >= places {
            self.under_way.fetch_sub(1, Ordering::Relaxed);
            self.refused.add_one();
            return None;
        }
        Some(Place(Some(self)))
    }

    /// An answer, whatever it says, shows that the shard can be asked.
    fn earn(&self, limits: &Limits) {
        let full = full_budget(limits);
        let held = self.budget.load(Ordering::Relaxed);
        // Full is the usual state, and then nothing is written.
        if held < full {
            let earned = limits.retry_percent.min(full - held);
            self.budget.fetch_add(earned, Ordering::Relaxed);
        }
    }

    fn spend(&self) -> bool {
        let spend = |held: u32| held.checked_sub(RETRY_COSTS);
        let spent = self
            .budget
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend)
            .is_ok();
        match spent {
            true => self.retries.add_one(),
            false => self.retries_refused.add_one(),
        }
        spent
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(gate) = self.0 {
            gate.under_way.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Router {
    /// The gates of all shards.
    pub fn gates(&self) -> impl Iterator<Item = (&ShardName, &Gate)> {
        self.shards.iter().map(|(name, shard)| (name, &shard.gate))
    }

    /// A place at the shard for as long as the request is there or waits for it; an
    /// error at once when those that its precedence may take are taken. A shard that
    /// is not the router's own has no gate.
    pub fn enter(&self, shard: &ShardName) -> Result<Place<'_>, RouterError> {
        let Some(gate) = self.gate(shard) else {
            return Ok(Place(None));
        };
        let places = self.limits.places(self.allowance.precedence);
        gate.enter(places).ok_or_else(|| RouterError::ShardBusy {
            shard: shard.clone(),
            places,
        })
    }

    /// Tells the gate what became of a call; an answer earns the shard a part of a retry.
    pub fn settle<T, E>(&self, shard: &ShardName, answer: &Result<T, E>) {
        if let (Some(gate), Ok(_)) = (self.gate(shard), answer) {
            gate.earn(&self.limits);
        }
    }

    /// Whether a request that failed may go again: it has the time for the pause, and
    /// the shard that failed has something left of its budget.
    pub fn may_go_again(&self, failed: Option<&ShardName>) -> bool {
        let pause = self.limits.retry_pause_most();
        if self.time_left().is_some_and(|left| left <= pause) {
            return false;
        }
        let gate = failed.and_then(|shard| self.gate(shard));
        gate.is_none_or(Gate::spend)
    }

    fn gate(&self, shard: &ShardName) -> Option<&Gate> {
        self.shards.get(shard).map(|shard| &shard.gate)
    }
}

impl Limits {
    fn places(&self, precedence: Precedence) -> usize {
        let percent = match precedence {
            Precedence::Low => self.shard_low_percent,
            Precedence::Middle => self.shard_middle_percent,
            Precedence::High => 100,
        };
        let percent = usize::try_from(percent).unwrap_or(100);
        (self.shard_requests_max * percent / 100).max(1)
    }
}

fn full_budget(limits: &Limits) -> u32 {
    limits.retries_saved_max.saturating_mul(RETRY_COSTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_refused_when_all_are_taken_and_free_again_when_one_is_left() {
        let gate = Gate::new(&Limits::default());
        let places: Vec<_> = (0..3).map(|_| gate.enter(3).unwrap()).collect();
        assert!(gate.enter(3).is_none());
        assert_eq!((gate.under_way(), gate.refused.value()), (3, 1));
        drop(places);
        assert!(gate.enter(1).is_some());
        assert_eq!(gate.under_way(), 0);
    }

    #[test]
    fn the_last_places_are_for_who_takes_precedence() {
        let limits = Limits {
            shard_requests_max: 10,
            shard_low_percent: 50,
            shard_middle_percent: 80,
            ..Limits::default()
        };
        let places = [Precedence::Low, Precedence::Middle, Precedence::High];
        assert_eq!(places.map(|it| limits.places(it)), [5, 8, 10]);
    }

    #[test]
    fn retries_are_a_saved_number_and_a_share_of_the_answers() {
        let limits = Limits {
            retries_saved_max: 3,
            retry_percent: 10,
            ..Limits::default()
        };
        let gate = Gate::new(&limits);
        let granted = |tries: u32| (0..tries).filter(|_| gate.spend()).count();
        assert_eq!(granted(10), 3, "what was saved, and no more");
        (0..10).for_each(|_| gate.earn(&limits));
        assert_eq!(granted(10), 1, "ten answers earn one");
        (0..1000).for_each(|_| gate.earn(&limits));
        assert_eq!(granted(10), 3, "no more is saved than that");
        assert_eq!(
            (gate.retries.value(), gate.retries_refused.value()),
            (7, 23)
        );
    }
}
