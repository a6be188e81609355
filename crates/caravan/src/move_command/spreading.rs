//! `caravan move plan|start --rebalance --onto SHARD` and `--drain SHARD`: several moves under one name, so that a shard
//! gets its share or is left empty. Each of them is an ordinary move.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use engine_api::ControlStore;
use layout::{Collection, SLOT_COUNT, Scope};
use mover::spread::{self, Portion, SpreadError};
use mover::{MoveName, Plan, Throttle};
use router::{Map, ShardName};
use serde_json::json;

use super::sizing::{self, Size};
use super::{Format, config_of, everywhere, typed};
use crate::arguments::Moved;
use crate::map_command;
use crate::shards::{self, Roster, Shards};
use crate::text::columns;

pub fn is_asked(moved: &Moved) -> bool {
    moved.keys.rebalance || moved.keys.drain.is_some()
}

/// What the moves are judged by.
struct Desk {
    layout: shards::Plan,
    roster: Roster,
    control: Arc<dyn ControlStore>,
    shards: mover::Shards,
    map: Arc<Map>,
    moves: Vec<(MoveName, Plan)>,
    /// Collections that nothing is moved of, and why.
    left_out: Vec<(Collection, String)>,
}

pub async fn plan(moved: &Moved, format: Format, out: &mut dyn Write) -> Result<()> {
    let desk = Desk::open(moved).await?;
    let mut sizes = Vec::new();
    for (_, plan) in &desk.moves {
        sizes.push(sizing::size(desk.shards[&plan.source].as_ref(), plan).await?);
    }
    let before = sizing::freezes(&mover::list(desk.control.as_ref()).await?);
    let checked = desk.check().await;
    match format {
        Format::Json => {
            let moves = desk.moves.iter().zip(&sizes);
            let moves = moves.map(|((name, plan), size)| {
                json!({
                    "move": name, "plan": plan, "size": size,
                    "forecast_s": size.forecast(moved.records_per_s).as_secs_f64(),
                    "steps": super::showing::steps_json(plan),
                })
            });
            let left_out = desk.left_out.iter();
            let left_out =
                left_out.map(|(of, why)| json!({"collection": of.name(), "reason": why}));
            let value = json!({
                "generation": desk.map.generation,
                "moves": moves.collect::<Vec<_>>(),
                "left_out": left_out.collect::<Vec<_>>(),
                "freezes_ms_before": before,
                "refused": checked.as_ref().err().map(ToString::to_string),
            });
            writeln!(out, "{value:#}")?;
        }
        Format::Text => {
            write!(out, "{}", desk.table(&sizes, moved.records_per_s))?;
            for (collection, why) in &desk.left_out {
                writeln!(out, "{collection} stay where they are: {why}")?;
            }
            writeln!(out, "{}", sizing::freeze_text(moved.freeze_ms_max, &before))?;
            if checked.is_ok() {
                writeln!(out, "nothing stands in their way")?;
            }
        }
    }
    out.flush()?;
    checked
}

pub async fn start(moved: &Moved, out: &mut dyn Write) -> Result<()> {
    let desk = Desk::open(moved).await?;
    // All of them first: what is refused changes nothing.
    desk.check().await?;
    for (name, plan) in &desk.moves {
        let begun = mover::start(&desk.control, &desk.shards, name, plan).await;
        begun.with_context(|| format!("{name} was not begun, those before it were"))?;
        if let Some(most) = moved.records_per_s {
            let throttle = Throttle {
                records_per_second_max: Some(most),
                reason: "so it was started".to_owned(),
            };
            mover::set_throttle(desk.control.as_ref(), name, throttle).await?;
        }
        writeln!(out, "{name}: begun, {}", told(plan))?;
    }
    for (collection, why) in &desk.left_out {
        writeln!(out, "{collection} stay where they are: {why}")?;
    }
    writeln!(
        out,
        "caravan move status --group {} shows how far they are",
        moved.named.name
    )?;
    Ok(())
}

