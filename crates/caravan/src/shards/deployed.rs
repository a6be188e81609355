//! Shards where a layout file wants them: MongoDB, Cassandra, or folders of this machine.
//!
//! The layout says which shards there are and what they keep, the settings say where
//! they are. Map and leases stand on the control shard, see [`Control`]; the map is made
//! from the layout when there is none.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use engine_api::{ControlStore, Engine, RealWorld, World};
use engine_cassandra::{CassandraConfig, CassandraEngine, Credentials, Keyspace};
use engine_mongo::{MongoConfig, MongoEngine};
use layout::consistency::Replication;
use layout::{Collection, EngineDeclaration, EngineKind, History, Layout};
use router::{CollectionMap, Cut, KeeperError, Map, MapKeeper, MapView, RangeStart, ShardName};
use shop_service::{OrderHistory, Policies};

use super::{Opened, Shards, embedded};
use crate::config::Config;
use crate::layout_command;
use crate::metered::Metered;

const CASSANDRA_SCHEME: &str = "cassandra://";
const CASSANDRA_PORT: u16 = 9042;

/// The journal has to reach back over it, and marks are kept for longer.
const ARCHIVE_AFTER_MS_MAX: u64 = 600_000;

/// Opens every shard of the layout and routes over them.
pub async fn open(config: &Config, file: &Path) -> Result<Shards> {
    let plan = Plan::of(config, file)?;
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
    let view = match control.reach {
        Reach::ThisProcess => MapView::ThisProcess,
        Reach::AnyProcess => MapView::Lease {
            process: config.process(),
        },
    };
    let history = history(config, &plan.layout, &engines)?;
    let shards = Shards::route(store, engines, history, config.router.clone(), view).await?;
    Ok(Shards {
        policies: Policies::of([&plan.layout]),
        ..shards
    })
}

/// Opens the control shard alone, to look at what stands there.
pub async fn open_control(config: &Config, file: &Path) -> Result<Arc<dyn ControlStore>> {
    let plan = Plan::of(config, file)?;
    let control = plan.control()?;
    let engine = &plan.shards[&control.shard];
    let opened = plan.open(&control.shard, engine).await?;
    opened
        .control
        .with_context(|| format!("shard {} cannot keep the map", control.shard))
}

/// Opens the control shard and those two.
pub async fn open_between(
    config: &Config,
    file: &Path,
    between: [&ShardName; 2],
) -> Result<(Arc<dyn ControlStore>, BTreeMap<ShardName, Arc<dyn Engine>>)> {
    let plan = Plan::of(config, file)?;
    let control = plan.control()?;
    for name in between {
        let known: Vec<&str> = plan.shards.keys().map(ShardName::as_str).collect();
        ensure!(
            plan.shards.contains_key(name),
            "{} has no shard {name}, it has {}",
            file.display(),
            known.join(", ")
        );
    }
    let (mut engines, mut store) = (BTreeMap::new(), None);
    for (name, engine) in &plan.shards {
        let (keeps_map, asked) = (*name == control.shard, between.contains(&name));
        if !keeps_map && !asked {
            continue;
        }
        let opened = plan.open(name, engine).await?;
        if keeps_map {
            store = opened.control;
        }
        if asked {
            engines.insert(name.clone(), opened.engine as Arc<dyn Engine>);
        }
    }
    let store = store.with_context(|| format!("shard {} cannot keep the map", control.shard))?;
    Ok((store, engines))
}

/// The shards of a layout, and where they are.
struct Plan<'a> {
    config: &'a Config,
    file: &'a Path,
    layout: Layout,
    /// Each with the layout's engine.
    shards: BTreeMap<ShardName, String>,
    addresses: BTreeMap<&'a str, &'a str>,
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

