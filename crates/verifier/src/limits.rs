//! Every bound of a verification, with its unit.

use engine_api::{JOURNAL_ENTRIES_MAX, PAGE_RECORDS_MAX};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Images in one page of a scan.
    pub scan_records_max: usize,
    /// Pages of each side that the first comparison reads in one pass; later ones take a page at a time.
    pub scan_pages_max: usize,
    /// Entries in one read of a journal.
    pub journal_entries_max: usize,
    /// Keys of unequal buckets that are held at once; more are taken in turns.
    pub keys_at_once_max: usize,
    /// Keys that wait to be read again, and those that differ. While there are more, no journal is read on and no
    /// further bucket is named; the same number bounds the derived rows.
    pub suspects_max: usize,
    /// Suspects that are read again in one pass.
    pub looks_at_once_max: usize,
    /// Suspects that are read at the same time.
    pub reads_at_once_max: usize,
    /// Differences that are told by name; more are only counted.
    pub named_max: usize,
    /// How long the source must stand unchanged, and the target unequal, before that is a
    /// difference and not the copy's lag.
    pub lag_ms_max: u64,
    /// How long everything rests after it was compared, before it is compared once more.
    pub round_pause_ms: u64,
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
            scan_records_max: 500,
            scan_pages_max: 8,
            journal_entries_max: 1_000,
            keys_at_once_max: 200_000,
            suspects_max: 100_000,
            looks_at_once_max: 128,
            reads_at_once_max: 32,
            named_max: 1_000,
            lag_ms_max: 5_000,
            round_pause_ms: 10_000,
        }
    }
}

impl Limits {
    pub fn check(&self) -> Result<(), LimitsError> {
        let wide = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        for (name, value, most) in [
            ("scan_records_max", self.scan_records_max, PAGE_RECORDS_MAX),
            ("scan_pages_max", self.scan_pages_max, 1_000),
            (
                "journal_entries_max",
                self.journal_entries_max,
                JOURNAL_ENTRIES_MAX,
            ),
            ("keys_at_once_max", self.keys_at_once_max, 10_000_000),
            ("suspects_max", self.suspects_max, 10_000_000),
            ("looks_at_once_max", self.looks_at_once_max, 1_000),
            ("reads_at_once_max", self.reads_at_once_max, 1_000),
            ("named_max", self.named_max, 100_000),
        ] {
            if !(1..=most).contains(&value) {
                return Err(LimitsError {
                    name,
                    value: wide(value),
                    least: 1,
                    most: wide(most),
                });
            }
        }
        let most = 3_600_000;
        for (name, value) in [
            ("lag_ms_max", self.lag_ms_max),
            ("round_pause_ms", self.round_pause_ms),
        ] {
            if value > most {
                return Err(LimitsError {
                    name,
                    value,
                    least: 0,
                    most,
                });
            }
        }
        Ok(())
    }
}
