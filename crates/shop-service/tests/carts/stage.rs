//! A shop on two memory shards, its world, and what can be done to them.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine_api::memory::MemoryEngine;
use engine_api::{
    Capabilities, Change, Engine, EngineError, Fence, JournalPage, Maintained, Maintenance,
    MoverTerm, Outcome, Page, Position, Query, ReadContext, Record, RecordKey, Revision, Scan,
    ScanPage, Seal, Timestamp, World, WriteContext, Writer,
};
use layout::path::STATUS_ACTIVE;
use layout::{Collection, Field, Scope, Value};
use model::{
    Attributes, Cart, CartOwner, CartStatus, Lifetime, Money, ProductId, Quantity,
    ShopperSessionId, UserId,
};
use router::{
    CollectionMap, Cut, Limits, Map, MapKeeper, MapView, Router, RouterConfig, ShardName,
};
use shop_service::{ItemWish, ProductWish, SessionWish, Settings, Shop, ShopConfig, Stored};
use tokio::sync::Semaphore;

pub const START_MICROS: i64 = 1_700_000_000_000_000;
pub const DAY_S: i64 = 86_400;

/// Time stands still until a test moves it, or somebody sleeps.
#[derive(Debug)]
pub struct StoryWorld {
    micros: AtomicI64,
    drawn: AtomicU64,
}

impl StoryWorld {
    pub fn pass_seconds(&self, seconds: i64) {
        self.micros.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    }
}

impl World for StoryWorld {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_micros(START_MICROS + self.micros.load(Ordering::SeqCst))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::SeqCst).try_into().unwrap())
    }

    fn random(&self) -> u64 {
        self.drawn.fetch_add(7919, Ordering::SeqCst)
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let micros = i64::try_from(duration.as_micros()).unwrap();
        self.micros.fetch_add(micros, Ordering::SeqCst);
        Box::pin(tokio::task::yield_now())
    }
}

/// How the shards stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The next write does not arrive.
    Before,
    /// The last write is applied, its answer is lost.
    AnswerLost,
}

/// What both shards share: faults, delays, and the watch over active carts.
#[derive(Debug)]
pub struct Fate {
    memories: Vec<Arc<MemoryEngine>>,
    world: Arc<StoryWorld>,
    writes: AtomicU64,
    stop: Mutex<Option<(u64, Stop)>>,
    /// Where delays come from; 0: none.
    seed: AtomicU64,
    /// Passed by the next query after its answer was made.
    query_gate: Mutex<Option<Arc<Gate>>>,
}

#[derive(Debug)]
pub struct Gate {
    arrived: Semaphore,
    open: Semaphore,
}

impl Gate {
    pub async fn someone_arrived(&self) {
        self.arrived.acquire().await.unwrap().forget();
    }

    pub fn open(&self) {
        self.open.add_permits(1);
    }
}

impl Fate {
    /// Lets so many more writes be applied, and none after.
    pub fn stop_after(&self, writes: u64, stop: Stop) {
        let last = self.writes.load(Ordering::SeqCst) + writes;
        *self.stop.lock().unwrap() = Some((last, stop));
    }

    pub fn go_on(&self) {
        *self.stop.lock().unwrap() = None;
    }

    pub fn gate_next_query(&self) -> Arc<Gate> {
        let gate = Arc::new(Gate {
            arrived: Semaphore::new(0),
            open: Semaphore::new(0),
        });
        *self.query_gate.lock().unwrap() = Some(gate.clone());
        gate
    }

    /// Lets others go first, as often as the seed says.
    async fn delay(&self) {
        let seed = self.seed.load(Ordering::SeqCst);
        if seed == 0 {
            return;
        }
        let next = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.seed.store(next.max(1), Ordering::SeqCst);
        for _ in 0..next >> 61 {
            tokio::task::yield_now().await;
        }
    }

