//! Several moves under one name, so that a shard gets its share or is left empty. Each of them is an ordinary move.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Result, anyhow, ensure};
use engine_api::ControlStore;
use layout::Collection;
use mover::spread::{self, Portion, SpreadError};
use mover::{MoveName, Moved, Plan};
use router::{Map, ShardName};

use super::wanted::{Spread, SpreadWay};
use crate::shards::{self, Roster};

/// What the moves are made from.
pub struct Ground<'a> {
    pub control: Arc<dyn ControlStore>,
    /// All that the map names, and those that were added.
    pub shards: mover::Shards,
    pub map: &'a Map,
    /// What the layout says; `None`: a data directory, all of whose shards keep everything.
    pub declared: Option<Declared>,
}

/// The layouts' word on who keeps what.
pub struct Declared {
    /// The one that is served, and the one that is moved to.
    pub layouts: Vec<shards::Plan>,
    pub roster: Roster,
}

impl Declared {
    /// Whether the shard is of the layout and the engine that the collection lives on. Tables alone say less: a
    /// history has some too.
    pub fn keeps(&self, shard: &ShardName, collection: Collection, layout: &str) -> bool {
        let mut layouts = self.layouts.iter();
        let Some(plan) = layouts.find(|plan| plan.layout.name == layout) else {
            return false;
        };
        let listed = self.roster.shards().get(shard);
        let listed = listed.filter(|listed| listed.layout == layout);
        let engine = plan.engine_of(shard).or(listed.map(|it| &it.engine));
        engine.is_some_and(|engine| plan.serves(engine, collection))
    }

    fn keeps_history(&self, shard: &ShardName) -> Result<bool> {
        for plan in &self.layouts {
            if plan.history_shard()?.as_ref() == Some(shard) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[derive(Debug, Default)]
pub struct Moves {
    pub moves: Vec<(MoveName, Plan)>,
    /// Collections that nothing is moved of, and why.
    pub left_out: Vec<(Collection, String)>,
}

impl Ground<'_> {
    pub fn moves(&self, group: &MoveName, spread: &Spread, freeze_ms_max: u64) -> Result<Moves> {
        if let (SpreadWay::Away(drained), Some(declared)) = (&spread.way, &self.declared) {
            ensure!(
                !declared.keeps_history(drained)?,
                "{drained} keeps the order history, which stays where the layout has it: nothing was begun"
            );
        }
        let mut found = Moves::default();
        let only = spread.only;
        let collections = self.map.collections.keys().copied();
        for collection in collections.filter(|it| only.is_none_or(|only| only == *it)) {
            let portions = match &spread.way {
                SpreadWay::Onto(onto) => self.onto(collection, onto),
                SpreadWay::Away(drained) => self.away(collection, drained),
            };
            match portions {
                Ok(portions) => found.add(group, collection, portions, spread, freeze_ms_max)?,
                // Who asked for the others gets them.
                Err(why @ SpreadError::ByRanges) if only.is_none() => {
                    found.left_out.push((collection, why.to_string()));
                }
                Err(why) => return Err(anyhow!("{collection}: {why}")),
            }
        }
        ensure!(
            !found.moves.is_empty(),
            "there is nothing to move: {}",
            match &spread.way {
                SpreadWay::Onto(onto) =>
                    format!("{onto} has its share already, or keeps none of these collections"),
                SpreadWay::Away(_) => "the shard has no keys".to_owned(),
            }
        );
        Ok(found)
    }

    /// Changes nothing.
    pub async fn check(&self, moves: &Moves) -> Result<()> {
        for (name, plan) in &moves.moves {
            let checked = mover::check(&self.control, &self.shards, name, plan).await;
            checked.map_err(|error| anyhow!("{name}: {error}"))?;
        }
        Ok(())
    }

    fn keeps(&self, shard: &ShardName, collection: Collection) -> bool {
        match &self.declared {
            Some(declared) => self
                .map
                .collection(collection)
                .is_ok_and(|map| declared.keeps(shard, collection, &map.layout)),
            None => self.shards.contains_key(shard),
        }
    }

    fn onto(&self, collection: Collection, shard: &ShardName) -> Result<Vec<Portion>, SpreadError> {
        match (
            self.keeps(shard, collection),
            self.map.collection(collection),
        ) {
            (true, Ok(map)) => spread::onto(map, shard),
            _ => Ok(Vec::new()),
        }
    }

    /// To the others that have keys of the collection; if there are none, to those that could.
    fn away(&self, collection: Collection, shard: &ShardName) -> Result<Vec<Portion>, SpreadError> {
        let Ok(map) = self.map.collection(collection) else {
            return Ok(Vec::new());
        };
        let mut others: BTreeSet<ShardName> = map.shards().into_iter().cloned().collect();
        others.remove(shard);
        if others.is_empty() {
            let able = self.shards.keys().filter(|it| self.keeps(it, collection));
            others = able.cloned().collect();
        }
        spread::away(map, shard, &others)
    }
}

impl Moves {
    pub fn shards(&self) -> BTreeSet<&ShardName> {
        let moves = self.moves.iter();
        moves.flat_map(|(_, plan)| plan.all_shards()).collect()
    }

    /// Names each after its collection and the shard on the other side.
    fn add(
        &mut self,
        group: &MoveName,
        collection: Collection,
        portions: Vec<Portion>,
        spread: &Spread,
        freeze_ms_max: u64,
    ) -> Result<()> {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for portion in portions {
            let other = match spread.way {
                SpreadWay::Onto(_) => &portion.source,
                SpreadWay::Away(_) => &portion.target,
            };
            let name = format!("{group}-{collection}-{other}");
            let times = seen.entry(name.clone()).or_default();
            *times += 1;
            let name = match *times {
                1 => MoveName::new(name)?,
                times => MoveName::new(format!("{name}-{times}"))?,
            };
            let plan = Plan {
                collection,
                moved: Moved::Keys {
                    scope: portion.scope,
                    source: portion.source,
                    target: portion.target,
                },
                freeze_ms_max,
            };
            self.moves.push((name, plan));
        }
        Ok(())
    }
}
