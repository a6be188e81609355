//! Carts, orders and shopper sessions on Apache Cassandra, behind the engine contract.
//!
//! **One partition decides on a record.** The header stands in a row, each part
//! in another, so that one read at SERIAL shows the whole image. Part rows come
//! in two origins: `ORIGIN_DECIDED` rows and the header are written by
//! conditional batches only, `ORIGIN_PATCHED` rows by client timestamp (the
//! revision) only; no cell is ever written both ways (W4). A reader takes the
//! newer revision of a part from either origin.
//!
//! **Changes that decide** (create, change, remove, image) read, judge with
//! [`engine_api::decide`], and write header and parts in one conditional batch
//! on `turn`, a counter of such writes. The header's revision would not do as
//! the condition: an image may bring parts and leave the header as it is.
//!
//! **Patches** read, judge, write rows by timestamp, and read the header again
//! before the answer (W2). Two patches of one part that race are both `Done`
//! and the newer revision stays: the same as one after the other. A patch that
//! a removal overtakes is answered `NoRecord`, and its row may stay behind in
//! the mark; the next creator is told `Stale` until it numbers itself above.
//!
//! **Derived rows** are written before the decision, all in one logged batch,
//! and the old ones deleted after it, so that a crash leaves a row too many,
//! never one too few. Readers check each row against the record and delete those
//! the record has outgrown (W9). Patches write their copies in one logged batch
//! with the part itself.
//!
//! **The journal** is written ahead: entry begun, change, entry settled. A
//! change is never without its entry, and a number that was never written down
//! belongs to a change that never began. See the module `journal`.
//!
//! **Expiry** is a part that patches put off, and no cell of the header could
//! follow it: the authority has no TTL, and `maintain` collects. Rows of derived
//! tables have one where the layout says so, longer than their record lives.

#![forbid(unsafe_code)]

mod config;

mod keyspace;

mod levels;

pub mod schema;

mod servers;

mod engine;

mod change;

mod patch;

mod listing;

mod scan;

mod sweep;

mod forgetting;

mod stray;

mod sampling;

mod journal;

mod authority;

mod derived;

mod calendar;

mod column;

mod cell;

mod connection;

mod failure;

pub use config::{CassandraConfig, Credentials, OpenError, SchemaCare};
pub use connection::Recording;
pub use engine::CassandraEngine;
pub use keyspace::{KeptStore, Keyspace};
pub use sampling::SampledReads;
pub use servers::Warning;
