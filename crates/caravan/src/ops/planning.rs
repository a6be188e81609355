//! Plans and beginnings of moves, one or several at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine_api::ControlStore;
use mover::{End, MoveName, Plan};
use ops_api::{Kind, Refusal};
use router::{Map, ShardName};
use serde_json::{Value, json};

use super::desk::{OwnDesk, Place, invalid, refused, told, unavailable};
use super::everywhere;
use super::sizing;
use super::spreading::{Declared, Ground, Moves};
use super::wanted::{One, Spread, Understood, What};
use crate::config::Config;
use crate::map_command;
use crate::shards::{self, Roster, Shards};

/// What a plan is judged by.
struct Judged {
    control: Arc<dyn ControlStore>,
    shards: mover::Shards,
    map: Arc<Map>,
}

impl OwnDesk {
    pub(super) async fn plan(&self, wanted: &Understood) -> Result<Value, Refusal> {
        match &wanted.what {
            What::One(one) => self.plan_one(wanted, one).await,
            What::Spread(spread) => self.plan_spread(wanted, spread).await,
        }
    }

    pub(super) async fn start(&self, wanted: &Understood) -> Result<Value, Refusal> {
        match &wanted.what {
            What::One(one) => self.start_one(wanted, one).await,
            What::Spread(spread) => self.start_spread(wanted, spread).await,
        }
    }

    async fn plan_one(&self, wanted: &Understood, one: &One) -> Result<Value, Refusal> {
        let (judged, plan) = self.judged(wanted, one).await?;
        let control = judged.control.as_ref();
        let checked = async {
            let checked = mover::check(&judged.control, &judged.shards, &wanted.name, &plan);
            checked.await.map_err(refused)?;
            self.keeps_live(&judged, &plan).await?;
            self.known_everywhere(&judged.control, plan.all_shards())
                .await
        };
        let checked = checked.await;
        let of_collection = judged.map.collection(plan.collection);
        let pieces = map_command::pieces(of_collection.map_err(|error| invalid(error.into()))?);
        let owners = pieces.into_iter();
        let owners = owners.map(|(keys, shard)| json!({"keys": keys, "shard": shard}));
        let size = sizing::size(&judged.shards, &plan).await;
        let size = size.map_err(unavailable)?;
        let before = mover::list(control).await.map_err(refused)?;
        Ok(json!({
            "move": wanted.name,
            "plan": plan,
            "generation": judged.map.generation,
            "owners": owners.collect::<Vec<_>>(),
            "size": size,
            "forecast_s": size.forecast(wanted.throttle.records_per_second_max).as_secs_f64(),
            "freezes_ms_before": sizing::freezes(&before),
            "steps": steps(&plan),
            "refused": checked.as_ref().err().map(ToString::to_string),
        }))
    }

    async fn start_one(&self, wanted: &Understood, one: &One) -> Result<Value, Refusal> {
        let (judged, plan) = self.judged(wanted, one).await?;
        self.keeps_live(&judged, &plan).await?;
        self.known_everywhere(&judged.control, plan.all_shards())
            .await?;
        let name = &wanted.name;
        begin(&judged.control, &judged.shards, name, &plan, wanted).await?;
        let begun = [(name.clone(), plan.clone())];
        sizing::note(judged.control.as_ref(), &judged.shards, &begun).await;
        let by_itself = wanted.cutover.map_or(String::new(), |time| {
            format!("; it cuts over by itself {time}")
        });
        Ok(told(
            name,
            format!(
                "{name}: {}: begun; caravan move status shows how far it is{by_itself}",
                plan_text(&plan)
            ),
        ))
    }