impl Desk {
    async fn open(moved: &Moved) -> Result<Desk> {
        let group = MoveName::new(&moved.named.name)?;
        let only = moved.collection.as_deref().map(typed::collection);
        let only = only.transpose()?;
        let told = |shard: &Option<String>| shard.as_deref().map(ShardName::new).transpose();
        let (onto, drained) = (told(&moved.onto)?, told(&moved.keys.drain)?);
        let config = config_of(&moved.named.place)?;
        let file = config.layout.clone().context("a layout was asked for")?;
        let layout = shards::Plan::of(&config, &file)?;
        let control = Shards::control(&config).await?;
        let map = map_command::standing(&control).await?;
        let roster = Roster::load(control.as_ref()).await?;
        if let Some(drained) = &drained {
            ensure!(
                layout.history_shard()?.as_ref() != Some(drained),
                "{drained} keeps the order history, which stays where the layout has it: nothing was begun"
            );
        }
        let asked = onto.iter().chain(&drained);
        let known: BTreeSet<&ShardName> = map
            .shards()
            .into_iter()
            .chain(roster.shards().keys())
            .chain(asked)
            .collect();
        let known: Vec<&ShardName> = known.into_iter().collect();
        let (control, shards) = Shards::for_a_move(&config, &known).await?;
        let mut desk = Desk {
            layout,
            roster,
            control,
            shards,
            map,
            moves: Vec::new(),
            left_out: Vec::new(),
        };
        let collections = desk.map.collections.keys().copied();
        let collections: Vec<Collection> = collections
            .filter(|collection| only.is_none_or(|only| only == *collection))
            .collect();
        for collection in collections {
            let portions = match (&onto, &drained) {
                (Some(onto), _) => desk.onto(collection, onto),
                (None, Some(drained)) => desk.away(collection, drained),
                (None, None) => Ok(Vec::new()),
            };
            match portions {
                Ok(portions) => desk.add(&group, collection, portions, moved)?,
                // Who asked for the others gets them.
                Err(why @ SpreadError::ByRanges) if only.is_none() => {
                    desk.left_out.push((collection, why.to_string()));
                }
                Err(why) => return Err(anyhow::anyhow!("{collection}: {why}")),
            }
        }
        ensure!(
            !desk.moves.is_empty(),
            "there is nothing to move: {}",
            match &onto {
                Some(onto) =>
                    format!("{onto} has its share already, or keeps none of these collections"),
                None => "the shard has no keys".to_owned(),
            }
        );
        let named: BTreeSet<&ShardName> = desk
            .moves
            .iter()
            .flat_map(|(_, plan)| [&plan.source, &plan.target])
            .collect();
        everywhere::wait(&config, &desk.control, &named).await?;
        Ok(desk)
    }

    /// Whether the shard is of the engine that the collection lives on. Tables alone say less: a history has some too.
    fn keeps(&self, shard: &ShardName, collection: Collection) -> bool {
        let listed = self.roster.shards().get(shard).map(|it| &it.engine);
        let engine = self.layout.shards().get(shard).or(listed);
        engine.is_some_and(|engine| self.layout.serves(engine, collection))
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

    /// Names each after its collection and the shard on the other side.
    fn add(
        &mut self,
        group: &MoveName,
        collection: Collection,
        portions: Vec<Portion>,
        moved: &Moved,
    ) -> Result<()> {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for portion in portions {
            let other = match moved.keys.rebalance {
                true => &portion.source,
                false => &portion.target,
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
                scope: portion.scope,
                source: portion.source,
                target: portion.target,
                freeze_ms_max: moved.freeze_ms_max,
            };
            self.moves.push((name, plan));
        }
        Ok(())
    }

    async fn check(&self) -> Result<()> {
        for (name, plan) in &self.moves {
            let checked = mover::check(&self.control, &self.shards, name, plan).await;
            checked.map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
        }
        Ok(())
    }

    fn table(&self, sizes: &[Size], records_per_s: Option<u32>) -> String {
        let head = [
            "move",
            "from",
            "to",
            "keys",
            "share",
            "records",
            "bytes",
            "known by",
            "takes about",
        ];
        let mut rows = vec![head.map(str::to_owned)];
        for ((name, plan), size) in self.moves.iter().zip(sizes) {
            rows.push([
                name.to_string(),
                plan.source.to_string(),
                plan.target.to_string(),
                map_command::scope_text(&plan.scope),
                share(&plan.scope),
                size.records.to_string(),
                size.bytes.to_string(),
                size.known_by.text().to_owned(),
                format!("{:.0} s", size.forecast(records_per_s).as_secs_f64().ceil()),
            ]);
        }
        columns(&rows)
    }
}

/// How much of the collection's slots.
fn share(scope: &Scope) -> String {
    match scope {
        Scope::All => "100 %".to_owned(),
        Scope::Slots(ranges) => {
            let count = |range: &layout::SlotRange| range.last.number() - range.first.number() + 1;
            let slots: u16 = ranges.iter().map(count).sum();
            format!("{:.1} %", f64::from(slots) * 100.0 / f64::from(SLOT_COUNT))
        }
        Scope::Range { .. } | Scope::Keys(_) => "-".to_owned(),
    }
}

fn told(plan: &Plan) -> String {
    format!(
        "{} of {} from {} to {}",
        map_command::scope_text(&plan.scope),
        plan.collection,
        plan.source,
        plan.target
    )
}
