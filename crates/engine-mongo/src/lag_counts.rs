//! What became of reads that were allowed to lag.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the histogram of served lag, in milliseconds.
pub const LAG_BOUNDS_MS: [u64; 9] = [100, 250, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 60_000];

/// Reads that were allowed to lag, since the engine was opened, for metrics.
#[derive(Debug, Default)]
pub struct LagCounts {
    /// Answered by a secondary, by how old the answer was at the most: a count
    /// for each of [`LAG_BOUNDS_MS`] and one for what is above.
    pub served: [AtomicU64; LAG_BOUNDS_MS.len() + 1],
    /// The oldest answer that a secondary gave.
    pub served_ms_max: AtomicU64,
    /// Answered by the primary because a secondary was too far behind, or silent.
    pub behind: AtomicU64,
    /// Answered by the primary because a secondary failed a moment ago.
    pub rested: AtomicU64,
    /// Answered by the primary because its cluster time was not known yet, or is too old.
    pub unsampled: AtomicU64,
    /// Answered by the primary because the caller's own last change may be missing elsewhere.
    pub own_change: AtomicU64,
    /// Samples of the cluster time that failed.
    pub samples_failed: AtomicU64,
}

impl LagCounts {
    pub fn served_in_all(&self) -> u64 {
        self.served
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    }

    /// Reads that were allowed to lag but that the primary answered.
    pub fn fallbacks(&self) -> u64 {
        [
            &self.behind,
            &self.rested,
            &self.unsampled,
            &self.own_change,
        ]
        .map(|count| count.load(Ordering::Relaxed))
        .iter()
        .sum()
    }

    pub(crate) fn serve(&self, age: Duration) {
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let bucket = LAG_BOUNDS_MS
            .iter()
            .position(|bound| age_ms <= *bound)
            .unwrap_or(LAG_BOUNDS_MS.len());
        self.served[bucket].fetch_add(1, Ordering::Relaxed);
        self.served_ms_max.fetch_max(age_ms, Ordering::Relaxed);
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
