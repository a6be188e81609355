//! Reads that may lag: how far behind a secondary may be, and how far it was.
//!
//! MongoDB's own `maxStalenessSeconds` starts at 90 seconds. Shorter bounds are
//! kept by asking the primary for its cluster time twice a second and letting
//! the secondary wait until it has reached a sample that is young enough:
//!
//! ```text
//!            sample asked, T          read begins        answer
//! ──────────────┼─────────────────────────┼────────────────┼──▶
//!               └──────────── at most the bound ───────────┘
//! ```
//!
//! Whatever was acknowledged before the sample was asked for has a cluster time
//! of T at the most, so an answer that waited for T shows it. The sample is a
//! linearizable read: a primary that was cut off and does not know it yet
//! cannot give one, where a plain read would make its past look new.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine_api::{Because, Revision, Timestamp};
use mongodb::Database;
use mongodb::bson::{self, Document, doc};
use tokio::task::JoinHandle;

use crate::failure::{Asked, answer};
use crate::guard::GUARDS;
use crate::lag_counts::{LagCounts, count};

/// How often the primary's cluster time is asked for.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);

/// How long a sample may take; one that is late would be of no use.
const SAMPLE_MAX: Duration = Duration::from_secs(2);

/// Samples kept: one minute's. A read that may lag more is answered by younger ones.
const SAMPLES_MAX: usize = 120;

/// After a secondary failed to answer in time, how long all reads go to the primary.
const REST: Duration = Duration::from_secs(1);

/// A change is acknowledged at the latest this long after its revision was
/// proposed: requests live shorter.
const CHANGE_LIFE_MAX: Duration = Duration::from_secs(60);

/// The primary's cluster time at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Before the primary was asked.
    pub asked: Instant,
    pub time: bson::Timestamp,
}

/// Samples of the last minute, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Samples(VecDeque<Sample>);

#[derive(Debug)]
pub(crate) struct Lag {
    shared: Arc<Shared>,
    rest: Mutex<Option<Rest>>,
    /// Started by the first read that may lag: the others need no samples.
    sampler: Mutex<Option<JoinHandle<()>>>,
}

/// Until when secondaries are left alone, and why.
#[derive(Clone, Copy, Debug)]
struct Rest {
    until: Instant,
    because: Because,
}

#[derive(Debug, Default)]
struct Shared {
    samples: Mutex<Samples>,
    counts: LagCounts,
}

impl Samples {
    fn push(&mut self, sample: Sample) {
        if self.0.len() == SAMPLES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    /// The oldest that is still young enough, because secondaries have most likely reached it.
    pub fn oldest_within(&self, now: Instant, age_max: Duration) -> Option<Sample> {
        let young = |sample: &&Sample| now.duration_since(sample.asked) <= age_max;
        self.0.iter().find(young).copied()
    }

    /// How old an answer is at the most that shows everything up to `shown`.
    pub fn age(&self, shown: bson::Timestamp, now: Instant) -> Option<Duration> {
        let reached = |sample: &&Sample| sample.time <= shown;
        let newest = self.0.iter().rev().find(reached)?;
        Some(now.duration_since(newest.asked))
    }
}

impl Lag {
    pub fn new() -> Lag {
        Lag {
            shared: Arc::default(),
            rest: Mutex::default(),
            sampler: Mutex::default(),
        }
    }

    pub fn counts(&self) -> &LagCounts {
        &self.shared.counts
    }

    /// The cluster time that a secondary must have reached, or why none is asked.
    /// The answer may take `wait_max`, and is not to be older than `lag_max` then.
    pub fn required(
        &self,
        database: &Database,
        lag_max: Duration,
        wait_max: Duration,
    ) -> Result<Sample, Because> {
        self.ensure_sampler(database);
        let now = Instant::now();
        let resting = lock(&self.rest).filter(|rest| now < rest.until);
        if let Some(rest) = resting {
            count(&self.shared.counts.rested);
            return Err(rest.because);
        }
        let age_max = lag_max.saturating_sub(wait_max);
        let sample = lock(&self.shared.samples).oldest_within(now, age_max);
        sample.ok_or_else(|| {
            count(&self.shared.counts.unsampled);
            Because::Unavailable
        })
    }

    /// How old an answer is at the most that waited for `sample` and shows
    /// everything up to `shown`; `None` when it is too old.
    pub fn age(
        &self,
        sample: Sample,
        shown: Option<bson::Timestamp>,
        lag_max: Duration,
    ) -> Option<Duration> {
        let now = Instant::now();
        let age_max = now.duration_since(sample.asked);
        if age_max > lag_max {
            count(&self.shared.counts.behind);
            return None;
        }
        let shown = shown.and_then(|shown| lock(&self.shared.samples).age(shown, now));
        Some(shown.unwrap_or(age_max))
    }

