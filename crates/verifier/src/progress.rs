//! How far a verification is: what has to be saved so that another process goes on with it.

use std::fmt;

use engine_api::{Position, ScanPosition};
use serde::{Deserialize, Serialize};

use crate::digest::Sums;

/// How far something is read, a page at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    #[default]
    Start,
    After(ScanPosition),
    End,
}

/// One side, as far as it was read from end to end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    pub sums: Sums,
    pub place: Place,
}

/// Both sides, which are read side by side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    pub source: Reading,
    pub target: Reading,
}

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
    /// How far the derived rows of the target were compared with their records.
    pub rows: Place,
    /// Where each journal is read on. Everything before was compared after it was read.
    pub source_at: Position,
    pub target_at: Position,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Both sides are read from end to end.
    Summing(Round),
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
            Phase::Summing(round) => (&round.source.sums, &round.target.sums),
            Phase::Naming { source, target, .. } | Phase::Watching { source, target } => {
                (source, target)
            }
        }
    }
}

impl Place {
    /// What a page begins after; nothing to read at the end.
    pub(crate) fn next_page(&self) -> Option<Option<ScanPosition>> {
        match self {
            Place::Start => Some(None),
            Place::After(position) => Some(Some(position.clone())),
            Place::End => None,
        }
    }
}

impl From<Option<ScanPosition>> for Place {
    fn from(next: Option<ScanPosition>) -> Place {
        next.map_or(Place::End, Place::After)
    }
}

impl Round {
    pub(crate) fn is_over(&self) -> bool {
        (&self.source.place, &self.target.place) == (&Place::End, &Place::End)
    }
}
