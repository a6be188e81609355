//! Who asks, under which right, and how fresh the answer must be.

use std::fmt;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Everything acknowledged before the read began.
    Latest,
    /// May lag behind by this much where the engine has cheaper copies, but
    /// never behind what the caller has seen: the change of its token, if it has one.
    MayLag { seconds: u32, seen: Revision },
}

impl Freshness {
    /// What a layout's policy allows to someone who has seen the change `seen`.
    pub fn allowed(policy: &Policy, seen: Revision) -> Freshness {
        match (policy.read, u32::try_from(policy.may_lag_seconds)) {
            (_, Ok(0)) | (ReadLevel::Primary, _) => Freshness::Latest,
            (_, seconds) => Freshness::MayLag {
                seconds: seconds.unwrap_or(u32::MAX),
                seen,
            },
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
    }
}
