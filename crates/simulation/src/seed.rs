//! One seed: the world it makes, lived through to the quiet end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::time::Duration;

use engine_api::{
    ControlStore, Engine, EngineError, FenceKind, JournalEvent, Maintenance, Position,
    PriceCondition, Scan, StockAction, Timestamp, Together, World,
};
use layout::{Collection, Scope};
use model::Lifetime;
use router::{Limits, MapKeeper, ShardName};
use shop_service::{OrderHistory, Settings, Swept};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::chance::Chance;
use crate::checks;
use crate::clock::SimulatedWorld;
use crate::control::FaultyControl;
use crate::engine::FaultyEngine;
use crate::link::{Link, Weather};
use crate::mover::Supervisor;
use crate::recording::{History, Recording};
use crate::scenery::{
    GOODS, GOODS_PIECES, Marks, PIECES, PRODUCTS, SESSIONS, USERS, cart, create, first_map,
    product, product_header, session, stock,
};
use crate::serving::{Process, Right, Site};
use crate::shopper::{Shared, Shopper};
use crate::visitor::{Hall, Interest, Visitor};

/// Who comes: those who use the router alone, those who use the shop, or both.
const COMPANIES: [Company; 3] = [
    Company {
        shoppers: 6,
        visitors: 0,
    },
    Company {
        shoppers: 0,
        visitors: 4,
    },
    Company {
        shoppers: 3,
        visitors: 3,
    },
];
const CRASHES_MAX: u64 = 2;
/// Seeds whose processes have leases; in the others they ask the control store.
const LEASES_PERCENT: u64 = 75;
/// Short, so that much happens around their ends.
const LEASE_MS_LEAST: u64 = 150;
const LEASE_MS_MOST: u64 = 600;
/// A judge's margin: above what clocks of the simulated world run apart.
const LEASE_MARGIN_PERCENT: u32 = 25;
/// Longer than any change is under way.
const WRITER_REST_MS: u64 = 4_000;
/// How often one process stands still, and for how many leases at most.
const PAUSES_MAX: u64 = 2;
const PAUSED_LEASES_MAX: u64 = 2;
const PAUSE_AT_MS_MAX: u64 = 1_500;
const CRASH_AT_MS_MAX: u64 = 900;
const DOWN_MS_MAX: u64 = 250;
/// How long late deliveries are waited for.
const QUIET_LOOKS_MAX: u64 = 10_000;
/// Of different lengths, or they could keep step with the renewals of a lease.
const QUIET_LOOK_MS_LEAST: u64 = 17;
const QUIET_LOOK_MS_SPREAD: u64 = 7;
const BY_LEASE_PERCENT: u64 = 30;
/// How old an open order is when a sweeper takes it up.
const SWEEP_AFTER_S: u32 = 1;
/// How far ahead the clocks of impatient sweepers are.
const IMPATIENCE: Duration = Duration::from_millis(850);
/// Longer than a sweeper's patience and all that clocks can differ.
const UNTIL_ALL_IS_OLD: Duration = Duration::from_secs(3);
const LAST_SWEEPS_MAX: u32 = 20;
/// Among the seeds without shoppers, who know nothing of a history.
const HISTORY_PERCENT: u64 = 60;
/// Longer than clocks differ here, as it must be.
const ARCHIVE_AFTER_MS: u64 = 650;
const LAST_ARCHIVINGS_MAX: u32 = 1_000;
const HISTORY_STATUSES: [&str; 3] = ["delivered", "cancelled", "returned"];

#[derive(Clone, Copy, Debug)]
struct Company {
    shoppers: usize,
    visitors: usize,
}

/// A seed lived through: what happened, and what should not have.
#[derive(Debug)]
pub struct Lived {
    pub seed: u64,
    pub history: History,
    pub breaches: Vec<String>,
}

/// Runs a seed on this thread, in virtual time.
pub fn live(seed: u64) -> Lived {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without input and output needs nothing that could be missing");
    let history = runtime.block_on(async { Stage::set(seed).play().await });
    let breaches = checks::judge(&history);
    Lived {
        seed,
        history,
        breaches,
    }
}

