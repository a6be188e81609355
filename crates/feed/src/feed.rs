//! One feed, as one process runs it.
//!
//! A pass does a bounded piece of work and may be dropped at any `.await`, or the
//! process killed: what was not saved is done again, and doing it again changes
//! nothing.

mod carrying;

mod following;

mod rebuilding;

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use engine_api::{ControlStore, Engine, EngineError, Terms, World};

use crate::cargo::Cargo;
use crate::counts::FeedCounts;
use crate::error::{FeedError, Side};
use crate::limits::Limits;
use crate::phase::Phase;
use crate::progress::work_name;
use crate::tenure::{Found, Held, Saved, Watch};
use following::Reading;
use rebuilding::Ahead;

/// How often a feed is seized while others take it as well.
const SEIZE_ATTEMPTS_MAX: u32 = 8;
/// How often a feed is let go again because its value was changed in between.
const RELEASE_ATTEMPTS_MAX: u32 = 4;

#[derive(Clone, Debug)]
pub struct FeedConfig {
    /// Says which control value, and which term in the target, are this feed's.
    pub name: String,
    pub source: Arc<dyn Engine>,
    pub target: Arc<dyn Engine>,
    pub cargo: Arc<dyn Cargo>,
    pub control: Arc<dyn ControlStore>,
    pub world: Arc<dyn World>,
    pub limits: Limits,
}

pub struct Feed {
    route: Route,
    tenure: Tenure,
    standing: Standing,
}

/// What one pass came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Another process works for this feed.
    Watching,
    /// There is more to do at once.
    Behind,
    /// Everything that is due is done, entries that wait to be shown apart.
    CaughtUp,
    /// The cargo wants nothing to be carried now.
    Resting,
}

type Tenure = crate::tenure::Tenure<Phase>;

/// From where to where, of what.
struct Route {
    source: Arc<dyn Engine>,
    target: Arc<dyn Engine>,
    cargo: Arc<dyn Cargo>,
    world: Arc<dyn World>,
    limits: Limits,
    /// Records in one pass, if that is less than the limits say.
    piece_max: usize,
    counts: Arc<FeedCounts>,
}

enum Standing {
    Watching(Watch),
    Holding(Box<Work>),
}

/// What the holder remembers between two passes; none of it outlives the process.
struct Work {
    held: Held<Phase>,
    claimed: Claimed,
    /// When the control value was last set, by `World::elapsed`.
    renewed: Duration,
    reading: Option<Reading>,
    /// What a scan has read ahead.
    ahead: Option<Ahead>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Claimed {
    NotYet,
    Yes,
}

impl Feed {
    pub fn new(config: FeedConfig) -> Result<Feed, FeedError> {
        config.limits.check().map_err(|source| FeedError::Limits {
            feed: config.name.clone(),
            source,
        })?;
        let me = format!(
            "{:016x}{:016x}",
            config.world.random(),
            config.world.random()
        );
        Ok(Feed {
            tenure: Tenure::new(
                config.control,
                work_name(&config.name)?,
                me,
                Some(Phase::first()),
            ),
            route: Route {
                source: config.source,
                target: config.target,
                cargo: config.cargo,
                world: config.world,
                limits: config.limits,
                piece_max: usize::MAX,
                counts: Arc::default(),
            },
            standing: Standing::Watching(Watch::default()),
        })
    }

    pub fn counts(&self) -> Arc<FeedCounts> {
        self.route.counts.clone()
    }

