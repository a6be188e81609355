//! The router: shards, the current map, and what the write and read paths share.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use engine_api::{ControlStore, Engine, EngineError, Generation, Remedy, World, Writer};

use crate::allowance::Allowance;
use crate::counts::RouterCounts;
use crate::current::CurrentMap;
use crate::error::RouterError;
use crate::hold::Lookout;
use crate::keeper::MapKeeper;
use crate::lease::{Lease, ProcessName};
use crate::limits::Limits;
use crate::map::{Map, ShardName};
use crate::read::Lanes;
use crate::revisions::RevisionClock;
use crate::shards::ShardTable;
use crate::stalls::{HeldFor, Stalls, Waits};

#[derive(Clone, Debug)]
pub struct RouterConfig {
    pub shards: BTreeMap<ShardName, Arc<dyn Engine>>,
    pub control: Arc<dyn ControlStore>,
    pub world: Arc<dyn World>,
    /// Not asked with a lease, which brings a number of its own.
    pub writer: Writer,
    pub limits: Limits,
    pub map_view: MapView,
}

/// Where the router looks when it checks, after an answer, that the generation
/// is still the one it asked under (W16).
///
/// A fence in the store judges writes, not reads: a read sent to the source
/// just before a cutover may be answered after the target has taken newer
/// writes. What is promised of no-lag reads and of listings is therefore:
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MapView {
    /// At the map this router holds. Enough, and free, when this router is the
    /// only one: no write goes to the target before [`Router::publish`] or
    /// [`Router::refresh`] has installed the new map here, and from then on
    /// every read still under way under the old one is read again. With a
    /// second router that refreshes earlier, reads here may lag until this one
    /// refreshes too.
    #[default]
    ThisProcess,
    /// At the control store, once after every answer. Holds for any number of
    /// routers: if the generation stands after the answer, it stood when the
    /// engine gave it. Costs one control read a request.
    ControlStore,
    /// At the map this router holds and the lease it holds it by: nobody moves
    /// keys before this lease has acknowledged that they are frozen, or has run
    /// out. Costs no control read, but for keys that are frozen. Needs
    /// [`Router::keep_lease`] to run beside the requests, and whoever moves keys
    /// to freeze them and to wait ([`LeaseJudge`](crate::LeaseJudge)).
    Lease { process: ProcessName },
}

/// Cheap to clone: every request has one, with what it may still take.
#[derive(Clone, Debug)]
pub struct Router {
    pub(crate) core: Arc<Core>,
    pub(crate) allowance: Allowance,
}

/// What all requests share. Public only in name: it is what [`Router`] points to.
#[derive(Debug)]
pub struct Core {
    pub(crate) shards: ShardTable,
    pub(crate) keeper: MapKeeper,
    pub(crate) world: Arc<dyn World>,
    pub(crate) clock: RevisionClock,
    pub(crate) limits: Limits,
    pub(crate) map_view: MapView,
    pub(crate) lease: Option<Lease>,
    pub(crate) current: CurrentMap,
    pub(crate) held: AtomicUsize,
    pub(crate) stalls: Stalls,
    pub(crate) lookout: Lookout,
    pub(crate) lanes: Lanes,
    pub(crate) counts: RouterCounts,
}

impl Deref for Router {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Router {
    /// Opens on the map that stands in the control store, under a new lease if
    /// the map view wants one.
    pub async fn open(config: RouterConfig) -> Result<Arc<Router>, RouterError> {
        config.limits.check()?;
        let lease = match &config.map_view {
            MapView::ThisProcess | MapView::ControlStore => None,
            MapView::Lease { process } => Some(Lease::new(
                process.clone(),
                config.control.clone(),
                config.world.clone(),
                config.limits.clone(),
            )),
        };
        // The lease before the map: see `Lease::take`.
        let taken = match &lease {
            Some(lease) => Some(lease.take(config.shards.keys().cloned().collect()).await?),
            None => None,
        };
        let writer = taken.map_or(config.writer, |taken| taken.writer);
        let keeper = MapKeeper::new(config.control);
        let map = keeper.load().await?.ok_or(RouterError::NoMap)?;
        let shards = ShardTable::new(config.shards, &config.limits);
        shards.check(&map)?;
        let since = config.world.elapsed();
        let core = Core {
            clock: RevisionClock::new(writer, config.limits.clock_ahead_ms_max),
            shards,
            keeper,
            world: config.world,
            limits: config.limits,
            map_view: config.map_view,
            lease,
            current: CurrentMap::new(map, since),
            held: AtomicUsize::new(0),
            stalls: Stalls::default(),
            lookout: Lookout::default(),
            lanes: Lanes::default(),
            counts: RouterCounts::default(),
        };
        let router = Router {
            core: Arc::new(core),
            allowance: Allowance::default(),
        };
        if let (Some(lease), Some(taken)) = (&router.lease, taken) {
            router.serve_under(lease, taken);
        }
        Ok(Arc::new(router))
    }

