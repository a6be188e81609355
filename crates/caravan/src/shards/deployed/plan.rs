//! One layout file: its shards, what the map calls them, and where they are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use layout::{Collection, EngineDeclaration, EngineKind, History, Layout};
use router::{CollectionMap, Cut, MapKeeper, RangeStart, ShardName};

use super::super::deployment::check_told;
use super::super::mark::Mark;
use super::super::{Listed, Opened, check_count, growing, layout_over, refuse_foreign};
use super::Control;
use super::place::Place;
use crate::config::{Config, is_directory};
use crate::layout_command;
use crate::secrets;

/// The shards of a layout, and where they are.
#[derive(Debug)]
pub struct Plan {
    config: Config,
    pub file: PathBuf,
    pub layout: Layout,
    /// Of the file, by the layout's own names, each with the layout's engine.
    pub shards: BTreeMap<ShardName, String>,
    /// Those that the map calls otherwise: another layout has the same name for another shard.
    pub called: BTreeMap<ShardName, ShardName>,
    /// Of the data directory, where names of folders have it.
    pub mark: Option<Mark>,
    addresses: BTreeMap<String, String>,
}

impl Plan {
    /// Of the layout with this file, or of the data directory.
    pub fn of(config: &Config, file: &Path) -> Result<Plan> {
        match is_directory(file) {
            true => Plan::with(config, &config.data, directory_layout(config)?),
            false => Plan::with(config, file, layout_command::usable(file)?),
        }
    }

    fn with(config: &Config, file: &Path, layout: Layout) -> Result<Plan> {
        let shards = shards_of(&layout)?;
        let owned = |(name, address): (&str, &str)| (name.to_owned(), address.to_owned());
        let addresses = config.addresses.by_shard()?;
        Ok(Plan {
            config: config.clone(),
            file: file.to_owned(),
            layout,
            shards,
            called: BTreeMap::new(),
            mark: None,
            addresses: addresses.into_iter().map(owned).collect(),
        })
    }

    /// What the map calls a shard of this layout.
    pub fn called(&self, name: &ShardName) -> ShardName {
        self.called.get(name).unwrap_or(name).clone()
    }

    /// The engine of a shard of the file, by what the map calls it.
    pub fn engine_of(&self, called: &ShardName) -> Option<&String> {
        let mut shards = self.shards.iter();
        let found = shards.find(|(name, _)| self.called(name) == *called);
        found.map(|(_, engine)| engine)
    }

    /// Whether a shard of the file is a folder of the data directory.
    pub fn is_folder(&self, name: &ShardName) -> bool {
        let engine = self.shards.get(name);
        engine.is_some_and(|engine| self.layout.engines[engine].kind == EngineKind::Embedded)
    }

    /// The shards that are folders of the data directory, as the map calls them.
    pub fn folders(&self) -> Vec<ShardName> {
        let folders = self.shards.keys().filter(|name| self.is_folder(name));
        folders.map(|name| self.called(name)).collect()
    }

    pub fn has_folders(&self) -> bool {
        self.shards.keys().any(|name| self.is_folder(name))
    }

    /// Whether its control shard is a folder, which lets one process in.
    pub fn keeps_map_in_folder(&self) -> Result<bool> {
        Ok(self.is_folder(self.control_shard()?))
    }

    /// Whether the layout keeps the live records of the collection on that engine.
    pub fn serves(&self, engine: &str, collection: Collection) -> bool {
        let kept = self.layout.collections.get(&collection);
        kept.is_some_and(|kept| kept.live.engine == engine)
    }

    /// The shard that keeps the history of orders, if the layout has one, as the map would call it.
    pub fn history_shard(&self) -> Result<Option<ShardName>> {
        Ok(history_of(&self.layout)?.map(|(_, name)| self.called(&name)))
    }

    /// Where a shard of the file is said to be, under the name that the map has for it or under its own.
    pub fn address(&self, name: &ShardName) -> Option<String> {
        let (called, engine) = (self.called(name), self.shards.get(name)?);
        let prefixed = prefixed(&self.layout, name);
        let told = [called.as_str(), prefixed.as_str(), name.as_str()];
        // Its own name means the other layout's shard, if that has it too.
        let told = &told[..if called == *name { 3 } else { 2 }];
        let told = told.iter().find_map(|name| self.addresses.get(*name));
        told.cloned()
            .or_else(|| of_file(&self.layout.engines[engine], engine, name))
    }

    /// Servers and what they are to keep it in; `None` for a folder, which has the shard's own name.
    pub fn place(&self, name: &ShardName, engine: &str) -> Option<(String, String)> {
        let (_, space) = self.space(engine)?;
        Some((self.address(name)?, space.to_owned()))
    }

