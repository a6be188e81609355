//! Revisions: numbers of changes, from a hybrid logical clock.
//!
//! A revision is microseconds since the Unix epoch with the low bits given
//! away: bit 0 stays free, so that `revision - 1` can stand for "just before
//! this change" (W6), and six bits name the writer, so that two writers never
//! make the same revision for one key (W5). Being microseconds, it is a CQL
//! timestamp as it stands.

use std::fmt;

use model::Timestamp;

/// How many writers can have revisions of their own.
pub const WRITERS_MAX: u8 = 64;

/// The distance between two revisions of one writer.
const STEP: u64 = 128;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(u64);

/// The number that makes a writer's revisions its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Writer(u8);

impl Writer {
    /// Numbers wrap: who gives them out sees to it that two at work differ, and
    /// that none is given out again while changes of its former holder may still
    /// arrive.
    pub const fn numbered(number: u8) -> Writer {
        Writer(number % WRITERS_MAX)
    }

    pub const fn number(self) -> u8 {
        self.0
    }
}

impl Revision {
    /// Below every revision of a change.
    pub const ZERO: Revision = Revision(0);

    /// What the writer's clock gives at `now`. Times before the epoch count as the epoch.
    pub fn at(now: Timestamp, writer: Writer) -> Revision {
        let micros = u64::try_from(now.unix_micros()).unwrap_or(0);
        Revision(micros / STEP * STEP + u64::from(writer.0) * 2)
    }

    /// The first revision of this writer above `floor`.
    pub fn above(floor: Revision, writer: Writer) -> Revision {
        let same_step = floor.0 / STEP * STEP + u64::from(writer.0) * 2;
        Revision(if same_step > floor.0 {
            same_step
        } else {
            same_step + STEP
        })
    }

    /// The moment just before this change (W6). No change has it as its own.
    pub fn just_before(self) -> Revision {
        Revision(self.0.saturating_sub(1))
    }

    pub fn time(self) -> Timestamp {
        Timestamp::from_unix_micros(i64::try_from(self.0).unwrap_or(i64::MAX))
    }

    pub fn writer(self) -> Writer {
        Writer((self.0 % STEP / 2) as u8)
    }

    /// For storage in engines whose widest whole number is signed.
    pub fn to_i64(self) -> i64 {
        i64::try_from(self.0).expect("revisions stay below 2^63 microseconds, the year 294 000")
    }

    pub fn from_i64(number: i64) -> Option<Revision> {
        u64::try_from(number).ok().map(Revision)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_next_revision_is_above_and_the_writers_own(floor in 0u64..1 << 60, number in 0u8..64) {
            let writer = Writer::numbered(number);
            let next = Revision::above(Revision(floor), writer);
            prop_assert!(next > Revision(floor));
            prop_assert!(next.0 - floor <= STEP);
            prop_assert_eq!(next.writer(), writer);
            prop_assert!(next.just_before() >= Revision(floor));
        }

        #[test]
        fn two_writers_never_make_the_same_revision(now in 0i64..1 << 60, a in 0u8..64, b in 0u8..64) {
            let at = |number| Revision::at(Timestamp::from_unix_micros(now), Writer::numbered(number));
            prop_assert_eq!(a == b, at(a) == at(b));
        }
    }
}
