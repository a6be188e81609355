//! What can go wrong when products are searched, indexed and followed.

use engine_api::{EngineError, Remedy};
use router::{MapError, RouterError, ShardName};

use crate::query::{TEXT_CHARS_MAX, WORDS_MAX};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SearchError {
    #[error("the search text has no letter and no digit: type a word")]
    NoWord,
    #[error("the search text has more than {TEXT_CHARS_MAX} characters: shorten it")]
    TooLong,
    #[error("the search text has {words} words: give at most {WORDS_MAX}")]
    TooManyWords { words: usize },
    /// Half an index would answer as if the other half did not exist.
    #[error("the index is being built for the first time: try again shortly")]
    NotReady,
    #[error(transparent)]
    Index(#[from] IndexError),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    #[error("the index holds {products_max} products already: give it a higher limit")]
    Full { products_max: usize },
    #[error("the index failed ({reason}): restart this process to build it again")]
    Broken { reason: String },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    #[error(transparent)]
    Router(#[from] RouterError),
    #[error(transparent)]
    Map(#[from] MapError),
    #[error("shard {shard} serves products and was not given to the follower: add it")]
    NoShard { shard: ShardName },
    #[error("shard {shard}: {source}")]
    Engine {
        shard: ShardName,
        source: EngineError,
    },
    #[error("the index was rebuilt {times} times and each time fell behind: try again")]
    Unsteady { times: u32 },
    #[error(transparent)]
    Index(#[from] IndexError),
}

impl SearchError {
    pub fn remedy(&self) -> Remedy {
        match self {
            SearchError::NotReady => Remedy::Retry,
            SearchError::NoWord
            | SearchError::TooLong
            | SearchError::TooManyWords { .. }
            | SearchError::Index(_) => Remedy::GiveUp,
        }
    }
}

/// No type of the search library leaves this crate.
impl From<tantivy::TantivyError> for IndexError {
    fn from(error: tantivy::TantivyError) -> IndexError {
        IndexError::Broken {
            reason: error.to_string(),
        }
    }
}

impl From<tantivy::TantivyError> for SearchError {
    fn from(error: tantivy::TantivyError) -> SearchError {
        SearchError::Index(error.into())
    }
}
