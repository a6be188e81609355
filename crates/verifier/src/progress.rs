//! How far a verification is: what has to be saved so that another process goes on with it.

use std::fmt;

use engine_api::{Position, ScanPosition};
use serde::{Deserialize, Serialize};

use crate::digest::Sums;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    Source,
    Target,
}

/// Saved between two passes; a pass that was not saved is made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub phase: Phase,
    /// Where each journal is read on. Everything before was compared after it was read.
    pub source_at: Position,
    pub target_at: Position,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// One side after the other is read from end to end.
    Summing {
        side: Side,
        after: Option<ScanPosition>,
        source: Sums,
        target: Sums,
    },
    /// The keys of unequal buckets are sought.
    Naming {
        buckets: Vec<usize>,
        source: Sums,
        target: Sums,
    },
    /// Everything was compared; what changes is compared again.
    Watching { source: Sums, target: Sums },
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Source => "source",
            Side::Target => "target",
        })
    }
}

impl Phase {
    pub(crate) fn sums(&self) -> (&Sums, &Sums) {
        match self {
            Phase::Summing { source, target, .. }
            | Phase::Naming { source, target, .. }
            | Phase::Watching { source, target } => (source, target),
        }
    }
}
