//! Who asks, under which right, and how fresh the answer must be.

use std::fmt;
use std::time::Duration;

use layout::{Policy, ReadLevel};
use model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::revision::Revision;

/// The number of a map. It only rises.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Generation(pub u64);

/// A mover's claim to its move. Who claims a higher one ends the lower (W21).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MoverTerm {
    pub move_name: String,
    pub term: u64,
}

/// The right under which something is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authority {
    /// A router that serves under this generation: refused behind a fence (W15).
    Router { generation: Generation },
    /// A mover: passes fences, is refused once its term is lost (W21, W26).
    Mover { term: MoverTerm },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteContext {
    pub authority: Authority,
    /// The writer's clock, which decides what has expired.
    pub now: Timestamp,
    /// What the change is to be numbered. Above everything its writer has seen (W5).
    pub revision: Revision,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadContext {
    /// The reader's clock, which decides what has expired.
    pub now: Timestamp,
    pub freshness: Freshness,
}

/// How old an answer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Freshness {
    /// Everything acknowledged before the read began. Where a layout lets one copy alone
    /// acknowledge, it may lose that copy's changes, and this may miss them.
    Latest,
    /// The same without that exception: every copy is asked, and none may be away. For who carries
    /// records to where the other copies never come (W25).
    OfEveryCopy,
    /// May lag behind by this much where the engine has cheaper copies, but
    /// never behind what the caller has seen: the change of its token, if it has
    /// one. [`Freshness::UNBOUNDED`] seconds: by any time.
    MayLag { seconds: u32, seen: Revision },
}

/// An answer, and how it was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aged<T> {
    pub answer: T,
    pub served: Served,
}

/// Where an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// From where everything is that was acknowledged before the read began.
    Latest(Because),
    /// From a copy that may be behind, by this much at the most; `None` where
    /// nothing bounds it.
    Lagging { age_max: Option<Duration> },
}

/// Why an answer is the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// It was asked for, or there are no copies that lag.
    Asked,
    /// A copy may lack what the caller has seen.
    Token,
    /// The copies were further behind than is allowed, or silent.
    Behind,
    /// No copy could be asked, or nobody knew how far behind it is.
    Unavailable,
    /// The keys may have come here a moment ago, later than what a copy shows.
    Moved,
    /// The answer has a status that is not told from a copy.
    Status,
}

impl Freshness {
    /// Seconds of a lag that nothing bounds.
    pub const UNBOUNDED: u32 = u32::MAX;

    /// What a layout's policy allows to someone who has seen the change `seen`.
    /// A policy that calls itself eventual promises no bound, and is read at its level.
    pub fn allowed(policy: &Policy, seen: Revision) -> Freshness {
        let seconds = match (policy.read, u32::try_from(policy.may_lag_seconds)) {
            (ReadLevel::Primary, _) => 0,
            (_, Ok(0)) if policy.is_eventual() => Freshness::UNBOUNDED,
            (_, seconds) => seconds.unwrap_or(Freshness::UNBOUNDED),
        };
        match seconds {
            0 => Freshness::Latest,
            seconds => Freshness::MayLag { seconds, seen },
        }
    }
}

impl<T> Aged<T> {
    pub fn latest(answer: T, because: Because) -> Aged<T> {
        let served = Served::Latest(because);
        Aged { answer, served }
    }

    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Aged<U> {
        Aged {
            answer: make(self.answer),
            served: self.served,
        }
    }
}

impl Served {
    /// How an answer was come by that is put together from two: as old as the older.
    #[must_use]
    pub fn and(self, other: Served) -> Served {
        match (self, other) {
            (Served::Lagging { age_max: one }, Served::Lagging { age_max: two }) => {
                let age_max = one.zip(two).map(|(one, two)| one.max(two));
                Served::Lagging { age_max }
            }
            (lagging @ Served::Lagging { .. }, Served::Latest(_))
            | (Served::Latest(_), lagging @ Served::Lagging { .. }) => lagging,
            (Served::Latest(Because::Asked), latest) => latest,
            (latest, Served::Latest(_)) => latest,
        }
    }
}

impl Generation {
    #[must_use]
    pub fn next(self) -> Generation {
        Generation(self.0 + 1)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for MoverTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (term {})", self.move_name, self.term)
    }
}

#[cfg(test)]
mod tests {
    use layout::WriteLevel;

    use super::*;

    #[test]
    fn only_a_policy_with_a_lag_lets_an_answer_lag() {
        let seen = Revision::ZERO;
        let allowed = |read, may_lag_seconds| {
            let policy = Policy {
                may_lag_seconds,
                ..Policy::new(read, WriteLevel::Majority)
            };
            Freshness::allowed(&policy, seen)
        };
        let lag = |seconds| Freshness::MayLag { seconds, seen };
        assert_eq!(allowed(ReadLevel::Secondary, 5), lag(5));
        assert_eq!(allowed(ReadLevel::Secondary, u64::MAX), lag(u32::MAX));
        assert_eq!(allowed(ReadLevel::Secondary, 0), Freshness::Latest);
        assert_eq!(allowed(ReadLevel::Primary, 5), Freshness::Latest);
        assert_eq!(allowed(ReadLevel::One, 0), Freshness::Latest);
    }

    #[test]
    fn what_calls_itself_eventual_is_read_without_a_bound() {
        let seen = Revision::ZERO;
        let policy = |label: &str| Policy {
            label: Some(label.to_owned()),
            ..Policy::new(ReadLevel::One, WriteLevel::One)
        };
        let unbounded = Freshness::MayLag {
            seconds: Freshness::UNBOUNDED,
            seen,
        };
        assert_eq!(
            Freshness::allowed(&policy("eventual: hints only"), seen),
            unbounded
        );
        assert_eq!(
            Freshness::allowed(&policy("sessions"), seen),
            Freshness::Latest
        );
    }

    #[test]
    fn an_answer_of_two_parts_is_as_old_as_the_older() {
        let lagging = |seconds| Served::Lagging {
            age_max: Some(Duration::from_secs(seconds)),
        };
        let unbounded = Served::Lagging { age_max: None };
        let latest = Served::Latest;
        assert_eq!(lagging(2).and(lagging(3)), lagging(3));
        assert_eq!(lagging(2).and(unbounded), unbounded);
        assert_eq!(latest(Because::Token).and(lagging(2)), lagging(2));
        assert_eq!(lagging(2).and(latest(Because::Token)), lagging(2));
        let token = latest(Because::Token);
        assert_eq!(latest(Because::Asked).and(token), token);
        assert_eq!(token.and(latest(Because::Asked)), token);
    }
}