    async fn plan_spread(&self, wanted: &Understood, spread: &Spread) -> Result<Value, Refusal> {
        let judged = self.all_shards(spread).await?;
        let (ground, moves) = self.spread(&judged, wanted, spread).await?;
        let mut shown = Vec::new();
        for (name, plan) in &moves.moves {
            let size = sizing::size(&judged.shards, plan).await;
            let size = size.map_err(unavailable)?;
            shown.push(json!({
                "move": name,
                "plan": plan,
                "size": size,
                "forecast_s": size.forecast(wanted.throttle.records_per_second_max).as_secs_f64(),
                "steps": steps(plan),
            }));
        }
        let before = mover::list(judged.control.as_ref()).await;
        let checked = match ground.check(&moves).await {
            Ok(()) => self.known_everywhere(&judged.control, moves.shards()).await,
            Err(error) => Err(invalid(error)),
        };
        Ok(json!({
            "generation": judged.map.generation,
            "moves": shown,
            "left_out": left_out(&moves),
            "freezes_ms_before": sizing::freezes(&before.map_err(refused)?),
            "refused": checked.as_ref().err().map(ToString::to_string),
        }))
    }

    async fn start_spread(&self, wanted: &Understood, spread: &Spread) -> Result<Value, Refusal> {
        let judged = self.all_shards(spread).await?;
        let (ground, moves) = self.spread(&judged, wanted, spread).await?;
        // All of them first: what is refused changes nothing.
        ground.check(&moves).await.map_err(invalid)?;
        self.known_everywhere(&judged.control, moves.shards())
            .await?;
        let mut sentences = Vec::new();
        for (name, plan) in &moves.moves {
            let begun = begin(&judged.control, &judged.shards, name, plan, wanted).await;
            begun.map_err(|refusal| {
                let detail = format!("{name} was not begun, those before it were: {refusal}");
                Refusal::new(refusal.kind, &detail)
            })?;
            sentences.push(format!("{name}: begun, {}", plan_text(plan)));
        }
        sizing::note(judged.control.as_ref(), &judged.shards, &moves.moves).await;
        for (collection, why) in &moves.left_out {
            sentences.push(format!("{collection} stay where they are: {why}"));
        }
        let group = &wanted.name;
        sentences.push(format!(
            "caravan move status --group {group} shows how far they are"
        ));
        let names: Vec<&MoveName> = moves.moves.iter().map(|(name, _)| name).collect();
        Ok(json!({
            "group": group,
            "moves": names,
            "left_out": left_out(&moves),
            "told": sentences.join("\n"),
        }))
    }

    /// Both sides of one move, and its plan.
    async fn judged(&self, wanted: &Understood, one: &One) -> Result<(Judged, Plan), Refusal> {
        let (control, shards, map) = match &self.place {
            Place::Open {
                control, shards, ..
            } => {
                let map = map_command::standing(control).await.map_err(unavailable)?;
                (control.clone(), shards.engines(), map)
            }
            Place::Servers { config, .. } => {
                let ends = match &one.between {
                    Some(between) => between.clone(),
                    None => {
                        let control = self.control().await?;
                        let map = map_command::standing(&control).await.map_err(unavailable)?;
                        one.ends(&map).map_err(invalid)?
                    }
                };
                let opened = Shards::for_a_move(config, &[&ends.0, &ends.1]).await;
                let (control, shards) = opened.map_err(unavailable)?;
                let map = map_command::standing(&control).await.map_err(unavailable)?;
                (control, shards, map)
            }
        };
        let plan = one.plan(&map, wanted.freeze_ms_max).map_err(invalid)?;
        let judged = Judged {
            control,
            shards,
            map,
        };
        Ok((judged, plan))
    }

    /// Every shard that keys may come from or go to.
    async fn all_shards(&self, spread: &Spread) -> Result<Judged, Refusal> {
        let control = self.control().await?;
        let map = map_command::standing(&control).await.map_err(unavailable)?;
        let (control, shards) = match &self.place {
            Place::Open { shards, .. } => (control, shards.engines()),
            Place::Servers { config, .. } => {
                let roster = Roster::load(control.as_ref()).await.map_err(unavailable)?;
                let known: BTreeSet<&ShardName> = map
                    .shards()
                    .into_iter()
                    .chain(roster.shards().keys())
                    .chain([spread.way.shard()])
                    .collect();
                let known: Vec<&ShardName> = known.into_iter().collect();
                let opened = Shards::for_a_move(config, &known).await;
                opened.map_err(unavailable)?
            }
        };
        Ok(Judged {
            control,
            shards,
            map,
        })
    }

