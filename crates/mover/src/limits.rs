//! Every bound of a mover, with its unit.

use engine_api::CONDEMNED_RECORDS_MAX;
use serde::Deserialize;

use crate::wish::GRACE_MS_MAX;

/// No pause or patience may be set longer than this.
const DURATION_MS_MAX: u64 = 3_600_000;

/// Records that a copy reads and puts at once: commits of a group, and round trips to servers, are shared by so many.
const RECORDS_AT_ONCE: usize = 64;

/// The bounds of a move's feeds: those of any feed, but for what is done at once.
pub fn feed_limits() -> feed::Limits {
    feed::Limits {
        records_at_once_max: RECORDS_AT_ONCE,
        ..feed::Limits::default()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// The pause between two passes when nothing is left to do, and after the first failure.
    pub poll_ms: u64,
    /// The longest pause after failures; each is twice the one before.
    pub retry_ms_max: u64,
    /// How long the holder may leave its record unchanged.
    pub renew_ms: u64,
    /// How long the record stands unchanged, by the watcher's own clock, before another
    /// process takes the move over (W17).
    pub take_over_ms: u64,
    /// How long the holder vouches for one pass: one that takes longer counts as hanging.
    pub pass_ms_max: u64,
    /// How often the leases are looked at behind the freeze.
    pub freeze_poll_ms: u64,
    /// How long processes are waited for, after a cutover, to tell how long they held requests.
    /// Never longer than a quarter of `take_over_ms`.
    pub stall_ms_max: u64,
    /// A freeze whose forecast is more than this share of its budget is not begun.
    pub forecast_percent_max: u32,
    /// How long a cutover that was put off waits before the next attempt.
    pub postpone_ms: u64,
    /// How often one map is made anew because others published first.
    pub publish_attempts_max: u32,
    /// Records that may be on their way when a cutover begins; each is read on both
    /// sides behind the freeze. Fewer never are where much changes; whether so many are too many is told by the forecast.
    pub open_records_max: usize,
    /// Differences that are shown by name.
    pub differences_shown_max: usize,
    /// How long what a completed move leaves at its source stays there, if nobody says otherwise.
    pub clean_grace_ms: u64,
    /// Records that are looked at, and forgotten, in one step of a cleaning.
    pub clean_records_max: usize,
    /// Records that a cleaning forgets in a second; a throttle may say less.
    pub clean_records_per_s_max: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}: choose {least} to {most}")]
pub struct LimitsError {
    pub name: &'static str,
    pub value: u64,
    pub least: u64,
    pub most: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            poll_ms: 100,
            retry_ms_max: 10_000,
            renew_ms: 2_000,
            take_over_ms: 10_000,
            pass_ms_max: 600_000,
            freeze_poll_ms: 5,
            stall_ms_max: 1_500,
            forecast_percent_max: 100,
            postpone_ms: 5_000,
            publish_attempts_max: 8,
            open_records_max: 256,
            differences_shown_max: 20,
            clean_grace_ms: 600_000,
            clean_records_max: 200,
            clean_records_per_s_max: 2_000,
        }
    }
}

impl Limits {
    pub fn check(&self) -> Result<(), LimitsError> {
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let bounds = [
            ("poll_ms", self.poll_ms, 1, self.retry_ms_max),
            ("retry_ms_max", self.retry_ms_max, 1, DURATION_MS_MAX),
            // A holder that renews as late as it may is not taken for dead.
            ("renew_ms", self.renew_ms, 1, self.take_over_ms / 2),
            ("take_over_ms", self.take_over_ms, 2, DURATION_MS_MAX),
            ("pass_ms_max", self.pass_ms_max, 1, DURATION_MS_MAX),
            ("freeze_poll_ms", self.freeze_poll_ms, 1, 1_000),
            ("stall_ms_max", self.stall_ms_max, 0, 60_000),
            (
                "forecast_percent_max",
                u64::from(self.forecast_percent_max),
                1,
                1_000_000,
            ),
            ("postpone_ms", self.postpone_ms, 1, DURATION_MS_MAX),
            (
                "publish_attempts_max",
                u64::from(self.publish_attempts_max),
                1,
                1_000,
            ),
            ("open_records_max", count(self.open_records_max), 1, 100_000),
            (
                "differences_shown_max",
                count(self.differences_shown_max),
                1,
                1_000,
            ),
            ("clean_grace_ms", self.clean_grace_ms, 0, GRACE_MS_MAX),
            (
                "clean_records_max",
                count(self.clean_records_max),
                1,
                count(CONDEMNED_RECORDS_MAX),
            ),
            (
                "clean_records_per_s_max",
                u64::from(self.clean_records_per_s_max),
                1,
                u64::from(u32::MAX),
            ),
        ];
        match bounds
            .into_iter()
            .find(|(_, value, least, most)| !(least..=most).contains(&value))
        {
            Some((name, value, least, most)) => Err(LimitsError {
                name,
                value,
                least,
                most,
            }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_hold_and_what_cannot_work_is_named() {
        fn check(change: impl FnOnce(&mut Limits), expected: &str) {
            let mut limits = Limits::default();
            change(&mut limits);
            assert_eq!(limits.check().unwrap_err().name, expected);
        }
        Limits::default().check().unwrap();
        check(|limits| limits.poll_ms = 0, "poll_ms");
        check(|limits| limits.renew_ms = 5_001, "renew_ms");
        check(|limits| limits.pass_ms_max = 0, "pass_ms_max");
        check(|limits| limits.freeze_poll_ms = 1_001, "freeze_poll_ms");
        check(|limits| limits.clean_grace_ms = u64::MAX, "clean_grace_ms");
        check(|limits| limits.clean_records_max = 0, "clean_records_max");
    }
}
