//! Records on MongoDB: one document a record, replica sets only.
//!
//! Reading order: [`config`](MongoConfig) and `schema` open a database, `value`
//! and `document` say how a record becomes a document, `validator` and `guard`
//! keep fences and terms inside the server, `write`, `read` and `journal` are
//! the contract itself.
//!
//! Decisions of this first version:
//!
//! - **Every change is a compare-and-swap of the whole document.** The document
//!   is read, [`engine_api::decide`] judges, and the result replaces it if it
//!   still bears the stamp that was read. One code path keeps every rule of
//!   the contract and makes guards atomic; the price is a second round trip and
//!   the whole document in the oplog for each change, and writers of one hot
//!   record take turns. Because each write replaces the whole document, each
//!   sets slot and generation, which the validator needs (W19).
//! - **Fences and mover's terms are one collection validator.** It judges inside
//!   the server, whichever process writes, in one document, without a transaction.
//! - **The journal is the database's change stream.** A change carries what its
//!   entry needs inside the document (kind, revision, writer's clock), so that no
//!   entry needs a second look. Deletes are never entries: only collecting
//!   garbage deletes (W7).
//! - **Reads go to the primary.** Its majority view holds everything that was
//!   acknowledged. A primary that was cut off and does not know it yet may
//!   answer another process from the past, for an election timeout at the most;
//!   linearizable reads close that gap for 100 ms each and are not used.
#![forbid(unsafe_code)]

mod config;
mod connect;
mod control;
mod document;
mod engine;
mod failure;
mod guard;
mod journal;
mod lag;
mod maintain;
mod read;
mod schema;
mod secondary;
mod sharding;
mod take;
mod turns;
mod validator;
mod value;
mod write;

pub use config::{MongoConfig, OpenError};
pub use engine::MongoEngine;
pub use lag::{LAG_BOUNDS_MS, LagCounts};
pub use schema::{SchemaCommand, commands};
pub use sharding::Sharding;