    async fn apply(
        &self,
        memory: &MemoryEngine,
        changes: Vec<Change>,
        context: WriteContext,
    ) -> Result<Outcome, EngineError> {
        self.delay().await;
        let stop = *self.stop.lock().unwrap();
        let done = self.writes.load(Ordering::SeqCst);
        if let Some((last, _)) = stop
            && done >= last
        {
            return Err(EngineError::Unavailable {
                reason: "the story wants it".to_owned(),
            });
        }
        let outcome = memory.apply_together(changes, context).await?;
        if outcome.is_done() {
            self.writes.fetch_add(1, Ordering::SeqCst);
            self.watch().await;
        }
        if let Some((last, Stop::AnswerLost)) = stop
            && done + 1 == last
            && outcome.is_done()
        {
            return Err(EngineError::OutcomeUnknown {
                reason: "the story wants it".to_owned(),
            });
        }
        self.delay().await;
        Ok(outcome)
    }

    /// C1, after every write.
    async fn watch(&self) {
        let mut owners = BTreeSet::new();
        for record in self.live_carts().await {
            let header = record.header.content.live().unwrap();
            if header.text(Field::Status) != Some(STATUS_ACTIVE) {
                continue;
            }
            let owner = [Field::UserId, Field::SessionId].map(|field| header.text(field));
            let owner = owner.map(|text| text.map(str::to_owned));
            assert!(owners.insert(owner.clone()), "two active carts: {owner:?}");
        }
    }

    pub async fn live_carts(&self) -> Vec<Record> {
        let mut carts = Vec::new();
        for memory in &self.memories {
            let scan = Scan {
                collection: Collection::Carts,
                scope: Scope::All,
                after: None,
                until: None,
                limit: 1000,
            };
            let page = memory.scan(&scan).await.unwrap();
            assert!(page.next.is_none());
            carts.extend(page.images);
        }
        carts.retain(|record| record.live_at(self.world.now()).is_some());
        carts
    }
}

#[derive(Debug)]
struct Shard {
    memory: Arc<MemoryEngine>,
    fate: Arc<Fate>,
}

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, EngineError>> + Send + 'a>>;

/// Written out, as `async_trait` makes it of the contract.
impl Engine for Shard {
    fn capabilities(&self) -> &Capabilities {
        self.memory.capabilities()
    }

    fn apply<'s, 'a>(&'s self, change: Change, context: WriteContext) -> Answer<'a, Outcome>
    where
        's: 'a,
        Self: 'a,
    {
        self.apply_together(vec![change], context)
    }

    fn apply_together<'s, 'a>(
        &'s self,
        changes: Vec<Change>,
        context: WriteContext,
    ) -> Answer<'a, Outcome>
    where
        's: 'a,
        Self: 'a,
    {
        Box::pin(self.fate.apply(&self.memory, changes, context))
    }

    fn get<'s, 'k, 'a>(
        &'s self,
        key: &'k RecordKey,
        context: ReadContext,
    ) -> Answer<'a, Option<Record>>
    where
        's: 'a,
        'k: 'a,
        Self: 'a,
    {
        Box::pin(async move {
            self.fate.delay().await;
            let answer = self.memory.get(key, context).await;
            self.fate.delay().await;
            answer
        })
    }

    fn query<'s, 'q, 'a>(&'s self, query: &'q Query, context: ReadContext) -> Answer<'a, Page>
    where
        's: 'a,
        'q: 'a,
        Self: 'a,
    {
        Box::pin(async move {
            self.fate.delay().await;
            let answer = self.memory.query(query, context).await;
            let gate = self.fate.query_gate.lock().unwrap().take();
            if let Some(gate) = gate {
                gate.arrived.add_permits(1);
                gate.open.acquire().await.unwrap().forget();
            }
            self.fate.delay().await;
            answer
        })
    }

    fn scan<'s, 'q, 'a>(&'s self, scan: &'q Scan) -> Answer<'a, ScanPage>
    where
        's: 'a,
        'q: 'a,
        Self: 'a,
    {
        self.memory.scan(scan)
    }

