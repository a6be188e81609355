//! Who starts moves, and asks of them whatever comes to mind.

use std::sync::Arc;
use std::time::Duration;

use engine_api::{ControlStore, Remedy};
use layout::Collection;
use mover::{
    MoveError, MoveName, MoveState, Moved, Pace, Phase, Plan, Shards, Throttle, Wish, ask, list,
    set_pace, set_throttle, start, status,
};
use router::{MapKeeper, ShardName};
use tokio::time::{Instant, sleep};

use super::planning::pick;
use crate::chance::Chance;
use crate::recording::Recording;

/// Moves of one collection that follow one another.
const MOVES_MAX: u64 = 3;
/// Moves that go the way back of the one before.
const BACK_PERCENT: u64 = 60;
const BETWEEN_MOVES_MS_MAX: u64 = 150;
/// How long an operator stays.
const STAYS_MS_LEAST: u64 = 900;
const STAYS_MS_MOST: u64 = 2_600;
const LOOKS_MS_LEAST: u64 = 20;
const LOOKS_MS_MOST: u64 = 90;
/// What a freeze may take: enough as a rule, and sometimes too little.
const FREEZE_MS_LEAST: u64 = 300;
const FREEZE_MS_MOST: u64 = 1_500;
const SHORT_FREEZE_MS: u64 = 25;
const SHORT_FREEZE_PERCENT: u64 = 12;
const START_ATTEMPTS_MAX: u32 = 50;
/// A move that gets on does so within this time, when all is calm.
const REST_LOOKS_MAX: u32 = 1_500;
const REST_LOOK: Duration = Duration::from_millis(20);
/// What a throttled copy had not brought over yet is no difference soon after: five seconds of the world (seed 2129).
const DIFFERING_LOOKS_MAX: u32 = 250;
/// Wishes for one move that are heard in the end.
const LAST_WISHES_MAX: u32 = 4;

/// The moves of one collection.
#[derive(Debug)]
pub struct Operator {
    pub collection: Collection,
    pub shards: Shards,
    /// Those that the collection may be on.
    pub places: Vec<ShardName>,
    pub control: Arc<dyn ControlStore>,
    pub recording: Recording,
    pub chance: Chance,
    /// Names are never used twice.
    pub named: u64,
    pub begun: Option<(MoveName, Plan)>,
}

impl Operator {
    /// Brings a first move to where somebody must decide, while nothing disturbs it.
    pub async fn begin_early(&mut self) {
        let Some(plan) = self.draw().await else {
            return;
        };
        let name = self.next_name();
        if self.start(&name, &plan).await {
            at_rest(self.control.as_ref(), &self.recording, &name).await;
            self.begun = Some((name, plan));
        }
    }

    pub async fn move_about(mut self) {
        let stays_ms = self.chance.between(STAYS_MS_LEAST, STAYS_MS_MOST);
        let until = Instant::now() + Duration::from_millis(stays_ms);
        let mut before: Option<Plan> = None;
        for _ in 0..self.chance.between(1, MOVES_MAX) {
            let (name, plan) = match self.begun.take() {
                Some(begun) => begun,
                None => match self.begin(before.take()).await {
                    Some(begun) => begun,
                    None => continue,
                },
            };
            self.stay_with(&name, &plan, until).await;
            before = Some(plan);
        }
    }

    /// The next move, perhaps the way back of the one before.
    async fn begin(&mut self, before: Option<Plan>) -> Option<(MoveName, Plan)> {
        let pause = self.chance.below(BETWEEN_MOVES_MS_MAX);
        sleep(Duration::from_millis(pause)).await;
        let back = self.chance.percent(BACK_PERCENT);
        let plan = match before {
            Some(before) if back => reversed(&before),
            _ => self.draw().await?,
        };
        let name = self.next_name();
        let started = self.start(&name, &plan).await;
        started.then_some((name, plan))
    }

    fn next_name(&mut self) -> MoveName {
        self.named += 1;
        let name = MoveName::new(format!("{}-{}", self.collection, self.named));
        name.expect("collections and numbers make names")
    }

