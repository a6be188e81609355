//! How the reads of clients were answered: at which level, how old at the most, and
//! how often a copy that lags would not do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine_api::{Because, Served};
use layout::{Operation, ReadLevel};

/// Upper bounds of the ages of lagging answers, in milliseconds; one more has no bound.
pub const AGE_BOUNDS_MS: [u64; 9] = [100, 250, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 60_000];

const AGES: usize = AGE_BOUNDS_MS.len() + 1;

const LEVELS: [ReadLevel; 7] = [
    ReadLevel::One,
    ReadLevel::Quorum,
    ReadLevel::LocalQuorum,
    ReadLevel::All,
    ReadLevel::Serial,
    ReadLevel::Primary,
    ReadLevel::Secondary,
];

/// Why a read that might have lagged was answered with the latest, as it is called
/// in metrics.
const REASONS: [(Because, &str); 5] = [
    (Because::Token, "token"),
    (Because::Status, "status"),
    (Because::Behind, "lag"),
    (Because::Unavailable, "unavailable"),
    (Because::Moved, "map"),
];

/// Reads of clients, by operation. All figures only rise.
#[derive(Debug)]
pub struct ReadCounts([OperationReads; Operation::ALL.len()]);

#[derive(Debug, Default)]
pub struct OperationReads {
    latest: AtomicU64,
    levels: [AtomicU64; LEVELS.len()],
    reasons: [AtomicU64; REASONS.len()],
    ages: [AtomicU64; AGES],
    age_ms_sum: AtomicU64,
}

impl Default for ReadCounts {
    fn default() -> ReadCounts {
        ReadCounts(std::array::from_fn(|_| OperationReads::default()))
    }
}

impl ReadCounts {
    pub fn of(&self, operation: Operation) -> &OperationReads {
        &self.0[operation as usize]
    }

    /// `level`: what the policy reads from, if it lets the operation lag.
    pub(crate) fn count(&self, operation: Operation, level: Option<ReadLevel>, served: Served) {
        let reads = self.of(operation);
        match (served, level) {
            (Served::Lagging { age_max }, Some(level)) => {
                add_one(&reads.levels[place_of(&LEVELS, |known| *known == level)]);
                if let Some(age) = age_max {
                    reads.count_age(age);
                }
            }
            (served, _) => {
                add_one(&reads.latest);
                let because = |(known, _): &(Because, _)| served == Served::Latest(*known);
                if let Some(place) = REASONS.iter().position(because) {
                    add_one(&reads.reasons[place]);
                }
            }
        }
    }
}

impl OperationReads {
    /// Answers by level, those that were given at least once.
    pub fn levels(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let latest = std::iter::once(("latest", self.latest.load(Ordering::Relaxed)));
        let levels = LEVELS.iter().zip(&self.levels);
        let levels = levels.map(|(level, count)| (level.name(), count.load(Ordering::Relaxed)));
        latest.chain(levels).filter(|(_, count)| *count > 0)
    }

    /// Reads that were allowed to lag and were answered with the latest, by reason.
    pub fn reasons(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let reasons = REASONS.iter().zip(&self.reasons);
        reasons
            .map(|((_, name), count)| (*name, count.load(Ordering::Relaxed)))
            .filter(|(_, count)| *count > 0)
    }

    /// How old lagging answers were at the most: a count for each of [`AGE_BOUNDS_MS`]
    /// and one for what is above. Those that nothing bounds are not among them.
    pub fn ages(&self) -> [u64; AGES] {
        std::array::from_fn(|place| self.ages[place].load(Ordering::Relaxed))
    }

    pub fn age_sum(&self) -> Duration {
        Duration::from_millis(self.age_ms_sum.load(Ordering::Relaxed))
    }

    fn count_age(&self, age: Duration) {
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        add_one(&self.ages[AGE_BOUNDS_MS.partition_point(|bound| *bound < age_ms)]);
        self.age_ms_sum.fetch_add(age_ms, Ordering::Relaxed);
    }
}

fn place_of<T>(all: &[T], is_it: impl Fn(&T) -> bool) -> usize {
    all.iter()
        .position(is_it)
        .expect("the list names every one there is")
}

fn add_one(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_level_age_and_reason() {
        let counts = ReadCounts::default();
        let secondary = Some(ReadLevel::Secondary);
        let lagging = |ms| Served::Lagging {
            age_max: Some(Duration::from_millis(ms)),
        };
        for served in [
            lagging(100),
            lagging(101),
            lagging(90_000),
            Served::Latest(Because::Token),
            Served::Latest(Because::Asked),
        ] {
            counts.count(Operation::O3, secondary, served);
        }
        let unbounded = Served::Lagging { age_max: None };
        counts.count(Operation::S2, Some(ReadLevel::One), unbounded);
        counts.count(Operation::C2, None, Served::Latest(Because::Asked));

        let orders = counts.of(Operation::O3);
        let levels: Vec<_> = orders.levels().collect();
        assert_eq!(levels, [("latest", 2), ("secondary", 3)]);
        assert_eq!(orders.reasons().collect::<Vec<_>>(), [("token", 1)]);
        assert_eq!(orders.ages(), [1, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(orders.age_sum(), Duration::from_millis(90_201));
        let sessions = counts.of(Operation::S2);
        assert_eq!(sessions.levels().collect::<Vec<_>>(), [("one", 1)]);
        assert_eq!(sessions.ages().iter().sum::<u64>(), 0);
        let carts = counts.of(Operation::C2);
        assert_eq!(carts.levels().collect::<Vec<_>>(), [("latest", 1)]);
        assert_eq!(carts.reasons().count(), 0);
    }

    #[test]
    fn every_operation_has_a_place_of_its_own() {
        for (place, operation) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(operation as usize, place);
        }
    }
}
