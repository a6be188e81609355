//! Records on MongoDB: one document a record, replica sets only.
//!
//! Reading order: `config` and `connect` open a database, `schema` and `sharding`
//! say what it consists of, `value` and `document` how a record becomes a
//! document, `validator` and `guard` keep fences and terms inside the server,
//! `write`, `take`, `read` and `journal` are the contract itself, `lag` and
//! `secondary` keep the bound of reads that may lag.
//!
//! - **A change is a compare-and-swap of the whole document.** The document is
//!   read, [`engine_api::decide`] judges, and the result replaces it if it still
//!   bears the stamp that was read. One code path keeps every rule of the contract
//!   and makes guards atomic; the price is a second round trip and the whole
//!   document in the oplog. Because each write replaces the whole document, each
//!   sets slot and generation, which the validator needs (W19).
//! - **A take of stock is one conditional update**, because many want the same
//!   record at once; what its condition does not find is decided like the rest.
//! - **Fences and mover's terms are one collection validator.** It judges inside
//!   the server, whichever process writes, in one document, without a transaction.
//! - **The journal is the database's change stream.** A change carries what its
//!   entry needs inside the document, so that no entry needs a second look.
//!   Deletes are never entries: only collecting garbage deletes (W7).
//! - **Reads go to the primary**, whose majority view holds everything that was
//!   acknowledged, unless they may lag. A primary that was cut off and does not
//!   know it yet may answer another process from the past, for an election
//!   timeout at the most.
//! - **No transactions**, so no [`Together::Atomic`](engine_api::Together): see
//!   decision 8, which also says what was never run against `mongos`.
#![forbid(unsafe_code)]

mod config;
mod connect;
mod control;
mod document;
mod engine;
mod failure;
mod forgetting;
mod guard;
mod journal;
mod lag;
mod lag_counts;
mod maintain;
mod read;
mod schema;
mod secondary;
mod sharding;
mod stray;
mod take;
mod turns;
mod validator;
mod value;
mod write;

pub use config::{MongoConfig, OpenError};
pub use engine::MongoEngine;
pub use lag_counts::{LAG_BOUNDS_MS, LagCounts};
pub use schema::{SchemaCommand, commands};
pub use sharding::Sharding;
