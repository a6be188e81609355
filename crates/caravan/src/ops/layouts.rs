//! Whole collections go to another layout, one after the other: plans and beginnings.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use engine_api::ControlStore;
use layout::{Collection, CollectionLayout, Field, IdEncoding};
use mover::{End, FREEZE_MS_DEFAULT, Histories, MoveName, MoveState, Moved, Phase, Plan, Throttle};
use ops_api::{Kind, Refusal};
use router::Map;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::desk::{OwnDesk, Place, invalid, refused, unavailable};
use super::planning::steps;
use super::wanted::THROTTLED_FROM_THE_START;
use super::{everywhere, sizing};
use crate::config::Config;
use crate::map_command;
use crate::shards::{BothLayouts, Shards};

/// From what a shop can do without for a moment to what it must never lose: whatever is
/// wrong with the other layout shows before orders depend on it. Stock goes before the
/// orders that hold it, so that no order is written over there while its stock is not.
const ORDER: [(Collection, &str); 4] = [
    (
        Collection::Sessions,
        "nobody loses anything if it has to be undone",
    ),
    (
        Collection::Carts,
        "they are many and change all the time: they show how the other layout bears it",
    ),
    (
        Collection::Products,
        "stock is there before the orders that take it",
    ),
    (
        Collection::Orders,
        "last, when everything that they rest on has arrived",
    ),
];

/// What is to be moved, as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutWanted {
    /// The name of the layout that gets them; `None`: the one that this shop goes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toward: Option<String>,
    /// `None`: all in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collection: Option<Collection>,
    /// What the moves' names begin with; `None`: the name of the layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default = "freeze_ms_default")]
    pub freeze_ms_max: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records_per_s: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<u64>,
    /// What 99 of 100 shoppers' requests may take meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms_max: Option<u32>,
}

/// Where one collection stands.
enum Stage {
    There,
    UnderWay {
        name: MoveName,
        phase: &'static str,
        serves: bool,
    },
    Here,
}

/// One layout, the one that it goes to, and how far that is.
struct Course<'a> {
    wanted: &'a LayoutWanted,
    config: &'a Config,
    both: BothLayouts,
    map: Arc<Map>,
    moves: Vec<(MoveName, MoveState)>,
}

const fn freeze_ms_default() -> u64 {
    FREEZE_MS_DEFAULT
}

impl OwnDesk {
    pub(super) async fn plan_layout(&self, wanted: &LayoutWanted) -> Result<Value, Refusal> {
        let course = self.course(wanted).await?;
        let control = course.both.control.as_ref();
        let mut planned = Vec::new();
        for (collection, why) in wanted.asked() {
            let one = course.planned(collection, why).await;
            planned.push(one.map_err(unavailable)?);
        }
        let before = mover::list(control).await.map_err(refused)?;
        let layouts = &course.both.layouts;
        Ok(json!({
            "layout": layouts.here.name,
            "toward": layouts.toward.name,
            "generation": course.map.generation,
            "freeze_ms_max": wanted.freeze_ms_max,
            "freezes_ms_before": sizing::freezes(&before),
            "moves": planned,
        }))
    }

    pub(super) async fn start_layout(&self, wanted: &LayoutWanted) -> Result<Value, Refusal> {
        let course = self.course(wanted).await?;
        let begun = async {
            let collection = course.next()?;
            let plan = course.plan_of(collection)?;
            let name = course.name_of(collection)?;
            course.begin(&name, &plan).await?;
            anyhow::Ok((name, plan))
        };
        let (name, plan) = begun.await.map_err(|error| {
            let refused = error.to_string();
            Refusal::new(Kind::Refused, &refused)
        })?;
        let told = format!(
            "{name}: {} of {} from {} to {}: begun; caravan move status shows how far it is",
            map_command::scope_text(plan.scope()),
            plan.collection,
            plan.called(End::Source),
            plan.called(End::Target),
        );
        Ok(json!({"move": name, "told": told}))
    }

