//! The engine boundary: records, changes, the contract, and the suite that tests it.
//!
//! [`Engine`] is the contract in prose; [`conformance`] is its test, run by
//! every engine; [`memory`] is the smallest engine that keeps it all.

#![forbid(unsafe_code)]

mod capability;
mod change;
pub mod conformance;
mod context;
mod control;
mod decide;
mod engine;
mod error;
mod forgetting;
mod gate;
mod journal;
pub mod memory;
mod query;
mod record;
mod revision;
mod shared;
mod stock;
mod stray;
mod validate;
mod world;

pub use capability::{
    Capabilities, Durability, ExpiryKind, FenceKind, GuardKind, JournalKind, Stock, Terms, Together,
};
pub use change::{
    Change, Guard, Outcome, PartChange, PartsChange, PriceCondition, StockAction, StockRefusal,
};
pub use context::{
    Aged, Authority, Because, Freshness, Generation, MoverTerm, ReadContext, Served, WriteContext,
};
pub use control::{CONTROL_BYTES_MAX, ControlStore, ControlValue, SetOutcome};
pub use decide::{Decision, GroupDecision, decide, decide_together};
pub use engine::{Engine, Maintained, Maintenance};
pub use error::{EngineError, Remedy};
pub use forgetting::{CONDEMNED_RECORDS_MAX, Condemned, CondemnedRecords, validate_forgetting};
pub use gate::{Gate, Raised};
pub use journal::{
    ChangeKind, Fence, JOURNAL_ENTRIES_MAX, JournalEntry, JournalEvent, JournalPage, Position, Seal,
};
pub use layout;
pub use model::Timestamp;
pub use query::{
    Cursor, Look, PAGE_RECORDS_MAX, Page, Query, Scan, ScanPage, ScanPosition, SortRange, answers,
};
pub use record::{
    Content, Header, ID_BYTES_MAX, Merged, NameError, Part, PartKey, RECORD_PARTS_MAX, Record,
    RecordId, RecordKey, expiry_fields,
};
pub use revision::{Revision, WRITERS_MAX, Writer};
pub use shared::{Memo, SharedRecord};
pub use stock::{stock_fields, stock_of};
pub use stray::{Patience, RowFault, Stray, StrayEnd, StrayPage, StraySearch};
pub use validate::{validate, validate_alone, validate_together};
pub use world::{RealWorld, World};
