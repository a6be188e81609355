//! What all requests share: the shop, the limits, the meters.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine_api::World;
use model::ProductId;
use prometheus_client::registry::Registry;
use shop_service::Shop;

use crate::admission::Admission;
use crate::clients::Clients;
use crate::figures::Figures;
use crate::limits::{HttpLimits, HttpLimitsError};
use crate::meter::{BOUNDS_US, Meters, ReadsCollector, RouterCollector};
use crate::request_id::RequestIds;

/// Finds products by words. What it finds is read from the shop afterwards, so that
/// prices are those of now and what is gone is left out.
pub trait Search: Send + Sync + fmt::Debug {
    /// The best first, at most `limit`.
    fn search(&self, text: &str, limit: usize) -> Result<Vec<ProductId>, SearchRefusal>;
}

/// Why nothing was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchRefusal {
    /// The text itself: what is wrong with it, for whoever wrote it.
    Text(String),
    /// The search, whatever the text: the cause, for the log.
    Unavailable(String),
}

/// What this process would have to do and cannot, for readiness: a sentence each.
pub trait Troubles: Send + Sync + std::fmt::Debug {
    fn troubles(&self) -> Vec<String>;
}

#[derive(Clone, Debug)]
pub struct BuildInfo {
    pub version: String,
    pub commit: Option<String>,
}

#[derive(Debug)]
pub struct AppConfig {
    pub shop: Arc<Shop>,
    /// Without it, the search answers `unavailable`.
    pub search: Option<Arc<dyn Search>>,
    pub world: Arc<dyn World>,
    pub limits: HttpLimits,
    pub build: BuildInfo,
    /// Whoever knows of some.
    pub troubles: Option<Arc<dyn Troubles>>,
    /// Shown on the first page, if the shop's documents stand somewhere.
    pub docs_link: Option<String>,
    /// With what other crates count already. The figures of HTTP and of the router are added.
    pub registry: Registry,
}

/// Cheap to clone: every request holds one.
#[derive(Clone, Debug)]
pub struct App(Arc<Shared>);

/// Public only in name: it is what [`App`] points to.
#[derive(Debug)]
pub struct Shared {
    pub(crate) shop: Arc<Shop>,
    pub(crate) search: Option<Arc<dyn Search>>,
    pub(crate) world: Arc<dyn World>,
    pub(crate) limits: HttpLimits,
    pub(crate) build: BuildInfo,
    pub(crate) troubles: Option<Arc<dyn Troubles>>,
    pub(crate) docs_link: Option<String>,
    pub(crate) registry: Registry,
    pub(crate) meters: Arc<Meters>,
    pub(crate) figures: Figures,
    pub(crate) request_ids: RequestIds,
    /// `None`: no client has a rate.
    pub(crate) clients: Option<Clients>,
    pub(crate) admission: Arc<Admission>,
    draining: AtomicBool,
}

impl App {
    pub fn new(config: AppConfig) -> Result<App, HttpLimitsError> {
        let limits = config.limits;
        limits.check()?;
        let mut registry = config.registry;
        let meters = Arc::new(Meters::default());
        let admission = Arc::new(Admission::new(&limits));
        meters.register(&mut registry, admission.clone());
        registry.register_collector(Box::new(RouterCollector::new(config.shop.router().clone())));
        registry.register_collector(Box::new(ReadsCollector::new(config.shop.clone())));
        let clients = (limits.client_requests_per_s > 0)
            .then(|| Clients::new(&limits, config.world.random()));
        Ok(App(Arc::new(Shared {
            shop: config.shop,
            search: config.search,
            request_ids: RequestIds::new(config.world.random()),
            figures: Figures::new(config.world.elapsed()),
            world: config.world,
            limits,
            build: config.build,
            troubles: config.troubles,
            docs_link: config.docs_link,
            registry,
            meters,
            clients,
            admission,
            draining: AtomicBool::new(false),
        })))
    }

    /// From now on the shop says that it is not ready. What comes is still served.
    pub fn start_draining(&self) {
        self.0.draining.store(true, Ordering::Relaxed);
    }

    /// How long the shop's own requests took since the process began: upper bounds in
    /// microseconds, rising, and how many lie below each and above the one before.
    pub fn latencies(&self) -> Vec<(u64, u64)> {
        let counts = self.0.meters.totals().latency;
        let bounds = BOUNDS_US.iter().map(|us| u64::from(*us));
        // Of what is slower than all bounds only the last bound is known.
        let last = BOUNDS_US.last().map_or(0, |us| 2 * u64::from(*us));
        bounds.chain([last]).zip(counts).collect()
    }

    pub fn is_draining(&self) -> bool {
        self.0.draining.load(Ordering::Relaxed)
    }
}

impl std::ops::Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}
