//! Where the time of a freeze goes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// In microseconds; `None`: it did not come to that. Leases are waited for beside the
/// fence, the drain and the proof where the store itself fences, otherwise before them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FreezeParts {
    /// Publishing the map that freezes.
    pub publish_us: Option<u64>,
    /// Until every lease had acknowledged it.
    pub leases_us: Option<u64>,
    /// Raising the fence.
    pub seal_us: Option<u64>,
    /// What stood in the journal before the seal.
    pub drain_us: Option<u64>,
    pub proof_us: Option<u64>,
    /// Saving the proof.
    pub record_us: Option<u64>,
    /// Publishing the map that gives the keys away.
    pub give_us: Option<u64>,
}

impl FreezeParts {
    fn named(&self) -> [(&'static str, Option<u64>); 7] {
        [
            ("freeze", self.publish_us),
            ("leases", self.leases_us),
            ("fence", self.seal_us),
            ("drain", self.drain_us),
            ("proof", self.proof_us),
            ("record", self.record_us),
            ("map", self.give_us),
        ]
    }
}

impl fmt::Display for FreezeParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.named().into_iter();
        let known = parts.filter_map(|(name, us)| Some((name, us?)));
        for (index, (name, us)) in known.enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {}.{} ms", us / 1_000, us % 1_000 / 100)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_reached_is_told() {
        let parts = FreezeParts {
            publish_us: Some(1_250),
            leases_us: Some(40_000),
            ..FreezeParts::default()
        };
        assert_eq!(parts.to_string(), "freeze 1.2 ms, leases 40.0 ms");
        assert_eq!(FreezeParts::default().to_string(), "");
    }
}
