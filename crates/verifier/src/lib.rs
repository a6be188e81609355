//! Compares two copies of a collection, and is the only one who may say that they are the same.
//!
//! ```text
//!   source ── scan ──▶ sums of digests by bucket ──┐
//!                                                  ├─ unequal buckets ─▶ their keys ─▶ suspects
//!   target ── scan ──▶ sums of digests by bucket ──┘                                      │
//!   both journals ── what changed meanwhile ──────────────────────────────────────────▶   ▼
//!                                              read both sides again: the same, or a difference
//! ```
//!
//! The two sides keep their records in orders of their own, so that they cannot be read side by side. Each is read
//! once from end to end; every image adds its digest to the sum of the bucket that its id falls into. Only buckets
//! whose sums differ are read again, key by key. What changes while this goes on stands in one of the two journals
//! (W35): its key is suspect until both sides were read again and agreed.
//!
//! What follows from a record (rows of derived tables at the target) is compared with it by the engine, and what a shop
//! promises of its records is judged by [`Invariants`] that the caller brings. When all of it is done it begins again,
//! slowly, until the proof: somebody who goes past the engines leaves no journal entry.
//!
//! Nothing here is shared with the feed: this crate reads both sides its own way, and puts nothing but repairs that
//! it was asked for. A [`Proof`] is made here alone, and is bound to the seal it was made for.

#![forbid(unsafe_code)]

mod limits;

mod digest;

mod difference;
mod invariants;

mod progress;

mod verifier;

mod proof;

mod error;

pub use difference::{Difference, Discord};
pub use digest::{BUCKETS, Sums};
pub use error::VerifyError;
pub use invariants::{Finding, Invariants, Sole};
pub use limits::{Limits, LimitsError};
pub use progress::{Phase, Place, Progress, Reading, Round, Side};
pub use proof::{Proof, Unproven};
pub use verifier::{Pair, Pass, Repair, Verifier, VerifierConfig};
