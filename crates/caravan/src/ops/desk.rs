//! Carries out what operators ask, whether it came over the wire or from this very process.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use async_trait::async_trait;
use engine_api::{ControlStore, EngineError, RealWorld, Remedy, World};
use mover::{Certificate, Direction, Grace, MoveError, MoveName, Pace, Throttle, Wish};
use ops_api::{Asked, Desk, Kind, Operator, Refusal, Request, Which};
use router::ShardName;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::audit::Journal;
use super::layouts::LayoutWanted;
use super::seen::Seen;
use super::wanted::{SpreadWay, Understood, Wanted, What, cutover_time};
use crate::config::Config;
use crate::map_command;
use crate::shards::{Ground, Layouts, OpenShards, Shards};

/// Why it is throttled, if nobody says.
const BUDGET_IS_FOR_NOW: &str =
    "freeze_ms_max goes with a cutover that is asked for now: leave it out, or cut over by hand";
const THROTTLED_BY_OPERATOR: &str = "the operator asked for it";

#[derive(Debug)]
pub struct OwnDesk {
    pub(super) place: Place,
    world: Arc<dyn World>,
}

#[derive(Debug)]
pub(super) enum Place {
    /// The shards of this process.
    Open {
        control: Arc<dyn ControlStore>,
        shards: OpenShards,
        ground: Option<Ground>,
        /// Those that whole collections go between.
        layouts: Option<Arc<Layouts>>,
        config: Box<Config>,
    },
    /// On servers: what is needed is opened when it is.
    Servers {
        config: Box<Config>,
        control: OnceCell<Arc<dyn ControlStore>>,
    },
}

/// What was asked, in the words of those who do it.
enum Task {
    Plan(Understood),
    Start(Understood),
    PlanLayout(LayoutWanted),
    StartLayout(LayoutWanted),
    List,
    Status(MoveName),
    Ask(MoveName, Asked),
    Certificate(MoveName, Direction),
    Shards,
    AddShard,
    Audit,
}

#[async_trait]
impl Desk for OwnDesk {
    async fn carry_out(&self, request: Request, operator: &Operator) -> Result<Value, Refusal> {
        let changes = request.changes();
        let task = Task::of(request)?;
        if !changes {
            return self.answer(task).await;
        }
        let journal = Journal::new(self.control().await?);
        let what = task.told();
        let made = journal.around(self.world.as_ref(), operator, &what, self.answer(task));
        made.await.map_err(unavailable)?
    }
}

impl OwnDesk {
    pub fn of_shards(shards: &Shards, config: &Config, world: Arc<dyn World>) -> OwnDesk {
        let place = Place::Open {
            control: shards.control.clone(),
            shards: shards.engines.clone(),
            ground: shards.ground.clone(),
            layouts: shards.layouts.clone(),
            config: Box::new(config.clone()),
        };
        OwnDesk { place, world }
    }

    pub fn of_servers(config: Config) -> OwnDesk {
        OwnDesk {
            place: Place::Servers {
                config: Box::new(config),
                control: OnceCell::new(),
            },
            world: Arc::new(RealWorld::new()),
        }
    }

    pub(super) async fn control(&self) -> Result<Arc<dyn ControlStore>, Refusal> {
        match &self.place {
            Place::Open { control, .. } => Ok(control.clone()),
            Place::Servers { config, control } => {
                let opened = control.get_or_try_init(|| Shards::control(config));
                Ok(opened.await.map_err(unavailable)?.clone())
            }
        }
    }

    async fn answer(&self, task: Task) -> Result<Value, Refusal> {
        match task {
            Task::Plan(wanted) => self.plan(&wanted).await,
            Task::Start(wanted) => self.start(&wanted).await,
            Task::PlanLayout(wanted) => self.plan_layout(&wanted).await,
            Task::StartLayout(wanted) => self.start_layout(&wanted).await,
            Task::List => {
                let moves = mover::list(self.control().await?.as_ref()).await;
                let moves = moves.map_err(refused)?.into_iter();
                let seen = moves.map(|(name, record)| Seen::new(name, record).to_json());
                Ok(seen.collect())
            }
            Task::Status(name) => {
                let record = mover::status(self.control().await?.as_ref(), &name).await;
                Ok(Seen::new(name, Some(record.map_err(refused)?)).to_json())
            }
            Task::Ask(name, asked) => self.ask(&name, asked).await,
            Task::Certificate(name, direction) => {
                let certificate = self.certificate(&name, direction).await?;
                serde_json::to_value(certificate).map_err(|error| internal(&error.to_string()))
            }
            Task::Shards => self.shards().await,
            Task::AddShard => self.add_shard().await,
            Task::Audit => {
                let entries = Journal::new(self.control().await?).entries().await;
                Ok(json!(entries.map_err(unavailable)?))
            }
        }
    }

