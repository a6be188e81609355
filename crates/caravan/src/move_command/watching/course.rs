//! How a move has come along while it was watched, and what that says about the rest. Pure.
//!
//! Nobody counts the records of a move beforehand, so that nobody can say how long copying them takes: then what is left
//! is unknown, and said to be.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use mover::{MoveState, Phase};

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
            Phase::Planned { .. } | Phase::Backfilling { .. } | Phase::Verifying { .. } => {
                Expected::Unknown
            }
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

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expected::Unknown => f.write_str("unknown"),
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
