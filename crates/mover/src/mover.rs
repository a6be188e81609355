//! One move, as one process runs it.
//!
//! A pass does a bounded piece of work and may be dropped at any `.await`, or the
//! process killed: the record says what may be under way, and the next pass, of this
//! process or of another, looks what became of it.

mod living;

mod copying;
mod pacing;
mod probing;

mod comparing;

mod publishing;

mod foreseeing;

mod freezing;

mod cutover;

mod settling;

mod cleaning;

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use engine_api::{ControlStore, Engine, EngineError, Generation, Terms, World};
use feed::tenure::{Found, Held, Saved, Tenure, Watch};
use feed::{Feed, FeedError};
use router::{LeaseJudge, MapKeeper, Router};
use verifier::VerifyError;

use crate::error::{MoveError, Unfit};
use crate::forecast::{Forecast, Measured};
use crate::freeze::FreezeParts;
use crate::limits::Limits;
use crate::phase::{Event, Phase, Way, WriteOwner};
use crate::plan::{End, MoveName, Plan};
use crate::preflight::{Shards, engine_at};
use crate::record::{MoveState, Shown, shortened, work_name};
use crate::side::Role;
use crate::throttle::Pressure;
use crate::wish::{Pace, Wish};
use cleaning::Tidying;
use comparing::Comparing;
use living::Living;

/// How often one change of the record is made anew because an operator was first.
const UPDATE_ATTEMPTS_MAX: u32 = 16;
/// How often a term is claimed again above one that an engine has met.
const CLAIM_ATTEMPTS_MAX: u32 = 4;
/// How often a move is let go again because its record was changed in between.
const RELEASE_ATTEMPTS_MAX: u32 = 4;

#[derive(Clone, Debug)]
pub struct MoverConfig {
    pub name: MoveName,
    pub shards: Shards,
    pub control: Arc<dyn ControlStore>,
    pub world: Arc<dyn World>,
    /// Of this process, if it serves: it is told of every map at once.
    pub router: Option<Arc<Router>>,
    /// How long shoppers' requests take here; `None`: nobody is served in this process.
    pub pressure: Option<Arc<dyn Pressure>>,
    pub limits: Limits,
    pub feed_limits: feed::Limits,
    pub verifier_limits: verifier::Limits,
    /// By which the leases of others are judged.
    pub router_limits: router::Limits,
    /// What the shop promises of its records: part of what a cutover is proven by.
    pub invariants: Option<Arc<dyn verifier::Invariants>>,
}

pub struct Mover {
    config: MoverConfig,
    keeper: MapKeeper,
    tenure: Tenure<MoveState>,
    standing: Standing,
}

/// What one pass came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Another process works for this move.
    Watching,
    /// There is more to do at once.
    Behind,
    /// Nothing to do before so many milliseconds have passed.
    Waiting { ms: u64 },
    /// Nothing follows any more.
    Ended,
}

enum Standing {
    Watching(Watch),
    Holding(Box<Work>),
}

/// What the holder remembers between two passes; none of it outlives the process.
struct Work {
    held: Held<MoveState>,
    /// Where no lower term counts any more.
    claimed: Vec<End>,
    /// When the record was last set, by `World::elapsed`.
    renewed: Duration,
    judge: Arc<LeaseJudge>,
    /// The last notice of a cutover that this process has published, and when.
    noticed: Option<(Generation, Duration)>,
    /// Of the last freeze.
    freeze_parts: FreezeParts,
    /// Since when every lease has acknowledged the barrier, by `World::elapsed`.
    acknowledged_at: Option<Duration>,
    forward: Option<Feed>,
    back: Option<Feed>,
    comparing: Option<Comparing>,
    pace: pacing::Pace,
    measured: Measured,
    forecast: Option<Forecast>,
    /// A cutover that was put off is not tried before, by `World::elapsed`.
    postponed_until: Duration,
    /// What the record said when this process took the move, and what feeds counted that were opened anew since.
    copied_before: u64,
    copied_back_before: u64,
    tidying: Tidying,
    trouble: Option<String>,
    endings: Endings,
}

