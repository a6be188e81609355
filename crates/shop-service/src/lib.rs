//! The shop's operations, as rules over records.
//!
//! ```text
//!   http-api ─▶ Shop ─▶ what does the model say? ─▶ change(s) ─▶ router
//!                 ▲                                     │
//!                 └──── read again, decide again ◀──────┘ refused: someone was faster
//! ```
//!
//! Nothing here knows HTTP, an engine or a shard. What decides on state is written
//! by conditional changes; what may run side by side is written by patches.

#![forbid(unsafe_code)]

mod error;
mod finding;
mod policies;
mod promises;
mod records;
mod settings;
mod shop;

mod sessions;

mod products;

mod carts;

mod orders;

mod history;

mod sweeper;

mod read_counts;
mod reading;
mod reconcile;

pub use carts::{ItemWish, Merge, MergeEnd};
pub use error::{Noun, ShopError};
pub use history::{HistoryError, OrderHistory, Rest, RestError, archive_feed, archive_feed_name};
pub use orders::{LineWish, OrderWish, Placed};
pub use policies::Policies;
pub use products::ProductWish;
pub use promises::{broken_promise, stands_alone};
pub use read_counts::{AGE_BOUNDS_MS, OperationReads, ReadCounts};
pub use reading::ShopReader;
pub use reconcile::{
    Kind, Left, Place, PlaceError, ReconcileLimits, ReconcileLimitsError, Reconciler, Report,
    Round, Step, Tally, Wish,
};
pub use sessions::{Login, SessionWish};
pub use settings::Settings;
pub use shop::{Listing, Made, PageWish, Shop, ShopConfig, Stored};
pub use sweeper::Swept;
