//! Where the shards of a layout are: `SHARD=ADDRESS`, separated by spaces.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result};
use router::ShardName;
use serde::Deserialize;

use crate::secrets::masked;

/// May hold passwords, so that it shows itself without them.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Addresses(String);

impl Addresses {
    pub fn is_empty(&self) -> bool {
        self.0.trim().is_empty()
    }

    /// The address of each shard that is named. What has no name is told by its place
    /// alone: it may be the rest of a password that has a space.
    pub fn by_shard(&self) -> Result<BTreeMap<&str, &str>> {
        let mut addresses = BTreeMap::new();
        for (told, place) in self.0.split_whitespace().zip(1_usize..) {
            let named = told.split_once('=');
            let named = named.filter(|(name, _)| ShardName::new(*name).is_ok());
            let (name, address) = named.with_context(|| {
                format!(
                    "address {place} has no shard: write it as SHARD=ADDRESS, and a space in a password as %20"
                )
            })?;
            addresses.insert(name, address);
        }
        Ok(addresses)
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&masked(&self.0))
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.to_string())
    }
}
