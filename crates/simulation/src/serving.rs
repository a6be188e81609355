//! Processes that serve: a router each, a shop on top of it, a sweeper, an archiver and
//! the keeping of its lease beside it. A process may stand still at any await and go
//! on later, or die and come back as another one, with a writer number of its own.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use engine_api::{ControlStore, Engine, World, Writer};
use feed::{Feed, Pass};
use router::{LeaseState, Limits, MapView, ProcessName, Router, RouterConfig, ShardName};
use shop_service::{OrderHistory, Settings, Shop, ShopConfig, archive_feed};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::sleep;

use crate::chance::Chance;
use crate::clock::AheadWorld;
use crate::moving::StandingBy;
use crate::pausing::Pause;
use crate::recording::Recording;

/// How long a shopper waits before it looks again whether the process is up.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How often a process tries to open its router.
const OPENINGS_MAX: u32 = 1_000;
/// How long a sweeper rests.
const SWEEP_MS_LEAST: u64 = 80;
const SWEEP_MS_MOST: u64 = 600;
/// How long an archiver rests at most.
const ARCHIVE_MS_MOST: u64 = 80;

/// What every process of a seed has in common.
#[derive(Debug)]
pub struct Site {
    pub shards: BTreeMap<ShardName, Arc<dyn Engine>>,
    pub control: Arc<dyn ControlStore>,
    /// Where finished orders go, in seeds that keep them apart.
    pub history: Option<OrderHistory>,
    pub limits: Limits,
    pub settings: Settings,
    /// How far sweepers' clocks run ahead. What they take for abandoned may
    /// still be under way.
    pub sweepers_ahead: Duration,
    pub recording: Recording,
    /// Whether the shipped movers run here.
    pub moving: Moving,
    /// Faults are over: nothing befalls a mover any more.
    pub is_calm: AtomicBool,
    pub right: Right,
    /// A number that was given out is not given again: a change that a dead
    /// process left under way must not meet another with its revision.
    pub writers: AtomicU8,
}

/// Who moves keys about in a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moving {
    Shipped,
    /// A script that freezes at once, without a notice: more cutovers under shoppers than a
    /// patient mover makes.
    HandMade,
}

/// By what the processes of a seed know that an answer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    Lease,
    /// They ask after each.
    ControlStore,
}

#[derive(Debug)]
pub struct Process {
    number: usize,
    site: Arc<Site>,
    world: Arc<dyn World>,
    pause: Pause,
    life: Mutex<Life>,
}

#[derive(Debug, Default)]
struct Life {
    /// The router can be reached through it.
    shop: Option<Arc<Shop>>,
    requests: Vec<AbortHandle>,
    sweeper: Option<JoinHandle<()>>,
    lease: Option<AbortHandle>,
    archiver: Option<JoinHandle<()>>,
    movers: Option<JoinHandle<()>>,
}

impl Site {
    fn shop(&self, router: Arc<Router>, world: Arc<dyn World>) -> Shop {
        let shop = Shop::new(ShopConfig {
            router,
            world,
            settings: self.settings.clone(),
        });
        match &self.history {
            Some(history) => shop.with_history(history.clone()),
            None => shop,
        }
    }

    fn feeds(&self, shop: &Shop) -> Vec<Feed> {
        let limits = feed::Limits {
            page_entries_max: 5,
            scan_records_max: 3,
            records_at_once_max: 3,
            poll_ms: 10,
            renew_ms: 60,
            take_over_ms: 300,
            ..feed::Limits::default()
        };
        let feed = |(name, engine): (&ShardName, &Arc<dyn Engine>)| {
            let control = Arc::clone(&self.control);
            let (history, engine) = (self.history.as_ref()?, Arc::clone(engine));
            let feed = archive_feed(shop, history, name, engine, control, limits.clone());
            Some(feed.expect("the limits hold"))
        };
        self.shards.iter().filter_map(feed).collect()
    }
}

