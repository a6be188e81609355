//! Layouts: how each collection of the shop is stored, declared and checked before use.
//!
//! Pure: no I/O, no async. [`field`] and [`value`] say what records are made
//! of, [`collection`] and [`path`] what the shop keeps and asks, [`key`],
//! [`shard_key`] and [`table`] how records are cut and found. [`file`] reads a
//! layout from its TOML, [`planner`] finds the table that answers a question,
//! [`checker`] says what is wrong, and [`explain`] puts both into words.

#![forbid(unsafe_code)]

pub mod field;

pub mod value;

pub mod collection;

pub mod path;

pub mod key;

pub mod shard_key;

pub mod table;

pub mod column;

pub mod id_encoding;

pub mod consistency;

pub mod engine;

pub mod server_version;

pub mod place;

pub mod mistake;

pub mod file;

pub mod estimate;

pub mod planner;

pub mod repair_schedule;

pub mod findings;

pub mod rules;

pub mod checker;

pub mod report;

pub mod explain;

pub mod diff;

pub mod schema;

pub use checker::check;
pub use collection::{Collection, PartKind};
pub use consistency::{Consistency, CopySum, Policy, ReadLevel, WriteLevel};
pub use engine::{CommitlogSync, EngineDeclaration, EngineKind, EngineSettings};
pub use estimate::{Load, PartitionSize};
pub use field::{Field, FieldKind};
pub use file::{CollectionLayout, Cut, History, IdEncodings, Layout, ParseError, RangeCut, Store};
pub use findings::{Finding, Severity};
pub use id_encoding::{EncodedId, IdDoesNotFit, IdEncoding};
pub use key::{Direction, KeyError};
pub use mistake::{Mistake, MistakeKind};
pub use path::{AccessPath, Operation, PathShape};
pub use place::{Extent, Place, Position};
pub use planner::{
    FanOut, Plan, ShardFanOut, Sort, Unanswerable, Walk, plan, plan_history, plan_operation,
};
pub use repair_schedule::RepairSchedule;
pub use server_version::ServerVersion;
pub use shard_key::{SLOT_COUNT, Scope, ShardKey, Slot, SlotRange};
pub use table::{Body, BucketCounts, KeyColumn, Parts, Repair, Role, Table, TableOptions};
pub use value::{Fields, Value};

/// The layout that is used when none is named: everything in the embedded engine.
pub fn embedded() -> Layout {
    Layout::parse(
        include_str!("../../../layouts/embedded.toml"),
        "embedded.toml",
    )
    .expect("the layout that ships with the program is parsed by its tests")
}
