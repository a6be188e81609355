//! Names of shards.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::error::MapError;

pub const SHARD_NAME_BYTES_MAX: usize = 64;

/// A shard's name: lower-case letters, digits, `-` and `_`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ShardName(String);

impl ShardName {
    pub fn new(name: impl Into<String>) -> Result<ShardName, MapError> {
        let name = name.into();
        let allowed = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_')
        };
        if name.is_empty() || name.len() > SHARD_NAME_BYTES_MAX || !name.bytes().all(allowed) {
            return Err(MapError::NotAShardName { name });
        }
        Ok(ShardName(name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ShardName {
    type Error = MapError;

    fn try_from(name: String) -> Result<ShardName, MapError> {
        ShardName::new(name)
    }
}

impl From<ShardName> for String {
    fn from(name: ShardName) -> String {
        name.0
    }
}

impl fmt::Display for ShardName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
