//! A histogram that two threads can fill without waiting for each other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds in microseconds. Among them the service levels that are alerted on:
/// 5, 10, 20, 30 and 50 ms.
pub(crate) const BOUNDS_US: [u32; BUCKETS - 1] = [
    50, 100, 150, 200, 300, 500, 750, 1_000, 1_500, 2_000, 3_000, 5_000, 7_500, 10_000, 15_000,
    20_000, 30_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000,
];

/// The last one holds what is slower than every bound.
pub(crate) const BUCKETS: usize = 26;

#[derive(Debug, Default)]
pub(crate) struct Latency {
    counts: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

impl Latency {
    pub(crate) fn record(&self, took: Duration) {
        let us = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        let bucket = BOUNDS_US.partition_point(|bound| *bound < us);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(u64::from(us), Ordering::Relaxed);
    }

    pub(crate) fn add_to(&self, counts: &mut [u64; BUCKETS]) {
        for (sum, count) in counts.iter_mut().zip(&self.counts) {
            *sum += count.load(Ordering::Relaxed);
        }
    }

    pub(crate) fn counts(&self) -> [u64; BUCKETS] {
        let mut counts = [0; BUCKETS];
        self.add_to(&mut counts);
        counts
    }

    pub(crate) fn sum_s(&self) -> f64 {
        self.sum_us.load(Ordering::Relaxed) as f64 / 1e6
    }
}

/// The latency below which the share `of_all` of the requests stayed, evenly spread
/// within its bucket. `None` without requests.
pub(crate) fn quantile_us(counts: &[u64; BUCKETS], of_all: f64) -> Option<f64> {
    let all: u64 = counts.iter().sum();
    let rank = of_all * all as f64;
    let mut below = 0;
    for (bucket, count) in counts.iter().enumerate() {
        if *count > 0 && (below + count) as f64 >= rank {
            let least = bucket.checked_sub(1).map_or(0, |before| BOUNDS_US[before]);
            // Of what is slower than all bounds only the last bound is known.
            let most = BOUNDS_US.get(bucket).copied().unwrap_or(least);
            let share = (rank - below as f64) / *count as f64;
            return Some(f64::from(least) + share * f64::from(most - least));
        }
        below += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_in_the_bucket_of_its_request() {
        let latency = Latency::default();
        assert_eq!(quantile_us(&latency.counts(), 0.5), None);
        for us in 1..=1000 {
            latency.record(Duration::from_micros(us));
        }
        let at = |of_all| quantile_us(&latency.counts(), of_all).unwrap();
        assert!((at(0.5) - 500.0).abs() < 1.0, "{}", at(0.5));
        assert!((at(0.99) - 990.0).abs() < 1.0, "{}", at(0.99));
        latency.record(Duration::from_secs(3600));
        assert_eq!(at(1.0), 10_000_000.0);
        assert_eq!(latency.counts()[BUCKETS - 1], 1);
    }

    #[test]
    fn a_bound_belongs_to_its_own_bucket() {
        let latency = Latency::default();
        latency.record(Duration::from_micros(50));
        latency.record(Duration::from_micros(51));
        assert_eq!(latency.counts()[..2], [1, 1]);
    }
}
