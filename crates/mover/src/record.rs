//! The progress record of one move: what stands beside the term in the control store,
//! and how operators change it.

use engine_api::{ControlStore, Generation, Timestamp};
use feed::tenure::{Tenured, WorkName};
use serde::{Deserialize, Serialize};

use crate::error::MoveError;
use crate::forecast::Forecast;
use crate::freeze::FreezeParts;
use crate::phase::Phase;
use crate::pins::Pins;
use crate::plan::{End, MoveName, Plan};
use crate::throttle::{Pacing, Throttle};
use crate::to_copy::ToCopy;
use crate::wish::{CutoverTime, Grace, Pace, Wish};

/// The longest reason that is kept.
const REASON_CHARACTERS_MAX: usize = 400;
/// Of which its end: there it says what to do.
const REASON_END_CHARACTERS: usize = 100;
const LEFT_OUT: &str = " … ";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveState {
    pub plan: Plan,
    pub phase: Phase,
    /// The mover's wall clock when the first position was about to be taken. Marks are kept
    /// from here on (W26); nothing else is decided by it.
    #[serde(default)]
    pub began_at_unix_us: Option<i64>,
    /// Those of the keys that were pinned before the cutover.
    #[serde(default)]
    pub pinned_before: Pins,
    pub pace: Pace,
    /// What the operator has asked for, until it is done or refused.
    pub wish: Option<Wish>,
    /// When it is to be wished without anybody asking; spent when it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cutover_time: Option<CutoverTime>,
    /// What becomes of the source after the completion; `None`: what the limits say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Grace>,
    pub throttle: Throttle,
    /// `None`: nobody could tell, or not yet. Nothing is decided by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_copy: Option<ToCopy>,
    /// `None`: not looked yet.
    #[serde(default)]
    pub felt_before: Option<FeltBefore>,
    /// The last cutover that did not come about.
    pub given_up: Option<GivenUp>,
    pub shown: Shown,
}

/// What was felt before the copy began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeltBefore {
    /// What 99 of 100 requests took; `None`: there were too few to tell, or nobody is served in the process that copies.
    pub p99_us: Option<u64>,
    /// What a read of one record took, on the slower side; `None`: there was none to read.
    #[serde(default)]
    pub engine_us: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GivenUp {
    pub why: String,
    /// Of the map that thawed the scope; `None`: it was never frozen.
    pub generation: Option<Generation>,
    /// How long the scope was frozen, as far as this process knows.
    pub freeze_ms: Option<u64>,
    pub at_unix_us: i64,
}

/// What a glance shows, as of the last time the record was renewed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shown {
    /// Images that the target was given, again and again included.
    pub records_copied: u64,
    /// Images that the source was given on the way back.
    pub records_copied_back: u64,
    pub lag_entries: u64,
    /// `None`: not caught up since this process took the move.
    pub lag_ms: Option<u64>,
    /// Journals are needed from this moment of the mover's wall clock on; `None`: from the beginning.
    #[serde(default)]
    pub journal_from_unix_us: Option<i64>,
    pub differences: u64,
    /// Some of them, by name.
    pub differing: Vec<String>,
    /// Rules of the shop that records break where they are now: told, and no reason to stay.
    #[serde(default)]
    pub findings: Vec<String>,
    /// How long the last cutover froze the scope.
    pub freeze_ms: Option<u64>,
    /// And where that time went; also of one that was given up.
    #[serde(default)]
    pub freeze_parts: FreezeParts,
    /// What a freeze would take, as of the last time a cutover was near.
    #[serde(default)]
    pub forecast: Option<Forecast>,
    /// How fast is copied now, and why not faster.
    #[serde(default)]
    pub pacing: Pacing,
    /// Records that the source has forgotten after the completion.
    #[serde(default)]
    pub records_removed: u64,
    /// Why the source is not cleaned yet although its grace is over.
    #[serde(default)]
    pub in_use: Option<String>,
    /// Why the last pass did not get on; `None`: it did.
    pub trouble: Option<String>,
}

impl MoveState {
    /// Whether it is time to wish the cutover. Only a move that is ready can be cut over.
    pub(crate) fn cuts_over_by_itself(&self, now: Timestamp) -> bool {
        let free = self.pace == Pace::Running && self.wish.is_none();
        let ready = self.phase.accepts(Wish::Cutover).is_ok();
        free && ready && self.cutover_time.is_some_and(|time| time.is_due(now))
    }