    async fn ask(&self, name: &MoveName, asked: Asked) -> Result<Value, Refusal> {
        let control = self.control().await?;
        let control = control.as_ref();
        let wish = async |wish: Wish, freeze_ms_max: Option<u64>| {
            let asked = mover::ask_within(control, name, wish, freeze_ms_max).await;
            let wished = wish.name();
            asked.map(|()| {
                format!("it is to be {wished}; caravan move status shows what comes of it")
            })
        };
        let pace = async |pace: Pace| {
            let set = mover::set_pace(control, name, pace).await;
            set.map(|()| match pace {
                Pace::Paused => "stands still until caravan move resume".to_owned(),
                Pace::Running => "goes on".to_owned(),
            })
        };
        let said = match asked {
            Asked::Pause {} => pace(Pace::Paused).await,
            Asked::Resume {} => pace(Pace::Running).await,
            Asked::Throttle {
                records_per_s,
                bytes_per_s,
                p99_ms_max,
                reason,
            } => {
                let throttle = Throttle {
                    records_per_second_max: records_per_s,
                    bytes_per_second_max: bytes_per_s,
                    p99_ms_max,
                    reason: reason.unwrap_or_else(|| THROTTLED_BY_OPERATOR.to_owned()),
                };
                let said = throttle.to_string();
                let set = mover::set_throttle(control, name, throttle).await;
                set.map(|()| said)
            }
            Asked::Cutover {
                when: None,
                freeze_ms_max,
            } => wish(Wish::Cutover, freeze_ms_max).await,
            Asked::Cutover {
                when: Some(_),
                freeze_ms_max: Some(_),
            } => return Err(invalid(anyhow!(BUDGET_IS_FOR_NOW))),
            Asked::Cutover {
                when: Some(when),
                freeze_ms_max: None,
            } => {
                let time = cutover_time(&when).map_err(invalid)?;
                let set = mover::set_cutover_time(control, name, time).await;
                set.map(|()| match time {
                    Some(time) => format!("it cuts over by itself {time}"),
                    None => "it cuts over when somebody asks".to_owned(),
                })
            }
            Asked::Rollback { freeze_ms_max } => wish(Wish::Rollback, freeze_ms_max).await,
            Asked::Complete { grace } => {
                let grace = grace.map(|text| Grace::parse(&text)).transpose();
                let grace = grace.map_err(|error| invalid(error.into()))?;
                let set = mover::complete(control, name, grace).await;
                set.map(|()| format!("is to be {}", Wish::Complete.name()))
            }
            Asked::Abort {} => wish(Wish::Abort, None).await,
        };
        let said = said.map_err(refused)?;
        Ok(told(name, format!("{name}: {said}")))
    }

    async fn certificate(
        &self,
        name: &MoveName,
        direction: Direction,
    ) -> Result<Certificate, Refusal> {
        let control = self.control().await?;
        // An unknown move is told apart from one that has not cut over.
        let known = mover::status(control.as_ref(), name).await;
        known.map_err(refused)?;
        let found = mover::certificate(control.as_ref(), name, direction).await;
        let why = match direction {
            Direction::Cutover => "it has not cut over yet",
            Direction::Rollback => "it was not rolled back",
        };
        found.map_err(refused)?.ok_or_else(|| {
            let detail = format!("{name} has no certificate: {why}");
            Refusal::new(Kind::NotFound, &detail)
        })
    }

    /// Every shard with the keys that the map gives it; one that was just added has none.
    async fn shards(&self) -> Result<Value, Refusal> {
        let control = self.control().await?;
        let map = map_command::standing(&control).await.map_err(unavailable)?;
        let mut names: std::collections::BTreeSet<ShardName> =
            map.shards().into_iter().cloned().collect();
        if let Place::Open { shards, .. } = &self.place {
            names.extend(shards.all().into_keys());
        }
        let shown = names.into_iter().map(|name| {
            let keys = map.collections.iter().map(|(collection, of_collection)| {
                let pieces = map_command::pieces(of_collection).into_iter();
                let own = pieces.filter(|(_, shard)| *shard == name.as_str());
                let own: Vec<String> = own.map(|(keys, _)| keys).collect();
                (collection.to_string(), json!(own))
            });
            json!({"shard": name, "keys": keys.collect::<serde_json::Map<_, _>>()})
        });
        Ok(shown.collect())
    }