    async fn draw(&mut self) -> Option<Plan> {
        let keeper = MapKeeper::new(Arc::clone(&self.control));
        let map = keeper.load().await.ok()??;
        let picked = pick(&map, self.collection, &self.places, &mut self.chance)?;
        let freeze_ms_max = match self.chance.percent(SHORT_FREEZE_PERCENT) {
            true => SHORT_FREEZE_MS,
            false => self.chance.between(FREEZE_MS_LEAST, FREEZE_MS_MOST),
        };
        Some(Plan {
            collection: self.collection,
            moved: Moved::Keys {
                scope: picked.scope,
                source: picked.source,
                target: picked.target,
            },
            freeze_ms_max,
        })
    }

    /// As often as it takes. Answers whether there is such a move now.
    async fn start(&self, name: &MoveName, plan: &Plan) -> bool {
        for _ in 0..START_ATTEMPTS_MAX {
            match start(&self.control, &self.shards, name, plan).await {
                Ok(()) => {
                    self.recording
                        .note(format!("move {name} is started: {plan:?}"));
                    return true;
                }
                Err(error) if error.remedy() == Remedy::GiveUp => {
                    self.recording
                        .note(format!("move {name} is refused: {error}"));
                    self.recording
                        .with(|history| history.moving.starts_refused += 1);
                    return false;
                }
                Err(_) => sleep(Duration::from_millis(LOOKS_MS_LEAST)).await,
            }
        }
        false
    }

    async fn stay_with(&mut self, name: &MoveName, plan: &Plan, until: Instant) {
        while Instant::now() < until {
            let pause = self.chance.between(LOOKS_MS_LEAST, LOOKS_MS_MOST);
            sleep(Duration::from_millis(pause)).await;
            let Ok(record) = status(self.control.as_ref(), name).await else {
                continue;
            };
            if record.state.phase.is_over() {
                return;
            }
            self.ask_something(name, plan, &record.state).await;
        }
    }

    async fn ask_something(&mut self, name: &MoveName, plan: &Plan, state: &MoveState) {
        let control = Arc::clone(&self.control);
        let control = control.as_ref();
        let drawn = self.chance.below(100);
        if state.pace == Pace::Paused {
            if drawn < 70 {
                self.asked("resume", set_pace(control, name, Pace::Running).await);
            }
            return;
        }
        let wish = match (&state.phase, drawn) {
            (_, 0..=3) => {
                return self.asked("pause", set_pace(control, name, Pace::Paused).await);
            }
            (_, 4..=9) => {
                let records_per_second_max = match self.chance.percent(50) {
                    true => Some(u32::try_from(self.chance.between(20, 200)).unwrap_or(20)),
                    false => None,
                };
                let throttle = Throttle {
                    records_per_second_max,
                    bytes_per_second_max: None,
                    p99_ms_max: None,
                    reason: "the operator asked for it".to_owned(),
                };
                return self.asked("throttle", set_throttle(control, name, throttle).await);
            }
            // Whatever it is, and wherever the move stands: it is refused where it does not belong.
            (_, 10..=13) => *self
                .chance
                .pick(&[Wish::Cutover, Wish::Rollback, Wish::Complete]),
            (_, 14) => Wish::Abort,
            (Phase::Ready { .. }, 15..=94) => Wish::Cutover,
            (Phase::Settling { .. }, 15..=34) => Wish::Rollback,
            (Phase::Settling { .. }, 35..=59) => Wish::Complete,
            (Phase::Settling { .. }, 60..=69) => return self.move_settling_keys(name, plan).await,
            _ => return,
        };
        self.asked(wish.name(), ask(control, name, wish).await);
    }

    /// Keys of a move that settles are not moved by another (W30); if it has ended meanwhile, they are.
    async fn move_settling_keys(&mut self, name: &MoveName, plan: &Plan) {
        let other = MoveName::new(format!("{name}-again")).expect("a name and a word make a name");
        if self.start(&other, &reversed(plan)).await {
            self.recording.note(format!("{other} follows {name}"));
        }
    }

    fn asked(&self, what: &str, answer: Result<(), MoveError>) {
        match answer {
            Ok(()) => {}
            Err(error @ MoveError::Refused { .. }) => {
                self.recording.note(format!("{what}: {error}"));
                self.recording
                    .with(|history| history.moving.wishes_refused += 1);
            }
            Err(error) => {
                self.recording.note(format!("{what} is not heard: {error}"));
            }
        }
    }
}

