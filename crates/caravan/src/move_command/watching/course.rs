//! How a move has come along while it was watched, and what that says about the rest. Pure.
//!
//! How much there is to copy was counted or estimated when the move was begun, if that could be done quickly. Then what is
//! left follows from how fast it went lately, and is called what it is. Otherwise it is unknown, and said to be.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use mover::{KnownBy, MoveState, Phase, ToCopy};

use crate::text::spark_line;

/// Rates are of this long.
const WINDOW: Duration = Duration::from_secs(10);
/// Looks that are remembered: more than a window has.
const LOOKS_MAX: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Look {
    at: Duration,
    copied: u64,
    lag: u64,
}

#[derive(Debug, Default)]
pub struct Course {
    looks: VecDeque<Look>,
}

/// What is left until something happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    Unknown,
    CopiedIn {
        seconds: u64,
    },
    CaughtUpIn {
        seconds: u64,
    },
    /// The source is cleaned after the grace.
    CleansIn {
        seconds: u64,
    },
    /// A cutover is a matter of milliseconds.
    Moment,
    WaitsFor {
        what: String,
    },
    Nothing,
}

/// How much of a move is copied, while that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    to_copy: ToCopy,
    /// Of what was known at the beginning; `None`: there is more than that.
    pub percent: Option<u64>,
}

impl Progress {
    /// `None`: nothing is being copied, or nobody knows how much there is.
    pub fn of(state: &MoveState) -> Option<Progress> {
        let Phase::Backfilling { .. } = state.phase else {
            return None;
        };
        let to_copy = state.to_copy.filter(|to_copy| to_copy.records > 0)?;
        let percent = match to_copy.known_by {
            KnownBy::Counting | KnownBy::Estimate => {
                // Records are copied again, and come while it is copied.
                let copied = state.shown.records_copied.min(to_copy.records);
                let percent = u128::from(copied) * 100 / u128::from(to_copy.records);
                u64::try_from(percent).ok()
            }
            KnownBy::AtLeast => None,
        };
        Some(Progress { to_copy, percent })
    }
}

impl Expected {
    /// `None`: no time can be named.
    pub fn seconds(&self) -> Option<u64> {
        match self {
            Expected::CopiedIn { seconds }
            | Expected::CaughtUpIn { seconds }
            | Expected::CleansIn { seconds } => Some(*seconds),
            Expected::Unknown | Expected::Moment | Expected::WaitsFor { .. } => None,
            Expected::Nothing => Some(0),
        }
    }
}

impl Course {
    pub fn note(&mut self, at: Duration, state: &MoveState) {
        let look = Look {
            at,
            copied: state.shown.records_copied,
            lag: state.shown.lag_entries,
        };
        self.looks.push_back(look);
        let old = |look: &Look| look.at + WINDOW < at;
        while self.looks.len() > LOOKS_MAX || self.looks.front().is_some_and(old) {
            self.looks.pop_front();
        }
    }

    /// `None`: it was not watched for long enough.
    pub fn copied_per_s(&self) -> Option<u64> {
        let (first, last, passed) = self.ends()?;
        let copied = last.copied.saturating_sub(first.copied);
        u64::try_from(u128::from(copied) * 1_000 / passed).ok()
    }

    pub fn expected(&self, state: &MoveState) -> Expected {
        match &state.phase {
            Phase::CatchingUp { .. } => self.caught_up(),
            Phase::Backfilling { .. } => self.copied(state),
            Phase::Planned { .. } | Phase::Verifying { .. } => Expected::Unknown,
            Phase::Ready { .. } => Expected::WaitsFor {
                what: match state.cutover_time {
                    Some(time) => format!("its cutover, {time}"),
                    None => "caravan move cutover".to_owned(),
                },
            },
            Phase::Noticed { .. } | Phase::Frozen { .. } => Expected::Moment,
            Phase::Settling { .. } => Expected::WaitsFor {
                what: "caravan move complete, or rollback".to_owned(),
            },
            Phase::Resting { grace_ms, .. } => Expected::CleansIn {
                seconds: grace_ms.div_ceil(1_000),
            },
            Phase::Cleaning { .. } => match &state.shown.in_use {
                Some(what) => Expected::WaitsFor { what: what.clone() },
                None => Expected::Unknown,
            },
            Phase::Cleaned { .. }
            | Phase::Completed { .. }
            | Phase::Aborted { .. }
            | Phase::RolledBack { .. } => Expected::Nothing,
        }
    }

