//! Shards where a layout file wants them: MongoDB, Cassandra, or folders of this machine.
//!
//! The layout says which shards there are and what they keep, the settings say where
//! they are. Map and leases stand on the control shard, see [`Control`]; the map is made
//! from the layout when there is none.

mod address;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use engine_api::{ControlStore, Engine, RealWorld, World};
use engine_cassandra::{CassandraConfig, CassandraEngine, Keyspace};
use engine_mongo::{MongoConfig, MongoEngine};
use layout::{Collection, EngineDeclaration, EngineKind, History, Layout};
use router::{CollectionMap, Cut, KeeperError, Map, MapKeeper, MapView, RangeStart, ShardName};
use shop_service::{OrderHistory, Policies};

use super::{LateShards, Listed, Opened, Roster, Shards, embedded};
use crate::config::Config;
use crate::layout_command;
use crate::metered::Metered;
use crate::secrets;
use address::CassandraAddress;

pub use address::Spot;

/// The journal has to reach back over it, and marks are kept for longer.
const ARCHIVE_AFTER_MS_MAX: u64 = 600_000;

/// Opens every shard of the layout, and those that were added, and routes over them.
pub async fn open(config: &Config, file: &Path) -> Result<Shards> {
    let plan = Arc::new(Plan::of(config, file)?);
    let control = plan.control()?;
    let mut engines = BTreeMap::new();
    let mut store = None;
    for (name, engine) in &plan.shards {
        let opened = plan.open(name, engine).await?;
        if *name == control.shard {
            store = opened.control;
        }
        engines.insert(name.clone(), opened.engine);
    }
    let store = store.with_context(|| format!("shard {} cannot keep the map", control.shard))?;
    settle_map(&plan.layout, &store, file).await?;
    let failed = plan.open_added(&store, &mut engines).await?;
    let view = match control.reach {
        Reach::ThisProcess => MapView::ThisProcess,
        Reach::AnyProcess => MapView::Lease {
            process: config.process(),
        },
    };
    let history = history(config, &plan.layout, &engines)?;
    let policies = Policies::of([&plan.layout]);
    let shards = Shards::route(store, engines, history, config.router.clone(), view).await?;
    let (control, router) = (shards.control.clone(), shards.router.clone());
    let late = LateShards::new(plan, control, router, shards.engines.clone(), failed);
    Ok(Shards {
        policies,
        late: Some(late),
        ..shards
    })
}

/// Opens the control shard alone, to look at what stands there.
pub async fn open_control(config: &Config, file: &Path) -> Result<Arc<dyn ControlStore>> {
    Ok(Plan::of(config, file)?.open_control().await?.1)
}

/// Opens the control shard and those.
pub async fn open_between(
    config: &Config,
    file: &Path,
    between: &[&ShardName],
) -> Result<(Arc<dyn ControlStore>, BTreeMap<ShardName, Arc<dyn Engine>>)> {
    let plan = Plan::of(config, file)?;
    let (keeper, store) = plan.open_control().await?;
    let roster = Roster::load(store.as_ref()).await?;
    let mut engines: BTreeMap<ShardName, Arc<dyn Engine>> = BTreeMap::new();
    for name in between {
        let engine = match (plan.shards.get(*name), roster.shards().get(*name)) {
            _ if **name == plan.control()?.shard => keeper.clone(),
            (Some(engine), _) => plan.open(name, engine).await?.engine,
            (None, Some(listed)) => plan.open_listed(name, listed).await?.engine,
            (None, None) => {
                let known = plan.shards.keys().chain(roster.shards().keys());
                let known: Vec<&str> = known.map(ShardName::as_str).collect();
                bail!(
                    "{} has no shard {name}, it has {}: add it with caravan shard add",
                    file.display(),
                    known.join(", ")
                );
            }
        };
        engines.insert((*name).clone(), engine);
    }
    Ok((store, engines))
}