/// Whether every write where the records go is known to have come to its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Endings {
    Known,
    /// A process or a server may have died over one: of this copy, of an earlier one that was rolled back, or of shoppers
    /// who were served there before. Derived rows may not follow their records.
    Unknown,
}

/// The holder at work.
struct Runner<'a> {
    config: &'a MoverConfig,
    keeper: &'a MapKeeper,
    tenure: &'a Tenure<MoveState>,
    work: &'a mut Work,
}

impl Mover {
    pub fn new(config: MoverConfig) -> Result<Mover, MoveError> {
        config.limits.check()?;
        config.verifier_limits.check().map_err(VerifyError::from)?;
        let me = format!(
            "{:016x}{:016x}",
            config.world.random(),
            config.world.random()
        );
        let name = work_name(&config.name)?;
        Ok(Mover {
            keeper: MapKeeper::new(config.control.clone()),
            tenure: Tenure::new(config.control.clone(), name, me, None),
            standing: Standing::Watching(Watch::default()),
            config,
        })
    }

    /// Works until the move has ended or `stop`, then lets the next process begin.
    /// Failed passes are logged and tried again.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let (world, limits) = (self.config.world.clone(), self.config.limits.clone());
        let mut stop = pin!(stop);
        let mut failures = 0u32;
        loop {
            let pass = tokio::select! {
                biased;
                () = &mut stop => break,
                pass = self.pass() => pass,
            };
            let pause_ms = match pass {
                Ok(pass) => {
                    failures = 0;
                    match pass {
                        Pass::Ended => break,
                        Pass::Behind => 0,
                        Pass::Watching => limits.poll_ms,
                        Pass::Waiting { ms } => ms.min(limits.poll_ms),
                    }
                }
                // It came after this mover, if it is open here by now: another one has it.
                Err(MoveError::Unfit(Unfit::UnknownShard { .. })) => break,
                Err(error) => {
                    let factor = 1u64.checked_shl(failures).unwrap_or(u64::MAX);
                    let pause_ms = limits.poll_ms.saturating_mul(factor);
                    let pause_ms = pause_ms.min(limits.retry_ms_max);
                    failures = failures.saturating_add(1);
                    let name = self.config.name.as_str();
                    tracing::warn!(name, %error, failures, pause_ms, "a move does not get on");
                    pause_ms
                }
            };
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = world.sleep(Duration::from_millis(pause_ms)) => {}
            }
        }
        if let Standing::Holding(_) = &self.standing {
            self.let_go().await;
        }
    }

    /// Lets the next process begin at once. The record may have changed since the last
    /// look: an operator amended it, or a save that was cut off has landed.
    async fn let_go(&self) {
        for _ in 0..RELEASE_ATTEMPTS_MAX {
            match self.tenure.look().await {
                Ok(Found::Own(held)) => self.tenure.release(&held).await,
                Ok(Found::Nobody | Found::Other(_)) => return,
                Err(error) => {
                    let name = self.config.name.as_str();
                    tracing::warn!(name, %error, "a move could not be let go: others take it over later");
                    return;
                }
            }
        }
    }

    /// A bounded piece of work.
    pub async fn pass(&mut self) -> Result<Pass, MoveError> {
        let pass = self.pass_once().await;
        match (&pass, &mut self.standing) {
            // Nothing of what it remembers counts any more.
            (Err(MoveError::TermLost { .. }), standing) => {
                *standing = Standing::Watching(Watch::default());
            }
            (Err(error), Standing::Holding(work)) => {
                work.trouble = Some(shortened(&error.to_string()));
                work.endings = Endings::Unknown;
            }
            (Ok(_), Standing::Holding(work)) => work.trouble = None,
            (_, Standing::Watching(_)) => {}
        }
        pass
    }

    async fn pass_once(&mut self) -> Result<Pass, MoveError> {
        if let Standing::Watching(_) = self.standing
            && !self.seek().await?
        {
            return Ok(Pass::Watching);
        }
        let Standing::Holding(work) = &mut self.standing else {
            return Ok(Pass::Watching);
        };
        let mut runner = Runner {
            config: &self.config,
            keeper: &self.keeper,
            tenure: &self.tenure,
            work,
        };
        runner.look().await?;
        if runner.phase().is_over() {
            return Ok(Pass::Ended);
        }
        let living = Living::since(runner.work.renewed, &self.config, &self.tenure);
        tokio::select! {
            biased;
            pass = runner.go_on() => pass,
            lost = living.until_lost() => Err(lost),
        }
    }

    /// Looks who works for the move, and takes it if nobody does, or nobody was seen
    /// to for too long. Answers whether it is ours now.
    async fn seek(&mut self) -> Result<bool, MoveError> {
        let Standing::Watching(watch) = &mut self.standing else {
            return Ok(true);
        };
        let now = self.config.world.elapsed();
        let patience = Duration::from_millis(self.config.limits.take_over_ms);
        let Some(held) = self.tenure.seek(watch, now, patience).await? else {
            return Ok(false);
        };
        let (name, term) = (self.tenure.name(), held.term);
        tracing::info!(
            name,
            term,
            phase = held.state.phase.name(),
            "works for a move"
        );
        let config = &self.config;
        let judge = LeaseJudge::new(
            config.control.clone(),
            config.world.clone(),
            &config.router_limits,
        );
        let freeze_parts = held.state.shown.freeze_parts;
        let forecast = held.state.shown.forecast;
        self.standing = Standing::Holding(Box::new(Work {
            copied_before: held.state.shown.records_copied,
            copied_back_before: held.state.shown.records_copied_back,
            endings: Endings::Unknown,
            tidying: Tidying::after(held.state.shown.records_removed),
            held,
            claimed: Vec::new(),
            renewed: now,
            judge: Arc::new(judge),
            noticed: None,
            freeze_parts,
            acknowledged_at: None,
            forward: None,
            back: None,
            comparing: None,
            pace: pacing::Pace::default(),
            measured: Measured::default(),
            forecast,
            postponed_until: Duration::ZERO,
            trouble: None,
        }));
        Ok(true)
    }
}

