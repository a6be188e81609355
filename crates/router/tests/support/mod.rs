//! A small shop for stories about the router: memory shards whose answers can
//! be lost, delayed or refused, and a world whose time stands still until
//! everybody waits.

#![allow(dead_code)]

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use engine_api::memory::MemoryEngine;
use engine_api::{
    Aged, Authority, Capabilities, Change, ControlStore, ControlValue, Engine, EngineError, Fence,
    FenceKind, Generation, Guard, JournalPage, Maintained, Maintenance, MoverTerm, Outcome, Page,
    PartChange, PartKey, Position, Query, ReadContext, Record, RecordId, RecordKey, Revision, Scan,
    ScanPage, Seal, SetOutcome, SharedRecord, Timestamp, World, WriteContext, Writer,
};
use futures::FutureExt as _;
use layout::{Collection, Field, Fields, ShardKey, Value};
use router::{
    CollectionMap, Limits, Map, MapKeeper, MapView, ProcessName, Router, RouterConfig, ShardName,
    Written,
};
use tokio::sync::Semaphore;

pub const START_MICROS: i64 = 1_700_000_000_000_000;

#[derive(Debug)]
pub struct StillWorld {
    began: tokio::time::Instant,
    drawn: AtomicU64,
}

impl StillWorld {
    pub fn new() -> StillWorld {
        StillWorld {
            began: tokio::time::Instant::now(),
            drawn: AtomicU64::new(0),
        }
    }
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    AppliedButAnswerLost,
    LostOnTheWay,
    Unavailable,
}

/// Lets a test stand between a question and its answer.
#[derive(Debug)]
pub struct Gate {
    arrived: Semaphore,
    open: Semaphore,
}

impl Gate {
    pub fn new() -> Arc<Gate> {
        Arc::new(Gate {
            arrived: Semaphore::new(0),
            open: Semaphore::new(0),
        })
    }

    /// Waits for the next one to arrive.
    pub async fn someone_arrived(&self) {
        self.arrived.acquire().await.unwrap().forget();
    }

    pub fn let_one_through(&self) {
        self.open.add_permits(1);
    }

    async fn pass(&self) {
        self.arrived.add_permits(1);
        self.open.acquire().await.unwrap().forget();
    }
}

#[derive(Debug)]
pub struct Shard {
    pub memory: MemoryEngine,
    capabilities: Capabilities,
    faults: Mutex<VecDeque<Fault>>,
    sent: Mutex<Vec<(Generation, Revision)>>,
    gets: AtomicU64,
    /// Passed after the answer was made and before it is given.
    answers: Mutex<Option<Arc<Gate>>>,
    at_once: Mutex<Option<AtOnce>>,
}

/// Makes a shard answer reads on the caller's thread; what happens between the
/// answer and its use is the test's.
struct AtOnce(Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for AtOnce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AtOnce")
    }
}

impl Shard {
    pub fn new() -> Arc<Shard> {
        Shard::fenced(FenceKind::InStore)
    }

    pub fn fenced(fence: FenceKind) -> Arc<Shard> {
        let memory = MemoryEngine::new();
        let capabilities = Capabilities {
            fence,
            ..memory.capabilities().clone()
        };
        Arc::new(Shard {
            memory,
            capabilities,
            faults: Mutex::default(),
            sent: Mutex::default(),
            gets: AtomicU64::new(0),
            answers: Mutex::default(),
            at_once: Mutex::default(),
        })
    }

    /// The next read is answered at once, and then this happens.
    pub fn answer_at_once_and_then(&self, happening: impl FnOnce() + Send + 'static) {
        *self.at_once.lock().unwrap() = Some(AtOnce(Box::new(happening)));
    }

    pub fn fail_next(&self, faults: &[Fault]) {
        self.faults.lock().unwrap().extend(faults);
    }

    /// Generation and revision of every router's write that reached the shard.
    pub fn sent(&self) -> Vec<(Generation, Revision)> {
        self.sent.lock().unwrap().clone()
    }

    pub fn gets(&self) -> u64 {
        self.gets.load(Ordering::Relaxed)
    }

    pub fn gate_answers(&self) -> Arc<Gate> {
        let gate = Gate::new();
        *self.answers.lock().unwrap() = Some(gate.clone());
        gate
    }

