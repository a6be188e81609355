//! A shop of two memory shards, routers with leases, and movers whose process can be
//! stopped at any call to an engine or the control store.

#![allow(dead_code, clippy::unwrap_used)]

mod wire;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine_api::memory::MemoryEngine;
use engine_api::{
    Authority, Change, ControlStore, Engine, FenceKind, Freshness, Generation, Guard, MoverTerm,
    PartChange, PartKey, ReadContext, Record, RecordId, RecordKey, Revision, Scan, Timestamp,
    World, WriteContext, Writer,
};
use layout::{Collection, Field, Fields, Scope, Slot, SlotRange, Value};
use mover::{
    Limits, MoveName, MoveState, Moved, Mover, MoverConfig, Pass, Phase, Plan, Pressure, Shards,
    Wish, ask, start, status,
};
use router::{
    CollectionMap, Cut, Map, MapKeeper, MapView, ProcessName, Router, RouterConfig, ShardName,
};
use tokio::task::JoinHandle;

#[allow(unused_imports)]
pub use wire::{Stop, Wire};

pub const CARTS: u64 = 12;
pub const WRITERS: u64 = 3;
pub const TAKE_OVER_MS: u64 = 1_000;
const START_MICROS: i64 = 1_700_000_000_000_000;

/// Time that passes only when everybody waits.
#[derive(Debug)]
pub struct StillWorld {
    began: tokio::time::Instant,
    drawn: AtomicU64,
}

impl World for StillWorld {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.elapsed().as_micros()).unwrap();
        Timestamp::from_unix_micros(START_MICROS + passed)
    }

    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    fn random(&self) -> u64 {
        self.drawn.fetch_add(7919, Ordering::Relaxed)
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(tokio::time::sleep(duration))
    }
}

pub struct Shop {
    pub source: Arc<MemoryEngine>,
    pub target: Arc<MemoryEngine>,
    /// These two, and whatever else the story has.
    pub engines: Engines,
    pub control: Arc<MemoryEngine>,
    pub world: Arc<StillWorld>,
    pub fence: FenceKind,
    pub router: Arc<Router>,
    keeping: JoinHandle<()>,
    pub ledger: Arc<Ledger>,
    /// The one that is spoken of; a story may begin another.
    pub move_name: MoveName,
}

pub type Engines = BTreeMap<&'static str, Arc<MemoryEngine>>;

/// What the writers were told: the newest acknowledged quantity of each line.
#[derive(Debug, Default)]
pub struct Ledger {
    acknowledged: Mutex<BTreeMap<(u64, u64), i64>>,
    pub count: AtomicU64,
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}

impl Shop {
    pub async fn open() -> Shop {
        Shop::fenced(FenceKind::InStore).await
    }

    pub async fn fenced(fence: FenceKind) -> Shop {
        Shop::with(fence, Cut::even_slots(&[shard("source")])).await
    }

    pub async fn with(fence: FenceKind, cut: Cut) -> Shop {
        let map = CollectionMap::cut_by("memory", vec![Field::CartId], cut);
        Shop::placed(fence, map, &[]).await
    }

