//! How much a move has to copy, as far as that was known when it was begun.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToCopy {
    /// Marks included: they are copied as well.
    pub records: u64,
    pub known_by: KnownBy,
}

/// From the surest to the least sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KnownBy {
    Counting,
    /// From some of the slots.
    Estimate,
    /// There are more: reading them all took too long.
    AtLeast,
}

impl KnownBy {
    pub fn text(self) -> &'static str {
        match self {
            KnownBy::Counting => "counted",
            KnownBy::Estimate => "estimated from some of the slots",
            KnownBy::AtLeast => "at least",
        }
    }
}

impl fmt::Display for ToCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let records = self.records;
        match self.known_by {
            KnownBy::Counting => write!(f, "{records}"),
            KnownBy::Estimate => write!(f, "about {records}"),
            KnownBy::AtLeast => write!(f, "at least {records}"),
        }
    }
}
