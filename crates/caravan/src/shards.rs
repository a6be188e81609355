//! The shards that this process serves, and the router over them: folders of one data
//! directory, or what a layout file names.
//!
//! ```text
//! caravan-data/
//!   shard-1/   an embedded engine; its control store keeps the map
//!   shard-2/   …
//! ```
//!
//! The map says which shards there are. It is published last, when every shard
//! it names has been made, so that a crash on the way leaves a directory that
//! the next start completes, and a shard that is missing later is known to be lost.
//! A shard that was added later has no keys, and is in no map, until a move brings it some.

mod deployed;
mod deployment;
mod embedded;
mod growing;
mod late;
mod mark;
mod roster;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use engine_api::{ControlStore, Engine, RealWorld, World, Writer};
use engine_embedded::EmbeddedEngine;
use layout::{Collection, Layout};
use router::{
    CollectionMap, Cut, KeeperError, Limits, Map, MapKeeper, MapView, Router, RouterConfig,
    ShardName,
};
use shop_service::{OrderHistory, Policies, Settings, Shop, ShopConfig};
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::faults;
use crate::metered::Metered;

pub use deployed::{Plan, Spot, keeps_map_in_directory, uses_directory};
pub use deployment::{Deployment, Named, plans};
pub use growing::{Ground, OpenShards};
pub use late::{LOOK_EVERY as LATE_LOOK_EVERY, LateShards};
pub use roster::{Listed, Roster};

/// Shards in one process: each has threads, files and a cache of its own.
pub const SHARDS_MAX: u16 = 16;

/// The one process of an embedded directory needs no other number.
const WRITER: Writer = Writer::numbered(0);

/// Open shards. They are closed when the last who holds one of these is gone.
#[derive(Debug)]
pub struct Shards {
    pub router: Arc<Router>,
    pub engines: OpenShards,
    /// Where more of them can be made while they serve: in a data directory.
    pub ground: Option<Ground>,
    /// Looks for shards that were added after this process began, where a layout has them on servers.
    pub late: Option<LateShards>,
    /// Where the map stands.
    pub control: Arc<dyn ControlStore>,
    /// The data directory that this process has, as a whole or for some shards.
    pub directory: Option<PathBuf>,
    /// This layout and the one that it moves to, if it does.
    pub layouts: Option<Arc<Layouts>>,
    /// Where finished orders go, in layouts that keep them apart.
    pub histories: Vec<OrderHistory>,
    /// The shards that finished orders come from, each with the layout whose history they go to.
    history_sources: Vec<(ShardName, String)>,
    /// How old the layout lets answers be.
    policies: Policies,
    /// Keeps the lease, where other processes may serve the same shards.
    keeping: Option<JoinHandle<()>>,
}

/// What moves of whole collections are judged by.
pub struct BothLayouts {
    pub control: Arc<dyn ControlStore>,
    pub engines: BTreeMap<ShardName, Arc<dyn Engine>>,
    pub layouts: Arc<Layouts>,
}

/// A layout, and the one that its collections move to.
#[derive(Debug)]
pub struct Layouts {
    pub here: Layout,
    pub toward: Layout,
    /// Where the other layout has each collection.
    pub placements: BTreeMap<Collection, CollectionMap>,
    /// The shards that are folders, by the names that the map has for them.
    pub folders: BTreeSet<ShardName>,
    /// The shards that keep finished orders, by their layouts.
    pub histories: BTreeMap<String, ShardName>,
}

/// One shard, and its control store if it has one.
pub struct Opened {
    pub engine: Arc<Metered>,
    control: Option<Arc<dyn ControlStore>>,
}

impl Shards {
    /// What the settings name: a layout's shards, or the data directory alone.
    pub async fn open(config: &Config) -> Result<Shards> {
        match config.is_directory_alone() {
            false => deployed::open(config, config.here()).await,
            true => Shards::open_or_make(&config.data, config.shards, config.router.clone()).await,
        }
    }

