//! Layouts: how each collection of the shop is stored, declared and checked before use.
//!
//! Pure: no I/O, no async. [`field`] and [`value`] say what records are made
//! of, [`collection`] and [`path`] what the shop keeps and asks, [`key`],
//! [`shard_key`] and [`table`] how records are cut and found.

#![forbid(unsafe_code)]

pub mod field;
pub mod value;
pub mod collection;
pub mod path;
pub mod key;
pub mod shard_key;
pub mod table;

pub use collection::{Collection, PartKind};
pub use field::{Field, FieldKind};
pub use key::{Direction, KeyError};
pub use path::{AccessPath, Operation, PathShape};
pub use shard_key::{SLOT_COUNT, Scope, ShardKey, Slot, SlotRange};
pub use table::{BucketCounts, Body, KeyColumn, Parts, Role, Table, TableOptions};
pub use value::{Fields, Value};
