//! What a feed counts, for metrics.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use engine_api::Timestamp;

#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

#[derive(Debug)]
pub struct FeedCounts {
    /// Journal entries that are done, of all collections.
    pub entries: Counter,
    /// Images that the target was given.
    pub applied: Counter,
    /// What these weigh, roughly: the values that they hold.
    pub applied_bytes: Counter,
    /// Records that the source gave up once the target had them.
    pub removed: Counter,
    /// Images met by scans.
    pub scanned: Counter,
    pub rebuilds: Counter,
    pub positions_lost: Counter,
    pub passes_failed: Counter,
    /// Entries whose change the source never showed, given up.
    pub never_shown: Counter,
    pub terms_claimed: Counter,
    /// Right now: entries that were read and are not done. While a page is full
    /// there may be more behind it, since positions are opaque.
    pub lag_entries: Counter,
    /// Right now: 1 while this process works for the feed.
    pub holding: Counter,
    /// Right now: 1 while the position is lost and nobody has asked for a rebuild (W28).
    pub lost: Counter,
    done_before_micros: AtomicI64,
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

impl Default for FeedCounts {
    fn default() -> FeedCounts {
        FeedCounts {
            entries: Counter::default(),
            applied: Counter::default(),
            applied_bytes: Counter::default(),
            removed: Counter::default(),
            scanned: Counter::default(),
            rebuilds: Counter::default(),
            positions_lost: Counter::default(),
            passes_failed: Counter::default(),
            never_shown: Counter::default(),
            terms_claimed: Counter::default(),
            lag_entries: Counter::default(),
            holding: Counter::default(),
            lost: Counter::default(),
            done_before_micros: AtomicI64::new(NEVER),
        }
    }
}

impl FeedCounts {
    /// Everything acknowledged before this moment is done, entries that wait apart:
    /// its age is the lag in seconds. `None` until this process has caught up once.
    pub fn done_before(&self) -> Option<Timestamp> {
        match self.done_before_micros.load(Ordering::Relaxed) {
            NEVER => None,
            micros => Some(Timestamp::from_unix_micros(micros)),
        }
    }

    pub(crate) fn caught_up(&self, at: Timestamp) {
        self.done_before_micros
            .store(at.unix_micros(), Ordering::Relaxed);
    }

    /// Another process may be anywhere: this one says nothing of the lag.
    pub(crate) fn let_go(&self) {
        self.holding.set(0);
        self.lag_entries.set(0);
        self.done_before_micros.store(NEVER, Ordering::Relaxed);
    }
}