impl Process {
    pub fn new(number: usize, site: Arc<Site>, world: Arc<dyn World>) -> Process {
        Process {
            number,
            site,
            world,
            pause: Pause::default(),
            life: Mutex::default(),
        }
    }

    pub fn world(&self) -> &Arc<dyn World> {
        &self.world
    }

    /// Opens a router, as often as it takes.
    pub async fn start(&self) {
        let writer = Writer::numbered(self.site.writers.fetch_add(1, Ordering::Relaxed) + 1);
        for _ in 0..OPENINGS_MAX {
            let opened = Router::open(RouterConfig {
                shards: self.site.shards.clone(),
                control: Arc::clone(&self.site.control),
                world: Arc::clone(&self.world),
                writer,
                limits: self.site.limits.clone(),
                map_view: self.map_view(),
            });
            match opened.await {
                Ok(router) => {
                    self.site
                        .recording
                        .note(format!("process {} serves", self.number));
                    self.keep_lease(Arc::clone(&router));
                    let shop = self.site.shop(router, Arc::clone(&self.world));
                    self.lock().shop = Some(Arc::new(shop));
                    return;
                }
                Err(_) => sleep(LOOK_AGAIN).await,
            }
        }
        self.site
            .recording
            .breach(format!("process {} cannot open a router", self.number));
    }

    fn map_view(&self) -> MapView {
        match self.site.right {
            Right::ControlStore => MapView::ControlStore,
            Right::Lease => MapView::Lease {
                process: ProcessName::new(format!("process-{}", self.number))
                    .expect("letters, a dash and digits make a name"),
            },
        }
    }

    fn keep_lease(&self, router: Arc<Router>) {
        let keeping = self.pause.over(async move { router.keep_lease().await });
        self.lock().lease = Some(tokio::spawn(keeping).abort_handle());
    }

    /// Stands still for so long: nothing is noticed, answers wait at the door.
    pub async fn stand_still(&self, time: Duration) {
        let recording = &self.site.recording;
        recording.note(format!("process {} stands still", self.number));
        self.pause.stop();
        sleep(time).await;
        let ran_out = match &self.lock().shop {
            Some(shop) => shop.router().lease() == Some(LeaseState::RanOut),
            None => false,
        };
        recording.with(|history| {
            history.pauses += 1;
            history.leases_run_out += u64::from(ran_out);
        });
        recording.note(format!("process {} goes on", self.number));
        self.pause.go_on();
    }

    /// Sweeps now and then, in this life of the process.
    pub fn start_sweeper(&self) {
        self.stop_sweeper();
        let Some(shop) = self.lock().shop.clone() else {
            return;
        };
        let ahead = Arc::new(AheadWorld {
            world: Arc::clone(&self.world),
            by: self.site.sweepers_ahead,
        });
        let shop = self.site.shop(Arc::clone(shop.router()), ahead);
        let (number, world) = (self.number, Arc::clone(&self.world));
        let recording = self.site.recording.clone();
        let task = tokio::spawn(self.pause.over(async move {
            loop {
                let spread = world.random() % (SWEEP_MS_MOST - SWEEP_MS_LEAST);
                sleep(Duration::from_millis(SWEEP_MS_LEAST + spread)).await;
                let swept = shop.sweep().await;
                recording.swept(number, &swept);
            }
        }));
        self.lock().sweeper = Some(task);
    }

    pub fn stop_sweeper(&self) {
        let Some(sweeper) = self.lock().sweeper.take() else {
            return;
        };
        // It never ends by itself.
        if sweeper.is_finished() {
            let what = format!("the sweeper of process {} broke", self.number);
            self.site.recording.breach(what);
        }
        sweeper.abort();
    }