    /// A secondary did not answer in time: leave them alone for a moment.
    pub fn rest(&self, because: Because) {
        count(&self.shared.counts.behind);
        *lock(&self.rest) = Some(Rest {
            until: Instant::now() + REST,
            because,
        });
    }

    fn ensure_sampler(&self, database: &Database) {
        let mut sampler = lock(&self.sampler);
        if sampler.is_none() {
            let sampling = sample_for_ever(database.clone(), self.shared.clone());
            *sampler = Some(tokio::spawn(sampling));
        }
    }
}

impl Drop for Lag {
    fn drop(&mut self) {
        if let Some(sampler) = lock(&self.sampler).take() {
            sampler.abort();
        }
    }
}

/// Whether a sample of this age is sure to cover a change that somebody has
/// seen: it must have been acknowledged before the sample was asked for.
pub(crate) fn covers(sample: Sample, seen: Revision, now: Timestamp) -> bool {
    let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    let asked = now
        .unix_micros()
        .saturating_sub(micros(sample.asked.elapsed()));
    seen.time()
        .unix_micros()
        .saturating_add(micros(CHANGE_LIFE_MAX))
        < asked
}

async fn sample_for_ever(database: Database, shared: Arc<Shared>) {
    loop {
        let asked = Instant::now();
        let asking = database.run_command(sample_command());
        let answered = answer(SAMPLE_MAX, Asked::Read, asking).await.ok();
        match answered.and_then(|document| document.get_timestamp("operationTime").ok()) {
            Some(time) => lock(&shared.samples).push(Sample { asked, time }),
            // Reads notice by themselves: without young samples they go to the primary.
            None => count(&shared.counts.samples_failed),
        }
        tokio::time::sleep(SAMPLE_EVERY).await;
    }
}

fn sample_command() -> Document {
    doc! {
        "find": GUARDS,
        "filter": { "_id": "rules" },
        "projection": { "_id": 1 },
        "limit": 1,
        "singleBatch": true,
        "readConcern": { "level": "linearizable" },
        "maxTimeMS": i64::try_from(SAMPLE_MAX.as_millis()).unwrap_or(i64::MAX),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use engine_api::Writer;

    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn at(time: u32) -> bson::Timestamp {
        bson::Timestamp { time, increment: 1 }
    }

    /// A sample each second, the first ten seconds ago.
    fn samples(start: Instant) -> Samples {
        let mut samples = Samples::default();
        for second in 0..=10 {
            samples.push(Sample {
                asked: start + seconds(second),
                time: at(second as u32),
            });
        }
        samples
    }

    #[test]
    fn a_secondary_must_have_reached_the_oldest_sample_within_the_bound() {
        let start = Instant::now();
        let (samples, now) = (samples(start), start + seconds(10));
        let needed = |age_max| {
            samples
                .oldest_within(now, age_max)
                .map(|sample| sample.time)
        };
        assert_eq!(needed(seconds(5)), Some(at(5)));
        assert_eq!(needed(Duration::from_millis(4_700)), Some(at(6)));
        assert_eq!(needed(seconds(99)), Some(at(0)));
        let later = start + seconds(20);
        assert_eq!(samples.oldest_within(later, seconds(5)), None);
    }

    #[test]
    fn an_answer_is_as_old_as_the_newest_sample_that_it_shows() {
        let start = Instant::now();
        let (samples, now) = (samples(start), start + seconds(10));
        assert_eq!(samples.age(at(7), now), Some(seconds(3)));
        let between = bson::Timestamp {
            time: 7,
            increment: 0,
        };
        assert_eq!(samples.age(between, now), Some(seconds(4)));
        assert_eq!(samples.age(at(99), now), Some(seconds(0)));
        assert_eq!(Samples::default().age(at(1), now), None);
    }

    #[test]
    fn samples_are_kept_for_a_minute_only() {
        let start = Instant::now();
        let mut samples = Samples::default();
        for number in 0..=SAMPLES_MAX {
            samples.push(Sample {
                asked: start,
                time: at(number as u32),
            });
        }
        assert_eq!(samples.0.len(), SAMPLES_MAX);
        assert_eq!(samples.0[0].time, at(1));
    }

    #[test]
    fn a_sample_covers_only_changes_whose_time_is_over() {
        let now = Timestamp::from_unix_micros(1_700_000_000_000_000);
        let sample = Sample {
            asked: Instant::now(),
            time: at(1),
        };
        let ago = |seconds: i64| {
            let then = Timestamp::from_unix_micros(now.unix_micros() - seconds * 1_000_000);
            Revision::at(then, Writer::numbered(1))
        };
        assert!(covers(sample, Revision::ZERO, now));
        assert!(covers(sample, ago(120), now));
        assert!(!covers(sample, ago(10), now));
    }
}