    /// Opens the directory, or makes one with `count` shards (1 if not said).
    pub async fn open_or_make(
        directory: &Path,
        count: Option<u16>,
        limits: Limits,
    ) -> Result<Shards> {
        refuse_foreign(directory)?;
        let first = open_shard(directory, &shard_name(1))?;
        let keeper = MapKeeper::new(first.clone());
        match keeper.load().await? {
            Some(map) => {
                let shards = Shards::over_map(directory, first, &map, limits).await?;
                check_count(directory, shards.engines.all().len(), count)?;
                Ok(shards)
            }
            None => Shards::make(directory, first, count.unwrap_or(1), limits).await,
        }
    }

    /// The control store of what the settings name, of a layout's shards alone that one.
    pub async fn control(config: &Config) -> Result<Arc<dyn ControlStore>> {
        match config.is_directory_alone() {
            false => deployed::open_control(config, config.here()).await,
            true => Ok(existing(&config.data).await?.0),
        }
    }

    /// The control store and some shards of a layout, to judge moves between them; no lease is taken.
    pub async fn for_a_move(
        config: &Config,
        between: &[&ShardName],
    ) -> Result<(Arc<dyn ControlStore>, BTreeMap<ShardName, Arc<dyn Engine>>)> {
        deployed::open_between(config, config.here(), between).await
    }

    /// Everything of the layout and of the one that it moves to, to judge moves of whole collections; no lease is taken.
    pub async fn both_layouts(config: &Config) -> Result<BothLayouts> {
        deployed::open_both(config, config.here()).await
    }

    /// Opens a directory that has a map already; makes nothing.
    pub async fn open_existing(directory: &Path) -> Result<Shards> {
        let (engine, map) = existing(directory).await?;
        Shards::over_map(directory, engine, &map, Limits::default()).await
    }

    /// The shards that the map names, none of them made anew, and those that were added and have no keys.
    async fn over_map(
        directory: &Path,
        first: Arc<EmbeddedEngine>,
        map: &Map,
        limits: Limits,
    ) -> Result<Shards> {
        refuse_others(directory, map)?;
        refuse_lost(directory, map)?;
        let mut engines = BTreeMap::from([(shard_name(1), first.clone())]);
        for name in map.shards() {
            if engines.contains_key(name) {
                continue;
            }
            engines.insert(name.clone(), open_shard(directory, name)?);
        }
        for number in growing::found(directory)? {
            let name = shard_name(number);
            if !engines.contains_key(&name) {
                engines.insert(name.clone(), open_shard(directory, &name)?);
            }
        }
        Shards::route_embedded(directory, first, engines, limits).await
    }

