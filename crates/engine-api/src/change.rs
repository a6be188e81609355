//! Changes: absolute and idempotent, each saying what it needs.
//!
//! None appends, none increments blindly; sending one again changes nothing
//! more. What a change finds when it arrives is its [`Outcome`], a definite
//! answer; when the answer itself is lost, that is an error of its own.

use layout::{Field, Fields, Value};
use model::Timestamp;
use rust_decimal::Decimal;

use crate::record::{Header, PartKey, Record, RecordKey};
use crate::revision::Revision;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Makes a record where none lives: no record, a removed or an expired one.
    CreateIfAbsent {
        key: RecordKey,
        header: Fields,
        parts: Vec<(PartKey, Fields)>,
    },
    /// Replaces the header if its revision is still `expected`, and parts with it.
    ChangeIf {
        key: RecordKey,
        expected: Revision,
        header: Fields,
        parts: PartsChange,
    },
    /// Sets or removes parts of a live record, newest wins.
    Patch {
        key: RecordKey,
        guard: Guard,
        parts: Vec<(PartKey, PartChange)>,
    },
    /// Leaves a mark, if the header's revision is still `expected`.
    Remove { key: RecordKey, expected: Revision },
    /// Moves stock of one part, by reservation.
    Stock {
        key: RecordKey,
        part: PartKey,
        price: PriceCondition,
        action: StockAction,
    },
    /// Merges an image, part by part, only what is newer. For feeds.
    PutImage { image: Record },
}

/// What `ChangeIf` does to the parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartsChange {
    Keep,
    /// Removes all parts and sets these.
    Replace(Vec<(PartKey, Fields)>),
    /// Sets these and keeps the others.
    Put(Vec<(PartKey, Fields)>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartChange {
    Set(Fields),
    Remove,
}

/// What the header must hold for a patch to count. The engine's capability says
/// whether it is judged in the same instant or after the write (W2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    pub header: Vec<(Field, Value)>,
}

/// The price the buyer saw; judged in the instant of the take (W13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriceCondition {
    Any,
    Exactly(Decimal),
}

/// `available + reserved + sold = received` holds after each (W12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StockAction {
    /// Sets how many pieces ever arrived; what is new becomes available.
    Receive { total: u64 },
    /// Available → reserved, remembered by order. `at` is when the order began.
    Take {
        order: String,
        quantity: u32,
        at: Timestamp,
    },
    /// Reserved → sold.
    Claim { order: String },
    /// Reserved or sold → available; an order that holds nothing can take
    /// nothing any more. `at` is when the order ended.
    Give {
        order: String,
        quantity: u32,
        at: Timestamp,
    },
    /// Sold → available, also when the reservation is forgotten: the order's
    /// own record says that it was sold.
    Return {
        order: String,
        quantity: u32,
        at: Timestamp,
    },
    /// Available → sold at once, without a memory of its own: only together
    /// with a conditional change that guards it (see `Engine::apply_together`).
    Sell { quantity: u32 },
    /// Sold → available, likewise guarded.
    Unsell { quantity: u32 },
}

/// What a change met. Every variant is definite: applied, or not and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Applied now, or by an earlier attempt of the same change.
    Done {
        revision: Revision,
    },
    /// `CreateIfAbsent`: another record lives there.
    Exists {
        record: Box<Record>,
    },
    /// `ChangeIf`, `Remove`: the header is another one.
    Conflict {
        header: Header,
    },
    /// No live header.
    NoRecord,
    /// `Patch`: the header does not hold what the guard asks.
    GuardFailed {
        header: Header,
    },
    /// The proposed revision is not above what is stored: propose one above `stored`.
    Stale {
        stored: Revision,
    },
    /// The record has as many parts as it may have.
    TooManyParts {
        parts_max: usize,
    },
    Stock(StockRefusal),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StockRefusal {
    NoSuchStock,
    SoldOut {
        available: u64,
    },
    PriceMoved {
        now: Option<Decimal>,
    },
    /// The order began before the oldest reservation still remembered.
    BelowFloor {
        floor: Timestamp,
    },
    /// The order has no reservation here, or one that was given back.
    NoReservation,
    /// Fewer pieces would have arrived than are reserved and sold.
    BelowSold {
        bound: u64,
    },
    /// Too many orders are undecided here: try another bucket, or later.
    TooManyHeld,
    /// The same order took another quantity before.
    OtherQuantity {
        taken: u32,
    },
}

impl Change {
    pub fn key(&self) -> &RecordKey {
        match self {
            Change::CreateIfAbsent { key, .. }
            | Change::ChangeIf { key, .. }
            | Change::Patch { key, .. }
            | Change::Remove { key, .. }
            | Change::Stock { key, .. } => key,
            Change::PutImage { image } => &image.key,
        }
    }

    pub fn key_mut(&mut self) -> &mut RecordKey {
        match self {
            Change::CreateIfAbsent { key, .. }
            | Change::ChangeIf { key, .. }
            | Change::Patch { key, .. }
            | Change::Remove { key, .. }
            | Change::Stock { key, .. } => key,
            Change::PutImage { image } => &mut image.key,
        }
    }

    /// Whether the change decides on what is stored, so that it can guard
    /// others in one commit.
    pub fn is_conditional(&self) -> bool {
        match self {
            Change::CreateIfAbsent { .. } | Change::ChangeIf { .. } | Change::Remove { .. } => true,
            Change::Patch { .. } | Change::Stock { .. } | Change::PutImage { .. } => false,
        }
    }
}

impl Outcome {
    pub fn is_done(&self) -> bool {
        matches!(self, Outcome::Done { .. })
    }
}