/// The shards of a layout, and where they are.
#[derive(Debug)]
pub struct Plan {
    config: Config,
    file: PathBuf,
    layout: Layout,
    /// Of the file, each with the layout's engine.
    shards: BTreeMap<ShardName, String>,
    addresses: BTreeMap<String, String>,
}

/// The shard that keeps map and leases: decision 11.
struct Control {
    shard: ShardName,
    reach: Reach,
}

/// Who can serve what the control shard says.
enum Reach {
    /// A folder is among the shards, and its lock lets one process in.
    ThisProcess,
    AnyProcess,
}

impl Plan {
    pub fn of(config: &Config, file: &Path) -> Result<Plan> {
        let layout = layout_command::usable(file)?;
        let shards = shards_of(&layout)?;
        let addresses = config.addresses.by_shard()?;
        let unknown = addresses
            .keys()
            .find(|told| !shards.keys().any(|name| name.as_str() == **told));
        if let Some(unknown) = unknown {
            let known: Vec<&str> = shards.keys().map(ShardName::as_str).collect();
            bail!(
                "--address {unknown}: {} has no such shard, it has {}",
                file.display(),
                known.join(", ")
            );
        }
        let owned = |(name, address): (&str, &str)| (name.to_owned(), address.to_owned());
        let addresses = addresses.into_iter().map(owned).collect();
        Ok(Plan {
            config: config.clone(),
            file: file.to_owned(),
            layout,
            shards,
            addresses,
        })
    }

    /// Of the layout's file, each with its engine.
    pub fn shards(&self) -> &BTreeMap<ShardName, String> {
        &self.shards
    }

    /// Whether the layout keeps the live records of the collection on that engine.
    pub fn serves(&self, engine: &str, collection: Collection) -> bool {
        let kept = self.layout.collections.get(&collection);
        kept.is_some_and(|kept| kept.live.engine == engine)
    }

    /// The shard that keeps the history of orders, if the layout has one.
    pub fn history_shard(&self) -> Result<Option<ShardName>> {
        Ok(history_of(&self.layout)?.map(|(_, name)| name))
    }

    /// Where a shard of the file is, if somebody says so.
    pub fn address(&self, name: &ShardName) -> Option<String> {
        let engine = self.shards.get(name)?;
        let told = self.addresses.get(name.as_str()).cloned();
        told.or_else(|| of_file(&self.layout.engines[engine], engine, name))
    }

    /// The kind of an engine on servers, by the layout's name for it.
    pub fn kind(&self, engine: &str) -> Result<EngineKind> {
        let known: Vec<&str> = self.layout.engines.keys().map(String::as_str).collect();
        let declared = self.layout.engines.get(engine).with_context(|| {
            let (file, known) = (self.file.display(), known.join(", "));
            format!("{file} has no engine {engine}, it has {known}")
        })?;
        match declared.kind {
            EngineKind::Mongo | EngineKind::Cassandra => Ok(declared.kind),
            EngineKind::Embedded | EngineKind::Memory => bail!(
                "{engine} is in this process: only shards on servers can be added to a layout"
            ),
        }
    }

    /// The shard that keeps the map, and what it keeps.
    pub async fn open_control(&self) -> Result<(Arc<dyn Engine>, Arc<dyn ControlStore>)> {
        let control = self.control()?;
        let engine = &self.shards[&control.shard];
        let opened = self.open(&control.shard, engine).await?;
        let store = opened.control;
        let store =
            store.with_context(|| format!("shard {} cannot keep the map", control.shard))?;
        Ok((opened.engine, store))
    }