    /// How the lag has changed, as a small picture.
    pub fn lag_picture(&self) -> String {
        let lags: Vec<u64> = self.looks.iter().map(|look| look.lag).collect();
        spark_line(&lags)
    }

    /// By how fast it was copied lately. One that stands still says nothing, nor does what is larger than anybody knows.
    fn copied(&self, state: &MoveState) -> Expected {
        let left = || {
            let to_copy = Progress::of(state)?.percent.and(state.to_copy)?;
            let left = to_copy.records.checked_sub(state.shown.records_copied);
            let left = left.filter(|left| *left > 0)?;
            let (first, last, passed) = self.ends()?;
            let copied = last.copied.checked_sub(first.copied);
            let copied = copied.filter(|copied| *copied > 0)?;
            u64::try_from(u128::from(left) * passed / u128::from(copied) / 1_000).ok()
        };
        left().map_or(Expected::Unknown, |seconds| Expected::CopiedIn { seconds })
    }

    /// By how fast the lag has fallen. One that does not fall says nothing.
    fn caught_up(&self) -> Expected {
        let fallen = || {
            let (first, last, passed) = self.ends()?;
            let fallen = first
                .lag
                .checked_sub(last.lag)
                .filter(|fallen| *fallen > 0)?;
            u64::try_from(u128::from(last.lag) * passed / u128::from(fallen) / 1_000).ok()
        };
        fallen().map_or(Expected::Unknown, |seconds| Expected::CaughtUpIn {
            seconds,
        })
    }

    /// The first look of the window, the last one, and the milliseconds in between.
    fn ends(&self) -> Option<(Look, Look, u128)> {
        let (first, last) = (*self.looks.front()?, *self.looks.back()?);
        let passed = last.at.saturating_sub(first.at).as_millis();
        (passed > 0).then_some((first, last, passed))
    }
}