    /// Archives now and then, in this life of the process.
    pub fn start_archiver(&self) {
        self.stop_archiver();
        let Some(shop) = self.lock().shop.clone() else {
            return;
        };
        let mut feeds = self.site.feeds(&shop);
        let (number, world) = (self.number, Arc::clone(&self.world));
        let recording = self.site.recording.clone();
        let task = tokio::spawn(self.pause.over(async move {
            loop {
                for feed in &mut feeds {
                    let passed = feed.pass().await;
                    recording.note(format!("archiver {number}: {passed:?}"));
                }
                // Now and then so long that another takes it for dead.
                let rest_ms = match world.random() % 100 {
                    0..=4 => ARCHIVE_MS_MOST * 5,
                    _ => world.random() % ARCHIVE_MS_MOST,
                };
                sleep(Duration::from_millis(rest_ms)).await;
            }
        }));
        self.lock().archiver = Some(task);
    }

    pub fn stop_archiver(&self) {
        let Some(archiver) = self.lock().archiver.take() else {
            return;
        };
        // It never ends by itself.
        if archiver.is_finished() {
            let what = format!("the archiver of process {} broke", self.number);
            self.site.recording.breach(what);
        }
        archiver.abort();
    }

    /// Stands by for every move, in this life of the process.
    pub fn start_movers(&self) {
        self.stop_movers();
        let Some(shop) = self.lock().shop.clone() else {
            return;
        };
        let life = self.site.recording.with(|history| history.crashes);
        let chance = Chance::new(self.world.random()).stream(&format!("life {life}"));
        let standing_by = StandingBy {
            process: self.number,
            site: Arc::clone(&self.site),
            router: Arc::clone(shop.router()),
            world: Arc::clone(&self.world),
            pause: self.pause.clone(),
            chance,
        };
        let task = tokio::spawn(self.pause.over(standing_by.run()));
        self.lock().movers = Some(task);
    }

    pub fn stop_movers(&self) {
        let Some(movers) = self.lock().movers.take() else {
            return;
        };
        // They never end by themselves.
        if movers.is_finished() {
            let what = format!("the movers of process {} broke", self.number);
            self.site.recording.breach(what);
        }
        movers.abort();
    }

    /// Passes of a new archiver until everything is done.
    pub async fn archive_up(&self, passes_max: u32) {
        let Some(shop) = self.lock().shop.clone() else {
            return;
        };
        for mut feed in self.site.feeds(&shop) {
            let mut passes = 0;
            loop {
                let passed = feed.pass().await;
                let waiting = feed.counts().lag_entries.value();
                if (&passed, waiting) == (&Ok(Pass::CaughtUp), 0) {
                    break;
                }
                passes += 1;
                if passes > passes_max {
                    let what = format!("a feed finds no end: {passed:?}, {waiting} entries wait");
                    self.site.recording.breach(what);
                    break;
                }
                sleep(Duration::from_millis(ARCHIVE_MS_MOST)).await;
            }
        }
    }

    /// Ends every request under way, wherever it waits.
    pub fn crash(&self) {
        self.stop_sweeper();
        self.stop_archiver();
        self.stop_movers();
        let mut life = self.lock();
        life.shop = None;
        life.lease.take().inspect(AbortHandle::abort);
        life.requests.drain(..).for_each(|request| request.abort());
        drop(life);
        self.site
            .recording
            .note(format!("process {} dies", self.number));
        self.site.recording.with(|history| history.crashes += 1);
    }

    /// Runs a request of the router inside this process. `None`: the process
    /// died with it.
    pub async fn call<T, F>(&self, request: impl FnOnce(Arc<Router>) -> F) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.ask(|shop| request(Arc::clone(shop.router()))).await
    }

    /// Runs a request of the shop inside this process, likewise.
    pub async fn ask<T, F>(&self, request: impl FnOnce(Arc<Shop>) -> F) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let shop = loop {
            if let Some(shop) = &self.lock().shop {
                break Arc::clone(shop);
            }
            sleep(LOOK_AGAIN).await;
        };
        let task = tokio::spawn(self.pause.over(request(shop)));
        self.lock().requests.push(task.abort_handle());
        match task.await {
            Ok(answer) => Some(answer),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Life> {
        self.life
            .lock()
            .expect("no code panics while it holds the lock")
    }
}