    async fn spread<'a>(
        &self,
        judged: &'a Judged,
        wanted: &Understood,
        spread: &Spread,
    ) -> Result<(Ground<'a>, Moves), Refusal> {
        let ground = Ground {
            control: judged.control.clone(),
            shards: judged.shards.clone(),
            map: &judged.map,
            declared: self.declared(judged).await?,
        };
        let moves = ground.moves(&wanted.name, spread, wanted.freeze_ms_max);
        let moves = moves.map_err(invalid)?;
        Ok((ground, moves))
    }

    /// What the layouts say; `None`: a data directory, all of whose shards keep everything.
    async fn declared(&self, judged: &Judged) -> Result<Option<Declared>, Refusal> {
        let config = self.config();
        if config.is_directory_alone() {
            return Ok(None);
        }
        let roster = Roster::load(judged.control.as_ref()).await;
        let roster = roster.map_err(unavailable)?;
        let named = shards::Named::load(judged.control.as_ref(), Some(&judged.map)).await;
        let named = named.map_err(unavailable)?;
        let plans = shards::plans(config, config.here(), &named, &roster);
        Ok(Some(Declared {
            layouts: plans.map_err(invalid)?,
            roster,
        }))
    }

    /// Keys stay with the layout and the engine that their collection lives on, whatever tables others have.
    async fn keeps_live(&self, judged: &Judged, plan: &Plan) -> Result<(), Refusal> {
        let (collection, standing) = (plan.collection, judged.map.collection(plan.collection));
        let layout = &standing.map_err(|error| invalid(error.into()))?.layout;
        let Some(declared) = self.declared(judged).await? else {
            return Ok(());
        };
        let mut targets = plan.shards(End::Target).into_iter();
        match targets.find(|shard| !declared.keeps(shard, collection, layout)) {
            None => Ok(()),
            Some(shard) => {
                let detail = format!(
                    "{shard} is not for live {collection} of layout {layout}: choose one of the shards that are, or go to another layout with caravan move layout"
                );
                Err(Refusal::new(Kind::Refused, &detail))
            }
        }
    }

    fn config(&self) -> &Config {
        match &self.place {
            Place::Open { config, .. } | Place::Servers { config, .. } => config,
        }
    }

    async fn known_everywhere(
        &self,
        control: &Arc<dyn ControlStore>,
        shards: BTreeSet<&ShardName>,
    ) -> Result<(), Refusal> {
        let folders = match &self.place {
            Place::Open {
                layouts: Some(layouts),
                ..
            } => &layouts.folders,
            Place::Open { .. } | Place::Servers { .. } => &BTreeSet::new(),
        };
        let limits = &self.config().router;
        let waited = everywhere::wait(limits, control, &shards, folders).await;
        waited.map_err(unavailable)
    }
}

async fn begin(
    control: &Arc<dyn ControlStore>,
    shards: &mover::Shards,
    name: &MoveName,
    plan: &Plan,
    wanted: &Understood,
) -> Result<(), Refusal> {
    let begun = mover::start_with(control, shards, name, plan, &wanted.throttle).await;
    begun.map_err(refused)?;
    if wanted.cutover.is_some() {
        let set = mover::set_cutover_time(control.as_ref(), name, wanted.cutover).await;
        set.map_err(refused)?;
    }
    Ok(())
}

pub(super) fn steps(plan: &Plan) -> Value {
    let steps = mover::steps(plan).into_iter();
    let steps = steps.map(|step| json!({"phase": step.phase, "does": step.what}));
    Value::from_iter(steps)
}

fn left_out(moves: &Moves) -> Value {
    let left_out = moves.left_out.iter();
    left_out
        .map(|(of, why)| json!({"collection": of.name(), "reason": why}))
        .collect()
}

fn plan_text(plan: &Plan) -> String {
    format!(
        "{} of {} from {} to {}",
        map_command::scope_text(plan.scope()),
        plan.collection,
        plan.called(End::Source),
        plan.called(End::Target)
    )
}
