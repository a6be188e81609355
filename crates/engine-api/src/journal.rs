//! The journal: what changed, in order; the source says to what.

use layout::{Collection, Scope};
use model::Timestamp;

use crate::context::Generation;
use crate::record::RecordKey;
use crate::revision::Revision;

/// The most entries one read of the journal returns.
pub const JOURNAL_ENTRIES_MAX: usize = 10_000;

/// A place in one engine's journal. Opaque to everyone else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub Vec<u8>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Reading from here gives what came after this entry.
    pub position: Position,
    /// The writer's clock: for lag in seconds and for retention, not for order.
    pub written_at: Timestamp,
    pub event: JournalEvent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalEvent {
    /// Done, for a reader, when the source shows at least this revision (W22).
    Changed {
        key: RecordKey,
        kind: ChangeKind,
        revision: Revision,
    },
    /// A fence was raised: the seal of everything older in its scope.
    Fenced { fence: Fence },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Written,
    Removed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalPage {
    pub entries: Vec<JournalEntry>,
    /// Where to read on. May lie further on than the last entry: a quiet
    /// collection's position must not fall behind a busy journal's retention.
    pub next: Position,
}

/// From now on, writes in the scope under an older generation are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    pub collection: Collection,
    pub scope: Scope,
    pub generation: Generation,
}

/// The journal position after which the fence holds: everything that was let
/// through before it stands at or before this position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    pub position: Position,
}

impl Fence {
    /// Whether this fence stops a router's write to `key`.
    pub fn stops(&self, key: &RecordKey, used: Generation) -> bool {
        self.collection == key.collection
            && used < self.generation
            && self.scope.contains(&key.shard_key)
    }

    /// Whether everything `other` stops is stopped by this fence anyway.
    pub fn covers(&self, other: &Fence) -> bool {
        self.collection == other.collection
            && self.generation >= other.generation
            && (self.scope == Scope::All || self.scope == other.scope)
    }
}
