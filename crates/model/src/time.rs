//! Moments and lifetimes. The model has no clock: a moment is a number that somebody
//! else read, in microseconds since the Unix epoch, the unit of revisions too (W6).

use serde::{Deserialize, Serialize};
use std::fmt;
use thiserror::Error;

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

/// Ten years. Past that a lifetime is a mistake of units.
pub const LIFETIME_S_MAX: u32 = 10 * 366 * 86_400;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

/// How long a session or a guest cart lives when nobody touches it. Never zero,
/// because zero means "for ever" in more than one engine (W7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Lifetime(u32);

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a lifetime of {seconds} s is out of range, choose 1 to {LIFETIME_S_MAX} s")]
pub struct LifetimeError {
    pub seconds: u32,
}

impl Timestamp {
    pub const fn from_unix_micros(micros: i64) -> Self {
        Self(micros)
    }

    pub const fn unix_micros(self) -> i64 {
        self.0
    }

    /// `None` when the result is outside what 64 bits of microseconds can say.
    pub fn checked_add_seconds(self, seconds: i64) -> Option<Self> {
        let micros = seconds.checked_mul(MICROS_PER_SECOND)?;
        self.0.checked_add(micros).map(Self)
    }

    /// The end of a lifetime that starts here. Saturates: a moment so late that it
    /// cannot be told apart from the last one is after every real one anyway.
    pub fn end_of(self, lifetime: Lifetime) -> Self {
        self.checked_add_seconds(i64::from(lifetime.0))
            .unwrap_or(Self(i64::MAX))
    }

    /// Year and month in UTC, as partition keys use them.
    pub fn year_month(self) -> (i32, u8) {
        let (year, month, _) = self.year_month_day();
        (year, month)
    }

    pub fn year_month_day(self) -> (i32, u8, u8) {
        civil_from_days(self.0.div_euclid(MICROS_PER_DAY))
    }
}

impl Lifetime {
    pub fn from_seconds(seconds: u32) -> Result<Self, LifetimeError> {
        if (1..=LIFETIME_S_MAX).contains(&seconds) {
            Ok(Self(seconds))
        } else {
            Err(LifetimeError { seconds })
        }
    }

    pub fn seconds(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for Lifetime {
    type Error = LifetimeError;

    fn try_from(seconds: u32) -> Result<Self, Self::Error> {
        Self::from_seconds(seconds)
    }
}

impl From<Lifetime> for u32 {
    fn from(lifetime: Lifetime) -> Self {
        lifetime.0
    }
}

/// RFC 3339 in UTC with all six digits, so that texts sort like moments. Years that
/// RFC 3339 does not know get a sign, as ISO 8601 extends it.
impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.year_month_day();
        let micros = self.0.rem_euclid(MICROS_PER_DAY);
        let (seconds, fraction) = (micros / MICROS_PER_SECOND, micros % MICROS_PER_SECOND);
        if (0..=9999).contains(&year) {
            write!(formatter, "{year:04}")?;
        } else {
            write!(formatter, "{year:+07}")?;
        }
        write!(
            formatter,
            "-{month:02}-{day:02}T{:02}:{:02}:{:02}.{fraction:06}Z",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60
        )
    }
}

/// Counts in years that begin on 1 March: the leap day is then the last day of its
/// year, and the month lengths repeat in a pattern of 153 days per five months.
fn civil_from_days(days_since_epoch: i64) -> (i32, u8, u8) {
    const DAYS_PER_ERA: i64 = 146_097;
    const DAYS_FROM_YEAR_ZERO_TO_EPOCH: i64 = 719_468;

    let days = days_since_epoch + DAYS_FROM_YEAR_ZERO_TO_EPOCH;
    let era = days.div_euclid(DAYS_PER_ERA);
    let day_of_era = days.rem_euclid(DAYS_PER_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months_since_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * months_since_march + 2) / 5 + 1;
    let (month, next_year) = match months_since_march {
        0..=9 => (months_since_march + 3, 0),
        _ => (months_since_march - 9, 1),
    };
    let year = era * 400 + year_of_era + next_year;
    (
        i32::try_from(year).expect("64 bits of microseconds end within 300 000 years"),
        u8::try_from(month).expect("a month is 1 to 12"),
        u8::try_from(day).expect("a day is 1 to 31"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The way back by plain counting, so that it shares no arithmetic with the code.
    fn days_from_civil(year: i64, month: u8, day: u8) -> i64 {
        let leap =
            year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0);
        let lengths = [
            31,
            if leap { 29 } else { 28 },
            31,
            30,
            31,
            30,
            31,
            31,
            30,
            31,
            30,
            31,
        ];
        let before = year - 1;
        let leap_days = before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
        let months: i64 = lengths[..usize::from(month) - 1].iter().sum();
        assert!(i64::from(day) <= lengths[usize::from(month) - 1]);
        before * 365 + leap_days + months + i64::from(day) - 1 - 719_162
    }

    #[test]
    fn known_moments_read_as_people_write_them() {
        fn check(micros: i64, expected: &str) {
            assert_eq!(Timestamp::from_unix_micros(micros).to_string(), expected);
        }
        check(0, "1970-01-01T00:00:00.000000Z");
        check(-1, "1969-12-31T23:59:59.999999Z");
        check(951_782_400_000_000, "2000-02-29T00:00:00.000000Z");
        check(1_732_838_399_123_456, "2024-11-28T23:59:59.123456Z");
        check(i64::MAX, "+294247-01-10T04:00:54.775807Z");
        check(i64::MIN, "-290308-12-21T19:59:05.224192Z");
    }

    #[test]
    fn a_lifetime_is_never_zero_and_never_endless() {
        assert!(Lifetime::from_seconds(0).is_err());
        assert!(Lifetime::from_seconds(LIFETIME_S_MAX + 1).is_err());
        let hour = Lifetime::from_seconds(3_600).unwrap();
        assert_eq!(Timestamp(0).end_of(hour), Timestamp(3_600_000_000));
        assert_eq!(Timestamp(i64::MAX - 1).end_of(hour), Timestamp(i64::MAX));
        assert_eq!(Timestamp(0).checked_add_seconds(i64::MAX), None);
    }

    proptest! {
        #[test]
        fn days_come_back_from_their_date(micros in any::<i64>()) {
            let (year, month, day) = Timestamp(micros).year_month_day();
            prop_assert_eq!(days_from_civil(year.into(), month, day), micros.div_euclid(MICROS_PER_DAY));
        }

        #[test]
        fn texts_of_this_era_sort_like_moments(
            one in 0..253_402_300_800_000_000_i64, other in 0..253_402_300_800_000_000_i64,
        ) {
            prop_assert_eq!(
                one.cmp(&other),
                Timestamp(one).to_string().cmp(&Timestamp(other).to_string())
            );
        }
    }
}