    /// Works until `stop`, then lets the next process begin. Failed passes are
    /// logged and tried again.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let world = self.route.world.clone();
        let limits = self.route.limits.clone();
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
                        Pass::Behind => 0,
                        Pass::Watching | Pass::CaughtUp | Pass::Resting => limits.poll_ms,
                    }
                }
                Err(error) => {
                    let factor = 1u64.checked_shl(failures).unwrap_or(u64::MAX);
                    let pause_ms = limits
                        .poll_ms
                        .saturating_mul(factor)
                        .min(limits.retry_ms_max);
                    failures = failures.saturating_add(1);
                    tracing::warn!(%error, failures, pause_ms, "a feed does not get on");
                    pause_ms
                }
            };
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = world.sleep(Duration::from_millis(pause_ms)) => {}
            }
        }
        if let Standing::Holding(_) = self.standing {
            self.leave().await;
        }
    }

    /// Lets the next process begin at once. The value may have changed since the last
    /// look: somebody asked for a rebuild, or a save that was cut off has landed.
    async fn leave(&self) {
        for _ in 0..RELEASE_ATTEMPTS_MAX {
            match self.tenure.look().await {
                Ok(Found::Own(held)) => self.tenure.release(&held).await,
                Ok(Found::Nobody | Found::Other(_)) => return,
                Err(error) => {
                    tracing::warn!(%error, "a feed could not be let go: others take it over later");
                    return;
                }
            }
        }
    }

    /// A bounded piece of work.
    pub async fn pass(&mut self) -> Result<Pass, FeedError> {
        let pass = self.pass_once().await;
        if let Err(error) = &pass {
            self.route.counts.passes_failed.add(1);
            if matches!(error, FeedError::TermLost { .. }) {
                self.let_go();
            }
        }
        pass
    }

    async fn pass_once(&mut self) -> Result<Pass, FeedError> {
        let wanted = self.route.cargo.is_wanted().await;

        if !wanted.map_err(|source| FeedError::Rest {
            feed: self.tenure.name().to_owned(),
            source,
        })? {
            return Ok(Pass::Resting);
        }
        if let Standing::Watching(_) = self.standing
            && !self.seek(self.patience()).await?
        {
            return Ok(Pass::Watching);
        }
        let Standing::Holding(work) = &mut self.standing else {
            return Ok(Pass::Watching);
        };
        let (route, tenure) = (&self.route, &self.tenure);
        route.claim(tenure, work).await?;
        route.renew(tenure, work).await?;
        route
            .counts
            .lost
            .set(u64::from(matches!(work.held.state, Phase::Lost { .. })));
        match work.held.state.clone() {
            Phase::Rebuilding { from, after } => {
                work.reading = None;
                route.rebuild(tenure, work, from, after).await
            }
            Phase::Following { at } => {
                work.ahead = None;
                route.follow(tenure, work, at).await
            }
            Phase::Lost { .. } => self.stand_still().await,
        }
    }

    /// Takes the feed from whoever holds it, without waiting: for one who has a right
    /// above it, such as the holder of the move that it belongs to. Who held it is
    /// refused from its next image on.
    pub async fn seize(&mut self) -> Result<(), FeedError> {
        for _ in 0..SEIZE_ATTEMPTS_MAX {
            if let Standing::Holding(_) = self.standing {
                return Ok(());
            }
            self.seek(Duration::ZERO).await?;
        }
        match self.standing {
            Standing::Holding(_) => Ok(()),
            Standing::Watching(_) => Err(FeedError::TermLost {
                feed: self.tenure.name().to_owned(),
            }),
        }
    }

    /// From the next pass on: for one who says how fast the feed may go.
    pub fn take_at_most(&mut self, records: usize) {
        self.route.piece_max = records.max(1);
    }

    /// Gives up the entries that wait to be shown, and says how many: for one who knows
    /// that no change is under way any more, so that those never happened (E18).
    pub fn forgo_waiting(&mut self) -> usize {
        let Standing::Holding(work) = &mut self.standing else {
            return 0;
        };
        let forgone = work.reading.as_mut().map_or(0, Reading::forgo_waiting);
        self.route.counts.never_shown.add(forgone as u64);
        forgone
    }

    /// Where the feed stands; `None` while another process works for it.
    pub fn phase(&self) -> Option<&Phase> {
        match &self.standing {
            Standing::Holding(work) => Some(&work.held.state),
            Standing::Watching(_) => None,
        }
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(self.route.limits.take_over_ms)
    }

    /// Looks who works for the feed, and takes it if nobody does, or nobody was seen
    /// to for so long. Answers whether it is ours now.
    async fn seek(&mut self, patience: Duration) -> Result<bool, FeedError> {
        let now = self.route.world.elapsed();
        let Standing::Watching(watch) = &mut self.standing else {
            return Ok(true);
        };
        let taken = self.tenure.seek(watch, now, patience).await?;
        let Some(held) = taken else {
            return Ok(false);
        };
        tracing::info!(
            feed = self.tenure.name(),
            term = held.term,
            "works for a feed"
        );
        self.route.counts.holding.set(1);
        self.standing = Standing::Holding(Box::new(Work {
            held,
            claimed: Claimed::NotYet,
            renewed: now,
            reading: None,
            ahead: None,
        }));
        Ok(true)
    }

    /// The position is lost: nothing is carried until somebody asks for a rebuild (W28).
    async fn stand_still(&mut self) -> Result<Pass, FeedError> {
        let Standing::Holding(work) = &mut self.standing else {
            return Ok(Pass::Watching);
        };
        match self.tenure.look().await? {
            Found::Own(held) if matches!(held.state, Phase::Lost { .. }) => {
                work.held = held;
                Err(FeedError::PositionLost {
                    feed: self.tenure.name().to_owned(),
                })
            }
            Found::Own(held) => {
                work.held = held;
                Ok(Pass::Behind)
            }
            Found::Nobody | Found::Other(_) => Err(FeedError::TermLost {
                feed: self.tenure.name().to_owned(),
            }),
        }
    }

    fn let_go(&mut self) {
        self.route.counts.let_go();
        self.standing = Standing::Watching(Watch::default());
    }
}

