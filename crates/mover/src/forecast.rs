//! How long the freeze would take if it began now. Pure: from what was measured while traffic flows.

use std::time::Duration;

use engine_api::FenceKind;
use serde::{Deserialize, Serialize};

use crate::freeze::FreezeParts;

/// Measurements of which the longest counts: a forecast that is too short holds shoppers for nothing.
const RECENT_MAX: usize = 3;

/// Control writes of one process that acknowledges the freeze: it looks, reads the leases and sets them.
const STEPS_OF_A_LEASE: u64 = 3;
/// What raising a fence costs where nobody has measured it, in control writes.
const STEPS_OF_A_FENCE: u64 = 4;

/// For so long what a freeze has measured is believed.
const FENCE_KEPT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forecast {
    pub total_us: u64,
    pub parts: FreezeParts,
}

/// The last few of a kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent {
    last_us: Vec<u64>,
    next: usize,
}

/// What a holder has measured of its stores.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// Saves of the record.
    pub control: Recent,
    /// Passes of the feed that had nothing more to read.
    pub feed: Recent,
    /// Passes of the verifier that only watched.
    pub compare: Recent,
    /// The fence of the last freeze, and when.
    pub seal: Option<(u64, Duration)>,
}

/// What else the freeze depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outlook {
    pub fence: FenceKind,
    /// Processes that have to acknowledge.
    pub leases: u64,
    pub notice_look_us: u64,
    /// Records that the proof looks at, and how many of them one pass of the verifier does.
    pub suspects: u64,
    pub looks_at_once: u64,
    pub now: Duration,
}

impl Recent {
    pub fn add(&mut self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        match self.last_us.len() < RECENT_MAX {
            true => self.last_us.push(us),
            false => self.last_us[self.next % RECENT_MAX] = us,
        }
        self.next = self.next.wrapping_add(1);
    }

    fn longest_us(&self) -> u64 {
        self.last_us.iter().copied().max().unwrap_or(0)
    }
}

impl Measured {
    pub fn forecast(&self, outlook: &Outlook) -> Forecast {
        let control = self.control.longest_us();
        let leases = match outlook.leases {
            0 => 0,
            leases => {
                // They set one value, one after the other.
                let steps = STEPS_OF_A_LEASE.saturating_add(leases - 1);
                control
                    .saturating_mul(steps)
                    .saturating_add(outlook.notice_look_us)
            }
        };
        let seal = match (self.seal, outlook.fence) {
            (Some((us, at)), _) if outlook.now.saturating_sub(at) < FENCE_KEPT => us,
            (_, FenceKind::InStore) => control.saturating_mul(STEPS_OF_A_FENCE),
            (_, FenceKind::ByLease) => control,
        };
        let (drain, compare) = (self.feed.longest_us(), self.compare.longest_us());
        // A pass of the verifier reads both journals and some suspects: more of them are as much as more passes.
        let passes = outlook.suspects.div_ceil(outlook.looks_at_once.max(1));
        let proof = compare.saturating_mul(passes.max(1));
        let proving = seal.saturating_add(drain).saturating_add(proof);
        let behind = match outlook.fence {
            FenceKind::InStore => proving.max(leases),
            FenceKind::ByLease => proving.saturating_add(leases),
        };
        Forecast {
            total_us: behind.saturating_add(control.saturating_mul(3)),
            parts: FreezeParts {
                publish_us: Some(control),
                leases_us: Some(leases),
                seal_us: Some(seal),
                drain_us: Some(drain),
                proof_us: Some(proof),
                record_us: Some(control),
                give_us: Some(control),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn recent(all_us: &[u64]) -> Recent {
        let mut recent = Recent::default();
        let all = all_us.iter().map(|us| Duration::from_micros(*us));
        all.for_each(|took| recent.add(took));
        recent
    }

    fn outlook(fence: FenceKind) -> Outlook {
        Outlook {
            fence,
            leases: 2,
            notice_look_us: 5_000,
            suspects: 20,
            looks_at_once: 16,
            now: Duration::from_secs(100),
        }
    }

    #[test]
    fn the_parts_add_up_and_run_beside_one_another_where_the_store_fences() {
        let mut measured = Measured {
            control: recent(&[9_000, 1_000, 2_000, 1_000]),
            feed: recent(&[10_000]),
            compare: recent(&[4_000]),
            seal: None,
        };
        let by_store = measured.forecast(&outlook(FenceKind::InStore));
        assert_eq!(by_store.total_us, 6_000 + 8_000 + 10_000 + 8_000);
        let by_lease = measured.forecast(&outlook(FenceKind::ByLease));
        assert_eq!(by_lease.total_us, 6_000 + 13_000 + 2_000 + 10_000 + 8_000);
        measured.seal = Some((70_000, Duration::from_secs(90)));
        let after_one = measured.forecast(&outlook(FenceKind::InStore));
        assert_eq!(after_one.parts.seal_us, Some(70_000));
        measured.seal = Some((70_000, Duration::from_secs(10)));
        let later = measured.forecast(&outlook(FenceKind::InStore));
        assert_eq!(later, by_store, "what was long ago is not believed");
    }

    proptest! {
        /// A store that is slower never makes the forecast shorter.
        #[test]
        fn it_grows_with_everything_that_was_measured(
            control in 0u64..1_000_000, feed in 0u64..1_000_000, compare in 0u64..1_000_000,
            more in 0u64..1_000_000, which in 0usize..3, by_lease: bool,
        ) {
            let fence = if by_lease { FenceKind::ByLease } else { FenceKind::InStore };
            let total = |all: [u64; 3]| {
                let [control, feed, compare] = all.map(|us| recent(&[us]));
                let measured = Measured { control, feed, compare, seal: None };
                measured.forecast(&outlook(fence)).total_us
            };
            let before = [control, feed, compare];
            let mut after = before;
            after[which] += more;
            prop_assert!(total(after) >= total(before));
        }
    }
}
