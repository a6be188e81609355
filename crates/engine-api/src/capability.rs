//! What an engine can do, declared. A layout that needs more is refused; the
//! conformance suite skips a line only through one of these.

use layout::Collection;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    pub engine: &'static str,
    pub collections: Vec<Collection>,
    pub together: Together,
    pub guard: GuardKind,
    pub fence: FenceKind,
    pub journal: JournalKind,
    pub stock: Stock,
    pub terms: Terms,
    pub expiry: ExpiryKind,
    pub durability: Durability,
}

/// Several changes in one atomic commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    Atomic,
    Unsupported,
}

/// When a patch's guard, and the live header, are judged (W2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardKind {
    /// In the instant of the write: a refused patch leaves nothing.
    Atomic,
    /// After the write and before the answer: a refused patch may leave parts
    /// behind that nobody was told of.
    AfterWrite,
}

/// Where a write under an old generation is refused (W15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceKind {
    /// Inside the store.
    InStore,
    /// By the router's lease, after the answer (W16). Never with
    /// [`Together::Atomic`]: a late group could land where only some of its keys
    /// still live.
    ByLease,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalKind {
    /// Entry and data in one atomic commit, one order.
    SameCommit,
    /// The store's own change stream.
    ChangeStream,
    /// Entry and data in one logged batch, a lane per writer (W23).
    Lanes,
    Unsupported,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stock {
    Conditional,
    Unsupported,
}

/// Whether the store itself refuses a mover that lost its term (W21).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terms {
    InStore,
    Unsupported,
}

/// How expired records are collected; what decides is always the field (W7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryKind {
    /// By `Engine::maintain`, from an index of due times.
    Maintained,
    /// By the server, some time after.
    ByServer,
}

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: it lives in this process.
    Process,
    /// kill -9 and power loss.
    Disk,
    /// The loss of a minority of servers.
    Majority,
}
