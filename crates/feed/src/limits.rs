//! Every bound of a feed, with its unit.

use engine_api::{JOURNAL_ENTRIES_MAX, PAGE_RECORDS_MAX};
use serde::Deserialize;

/// No pause, patience or delay may be set longer than this.
const DURATION_MS_MAX: u64 = 3_600_000;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Entries in one read of the journal.
    pub page_entries_max: usize,
    /// Images in one page of a scan.
    pub scan_records_max: usize,
    /// Records that are read and put at once.
    pub records_at_once_max: usize,
    /// Entries that wait at once to be shown or followed up; while there are more,
    /// the journal is not read on.
    pub waiting_max: usize,
    /// How long an entry waits to be done (W22). Then it counts as one of a change
    /// that never happened (E18).
    pub show_ms_max: u64,
    /// How often one image is put while answers are lost or the target is not available.
    pub put_tries_max: u32,
    /// How old an entry is before it is looked at. Scans do not ask how old a record is.
    pub delay_ms: u64,
    /// The pause between two passes when nothing is left to do, and after the first failure.
    pub poll_ms: u64,
    /// The longest pause after failures; each is twice the one before.
    pub retry_ms_max: u64,
    /// How long the holder may leave its control value unchanged.
    pub renew_ms: u64,
    /// How long the control value stands unchanged, by the watcher's own clock,
    /// before another process takes the feed over (W17).
    pub take_over_ms: u64,
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
            page_entries_max: 1_000,
            scan_records_max: 500,
            records_at_once_max: 16,
            waiting_max: 10_000,
            show_ms_max: 600_000,
            put_tries_max: 5,
            delay_ms: 0,
            poll_ms: 200,
            retry_ms_max: 30_000,
            renew_ms: 2_000,
            take_over_ms: 10_000,
        }
    }
}

impl Limits {
    pub fn check(&self) -> Result<(), LimitsError> {
        let length = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
        let counts = u64::from(u32::MAX);
        let bounds = [
            (
                "page_entries_max",
                length(self.page_entries_max),
                1,
                length(JOURNAL_ENTRIES_MAX),
            ),
            (
                "scan_records_max",
                length(self.scan_records_max),
                1,
                length(PAGE_RECORDS_MAX),
            ),
            (
                "records_at_once_max",
                length(self.records_at_once_max),
                1,
                counts,
            ),
            ("waiting_max", length(self.waiting_max), 1, counts),
            ("show_ms_max", self.show_ms_max, 1, DURATION_MS_MAX),
            ("put_tries_max", u64::from(self.put_tries_max), 1, counts),
            ("delay_ms", self.delay_ms, 0, DURATION_MS_MAX),
            ("poll_ms", self.poll_ms, 1, self.retry_ms_max),
            ("retry_ms_max", self.retry_ms_max, 1, DURATION_MS_MAX),
            // A holder that renews as late as it may is not taken for dead.
            ("renew_ms", self.renew_ms, 1, self.take_over_ms / 2),
            ("take_over_ms", self.take_over_ms, 2, DURATION_MS_MAX),
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
        check(|limits| limits.page_entries_max = 0, "page_entries_max");
        check(|limits| limits.scan_records_max = 1_001, "scan_records_max");
        check(|limits| limits.renew_ms = 5_001, "renew_ms");
        check(|limits| limits.poll_ms = 30_001, "poll_ms");
    }
}
