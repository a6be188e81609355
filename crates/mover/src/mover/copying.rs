//! From the plan to a copy that follows: the barrier, everything once, then what changes.

use std::sync::Arc;
use std::time::Duration;

use engine_api::{Engine, Generation};
use feed::{Cargo, Feed, FeedConfig, FeedError};

use super::pacing::Backlog;
use super::{Pass, Runner, stepped};
use crate::cargo::{Rehearsal, Whole};
use crate::error::MoveError;
use crate::phase::{Event, Way, WriteOwner};
use crate::plan::End;
use crate::preflight::preflight;

/// How far a feed came in one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fed {
    /// There is more to read at once.
    Behind,
    /// Everything was read, and so many entries are not shown by the source yet.
    Waits { entries: u64 },
    /// Everything before the pass began has arrived.
    CaughtUp,
    /// The throttle lets nothing through for so many milliseconds.
    Throttled { ms: u64 },
}

impl Fed {
    /// Whether nothing but what is just being changed is missing at the other side. Where an entry comes before its change
    /// (E18) something always is while shoppers buy, and stays for long where a process died over it: behind the freeze it
    /// is waited for, or was promised to nobody.
    pub(super) fn is_near(self, open_records_max: usize) -> bool {
        match self {
            Fed::CaughtUp => true,
            Fed::Waits { entries } => entries <= open_records_max as u64,
            Fed::Behind | Fed::Throttled { .. } => false,
        }
    }
}

