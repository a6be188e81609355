//! The embedded engine: records in a directory of this machine.
//!
//! Concurrent changes are grouped: body, pointers, journal entry, due times and
//! fences of all of them are one group of the commit log and one sync. Then they
//! are shown in the tables in memory and acknowledged. A record's body is stored
//! once, other tables point to it. Readers take views and never wait for writers.
//!
//! ```text
//! engine ──▶ desk (state: decide) ──▶ committer (log, store, fdatasync) ──▶ answers
//!    └─────▶ read ──────────────────▶ store.view └──▶ checkpoint: tables on disk
//! ```

#![forbid(unsafe_code)]

mod account;
mod batch;
mod bodies;
mod body;
mod cache;
mod checkpoint;
mod codec;
mod committer;
mod desk;
mod directory;
mod engine;
#[cfg(test)]
mod faults;
mod log;
mod places;
mod read;
mod salvage;
mod segment;
mod state;
mod store;
mod stray;
mod tables;
#[cfg(test)]
mod tampering;
mod view;
#[cfg(test)]
mod worn;

pub use committer::CommitCounts;
pub use directory::{FORMAT, FREE_BYTES_MIN, OpenError};
pub use engine::{EmbeddedConfig, EmbeddedEngine};