    /// With carts placed like this, and more shards than source and target.
    pub async fn placed(fence: FenceKind, map: CollectionMap, more: &[&'static str]) -> Shop {
        let control: Arc<MemoryEngine> = Arc::default();
        let map = Map::first(BTreeMap::from([(Collection::Carts, map)]));
        MapKeeper::new(control.clone()).publish(&map).await.unwrap();
        let world = Arc::new(StillWorld {
            began: tokio::time::Instant::now(),
            drawn: AtomicU64::new(1),
        });
        let names = ["source", "target"].iter().chain(more);
        let engines: Engines = names.map(|name| (*name, Arc::default())).collect();
        let config = router_config(&engines, &control, &world, fence, "first");
        let router = Router::open(config).await.unwrap();
        let keeping = keep(&router);
        let shop = Shop {
            source: engines["source"].clone(),
            target: engines["target"].clone(),
            engines,
            control,
            world,
            fence,
            router,
            keeping,
            ledger: Arc::default(),
            move_name: name(),
        };
        for cart in 0..CARTS {
            let written = shop
                .router
                .write(new_cart(&map, cart), Revision::ZERO)
                .await;
            assert!(written.unwrap().outcome.is_done());
        }
        shop
    }

    /// Another process with a lease; whether it keeps it is the story's.
    pub async fn second_router(&self, process: &str) -> Arc<Router> {
        let config = router_config(
            &self.engines,
            &self.control,
            &self.world,
            self.fence,
            process,
        );
        Router::open(config).await.unwrap()
    }

    /// A process that has not heard of the target yet.
    pub async fn narrow_router(&self, process: &str) -> Arc<Router> {
        let mut config = router_config(
            &self.engines,
            &self.control,
            &self.world,
            self.fence,
            process,
        );
        config.shards.remove(&shard("target"));
        Router::open(config).await.unwrap()
    }

    pub fn plan(&self) -> Plan {
        Plan {
            collection: Collection::Carts,
            moved: self.moved(moving()),
            freeze_ms_max: 100,
        }
    }

    pub fn moved(&self, scope: Scope) -> Moved {
        Moved::Keys {
            scope,
            source: shard("source"),
            target: shard("target"),
        }
    }

    pub async fn start(&self) {
        self.start_with(self.plan()).await;
    }

    pub async fn start_with(&self, plan: Plan) {
        let control: Arc<dyn ControlStore> = self.control.clone();
        let shards = self.shards(&Wire::endless());
        start(&control, &shards, &self.move_name, &plan)
            .await
            .unwrap();
    }

    pub fn shards(&self, wire: &Arc<Wire>) -> Shards {
        over(wire, &self.engines, self.fence)
    }

    pub fn mover(&self) -> Mover {
        self.mover_over(&Wire::endless())
    }

    /// A mover whose calls all go over this wire.
    pub fn mover_over(&self, wire: &Arc<Wire>) -> Mover {
        self.mover_beside(wire, None)
    }

    /// In a process that serves shoppers.
    pub fn mover_beside(&self, wire: &Arc<Wire>, pressure: Option<Arc<dyn Pressure>>) -> Mover {
        let config = self.mover_config(wire);
        Mover::new(MoverConfig { pressure, ..config }).unwrap()
    }

    /// In small pieces, so that there are many places to die at.
    pub fn mover_config(&self, wire: &Arc<Wire>) -> MoverConfig {
        MoverConfig {
            pressure: None,
            name: self.move_name.clone(),
            shards: self.shards(wire),
            control: wire.control(&self.control),
            world: self.world.clone(),
            router: None,
            limits: Limits {
                poll_ms: 5,
                renew_ms: 200,
                take_over_ms: TAKE_OVER_MS,
                clean_grace_ms: 100,
                clean_records_max: 3,
                ..Limits::default()
            },
            feed_limits: feed::Limits {
                scan_records_max: 3,
                page_entries_max: 16,
                ..feed::Limits::default()
            },
            verifier_limits: verifier::Limits {
                scan_records_max: 5,
                scan_pages_max: 2,
                lag_ms_max: 200,
                ..verifier::Limits::default()
            },
            router_limits: router_limits(),
            invariants: None,
        }
    }

    pub async fn state(&self) -> MoveState {
        let found = status(self.control.as_ref(), &self.move_name).await;
        found.unwrap().state
    }

    pub async fn phase(&self) -> &'static str {
        self.state().await.phase.name()
    }

    pub async fn ask(&self, wish: Wish) {
        let asked = ask(self.control.as_ref(), &self.move_name, wish).await;
        asked.unwrap();
    }

    pub async fn map(&self) -> Arc<Map> {
        let keeper = MapKeeper::new(self.control.clone());
        keeper.load().await.unwrap().unwrap()
    }

    pub async fn is_frozen(&self) -> bool {
        let map = self.map().await;
        !map.collection(Collection::Carts).unwrap().frozen.is_empty()
    }

    pub async fn owner(&self) -> String {
        let map = self.map().await;
        map.owner(&cart_key(moving_cart())).unwrap().to_string()
    }

    /// Passes until the phase has this name; time goes on while the mover waits.
    pub async fn drive(&self, mover: &mut Mover, phase: &str) {
        for _ in 0..20_000 {
            let pass = mover.pass().await;
            if self.phase().await == phase {
                return;
            }
            let pause = match pass {
                Ok(Pass::Behind) => Duration::from_micros(10),
                Ok(Pass::Waiting { ms }) => Duration::from_millis(ms),
                Ok(Pass::Watching) => Duration::from_millis(50),
                Ok(Pass::Ended) => break,
                Err(_) => Duration::from_millis(20),
            };
            tokio::time::sleep(pause).await;
        }
        let state = self.state().await;
        panic!("{phase} is not reached: {state:?}");
    }