struct Stage {
    chance: Chance,
    started: Instant,
    fence_kind: FenceKind,
    recording: Recording,
    shards: BTreeMap<ShardName, Arc<FaultyEngine>>,
    control: Arc<FaultyControl>,
    /// Keeps finished orders, in seeds that have it.
    archive: Option<Arc<FaultyEngine>>,
    company: Company,
    limits: Limits,
    shared: Arc<Shared>,
    hall: Arc<Hall>,
    serving: Vec<ShardName>,
    origins: BTreeMap<ShardName, Position>,
}

impl Stage {
    fn set(seed: u64) -> Stage {
        let mut chance = Chance::new(seed).stream("stage");
        let mut chance_of_company = Chance::new(seed).stream("company");
        let by_lease = chance.percent(BY_LEASE_PERCENT);
        let fence_kind = if by_lease {
            FenceKind::ByLease
        } else {
            FenceKind::InStore
        };
        let weather = Weather::of_seed(&mut chance);
        let started = Instant::now();
        let recording = Recording::new(fence_kind);
        let link = |name: &str| Link::new(weather, Chance::new(seed).stream(name));
        let names: Vec<ShardName> = ["a", "b", "c"]
            .into_iter()
            .take(if chance.percent(40) { 3 } else { 2 })
            .map(|name| ShardName::new(name).expect("a letter is a shard's name"))
            .collect();
        let shards: BTreeMap<ShardName, Arc<FaultyEngine>> = names
            .iter()
            .map(|name| {
                let link = link(name.as_str());
                let engine = FaultyEngine::new(name.clone(), fence_kind, link, recording.clone());
                (name.clone(), Arc::new(engine))
            })
            .collect();
        let control = Arc::new(FaultyControl::new(link("control"), recording.clone()));
        let engines = shards.iter().map(|(name, engine)| {
            let engine: Arc<dyn Engine> = engine.clone();
            (name.clone(), engine)
        });
        let company = *chance_of_company.pick(&COMPANIES);
        let keeps_apart =
            company.shoppers == 0 && Chance::new(seed).stream("history").percent(HISTORY_PERCENT);
        let archive = keeps_apart.then(|| {
            let name = ShardName::new("archive").expect("a word is a shard's name");
            let link = link("archive");
            let engine = FaultyEngine::new(name, fence_kind, link, recording.clone());
            Arc::new(engine)
        });
        let lease_ms = chance_of_company.between(LEASE_MS_LEAST, LEASE_MS_MOST);
        let limits = Limits {
            hold_ms_max: chance.between(200, 2_000),
            held_requests_max: if chance.percent(30) { 2 } else { 100 },
            hold_poll_ms: 20,
            lease_ms,
            lease_renew_ms: lease_ms / 5,
            lease_look_ms: lease_ms / 10,
            lease_margin_percent: LEASE_MARGIN_PERCENT,
            writer_rest_ms: WRITER_REST_MS,
            ..Limits::default()
        };
        let right = if chance_of_company.percent(LEASES_PERCENT) {
            Right::Lease
        } else {
            Right::ControlStore
        };
        let site = Arc::new(Site {
            shards: engines.collect(),
            control: Arc::clone(&control) as Arc<dyn ControlStore>,
            history: archive.as_ref().map(|archive| {
                let statuses = HISTORY_STATUSES.map(str::to_owned);
                let name = archive.server().shard.clone();
                OrderHistory::new(name, Arc::clone(archive) as Arc<dyn Engine>, &statuses)
                    .expect("these are finished")
            }),
            limits: limits.clone(),
            right,
            settings: Settings {
                sweep_after_s: Lifetime::from_seconds(SWEEP_AFTER_S)
                    .expect("a second is a lifetime"),
                archive_after_ms: ARCHIVE_AFTER_MS,
                ..Settings::default()
            },
            sweepers_ahead: if chance_of_company.percent(60) {
                IMPATIENCE
            } else {
                Duration::ZERO
            },
            recording: recording.clone(),
            writers: AtomicU8::new(0),
        });
        let processes = (0..if chance.percent(60) { 2 } else { 3 }).map(|number| {
            let own = Chance::new(seed).stream(&format!("process {number}"));
            let world = Arc::new(SimulatedWorld::skewed(started, own));
            Arc::new(Process::new(number, Arc::clone(&site), world))
        });
        let processes: Vec<Arc<Process>> = processes.collect();
        let shared = Arc::new(Shared {
            processes: processes.clone(),
            recording: recording.clone(),
            marks: Marks::default(),
            together: match fence_kind {
                FenceKind::InStore => Together::Atomic,
                FenceKind::ByLease => Together::Unsupported,
            },
            orders: Mutex::default(),
        });
        let hall = Arc::new(Hall {
            processes,
            recording: recording.clone(),
            guests: Mutex::default(),
            orders: Mutex::default(),
            received_orders: Mutex::default(),
            wishes: Mutex::default(),
            pieces: AtomicU32::new(0),
            keys: AtomicU64::new(0),
            received: AtomicU64::new(GOODS_PIECES),
            interest: match &archive {
                Some(_) => Interest::Orders,
                None => Interest::Everything,
            },
        });
        let serving = if fence_kind == FenceKind::ByLease || chance.percent(60) {
            vec![names[0].clone()]
        } else {
            names[..2].to_vec()
        };
        Stage {
            chance,
            started,
            fence_kind,
            recording,
            shards,
            control,
            archive,
            company,
            limits,
            shared,
            hall,
            serving,
            origins: BTreeMap::new(),
        }
    }

