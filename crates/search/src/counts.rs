//! What the follower counts, for metrics.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use engine_api::Timestamp;

#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

#[derive(Debug)]
pub struct Counts {
    /// Journal entries read, of all collections.
    pub entries: Counter,
    pub products_put: Counter,
    pub products_removed: Counter,
    pub rebuilds: Counter,
    pub positions_lost: Counter,
    pub passes_failed: Counter,
    /// Product records that no product could be read from, left out of the index.
    pub unreadable: Counter,
    /// Entries whose change the owner never showed, given up.
    pub never_shown: Counter,
    /// Right now: entries whose change the owner does not show yet (W22).
    pub waiting: Counter,
    caught_up_micros: AtomicI64,
}

/// Before any time a clock shows: never caught up.
const NEVER: i64 = i64::MIN;

impl Counter {
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            entries: Counter::default(),
            products_put: Counter::default(),
            products_removed: Counter::default(),
            rebuilds: Counter::default(),
            positions_lost: Counter::default(),
            passes_failed: Counter::default(),
            unreadable: Counter::default(),
            never_shown: Counter::default(),
            waiting: Counter::default(),
            caught_up_micros: AtomicI64::new(NEVER),
        }
    }
}

impl Counts {
    /// What was acknowledged before this moment is found, [`Counts::waiting`]
    /// apart: its age is the lag. Positions are opaque, so entries behind
    /// cannot be counted without reading them.
    pub fn caught_up_at(&self) -> Option<Timestamp> {
        match self.caught_up_micros.load(Ordering::Relaxed) {
            NEVER => None,
            micros => Some(Timestamp::from_unix_micros(micros)),
        }
    }

    pub(crate) fn caught_up(&self, at: Timestamp) {
        self.caught_up_micros
            .store(at.unix_micros(), Ordering::Relaxed);
    }
}
