//! The list of moves: one control value, so that two moves over the same keys cannot
//! begin at once. What each has come to stands in its own record.

use std::sync::Arc;

use engine_api::ControlStore;
use feed::tenure::Tenured;
use router::{MapKeeper, ShardName};
use serde::{Deserialize, Serialize};

use crate::error::{MoveError, Unfit};
use crate::plan::{End, MoveName, Moved, Plan};
use crate::preflight::{Shards, preflight};
use crate::record::{MoveState, work_name};
use crate::throttle::Throttle;

/// The name of the list in the control store.
pub const MOVES_NAME: &str = "moves";

/// Moves under way at once.
pub const MOVES_RUNNING_MAX: usize = 64;
/// Moves that are listed; of those that ended the oldest are left out.
pub const MOVES_LISTED_MAX: usize = 500;

const CHANGE_ATTEMPTS_MAX: u32 = 32;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Registry {
    /// Oldest first.
    moves: Vec<Registered>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Registered {
    name: MoveName,
    plan: Plan,
}

/// Refuses a plan that cannot be carried out, with nothing changed, or makes the
/// record from which any mover may begin. The same again changes nothing more.
pub async fn start(
    control: &Arc<dyn ControlStore>,
    shards: &Shards,
    name: &MoveName,
    plan: &Plan,
) -> Result<(), MoveError> {
    start_with(control, shards, name, plan, &Throttle::default()).await
}

/// The same, throttled from its first record on.
pub async fn start_with(
    control: &Arc<dyn ControlStore>,
    shards: &Shards,
    name: &MoveName,
    plan: &Plan,
    throttle: &Throttle,
) -> Result<(), MoveError> {
    let keeper = MapKeeper::new(control.clone());
    let control = control.as_ref();
    for _ in 0..CHANGE_ATTEMPTS_MAX {
        let (registry, number) = load(control).await?;
        let standing = record_of(control, name).await?;
        let registered = registry.moves.iter().find(|other| other.name == *name);
        match (registered, standing) {
            (Some(known), Some(_)) if known.plan == *plan => return Ok(()),
            // Somebody died between the list and the record.
            (Some(known), None) if known.plan == *plan => {
                let mut first = MoveState::first(plan.clone());
                first.throttle = throttle.clone();
                return Ok(work_name(name)?.begin(control, first).await?);
            }
            (None, None) => {}
            _ => {
                let name = name.to_string();
                return Err(MoveError::NameTaken { name });
            }
        }
        let next = registry.with(control, name, plan).await?;
        // After the other moves were seen to have ended: a map from before may not know yet what they came to.
        let map = keeper.load().await?.ok_or(MoveError::NoMap)?;
        preflight(plan, &map, shards).await?;
        let bytes = serde_json::to_vec(&next).expect("names and plans always become JSON");
        let set = control.compare_and_set(MOVES_NAME, number, bytes).await;
        // Whether it was set or somebody else was first: the next look finds it.
        set.map_err(MoveError::Control)?;
    }
    Err(MoveError::Contended {
        what: "the list of moves",
        times: CHANGE_ATTEMPTS_MAX,
    })
}

/// Refuses what `start` would refuse, and changes nothing.
pub async fn check(
    control: &Arc<dyn ControlStore>,
    shards: &Shards,
    name: &MoveName,
    plan: &Plan,
) -> Result<(), MoveError> {
    let keeper = MapKeeper::new(control.clone());
    let control = control.as_ref();
    let (registry, _) = load(control).await?;
    match registry.moves.iter().find(|other| other.name == *name) {
        Some(known) if known.plan == *plan => return Ok(()),
        Some(_) => {
            let name = name.to_string();
            return Err(MoveError::NameTaken { name });
        }
        // Its record outlives its place in the list.
        None if record_of(control, name).await?.is_some() => {
            let name = name.to_string();
            return Err(MoveError::NameTaken { name });
        }
        None => {}
    }
    registry.with(control, name, plan).await?;
    let map = keeper.load().await?.ok_or(MoveError::NoMap)?;
    preflight(plan, &map, shards).await
}

/// Every move with its record, oldest first; without one it was never begun.
pub async fn list(
    control: &dyn ControlStore,
) -> Result<Vec<(MoveName, Option<Tenured<MoveState>>)>, MoveError> {
    list_unless(control, |_| false).await
}

/// The same without some of them, whose records are not read: who looks every second
/// leaves out what it knows to have ended. Names are never used twice.
pub async fn list_unless(
    control: &dyn ControlStore,
    left_out: impl Fn(&MoveName) -> bool,
) -> Result<Vec<(MoveName, Option<Tenured<MoveState>>)>, MoveError> {
    let (registry, _) = load(control).await?;
    let mut moves = Vec::with_capacity(registry.moves.len());
    let registered = registry.moves.into_iter();
    for registered in registered.filter(|registered| !left_out(&registered.name)) {
        let record = record_of(control, &registered.name).await?;
        moves.push((registered.name, record));
    }
    Ok(moves)
}

impl Registry {
    async fn with(
        mut self,
        control: &dyn ControlStore,
        name: &MoveName,
        plan: &Plan,
    ) -> Result<Registry, MoveError> {
        let (mut running, mut ended) = (0, Vec::new());
        for (place, other) in self.moves.iter().enumerate() {
            let record = record_of(control, &other.name).await?;
            let phase = record.map(|record| record.state.phase);
            if phase.as_ref().is_some_and(|phase| phase.is_over()) {
                ended.push(other.name.clone());
                continue;
            }
            if phase.as_ref().is_some_and(|phase| phase.is_tidying()) {
                // What is brought to that shard now could be taken for what the move has left there (W47).
                if let Some(shard) = self.to_be_cleaned(place, plan) {
                    return Err(MoveError::Unfit(Unfit::ToBeCleaned {
                        other: other.name.to_string(),
                        shard: shard.clone(),
                    }));
                }
                continue;
            }
            running += 1;
            // Settling ones too: their source would be moved away under the way back (W30).
            if other.plan.overlaps(plan) {
                return Err(MoveError::Unfit(Unfit::Overlaps {
                    other: other.name.to_string(),
                    phase: phase.map_or("planned", |phase| phase.name()),
                }));
            }
        }
        if running >= MOVES_RUNNING_MAX {
            let most = MOVES_RUNNING_MAX;
            return Err(Unfit::TooMany { running, most }.into());
        }
        let surplus = (self.moves.len() + 1).saturating_sub(MOVES_LISTED_MAX);
        let outgrown = &ended[..surplus.min(ended.len())];
        self.moves.retain(|other| !outgrown.contains(&other.name));
        self.moves.push(Registered {
            name: name.clone(),
            plan: plan.clone(),
        });
        Ok(self)
    }
}

impl Registry {
    /// A shard of the plan that the move at this place has yet to clean of some of the plan's keys. Scopes can be compared
    /// only as long as no whole collection was placed by another shard key since.
    fn to_be_cleaned<'a>(&'a self, place: usize, plan: &Plan) -> Option<&'a ShardName> {
        let tidying = &self.moves[place].plan;
        let placed = |later: &Registered| {
            later.plan.collection == plan.collection
                && matches!(later.plan.moved, Moved::Whole { .. })
        };
        let comparable = !self.moves[place + 1..].iter().any(placed);
        if tidying.collection != plan.collection || (comparable && !tidying.overlaps(plan)) {
            return None;
        }
        let touched = [End::Source, End::Target].map(|end| plan.shards(end));
        let mut sources = tidying.shards(End::Source).into_iter();
        sources.find(|shard| touched.iter().any(|shards| shards.contains(*shard)))
    }
}

async fn load(control: &dyn ControlStore) -> Result<(Registry, Option<u64>), MoveError> {
    let value = control.control_get(MOVES_NAME).await;
    let Some(value) = value.map_err(MoveError::Control)? else {
        return Ok((Registry::default(), None));
    };
    let registry = serde_json::from_slice(&value.bytes).map_err(|error| MoveError::Damaged {
        reason: error.to_string(),
    })?;
    Ok((registry, Some(value.number)))
}

async fn record_of(
    control: &dyn ControlStore,
    name: &MoveName,
) -> Result<Option<Tenured<MoveState>>, MoveError> {
    let found = work_name(name)?.load::<MoveState>(control).await?;
    Ok(found.map(|(_, value)| value))
}