/// As in `of about 1200, about 40 %`.
impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "of {}", self.to_copy)?;
        match (self.percent, self.to_copy.known_by) {
            (Some(percent), KnownBy::Counting) => write!(f, ", {percent} %"),
            (Some(percent), _) => write!(f, ", about {percent} %"),
            (None, _) => Ok(()),
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expected::Unknown => f.write_str("unknown"),
            Expected::CopiedIn { seconds } => write!(f, "copied in about {seconds} s"),
            Expected::CaughtUpIn { seconds } => write!(f, "caught up in about {seconds} s"),
            Expected::CleansIn { seconds } => write!(f, "its source is cleaned in {seconds} s"),
            Expected::Moment => f.write_str("a moment"),
            Expected::WaitsFor { what } => write!(f, "waits for {what}"),
            Expected::Nothing => f.write_str("nothing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use engine_api::Generation;
    use layout::{Collection, Scope};
    use mover::{Moved, Plan};
    use router::ShardName;

    use super::*;

    fn state(phase: Phase, copied: u64, lag: u64) -> MoveState {
        let shard = |name| ShardName::new(name).unwrap();
        let mut state = MoveState::first(Plan {
            collection: Collection::Carts,
            moved: Moved::Keys {
                scope: Scope::All,
                source: shard("shard-1"),
                target: shard("shard-2"),
            },
            freeze_ms_max: 100,
        });
        state.phase = phase;
        state.shown.records_copied = copied;
        state.shown.lag_entries = lag;
        state
    }

    #[test]
    fn what_is_left_is_unknown_until_the_lag_falls() {
        let barrier = Generation(2);
        let catching_up = |copied, lag| state(Phase::CatchingUp { barrier }, copied, lag);
        let mut course = Course::default();
        assert_eq!(course.copied_per_s(), None);
        course.note(Duration::from_secs(1), &catching_up(100, 900));
        let now = catching_up(100, 900);
        assert_eq!(course.expected(&now), Expected::Unknown);
        course.note(Duration::from_secs(2), &catching_up(300, 950));
        assert_eq!(course.expected(&now), Expected::Unknown, "it rises");
        assert_eq!(course.copied_per_s(), Some(200));
        course.note(Duration::from_secs(5), &catching_up(500, 300));
        let expected = course.expected(&now);
        assert_eq!(expected, Expected::CaughtUpIn { seconds: 2 });
        let backfilling = state(Phase::Backfilling { barrier }, 500, 300);
        assert_eq!(course.expected(&backfilling), Expected::Unknown);
    }

    fn copying(copied: u64, records: u64, known_by: KnownBy) -> MoveState {
        let barrier = Generation(2);
        let mut state = state(Phase::Backfilling { barrier }, copied, 0);
        state.to_copy = Some(ToCopy { records, known_by });
        state
    }

    #[test]
    fn how_much_is_copied_is_told_as_surely_as_it_is_known() {
        let check = |state: MoveState, said: Option<&str>, percent: Option<u64>| {
            let progress = Progress::of(&state);
            assert_eq!(progress.map(|it| it.to_string()).as_deref(), said);
            assert_eq!(progress.and_then(|it| it.percent), percent);
        };
        let counted = copying(500, 1_200, KnownBy::Counting);
        check(counted.clone(), Some("of 1200, 41 %"), Some(41));
        let estimated = copying(500, 1_200, KnownBy::Estimate);
        check(estimated, Some("of about 1200, about 41 %"), Some(41));
        let more = copying(500, 400, KnownBy::Estimate);
        check(more, Some("of about 400, about 100 %"), Some(100));
        let at_least = copying(500, 20_000, KnownBy::AtLeast);
        check(at_least, Some("of at least 20000"), None);
        check(copying(0, 0, KnownBy::Counting), None, None);
        let unknown = MoveState {
            to_copy: None,
            ..counted.clone()
        };
        check(unknown, None, None);
        let barrier = Generation(2);
        let copied = MoveState {
            phase: Phase::Verifying { barrier },
            ..counted
        };
        check(copied, None, None);
    }

    #[test]
    fn what_is_left_to_copy_follows_from_the_last_seconds_and_from_nothing_less_sure() {
        let watched = |known_by, records| {
            let mut course = Course::default();
            for second in 0..=30 {
                // Slowly at first, then at 100 a second.
                let copied = if second < 15 {
                    second
                } else {
                    (second - 15) * 100
                };
                course.note(
                    Duration::from_secs(second),
                    &copying(copied, records, known_by),
                );
            }
            course.expected(&copying(1_500, records, known_by))
        };
        let seconds = |seconds| Expected::CopiedIn { seconds };
        assert_eq!(watched(KnownBy::Counting, 3_500), seconds(20));
        assert_eq!(watched(KnownBy::Estimate, 3_500), seconds(20));
        assert_eq!(seconds(20).to_string(), "copied in about 20 s");
        assert_eq!(watched(KnownBy::AtLeast, 3_500), Expected::Unknown);
        let more = watched(KnownBy::Estimate, 1_500);
        assert_eq!(more, Expected::Unknown, "there are more than was thought");
        let mut course = Course::default();
        let stands = copying(100, 3_500, KnownBy::Counting);
        for second in 0..20 {
            course.note(Duration::from_secs(second), &stands);
        }
        assert_eq!(course.expected(&stands), Expected::Unknown);
    }

    #[test]
    fn what_happened_long_ago_is_forgotten() {
        let mut course = Course::default();
        let barrier = Generation(2);
        for second in 0..200 {
            let state = state(Phase::Backfilling { barrier }, second.min(100), 0);
            course.note(Duration::from_secs(second), &state);
        }
        assert_eq!(course.copied_per_s(), Some(0));
        assert!(course.looks.len() <= LOOKS_MAX);
    }
}