impl<'a> Plan<'a> {
    fn of(config: &'a Config, file: &'a Path) -> Result<Plan<'a>> {
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
        Ok(Plan {
            config,
            file,
            layout,
            shards,
            addresses,
        })
    }

    /// A folder if there is one, otherwise the first shard on MongoDB.
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

    async fn open(&self, name: &ShardName, engine: &str) -> Result<Opened> {
        let declared = &self.layout.engines[engine];
        let told = self.addresses.get(name.as_str());
        let address = match told
            .map(ToString::to_string)
            .or_else(|| of_file(declared, engine, name))
        {
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
        place.open(declared, address.as_deref(), self.config).await
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

/// `[cassandra://[user:password@]]host:port,host:port[/?replication=DATACENTRE:COPIES,…]`
#[derive(Clone)]
struct CassandraAddress {
    contact_points: Vec<SocketAddr>,
    credentials: Option<Credentials>,
    /// Copies in each datacentre instead of the layout's: for clusters that have others.
    replication: Option<Replication>,
}

impl CassandraAddress {
    fn parse(text: &str) -> Result<CassandraAddress> {
        let rest = text.strip_prefix(CASSANDRA_SCHEME).unwrap_or(text);
        // First, whatever it has in it: what is left may be quoted in an error.
        let (credentials, rest) = match rest.rsplit_once('@') {
            Some((credentials, rest)) => (Some(credentials), rest),
            None => (None, rest),
        };
        let (hosts, options) = rest.split_once("/?").unwrap_or((rest, ""));
        let credentials = credentials
            .map(|both| {
                let (user, password) = both
                    .split_once(':')
                    .context("write user:password before the @")?;
                anyhow::Ok(Credentials {
                    user: user.to_owned(),
                    password: password.to_owned(),
                })
            })
            .transpose()?;
        let mut contact_points = Vec::new();
        for host in hosts.split(',').map(str::trim) {
            let port = if host.contains(':') { "" } else { ":9042" };
            let found = format!("{host}{port}").to_socket_addrs().map_err(|error| {
                anyhow!("{host:?} is no address of a server ({error}): write host:{CASSANDRA_PORT}")
            })?;
            contact_points.extend(found);
        }
        let replication = match options.split_once('=') {
            Some(("replication", copies)) => Some(replication(copies)?),
            _ if options.is_empty() => None,
            _ => bail!("{options:?} is not understood: only replication=DATACENTRE:COPIES is"),
        };
        Ok(CassandraAddress {
            contact_points,
            credentials,
            replication,
        })
    }
}

fn replication(text: &str) -> Result<Replication> {
    let copies = |pair: &str| {
        let (datacentre, copies) = pair.split_once(':')?;
        Some((datacentre.to_owned(), copies.parse().ok()?))
    };
    let all: Option<Replication> = text.split(',').map(copies).collect();
    all.with_context(|| format!("{text:?} is no replication: write DATACENTRE:COPIES,…"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_cassandra_has_hosts_and_may_have_a_user_and_replication() {
        let address = CassandraAddress::parse("127.0.0.1,127.0.0.2:9043").unwrap();
        let points: Vec<String> = address
            .contact_points
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(points, ["127.0.0.1:9042", "127.0.0.2:9043"]);
        assert!(address.credentials.is_none() && address.replication.is_none());
        let address =
            CassandraAddress::parse("cassandra://me:p@ss@127.0.0.1:1/?replication=near:1,far:2")
                .unwrap();
        let credentials = address.credentials.unwrap();
        assert_eq!((&*credentials.user, &*credentials.password), ("me", "p@ss"));
        let copies = [("near".to_owned(), 1), ("far".to_owned(), 2)];
        assert_eq!(address.replication, Some(Replication::from(copies)));
        let address = CassandraAddress::parse("me:p/?ss@127.0.0.1:1").unwrap();
        assert_eq!(address.credentials.unwrap().password, "p/?ss");
    }

    #[test]
    fn what_is_no_address_says_what_to_write() {
        for (text, said) in [
            ("127.0.0.1:port", "write host:9042"),
            ("me@127.0.0.1", "user:password"),
            ("127.0.0.1/?replication=near", "DATACENTRE:COPIES"),
            ("127.0.0.1/?copies=1", "only replication="),
        ] {
            let error = CassandraAddress::parse(text).err().unwrap().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
