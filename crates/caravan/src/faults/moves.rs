//! Fault points of a move. Everything a move decides is a compare-and-set in the control
//! store, of its record or of the map: who stands in between sees every step, and the mover
//! knows nothing of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use engine_api::{ControlStore, ControlValue, EngineError, SetOutcome};
use feed::tenure::Tenured;
use mover::{MoveState, Phase, Way};
use router::{MAP_NAME, Map};

use super::point::{Kind, Side};
use super::{Fate, Trap};

/// How the names of the records begin.
const RECORD_PREFIX: &str = "move-";

/// A control store whose process ends at a point.
#[derive(Debug)]
pub struct FaultyControl {
    control: Arc<dyn ControlStore>,
    trap: Arc<Trap>,
    /// What this process saved last of each move: a renewal enters nothing.
    saved: Mutex<BTreeMap<String, &'static str>>,
}

impl FaultyControl {
    pub fn new(control: Arc<dyn ControlStore>, trap: Arc<Trap>) -> FaultyControl {
        let saved = Mutex::default();
        FaultyControl {
            control,
            trap,
            saved,
        }
    }

    /// Whether such a value is what the point waits for.
    async fn is_met(&self, name: &str, bytes: &[u8]) -> Result<bool, EngineError> {
        match self.trap.point.kind {
            Kind::Move { step } => {
                Ok(step_of(name, bytes) == Some(step) && self.saved(name) != Some(step))
            }
            Kind::Map { change } if name == MAP_NAME => {
                let standing = self.control.control_get(MAP_NAME).await?;
                Ok(change_of(standing.as_ref(), bytes) == Some(change))
            }
            Kind::Map { .. } | Kind::Write { .. } => Ok(false),
        }
    }

    fn saved(&self, name: &str) -> Option<&'static str> {
        let saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        saved.get(name).copied()
    }

    fn note(&self, name: &str, step: Option<&'static str>) {
        if let Some(step) = step {
            let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
            saved.insert(name.to_owned(), step);
        }
    }
}

#[async_trait]
impl ControlStore for FaultyControl {
    async fn control_get(&self, name: &str) -> Result<Option<ControlValue>, EngineError> {
        self.control.control_get(name).await
    }

    async fn compare_and_set(
        &self,
        name: &str,
        expected: Option<u64>,
        bytes: Vec<u8>,
    ) -> Result<SetOutcome, EngineError> {
        let is_met = self.is_met(name, &bytes).await?;
        let is_before = self.trap.point.side == Side::Before;
        if is_met && is_before && self.trap.met() == Fate::Ends {
            self.trap.spring();
        }
        let step = step_of(name, &bytes);
        let outcome = self.control.compare_and_set(name, expected, bytes).await;
        if let Ok(SetOutcome::Set { .. }) = outcome {
            self.note(name, step);
            if is_met && !is_before && self.trap.met() == Fate::Ends {
                self.trap.spring();
            }
        }
        outcome
    }
}

/// `None`: it is no record of a move.
fn step_of(name: &str, bytes: &[u8]) -> Option<&'static str> {
    name.strip_prefix(RECORD_PREFIX)?;
    let record: Tenured<MoveState> = serde_json::from_slice(bytes).ok()?;
    Some(match record.state.phase {
        Phase::Planned { barrier: None } => "planned",
        Phase::Planned { barrier: Some(_) } => "barrier",
        Phase::Backfilling { .. } => "backfilling",
        Phase::CatchingUp { .. } => "catching-up",
        Phase::Verifying { .. } => "verifying",
        Phase::Ready { .. } => "ready",
        Phase::Noticed { way, .. } => on_the(&way, "noticed", "noticed-back"),
        Phase::Frozen {
            way, proven: None, ..
        } => on_the(&way, "frozen", "frozen-back"),
        Phase::Frozen {
            way,
            proven: Some(_),
            ..
        } => on_the(&way, "proven", "proven-back"),
        Phase::Settling { .. } => "settling",
        Phase::Resting { .. } | Phase::Completed { .. } => "completed",
        Phase::Cleaning { .. } => "cleaning",
        Phase::Cleaned { .. } => "cleaned",
        Phase::Aborted { .. } => "aborted",
        Phase::RolledBack { .. } => "rolled-back",
    })
}

fn on_the(way: &Way, forward: &'static str, back: &'static str) -> &'static str {
    match way {
        Way::Forward { .. } => forward,
        Way::Back { .. } => back,
    }
}

/// What the offered map would change; `None`: one of both is no map.
fn change_of(standing: Option<&ControlValue>, offered: &[u8]) -> Option<&'static str> {
    let standing = Map::from_json(&standing?.bytes).ok()?;
    let offered = Map::from_json(offered).ok()?;
    let frozen = |map: &Map| -> BTreeSet<String> {
        let collections = map.collections.iter();
        let scopes = collections.flat_map(|(name, map)| {
            let scopes = map.frozen.iter();
            scopes.map(move |scope| format!("{name} {scope:?}"))
        });
        scopes.collect()
    };
    let (before, after) = (frozen(&standing), frozen(&offered));
    let owners = |mut map: Map| {
        let collections = map.collections.values_mut();
        collections.for_each(|collection| collection.frozen.clear());
        map.collections
    };
    if after.difference(&before).next().is_some() {
        return Some("freeze");
    }
    Some(
        match (before == after, owners(standing) == owners(offered)) {
            (_, false) => "cutover",
            (false, true) => "thaw",
            (true, true) => "notice",
        },
    )
}

#[cfg(test)]
mod tests;
