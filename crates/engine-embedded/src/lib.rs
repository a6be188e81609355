//! The embedded engine: records in a directory of this machine.
//!
//! Concurrent changes are grouped into one durable commit (body, pointers,
//! journal entry, due times, fences together). A record's body is stored once,
//! other tables point to it. Readers take snapshots and never wait for writers.
//!
//! ```text
//! engine ──▶ judge (state: decide) ──▶ disk (store.commit, fdatasync) ──▶ answers
//!    └─────▶ read ───────────────────▶ store.view
//! ```

#![forbid(unsafe_code)]

mod codec;
mod committer;
mod directory;
mod engine;
#[cfg(test)]
mod faults;
mod read;
mod state;
mod store;
mod tables;

pub use committer::CommitCounts;
pub use directory::{FORMAT, FREE_BYTES_MIN, OpenError};
pub use engine::{EmbeddedConfig, EmbeddedEngine};