    /// The ends without which it does not go on. Who gives up needs only the one that is left: there a displaced mover
    /// could still raise its fence (W21). The other may be gone for good, and shoppers are not to wait for it; images are
    /// refused by the terms of feeds, which their next holder claims.
    pub fn ends_needed(&self) -> Vec<End> {
        let aborts = self.wish == Some(Wish::Abort);
        match &self.phase {
            // Nothing is done anywhere, so that a source that is gone can still be given up.
            Phase::Resting { .. } => Vec::new(),
            Phase::Cleaning { .. } if aborts => Vec::new(),
            Phase::Cleaning { .. } => vec![End::Source],
            Phase::Frozen { way, .. } => vec![way.entered().other()],
            phase if aborts && phase.precedes_its_cutover() => vec![End::Source],
            _ => vec![End::Source, End::Target],
        }
    }

    pub fn first(plan: Plan) -> MoveState {
        MoveState {
            plan,
            phase: Phase::first(),
            began_at_unix_us: None,
            pinned_before: Pins::default(),
            pace: Pace::Running,
            wish: None,
            cutover_time: None,
            grace: None,
            throttle: Throttle::default(),
            to_copy: None,
            felt_before: None,
            given_up: None,
            shown: Shown::default(),
        }
    }
}

/// The record as it stands, with who holds it.
pub async fn status(
    control: &dyn ControlStore,
    name: &MoveName,
) -> Result<Tenured<MoveState>, MoveError> {
    let found = work_name(name)?.load(control).await?;
    let (_, value) = found.ok_or_else(|| no_move(name))?;
    Ok(value)
}

/// Asks for it. Refused, with the reason, where it does not belong.
pub async fn ask(control: &dyn ControlStore, name: &MoveName, wish: Wish) -> Result<(), MoveError> {
    ask_within(control, name, wish, None).await
}

/// The same with another budget for its freezes from now on; `None`: the one it has. Who wants to leave a shard that is
/// too slow meets a forecast beyond the budget just for that.
pub async fn ask_within(
    control: &dyn ControlStore,
    name: &MoveName,
    wish: Wish,
    freeze_ms_max: Option<u64>,
) -> Result<(), MoveError> {
    let lost = match wish {
        Wish::Rollback => has_lost_its_way_back(control, name).await?,
        Wish::Cutover | Wish::Abort | Wish::Complete => false,
    };
    let refused = |reason: &str| MoveError::Refused {
        name: name.to_string(),
        wished: wish.name(),
        reason: reason.to_owned(),
    };
    amend(control, name, |state| {
        state.phase.accepts(wish).map_err(refused)?;
        if lost {
            // W28: nobody knows what the target has taken since.
            return Err(refused(
                "the feed that leads back has lost its position: complete it, then move the keys back",
            ));
        }
        let mut wished = state.clone();
        wished.wish = Some(wish);
        if let Some(freeze_ms_max) = freeze_ms_max {
            wished.plan.freeze_ms_max = freeze_ms_max;
            wished.plan.check_budget()?;
        }
        Ok(wished)
    })
    .await
}

/// Completes it, or says anew what becomes of its source as long as that is not being cleaned.
pub async fn complete(
    control: &dyn ControlStore,
    name: &MoveName,
    grace: Option<Grace>,
) -> Result<(), MoveError> {
    amend(control, name, |state| {
        let refused = |reason: &str| MoveError::Refused {
            name: name.to_string(),
            wished: Wish::Complete.name(),
            reason: reason.to_owned(),
        };
        state.phase.accepts(Wish::Complete).map_err(refused)?;
        Ok(MoveState {
            wish: Some(Wish::Complete),
            grace,
            ..state.clone()
        })
    })
    .await
}

/// Says when the move cuts over by itself; `None`: when somebody asks.
pub async fn set_cutover_time(
    control: &dyn ControlStore,
    name: &MoveName,
    time: Option<CutoverTime>,
) -> Result<(), MoveError> {
    amend(control, name, |state| {
        // Whoever may still abort it may still decide when it cuts over.
        if !state.phase.precedes_its_cutover() {
            let refused = state.phase.accepts(Wish::Cutover);
            let reason = refused.err().unwrap_or("it has cut over already");
            return Err(MoveError::Refused {
                name: name.to_string(),
                wished: Wish::Cutover.name(),
                reason: reason.to_owned(),
            });
        }
        Ok(MoveState {
            cutover_time: time,
            ..state.clone()
        })
    })
    .await
}

