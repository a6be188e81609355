//! Processes that serve: a router each, which may die at any await and come
//! back as another one, with a writer number of its own.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use engine_api::{ControlStore, Engine, World, Writer};
use router::{Limits, MapView, Router, RouterConfig, ShardName};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::recording::Recording;

/// How long a shopper waits before it looks again whether the process is up.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How often a process tries to open its router.
const OPENINGS_MAX: u32 = 1_000;

/// What every process of a seed has in common.
#[derive(Debug)]
pub struct Site {
    pub shards: BTreeMap<ShardName, Arc<dyn Engine>>,
    pub control: Arc<dyn ControlStore>,
    pub limits: Limits,
    pub recording: Recording,
    /// A number that was given out is not given again: a change that a dead
    /// process left under way must not meet another with its revision.
    pub writers: AtomicU8,
}

#[derive(Debug)]
pub struct Process {
    number: usize,
    site: Arc<Site>,
    world: Arc<dyn World>,
    life: Mutex<Life>,
}

#[derive(Debug, Default)]
struct Life {
    router: Option<Arc<Router>>,
    requests: Vec<AbortHandle>,
}

impl Process {
    pub fn new(number: usize, site: Arc<Site>, world: Arc<dyn World>) -> Process {
        Process {
            number,
            site,
            world,
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
                map_view: MapView::ControlStore,
            });
            match opened.await {
                Ok(router) => {
                    self.site
                        .recording
                        .note(format!("process {} serves", self.number));
                    self.lock().router = Some(router);
                    return;
                }
                Err(_) => sleep(LOOK_AGAIN).await,
            }
        }
        self.site
            .recording
            .breach(format!("process {} cannot open a router", self.number));
    }

    /// Ends every request under way, wherever it waits.
    pub fn crash(&self) {
        let mut life = self.lock();
        life.router = None;
        life.requests.drain(..).for_each(|request| request.abort());
        drop(life);
        self.site
            .recording
            .note(format!("process {} dies", self.number));
        self.site.recording.with(|history| history.crashes += 1);
    }

    /// Runs a request inside this process. `None`: the process died with it.
    pub async fn call<T, F>(&self, request: impl FnOnce(Arc<Router>) -> F) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let router = loop {
            if let Some(router) = &self.lock().router {
                break Arc::clone(router);
            }
            sleep(LOOK_AGAIN).await;
        };
        let task = tokio::spawn(request(router));
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
