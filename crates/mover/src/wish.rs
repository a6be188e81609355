//! What an operator may ask of a move while it runs.

use std::fmt;

use engine_api::Timestamp;
use serde::{Deserialize, Serialize};

const MINUTES_PER_DAY: u16 = 24 * 60;
const MICROS_PER_MINUTE: i64 = 60_000_000;

/// How long after its time of day a cutover still begins; later it waits for the next day, so that nothing
/// that was meant for the night is done at noon.
pub const CUTOVER_WINDOW_MINUTES: u16 = 60;

/// The longest grace: thirty days.
pub const GRACE_MS_MAX: u64 = 720 * 3_600_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    Cutover,
    /// Another cutover, back to the source.
    Rollback,
    /// Before the cutover: nothing has changed for shoppers. After the completion: what is left at the source stays.
    Abort,
    /// The target keeps the keys; there is no way back any more.
    Complete,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    #[default]
    Running,
    /// Nothing is copied, compared or cut over; the move stays this process's.
    Paused,
}

impl Wish {
    pub fn name(self) -> &'static str {
        match self {
            Wish::Cutover => "cut over",
            Wish::Rollback => "rolled back",
            Wish::Abort => "aborted",
            Wish::Complete => "completed",
        }
    }
}

/// What becomes of what a completed move leaves at its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grace {
    /// It goes after so long.
    Ms(u64),
    /// It stays.
    Keep,
}

impl Grace {
    /// `90s`, `10m`, `2h` or `keep`, as it is typed.
    pub fn parse(text: &str) -> Result<Grace, NoGrace> {
        let no_grace = || NoGrace {
            text: text.to_owned(),
        };
        if text == "keep" {
            return Ok(Grace::Keep);
        }
        let unit_ms = match text.chars().last() {
            Some('s') => 1_000,
            Some('m') => 60_000,
            Some('h') => 3_600_000,
            _ => return Err(no_grace()),
        };
        let digits = &text[..text.len() - 1];
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        let number: u64 = digits.parse().ok().filter(|_| plain).ok_or_else(no_grace)?;
        let ms = number.checked_mul(unit_ms).ok_or_else(no_grace)?;
        match ms <= GRACE_MS_MAX {
            true => Ok(Grace::Ms(ms)),
            false => Err(no_grace()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no time to wait: write it as 90s, 10m or 2h, at most 720h")]
pub struct NoGrace {
    text: String,
}

/// When a move that is ready cuts over by itself, once. If that is given up, the operator decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CutoverTime {
    WhenReady,
    At(TimeOfDay),
}

/// A minute of every day, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TimeOfDay {
    minute: u16,
}

impl CutoverTime {
    /// Whether a move that is ready now is to be cut over.
    pub fn is_due(self, now: Timestamp) -> bool {
        match self {
            CutoverTime::WhenReady => true,
            CutoverTime::At(time) => time.minutes_since(now) < CUTOVER_WINDOW_MINUTES,
        }
    }
}

impl fmt::Display for CutoverTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CutoverTime::WhenReady => f.write_str("when it is ready"),
            CutoverTime::At(time) => write!(f, "at {time} UTC, if it is ready then"),
        }
    }
}

impl TimeOfDay {
    /// `03:00` as it is typed.
    pub fn parse(text: &str) -> Result<TimeOfDay, NoTimeOfDay> {
        let no_time = || NoTimeOfDay {
            text: text.to_owned(),
        };
        let (hour, minute) = text.split_once(':').ok_or_else(no_time)?;
        let number = |text: &str, below: u16| {
            let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse::<u16>().ok().filter(|_| digits);
            number.filter(|number| *number < below).ok_or_else(no_time)
        };
        Ok(TimeOfDay {
            minute: number(hour, 24)? * 60 + number(minute, 60)?,
        })
    }

    /// How many minutes ago it was, the last time.
    fn minutes_since(self, now: Timestamp) -> u16 {
        let minutes = now.unix_micros().div_euclid(MICROS_PER_MINUTE);
        let today = minutes.rem_euclid(i64::from(MINUTES_PER_DAY));
        let today = u16::try_from(today).expect("a day has less than 65536 minutes");
        (today + MINUTES_PER_DAY - self.minute) % MINUTES_PER_DAY
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no time of day: write it as 03:00, in UTC")]
pub struct NoTimeOfDay {
    text: String,
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.minute / 60, self.minute % 60)
    }
}

impl TryFrom<String> for TimeOfDay {
    type Error = NoTimeOfDay;

    fn try_from(text: String) -> Result<TimeOfDay, NoTimeOfDay> {
        TimeOfDay::parse(&text)
    }
}

impl From<TimeOfDay> for String {
    fn from(time: TimeOfDay) -> String {
        time.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(day: i64, hour: i64, minute: i64) -> Timestamp {
        let minutes = (day * 24 + hour) * 60 + minute;
        Timestamp::from_unix_micros(minutes * MICROS_PER_MINUTE + 59_999_999)
    }

    #[test]
    fn a_cutover_at_night_begins_within_its_hour_of_any_day() {
        fn check(text: &str, now: Timestamp, expected: bool) {
            let time = CutoverTime::At(TimeOfDay::parse(text).unwrap());
            assert_eq!(time.is_due(now), expected, "{text} at {now}");
        }
        check("03:00", at(20_000, 2, 59), false);
        check("03:00", at(20_000, 3, 0), true);
        check("03:00", at(20_001, 3, 59), true);
        check("03:00", at(20_000, 4, 0), false);
        check("03:00", at(20_000, 15, 0), false);
        check("23:30", at(20_000, 0, 29), true);
        check("23:30", at(20_000, 0, 30), false);
        check("00:00", at(-3, 0, 1), true);
        assert!(CutoverTime::WhenReady.is_due(at(1, 2, 3)));
    }

    #[test]
    fn a_time_of_day_is_four_digits() {
        for text in [
            "", "3:00", "24:00", "03:60", "+3:00", "03:00:00", "noon", "ab:cd",
        ] {
            let error = TimeOfDay::parse(text).unwrap_err().to_string();
            assert!(error.contains("as 03:00"), "{error}");
        }
        let time = TimeOfDay::parse("23:05").unwrap();
        let text = serde_json::to_string(&CutoverTime::At(time)).unwrap();
        assert_eq!(text, r#"{"at":"23:05"}"#);
        let read: CutoverTime = serde_json::from_str(&text).unwrap();
        assert_eq!(read, CutoverTime::At(time));
    }

    #[test]
    fn a_grace_is_a_number_with_a_unit() {
        fn check(text: &str, expected: Option<Grace>) {
            assert_eq!(Grace::parse(text).ok(), expected, "{text}");
        }
        check("0s", Some(Grace::Ms(0)));
        check("90s", Some(Grace::Ms(90_000)));
        check("10m", Some(Grace::Ms(600_000)));
        check("720h", Some(Grace::Ms(GRACE_MS_MAX)));
        check("keep", Some(Grace::Keep));
        for text in [
            "",
            "s",
            "10",
            "721h",
            "+1s",
            "1.5h",
            "99999999999999999999s",
            "1é",
        ] {
            check(text, None);
        }
        let error = Grace::parse("soon").unwrap_err().to_string();
        assert!(error.contains("10m"), "{error}");
    }
}