    async fn course<'a>(&'a self, wanted: &'a LayoutWanted) -> Result<Course<'a>, Refusal> {
        let (both, config) = match &self.place {
            Place::Servers { config, .. } => {
                let both = Shards::both_layouts(config).await;
                (both.map_err(unavailable)?, config)
            }
            Place::Open {
                control,
                shards,
                layouts,
                config,
                ..
            } => {
                let Some(layouts) = layouts else {
                    let detail = "this shop goes to no other layout: restart it with --toward FILE";
                    return Err(Refusal::new(Kind::Refused, detail));
                };
                let both = BothLayouts {
                    control: control.clone(),
                    engines: shards.engines(),
                    layouts: layouts.clone(),
                };
                (both, config)
            }
        };
        let toward = &both.layouts.toward.name;
        if let Some(other) = wanted.toward.as_ref().filter(|other| *other != toward) {
            let detail = format!(
                "this shop goes to layout {toward}, not to {other}: restart it with --toward FILE for that one"
            );
            return Err(Refusal::new(Kind::Refused, &detail));
        }
        let map = map_command::standing(&both.control).await;
        let listed = mover::list(both.control.as_ref()).await.map_err(refused)?;
        let begun = listed
            .into_iter()
            .filter_map(|(name, record)| Some((name, record?.state)));
        Ok(Course {
            wanted,
            config,
            map: map.map_err(unavailable)?,
            moves: begun.collect(),
            both,
        })
    }
}

impl Course<'_> {
    async fn planned(&self, collection: Collection, why: &str) -> Result<Value> {
        let stage = self.stage(collection);
        let plan = self.plan_of(collection)?;
        let refused = match stage {
            Stage::Here => self.refusal(collection, &plan).await,
            Stage::There | Stage::UnderWay { .. } => None,
        };
        let stands = match (&stage, &refused) {
            (Stage::There, _) => "arrived".to_owned(),
            (Stage::UnderWay { name, phase, .. }, _) => format!("{name}: {phase}"),
            (Stage::Here, Some(_)) => "refused".to_owned(),
            (Stage::Here, None) => "to be moved".to_owned(),
        };
        // What has arrived, or is on its way, is not counted again.
        let size = match stage {
            Stage::Here => Some(sizing::size(&self.both.engines, &plan).await?),
            Stage::There | Stage::UnderWay { .. } => None,
        };
        let forecast = size.map(|size| size.forecast(self.wanted.records_per_s).as_secs_f64());
        Ok(json!({
            "collection": collection,
            "stands": stands,
            "from": plan.called(End::Source),
            "to": plan.called(End::Target),
            "size": size,
            "forecast_s": forecast,
            "steps": steps(&plan),
            "plan": plan,
            "why": why,
            "refused": refused,
        }))
    }

    async fn begin(&self, name: &MoveName, plan: &Plan) -> Result<()> {
        let collection = plan.collection;
        if let Some(refused) = self.refusal(collection, plan).await {
            bail!("{collection}: {refused}");
        }
        let (control, engines) = (&self.both.control, &self.both.engines);
        let throttle = self.wanted.throttle();
        mover::start_with(control, engines, name, plan, &throttle).await?;
        let begun = [(name.clone(), plan.clone())];
        sizing::note(control.as_ref(), engines, &begun).await;
        Ok(())
    }

    fn plan_of(&self, collection: Collection) -> Result<Plan> {
        let source = self.map.collection(collection)?.placement();
        let layouts = &self.both.layouts;
        let target = layouts.placements[&collection].clone();
        let histories = match collection {
            Collection::Orders => Histories {
                source: layouts.histories.get(&source.layout).cloned(),
                target: layouts.histories.get(&target.layout).cloned(),
            },
            Collection::Carts | Collection::Products | Collection::Sessions => Histories::default(),
        };
        Ok(Plan {
            collection,
            moved: Moved::Whole {
                source: Box::new(source),
                target: Box::new(target),
                histories,
            },
            freeze_ms_max: self.wanted.freeze_ms_max,
        })
    }

    /// Names are never used twice: a move that was rolled back is followed by NAME-2.
    fn name_of(&self, collection: Collection) -> Result<MoveName> {
        let is_taken = |name: &MoveName| self.moves.iter().any(|(other, _)| other == name);
        let toward = &self.both.layouts.toward.name;
        let prefix = self.wanted.name.as_ref().unwrap_or(toward);
        let first = MoveName::new(format!("{prefix}-{collection}"))?;
        if !is_taken(&first) {
            return Ok(first);
        }
        for number in 2..=self.moves.len() + 2 {
            let name = MoveName::new(format!("{first}-{number}"))?;
            if !is_taken(&name) {
                return Ok(name);
            }
        }
        bail!("every name after {first} is taken: choose another one with --name")
    }

    fn stage(&self, collection: Collection) -> Stage {
        let ours = |(_, state): &&(MoveName, MoveState)| {
            state.plan.collection == collection && !state.phase.is_over()
        };
        if let Some((name, state)) = self.moves.iter().find(ours) {
            return Stage::UnderWay {
                name: name.clone(),
                phase: state.phase.name(),
                serves: matches!(state.phase, Phase::Settling { .. }),
            };
        }
        let standing = self.map.collections.get(&collection);
        match standing.is_some_and(|it| it.layout == self.both.layouts.toward.name) {
            true => Stage::There,
            false => Stage::Here,
        }
    }

    /// The one that was asked for, or the first that has not begun, if the one before it has arrived.
    fn next(&self) -> Result<Collection> {
        for (collection, _) in self.wanted.asked() {
            match self.stage(collection) {
                Stage::There | Stage::UnderWay { serves: true, .. } => {}
                Stage::UnderWay { name, phase, .. } => bail!(
                    "{collection} are under way ({name}: {phase}): cut it over first, or choose another one with --collection"
                ),
                Stage::Here => return Ok(collection),
            }
        }
        bail!(
            "nothing is left to move to {}",
            self.both.layouts.toward.name
        )
    }

    /// What neither map nor engines can tell, and what they say.
    async fn refusal(&self, collection: Collection, plan: &Plan) -> Option<String> {
        let layouts = &self.both.layouts;
        let left = self.map.collections.get(&collection).map(|it| &it.layout);
        let left = [&layouts.here, &layouts.toward]
            .into_iter()
            .find(|layout| Some(&layout.name) == left)?;
        let entered = layouts.toward.collection(collection);
        if let Some(lost) = lost(left.collection(collection), entered) {
            return Some(lost);
        }
        let name = match self.name_of(collection) {
            Ok(name) => name,
            Err(error) => return Some(error.to_string()),
        };
        let control = &self.both.control;
        if let Err(error) = mover::check(control, &self.both.engines, &name, plan).await {
            return Some(error.to_string());
        }
        self.known_everywhere(control, plan).await.err()
    }

    async fn known_everywhere(
        &self,
        control: &Arc<dyn ControlStore>,
        plan: &Plan,
    ) -> Result<(), String> {
        let (limits, folders) = (&self.config.router, &self.both.layouts.folders);
        let known = everywhere::wait(limits, control, &plan.all_shards(), folders).await;
        known.map_err(|error| error.to_string())
    }
}

