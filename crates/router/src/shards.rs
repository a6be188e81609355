//! The shards of a router: those it was opened with, and those that were added while it served.
//!
//! The table only grows, so that a request may hold a shard for as long as it runs, and the many who look one up take
//! no lock. A shard is added before a map names it: see [`Router::add_shard`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock};

use engine_api::Engine;

use crate::error::RouterError;
use crate::gate::Gate;
use crate::limits::Limits;
use crate::map::{Map, ShardName};
use crate::router::Router;

/// Shards that are added while a process serves; the next start opens with all of them.
pub const SHARDS_ADDED_MAX: usize = 64;

/// What became of a shard that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    Now,
    /// One of that name was there already, and stays.
    Before,
}

#[derive(Debug)]
pub(crate) struct ShardTable {
    first: BTreeMap<ShardName, Shard>,
    /// Filled from the front.
    added: Box<[OnceLock<(ShardName, Shard)>]>,
    /// Held by who adds one.
    adding: Mutex<()>,
}

#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) gate: Gate,
}

impl ShardTable {
    pub(crate) fn new(
        engines: BTreeMap<ShardName, Arc<dyn Engine>>,
        limits: &Limits,
    ) -> ShardTable {
        let engines = engines.into_iter();
        ShardTable {
            first: engines
                .map(|(name, engine)| (name, Shard::new(engine, limits)))
                .collect(),
            added: (0..SHARDS_ADDED_MAX).map(|_| OnceLock::new()).collect(),
            adding: Mutex::new(()),
        }
    }

    pub(crate) fn get(&self, name: &ShardName) -> Option<&Shard> {
        let late = || self.late().find(|(other, _)| *other == name);
        let first = self.first.get(name);
        first.or_else(|| late().map(|(_, shard)| shard))
    }

    /// In the order of their names, the added ones behind in the order they came.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ShardName, &Shard)> {
        self.first.iter().chain(self.late())
    }

    /// Refuses a map that names a shard which is not here.
    pub(crate) fn check(&self, map: &Map) -> Result<(), RouterError> {
        let known: BTreeSet<ShardName> = self.iter().map(|(name, _)| name.clone()).collect();
        Ok(map.check(&known)?)
    }

    fn add(&self, name: ShardName, shard: Shard) -> Result<Added, RouterError> {
        let _adding = self
            .adding
            .lock()
            .expect("no code panics while it holds the lock");
        if self.get(&name).is_some() {
            return Ok(Added::Before);
        }
        let full = || RouterError::TooManyShards {
            shard: name.clone(),
            most: SHARDS_ADDED_MAX,
        };
        let mut places = self.added.iter();
        let free = places
            .find(|place| place.get().is_none())
            .ok_or_else(full)?;
        free.set((name, shard))
            .expect("nobody else adds while this one does");
        Ok(Added::Now)
    }

    fn late(&self) -> impl Iterator<Item = (&ShardName, &Shard)> {
        let filled = self.added.iter().map_while(OnceLock::get);
        filled.map(|(name, shard)| (name, shard))
    }
}

impl Shard {
    fn new(engine: Arc<dyn Engine>, limits: &Limits) -> Shard {
        let gate = Gate::new(limits);
        Shard { engine, gate }
    }
}

impl Router {
    /// Makes a shard known while this router serves, with a gate of its own. It gets no keys by that: add it in every
    /// process, and only then publish a map that names it, since a router takes over no map with a shard it does not have.
    pub fn add_shard(
        &self,
        name: ShardName,
        engine: Arc<dyn Engine>,
    ) -> Result<Added, RouterError> {
        self.shards.add(name, Shard::new(engine, &self.limits))
    }

    /// A shard that this router has, with or without keys.
    pub fn shard(&self, name: &ShardName) -> Option<&Arc<dyn Engine>> {
        self.shards.get(name).map(|shard| &shard.engine)
    }

    /// All that it has.
    pub fn shard_names(&self) -> BTreeSet<ShardName> {
        self.shards.iter().map(|(name, _)| name.clone()).collect()
    }
}