    async fn add_shard(&self) -> Result<Value, Refusal> {
        let ground = match &self.place {
            Place::Open { ground, .. } => ground.as_ref(),
            Place::Servers { .. } => None,
        };
        let Some(ground) = ground else {
            let detail = "a layout's shard is added by its name: caravan shard add --name SHARD --engine ENGINE --address SHARD=ADDRESS";
            return Err(Refusal::new(Kind::Refused, detail));
        };
        let name = ground.add().await;
        let name = name.map_err(|error| Refusal::new(Kind::Refused, &error.to_string()))?;
        Ok(json!({
            "shard": name,
            "told": format!("{name} is there; it has no keys before caravan move start --to {name} brings it some"),
        }))
    }
}

impl Task {
    fn of(request: Request) -> Result<Task, Refusal> {
        let wanted = |moved: Value| {
            let wanted = serde_json::from_value::<Wanted>(moved);
            let wanted = wanted.map_err(|error| invalid(error.into()))?;
            wanted.understood().map_err(invalid)
        };
        let named = |name: String| MoveName::new(name).map_err(refused);
        Ok(match request {
            Request::Plan { moved } => Task::Plan(wanted(moved)?),
            Request::Start { moved } => Task::Start(wanted(moved)?),
            Request::PlanLayout { moved } => Task::PlanLayout(LayoutWanted::read(moved)?),
            Request::StartLayout { moved } => Task::StartLayout(LayoutWanted::read(moved)?),
            Request::List => Task::List,
            Request::Status { name } => Task::Status(named(name)?),
            Request::Ask { name, asked } => Task::Ask(named(name)?, asked),
            Request::Certificate { name, which } => Task::Certificate(
                named(name)?,
                match which {
                    Which::Cutover => Direction::Cutover,
                    Which::Rollback => Direction::Rollback,
                },
            ),
            Request::Shards => Task::Shards,
            Request::AddShard => Task::AddShard,
            Request::Audit => Task::Audit,
        })
    }

    /// For the audit journal.
    fn told(&self) -> String {
        match self {
            Task::Start(wanted) => format!("start {}: {}", wanted.name, started(&wanted.what)),
            Task::StartLayout(wanted) => wanted.told(),
            Task::Ask(name, asked) => match asked {
                Asked::Throttle {
                    records_per_s,
                    bytes_per_s,
                    p99_ms_max,
                    ..
                } => {
                    let throttle = Throttle {
                        records_per_second_max: *records_per_s,
                        bytes_per_second_max: *bytes_per_s,
                        p99_ms_max: *p99_ms_max,
                        reason: String::new(),
                    };
                    format!("throttle {name}: {throttle}")
                }
                Asked::Cutover {
                    when: Some(when), ..
                } => format!("cutover {name}: {when}"),
                Asked::Cutover {
                    freeze_ms_max: Some(ms),
                    ..
                }
                | Asked::Rollback {
                    freeze_ms_max: Some(ms),
                } => format!("{} {name} within {ms} ms", asked.name()),
                asked => format!("{} {name}", asked.name()),
            },
            Task::AddShard => "add a shard".to_owned(),
            Task::Plan(_)
            | Task::PlanLayout(_)
            | Task::List
            | Task::Status(_)
            | Task::Certificate(..)
            | Task::Shards
            | Task::Audit => "look".to_owned(),
        }
    }
}

fn started(what: &What) -> String {
    match what {
        What::One(one) => match &one.between {
            Some((source, target)) => format!("{} from {source} to {target}", one.collection),
            None => format!("pinned keys of {} back into the cut", one.collection),
        },
        What::Spread(spread) => match &spread.way {
            SpreadWay::Onto(shard) => format!("its share onto {shard}"),
            SpreadWay::Away(shard) => format!("everything away from {shard}"),
        },
    }
}

pub(super) fn told(name: &MoveName, sentence: String) -> Value {
    json!({"move": name, "told": sentence})
}

pub(super) fn refused(error: MoveError) -> Refusal {
    let kind = match (&error, error.remedy()) {
        (MoveError::NoMove { .. }, _) => Kind::NotFound,
        (MoveError::Name { .. }, _) => Kind::Invalid,
        (
            MoveError::NameTaken { .. }
            | MoveError::Unfit(_)
            | MoveError::Refused { .. }
            // Whose disk is full has to be given room by somebody.
            | MoveError::Engine {
                source: EngineError::StorageFull { .. },
                ..
            },
            _,
        ) => Kind::Refused,
        (_, Remedy::GiveUp) => Kind::Internal,
        _ => Kind::Unavailable,
    };
    Refusal::new(kind, &error.to_string())
}

pub(super) fn invalid(error: anyhow::Error) -> Refusal {
    Refusal::new(Kind::Invalid, &error.to_string())
}

pub(super) fn unavailable(error: anyhow::Error) -> Refusal {
    Refusal::new(Kind::Unavailable, &error.to_string())
}

fn internal(detail: &str) -> Refusal {
    Refusal::new(Kind::Internal, detail)
}