impl Route {
    /// Ends every lower term in the target, before the first image of this one (W26).
    async fn claim(&self, tenure: &Tenure, work: &mut Work) -> Result<(), FeedError> {
        if work.claimed == Claimed::Yes {
            return Ok(());
        }
        if self.target.capabilities().terms == Terms::InStore {
            let term = tenure.mover_term(&work.held);
            match self.target.claim_term(term).await {
                Ok(()) => {}
                // The control store knows less than the target: it was restored
                // from a copy. Ours is the newest claim all the same.
                Err(EngineError::TermLost { current, .. }) => {
                    tenure.raise(&mut work.held, current).await?;
                    let term = tenure.mover_term(&work.held);
                    let claimed = self.target.claim_term(term).await;
                    claimed.map_err(|source| of_side(tenure, Side::Target, source))?;
                }
                Err(source) => return Err(of_side(tenure, Side::Target, source)),
            }
        }
        self.counts.terms_claimed.add(1);
        work.claimed = Claimed::Yes;
        Ok(())
    }

    /// Shows that this process is alive, if it is time to. One that slept learns
    /// here that it was taken for dead, before it carries anything more.
    async fn renew(&self, tenure: &Tenure, work: &mut Work) -> Result<(), FeedError> {
        let renew = Duration::from_millis(self.limits.renew_ms);
        if self.world.elapsed().saturating_sub(work.renewed) < renew {
            return Ok(());
        }
        let phase = work.held.state.clone();
        self.save(tenure, work, phase).await.map(|_| ())
    }

    async fn save(
        &self,
        tenure: &Tenure,
        work: &mut Work,
        phase: Phase,
    ) -> Result<Saved, FeedError> {
        let now = self.world.elapsed();
        let saved = tenure.save(&mut work.held, phase).await?;
        work.renewed = now;
        Ok(saved)
    }
}

fn of_side(tenure: &Tenure, side: Side, source: EngineError) -> FeedError {
    let feed = tenure.name().to_owned();
    match source {
        EngineError::TermLost { .. } => FeedError::TermLost { feed },
        source => FeedError::Engine { feed, side, source },
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed")
            .field("name", &self.tenure.name())
            .field("cargo", &self.route.cargo)
            .field("counts", &self.route.counts)
            .finish_non_exhaustive()
    }
}