impl Runner<'_> {
    /// Looks once more whether the plan fits, and tells every process that a move begins.
    pub(super) async fn begin(&mut self) -> Result<Pass, MoveError> {
        let map = self.load_map().await?;
        match preflight(self.plan(), &map, &self.config.shards).await {
            Ok(()) => {}
            Err(MoveError::Unfit(unfit)) => return self.abort(&unfit.to_string()).await,
            Err(error) => return Err(error),
        }
        let generation = self.publish_notice("a move begins").await?;
        let now_us = self.config.world.now().unix_micros();
        self.update(|state| {
            state.began_at_unix_us.get_or_insert(now_us);
            stepped(state, Event::BarrierPublished { generation })
        })
        .await?;
        Ok(Pass::Behind)
    }

    /// No position is taken before every process journals as the move needs it (W24).
    pub(super) async fn await_barrier(&mut self, barrier: Generation) -> Result<Pass, MoveError> {
        if self.behind(barrier).await?.is_some() {
            return Ok(self.waiting());
        }
        if !self.has_rested() {
            return Ok(self.waiting());
        }
        self.event(Event::BarrierAcknowledged).await?;
        Ok(Pass::Behind)
    }

    /// Nobody archives any more (W46). The marks of what was archived last are not carried, because the history shows
    /// through them. So every number that the target gives must lie above them, on whatever clock: otherwise the way
    /// back could not bring such a record home. Two clocks may differ by the limit either way.
    fn has_rested(&mut self) -> bool {
        if self.plan().history(End::Source).is_none() {
            return true;
        }
        let now = self.config.world.elapsed();
        let since = *self.work.acknowledged_at.get_or_insert(now);
        let clocks = self.config.router_limits.clock_ahead_ms_max;
        now.saturating_sub(since) > Duration::from_millis(clocks.saturating_mul(2))
    }

    pub(super) async fn backfill(&mut self) -> Result<Pass, MoveError> {
        if let Some(pass) = self.watch_before().await? {
            return Ok(pass);
        }
        let fed = self.feed_forward().await?;
        let phase = self.work.forward.as_ref().and_then(Feed::phase);
        if let Some(feed::Phase::Following { .. }) = phase {
            self.event(Event::Copied).await?;
            return Ok(Pass::Behind);
        }
        Ok(self.after(fed))
    }

    pub(super) async fn catch_up(&mut self) -> Result<Pass, MoveError> {
        let fed = self.feed_forward().await?;
        if self.is_near(fed) {
            self.event(Event::CaughtUp).await?;
            return Ok(Pass::Behind);
        }
        Ok(self.after(fed))
    }

    pub(super) fn after(&self, fed: Fed) -> Pass {
        match fed {
            Fed::Behind => Pass::Behind,
            Fed::CaughtUp | Fed::Waits { .. } => self.waiting(),
            Fed::Throttled { ms } => Pass::Waiting { ms },
        }
    }

    pub(super) fn is_near(&self, fed: Fed) -> bool {
        fed.is_near(self.config.limits.open_records_max)
    }

    /// One pass of the copy, as fast as the throttle allows.
    pub(super) async fn feed_forward(&mut self) -> Result<Fed, MoveError> {
        self.look_at_pressure();
        if let Some(ms) = self.throttled_ms() {
            return Ok(Fed::Throttled { ms });
        }
        let (began, copied) = (self.config.world.elapsed(), self.copied());
        let fed = self.pass_forward(self.piece()).await;
        if let Ok(fed) = fed {
            self.probe_after(fed).await?;
        }
        self.work.pace.backlog = match fed {
            Ok(Fed::Behind) => Backlog::Some,
            Ok(Fed::Waits { .. } | Fed::CaughtUp | Fed::Throttled { .. }) | Err(_) => Backlog::None,
        };
        self.pause_after(began, copied);
        fed
    }

    /// One pass of the feed that leads in this direction, unthrottled.
    pub(super) async fn pass_towards(&mut self, way: &Way) -> Result<Fed, MoveError> {
        let began = self.config.world.elapsed();
        let fed = match way {
            Way::Forward { .. } => self.pass_forward(usize::MAX).await?,
            Way::Back { .. } => self.pass_back().await?,
        };
        if self.is_near(fed) {
            let took = self.config.world.elapsed().saturating_sub(began);
            self.work.measured.feed.add(took);
        }
        Ok(fed)
    }

    async fn pass_forward(&mut self, records_max: usize) -> Result<Fed, MoveError> {
        if self.work.forward.is_none() {
            let (source, target) = (self.left(End::Source)?, self.entered(End::Target)?);
            let name = self.config.name.forward_feed();
            let cargo = Arc::new(self.whole());
            self.work.forward = Some(self.open(name, (source, target), cargo).await?);
        }
        if let Some(feed) = &mut self.work.forward {
            feed.take_at_most(records_max);
        }
        let fed = passed(self.work.forward.as_mut()).await;
        fed.map_err(|error| self.of_feed(End::Target, error))
    }

    fn whole(&self) -> Whole {
        let plan = self.plan();
        Whole {
            collection: plan.collection,
            scope: plan.scope().clone(),
        }
    }

    /// The feed that leads back. Its position is taken the first time, which is before
    /// the target's first write: nothing is ready before it has caught up (W30).
    pub(super) async fn pass_back(&mut self) -> Result<Fed, MoveError> {
        if self.work.back.is_none() {
            let (source, target) = (self.entered(End::Source)?, self.left(End::Target)?);
            let name = self.config.name.back_feed();
            let control = self.config.control.as_ref();
            if feed::progress(control, &name).await?.is_none() {
                let end = target.journal_end().await;
                let at = end.map_err(|error| self.of_end(End::Target, error))?;
                feed::begin_following(control, &name, at).await?;
            }
            let whole = self.whole();
            let cargo: Arc<dyn Cargo> = match self.phase().write_owner() {
                WriteOwner::Source => Arc::new(Rehearsal {
                    whole,
                    source: source.clone(),
                }),
                WriteOwner::Nobody | WriteOwner::Target => Arc::new(whole),
            };
            self.work.back = Some(self.open(name, (target, source), cargo).await?);
        }
        let fed = passed(self.work.back.as_mut()).await;
        fed.map_err(|error| self.of_feed(End::Source, error))
    }

    /// A feed of this move, taken from whoever held it: the move is ours.
    async fn open(
        &self,
        name: String,
        (source, target): (Arc<dyn Engine>, Arc<dyn Engine>),
        cargo: Arc<dyn Cargo>,
    ) -> Result<Feed, MoveError> {
        let mut limits = self.config.feed_limits.clone();
        // What a change waits for is the cutover, not the journal.
        limits.delay_ms = 0;
        let mut feed = Feed::new(FeedConfig {
            name,
            source,
            target,
            cargo,
            control: self.config.control.clone(),
            world: self.config.world.clone(),
            limits,
        })?;
        feed.seize().await?;
        Ok(feed)
    }
}

async fn passed(feed: Option<&mut Feed>) -> Result<Fed, FeedError> {
    let feed = feed.expect("it was opened just before");
    Ok(match feed.pass().await? {
        feed::Pass::CaughtUp => match feed.counts().lag_entries.value() {
            0 => Fed::CaughtUp,
            entries => Fed::Waits { entries },
        },
        // What a move carries is always wanted.
        feed::Pass::Resting => Fed::Behind,
        feed::Pass::Behind => Fed::Behind,
        // Somebody seized it, and so has the move.
        feed::Pass::Watching => {
            let feed = "a feed of the move".to_owned();
            return Err(FeedError::TermLost { feed });
        }
    })
}