    /// The map this router serves under now.
    pub fn map(&self) -> Arc<Map> {
        self.current.get()
    }

    pub fn counts(&self) -> &RouterCounts {
        &self.counts
    }

    /// How long requests were held for frozen keys, since this process began.
    pub fn stalls(&self) -> Waits {
        self.stalls.all()
    }

    /// What this process has held for freezes that are over, the last few of them; empty
    /// while requests are still held.
    pub fn stalls_by_freeze(&self) -> Vec<HeldFor> {
        match self.held.load(Ordering::Acquire) {
            0 => self.stalls.before(self.map().generation),
            _ => Vec::new(),
        }
    }

    /// Takes over the standing map if it is newer; wakes held requests.
    pub async fn refresh(&self) -> Result<Generation, RouterError> {
        let map = self.keeper.load().await?.ok_or(RouterError::NoMap)?;
        self.install(map)
    }

    /// Publishes the next map and serves under it at once. On a lost race the
    /// standing map is installed before the error is returned.
    pub async fn publish(&self, map: Map) -> Result<Generation, RouterError> {
        self.shards.check(&map)?;
        match self.keeper.publish(&map).await {
            Ok(()) => self.install(Arc::new(map)),
            Err(error) => {
                if error.remedy() != Remedy::GiveUp {
                    self.look_for_map().await;
                }
                Err(error.into())
            }
        }
    }

    /// Takes over a map that was read from the control store, or published, by the caller,
    /// if it is newer; wakes held requests.
    pub fn install(&self, map: Arc<Map>) -> Result<Generation, RouterError> {
        let current = self.map().generation;
        if map.generation <= current {
            return Ok(current);
        }
        self.shards.check(&map)?;
        self.stalls.look_at(&map);
        self.current.install(map, self.world.elapsed());
        Ok(self.map().generation)
    }

    pub(crate) fn engine(&self, shard: &ShardName) -> &Arc<dyn Engine> {
        let shard = self.shards.get(shard);
        &shard
            .expect("a map is installed only if every shard it names is here")
            .engine
    }

    pub(crate) async fn pause(&self) {
        let pause_ms = self.limits.retry_pause_ms;
        let extra_ms = self.world.random() % pause_ms;
        self.world
            .sleep(Duration::from_millis(pause_ms + extra_ms))
            .await;
    }

    /// Counts one more attempt of a read, or ends it with the error.
    pub(crate) async fn retry_read(
        &self,
        retries: &mut u32,
        error: RouterError,
    ) -> Result<(), RouterError> {
        match error.remedy() {
            // Who is refused at once is not to wait for the next refusal.
            _ if matches!(error, RouterError::ShardBusy { .. }) => Err(error),
            Remedy::Retry | Remedy::ReadBack
                if *retries < self.limits.unavailable_retries_max
                    && self.may_go_again(error.shard()) =>
            {
                *retries += 1;
                self.counts.unavailable_retries.add_one();
                self.pause().await;
                Ok(())
            }
            _ => Err(error),
        }
    }
}

pub(crate) fn of_shard(shard: &ShardName) -> impl FnOnce(EngineError) -> RouterError + '_ {
    move |source| RouterError::Engine {
        shard: shard.clone(),
        source,
    }
}
