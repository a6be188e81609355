//! Search of products by name, in Russian and English (P3).
//!
//! ```text
//!   shards: scan, then journals ──▶ Follower ──▶ ProductIndex ◀── search("теле")
//!                                      │ re-reads each changed key
//!                                      ▼
//!                                    router
//! ```
//!
//! The index lives in memory and is derived: whatever happens to it, the
//! follower builds it again from the shards. Answers are product ids; what a
//! product costs and whether it is still there is asked of the router.

#![forbid(unsafe_code)]

mod counts;
mod error;
mod follower;
mod index;
mod query;
mod words;

pub use counts::{Counter, Counts};
pub use error::{FollowError, IndexError, SearchError};
pub use follower::{Caught, Follower, Progress, Reached};
pub use index::{HITS_MAX, PRODUCTS_MAX, ProductIndex, Put};
pub use query::{TEXT_CHARS_MAX, TYPO_LETTERS_MIN, WORDS_MAX};
