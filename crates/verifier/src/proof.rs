//! That two sides were the same, at a seal.

use engine_api::{Position, Stray};
use layout::{Collection, Scope};

use crate::difference::Difference;

/// Made by a [`Verifier`](crate::Verifier) alone: its fields can be read, not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    collection: Collection,
    scope: Scope,
    /// The seal of the source that it was made for: it says nothing about any other.
    seal: Position,
    records: u64,
    source_root: u128,
    target_root: u128,
    looked_again: u64,
}

/// Why there is no proof.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    #[error("not everything was compared yet")]
    NotYet,
    #[error("{count} records are not the same on both sides, {} among them", list(.named))]
    Unequal {
        count: usize,
        named: Vec<Difference>,
    },
    #[error("{count} derived rows of the target do not follow their records, {} among them", list(.named))]
    Strays { count: usize, named: Vec<Stray> },
}

fn list(named: &[impl ToString]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<String> = named.iter().take(SHOWN).map(ToString::to_string).collect();
    shown.join("; ")
}

impl Proof {
    pub(crate) fn new(
        (collection, scope): (Collection, Scope),
        seal: Position,
        records: u64,
        (source_root, target_root): (u128, u128),
        looked_again: u64,
    ) -> Proof {
        Proof {
            collection,
            scope,
            seal,
            records,
            source_root,
            target_root,
            looked_again,
        }
    }

    pub fn collection(&self) -> Collection {
        self.collection
    }

    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Whether this is a proof for that seal and no other (W35).
    pub fn is_for(&self, seal: &Position) -> bool {
        self.seal == *seal
    }

    /// Images of the source that were compared when it was read from end to end.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The digests of both sides as they were read. They may differ by what changed meanwhile, which was compared
    /// again, record by record.
    pub fn roots(&self) -> (u128, u128) {
        (self.source_root, self.target_root)
    }

    /// How often a record was read on both sides because it had changed or looked different.
    pub fn looked_again(&self) -> u64 {
        self.looked_again
    }
}