    async fn make(
        directory: &Path,
        first: Arc<EmbeddedEngine>,
        count: u16,
        limits: Limits,
    ) -> Result<Shards> {
        let mut engines = BTreeMap::from([(shard_name(1), first.clone())]);
        for number in 2..=count {
            let name = shard_name(number);
            engines.insert(name.clone(), open_shard(directory, &name)?);
        }
        for (name, engine) in &engines {
            deployment::refuse_second_shop(name, engine.as_ref(), directory).await?;
        }
        let names: Vec<ShardName> = (1..=count).map(shard_name).collect();
        let map = first_map(&names).noted(RealWorld::new().now(), "the first map");
        match MapKeeper::new(first.clone()).publish(&map).await {
            Ok(()) => {}
            // The answer was lost, or someone was first: the standing map decides.
            Err(KeeperError::Lost { .. } | KeeperError::OutcomeUnknown { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Shards::route_embedded(directory, first, engines, limits).await
    }

    async fn route_embedded(
        directory: &Path,
        first: Arc<EmbeddedEngine>,
        engines: BTreeMap<ShardName, Arc<EmbeddedEngine>>,
        limits: Limits,
    ) -> Result<Shards> {
        let metered = |(name, engine)| (name, Arc::new(Metered::embedded(engine)));
        let engines = engines.into_iter().map(metered).collect();
        let mut shards = Shards::route(first, engines, limits, MapView::ThisProcess).await?;
        let (router, open) = (shards.router.clone(), shards.engines.clone());
        shards.ground = Some(Ground::new(directory, router, open));
        shards.directory = Some(directory.to_owned());
        Ok(shards)
    }

    async fn route(
        control: Arc<dyn ControlStore>,
        engines: BTreeMap<ShardName, Arc<Metered>>,
        limits: Limits,
        map_view: MapView,
    ) -> Result<Shards> {
        let shared = matches!(map_view, MapView::Lease { .. });
        let router = Router::open(RouterConfig {
            shards: faults::of_writes(as_engines(&engines))?,
            control: control.clone(),
            world: Arc::new(RealWorld::new()),
            writer: WRITER,
            limits,
            map_view,
        })
        .await?;
        let keeping = shared.then(|| {
            let router = router.clone();
            tokio::spawn(async move { router.keep_lease().await })
        });
        Ok(Shards {
            router,
            engines: OpenShards::new(engines),
            ground: None,
            late: None,
            control,
            directory: None,
            layouts: None,
            histories: Vec::new(),
            history_sources: Vec::new(),
            policies: Policies::default(),
            keeping,
        })
    }

    /// A shop over these shards.
    pub fn shop(&self, world: Arc<dyn World>, settings: Settings) -> Shop {
        let shop = Shop::new(ShopConfig {
            router: self.router.clone(),
            world,
            settings,
        })
        .with_policies(self.policies.clone());
        let histories = self.histories.iter().cloned();
        histories.fold(shop, Shop::with_history)
    }

    /// The shards that finished orders come from, each with the history that they go to.
    pub fn history_sources(&self) -> impl Iterator<Item = (&ShardName, &OrderHistory)> {
        self.history_sources.iter().filter_map(|(shard, layout)| {
            let of_layout = |history: &&OrderHistory| history.layout() == Some(layout);
            Some((shard, self.histories.iter().find(of_layout)?))
        })
    }

    /// Lets the lease go, if there is one. Nothing may be asked of the shards afterwards.
    pub async fn leave(&mut self) {
        let Some(keeping) = self.keeping.take() else {
            return;
        };
        keeping.abort();
        // It may be in the middle of a renewal, which would come after the giving up.
        drop(keeping.await);
        if let Err(error) = self.router.give_up_lease().await {
            tracing::warn!(%error, "the lease could not be given up: it will run out");
        }
    }
}

/// Whether finished orders may come from it.
pub fn keeps_orders(engine: &Metered) -> bool {
    let collections = &engine.capabilities().collections;
    collections.contains(&Collection::Orders)
}

fn as_engines(engines: &BTreeMap<ShardName, Arc<Metered>>) -> BTreeMap<ShardName, Arc<dyn Engine>> {
    let engine = |(name, engine): (&ShardName, &Arc<Metered>)| {
        (name.clone(), engine.clone() as Arc<dyn Engine>)
    };
    engines.iter().map(engine).collect()
}

/// For commands that end: the engines have threads of their own, one is enough for who asks them.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the program cannot start its event loop: check the limits of this user")
}

fn shard_name(number: u16) -> ShardName {
    ShardName::new(format!("shard-{number}")).expect("letters, a dash and digits make a shard name")
}

fn open_shard(directory: &Path, name: &ShardName) -> Result<Arc<EmbeddedEngine>> {
    embedded::engine(directory, name, &layout::embedded())
}

/// Every collection cut into equal runs of slots, so that an order and the
/// stock of its products are on all shards alike.
fn first_map(names: &[ShardName]) -> Map {
    let layout = layout_over(names);
    let of_collection = |collection: Collection| {
        let declared = layout.collection(collection);
        let cut = Cut::even_slots(names);
        let mut map = CollectionMap::cut_by(&layout.name, declared.shard_key.clone(), cut);
        let buckets = declared.live.initial_buckets.iter();
        map.buckets = buckets
            .map(|(table, count)| (table.to_owned(), count))
            .collect();
        (collection, map)
    };
    Map::first(Collection::ALL.into_iter().map(of_collection).collect())
}

fn layout_over(names: &[ShardName]) -> Layout {
    let mut layout = layout::embedded();
    for collection in layout.collections.values_mut() {
        collection.cut = layout::Cut::Slots {
            initial_shards: names.iter().map(ToString::to_string).collect(),
        };
    }
    layout
}

fn check_count(directory: &Path, found: usize, count: Option<u16>) -> Result<()> {
    match count {
        Some(count) if usize::from(count) != found => bail!(
            "{} has {found} shard(s), not {count}: leave --shards out, or choose another directory",
            directory.display()
        ),
        _ => Ok(()),
    }
}

/// The first shard of a directory that was made, and the map that it keeps.
async fn existing(directory: &Path) -> Result<(Arc<EmbeddedEngine>, Arc<Map>)> {
    refuse_unmade(directory)?;
    let shown = directory.display();
    let engine = open_shard(directory, &shard_name(1))?;
    match MapKeeper::new(engine.clone()).load().await? {
        Some(map) => {
            refuse_lost(directory, &map)?;
            Ok((engine, map))
        }
        None => bail!("{shown} has no map yet: complete it with caravan serve --data {shown}"),
    }
}

/// Refuses a directory without a folder that its map names. Opening it would make an empty one.
fn refuse_lost(directory: &Path, map: &Map) -> Result<()> {
    let own = layout::embedded().name;
    let standing = map.collections.values().filter(|it| it.layout == own);
    for name in standing.flat_map(CollectionMap::shards) {
        let path = directory.join(name.as_str());
        ensure!(
            path.is_dir(),
            "the map names shard {name}, but {} is missing: restore it from a copy",
            path.display()
        );
    }
    Ok(())
}

/// Refuses a directory that caravan has not made.
pub fn refuse_unmade(directory: &Path) -> Result<()> {
    let advice = "name one with --data, or make one with caravan serve --sample";
    let first = directory.join(shard_name(1).as_str());
    // An empty folder would be made into a shard by opening it.
    let made = fs::read_dir(first).is_ok_and(|mut all| all.next().is_some());
    let shown = directory.display();
    ensure!(made, "{shown} is no data directory of caravan: {advice}");
    Ok(())
}

/// Refuses a directory that keeps the map of what was moved away from it.
fn refuse_others(directory: &Path, map: &Map) -> Result<()> {
    let own = layout::embedded().name;
    let mut collections = map.collections.iter();
    match collections.find(|(_, standing)| standing.layout != own) {
        Some((collection, standing)) => bail!(
            "{collection} of {} are kept by layout {}: serve with that, as --layout FILE --control embedded, or with --toward FILE while others are still here",
            directory.display(),
            standing.layout
        ),
        None => Ok(()),
    }
}

/// Refuses a directory that someone else uses, before anything is made in it.
fn refuse_foreign(directory: &Path) -> Result<()> {
    let path: PathBuf = directory.to_owned();
    let mut entries = match fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(engine_embedded::OpenError::Io { path, source }.into()),
    };
    let first = shard_name(1);
    // A mark is made before anything else is.
    let is_ours = |name: &std::ffi::OsStr| name.to_str().is_some_and(|it| it == mark::FILE);
    let holds_something =
        entries.any(|entry| !entry.is_ok_and(|entry| is_ours(&entry.file_name())));
    ensure!(
        !holds_something || path.join(first.as_str()).is_dir(),
        "{} holds files but no {first}: choose an empty directory or one made by caravan",
        path.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests;
