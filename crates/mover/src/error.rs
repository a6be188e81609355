//! What a move can end or wait with, and what to do about it.

use engine_api::{EngineError, Remedy};
use feed::FeedError;
use feed::tenure::TenureError;
use layout::Collection;
use router::{KeeperError, LeaseError, MapError, ShardName};
use verifier::VerifyError;

use crate::limits::LimitsError;
use crate::plan::{FREEZE_MS_MAX, MOVE_NAME_BYTES_MAX};
use crate::preflight::PIECES_MAX;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    #[error(
        "a move is named by 1 to {MOVE_NAME_BYTES_MAX} lower-case letters, digits, dashes and underscores, not {name:?}"
    )]
    Name { name: String },
    #[error("there was a move {name} already: choose another name")]
    NameTaken { name: String },
    #[error("there is no move {name}: start it first")]
    NoMove { name: String },
    #[error("a limit of a move cannot work: {0}")]
    Limits(#[from] LimitsError),
    #[error("the plan cannot be carried out: {0}")]
    Unfit(#[from] Unfit),
    #[error("{name} cannot be {wished} now: {reason}")]
    Refused {
        name: String,
        wished: &'static str,
        reason: String,
    },
    #[error("the list of moves cannot be read ({reason}): restore it from a copy")]
    Damaged { reason: String },
    #[error("others changed {what} {times} times in between: try again")]
    Contended { what: &'static str, times: u32 },
    #[error("{name}: another process has taken the move over: this one waits")]
    TermLost { name: String },
    #[error("there is no map yet: publish the first one")]
    NoMap,
    #[error(
        "process {process} does not have shard {shard} open: see its readiness, or end it, and this goes on"
    )]
    NotEverywhere { process: String, shard: ShardName },
    /// A mistake in the runner: said, not swallowed.
    #[error("{phase} does not lead on by {event}: report this")]
    OutOfStep { phase: &'static str, event: String },
    #[error("{end}: {source}")]
    Engine { end: String, source: EngineError },
    #[error("control store: {0}")]
    Control(EngineError),
    #[error(transparent)]
    Tenure(TenureError),
    #[error(transparent)]
    Feed(FeedError),
    #[error("verification: {0}")]
    Verify(#[from] VerifyError),
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    #[error(transparent)]
    Lease(#[from] LeaseError),
}

/// Why a plan is refused before anything is changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("shard {shard} is not configured here: configure it")]
    UnknownShard { shard: ShardName },
    #[error("source and target both have {shard}: choose another target")]
    SameShard { shard: ShardName },
    #[error("{shard} keeps no {collection}: choose a target whose layout has a table for them")]
    NoTable {
        shard: ShardName,
        collection: Collection,
    },
    #[error("{shard} keeps no stock, which products need: choose another target")]
    NoStock { shard: ShardName },
    #[error("{shard} has no journal: nothing can be followed there")]
    NoJournal { shard: ShardName },
    #[error(
        "the scope is not all on {source_shard}, some of it is on {other}: move that by itself"
    )]
    NotAtSource {
        source_shard: ShardName,
        other: ShardName,
    },
    #[error("{key} is pinned inside the scope: move it by itself, or unpin it first")]
    PinnedInside { key: String },
    #[error(
        "the map no longer has the collection where {layout} is to have it: look at the map, and plan anew"
    )]
    PlacedOtherwise { layout: String },
    #[error(
        "{layout} cuts the collection into {pieces} pieces and pins, at most {PIECES_MAX} go in one move: join some"
    )]
    TooManyPieces { layout: String, pieces: usize },
    #[error(
        "{collection} have another shard key of the same {fields} field(s) there, and requests under way could not tell them apart: go by a shard key of another number of fields"
    )]
    SameWidth {
        fields: usize,
        collection: Collection,
    },
    #[error(
        "{shard} refuses no displaced mover, and the shard key of removed {collection} cannot be told there: keep a shard key that follows from the id or from the other one"
    )]
    NoTerms {
        shard: ShardName,
        collection: Collection,
    },
    #[error("some of the keys are frozen already: wait for their move to end")]
    Frozen,
    #[error("move {other} has some of the keys ({phase}): complete, roll back or abort it first")]
    Overlaps { other: String, phase: &'static str },
    #[error(
        "move {other} has yet to clean {shard} of some of the keys: wait until it has, or abort it, and what is there stays"
    )]
    ToBeCleaned { other: String, shard: ShardName },
    #[error("{running} moves are under way, at most {most} are allowed: end one first")]
    TooMany { running: usize, most: usize },
    #[error("a freeze of {freeze_ms_max} ms: choose 1 to {FREEZE_MS_MAX}")]
    Budget { freeze_ms_max: u64 },
    #[error(transparent)]
    Map(#[from] MapError),
}

impl MoveError {
    pub fn remedy(&self) -> Remedy {
        match self {
            MoveError::Contended { .. }
            | MoveError::TermLost { .. }
            | MoveError::NotEverywhere { .. } => Remedy::Retry,
            MoveError::Engine { source, .. } | MoveError::Control(source) => source.remedy(),
            MoveError::Tenure(error) => error.remedy(),
            MoveError::Feed(error) => error.remedy(),
            MoveError::Verify(error) => error.remedy(),
            MoveError::Keeper(error) => error.remedy(),
            MoveError::Lease(error) => error.remedy(),
            MoveError::Name { .. }
            | MoveError::NameTaken { .. }
            | MoveError::NoMove { .. }
            | MoveError::Limits(_)
            | MoveError::Unfit(_)
            | MoveError::Refused { .. }
            | MoveError::Damaged { .. }
            | MoveError::NoMap
            | MoveError::OutOfStep { .. } => Remedy::GiveUp,
        }
    }
}

impl From<TenureError> for MoveError {
    fn from(error: TenureError) -> MoveError {
        match error {
            TenureError::Lost { name } => MoveError::TermLost { name },
            error => MoveError::Tenure(error),
        }
    }
}

impl From<FeedError> for MoveError {
    fn from(error: FeedError) -> MoveError {
        match error {
            FeedError::TermLost { feed } => MoveError::TermLost { name: feed },
            error => MoveError::Feed(error),
        }
    }
}
