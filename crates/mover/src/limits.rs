//! Every bound of a mover, with its unit.

use serde::Deserialize;

/// No pause or patience may be set longer than this.
const DURATION_MS_MAX: u64 = 3_600_000;

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
    /// How often the leases are looked at behind the freeze.
    pub freeze_poll_ms: u64,
    /// How often one map is made anew because others published first.
    pub publish_attempts_max: u32,
    /// Records that may be on their way when a cutover begins; each is read on both
    /// sides behind the freeze.
    pub open_records_max: usize,
    /// Differences that are shown by name.
    pub differences_shown_max: usize,
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
            freeze_poll_ms: 5,
            publish_attempts_max: 8,
            open_records_max: 64,
            differences_shown_max: 20,
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
            ("freeze_poll_ms", self.freeze_poll_ms, 1, 1_000),
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
        check(|limits| limits.freeze_poll_ms = 1_001, "freeze_poll_ms");
    }
}
