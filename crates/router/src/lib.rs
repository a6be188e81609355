//! Who serves which keys, and the one write path.
//!
//! ```text
//!            ┌─ hold ◀── frozen, or fenced and the new map is not here yet
//!   change ──┴▶ map: owner? ─▶ clock: revision ─▶ gate ─▶ engine (generation, revision) ─▶ answer
//!                  ▲                                        │ Fenced: refresh, go again
//!                keeper ◀── control store                   │ Stale: propose higher, go again
//!                               ▲                           └ lost: same change, same revision
//!                lease ─────────┘  (several processes: who may answer, under which map)
//! ```
//!
//! Time and chance come from [`engine_api::World`]; nothing here reads a clock,
//! spawns a task or iterates in an order that is not the same in every run.

#![forbid(unsafe_code)]

mod allowance;
mod counts;
mod current;
mod error;
mod gate;
mod history;
mod hold;
mod keeper;
mod lease;
mod limits;
mod listing;
pub mod map;
mod probe;
mod read;
mod rekey;
mod revisions;
mod router;
mod serving;
mod shards;
mod stalls;
mod survey;
mod write;

pub use allowance::Precedence;
pub use counts::{Counter, RouterCounts};
pub use error::RouterError;
pub use gate::{Gate, Place};
pub use history::{HISTORY_ENTRIES_MAX, HISTORY_NAME, HistoryEntry, MapHistory, Note};
pub use keeper::{KeeperError, MAP_NAME, MapKeeper, PUBLISH_ATTEMPTS_MAX};
pub use lease::{
    LEASES_NAME, LeaseError, LeaseJudge, LeaseSeen, LeaseState, ProcessName, Standing, Term,
};
pub use limits::{Limits, LimitsError};
pub use map::{CollectionMap, Cut, Edit, Map, MapError, RangeStart, ShardName, SlotRun};
pub use revisions::{ClockError, REVISION_STRIPES, RevisionClock};
pub use router::{MapView, Router, RouterConfig};
pub use shards::{Added, SHARDS_ADDED_MAX};
pub use stalls::{HeldFor, Waits};
pub use survey::{SurveyPage, SurveyPlace};
pub use write::Written;