    /// What shards of an engine are kept in on their servers.
    pub fn space(&self, engine: &str) -> Option<(EngineKind, &str)> {
        let declared = self.layout.engines.get(engine)?;
        let space = declared.keyspace.as_deref();
        Some((declared.kind, space.unwrap_or(layout::engine::KEYSPACE)))
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

    /// A folder if there is one, otherwise the first shard on MongoDB. Never one that was added: it would be another
    /// one afterwards, and the map stay behind.
    fn control_shard(&self) -> Result<&ShardName> {
        let first_of = |kind: EngineKind| {
            let mut shards = self.shards.iter();
            let found = shards.find(|(_, engine)| self.layout.engines[*engine].kind == kind);
            found.map(|(name, _)| name)
        };
        let shard = first_of(EngineKind::Embedded).or_else(|| first_of(EngineKind::Mongo));
        shard.with_context(|| {
            format!(
                "{} keeps everything on engines that cannot keep the map: put one collection on mongo or embedded",
                self.file.display()
            )
        })
    }

    pub(super) async fn open_control(&self) -> Result<Control> {
        let shard = self.control_shard()?.clone();
        // An address that is nobody's is why one is missing; otherwise it may be of a layout that is not asked here.
        if !self.is_folder(&shard) && self.address(&shard).is_none() {
            check_told(&self.config, std::slice::from_ref(self))?;
        }
        let opened = self.open(&shard, &self.shards[&shard]).await?;
        let store = opened
            .control
            .with_context(|| format!("shard {shard} cannot keep the map"))?;
        Ok(Control {
            file: self.file.clone(),
            is_folder: self.is_folder(&shard),
            shard,
            map: MapKeeper::new(store.clone()).load().await?,
            store,
            engine: opened.engine,
        })
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

    /// A shard of the file.
    pub async fn open(&self, name: &ShardName, engine: &str) -> Result<Opened> {
        let declared = &self.layout.engines[engine];
        let called = self.called(name);
        let address = match self.address(name) {
            Some(address) => Some(address),
            None if declared.kind == EngineKind::Embedded => None,
            None => bail!(
                "{} keeps records on {called}, and nobody says where that is: give --address {called}={}",
                self.file.display(),
                example(declared.kind)
            ),
        };
        // A folder is found by whoever serves the directory, whatever the map calls it.
        let folder = match &self.mark {
            Some(mark) if self.is_folder(name) => {
                let unmarked = called.as_str().strip_suffix(&format!("-{mark}"));
                ShardName::new(unmarked.unwrap_or(called.as_str()))?
            }
            _ => called,
        };
        let place = Place {
            layout: &self.layout,
            engine,
            name: &folder,
        };
        place.open(declared, address.as_deref(), &self.config).await
    }
}

/// The built-in layout over the folders that are there, or are to be made.
fn directory_layout(config: &Config) -> Result<Layout> {
    let directory = &config.data;
    refuse_foreign(directory)?;
    let mut numbers = match directory.exists() {
        true => growing::found(directory)?,
        false => Vec::new(),
    };
    match numbers.is_empty() {
        true => numbers.extend(1..=config.shards.unwrap_or(1)),
        false => check_count(directory, numbers.len(), config.shards)?,
    }
    numbers.sort_unstable();
    let names: Vec<ShardName> = numbers.into_iter().map(super::super::shard_name).collect();
    Ok(layout_over(&names))
}

/// The history of orders, and the shard that keeps it: one that has live records of
/// others on the same engine, or one of its own.
pub fn history_of(layout: &Layout) -> Result<Option<(&History, ShardName)>> {
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

/// Where the layout has each collection when nothing has moved, by the names that the map has for its shards.
pub fn placements(plan: &Plan) -> Result<BTreeMap<Collection, CollectionMap>> {
    let layout = &plan.layout;
    let called = |name: &str| -> Result<ShardName> { Ok(plan.called(&shard_name(name)?)) };
    let mut collections = BTreeMap::new();
    for (collection, declared) in &layout.collections {
        let cut = match &declared.cut {
            layout::Cut::Slots { initial_shards } => {
                let names: Result<Vec<ShardName>> =
                    initial_shards.iter().map(|name| called(name)).collect();
                Cut::even_slots(&names?)
            }
            layout::Cut::Ranges { ranges, .. } => {
                let start = |range: &layout::RangeCut| -> Result<RangeStart> {
                    Ok(RangeStart {
                        from: range.from.clone(),
                        shard: called(&range.shard)?,
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
    Ok(collections)
}

/// What a shard is called where another layout has the same name for another one.
pub fn prefixed(layout: &Layout, name: &ShardName) -> String {
    format!("{}-{name}", layout.name)
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