impl Runner<'_> {
    async fn go_on(&mut self) -> Result<Pass, MoveError> {
        // Before the claim: a side that does not answer is told of, and the move stays where it is.
        self.renew().await?;
        self.claim().await?;
        self.advance().await
    }

    async fn advance(&mut self) -> Result<Pass, MoveError> {
        let now = self.config.world.now();
        if self.work.held.state.cuts_over_by_itself(now) {
            self.update(|state| {
                // Withdrawn, paused or asked for otherwise in this moment: then that counts.
                if state.cuts_over_by_itself(now) {
                    state.wish = Some(Wish::Cutover);
                    state.cutover_time = None;
                }
                Ok(())
            })
            .await?;
        }
        let state = self.work.held.state.clone();
        match state.wish {
            Some(Wish::Abort) if state.phase.is_tidying() => return self.keep().await,
            Some(Wish::Abort) if state.phase.precedes_its_cutover() => {
                return self.abort("the operator asked for it").await;
            }
            Some(Wish::Complete) if state.phase.accepts(Wish::Complete).is_ok() => {
                return self.complete().await;
            }
            Some(Wish::Abort | Wish::Complete | Wish::Cutover | Wish::Rollback) | None => {}
        }
        let cuts_over = matches!(state.phase, Phase::Noticed { .. } | Phase::Frozen { .. });
        if state.pace == Pace::Paused && !cuts_over {
            return Ok(self.waiting());
        }
        match state.phase {
            Phase::Planned { barrier: None } => self.begin().await,
            Phase::Planned {
                barrier: Some(barrier),
            } => self.await_barrier(barrier).await,
            Phase::Backfilling { .. } => self.backfill().await,
            Phase::CatchingUp { .. } => self.catch_up().await,
            Phase::Verifying { .. } => self.verify().await,
            Phase::Ready { barrier, back_from } => {
                let way = Way::Forward { barrier, back_from };
                self.stay_ready(&way).await
            }
            Phase::Noticed { way, generation } => self.noticed(&way, generation).await,
            Phase::Frozen { .. } => self.recover("the process that froze it was gone").await,
            Phase::Settling { settled } => self.settle(&Way::Back { settled }).await,
            Phase::Resting { grace_ms, .. } => self.rest(grace_ms).await,
            Phase::Cleaning { settled } => self.clean(&settled).await,
            Phase::Cleaned { .. }
            | Phase::Completed { .. }
            | Phase::Aborted { .. }
            | Phase::RolledBack { .. } => Ok(Pass::Ended),
        }
    }

    /// Before the freeze nothing has changed for shoppers: the feeds end, and that is all.
    async fn abort(&mut self, why: &str) -> Result<Pass, MoveError> {
        let why = shortened(why);
        self.work.forward = None;
        self.work.back = None;
        self.work.comparing = None;
        self.update(|state| {
            stepped(state, Event::Aborted { why: why.clone() })?;
            state.wish = None;
            Ok(())
        })
        .await?;
        Ok(Pass::Ended)
    }

    /// The record as it stands: what operators wish, and whether it is still ours.
    async fn look(&mut self) -> Result<(), MoveError> {
        match self.tenure.look().await? {
            Found::Own(held) => {
                self.work.held = held;
                Ok(())
            }
            Found::Nobody | Found::Other(_) => Err(MoveError::TermLost {
                name: self.tenure.name().to_owned(),
            }),
        }
    }

    /// Ends every lower term at the ends that are needed, before anything else is done there (W21).
    async fn claim(&mut self) -> Result<(), MoveError> {
        for end in self.work.held.state.ends_needed() {
            if !self.work.claimed.contains(&end) {
                self.claim_at(end).await?;
                self.work.claimed.push(end);
            }
        }
        Ok(())
    }

    async fn claim_at(&mut self, end: End) -> Result<(), MoveError> {
        let engine = self.entered(end)?;
        if engine.capabilities().terms == Terms::Unsupported {
            return Ok(());
        }
        let mut attempts = 0;
        loop {
            attempts += 1;
            let term = self.tenure.mover_term(&self.work.held);
            match engine.claim_term(term).await {
                Ok(()) => return Ok(()),
                // The control store knows less than the engine: it was restored
                // from a copy. Who really lost the move learns it here.
                Err(EngineError::TermLost { current, .. }) if attempts < CLAIM_ATTEMPTS_MAX => {
                    self.tenure.raise(&mut self.work.held, current).await?;
                }
                Err(source) => return Err(self.of_end(end, source)),
            }
        }
    }

    /// Shows that this process is alive, if it is time to.
    async fn renew(&mut self) -> Result<(), MoveError> {
        let renew = Duration::from_millis(self.config.limits.renew_ms);
        let now = self.config.world.elapsed();
        if now.saturating_sub(self.work.renewed) < renew {
            return Ok(());
        }
        self.update(|_| Ok(())).await
    }

    async fn event(&mut self, event: Event) -> Result<(), MoveError> {
        self.update(|state| stepped(state, event.clone())).await
    }

    /// Changes the record, on top of whatever an operator changed meanwhile.
    async fn update(
        &mut self,
        change: impl Fn(&mut MoveState) -> Result<(), MoveError>,
    ) -> Result<(), MoveError> {
        for _ in 0..UPDATE_ATTEMPTS_MAX {
            let mut next = self.work.held.state.clone();
            next.shown = self.shown();
            change(&mut next)?;
            let now = self.config.world.elapsed();
            let saved = self.tenure.save(&mut self.work.held, next).await?;
            let took = self.config.world.elapsed().saturating_sub(now);
            self.work.measured.control.add(took);
            if saved == Saved::AsAsked {
                self.work.renewed = now;
                return Ok(());
            }
        }
        Err(MoveError::Contended {
            what: "the record of the move",
            times: UPDATE_ATTEMPTS_MAX,
        })
    }

    fn shown(&self) -> Shown {
        let before = &self.work.held.state.shown;
        let applied = |feed: &Option<Feed>| {
            let counts = feed.as_ref().map(Feed::counts);
            counts.map_or(0, |counts| counts.applied.value())
        };
        let feed = match self.work.held.state.phase {
            Phase::Settling { .. } => &self.work.back,
            _ => &self.work.forward,
        };
        let counts = feed.as_ref().map(Feed::counts);
        let now_us = self.config.world.now().unix_micros();
        let lag_ms = counts
            .as_ref()
            .and_then(|counts| counts.done_before())
            .map(|done| u64::try_from((now_us - done.unix_micros()) / 1_000).unwrap_or(0));
        let (differences, differing) = match &self.work.comparing {
            Some(comparing) => comparing.differing(self.config.limits.differences_shown_max),
            None => (before.differences, before.differing.clone()),
        };
        let journal_from_unix_us = self.journal_from().or(before.journal_from_unix_us);
        let findings = match &self.work.comparing {
            Some(comparing) => comparing.findings(self.config.limits.differences_shown_max),
            None => before.findings.clone(),
        };
        Shown {
            journal_from_unix_us,
            findings,
            records_copied: self.work.copied_before + applied(&self.work.forward),
            records_copied_back: self.work.copied_back_before + applied(&self.work.back),
            lag_entries: counts.map_or(0, |counts| counts.lag_entries.value()),
            lag_ms,
            differences,
            differing,
            freeze_ms: before.freeze_ms,
            freeze_parts: self.work.freeze_parts,
            forecast: self.work.forecast,
            pacing: self.work.pace.shown.clone(),
            records_removed: self.work.tidying.removed,
            in_use: self.work.tidying.in_use.clone(),
            trouble: self.work.trouble.clone(),
        }
    }

    /// Since when journals are still to be read; `None`: a feed in use has not caught up yet.
    fn journal_from(&self) -> Option<i64> {
        let (forward, back) = (&self.work.forward, &self.work.back);
        let in_use: &[&Option<Feed>] = match self.phase().write_owner() {
            WriteOwner::Target => &[back],
            WriteOwner::Source | WriteOwner::Nobody => &[forward, back],
        };
        let feeds = in_use.iter().filter_map(|feed| feed.as_ref());
        let done = feeds.map(|feed| feed.counts().done_before());
        let done: Option<Vec<_>> = done.collect();
        done?.iter().map(|at| at.unix_micros()).min()
    }

    fn phase(&self) -> &Phase {
        &self.work.held.state.phase
    }

    fn plan(&self) -> &Plan {
        &self.work.held.state.plan
    }

    /// What is left, or copied from.
    fn left(&self, end: End) -> Result<Arc<dyn Engine>, MoveError> {
        let shards = &self.config.shards;
        Ok(engine_at(self.plan(), end, Role::Left, shards)?)
    }

    /// What is entered, or copied to.
    fn entered(&self, end: End) -> Result<Arc<dyn Engine>, MoveError> {
        let shards = &self.config.shards;
        Ok(engine_at(self.plan(), end, Role::Entered, shards)?)
    }

    fn of_end(&self, end: End, source: EngineError) -> MoveError {
        match source {
            EngineError::TermLost { .. } => MoveError::TermLost {
                name: self.tenure.name().to_owned(),
            },
            source => MoveError::Engine {
                end: self.plan().called(end),
                source,
            },
        }
    }

    /// Of the feed that leads to this end. Whoever reads it knows shards, and no feeds.
    fn of_feed(&self, entered: End, error: FeedError) -> MoveError {
        match error {
            FeedError::Engine { side, source, .. } => match side {
                feed::Side::Source => self.of_end(entered.other(), source),
                feed::Side::Target => self.of_end(entered, source),
                feed::Side::Control => MoveError::Control(source),
            },
            error => error.into(),
        }
    }

    /// The same of the comparison that is made for this end.
    fn of_verifier(&self, entered: End, error: VerifyError) -> MoveError {
        match error {
            VerifyError::Engine { side, source } => match side {
                verifier::Side::Source => self.of_end(entered.other(), source),
                verifier::Side::Target => self.of_end(entered, source),
            },
            error => error.into(),
        }
    }

    fn waiting(&self) -> Pass {
        Pass::Waiting {
            ms: self.config.limits.poll_ms,
        }
    }
}

fn stepped(state: &mut MoveState, event: Event) -> Result<(), MoveError> {
    let next = state.phase.step(event.clone());
    state.phase = next.ok_or_else(|| MoveError::OutOfStep {
        phase: state.phase.name(),
        event: format!("{event:?}"),
    })?;
    Ok(())
}

impl fmt::Debug for Mover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mover")
            .field("name", &self.config.name)
            .finish_non_exhaustive()
    }
}
