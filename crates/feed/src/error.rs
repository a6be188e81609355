//! What ends a pass of a feed, and what to do about it.

use std::fmt;

use engine_api::{EngineError, Remedy};

use crate::cargo::CargoError;
use crate::limits::LimitsError;
use crate::tenure::TenureError;

/// Whose failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Source,
    Target,
    Control,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Source => "source",
            Side::Target => "target",
            Side::Control => "control store",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeedError {
    #[error("a limit of feed {feed} cannot work: {source}")]
    Limits { feed: String, source: LimitsError },
    #[error("a feed is named by 1 to {max} lower-case letters, digits, dashes and underscores, not {feed:?}", max = crate::tenure::NAME_BYTES_MAX)]
    Name { feed: String },
    #[error(
        "feed {feed}: the journal no longer reaches back to its position: rebuild it, or compare \
         both sides; until then nothing is carried"
    )]
    PositionLost { feed: String },
    #[error("feed {feed}: another process has taken it over: this one waits")]
    TermLost { feed: String },
    #[error(
        "feed {feed}: its control value cannot be read ({reason}): restore it, or remove it and rebuild"
    )]
    Damaged { feed: String, reason: String },
    #[error("there is no feed {feed} yet: start a process that runs it")]
    NoFeed { feed: String },
    #[error("feed {feed}: the target refused the image of {key} ({outcome}): compare both layouts")]
    Refused {
        feed: String,
        key: String,
        outcome: String,
    },
    #[error("feed {feed}, {side}: {source}")]
    Engine {
        feed: String,
        side: Side,
        source: EngineError,
    },
    /// Nobody knows whether it may carry anything.
    #[error("feed {feed}: {source}")]
    Rest { feed: String, source: CargoError },
    #[error("feed {feed}, {key}: {source}")]
    Cargo {
        feed: String,
        key: String,
        source: CargoError,
    },
}

impl FeedError {
    pub fn remedy(&self) -> Remedy {
        match self {
            FeedError::Engine { source, .. } => source.remedy(),
            FeedError::TermLost { .. } | FeedError::Rest { .. } | FeedError::Cargo { .. } => {
                Remedy::Retry
            }
            FeedError::Limits { .. }
            | FeedError::Name { .. }
            | FeedError::PositionLost { .. }
            | FeedError::Damaged { .. }
            | FeedError::NoFeed { .. }
            | FeedError::Refused { .. } => Remedy::GiveUp,
        }
    }
}

impl From<TenureError> for FeedError {
    fn from(error: TenureError) -> FeedError {
        match error {
            TenureError::Name { name } => FeedError::Name { feed: name },
            TenureError::Lost { name } => FeedError::TermLost { feed: name },
            TenureError::Damaged { name, reason } => FeedError::Damaged { feed: name, reason },
            TenureError::Control { name, source } => FeedError::Engine {
                feed: name,
                side: Side::Control,
                source,
            },
        }
    }
}