    async fn play(mut self) -> History {
        self.open().await;
        self.links().for_each(Link::disturb);
        let mut tasks = self.shoppers();
        tasks.extend(self.visitors());
        tasks.extend(self.movers());
        tasks.extend(self.crashes());
        tasks.extend(self.pauses());
        for task in tasks {
            if let Err(error) = task.await {
                self.recording
                    .breach(format!("a task of the world ended early: {error}"));
            }
        }
        self.links().for_each(Link::calm);
        let processes = self.hall.processes.iter();
        processes.for_each(|process| {
            process.stop_sweeper();
            process.stop_archiver();
        });
        self.wait_for_late_deliveries().await;
        self.sweep_up().await;
        self.archive_up().await;
        self.look_at_everything().await;
        self.look_behind().await;
        self.read_journals().await;
        self.recording.history()
    }

    async fn open(&mut self) {
        let mut origins = BTreeMap::new();
        for (name, engine) in self.engines() {
            let origin = engine.server().memory.journal_end().await;
            let origin = origin.expect("the memory engine has a journal");
            origins.insert(name.clone(), origin);
        }
        self.origins = origins;
        let keeper = MapKeeper::new(Arc::clone(&self.control) as Arc<dyn ControlStore>);
        keeper
            .publish(&first_map(&self.serving))
            .await
            .expect("nothing is in the way of a first map");
        for process in &self.shared.processes {
            process.start().await;
            if self.company.visitors > 0 {
                process.start_sweeper();
            }
            if self.archive.is_some() {
                process.start_archiver();
            }
        }
        let keeper = Shopper::new(
            self.company.shoppers,
            Arc::clone(&self.shared),
            self.chance.stream("keeper"),
        );
        for name in PRODUCTS {
            let header = product_header(name, 500, &self.shared.marks);
            keeper
                .write(vec![create(&product(name), header, vec![])])
                .await;
            let receive = StockAction::Receive { total: PIECES };
            keeper
                .write(vec![stock(&product(name), PriceCondition::Any, receive)])
                .await;
        }
        let chance = self.chance.stream("manager");
        let manager = Visitor::new(self.company.visitors, Arc::clone(&self.hall), chance);
        for name in GOODS {
            manager.set_price(name, 500).await;
            manager.receive(name, GOODS_PIECES).await;
        }
    }

    fn shoppers(&self) -> Vec<JoinHandle<()>> {
        (0..self.company.shoppers)
            .map(|number| {
                let chance = self.chance.stream(&format!("shopper {number}"));
                let shopper = Shopper::new(number, Arc::clone(&self.shared), chance);
                tokio::spawn(async move { shopper.go_shopping().await })
            })
            .collect()
    }

    fn visitors(&self) -> Vec<JoinHandle<()>> {
        (0..self.company.visitors)
            .map(|number| {
                let chance = self.chance.stream(&format!("visitor {number}"));
                let visitor = Visitor::new(number, Arc::clone(&self.hall), chance);
                tokio::spawn(async move { visitor.look_around().await })
            })
            .collect()
    }