    /// A folder if there is one, otherwise the first shard on MongoDB. Never one that was added: it would be another
    /// one afterwards, and the map stay behind.
    fn control(&self) -> Result<Control> {
        let first_of = |kind: EngineKind| {
            let mut shards = self.shards.iter();
            let found = shards.find(|(_, engine)| self.layout.engines[*engine].kind == kind);
            found.map(|(name, _)| name.clone())
        };
        let (shard, reach) = match first_of(EngineKind::Embedded) {
            Some(shard) => (Some(shard), Reach::ThisProcess),
            None => (first_of(EngineKind::Mongo), Reach::AnyProcess),
        };
        let shard = shard.with_context(|| {
            format!(
                "{} keeps everything on engines that cannot keep the map: put one collection on mongo or embedded",
                self.file.display()
            )
        })?;
        Ok(Control { shard, reach })
    }

    /// Adds those of the roster. What cannot be opened and has no keys is told and left for later.
    async fn open_added(
        &self,
        store: &Arc<dyn ControlStore>,
        engines: &mut BTreeMap<ShardName, Arc<Metered>>,
    ) -> Result<BTreeMap<ShardName, String>> {
        let mut failed = BTreeMap::new();
        let roster = Roster::load(store.as_ref()).await?;
        let map = MapKeeper::new(store.clone()).load().await?;
        for (name, listed) in roster.shards() {
            if engines.contains_key(name) {
                continue;
            }
            let has_keys = map.as_ref().is_some_and(|map| map.shards().contains(name));
            match self.open_listed(name, listed).await {
                Ok(opened) => {
                    engines.insert(name.clone(), opened.engine);
                }
                Err(error) if has_keys => return Err(error),
                Err(error) => {
                    let error = error.to_string();
                    tracing::warn!(
                        shard = name.as_str(),
                        error,
                        "a shard that was added cannot be opened"
                    );
                    failed.insert(name.clone(), error);
                }
            }
        }
        Ok(failed)
    }

    /// A shard of the roster, with the user and password that this process has for the same engine.
    pub async fn open_listed(&self, name: &ShardName, listed: &Listed) -> Result<Opened> {
        let mut others = self.shards.iter().filter(|(_, of)| **of == listed.engine);
        let credentials = others.find_map(|(other, _)| {
            let address = self.address(other)?;
            secrets::credentials(&address).map(str::to_owned)
        });
        let address = secrets::with_credentials(&listed.address, credentials.as_deref());
        self.open_at(name, &listed.engine, &address).await
    }

    /// A shard on servers; what it needs there is made.
    pub async fn open_at(&self, name: &ShardName, engine: &str, address: &str) -> Result<Opened> {
        self.kind(engine)?;
        let place = Place {
            layout: &self.layout,
            engine,
            name,
        };
        let declared = &self.layout.engines[engine];
        place.open(declared, Some(address), &self.config).await
    }

    async fn open(&self, name: &ShardName, engine: &str) -> Result<Opened> {
        let declared = &self.layout.engines[engine];
        let address = match self.address(name) {
            Some(address) => Some(address),
            None if declared.kind == EngineKind::Embedded => None,
            None => bail!(
                "{} keeps records on {name}, and nobody says where that is: give --address {name}={}",
                self.file.display(),
                example(declared.kind)
            ),
        };
        let place = Place {
            layout: &self.layout,
            engine,
            name,
        };
        place.open(declared, address.as_deref(), &self.config).await
    }
}

/// Where finished orders go, if the layout keeps them apart.
fn history(
    config: &Config,
    layout: &Layout,
    engines: &BTreeMap<ShardName, Arc<Metered>>,
) -> Result<Option<OrderHistory>> {
    let Some((declared, name)) = history_of(layout)? else {
        return Ok(None);
    };
    // An order goes over when no request can be older than its last change, on
    // whatever clock; two may differ by the limit either way.
    let (after, clocks) = (
        config.shop.archive_after_ms,
        config.router.clock_ahead_ms_max,
    );
    ensure!(
        (2 * clocks..=ARCHIVE_AFTER_MS_MAX).contains(&after),
        "shop.archive_after_ms is {after}: choose {} (twice router.clock_ahead_ms_max) to {ARCHIVE_AFTER_MS_MAX}",
        2 * clocks
    );
    let engine = engines[&name].clone();
    Ok(Some(OrderHistory::new(name, engine, &declared.statuses)?))
}

