//! Shards where a layout file wants them: MongoDB, Cassandra, or folders of this machine.
//!
//! The layout says which shards there are and what they keep, the settings say where
//! they are. Map and leases stand on the control shard, see [`Control`]; the map is made
//! from the layout when there is none.

mod address;
mod place;
mod plan;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use engine_api::{ControlStore, Engine, RealWorld};
use layout::Layout;
use router::{Map, MapView, ShardName};
use shop_service::Policies;

use super::deployment::{Archiving, Deployment};
use super::mark::Mark;
use super::{BothLayouts, LateShards, Shards};
use crate::config::Config;
use crate::metered::Metered;

pub use address::Spot;
pub use plan::{Plan, history_of, placements, prefixed};

/// The shard that keeps map and leases: decision 11.
#[derive(Debug)]
pub struct Control {
    /// Of the layout with this file; its own name.
    file: PathBuf,
    shard: ShardName,
    /// Its lock lets one process in.
    pub is_folder: bool,
    pub store: Arc<dyn ControlStore>,
    engine: Arc<Metered>,
    pub map: Option<Arc<Map>>,
}

/// Who can serve what the control shard says.
pub enum Reach {
    /// Map and leases are in a folder, and its lock lets one process in.
    ThisProcess,
    AnyProcess,
}

impl Control {
    /// Of the layout that was moved away from, if the settings name one.
    pub async fn open(config: &Config, file: &Path) -> Result<Control> {
        let kept = config.control.as_deref().unwrap_or(file);
        Plan::of(config, kept)?.open_control().await
    }

    /// The control shard is opened once, also where it keeps records.
    pub fn opened_of(&self, plan: &Plan, name: &ShardName) -> Option<Arc<Metered>> {
        let is_it = self.file == plan.file && self.shard == *name;
        is_it.then(|| self.engine.clone())
    }
}

/// Opens every shard of the layout and of the one that is moved to, and those that were added, and routes over them.
pub async fn open(config: &Config, file: &Path) -> Result<Shards> {
    mark_directory(config, file)?;
    let deployment = Arc::new(Deployment::open(config, file).await?);
    deployment.settle_map().await?;
    let mut engines = BTreeMap::new();
    for plan in &deployment.plans {
        for name in plan.shards.keys() {
            engines.insert(plan.called(name), deployment.open_one(plan, name).await?);
        }
    }
    deployment.check_mark()?;
    let failed = deployment.open_added(&mut engines).await?;
    let view = match deployment.reach() {
        Reach::ThisProcess => MapView::ThisProcess,
        Reach::AnyProcess => MapView::Lease {
            process: config.process(),
        },
    };
    deployment.check_moves(&engines).await?;
    let Archiving { histories, sources } = deployment.archiving(&engines)?;
    let layouts: Vec<&Layout> = deployment.plans.iter().map(|plan| &plan.layout).collect();
    let policies = Policies::of(layouts);
    let store = deployment.control.store.clone();
    let directory = deployment.uses_directory().then(|| config.data.clone());
    let layouts = deployment.layouts()?.map(Arc::new);
    let shards = Shards::route(store, engines, config.router.clone(), view).await?;
    let (router, open) = (shards.router.clone(), shards.engines.clone());
    let late = LateShards::new(deployment, router, open, failed, histories.clone());
    Ok(Shards {
        policies,
        late: Some(late),
        directory,
        layouts,
        histories,
        history_sources: sources,
        ..shards
    })
}

/// Opens the control shard alone, to look at what stands there.
pub async fn open_control(config: &Config, file: &Path) -> Result<Arc<dyn ControlStore>> {
    Ok(Control::open(config, file).await?.store)
}

/// Opens the control shard and those.
pub async fn open_between(
    config: &Config,
    file: &Path,
    between: &[&ShardName],
) -> Result<(Arc<dyn ControlStore>, BTreeMap<ShardName, Arc<dyn Engine>>)> {
    let deployment = Deployment::open(config, file).await?;
    let known = deployment.all_names();
    for name in between {
        if !known.contains(*name) {
            let all: Vec<&str> = known.iter().map(ShardName::as_str).collect();
            bail!(
                "{} has no shard {name}, it has {}: add it with caravan shard add",
                file.display(),
                all.join(", ")
            );
        }
    }
    let asked = |name: &ShardName| between.contains(&name);
    let engines = deployment.open_some(asked).await?;
    Ok((deployment.control.store, engines))
}

/// Opens every shard of both layouts, and leaves the map as it is.
pub async fn open_both(config: &Config, file: &Path) -> Result<BothLayouts> {
    let deployment = Deployment::open(config, file).await?;
    ensure!(
        deployment.plans.len() == 2,
        "nobody says where the collections are to go: name a layout with --toward FILE"
    );
    let Some(map) = deployment.control.map.clone() else {
        bail!("there is no map yet: serve {} first", file.display());
    };
    deployment.settle_map().await?;
    // One that was added and has no keys has no part in this, and may be away.
    let in_files = deployment.names();
    let named = map.shards();
    let asked = |name: &ShardName| in_files.contains(name) || named.contains(name);
    let engines = deployment.open_some(asked).await?;
    let Some(layouts) = deployment.layouts()? else {
        bail!("there are two layouts, and one of them was lost: report this");
    };
    Ok(BothLayouts {
        control: deployment.control.store,
        engines,
        layouts: Arc::new(layouts),
    })
}

/// Whether the data directory has a part in this: as a layout, or for the map. Opens nothing.
pub fn uses_directory(config: &Config) -> Result<bool> {
    let files = [Some(config.here()), config.toward.as_deref()];
    for file in files.into_iter().flatten() {
        if Plan::of(config, file)?.has_folders() {
            return Ok(true);
        }
    }
    keeps_map_in_directory(config)
}

/// Whether the map is in the data directory. Opens nothing.
pub fn keeps_map_in_directory(config: &Config) -> Result<bool> {
    let kept = config.control.as_deref().unwrap_or(config.here());
    Plan::of(config, kept)?.keeps_map_in_folder()
}

/// A directory whose folders are called by its mark has one before they are named.
fn mark_directory(config: &Config, file: &Path) -> Result<()> {
    if config.is_directory_alone() || keeps_map_in_directory(config)? {
        return Ok(());
    }
    let files = [Some(file), config.toward.as_deref()];
    for file in files.into_iter().flatten() {
        if Plan::of(config, file)?.has_folders() {
            Mark::read_or_make(&config.data, &RealWorld::new())?;
        }
    }
    Ok(())
}
