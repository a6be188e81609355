//! `caravan move plan` and `start`: what is to be moved, and whether it can be.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, Result};
use engine_api::ControlStore;
use layout::{Collection, Scope};
use mover::{MoveName, Plan, Throttle};
use router::{Map, ShardName};
use serde_json::json;

use super::{Format, config_of, everywhere, showing, sizing, typed};
use crate::arguments::Moved;
use crate::config::Config;
use crate::map_command;
use crate::shards::Shards;
use crate::text::columns;

/// What a plan is judged by.
struct Desk {
    config: Config,
    control: Arc<dyn ControlStore>,
    shards: mover::Shards,
    map: Arc<Map>,
    name: MoveName,
    plan: Plan,
}

pub async fn plan(moved: &Moved, format: Format, out: &mut dyn Write) -> Result<()> {
    let desk = Desk::open(moved).await?;
    let checked = desk.check().await;
    let pieces = map_command::pieces(desk.map.collection(desk.plan.collection)?);
    let size = sizing::size(desk.shards[&desk.plan.source].as_ref(), &desk.plan).await?;
    let before = sizing::freezes(&mover::list(desk.control.as_ref()).await?);
    let forecast = size.forecast(moved.records_per_s).as_secs_f64();
    match format {
        Format::Json => {
            let owners = pieces
                .iter()
                .map(|(keys, shard)| json!({"keys": keys, "shard": shard}));
            let value = json!({
                "move": desk.name,
                "plan": desk.plan,
                "generation": desk.map.generation,
                "owners": owners.collect::<Vec<_>>(),
                "size": size,
                "forecast_s": forecast,
                "freezes_ms_before": before,
                "steps": showing::steps_json(&desk.plan),
                "refused": checked.as_ref().err().map(ToString::to_string),
            });
            writeln!(out, "{value:#}")?;
        }
        Format::Text => {
            let collection = desk.plan.collection;
            writeln!(out, "{collection} at generation {}:", desk.map.generation)?;
            let rows: Vec<[String; 2]> = pieces
                .into_iter()
                .map(|(keys, shard)| [keys, shard])
                .collect();
            write!(out, "{}", columns(&rows))?;
            writeln!(out, "\n{}", showing::steps(&desk.plan))?;
            let (records, bytes, known_by) = (size.records, size.bytes, size.known_by.text());
            writeln!(
                out,
                "to copy: {records} records, {bytes} bytes ({known_by})"
            )?;
            writeln!(
                out,
                "takes: about {:.0} s, by how fast they were read just now",
                forecast.ceil()
            )?;
            let freeze = sizing::freeze_text(desk.plan.freeze_ms_max, &before);
            writeln!(out, "{freeze}")?;
            if checked.is_ok() {
                writeln!(out, "\n{}: nothing stands in its way", told(&desk))?;
            }
        }
    }
    out.flush()?;
    checked
}

pub async fn start(moved: &Moved, out: &mut dyn Write) -> Result<()> {
    let desk = Desk::open(moved).await?;
    desk.known_everywhere().await?;
    mover::start(&desk.control, &desk.shards, &desk.name, &desk.plan).await?;
    if let Some(most) = moved.records_per_s {
        let throttle = Throttle {
            records_per_second_max: Some(most),
            reason: "so it was started".to_owned(),
        };
        mover::set_throttle(desk.control.as_ref(), &desk.name, throttle).await?;
    }
    writeln!(
        out,
        "{}: begun; caravan move status shows how far it is",
        told(&desk)
    )?;
    Ok(())
}

impl Desk {
    async fn open(moved: &Moved) -> Result<Desk> {
        let name = MoveName::new(&moved.named.name)?;
        let collection = moved.collection.as_deref();
        let collection = typed::collection(collection.context("a move needs --collection")?)?;
        let slots = moved.keys.slots.as_deref().map(typed::slots).transpose()?;
        let told = |shard: &Option<String>| shard.as_deref().map(ShardName::new).transpose();
        let (source, target) = (told(&moved.from)?, told(&moved.to)?);
        let config = config_of(&moved.named.place)?;
        if !moved.keys.unpin.is_empty() {
            return Desk::unpinning(&config, name, collection, moved).await;
        }
        let (source, target) = source
            .zip(target)
            .context("a move needs --from SHARD and --to SHARD")?;
        let (control, shards) = Shards::for_a_move(&config, &[&source, &target]).await?;
        let map = map_command::standing(&control).await?;
        let fields = &map.collection(collection)?.shard_key;
        let scope = match (slots, &moved.keys.range) {
            (Some(slots), _) => Scope::Slots(slots),
            (None, Some(range)) => typed::range(range, fields)?,
            (None, None) if moved.keys.all => Scope::All,
            (None, None) => Scope::Keys(typed::keys(&moved.keys.keys, fields)?),
        };
        let plan = Plan {
            collection,
            scope,
            source,
            target,
            freeze_ms_max: moved.freeze_ms_max,
        };
        Ok(Desk {
            config,
            control,
            shards,
            map,
            name,
            plan,
        })
    }

    /// Whether it would be begun; changes nothing.
    async fn check(&self) -> Result<()> {
        mover::check(&self.control, &self.shards, &self.name, &self.plan).await?;
        self.known_everywhere().await
    }

    async fn known_everywhere(&self) -> Result<()> {
        let both = BTreeSet::from([&self.plan.source, &self.plan.target]);
        everywhere::wait(&self.config, &self.control, &both).await
    }

    /// The map says where pinned keys are, and where the cut would have them.
    async fn unpinning(
        config: &Config,
        name: MoveName,
        collection: Collection,
        moved: &Moved,
    ) -> Result<Desk> {
        let control = Shards::control(config).await?;
        let map = map_command::standing(&control).await?;
        let pinned = map.collection(collection)?;
        let keys = typed::keys(&moved.keys.unpin, &pinned.shard_key)?;
        let (source, target) = typed::unpinned(collection, pinned, &keys)?;
        drop(control);
        let (control, shards) = Shards::for_a_move(config, &[&source, &target]).await?;
        let plan = Plan {
            collection,
            scope: Scope::Keys(keys),
            source,
            target,
            freeze_ms_max: moved.freeze_ms_max,
        };
        Ok(Desk {
            config: config.clone(),
            control,
            shards,
            map,
            name,
            plan,
        })
    }
}

fn told(desk: &Desk) -> String {
    let plan = &desk.plan;
    format!(
        "{}: {} of {} from {} to {}",
        desk.name,
        map_command::scope_text(&plan.scope),
        plan.collection,
        plan.source,
        plan.target
    )
}