    pub fn ungate(&self) {
        *self.answers.lock().unwrap() = None;
    }

    async fn pass_gate(&self) {
        let gate = self.answers.lock().unwrap().clone();
        if let Some(gate) = gate {
            gate.pass().await;
        }
    }

    pub async fn raise_fence(&self, collection: Collection, scope: layout::Scope, at: Generation) {
        let fence = Fence {
            collection,
            scope,
            generation: at,
        };
        let now = Timestamp::from_unix_micros(START_MICROS);
        self.memory.raise_fence(fence, term(), now).await.unwrap();
    }

    pub async fn holds(&self, key: &RecordKey) -> bool {
        let context = ReadContext {
            now: Timestamp::from_unix_micros(START_MICROS),
            freshness: engine_api::Freshness::Latest,
        };
        self.memory.get(key, context).await.unwrap().is_some()
    }

    /// Puts an image as a mover does.
    pub async fn put_image(&self, image: Record) {
        let context = WriteContext {
            authority: Authority::Mover { term: term() },
            now: Timestamp::from_unix_micros(START_MICROS),
            revision: image.newest_revision(),
        };
        assert!(
            self.memory
                .apply(Change::PutImage { image }, context)
                .await
                .unwrap()
                .is_done()
        );
    }

    pub async fn journal_len(&self) -> usize {
        let start = Position(0u64.to_be_bytes().to_vec());
        self.memory
            .journal_read(&start, 10_000)
            .await
            .unwrap()
            .entries
            .len()
    }

    fn note(&self, context: &WriteContext) {
        if let Authority::Router { generation } = context.authority {
            self.sent
                .lock()
                .unwrap()
                .push((generation, context.revision));
        }
    }
}

pub fn term() -> MoverTerm {
    MoverTerm {
        move_name: "story".to_owned(),
        term: 1,
    }
}

#[async_trait]
impl Engine for Shard {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn apply(&self, change: Change, context: WriteContext) -> Result<Outcome, EngineError> {
        self.apply_together(vec![change], context).await
    }

    async fn apply_together(
        &self,
        changes: Vec<Change>,
        context: WriteContext,
    ) -> Result<Outcome, EngineError> {
        self.note(&context);
        let lost = || EngineError::OutcomeUnknown {
            reason: "the story wants it".to_owned(),
        };
        let fault = self.faults.lock().unwrap().pop_front();
        let answer = match fault {
            None => self.memory.apply_together(changes, context).await,
            Some(Fault::AppliedButAnswerLost) => {
                self.memory.apply_together(changes, context).await?;
                Err(lost())
            }
            Some(Fault::LostOnTheWay) => Err(lost()),
            Some(Fault::Unavailable) => Err(EngineError::Unavailable {
                reason: "the story wants it".to_owned(),
            }),
        };
        self.pass_gate().await;
        answer
    }

    async fn get(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Option<Record>, EngineError> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        let answer = self.memory.get(key, context).await;
        self.pass_gate().await;
        answer
    }

    async fn get_aged(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Aged<Option<Record>>, EngineError> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        let answer = self.memory.get_aged(key, context).await;
        self.pass_gate().await;
        answer
    }

    async fn query_aged(
        &self,
        query: &Query,
        context: ReadContext,
    ) -> Result<Aged<Page>, EngineError> {
        let answer = self.memory.query_aged(query, context).await;
        self.pass_gate().await;
        answer
    }