    fn movers(&mut self) -> Vec<JoinHandle<()>> {
        let first = *self.chance.pick(&Collection::ALL);
        let second = *self.chance.pick(&Collection::ALL);
        let mut collections = vec![first];
        if second != first && self.chance.percent(60) {
            collections.push(second);
        }
        collections
            .into_iter()
            .map(|collection| {
                let chance = self.chance.stream(&format!("mover of {collection}"));
                let supervisor = Supervisor {
                    collection,
                    fence_kind: self.fence_kind,
                    shards: self.shards.clone(),
                    control: Arc::clone(&self.control) as Arc<dyn ControlStore>,
                    limits: self.limits.clone(),
                    world: self.movers_world(collection),
                    recording: self.recording.clone(),
                    chance,
                };
                tokio::spawn(supervisor.move_about())
            })
            .collect()
    }

    fn crashes(&mut self) -> Vec<JoinHandle<()>> {
        (0..self.chance.below(CRASHES_MAX + 1))
            .map(|_| {
                let sweeps = self.company.visitors > 0;
                let archives = self.archive.is_some();
                let process = Arc::clone(self.chance.pick(&self.shared.processes));
                let at = Duration::from_millis(self.chance.below(CRASH_AT_MS_MAX));
                let down = Duration::from_millis(self.chance.between(1, DOWN_MS_MAX));
                tokio::spawn(async move {
                    sleep(at).await;
                    process.crash();
                    sleep(down).await;
                    process.start().await;
                    if sweeps {
                        process.start_sweeper();
                    }
                    if archives {
                        process.start_archiver();
                    }
                })
            })
            .collect()
    }

    fn pauses(&self) -> Vec<JoinHandle<()>> {
        let mut tasks = Vec::new();
        for (number, process) in self.shared.processes.iter().enumerate() {
            let mut chance = self.chance.stream(&format!("pauses of {number}"));
            let process = Arc::clone(process);
            let lease_ms = self.limits.lease_ms;
            tasks.push(tokio::spawn(async move {
                for _ in 0..chance.below(PAUSES_MAX + 1) {
                    sleep(Duration::from_millis(chance.below(PAUSE_AT_MS_MAX))).await;
                    let time_ms = chance.between(1, PAUSED_LEASES_MAX * lease_ms);
                    process.stand_still(Duration::from_millis(time_ms)).await;
                }
            }));
        }
        tasks
    }

    async fn wait_for_late_deliveries(&self) {
        for look in 0..QUIET_LOOKS_MAX {
            if self.links().all(|link| link.deliveries_under_way() == 0) {
                self.recording.note("all is quiet");
                return;
            }
            let pause_ms = QUIET_LOOK_MS_LEAST + look % QUIET_LOOK_MS_SPREAD;
            sleep(Duration::from_millis(pause_ms)).await;
        }
        self.recording.breach("the world does not come to rest");
    }

    /// Sweeps until nothing is left to do, and no sweeper after that.
    async fn sweep_up(&self) {
        sleep(UNTIL_ALL_IS_OLD).await;
        let process = &self.hall.processes[0];
        for _ in 0..LAST_SWEEPS_MAX {
            let swept = process.ask(|shop| async move { shop.sweep().await }).await;
            let Some(swept) = swept else { break };
            self.recording.swept(0, &swept);
            if swept == Ok(Swept::default()) {
                return;
            }
        }
        self.recording.breach("the sweepers find no end");
    }

    /// Archives until nothing is left to do, and looks at every order once more.
    async fn archive_up(&self) {
        if self.archive.is_none() {
            return;
        }
        sleep(UNTIL_ALL_IS_OLD).await;
        let process = &self.hall.processes[0];
        process.archive_up(LAST_ARCHIVINGS_MAX).await;
        let chance = self.chance.stream("looking back");
        let reader = Visitor::new(self.company.visitors + 1, Arc::clone(&self.hall), chance);
        reader.look_back().await;
    }

    /// What the owners hold, without asking anybody.
    async fn look_behind(&self) {
        let map = self.recording.with(|history| {
            let last = history.maps.last();
            last.map(|published| Arc::clone(&published.map))
        });
        let map = map.expect("a first map was published");
        for (name, engine) in &self.shards {
            for collection in Collection::ALL {
                let scan = Scan {
                    collection,
                    scope: Scope::All,
                    after: None,
                    until: None,
                    limit: engine_api::PAGE_RECORDS_MAX,
                };
                let page = engine.server().memory.scan(&scan).await;
                let page = page.expect("the memory engine answers every scan");
                let own = page
                    .images
                    .into_iter()
                    .filter(|image| map.owner(&image.key).ok() == Some(name));
                self.recording.with(|history| history.standing.extend(own));
            }
        }
        if let Some(archive) = &self.archive {
            self.look_into(archive).await;
        }
    }

