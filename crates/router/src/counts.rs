//! What the router counts, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

/// All of them only rise.
#[derive(Debug, Default)]
pub struct RouterCounts {
    /// Requests that had to wait for a map.
    pub held: Counter,
    /// Requests refused because too many waited, or waited too long.
    pub holds_refused: Counter,
    pub fenced_retries: Counter,
    pub stale_retries: Counter,
    pub unavailable_retries: Counter,
    pub unknown_resends: Counter,
    /// Writes whose outcome stayed unknown.
    pub unknown_outcomes: Counter,
    /// Reads that were answered by another's.
    pub reads_joined: Counter,
    /// Requests whose key was made under another shard key.
    pub rekeyed: Counter,
    pub read_restarts: Counter,
    pub listing_restarts: Counter,
    /// Requests that ended because their time was over before an attempt.
    pub out_of_time: Counter,
}

impl Counter {
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