    fn get_at_once(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Option<Result<Option<SharedRecord>, EngineError>> {
        let AtOnce(happening) = self.at_once.lock().unwrap().take()?;
        let answer = without_waiting(self.memory.get(key, context));
        happening();
        Some(answer.map(|record| record.map(SharedRecord::from)))
    }

    async fn query(&self, query: &Query, context: ReadContext) -> Result<Page, EngineError> {
        let answer = self.memory.query(query, context).await;
        self.pass_gate().await;
        answer
    }

    async fn scan(&self, scan: &Scan) -> Result<ScanPage, EngineError> {
        self.memory.scan(scan).await
    }

    async fn journal_end(&self) -> Result<Position, EngineError> {
        self.memory.journal_end().await
    }

    async fn journal_read(
        &self,
        from: &Position,
        limit: usize,
    ) -> Result<JournalPage, EngineError> {
        self.memory.journal_read(from, limit).await
    }

    async fn raise_fence(
        &self,
        fence: Fence,
        term: MoverTerm,
        now: Timestamp,
    ) -> Result<Seal, EngineError> {
        self.memory.raise_fence(fence, term, now).await
    }

    async fn claim_term(&self, term: MoverTerm) -> Result<(), EngineError> {
        self.memory.claim_term(term).await
    }

    async fn maintain(&self, work: Maintenance) -> Result<Maintained, EngineError> {
        self.memory.maintain(work).await
    }
}

/// A control store that can lose the answers of its compare-and-sets.
#[derive(Debug, Default)]
pub struct Control {
    pub memory: MemoryEngine,
    faults: Mutex<VecDeque<Fault>>,
    reads: AtomicU64,
    /// Passed after a value was set and before that is told.
    answers: Mutex<Option<Arc<Gate>>>,
}

impl Control {
    pub fn fail_next(&self, faults: &[Fault]) {
        self.faults.lock().unwrap().extend(faults);
    }

    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    pub fn gate_answers(&self) -> Arc<Gate> {
        let gate = Gate::new();
        *self.answers.lock().unwrap() = Some(gate.clone());
        gate
    }

    pub fn ungate(&self) {
        *self.answers.lock().unwrap() = None;
    }
}

#[async_trait]
impl ControlStore for Control {
    async fn control_get(&self, name: &str) -> Result<Option<ControlValue>, EngineError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.memory.control_get(name).await
    }

    async fn compare_and_set(
        &self,
        name: &str,
        expected: Option<u64>,
        bytes: Vec<u8>,
    ) -> Result<SetOutcome, EngineError> {
        let lost = || EngineError::OutcomeUnknown {
            reason: "the story wants it".to_owned(),
        };
        let fault = self.faults.lock().unwrap().pop_front();
        let gate = self.answers.lock().unwrap().clone();
        match fault {
            None => {
                let answer = self.memory.compare_and_set(name, expected, bytes).await;
                if let Some(gate) = gate {
                    gate.pass().await;
                }
                answer
            }
            Some(Fault::AppliedButAnswerLost) => {
                self.memory.compare_and_set(name, expected, bytes).await?;
                Err(lost())
            }
            Some(Fault::LostOnTheWay) => Err(lost()),
            Some(Fault::Unavailable) => Err(EngineError::Unavailable {
                reason: "the story wants it".to_owned(),
            }),
        }
    }
}

pub struct Shop {
    pub shards: BTreeMap<String, Arc<Shard>>,
    pub control: Arc<Control>,
    pub world: Arc<StillWorld>,
    pub router: Arc<Router>,
}

impl Shop {
    /// The stored image of a record that must be there.
    pub async fn image(&self, key: &RecordKey) -> Record {
        let image = self.router.image(key).await.unwrap();
        image.unwrap().into_record()
    }

    pub async fn open(shards: &[&str], collections: &[(Collection, CollectionMap)]) -> Shop {
        Shop::open_with(shards, collections, Limits::default(), FenceKind::InStore).await
    }

    pub async fn open_with(
        shards: &[&str],
        collections: &[(Collection, CollectionMap)],
        limits: Limits,
        fence: FenceKind,
    ) -> Shop {
        let shards: BTreeMap<String, Arc<Shard>> = shards
            .iter()
            .map(|name| ((*name).to_owned(), Shard::fenced(fence)))
            .collect();
        let control = Arc::new(Control::default());
        let world = Arc::new(StillWorld::new());
        let map = Map::first(collections.iter().cloned().collect());
        MapKeeper::new(control.clone()).publish(&map).await.unwrap();
        let config = config(&shards, &control, &world, 1, limits);
        let router = Router::open(config).await.unwrap();
        Shop {
            shards,
            control,
            world,
            router,
        }
    }

    /// Another router over the same shards: a second process.
    pub async fn second_router(&self, map_view: MapView) -> Arc<Router> {
        Router::open(self.second_config(map_view)).await.unwrap()
    }

