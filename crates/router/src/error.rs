//! What a request can end with, and what the caller may do about it.

use engine_api::{EngineError, Generation, Remedy, Revision};

use crate::keeper::KeeperError;
use crate::lease::LeaseError;
use crate::limits::LimitsError;
use crate::map::{MapError, ShardName};
use crate::revisions::ClockError;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouterError {
    #[error("a limit cannot work: {0}")]
    Limits(#[from] LimitsError),
    #[error("there is no map yet: publish the first one")]
    NoMap,
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    #[error(transparent)]
    Clock(#[from] ClockError),
    #[error(transparent)]
    Lease(#[from] LeaseError),
    #[error("{reason}: send between 1 and {changes_together_max} changes, none of them an image")]
    NotAWrite {
        reason: &'static str,
        changes_together_max: usize,
    },
    #[error(
        "{first} is on shard {first_shard}, {other} on {other_shard}: changes in one commit need \
         one shard, send them apart"
    )]
    NotTogether {
        first: String,
        first_shard: ShardName,
        other: String,
        other_shard: ShardName,
    },
    /// Nothing was changed. Told only between the read path and those who look the record up by its id.
    #[error("{key} was keyed under another shard key: look the record up again")]
    Rekeyed { key: String },
    /// Nothing was changed.
    #[error("this was to be written under map {under}, and {standing} stands now: look again")]
    OtherMap {
        under: Generation,
        standing: Generation,
    },
    #[error("{held_requests_max} requests wait for frozen keys already: try again later")]
    HoldFull { held_requests_max: usize },
    #[error("the keys stayed frozen or fenced for {hold_ms_max} ms: try again later")]
    HoldExpired { hold_ms_max: u64 },
    #[error("the map changed under the request {times} times: try again")]
    MapUnsteady { times: u32 },
    #[error("{key} was changed by others {times} times in between: try again")]
    Contended { key: String, times: u32 },
    #[error("{readers_waiting_max} readers wait for {key} already: try again later")]
    TooManyReaders {
        key: String,
        readers_waiting_max: usize,
    },
    #[error("{places} requests are under way on shard {shard} already: try again later")]
    ShardBusy { shard: ShardName, places: usize },
    #[error("shard {shard} is one more than the {most} that a running process can add: restart it")]
    TooManyShards { shard: ShardName, most: usize },
    #[error("the request's time was over before it could be sent: ask again with more time")]
    OutOfTime,
    /// The change may be applied, now or before something newer replaced it.
    #[error("the change {revision} may have been applied or not ({reason}): read back")]
    OutcomeUnknown { revision: Revision, reason: String },
    #[error("shard {shard}: {source}")]
    Engine {
        shard: ShardName,
        source: EngineError,
    },
}

impl RouterError {
    /// The shard that failed, if one did.
    pub(crate) fn shard(&self) -> Option<&ShardName> {
        match self {
            RouterError::Engine { shard, .. } => Some(shard),
            _ => None,
        }
    }

    pub fn remedy(&self) -> Remedy {
        match self {
            RouterError::HoldFull { .. }
            | RouterError::HoldExpired { .. }
            | RouterError::MapUnsteady { .. }
            | RouterError::Contended { .. }
            | RouterError::TooManyReaders { .. }
            | RouterError::ShardBusy { .. }
            | RouterError::OutOfTime => Remedy::Retry,
            RouterError::Rekeyed { .. } | RouterError::OtherMap { .. } => Remedy::RefreshMap,
            RouterError::OutcomeUnknown { .. } => Remedy::ReadBack,
            RouterError::Engine { source, .. } => source.remedy(),
            RouterError::Keeper(error) => error.remedy(),
            RouterError::Lease(error) => error.remedy(),
            RouterError::Limits(_)
            | RouterError::NoMap
            | RouterError::TooManyShards { .. }
            | RouterError::Map(_)
            | RouterError::Clock(_)
            | RouterError::NotAWrite { .. }
            | RouterError::NotTogether { .. } => Remedy::GiveUp,
        }
    }
}
