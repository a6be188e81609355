//! From the plan to a copy that follows: the barrier, everything once, then what changes.

use std::sync::Arc;
use std::time::Duration;

use engine_api::{Engine, Generation};
use feed::{Cargo, Feed, FeedConfig};

use super::{Pass, Runner};
use crate::cargo::{Rehearsal, Whole};
use crate::error::MoveError;
use crate::phase::{Event, Way, WriteOwner};
use crate::preflight::preflight;

/// A throttled copy goes in pieces of so many a second.
const PIECES_PER_SECOND: u32 = 5;

/// How far a feed came in one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fed {
    /// There is more to read at once.
    Behind,
    /// Everything was read, and some of it is not shown by the source yet.
    Waits,
    /// Everything before the pass began has arrived.
    CaughtUp,
    /// The throttle lets nothing through for so many milliseconds.
    Throttled { ms: u64 },
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
        self.event(Event::BarrierPublished { generation }).await?;
        Ok(Pass::Behind)
    }

    /// No position is taken before every process journals as the move needs it (W24).
    pub(super) async fn await_barrier(&mut self, barrier: Generation) -> Result<Pass, MoveError> {
        if self.behind(barrier).await?.is_some() {
            return Ok(self.waiting());
        }
        self.event(Event::BarrierAcknowledged).await?;
        Ok(Pass::Behind)
    }

    pub(super) async fn backfill(&mut self) -> Result<Pass, MoveError> {
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
        if fed == Fed::CaughtUp {
            self.event(Event::CaughtUp).await?;
            return Ok(Pass::Behind);
        }
        Ok(self.after(fed))
    }

    pub(super) fn after(&self, fed: Fed) -> Pass {
        match fed {
            Fed::Behind => Pass::Behind,
            Fed::CaughtUp | Fed::Waits => self.waiting(),
            Fed::Throttled { ms } => Pass::Waiting { ms },
        }
    }

    /// One pass of the copy, as fast as the throttle allows.
    pub(super) async fn feed_forward(&mut self) -> Result<Fed, MoveError> {
        let rate = self.work.held.state.throttle.records_per_second_max;
        let now = self.config.world.elapsed();
        if rate.is_some() && now < self.work.resume_at {
            let left = self.work.resume_at - now;
            let ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
            return Ok(Fed::Throttled { ms });
        }
        let copied = self.shown().records_copied;
        let fed = self.pass_forward().await?;
        if let Some(rate) = rate {
            let records = self.shown().records_copied.saturating_sub(copied);
            let pause_us = records.saturating_mul(1_000_000) / u64::from(rate.max(1));
            self.work.resume_at = now + Duration::from_micros(pause_us);
        }
        Ok(fed)
    }

    /// One pass of the feed that leads in this direction, unthrottled.
    pub(super) async fn pass_towards(&mut self, way: &Way) -> Result<Fed, MoveError> {
        match way {
            Way::Forward { .. } => self.pass_forward().await,
            Way::Back { .. } => self.pass_back().await,
        }
    }

    async fn pass_forward(&mut self) -> Result<Fed, MoveError> {
        let rate = self.work.held.state.throttle.records_per_second_max;
        if self.work.forward.is_none() || self.work.forward_rate != rate {
            self.work.copied_before = self.shown().records_copied;
            self.work.forward = None;
            let plan = self.plan().clone();
            let (source, target) = (self.engine(&plan.source)?, self.engine(&plan.target)?);
            let name = self.config.name.forward_feed();
            let cargo = Arc::new(self.whole());
            self.work.forward = Some(self.open(name, (source, target), cargo, rate).await?);
            self.work.forward_rate = rate;
        }
        passed(self.work.forward.as_mut()).await
    }

    fn whole(&self) -> Whole {
        let plan = self.plan();
        Whole {
            collection: plan.collection,
            scope: plan.scope.clone(),
        }
    }

    /// The feed that leads back. Its position is taken the first time, which is before
    /// the target's first write: nothing is ready before it has caught up (W30).
    pub(super) async fn pass_back(&mut self) -> Result<Fed, MoveError> {
        if self.work.back.is_none() {
            let plan = self.plan().clone();
            let (source, target) = (self.engine(&plan.source)?, self.engine(&plan.target)?);
            let name = self.config.name.back_feed();
            let control = self.config.control.as_ref();
            if feed::progress(control, &name).await?.is_none() {
                let end = target.journal_end().await;
                let at = end.map_err(|error| self.of_shard(&plan.target, error))?;
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
            self.work.back = Some(self.open(name, (target, source), cargo, None).await?);
        }
        passed(self.work.back.as_mut()).await
    }

    /// A feed of this move, taken from whoever held it: the move is ours.
    async fn open(
        &self,
        name: String,
        (source, target): (Arc<dyn Engine>, Arc<dyn Engine>),
        cargo: Arc<dyn Cargo>,
        rate: Option<u32>,
    ) -> Result<Feed, MoveError> {
        let mut limits = self.config.feed_limits.clone();
        // What a change waits for is the cutover, not the journal.
        limits.delay_ms = 0;
        if let Some(rate) = rate {
            let piece = usize::try_from((rate / PIECES_PER_SECOND).max(1)).unwrap_or(usize::MAX);
            limits.scan_records_max = limits.scan_records_max.min(piece);
            limits.page_entries_max = limits.page_entries_max.min(piece);
        }
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

async fn passed(feed: Option<&mut Feed>) -> Result<Fed, MoveError> {
    let feed = feed.expect("it was opened just before");
    Ok(match feed.pass().await? {
        feed::Pass::CaughtUp if feed.counts().lag_entries.value() == 0 => Fed::CaughtUp,
        feed::Pass::CaughtUp => Fed::Waits,
        feed::Pass::Behind => Fed::Behind,
        // Somebody seized it, and so has the move.
        feed::Pass::Watching => {
            let name = "a feed of the move".to_owned();
            return Err(MoveError::TermLost { name });
        }
    })
}