impl LayoutWanted {
    pub fn read(value: Value) -> Result<LayoutWanted, Refusal> {
        serde_json::from_value(value).map_err(|error| invalid(error.into()))
    }

    /// As people type a collection.
    pub fn collection(name: &str) -> Result<Collection> {
        Collection::named(name).ok_or_else(|| {
            anyhow!("--collection {name}: choose carts, orders, products or sessions")
        })
    }

    /// For the audit journal.
    pub fn told(&self) -> String {
        let what = self
            .collection
            .map_or("the next collection", Collection::name);
        match &self.toward {
            Some(toward) => format!("start {what} to layout {toward}"),
            None => format!("start {what} to the other layout"),
        }
    }

    fn throttle(&self) -> Throttle {
        Throttle {
            records_per_second_max: self.records_per_s,
            bytes_per_second_max: self.bytes_per_s,
            p99_ms_max: self.p99_ms_max,
            reason: THROTTLED_FROM_THE_START.to_owned(),
        }
    }

    fn asked(&self) -> Vec<(Collection, &'static str)> {
        let only: BTreeSet<Collection> = self.collection.into_iter().collect();
        let mut order = ORDER.to_vec();
        order.retain(|(collection, _)| only.is_empty() || only.contains(collection));
        order
    }
}

/// What the other layout cannot keep of the collection.
fn lost(left: &CollectionLayout, entered: &CollectionLayout) -> Option<String> {
    // Of its parts as well: the lines of a cart name products.
    let narrowed = |(field, after): &(Field, IdEncoding)| {
        *after != IdEncoding::Text && left.encodings.of(*field) != *after
    };
    let (field, _) = entered.encodings.iter().find(narrowed)?;
    Some(format!(
        "{field} is kept in another form there, and ids that do not fit it would be lost: declare it as text"
    ))
}
