//! Live moves: some keys of a collection go from one shard to another, or all of it from one layout, shard key and cut
//! to another one, while shoppers keep buying.
//!
//! ```text
//!   operator ── wish ──▶ record (term, holder, plan, phase) ◀── compare-and-set ── mover
//!                                                                                   │
//!   source ── journal, scan ──▶ feed, forward ──▶ target      verifier: the same?   ├─▶ map: notice, freeze,
//!   source ◀── feed, back ◀── journal ── target               proof, at the seal    │        move and thaw
//! ```
//!
//! [`Phase`] says where a move stands and what may be under way; it is written before what it announces is done, so
//! that whoever takes over after a crash knows what to look for. The map decides who serves: a cutover has happened
//! exactly when the map says so. Nothing leads to it but a proof that only the verifier can make.

#![forbid(unsafe_code)]

mod limits;

mod plan;
pub mod spread;
mod steps;
mod wish;

mod phase;

mod pins;
mod throttle;
mod to_copy;

mod record;

mod retention;

mod preflight;
mod registry;
mod side;

mod cargo;
mod forecast;
mod freeze;
mod mover;

mod stall;

mod certificate;

mod error;

pub use certificate::{Certificate, Content, Direction, Generations, certificate};
pub use error::{MoveError, Unfit};
pub use forecast::Forecast;
pub use freeze::FreezeParts;
pub use limits::{Limits, LimitsError, feed_limits};
pub use mover::{Mover, MoverConfig, Pass};
pub use phase::{Event, Phase, Proven, Settled, Way, WriteOwner};
pub use pins::Pins;
pub use plan::{
    End, FREEZE_MS_DEFAULT, FREEZE_MS_MAX, Histories, MOVE_NAME_BYTES_MAX, MoveName, Moved, Plan,
};
pub use preflight::{Shards, preflight};
pub use record::{
    FeltBefore, GivenUp, MoveState, Shown, ask, ask_within, complete, set_cutover_time, set_pace,
    set_throttle, set_to_copy, status,
};
pub use registry::{
    MOVES_LISTED_MAX, MOVES_NAME, MOVES_RUNNING_MAX, check, list, list_unless, start, start_with,
};
pub use retention::{Kept, kept_for};
pub use stall::{Held, ProcessStall, Stall};
pub use steps::{Step, steps};
pub use throttle::{Latencies, Pacing, Pressure, Throttle};
pub use to_copy::{KnownBy, ToCopy};
pub use wish::{
    CUTOVER_WINDOW_MINUTES, CutoverTime, GRACE_MS_MAX, Grace, NoGrace, NoTimeOfDay, Pace,
    TimeOfDay, Wish,
};