    pub fn second_config(&self, map_view: MapView) -> RouterConfig {
        let limits = Limits::default();
        let config = config(&self.shards, &self.control, &self.world, 2, limits);
        RouterConfig { map_view, ..config }
    }

    /// A second process with a lease; whether it keeps it is the story's.
    pub async fn leased_router(&self, process: &str) -> Arc<Router> {
        let process = ProcessName::new(process).unwrap();
        self.second_router(MapView::Lease { process }).await
    }

    pub fn shard(&self, name: &str) -> &Arc<Shard> {
        &self.shards[name]
    }
}

fn config(
    shards: &BTreeMap<String, Arc<Shard>>,
    control: &Arc<Control>,
    world: &Arc<StillWorld>,
    writer: u8,
    limits: Limits,
) -> RouterConfig {
    let engine = |(name, shard): (&String, &Arc<Shard>)| {
        (
            ShardName::new(name.clone()).unwrap(),
            shard.clone() as Arc<dyn Engine>,
        )
    };
    RouterConfig {
        shards: shards.iter().map(engine).collect(),
        control: control.clone(),
        world: world.clone(),
        writer: Writer::numbered(writer),
        limits,
        map_view: MapView::ThisProcess,
    }
}

pub fn named(name: &str) -> ShardName {
    ShardName::new(name).unwrap()
}

/// Carts routed by their id, all on one shard.
pub fn carts_on(shard: &str) -> (Collection, CollectionMap) {
    let map = CollectionMap::on_one_shard("embedded", vec![Field::CartId], named(shard));
    (Collection::Carts, map)
}

pub fn cart_key(id: &str) -> RecordKey {
    RecordKey::by_id(Collection::Carts, RecordId::new(id).unwrap())
}

pub fn cart_header(id: &str) -> Fields {
    Fields::new()
        .with(Field::CartId, Value::text(id))
        .with(Field::Status, Value::text("active"))
        .with(
            Field::CreatedAt,
            Value::Timestamp(Timestamp::from_unix_micros(START_MICROS)),
        )
        .with(Field::Ordinal, Value::Int(1))
}

pub fn create_cart(id: &str) -> Change {
    Change::CreateIfAbsent {
        key: cart_key(id),
        header: cart_header(id),
        parts: Vec::new(),
    }
}

/// Sets how many pieces of a product are in the cart.
pub fn set_line(cart: &str, product: &str, quantity: i64) -> Change {
    let fields = Fields::new().with(Field::Quantity, Value::Int(quantity));
    Change::Patch {
        key: cart_key(cart),
        guard: Guard::default(),
        parts: vec![(PartKey::line(product), PartChange::Set(fields))],
    }
}

pub fn quantity(record: &Record, product: &str) -> Option<i64> {
    record
        .part(&PartKey::line(product))?
        .get(Field::Quantity)?
        .as_int()
}

pub fn session_key(id: &str, user: &str) -> RecordKey {
    let id = RecordId::new(id).unwrap();
    RecordKey {
        collection: Collection::Sessions,
        id,
        shard_key: ShardKey::of_text(user),
    }
}

/// A shopper session that began `second` seconds into the story.
pub fn create_session(key: RecordKey, user: &str, second: i64) -> Change {
    let at = Timestamp::from_unix_micros(START_MICROS + second * 1_000_000);
    let header = Fields::new()
        .with(Field::SessionId, Value::text(key.id.as_str()))
        .with(Field::UserId, Value::text(user))
        .with(Field::Status, Value::text("open"))
        .with(Field::CreatedAt, Value::Timestamp(at));
    Change::CreateIfAbsent {
        key,
        header,
        parts: Vec::new(),
    }
}

pub async fn written(router: &Router, change: Change) -> Written {
    let written = router.write(change, Revision::ZERO).await.unwrap();
    assert!(written.outcome.is_done(), "{written:?}");
    written
}

/// Lets every other task run until all of them wait.
pub async fn everyone_waits() {
    tokio::time::sleep(Duration::from_micros(1)).await;
}

/// Memory answers at once, so that what asks it can be run to its end on the spot.
pub fn without_waiting<T>(work: impl Future<Output = T>) -> T {
    work.now_or_never().expect("memory does not wait")
}