    /// Finished orders are in the archive and nowhere else, when all is quiet.
    async fn look_into(&self, archive: &FaultyEngine) {
        let scan = Scan {
            collection: Collection::Orders,
            scope: Scope::All,
            after: None,
            until: None,
            limit: engine_api::PAGE_RECORDS_MAX,
        };
        let page = archive.server().memory.scan(&scan).await;
        let page = page.expect("the memory engine answers every scan");
        self.recording.with(|history| {
            history.archived = page.images.len();
            history.standing.retain(|record| {
                record.key.collection != Collection::Orders
                    || record.header.content.live().is_some()
            });
            let live = history.standing.iter().filter_map(|record| {
                let header = record.header.content.live()?;
                let status = header.text(layout::Field::Status)?;
                let orders = record.key.collection == Collection::Orders;
                (orders && HISTORY_STATUSES.contains(&status)).then(|| record.key.to_string())
            });
            for key in live.collect::<Vec<_>>() {
                history
                    .breaches
                    .push(format!("{key} is finished and stays live"));
            }
            for image in page.images {
                if history
                    .standing
                    .iter()
                    .any(|record| record.key == image.key)
                {
                    let what = format!("{} is live and in the archive", image.key);
                    history.breaches.push(what);
                }
                history.standing.push(image);
            }
        });
    }

    /// The last reads, in quiet, of everything that ever was.
    async fn look_at_everything(&self) {
        let reader = Shopper::new(
            self.company.shoppers + 1,
            Arc::clone(&self.shared),
            self.chance.stream("reader"),
        );
        let orders = self
            .shared
            .orders
            .lock()
            .expect("nobody else is left")
            .clone();
        let keys = USERS
            .map(cart)
            .into_iter()
            .chain(SESSIONS.map(session))
            .chain(PRODUCTS.map(product))
            .chain(orders);
        for key in keys {
            match reader.read(&key).await {
                Some(Some(image)) => self.recording.with(|history| history.images.push(image)),
                Some(None) => {}
                None => self
                    .recording
                    .breach(format!("{key} cannot be read in quiet")),
            }
        }
        for query in Shopper::all_listings() {
            reader.list(query).await;
        }
    }

    async fn read_journals(&self) {
        for (name, engine) in self.engines() {
            let memory = &engine.server().memory;
            let origin = &self.origins[name];
            let page = memory
                .journal_read(origin, engine_api::JOURNAL_ENTRIES_MAX)
                .await;
            let page = page.expect("nothing was trimmed yet");
            let entries = page
                .entries
                .into_iter()
                .filter_map(|entry| match entry.event {
                    JournalEvent::Changed { key, revision, .. } => Some((key, revision)),
                    JournalEvent::Fenced { .. } => None,
                });
            let entries: Vec<_> = entries.collect();
            let trims = !entries.is_empty();
            self.recording
                .with(|history| history.journals.insert(name.clone(), entries));
            let end_of_time = Timestamp::from_unix_micros(i64::MAX);
            let past = Timestamp::from_unix_micros(0);
            let work = Maintenance {
                now: past,
                marks_before: past,
                journal_before: end_of_time,
                items_max: 1,
            };
            memory
                .maintain(work)
                .await
                .expect("the memory engine takes care of itself");
            // A position that was trimmed away is lost, and says so (W28).
            if trims && memory.journal_read(origin, 1).await != Err(EngineError::PositionLost) {
                self.recording
                    .breach(format!("the trimmed journal of {name} is read on silently"));
            }
        }
    }

    fn links(&self) -> impl Iterator<Item = &Link> {
        self.engines()
            .map(|(_, engine)| &engine.link)
            .chain([&self.control.link])
    }

    fn movers_world(&self, collection: Collection) -> Arc<dyn World> {
        let chance = self.chance.stream(&format!("world of {collection}"));
        Arc::new(SimulatedWorld::exact(self.started, chance))
    }

    /// The shards, and the archive if there is one.
    fn engines(&self) -> impl Iterator<Item = (&ShardName, &Arc<FaultyEngine>)> {
        let archive = self.archive.iter();
        let archive = archive.map(|archive| (&archive.server().shard, archive));
        self.shards.iter().chain(archive)
    }
}
