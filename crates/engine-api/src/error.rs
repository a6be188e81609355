//! What can go wrong in an engine, and what the caller may do about it.

use layout::Collection;

use crate::context::{Generation, MoverTerm};

/// The caller asks for the [`Remedy`], never which engine failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    #[error("written under generation {used}, fenced at {fence}: refresh the map and send again")]
    Fenced { used: Generation, fence: Generation },
    #[error("the mover {lost} has lost its move to term {current}: stop this mover")]
    TermLost { lost: MoverTerm, current: u64 },
    #[error("the answer was lost ({reason}): read back before deciding")]
    OutcomeUnknown { reason: String },
    #[error("the engine is not available ({reason}): nothing was changed, try again")]
    Unavailable { reason: String },
    #[error("no space left ({reason}): free space on the disk")]
    StorageFull { reason: String },
    #[error("stored bytes cannot be read ({reason}): restore this shard from a copy")]
    Damaged { reason: String },
    #[error("the journal no longer reaches back to the position: rebuild, or compare both sides")]
    PositionLost,
    #[error("the engine cannot {what}: choose a layout that does not need it")]
    Unsupported { what: String },
    #[error("{collection} has no table in this engine: add it to the layout")]
    NoTable { collection: Collection },
    #[error("the change is malformed: {reason}")]
    Invalid { reason: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing happened; send again after a pause.
    Retry,
    /// Nothing happened; refresh the map, then send again to the new owner.
    RefreshMap,
    /// It may have happened; read back, or send the same change again.
    ReadBack,
    GiveUp,
}

impl EngineError {
    pub fn remedy(&self) -> Remedy {
        match self {
            EngineError::Fenced { .. } => Remedy::RefreshMap,
            EngineError::OutcomeUnknown { .. } => Remedy::ReadBack,
            EngineError::Unavailable { .. } => Remedy::Retry,
            EngineError::TermLost { .. }
            | EngineError::StorageFull { .. }
            | EngineError::Damaged { .. }
            | EngineError::PositionLost
            | EngineError::Unsupported { .. }
            | EngineError::NoTable { .. }
            | EngineError::Invalid { .. } => Remedy::GiveUp,
        }
    }
}
