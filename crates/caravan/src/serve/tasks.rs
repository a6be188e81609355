//! What runs beside the requests until the shop closes: sweeper, upkeep, follower, feeds, moves.
//!
//! Each may be dropped at any `.await`: what it began is taken up by the next start.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use engine_api::World;
use feed::Feed;
use search::Follower;
use shop_service::{Shop, Swept};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::late::Late;
use super::moves::Moves;
use super::upkeep::{self, Needs, Upkeep};
use crate::metrics::TaskCounts;
use crate::ops::{Listening, OwnDesk};
use crate::shards::OpenShards;

/// The pause between two sweeps; the first is at the start, for what a crash left.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Tasks {
    stop: watch::Sender<bool>,
    running: JoinSet<()>,
    /// Its commits block for milliseconds, so it has a thread that nobody waits for.
    follower: JoinHandle<()>,
}

impl Tasks {
    /// Starts with the follower.
    pub fn start(follower: Follower) -> Result<Tasks> {
        let (stop, stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .context("the search has no event loop: check the limits of this user")?;
        let follower = thread::Builder::new()
            .name("search".to_owned())
            .spawn(move || runtime.block_on(follower.run(stopped_by(stopped))))
            .context("the search has no thread: check the limits of this user")?;
        Ok(Tasks {
            stop,
            running: JoinSet::new(),
            follower,
        })
    }

    /// Runs until it ends or the shop closes.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        let stopped = stopped_by(self.stop.subscribe());
        self.running.spawn(async move {
            tokio::select! {
                () = task => {}
                () = stopped => {}
            }
        });
    }

    /// Runs until the shop closes, and lets another process go on at once.
    pub fn feed(&mut self, feed: Feed) {
        let stopped = stopped_by(self.stop.subscribe());
        self.running.spawn(feed.run(stopped));
    }

    /// Runs until the shop closes, and lets another process go on with them at once.
    pub fn moves(&mut self, moves: Moves) {
        let stopped = stopped_by(self.stop.subscribe());
        self.running.spawn(moves.run(stopped));
    }

    /// Answers until the shop closes, and what is under way then.
    pub fn operators(&mut self, listening: Listening, desk: OwnDesk) {
        let stopped = self.stop.subscribe();
        let stop = move || stopped_by(stopped.clone());
        self.running.spawn(listening.run(desk, stop));
    }

    /// Runs until the shop closes.
    pub fn late(&mut self, late: Late) {
        let stopped = stopped_by(self.stop.subscribe());
        self.running.spawn(late.run(stopped));
    }

    /// Ends all of them.
    pub async fn end(mut self) -> Result<()> {
        self.stop.send_replace(true);
        while let Some(ended) = self.running.join_next().await {
            ended.context("a task of the shop failed")?;
        }
        let follower = tokio::task::spawn_blocking(move || self.follower.join());
        let ended = follower.await.context("a task of the shop failed")?;
        ended.map_err(|_| anyhow!("the search failed: see the lines above"))
    }
}

pub async fn sweep(shop: Arc<Shop>, counts: Arc<TaskCounts>) {
    let mut ticks = every(SWEEP_EVERY);
    loop {
        ticks.tick().await;
        match shop.sweep().await {
            Ok(swept) => count(&counts, swept),
            Err(error) => {
                counts.sweeps_failed.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%error, "open orders cannot be swept now");
            }
        }
    }
}

pub async fn maintain(
    shards: OpenShards,
    world: Arc<dyn World>,
    upkeep: Upkeep,
    needs: Arc<Needs>,
    counts: Arc<TaskCounts>,
) {
    let mut ticks = every(Duration::from_secs(u64::from(upkeep.every_s.seconds())));
    loop {
        ticks.tick().await;
        for (shard, engine) in &shards.engines() {
            let place = (shard, engine.as_ref());
            let round = upkeep::round(place, world.as_ref(), &upkeep, &needs, &counts);
            if let Err(error) = round.await {
                counts.upkeep_failed.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%shard, %error, "a shard cannot be tidied up now");
            }
        }
    }
}

fn every(pause: Duration) -> Interval {
    let mut ticks = interval(pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

async fn stopped_by(mut stopped: watch::Receiver<bool>) {
    // A sender that is gone means the same.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

fn count(counts: &TaskCounts, swept: Swept) {
    let add = |counter: &AtomicU64, by: u64| counter.fetch_add(by, Ordering::Relaxed);
    add(&counts.orders_finished, swept.finished);
    add(&counts.orders_aborted, swept.aborted);
    add(&counts.orders_failed, swept.failed);
    if swept.finished + swept.aborted > 0 {
        let Swept {
            finished, aborted, ..
        } = swept;
        tracing::info!(finished, aborted, "settled orders that a request left open");
    }
}
