//! How long requests were held for frozen keys: what clients saw of a cutover.
//!
//! Counted by freeze, so that a mover can gather what all processes saw of its own. A wait is counted when it ends,
//! however it ends.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use engine_api::Generation;
use serde::{Deserialize, Serialize};

use crate::map::Map;

/// Freezes whose waits are remembered.
const FREEZES_MAX: usize = 4;

/// Buckets of one power of two: a quantile is at most an eighth too high.
const STEPS: u64 = 8;

/// How long requests waited: a histogram whose buckets grow with the waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waits {
    /// Waits by bucket; see `bucket`.
    buckets: BTreeMap<u16, u64>,
    max_us: u64,
}

/// What one process held for one freeze.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldFor {
    /// The map that froze the keys.
    pub frozen: Generation,
    pub waits: Waits,
}

/// What this process has held.
#[derive(Debug, Default)]
pub(crate) struct Stalls(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    /// Of the last freezes, those that nobody waited for too.
    freezes: BTreeMap<Generation, Waits>,
    all: Waits,
}

impl Waits {
    pub fn add(&mut self, wait: Duration) {
        let us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        *self.buckets.entry(bucket(us)).or_default() += 1;
        self.max_us = self.max_us.max(us);
    }

    pub fn merge(&mut self, other: &Waits) {
        for (bucket, count) in &other.buckets {
            let sum = self.buckets.entry(*bucket).or_default();
            *sum = sum.saturating_add(*count);
        }
        self.max_us = self.max_us.max(other.max_us);
    }

    pub fn count(&self) -> u64 {
        let counts = self.buckets.values();
        counts.fold(0, |sum, count| sum.saturating_add(*count))
    }

    pub fn max_us(&self) -> u64 {
        self.max_us
    }

    /// What so many of a thousand waits did not exceed, rounded up to the end of its bucket.
    pub fn per_mille_us(&self, per_mille: u64) -> u64 {
        let rank = self.count().saturating_mul(per_mille).div_ceil(1_000);
        let mut met = 0u64;
        for (bucket, count) in &self.buckets {
            met = met.saturating_add(*count);
            if met >= rank {
                return bucket_end_us(*bucket).min(self.max_us);
            }
        }
        self.max_us
    }

    /// Waits of at most so long, and how many, for every bucket that has some, in order.
    pub fn by_length(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let ends = |(bucket, count): (&u16, &u64)| (bucket_end_us(*bucket), *count);
        self.buckets.iter().map(ends)
    }
}

/// One for each value below `STEPS`, then as many for each power of two.
fn bucket(us: u64) -> u16 {
    let bucket = match us.checked_ilog2() {
        Some(power) if us >= STEPS => {
            let power = u64::from(power);
            let step = (us >> (power - 3)) - STEPS;
            (power - 2) * STEPS + step
        }
        _ => us,
    };
    u16::try_from(bucket).expect("64 powers of two have 512 buckets")
}

fn bucket_end_us(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    if bucket < STEPS {
        return bucket;
    }
    let (power, step) = (bucket / STEPS + 2, bucket % STEPS);
    let next = u128::from(STEPS + step + 1) << (power - 3).min(64);
    u64::try_from(next - 1).unwrap_or(u64::MAX)
}

impl Stalls {
    /// From here on requests may be held for this map.
    pub(crate) fn look_at(&self, map: &Map) {
        if map.collections.values().all(|map| map.frozen.is_empty()) {
            return;
        }
        let mut book = self.lock();
        book.freezes.entry(map.generation).or_default();
        while book.freezes.len() > FREEZES_MAX {
            book.freezes.pop_first();
        }
    }

    /// A request that waited, and the map it began to wait under: a freeze, or one from before
    /// it, if a fence told of the freeze first.
    pub(crate) fn add(&self, under: Generation, wait: Duration) {
        let mut book = self.lock();
        book.all.add(wait);
        if let Some((_, waits)) = book.freezes.range_mut(under..).next() {
            waits.add(wait);
        }
    }

    pub(crate) fn all(&self) -> Waits {
        self.lock().all.clone()
    }

    /// Of the freezes before this generation.
    pub(crate) fn before(&self, generation: Generation) -> Vec<HeldFor> {
        let book = self.lock();
        let freezes = book.freezes.range(..generation);
        let held = freezes.map(|(frozen, waits)| HeldFor {
            frozen: *frozen,
            waits: waits.clone(),
        });
        held.collect()
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0
            .lock()
            .expect("no code panics while it holds the lock")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_quantile_is_never_too_low_and_at_most_an_eighth_too_high() {
        let mut waits = Waits::default();
        assert_eq!(waits.per_mille_us(999), 0);
        (1..=1_000u64).for_each(|ms| waits.add(Duration::from_millis(ms)));
        for (per_mille, exact) in [(500, 500_000), (990, 990_000), (999, 999_000)] {
            let found = waits.per_mille_us(per_mille);
            assert!(found >= exact && found <= exact + exact / 8, "{found}");
        }
        assert_eq!(waits.per_mille_us(1_000), 1_000_000);
        assert_eq!((waits.count(), waits.max_us()), (1_000, 1_000_000));
    }

    proptest! {
        #[test]
        fn every_wait_lies_in_its_bucket(us: u64) {
            let bucket = bucket(us);
            prop_assert!(us <= bucket_end_us(bucket));
            prop_assert!(bucket == 0 || us > bucket_end_us(bucket - 1));
        }

        #[test]
        fn merging_is_counting_together(
            one in proptest::collection::vec(0u64..10_000_000, 0..50),
            other in proptest::collection::vec(0u64..10_000_000, 0..50),
        ) {
            let waits = |all: &[u64]| {
                let mut waits = Waits::default();
                all.iter().for_each(|us| waits.add(Duration::from_micros(*us)));
                waits
            };
            let mut merged = waits(&one);
            merged.merge(&waits(&other));
            prop_assert_eq!(merged, waits(&[one, other].concat()));
        }
    }
}
