//! What a feed carries, and what follows when it has arrived.

use std::fmt;

use async_trait::async_trait;
use engine_api::{Engine, Freshness, ReadContext, Record, RecordKey, Timestamp};
use layout::{Collection, Scope};

/// A choice among the records of one collection. Every call may come any number of
/// times for one image, in any order, from two processes at once.
#[async_trait]
pub trait Cargo: Send + Sync + fmt::Debug {
    fn collection(&self) -> Collection;

    fn scope(&self) -> Scope {
        Scope::All
    }

    /// Whether anything may be carried now. Asked at the head of every pass; while it is not, the feed stands where it is.
    async fn is_wanted(&self) -> Result<bool, CargoError> {
        Ok(true)
    }

    /// What the source holds now: from its primary, and not before the entry that
    /// named the key was read (W27), whichever of its copies it stands on (W25). Who shares the source with a router that
    /// moves keys about asks the router instead.
    async fn read(
        &self,
        source: &dyn Engine,
        key: &RecordKey,
        now: Timestamp,
    ) -> Result<Option<Record>, CargoError> {
        let context = ReadContext {
            now,
            freshness: Freshness::OfEveryCopy,
        };
        source.get(key, context).await.map_err(CargoError::of)
    }

    /// What stands for an image that a scan met and `load` would take; itself,
    /// unless the source may hold what no longer counts.
    async fn confirm(&self, scanned: Record) -> Result<Option<Record>, CargoError> {
        Ok(Some(scanned))
    }

    /// What of an image, marks included, goes to the target; `None` for nothing.
    fn load(&self, image: Record) -> Option<Record>;

    /// After the target holds what was loaded, durably. Called again while it is
    /// not yet time for what should follow.
    async fn delivered(&self, _loaded: &Record) -> Result<Delivered, CargoError> {
        Ok(Delivered::Kept)
    }
}

/// What became of the source's record once the target had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    Kept,
    /// The source does not hold it any more.
    Removed,
    /// Something is still to follow, and it is too early for it: the entry is not done.
    NotYet,
}

/// Why a cargo could not be read or followed up. The feed comes back to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct CargoError {
    pub reason: String,
}

impl CargoError {
    pub fn of(error: impl fmt::Display) -> CargoError {
        CargoError {
            reason: error.to_string(),
        }
    }
}
