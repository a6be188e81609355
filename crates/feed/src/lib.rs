//! Follows a journal and applies images elsewhere (W22–W29).
//!
//! ```text
//!   source ── journal: what changed ──▶ feed ── image, under a term ──▶ target
//!     ▲                                  │ │
//!     └──── re-read: changed to what ────┘ └── position, by compare-and-set ──▶ control store
//! ```
//!
//! The journal says what changed; the source says to what. An entry is only ever a
//! reason to read its record again, and an image changes nothing where it is not
//! newer: repeats, reordering and hot keys are harmless, and a record that changed a
//! thousand times is copied once. What is carried, and what follows when it has
//! arrived, is the [`Cargo`]; a feed knows no collection by name.
//!
//! One process at a time works for a feed of one name, under a term that stands in
//! the same control value as the position: who lost the term cannot move the
//! position either.

#![forbid(unsafe_code)]

mod limits;

mod cargo;

pub mod hex;
mod phase;

pub mod tenure;

mod progress;

mod feed;

mod counts;
mod error;

pub use cargo::{Cargo, CargoError, Delivered};
pub use counts::{Counter, FeedCounts};
pub use error::{FeedError, Side};
pub use feed::{Feed, FeedConfig, Pass};
pub use limits::{Limits, LimitsError};
pub use phase::{Event, Phase};
pub use progress::{Progress, ask_rebuild, begin_following, progress};
