//! What can go wrong while two sides are compared.

use engine_api::{EngineError, Remedy};

use crate::limits::LimitsError;
use crate::progress::Side;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    #[error("the limits of a verification: {0}")]
    Limits(#[from] LimitsError),
    #[error("{side}: {source}")]
    Engine { side: Side, source: EngineError },
    /// What changed since then is not known any more (W28).
    #[error(
        "the journal of the {side} no longer reaches back to where the verification began: begin it anew"
    )]
    PositionLost { side: Side },
    #[error("the saved progress is damaged: begin the verification anew")]
    Damaged,
}

impl VerifyError {
    pub(crate) fn of(side: Side) -> impl FnOnce(EngineError) -> VerifyError {
        move |source| match source {
            EngineError::PositionLost => VerifyError::PositionLost { side },
            source => VerifyError::Engine { side, source },
        }
    }

    pub fn remedy(&self) -> Remedy {
        match self {
            VerifyError::Engine { source, .. } => source.remedy(),
            VerifyError::Limits(_) | VerifyError::PositionLost { .. } | VerifyError::Damaged => {
                Remedy::GiveUp
            }
        }
    }
}