    fn journal_end<'s, 'a>(&'s self) -> Answer<'a, Position>
    where
        's: 'a,
        Self: 'a,
    {
        self.memory.journal_end()
    }

    fn journal_read<'s, 'p, 'a>(
        &'s self,
        from: &'p Position,
        limit: usize,
    ) -> Answer<'a, JournalPage>
    where
        's: 'a,
        'p: 'a,
        Self: 'a,
    {
        self.memory.journal_read(from, limit)
    }

    fn raise_fence<'s, 'a>(
        &'s self,
        fence: Fence,
        term: MoverTerm,
        now: Timestamp,
    ) -> Answer<'a, Seal>
    where
        's: 'a,
        Self: 'a,
    {
        self.memory.raise_fence(fence, term, now)
    }

    fn claim_term<'s, 'a>(&'s self, term: MoverTerm) -> Answer<'a, ()>
    where
        's: 'a,
        Self: 'a,
    {
        self.memory.claim_term(term)
    }

    fn maintain<'s, 'a>(&'s self, work: Maintenance) -> Answer<'a, Maintained>
    where
        's: 'a,
        Self: 'a,
    {
        self.memory.maintain(work)
    }
}

pub struct Stage {
    pub shop: Shop,
    /// Another process over the same shards, with hints of its own.
    pub other: Shop,
    pub world: Arc<StoryWorld>,
    pub fate: Arc<Fate>,
    memories: Vec<Arc<MemoryEngine>>,
}

impl Stage {
    /// With tea, coffee and sugar, and no delays.
    pub async fn open() -> Stage {
        Stage::open_with(Settings::default()).await
    }

    pub async fn open_with(settings: Settings) -> Stage {
        let world = Arc::new(StoryWorld {
            micros: AtomicI64::new(0),
            drawn: AtomicU64::new(1),
        });
        let memories = vec![Arc::new(MemoryEngine::new()), Arc::new(MemoryEngine::new())];
        let fate = Arc::new(Fate {
            memories: memories.clone(),
            world: world.clone(),
            writes: AtomicU64::new(0),
            stop: Mutex::default(),
            seed: AtomicU64::new(0),
            query_gate: Mutex::default(),
        });
        let control = Arc::new(MemoryEngine::new());
        MapKeeper::new(control.clone())
            .publish(&map())
            .await
            .unwrap();
        let mut shops = Vec::new();
        for writer in 1..=2 {
            let shard = |memory: &Arc<MemoryEngine>| -> Arc<dyn Engine> {
                Arc::new(Shard {
                    memory: memory.clone(),
                    fate: fate.clone(),
                })
            };
            let router = Router::open(RouterConfig {
                shards: names()
                    .into_iter()
                    .zip(memories.iter().map(shard))
                    .collect(),
                control: control.clone(),
                world: world.clone(),
                writer: Writer::numbered(writer),
                limits: Limits::default(),
                map_view: MapView::ThisProcess,
            });
            shops.push(Shop::new(ShopConfig {
                router: router.await.unwrap(),
                world: world.clone(),
                settings: settings.clone(),
            }));
        }
        let (other, shop) = (shops.pop().unwrap(), shops.pop().unwrap());
        let stage = Stage {
            shop,
            other,
            world,
            fate,
            memories,
        };
        for name in ["tea", "coffee", "sugar"] {
            stage.add_product(name, "2.50").await;
        }
        stage
    }

    /// Requests overtake each other as the seed says.
    pub fn shuffle(&self, seed: u64) {
        self.fate.seed.store(seed, Ordering::SeqCst);
    }

    pub async fn add_product(&self, name: &str, price: &str) {
        let wish = ProductWish {
            id: product(name),
            category: "drinks".parse().unwrap(),
            name: name.parse().unwrap(),
            price: Money::parse(price).unwrap(),
            image: None,
            description: None,
            attributes: Attributes::default(),
        };
        let put = self.shop.put_product(wish, None, Revision::ZERO).await;
        put.unwrap();
    }

    pub async fn open_guest_session(&self) -> ShopperSessionId {
        let session = self.shop.open_session(SessionWish::default()).await;
        session.unwrap().value.id().clone()
    }

    /// Opens the owner's cart and puts the items.
    pub async fn fill(&self, owner: &CartOwner, items: &[(&str, u32)]) -> Cart {
        let (_, mut cart) = self.shop.open_cart(owner, Revision::ZERO).await.unwrap();
        for (name, pieces) in items {
            let id = cart.value.id().clone();
            let put = self.shop.put_item(&id, item(name, *pieces), cart.revision);
            cart = put.await.unwrap();
        }
        cart.value.clone()
    }

    /// What expired is gone for good.
    pub async fn collect(&self) {
        for memory in &self.memories {
            let now = self.world.now();
            let work = Maintenance {
                now,
                marks_before: now,
                journal_before: now,
                items_max: 10_000,
            };
            memory.maintain(work).await.unwrap();
        }
    }

    /// How many active carts the owner has, asked of the shards themselves.
    pub async fn active_count(&self, owner: &CartOwner) -> usize {
        let (field, id) = match owner {
            CartOwner::User(user) => (Field::UserId, user.as_str()),
            CartOwner::Guest(session) => (Field::SessionId, session.as_str()),
        };
        let is_active = |record: &Record| {
            let header = record.header.content.live().unwrap();
            header.text(Field::Status) == Some(STATUS_ACTIVE)
                && header.get(field) == Some(&Value::text(id))
        };
        let carts = self.fate.live_carts().await;
        carts.iter().filter(|record| is_active(record)).count()
    }

    pub async fn pieces(&self, owner: &CartOwner) -> BTreeMap<String, u64> {
        match self.other.active_cart(owner).await {
            Ok(cart) => pieces(&cart.value),
            Err(shop_service::ShopError::NoActiveCart) => BTreeMap::new(),
            Err(error) => panic!("{error}"),
        }
    }
}

pub fn pieces(cart: &Cart) -> BTreeMap<String, u64> {
    cart.lines()
        .map(|shown| (shown.line.product.to_string(), shown.pieces))
        .collect()
}

/// Pieces by product, as a test expects them.
pub fn expected(items: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let item = |(name, pieces): &(&str, u64)| ((*name).to_owned(), *pieces);
    items.iter().map(item).collect()
}

pub fn item(name: &str, pieces: u32) -> ItemWish {
    ItemWish {
        product: product(name),
        category: None,
        quantity: Quantity::new(pieces).unwrap(),
    }
}

pub fn product(name: &str) -> ProductId {
    ProductId::parse(name).unwrap()
}

pub fn user() -> UserId {
    UserId::parse("USER-1").unwrap()
}

pub fn user_owner() -> CartOwner {
    CartOwner::User(user())
}

pub fn guest_owner(session: &ShopperSessionId) -> CartOwner {
    CartOwner::Guest(session.clone())
}

pub fn status(cart: &Stored<Cart>) -> CartStatus {
    cart.value.header().status
}

pub fn lifetime(seconds: i64) -> Lifetime {
    Lifetime::from_seconds(seconds.try_into().unwrap()).unwrap()
}

fn names() -> Vec<ShardName> {
    ["north", "south"]
        .map(|name| ShardName::new(name).unwrap())
        .into()
}

/// Carts are cut by their own id, so that the way from the owner goes to every shard.
fn map() -> Map {
    let collection = |(collection, field): (Collection, Field)| {
        let cut = Cut::even_slots(&names());
        (
            collection,
            CollectionMap::cut_by("embedded", vec![field], cut),
        )
    };
    let collections = [
        (Collection::Carts, Field::CartId),
        (Collection::Orders, Field::UserId),
        (Collection::Products, Field::ProductId),
        (Collection::Sessions, Field::SessionId),
    ];
    Map::first(collections.map(collection).into())
}
