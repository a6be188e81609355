//! The revision clock: proposals that are unique per key and rise (W5).
//!
//! Keys share stripes by hash. A stripe remembers the last revision proposed
//! for any of its keys, so that two changes of one key in the same tick of the
//! clock never get the same number; that keys of one stripe push each other a
//! tick ahead now and then does no harm.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard};

use engine_api::{RecordKey, Revision, Timestamp, Writer};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// How many stripes keys are spread over.
pub const REVISION_STRIPES: usize = 4096;

#[derive(Debug)]
pub struct RevisionClock {
    /// Changes only with a lease's term, while nothing is proposed.
    writer: AtomicU8,
    clock_ahead_ms_max: u64,
    stripes: Vec<Mutex<Revision>>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClockError {
    #[error(
        "a record is {ahead_ms} ms ahead of this machine's clock, {clock_ahead_ms_max} ms are \
         allowed: set the clocks right"
    )]
    Behind {
        ahead_ms: u64,
        clock_ahead_ms_max: u64,
    },
}

impl RevisionClock {
    pub fn new(writer: Writer, clock_ahead_ms_max: u64) -> RevisionClock {
        let stripes = (0..REVISION_STRIPES).map(|_| Mutex::default()).collect();
        RevisionClock {
            writer: AtomicU8::new(writer.number()),
            clock_ahead_ms_max,
            stripes,
        }
    }

    /// One revision for a change of these keys: at least the clock's, above
    /// `floor`, above everything proposed for any of them before.
    pub fn propose<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a RecordKey>,
        now: Timestamp,
        floor: Revision,
    ) -> Result<Revision, ClockError> {
        let mut stripes = self.lock_all(keys);
        let floor = stripes.iter().fold(floor, |floor, last| floor.max(**last));
        self.check_ahead(floor, now)?;
        let writer = Writer::numbered(self.writer.load(Ordering::Acquire));
        let revision = Revision::at(now, writer).max(Revision::above(floor, writer));
        stripes.iter_mut().for_each(|last| **last = revision);
        Ok(revision)
    }

    /// From now on proposals carry this writer's number.
    pub(crate) fn write_as(&self, writer: Writer) {
        self.writer.store(writer.number(), Ordering::Release);
    }

    /// Remembers a number that an engine gave to a change of this key itself.
    /// One too far ahead is left to the next proposal that really meets it, or
    /// it would push every key of its stripe along.
    pub fn observe(&self, key: &RecordKey, revision: Revision, now: Timestamp) {
        if self.check_ahead(revision, now).is_ok() {
            let mut last = self.lock(stripe_of(key));
            *last = revision.max(*last);
        }
    }

    fn check_ahead(&self, seen: Revision, now: Timestamp) -> Result<(), ClockError> {
        let ahead_us = seen.time().unix_micros().saturating_sub(now.unix_micros());
        let ahead_ms = u64::try_from(ahead_us / 1000).unwrap_or(0);
        if ahead_ms > self.clock_ahead_ms_max {
            let clock_ahead_ms_max = self.clock_ahead_ms_max;
            return Err(ClockError::Behind {
                ahead_ms,
                clock_ahead_ms_max,
            });
        }
        Ok(())
    }

    /// Always in the order of their numbers, so that two groups never wait for each other.
    fn lock_all<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a RecordKey>,
    ) -> Vec<MutexGuard<'_, Revision>> {
        let mut numbers: Vec<usize> = keys.into_iter().map(stripe_of).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
            .into_iter()
            .map(|number| self.lock(number))
            .collect()
    }

    fn lock(&self, number: usize) -> MutexGuard<'_, Revision> {
        self.stripes[number]
            .lock()
            .expect("no code panics while it holds the lock")
    }
}

fn stripe_of(key: &RecordKey) -> usize {
    let seed = u64::from(key.collection.number());
    let hash = xxh3_64_with_seed(key.id.as_str().as_bytes(), seed);
    usize::try_from(hash % REVISION_STRIPES as u64).expect("a stripe's number is small")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use engine_api::RecordId;
    use layout::Collection;
    use proptest::prelude::*;

    use super::*;

    const NOW: i64 = 1_700_000_000_000_000;

    fn key(number: u8) -> RecordKey {
        RecordKey::by_id(
            Collection::Carts,
            RecordId::new(format!("c{number}")).unwrap(),
        )
    }

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_unix_micros(NOW + micros)
    }

    proptest! {
        #[test]
        fn proposals_of_a_key_rise_whatever_the_clock_does(
            steps in prop::collection::vec((prop::collection::vec(0u8..4, 1..4), -90_000i64..90_000), 1..60)
        ) {
            let clock = RevisionClock::new(Writer::numbered(3), 500);
            let mut last = [Revision::ZERO; 4];
            for (numbers, micros) in steps {
                let keys: Vec<RecordKey> = numbers.iter().map(|number| key(*number)).collect();
                let revision = clock.propose(&keys, at(micros), Revision::ZERO).unwrap();
                prop_assert_eq!(revision.writer(), Writer::numbered(3));
                for number in numbers.iter().collect::<BTreeSet<_>>() {
                    prop_assert!(revision > last[usize::from(*number)]);
                    last[usize::from(*number)] = revision;
                }
            }
        }
    }

    #[test]
    fn threads_never_get_the_same_revision_for_a_key() {
        let clock = RevisionClock::new(Writer::numbered(1), 500);
        let propose = |alone: u8| {
            let keys = [key(0), key(alone)];
            let one = || clock.propose(&keys, at(0), Revision::ZERO).unwrap();
            (0..500).map(|_| one()).collect::<Vec<Revision>>()
        };
        let proposed: Vec<Revision> = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..5)
                .map(|alone| scope.spawn(move || propose(alone)))
                .collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect()
        });
        assert_eq!(proposed.iter().collect::<BTreeSet<_>>().len(), 2000);
    }

    #[test]
    fn a_floor_beyond_the_limit_is_refused_and_leaves_no_trace() {
        let clock = RevisionClock::new(Writer::numbered(1), 500);
        let ahead = Revision::at(at(500_999), Writer::numbered(2));
        let proposed = clock.propose([&key(1)], at(0), ahead).unwrap();
        assert!(proposed > ahead);
        let too_far = Revision::at(at(502_000), Writer::numbered(2));
        let error = clock.propose([&key(2)], at(0), too_far).unwrap_err();
        assert!(
            matches!(error, ClockError::Behind { ahead_ms: 501, .. }),
            "{error}"
        );
        clock.observe(&key(2), too_far, at(0));
        let unharmed = clock.propose([&key(2)], at(0), Revision::ZERO).unwrap();
        assert_eq!(unharmed, Revision::at(at(0), Writer::numbered(1)));
    }
}
