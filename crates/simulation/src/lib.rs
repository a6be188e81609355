//! A seeded world: the real shop and the real router over servers that lose,
//! delay and repeat what they are sent, judged after the fact.
//!
//! ```text
//!   visitors ─▶ shop ─┐ (processes: own clocks, leases, sweepers; may pause, crash)
//!   shoppers ─────────┴▶ routers ─▶ links (faults) ─▶ memory engines
//!   operators ─▶ movers (may pause, crash) ─┘               │
//!   recording ◀── requests, applied changes, maps ──────────┘
//!       └─▶ checks: what must hold of every history
//! ```
//!
//! Everything that happens follows from one number, the seed: time is virtual,
//! chance is drawn from the seed, and one thread runs it all. A seed that fails
//! fails again, with the same trace.

#![forbid(unsafe_code)]

pub mod chance;
pub mod checks;
pub mod clock;
pub mod control;
pub mod engine;
pub mod hand_made;
pub mod ledger;
pub mod linear;
pub mod link;
pub mod moving;
pub mod pausing;
pub mod recording;
pub mod report;
pub mod scenery;
pub mod seed;
pub mod serving;
pub mod shopper;
pub mod visitor;
pub mod witness;