    /// Whatever became of an earlier attempt: wishes again until the move has come to `end`.
    pub async fn insist(&self, mover: &mut Mover, wish: Wish, from: &str, end: &str) {
        for _ in 0..20_000 {
            if self.phase().await == end {
                return;
            }
            let state = self.state().await;
            if state.phase.name() == from && state.wish.is_none() {
                self.ask(wish).await;
            }
            let pause = match mover.pass().await {
                Ok(Pass::Behind) => Duration::from_micros(10),
                Ok(Pass::Waiting { ms }) => Duration::from_millis(ms),
                Ok(Pass::Watching | Pass::Ended) | Err(_) => Duration::from_millis(20),
            };
            tokio::time::sleep(pause).await;
        }
        let state = self.state().await;
        panic!("{end} is not reached: {state:?}");
    }

    pub async fn cut_over(&self, mover: &mut Mover) {
        self.drive(mover, "ready").await;
        self.ask(Wish::Cutover).await;
        self.drive(mover, "settling").await;
    }

    pub fn writers(&self) -> Writers {
        self.writers_every(Duration::from_millis(3))
    }

    pub fn writers_every(&self, pause: Duration) -> Writers {
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = (0..WRITERS)
            .map(|writer| {
                let (router, ledger) = (self.router.clone(), self.ledger.clone());
                tokio::spawn(write(router, writer, ledger, stop.clone(), pause))
            })
            .collect();
        Writers { stop, tasks }
    }

    /// One more line, by the router of the shop.
    pub async fn write(&self, cart: u64, writer: u64, quantity: i64) {
        write_one(&self.router, &self.ledger, cart, writer, quantity).await;
    }

    /// Everything that was acknowledged is shown by the router, and stands where the map says.
    pub async fn judge(&self, story: &str) {
        let map = self.map().await;
        let acknowledged = self.ledger.acknowledged.lock().unwrap().clone();
        for ((cart, writer), quantity) in acknowledged {
            let key = key_in(&map, cart);
            let owner = &self.engines[map.owner(&key).unwrap().as_str()];
            let shown = self.router.get(&key).await.unwrap();
            let stored = image(owner, &key).await;
            assert_eq!(
                shown.as_deref().and_then(|it| line_of(it, writer)),
                Some(quantity),
                "{story}: cart {cart}, writer {writer}, as shown"
            );
            assert_eq!(
                stored.as_ref().and_then(|it| line_of(it, writer)),
                Some(quantity),
                "{story}: cart {cart}, writer {writer}, as stored"
            );
        }
        assert!(!self.is_frozen().await, "{story}: the keys stayed frozen");
    }

    /// The ids of all carts that a shard holds, marks included.
    pub async fn held_by(&self, shard: &str) -> Vec<String> {
        let scan = Scan {
            collection: Collection::Carts,
            scope: Scope::All,
            after: None,
            until: None,
            limit: 1_000,
        };
        let page = self.engines[shard].scan(&scan).await.unwrap();
        let ids = page.images.iter().map(|image| image.key.id.to_string());
        ids.collect()
    }

    /// A bare hand changes what a shard holds, above everything there.
    pub async fn tamper(engine: &MemoryEngine, cart: u64) {
        let mut altered = image(engine, &cart_key(cart)).await.unwrap();
        let newest = altered.newest_revision().to_i64();
        altered.header.revision = Revision::from_i64(newest + 1).unwrap();
        let context = WriteContext {
            authority: Authority::Mover {
                term: MoverTerm {
                    move_name: "bare-hand".to_owned(),
                    term: 1,
                },
            },
            now: Timestamp::from_unix_micros(START_MICROS),
            revision: altered.newest_revision(),
        };
        let put = Change::PutImage { image: altered };
        assert!(engine.apply(put, context).await.unwrap().is_done());
    }
}

