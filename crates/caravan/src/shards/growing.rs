//! Shards that come while the process serves.
//!
//! In a data directory a shard is a folder. It is made first, then the router has it, then a move can name it as its
//! target; the map names it when it gets its first keys. Whoever opens the directory opens every such folder, so
//! that a shard without keys is there after a restart too.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use anyhow::{Context, Result, anyhow, ensure};
use engine_api::Engine;
use router::{Router, ShardName};
use tokio::sync::Mutex;

use super::{SHARDS_MAX, as_engines, open_shard, shard_name};
use crate::faults;
use crate::metered::Metered;

/// The shards that this process has open. Whoever looks after them looks here each time.
#[derive(Clone, Debug)]
pub struct OpenShards(Arc<RwLock<BTreeMap<ShardName, Arc<Metered>>>>);

impl OpenShards {
    pub fn new(engines: BTreeMap<ShardName, Arc<Metered>>) -> OpenShards {
        OpenShards(Arc::new(RwLock::new(engines)))
    }

    /// As they are now.
    pub fn all(&self) -> BTreeMap<ShardName, Arc<Metered>> {
        let engines = self.0.read();
        engines
            .expect("no code panics while it holds the lock")
            .clone()
    }

    pub fn engines(&self) -> BTreeMap<ShardName, Arc<dyn Engine>> {
        as_engines(&self.all())
    }

    pub fn add(&self, name: ShardName, engine: Arc<Metered>) {
        let engines = self.0.write();
        engines
            .expect("no code panics while it holds the lock")
            .insert(name, engine);
    }
}

/// Makes shards in a data directory that this process serves.
#[derive(Clone, Debug)]
pub struct Ground {
    directory: PathBuf,
    router: Arc<Router>,
    open: OpenShards,
    /// One at a time: the next number follows from those that are there.
    adding: Arc<Mutex<()>>,
}

impl Ground {
    pub fn new(directory: &Path, router: Arc<Router>, open: OpenShards) -> Ground {
        Ground {
            directory: directory.to_owned(),
            router,
            open,
            adding: Arc::new(Mutex::new(())),
        }
    }

    /// Makes the next shard and opens it. It has no keys before a move brings it some.
    pub async fn add(&self) -> Result<ShardName> {
        let _adding = self.adding.lock().await;
        let number = self.next_number()?;
        let (directory, name) = (self.directory.clone(), shard_name(number));
        let made = tokio::task::spawn_blocking(move || {
            let engine = open_shard(&directory, &name)?;
            anyhow::Ok((name, engine))
        });
        let (name, engine) = made.await.context("the shard was not made")??;
        let metered = Arc::new(Metered::embedded(engine));
        let routed = BTreeMap::from([(name.clone(), metered.clone() as Arc<dyn Engine>)]);
        for (name, engine) in faults::of_writes(routed)? {
            self.router.add_shard(name, engine)?;
        }
        self.open.add(name.clone(), metered);
        tracing::info!(shard = name.as_str(), "a shard was added");
        Ok(name)
    }

    fn next_number(&self) -> Result<u16> {
        let highest = found(&self.directory)?.into_iter().max().unwrap_or(0);
        ensure!(
            highest < SHARDS_MAX,
            "{} has {highest} shards, and no process keeps more than {SHARDS_MAX}: put some on servers, with a layout",
            self.directory.display()
        );
        Ok(highest + 1)
    }
}

/// The numbers of the shards that were begun in the directory, whether a map names them or not.
pub fn found(directory: &Path) -> Result<Vec<u16>> {
    let unreadable = |error| anyhow!("{} cannot be read: {error}", directory.display());
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("shard-"));
        let number = number.and_then(|number| number.parse().ok());
        // `shard-007` is nobody's.
        numbers.extend(number.filter(|number| name.to_str() == Some(shard_name(*number).as_str())));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shards_of_a_directory_are_found_by_their_names() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "shard-1",
            "shard-12",
            "shard-007",
            "shard-",
            "shard-x",
            "other",
        ] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let mut numbers = found(folder.path()).unwrap();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 12]);
    }
}
