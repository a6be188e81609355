//! How fast a reconciler goes.

use engine_api::PAGE_RECORDS_MAX;

/// The fastest that may be asked for.
const RECORDS_PER_S_MAX: u32 = 1_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconcileLimits {
    /// Records and rows looked at in a second, at most: shoppers want the servers too.
    pub records_per_s: u32,
    /// Records in one step.
    pub page_records: usize,
    /// Shelves whose pieces are counted together, with one reading of all orders.
    pub shelves_at_once: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}: choose 1 to {most}")]
pub struct ReconcileLimitsError {
    name: &'static str,
    value: u64,
    most: u64,
}

impl Default for ReconcileLimits {
    fn default() -> ReconcileLimits {
        ReconcileLimits {
            records_per_s: 2_000,
            page_records: 200,
            shelves_at_once: 100_000,
        }
    }
}

impl ReconcileLimits {
    pub(super) fn check(&self) -> Result<(), ReconcileLimitsError> {
        let wide = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        for (name, value, most) in [
            (
                "records_per_s",
                u64::from(self.records_per_s),
                u64::from(RECORDS_PER_S_MAX),
            ),
            (
                "page_records",
                wide(self.page_records),
                wide(PAGE_RECORDS_MAX),
            ),
            ("shelves_at_once", wide(self.shelves_at_once), 1_000_000),
        ] {
            if !(1..=most).contains(&value) {
                return Err(ReconcileLimitsError { name, value, most });
            }
        }
        Ok(())
    }
}