fn reversed(plan: &Plan) -> Plan {
    let moved = match plan.moved.clone() {
        Moved::Keys {
            scope,
            source,
            target,
        } => Moved::Keys {
            scope,
            source: target,
            target: source,
        },
        Moved::Whole {
            source,
            target,
            histories,
        } => Moved::Whole {
            source: target,
            target: source,
            histories: histories.reversed(),
        },
    };
    Plan {
        moved,
        ..plan.clone()
    }
}

/// When all is calm every move gets on: to its end, to where somebody must decide, or to a difference that it
/// names. Then somebody decides.
pub async fn bring_to_rest(control: &dyn ControlStore, recording: &Recording, mut chance: Chance) {
    let moves = match list(control).await {
        Ok(moves) => moves,
        Err(error) => {
            return recording.breach(format!("the list of moves cannot be read: {error}"));
        }
    };
    for (name, record) in moves {
        // Its operator died between the list and the record.
        if record.is_none() {
            continue;
        }
        // Nothing disturbs these calls, but the holder may be faster every time.
        for _ in 0..LAST_WISHES_MAX {
            if set_pace(control, &name, Pace::Running).await.is_ok()
                && set_throttle(control, &name, Throttle::default())
                    .await
                    .is_ok()
            {
                break;
            }
        }
        for _ in 0..LAST_WISHES_MAX {
            let Some(state) = at_rest(control, recording, &name).await else {
                break;
            };
            let wish = match (&state.phase, chance.below(3)) {
                (Phase::Ready { .. }, 0 | 1) => Wish::Cutover,
                (Phase::Ready { .. } | Phase::Verifying { .. }, _) => Wish::Abort,
                (Phase::Settling { .. }, 0) => Wish::Rollback,
                (Phase::Settling { .. }, 1) => Wish::Complete,
                _ => break,
            };
            recording.note(format!("last wish for {name}: {}", wish.name()));
            // It may be ready no more, or be refused for a reason that the record tells.
            drop(ask(control, &name, wish).await);
            sleep(REST_LOOK).await;
            if let Some(after) = at_rest(control, recording, &name).await
                && after.given_up != state.given_up
                && let Some(given_up) = after.given_up
                && given_up.why.contains("differ")
            {
                judge_difference(recording, &name, &after.plan, &given_up.why);
            }
        }
    }
}

/// Two copies differ for good only where the store does not fence: a straggler that nobody was told of may stand
/// at a former owner. No image is newer than it, and the verifier names it.
fn judge_difference(recording: &Recording, name: &MoveName, plan: &Plan, what: &str) {
    let by_lease = recording.with(|history| {
        let mut shards = plan.all_shards().into_iter();
        shards.any(|shard| history.by_lease.contains(shard))
    });
    if !by_lease {
        recording.breach(format!("{name} finds differences in quiet: {what}"));
    }
}

/// The state in which nothing more happens by itself.
async fn at_rest(
    control: &dyn ControlStore,
    recording: &Recording,
    name: &MoveName,
) -> Option<MoveState> {
    let (mut last, mut differing) = (None, 0);
    for _ in 0..REST_LOOKS_MAX {
        let state = match status(control, name).await {
            Ok(record) => record.state,
            Err(error) => {
                recording.breach(format!("the record of {name} cannot be read: {error}"));
                return None;
            }
        };
        let rests = match &state.phase {
            Phase::Cleaned { .. }
            | Phase::Completed { .. }
            | Phase::Aborted { .. }
            | Phase::RolledBack { .. } => {
                return None;
            }
            Phase::Ready { .. } | Phase::Settling { .. } => state.wish.is_none(),
            Phase::Verifying { .. } if state.shown.differences > 0 => {
                differing += 1;
                differing > DIFFERING_LOOKS_MAX
            }
            Phase::Verifying { .. } => false,
            Phase::Planned { .. }
            | Phase::Backfilling { .. }
            | Phase::CatchingUp { .. }
            | Phase::Noticed { .. }
            | Phase::Frozen { .. }
            | Phase::Resting { .. }
            | Phase::Cleaning { .. } => false,
        };
        if rests {
            if differing > DIFFERING_LOOKS_MAX {
                judge_difference(
                    recording,
                    name,
                    &state.plan,
                    &state.shown.differing.join(", "),
                );
            }
            return Some(state);
        }
        last = Some(state);
        sleep(REST_LOOK).await;
    }
    recording.breach(format!("move {name} does not get on: {last:?}"));
    None
}