pub async fn set_pace(
    control: &dyn ControlStore,
    name: &MoveName,
    pace: Pace,
) -> Result<(), MoveError> {
    amend(control, name, |state| {
        Ok(MoveState {
            pace,
            ..state.clone()
        })
    })
    .await
}

pub async fn set_throttle(
    control: &dyn ControlStore,
    name: &MoveName,
    throttle: Throttle,
) -> Result<(), MoveError> {
    amend(control, name, |state| {
        Ok(MoveState {
            throttle: Throttle {
                reason: shortened(&throttle.reason),
                ..throttle.clone()
            },
            ..state.clone()
        })
    })
    .await
}

/// Says once how much there is to copy: who starts the same move again would count what has come since.
pub async fn set_to_copy(
    control: &dyn ControlStore,
    name: &MoveName,
    to_copy: ToCopy,
) -> Result<(), MoveError> {
    amend(control, name, |state| {
        Ok(MoveState {
            to_copy: state.to_copy.or(Some(to_copy)),
            ..state.clone()
        })
    })
    .await
}

async fn has_lost_its_way_back(
    control: &dyn ControlStore,
    name: &MoveName,
) -> Result<bool, MoveError> {
    let progress = feed::progress(control, &name.back_feed()).await?;
    Ok(progress.is_some_and(|progress| matches!(progress.phase, feed::Phase::Lost { .. })))
}

async fn amend(
    control: &dyn ControlStore,
    name: &MoveName,
    change: impl Fn(&MoveState) -> Result<MoveState, MoveError>,
) -> Result<(), MoveError> {
    let work = work_name(name)?;
    let amended = work.amend(control, |state: &MoveState| change(state).map(Some));
    match amended.await? {
        Some(_) => Ok(()),
        None => Err(no_move(name)),
    }
}

pub(crate) fn work_name(name: &MoveName) -> Result<WorkName, MoveError> {
    Ok(WorkName::new("move", name.as_str())?)
}

/// What a driver has to say may be long, and stands in the middle.
pub(crate) fn shortened(reason: &str) -> String {
    let length = reason.chars().count();
    if length <= REASON_CHARACTERS_MAX {
        return reason.to_owned();
    }
    let left_out = LEFT_OUT.chars().count();
    let begin = reason
        .chars()
        .take(REASON_CHARACTERS_MAX - REASON_END_CHARACTERS - left_out);
    let end = reason.chars().skip(length - REASON_END_CHARACTERS);
    begin.chain(LEFT_OUT.chars()).chain(end).collect()
}

fn no_move(name: &MoveName) -> MoveError {
    MoveError::NoMove {
        name: name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use layout::{Collection, Scope};
    use router::ShardName;

    use super::*;
    use crate::plan::Moved;

    #[test]
    fn a_record_from_before_sizes_were_noted_is_read() {
        let shard = |name| ShardName::new(name).unwrap();
        let state = MoveState::first(Plan {
            collection: Collection::Carts,
            moved: Moved::Keys {
                scope: Scope::All,
                source: shard("source"),
                target: shard("target"),
            },
            freeze_ms_max: 100,
        });
        let before = serde_json::to_value(&state).unwrap();
        assert_eq!(
            before.get("to_copy"),
            None,
            "who knows of no sizes reads it"
        );
        assert_eq!(serde_json::from_value::<MoveState>(before).unwrap(), state);
    }

    #[test]
    fn a_long_reason_keeps_its_beginning_and_what_to_do() {
        assert_eq!(shortened("short: wait"), "short: wait");
        let long = format!("shard-2: gone ({}): start it again", "ü".repeat(1_000));
        let kept = shortened(&long);
        assert_eq!(kept.chars().count(), REASON_CHARACTERS_MAX);
        assert!(kept.starts_with("shard-2: gone (ü"), "{kept}");
        assert!(kept.ends_with("ü): start it again"), "{kept}");
    }
}
