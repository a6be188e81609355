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
mod embedded;
mod growing;
mod late;
mod roster;

use std::collections::BTreeMap;
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

pub use deployed::{Plan, Spot};
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
    /// Where finished orders go, if the layout keeps them apart.
    pub history: Option<OrderHistory>,
    /// How old the layout lets answers be.
    policies: Policies,
    /// Keeps the lease, where other processes may serve the same shards.
    keeping: Option<JoinHandle<()>>,
}

/// One shard, and its control store if it has one.
pub struct Opened {
    pub engine: Arc<Metered>,
    control: Option<Arc<dyn ControlStore>>,
}

impl Shards {
    /// What the settings name: a layout's shards, or the data directory alone.
    pub async fn open(config: &Config) -> Result<Shards> {
        match &config.layout {
            Some(file) => deployed::open(config, file).await,
            None => Shards::open_or_make(&config.data, config.shards, config.router.clone()).await,
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
        match &config.layout {
            Some(file) => deployed::open_control(config, file).await,
            None => Ok(Shards::open_existing(&config.data).await?.control),
        }
    }

    /// The control store and some shards of a layout, to judge moves between them; no lease is taken.
    pub async fn for_a_move(
        config: &Config,
        between: &[&ShardName],
    ) -> Result<(Arc<dyn ControlStore>, BTreeMap<ShardName, Arc<dyn Engine>>)> {
        let file = config.layout.as_deref();
        let file = file.context("a move is judged on a layout: name one with --layout FILE")?;
        deployed::open_between(config, file, between).await
    }

    /// Opens a directory that has a map already; makes nothing.
    pub async fn open_existing(directory: &Path) -> Result<Shards> {
        refuse_unmade(directory)?;
        let shown = directory.display();
        let engine = open_shard(directory, &shard_name(1))?;
        let Some(map) = MapKeeper::new(engine.clone()).load().await? else {
            bail!("{shown} has no map yet: complete it with caravan serve --data {shown}");
        };
        Shards::over_map(directory, engine, &map, Limits::default()).await
    }

    /// The shards that the map names, none of them made anew, and those that were added and have no keys.
    async fn over_map(
        directory: &Path,
        first: Arc<EmbeddedEngine>,
        map: &Map,
        limits: Limits,
    ) -> Result<Shards> {
        let mut engines = BTreeMap::from([(shard_name(1), first.clone())]);
        for name in map.shards() {
            if engines.contains_key(name) {
                continue;
            }
            let path = directory.join(name.as_str());
            ensure!(
                path.is_dir(),
                "the map names shard {name}, but {} is missing: restore it from a copy",
                path.display()
            );
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
        let mut shards = Shards::route(first, engines, None, limits, MapView::ThisProcess).await?;
        let (router, open) = (shards.router.clone(), shards.engines.clone());
        shards.ground = Some(Ground::new(directory, router, open));
        Ok(shards)
    }

    async fn route(
        control: Arc<dyn ControlStore>,
        engines: BTreeMap<ShardName, Arc<Metered>>,
        history: Option<OrderHistory>,
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
            history,
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
        match &self.history {
            Some(history) => shop.with_history(history.clone()),
            None => shop,
        }
    }

    /// The shards that finished orders come from; none without a history.
    pub fn history_sources(&self) -> Vec<ShardName> {
        let Some(history) = &self.history else {
            return Vec::new();
        };
        let engines = self.engines.all().into_iter();
        engines
            .filter(|(name, engine)| name != history.shard() && keeps_orders(engine))
            .map(|(name, _)| name)
            .collect()
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

/// Refuses a directory that someone else uses, before anything is made in it.
fn refuse_foreign(directory: &Path) -> Result<()> {
    let path: PathBuf = directory.to_owned();
    let mut entries = match fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(engine_embedded::OpenError::Io { path, source }.into()),
    };
    let first = shard_name(1);
    let holds_something = entries.next().is_some();
    ensure!(
        !holds_something || path.join(first.as_str()).is_dir(),
        "{} holds files but no {first}: choose an empty directory or one made by caravan",
        path.display()
    );
    Ok(())
}