/// The history of orders, and the shard that keeps it: one that has live records of
/// others on the same engine, or one of its own.
fn history_of(layout: &Layout) -> Result<Option<(&History, ShardName)>> {
    let other = layout
        .collections
        .values()
        .find(|it| it.collection != Collection::Orders && it.history.is_some());
    if let Some(other) = other {
        bail!(
            "{} have a history: only orders may have one",
            other.collection
        );
    }
    let orders = layout.collection(Collection::Orders);
    let Some(history) = &orders.history else {
        return Ok(None);
    };
    let engine = &history.store.engine;
    ensure!(
        *engine != orders.live.engine,
        "orders and their history are both on {engine}: put the history on another engine"
    );
    let shards = live_shards(layout)?;
    let mut named = shards.iter().filter(|(_, of)| *of == engine);
    let name = match (named.next(), named.next()) {
        (None, _) => shard_name(engine)?,
        (Some((name, _)), None) => name.clone(),
        (Some(_), Some(_)) => bail!(
            "{engine} has several shards, and nothing says which keeps the history: declare an engine of its own for it"
        ),
    };
    Ok(Some((history, name)))
}

/// The map that stands must be of this layout: another one is a move, not a start.
async fn settle_map(layout: &Layout, control: &Arc<dyn ControlStore>, file: &Path) -> Result<()> {
    let keeper = MapKeeper::new(control.clone());
    let Some(map) = keeper.load().await? else {
        let reason = format!("the first map, of layout {}", layout.name);
        let first = first_map(layout)?.noted(RealWorld::new().now(), &reason);
        return match keeper.publish(&first).await {
            // The answer was lost, or someone was first: the standing map decides.
            Ok(()) | Err(KeeperError::Lost { .. } | KeeperError::OutcomeUnknown { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        };
    };
    for collection in layout.collections.keys() {
        let standing = &map.collection(*collection)?.layout;
        ensure!(
            *standing == layout.name,
            "{collection} are kept by layout {standing}, and {} is {}: start with the former, and move them",
            file.display(),
            layout.name
        );
    }
    Ok(())
}

/// All shards of the layout, each with its engine. No request is routed to the one
/// that keeps nothing but a history.
fn shards_of(layout: &Layout) -> Result<BTreeMap<ShardName, String>> {
    let mut shards = live_shards(layout)?;
    if let Some((history, name)) = history_of(layout)? {
        shards.insert(name, history.store.engine.clone());
    }
    Ok(shards)
}

fn live_shards(layout: &Layout) -> Result<BTreeMap<ShardName, String>> {
    let mut shards = BTreeMap::new();
    for collection in layout.collections.values() {
        let engine = &collection.live.engine;
        for name in collection.cut.shards() {
            let name = shard_name(name)?;
            let other = shards
                .insert(name.clone(), engine.clone())
                .filter(|other| other != engine);
            if let Some(other) = other {
                bail!("shard {name} is of engine {engine} and of {other}: name them differently");
            }
        }
    }
    Ok(shards)
}

fn first_map(layout: &Layout) -> Result<Map> {
    let mut collections = BTreeMap::new();
    for (collection, declared) in &layout.collections {
        let cut = match &declared.cut {
            layout::Cut::Slots { initial_shards } => {
                let names: Result<Vec<ShardName>> =
                    initial_shards.iter().map(|name| shard_name(name)).collect();
                Cut::even_slots(&names?)
            }
            layout::Cut::Ranges { ranges, .. } => {
                let start = |range: &layout::RangeCut| -> Result<RangeStart> {
                    Ok(RangeStart {
                        from: range.from.clone(),
                        shard: shard_name(&range.shard)?,
                    })
                };
                Cut::Ranges(ranges.iter().map(start).collect::<Result<_>>()?)
            }
        };
        let mut map = CollectionMap::cut_by(&layout.name, declared.shard_key.clone(), cut);
        map.buckets = declared
            .live
            .initial_buckets
            .iter()
            .map(|(table, count)| (table.to_owned(), count))
            .collect();
        collections.insert(*collection, map);
    }
    Ok(Map::first(collections))
}

/// How long one attempt may look for a server: all attempts of the router together end
/// before the request does, so that a lost server is told as lost and not as slow.
fn patience_ms(config: &Config) -> u64 {
    let attempts = u64::from(config.router.unavailable_retries_max) + 1;
    (config.http.request_ms_max / (attempts + 1)).max(1)
}

/// One shard to be opened.
struct Place<'a> {
    layout: &'a Layout,
    engine: &'a str,
    name: &'a ShardName,
}

impl Place<'_> {
    async fn open(
        &self,
        declared: &EngineDeclaration,
        address: Option<&str>,
        config: &Config,
    ) -> Result<Opened> {
        let opened = match declared.kind {
            EngineKind::Embedded => embedded::open(&config.data, self.name, self.layout),
            EngineKind::Mongo => {
                let uri = address.unwrap_or_default();
                self.open_mongo(declared, uri, patience_ms(config)).await
            }
            EngineKind::Cassandra => self.open_cassandra(address.unwrap_or_default()).await,
            EngineKind::Memory => bail!("shard {}: memory is for tests", self.name),
        };
        opened.map_err(|error| anyhow!("shard {}: {error}", self.name))
    }

    async fn open_mongo(
        &self,
        declared: &EngineDeclaration,
        uri: &str,
        patience_ms: u64,
    ) -> Result<Opened> {
        let database = declared
            .keyspace
            .as_deref()
            .unwrap_or(layout::engine::KEYSPACE);
        let config = MongoConfig {
            selection_ms_max: patience_ms,
            ..MongoConfig::of_layout(self.layout, self.engine, uri, database)
        };
        let engine = Arc::new(MongoEngine::open(config).await?);
        Ok(Opened {
            engine: Arc::new(Metered::new(engine.clone())),
            control: Some(engine),
        })
    }

    async fn open_cassandra(&self, address: &str) -> Result<Opened> {
        let mut keyspace = Keyspace::of(self.layout, self.engine)?;
        let address = CassandraAddress::parse(address)?;
        if let Some(name) = address.keyspace {
            keyspace.name = name;
        }
        if let Some(replication) = address.replication {
            keyspace.replication = replication;
        }
        let config = CassandraConfig {
            credentials: address.credentials,
            local_datacentre: self.layout.engines[self.engine].local_datacentre.clone(),
            ..CassandraConfig::new(address.contact_points, keyspace)
        };
        let engine = CassandraEngine::open(config).await?;
        for warning in engine.warnings() {
            tracing::warn!(shard = %self.name, "{}", warning.remedy());
        }
        Ok(Opened {
            engine: Arc::new(Metered::new(Arc::new(engine) as Arc<dyn Engine>)),
            control: None,
        })
    }
}

/// Where the layout's file itself says that the shard is.
fn of_file(declared: &EngineDeclaration, engine: &str, name: &ShardName) -> Option<String> {
    let listed = match declared.shards.get(name.as_str()) {
        Some(listed) => listed,
        None if name.as_str() == engine => &declared.addresses,
        None => return None,
    };
    (!listed.is_empty()).then(|| listed.join(","))
}

const fn example(kind: EngineKind) -> &'static str {
    match kind {
        EngineKind::Mongo => "mongodb://HOST:27017/?replicaSet=NAME",
        EngineKind::Cassandra => "HOST:9042,HOST:9042",
        EngineKind::Embedded | EngineKind::Memory => "DIRECTORY",
    }
}

fn shard_name(name: &str) -> Result<ShardName> {
    Ok(ShardName::new(name)?)
}