/// Passes for a while; what must not happen meanwhile is asked after each.
pub async fn pass_for(mover: &mut Mover, time: Duration, mut check: impl AsyncFnMut()) {
    let until = tokio::time::Instant::now() + time;
    while tokio::time::Instant::now() < until {
        mover.pass().await.unwrap();
        check().await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub struct Writers {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Writers {
    pub async fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

async fn write(
    router: Arc<Router>,
    writer: u64,
    ledger: Arc<Ledger>,
    stop: Arc<AtomicBool>,
    pause: Duration,
) {
    let mut quantity = 0;
    while !stop.load(Ordering::SeqCst) {
        quantity += 1;
        let cart = (writer * 7 + quantity as u64 * 5) % CARTS;
        write_one(&router, &ledger, cart, writer, quantity).await;
        tokio::time::sleep(pause + Duration::from_millis(writer)).await;
    }
}

pub async fn write_one(router: &Router, ledger: &Ledger, cart: u64, writer: u64, quantity: i64) {
    // Keyed as a request is: by the map that stands when it comes.
    let mut change = line(cart, writer, quantity);
    *change.key_mut() = key_in(&router.map(), cart);
    let written = router.write(change, Revision::ZERO).await;
    let written = written.unwrap_or_else(|error| panic!("writer {writer}: {error}"));
    assert!(written.outcome.is_done(), "{written:?}");
    let mut acknowledged = ledger.acknowledged.lock().unwrap();
    acknowledged.insert((cart, writer), quantity);
    ledger.count.fetch_add(1, Ordering::SeqCst);
}

pub fn keep(router: &Arc<Router>) -> JoinHandle<()> {
    let router = router.clone();
    tokio::spawn(async move { router.keep_lease().await })
}

fn router_limits() -> router::Limits {
    router::Limits {
        hold_poll_ms: 5,
        lease_ms: 3_000,
        lease_renew_ms: 300,
        lease_look_ms: 20,
        hold_ms_max: 60_000,
        ..router::Limits::default()
    }
}

fn router_config(
    engines: &Engines,
    control: &Arc<MemoryEngine>,
    world: &Arc<StillWorld>,
    fence: FenceKind,
    process: &str,
) -> RouterConfig {
    RouterConfig {
        shards: over(&Wire::endless(), engines, fence),
        control: control.clone(),
        world: world.clone(),
        writer: Writer::numbered(1),
        limits: router_limits(),
        map_view: MapView::Lease {
            process: ProcessName::new(process).unwrap(),
        },
    }
}

fn over(wire: &Arc<Wire>, engines: &Engines, fence: FenceKind) -> Shards {
    let side = |(name, engine): (&&'static str, &Arc<MemoryEngine>)| {
        (shard(name), wire.side(name, engine, fence))
    };
    engines.iter().map(side).collect()
}

pub fn name() -> MoveName {
    MoveName::new("half-the-carts").unwrap()
}

pub fn shard(name: &str) -> ShardName {
    ShardName::new(name).unwrap()
}

/// The lower half of the slots.
pub fn moving() -> Scope {
    slots(0, 2047)
}

pub fn slots(first: u16, last: u16) -> Scope {
    let slot = |number| Slot::try_from(number).unwrap();
    Scope::Slots(vec![SlotRange {
        first: slot(first),
        last: slot(last),
    }])
}

/// A cart that moves.
pub fn moving_cart() -> u64 {
    let moves = |cart: &u64| moving().contains(&cart_key(*cart).shard_key);
    (0..CARTS).find(moves).unwrap()
}

pub fn cart_key(cart: u64) -> RecordKey {
    let id = RecordId::new(format!("cart-{cart}")).unwrap();
    RecordKey::by_id(Collection::Carts, id)
}

/// The key that the map has the cart under.
pub fn key_in(map: &Map, cart: u64) -> RecordKey {
    let id = cart_key(cart).id;
    map.key_for(Collection::Carts, id, &header(cart)).unwrap()
}

pub fn header(cart: u64) -> Fields {
    Fields::new()
        .with(Field::CartId, Value::text(cart_key(cart).id.as_str()))
        .with(Field::UserId, Value::text(format!("user-{}", cart % 5)))
        .with(
            Field::SessionId,
            Value::text(format!("session-{}", cart % 7)),
        )
        .with(Field::Status, Value::text("active"))
        .with(
            Field::CreatedAt,
            Value::Timestamp(Timestamp::from_unix_micros(1)),
        )
        .with(Field::Ordinal, Value::Int(1))
}

pub fn new_cart(map: &Map, cart: u64) -> Change {
    Change::CreateIfAbsent {
        key: key_in(map, cart),
        header: header(cart),
        parts: Vec::new(),
    }
}

pub fn line(cart: u64, writer: u64, quantity: i64) -> Change {
    let fields = Fields::new().with(Field::Quantity, Value::Int(quantity));
    Change::Patch {
        key: cart_key(cart),
        guard: Guard::default(),
        parts: vec![(part(writer), PartChange::Set(fields))],
    }
}

fn part(writer: u64) -> PartKey {
    PartKey::line(&format!("product-{writer}"))
}

fn line_of(record: &Record, writer: u64) -> Option<i64> {
    record.part(&part(writer))?.get(Field::Quantity)?.as_int()
}

pub async fn image(engine: &MemoryEngine, key: &RecordKey) -> Option<Record> {
    let context = ReadContext {
        now: Timestamp::from_unix_micros(START_MICROS),
        freshness: Freshness::Latest,
    };
    engine.get(key, context).await.unwrap()
}

pub fn generation_of(phase: &Phase) -> Option<Generation> {
    match phase {
        Phase::Settling { settled } => Some(settled.generation),
        _ => None,
    }
}
