//! A shop over memory shards that can be made to stop after any write.

#![allow(dead_code)]

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use engine_api::memory::MemoryEngine;
use engine_api::{
    Aged, Authority, Capabilities, Change, Engine, EngineError, Fence, JournalPage, Maintained,
    Maintenance, MoverTerm, Outcome, Page, Patience, Position, Query, ReadContext, Record,
    RecordId, RecordKey, RowFault, Scan, ScanPage, Seal, Stray, StrayEnd, StrayPage, StraySearch,
    Timestamp, World, WriteContext, Writer,
};
use feed::{Feed, Pass};
use layout::Collection;
use model::{
    Address, CartId, IdempotencyKey, Money, PaymentMethod, ProductId, Quantity, StockCounts,
    UserId, ZoneName,
};
use router::{
    CollectionMap, Cut, Limits, Map, MapKeeper, MapView, Router, RouterConfig, ShardName,
};
use shop_service::{
    LineWish, OrderHistory, OrderWish, Policies, ProductWish, Settings, Shop, ShopConfig,
    archive_feed,
};

pub const ZONE: &str = "north";

pub const ARCHIVE_AFTER_MS: u64 = 1_000;

/// More than a request takes from its last read to its write.
const STEPS_TO_A_WRITE: usize = 8;

/// Time that passes only when everybody waits.
#[derive(Debug)]
struct StillWorld {
    began: tokio::time::Instant,
    drawn: AtomicU64,
}

impl World for StillWorld {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.elapsed().as_micros()).unwrap();
        Timestamp::from_unix_micros(1_700_000_000_000_000 + passed)
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

/// How a shop stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    BeforeTheWrite,
    /// The last write is applied, but nobody hears of it.
    AfterTheWrite,
}

/// Writes that the shop still gets through, over all its shards.
#[derive(Debug)]
struct Life {
    writes_left: AtomicI64,
    stop: Stop,
}

/// What happens between an answer and its arrival.
pub type Happening = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Default)]
struct Mortal {
    memory: MemoryEngine,
    life: Option<Arc<Life>>,
    /// After the next read, or the next write, once. All live shards have one in common.
    after_read: Arc<Mutex<Option<Happening>>>,
    after_write: Mutex<Option<Happening>>,
    /// After the next scans of live records, one each, on whatever shard.
    after_scans: Arc<Mutex<VecDeque<Option<Happening>>>>,
    /// Rows that do not follow, until they are mended.
    strays: Mutex<Vec<Stray>>,
}

impl fmt::Debug for Mortal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mortal").field(&self.memory).finish()
    }
}

impl Mortal {
    async fn live(
        &self,
        write: impl Future<Output = Result<Outcome, EngineError>>,
    ) -> Result<Outcome, EngineError> {
        let dead = || {
            Err(EngineError::Unavailable {
                reason: "the process is gone".to_owned(),
            })
        };
        let life = self
            .life
            .as_ref()
            .expect("a stage gives every shard a life");
        // A way to the server, on which requests side by side catch up with each other.
        for _ in 0..STEPS_TO_A_WRITE {
            tokio::task::yield_now().await;
        }
        let left = life.writes_left.fetch_sub(1, Ordering::SeqCst);
        match (left, life.stop) {
            (1.., _) => {
                let answer = write.await;
                happen(&self.after_write).await;
                answer
            }
            (0, Stop::AfterTheWrite) => {
                write.await?;
                dead()
            }
            _ => dead(),
        }
    }
}

#[async_trait]
impl Engine for Mortal {
    fn capabilities(&self) -> &Capabilities {
        self.memory.capabilities()
    }

    async fn apply(&self, change: Change, context: WriteContext) -> Result<Outcome, EngineError> {
        self.live(self.memory.apply(change, context)).await
    }

    async fn apply_together(
        &self,
        changes: Vec<Change>,
        context: WriteContext,
    ) -> Result<Outcome, EngineError> {
        self.live(self.memory.apply_together(changes, context))
            .await
    }

    async fn get(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Option<Record>, EngineError> {
        let answer = self.memory.get(key, context).await;
        happen(&self.after_read).await;
        answer
    }

    async fn query(&self, query: &Query, context: ReadContext) -> Result<Page, EngineError> {
        let answer = self.memory.query(query, context).await;
        happen(&self.after_read).await;
        answer
    }

    async fn get_aged(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Aged<Option<Record>>, EngineError> {
        let answer = self.memory.get_aged(key, context).await;
        happen(&self.after_read).await;
        answer
    }

    async fn query_aged(
        &self,
        query: &Query,
        context: ReadContext,
    ) -> Result<Aged<Page>, EngineError> {
        let answer = self.memory.query_aged(query, context).await;
        happen(&self.after_read).await;
        answer
    }

    async fn scan(&self, scan: &Scan) -> Result<ScanPage, EngineError> {
        let answer = self.memory.scan(scan).await;
        let happening = self.after_scans.lock().unwrap().pop_front().flatten();
        if let Some(happening) = happening {
            happening.await;
        }
        answer
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

    async fn find_strays(&self, search: &StraySearch) -> Result<StrayPage, EngineError> {
        let mut strays = self.strays.lock().unwrap().clone();
        strays.retain(|stray| stray.collection == search.collection);
        Ok(StrayPage {
            looked_at: strays.len(),
            strays,
            next: None,
        })
    }

    async fn mend_stray(&self, stray: &Stray, _: Timestamp) -> Result<StrayEnd, EngineError> {
        self.strays.lock().unwrap().retain(|other| other != stray);
        Ok(StrayEnd::Mended)
    }
}

async fn happen(happening: &Mutex<Option<Happening>>) {
    let happening = happening.lock().unwrap().take();
    if let Some(happening) = happening {
        happening.await;
    }
}

#[derive(Debug)]
pub struct Stage {
    pub shop: Arc<Shop>,
    /// Of another process, which archives.
    pub other: Arc<Shop>,
    world: Arc<StillWorld>,
    life: Arc<Life>,
    control: Arc<MemoryEngine>,
    shards: BTreeMap<ShardName, Arc<Mortal>>,
    history: Arc<Mortal>,
    kept_apart: Option<OrderHistory>,
}

impl Stage {
    pub async fn over(shards: usize) -> Stage {
        Stage::stopping(shards, Stop::BeforeTheWrite).await
    }

    pub async fn stopping(shards: usize, stop: Stop) -> Stage {
        let life = Arc::new(Life {
            writes_left: AtomicI64::new(i64::MAX),
            stop,
        });
        let names: Vec<ShardName> = (1..=shards)
            .map(|number| ShardName::new(format!("shard-{number}")).unwrap())
            .collect();
        let control = Arc::new(MemoryEngine::new());
        let keeper = MapKeeper::new(control.clone());
        keeper.publish(&first_map(&names)).await.unwrap();
        let mortal = |after_read: &Arc<Mutex<Option<Happening>>>| {
            Arc::new(Mortal {
                life: Some(life.clone()),
                after_read: after_read.clone(),
                ..Mortal::default()
            })
        };
        let live = Arc::default();
        let after_scans: Arc<Mutex<VecDeque<Option<Happening>>>> = Arc::default();
        let shards: BTreeMap<ShardName, Arc<Mortal>> = names
            .into_iter()
            .map(|name| {
                let mut shard = mortal(&live);
                let own = Arc::get_mut(&mut shard).expect("a new one has one holder");
                own.after_scans = after_scans.clone();
                (name, shard)
            })
            .collect();
        let history = mortal(&Arc::default());
        let as_engine = |(name, shard): (&ShardName, &Arc<Mortal>)| {
            (name.clone(), shard.clone() as Arc<dyn Engine>)
        };
        let engines: BTreeMap<ShardName, Arc<dyn Engine>> = shards.iter().map(as_engine).collect();
        let world = Arc::new(StillWorld {
            began: tokio::time::Instant::now(),
            drawn: AtomicU64::new(0),
        });
        let process = async |number| {
            let config = RouterConfig {
                shards: BTreeMap::clone(&engines),
                control: control.clone(),
                world: world.clone(),
                writer: Writer::numbered(number),
                limits: Limits::default(),
                map_view: MapView::ThisProcess,
            };
            Shop::new(ShopConfig {
                router: Router::open(config).await.unwrap(),
                world: world.clone(),
                settings: Settings {
                    archive_after_ms: ARCHIVE_AFTER_MS,
                    ..Settings::default()
                },
            })
        };
        Stage {
            shop: Arc::new(process(1).await),
            other: Arc::new(process(2).await),
            world,
            life,
            control,
            shards,
            history,
            kept_apart: None,
        }
    }

    /// The same stage, whose shop keeps delivered, cancelled and returned orders apart.
    #[must_use]
    pub fn with_history(self) -> Stage {
        self.with_history_as(|history| history)
    }

    #[must_use]
    pub fn with_history_as(mut self, of: impl FnOnce(OrderHistory) -> OrderHistory) -> Stage {
        let name = ShardName::new("history").unwrap();
        let statuses = ["delivered", "cancelled", "returned"].map(str::to_owned);
        let history = OrderHistory::new(name, self.history.clone(), &statuses).unwrap();
        let history = of(history);
        self.kept_apart = Some(history.clone());
        let with_history = |shop: Arc<Shop>| {
            let shop = Arc::into_inner(shop).unwrap();
            Arc::new(shop.with_history(history.clone()))
        };
        self.shop = with_history(self.shop);
        self.other = with_history(self.other);
        self
    }

    /// The same stage, whose shops let reads lag as the layouts say.
    #[must_use]
    pub fn with_policies(mut self, policies: &Policies) -> Stage {
        let with_policies = |shop: Arc<Shop>| {
            let shop = Arc::into_inner(shop).unwrap();
            Arc::new(shop.with_policies(policies.clone()))
        };
        self.shop = with_policies(self.shop);
        self.other = with_policies(self.other);
        self
    }

    /// From now on the live shards show readers who may lag what is there now.
    pub fn stand_still(&self, age: Duration) {
        for shard in self.shards.values() {
            shard.memory.stand_still(age);
        }
    }

    /// Feeds of a new process, one a shard.
    pub fn feeds(&self) -> Vec<Feed> {
        let feed = |(name, shard): (&ShardName, &Arc<Mortal>)| {
            let limits = feed::Limits::default();
            let feed = archive_feed(
                &self.other,
                self.kept_apart.as_ref().unwrap(),
                name,
                shard.clone(),
                self.control.clone(),
                limits,
            );
            feed.unwrap()
        };
        self.shards.iter().map(feed).collect()
    }

    /// After the next read, or write, of the history.
    pub fn after_reading_history(&self, happening: Happening) {
        *self.history.after_read.lock().unwrap() = Some(happening);
    }

    pub fn after_writing_history(&self, happening: Happening) {
        *self.history.after_write.lock().unwrap() = Some(happening);
    }

    /// After the next read of live records, on any of the shards.
    pub fn after_reading_live(&self, happening: Happening) {
        let shard = self.shards.values().next().unwrap();
        *shard.after_read.lock().unwrap() = Some(happening);
    }

    /// After the scan of live records that comes after so many others.
    pub fn after_scanning_live(&self, others: usize, happening: Happening) {
        let shard = self.shards.values().next().unwrap();
        let mut scans = shard.after_scans.lock().unwrap();
        scans.clear();
        scans.extend((0..others).map(|_| None));
        scans.push_back(Some(happening));
    }

    /// A row of this collection does not follow, on the shard, or in the history.
    pub fn stray(&self, shard: Option<&str>, collection: Collection, id: &str) {
        let shard = match shard {
            Some(name) => &self.shards[&ShardName::new(name).unwrap()],
            None => &self.history,
        };
        shard.strays.lock().unwrap().push(Stray {
            collection,
            id: RecordId::new(id).unwrap(),
            table: "by_user".to_owned(),
            fault: RowFault::Missing,
            patience: Patience::WithChanges,
            row: Vec::new(),
        });
    }

    /// Orders that live on the shards, and in the history.
    pub async fn orders_in_each(&self) -> (usize, usize) {
        let mut live = 0;
        for shard in self.shards.values() {
            live += living(&shard.memory).await;
        }
        (live, living(&self.history.memory).await)
    }

    /// Copies what the one placement has to where the other has it, as a move would.
    pub async fn carry(&self, collection: Collection, from: &CollectionMap, to: &CollectionMap) {
        for source in from.shards() {
            let scan = Scan {
                collection,
                scope: layout::Scope::All,
                after: None,
                until: None,
                limit: engine_api::PAGE_RECORDS_MAX,
            };
            for mut image in self.shards[source].memory.scan(&scan).await.unwrap().images {
                let header = image.header.content.live().unwrap();
                let id = image.key.id.clone();
                image.key = to.key_for(collection, id, header).unwrap();
                let target = to.owner(&image.key.shard_key).clone();
                let context = WriteContext {
                    authority: Authority::Mover {
                        term: MoverTerm {
                            move_name: "by-hand".to_owned(),
                            term: 1,
                        },
                    },
                    now: self.world.now(),
                    revision: image.newest_revision(),
                };
                let put = Change::PutImage { image };
                let put = self.shards[&target].memory.apply(put, context).await;
                assert!(put.unwrap().is_done());
            }
        }
    }

    pub fn stop_after(&self, writes: i64) {
        self.life.writes_left.store(writes, Ordering::SeqCst);
    }

    /// Whether it was stopped since `stop_after`; it lives on in any case.
    pub fn revive(&self) -> bool {
        self.life.writes_left.swap(i64::MAX, Ordering::SeqCst) < 0
    }

    pub async fn stock(&self, product: &str, price: &str, pieces: u64) {
        let wish = ProductWish {
            id: product.parse().unwrap(),
            category: "phones".parse().unwrap(),
            name: format!("Phone {product}").parse().unwrap(),
            price: Money::parse(price).unwrap(),
            image: None,
            description: None,
            attributes: Default::default(),
        };
        let zero = engine_api::Revision::ZERO;
        self.shop.put_product(wish, None, zero).await.unwrap();
        let id: ProductId = product.parse().unwrap();
        self.shop
            .receive_stock(&id, &zone(), pieces, zero)
            .await
            .unwrap();
    }

    pub async fn counts(&self, product: &str) -> StockCounts {
        let product = self.shop.product(&product.parse().unwrap(), None).await;
        let product = product.unwrap();
        let (_, stock) = product.stocks().next().unwrap();
        stock.counts()
    }

    /// A user whose orders are not on the shard of the product.
    pub fn user_away_from(&self, product: &str) -> UserId {
        let map = self.shop.router().map();
        let shard_of = |collection, id: &str, field, value: &str| {
            let header = layout::Fields::new().with(field, layout::Value::text(value));
            let id = engine_api::RecordId::new(id).unwrap();
            let key = map.key_for(collection, id, &header).unwrap();
            map.owner(&key).unwrap().clone()
        };
        let home = shard_of(
            Collection::Products,
            product,
            layout::Field::ProductId,
            product,
        );
        (0..)
            .map(|number| format!("user-{number}"))
            .find(|user| shard_of(Collection::Orders, "o", layout::Field::UserId, user) != home)
            .unwrap()
            .parse()
            .unwrap()
    }
}

/// Waits until what was changed is old enough, and archives it.
pub async fn archive(feeds: &mut [Feed]) {
    tokio::time::sleep(Duration::from_millis(ARCHIVE_AFTER_MS)).await;
    for feed in feeds {
        while feed.pass().await.unwrap() != Pass::CaughtUp || feed.counts().lag_entries.value() > 0
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn living(memory: &MemoryEngine) -> usize {
    let scan = Scan {
        collection: Collection::Orders,
        scope: layout::Scope::All,
        after: None,
        until: None,
        limit: engine_api::PAGE_RECORDS_MAX,
    };
    let images = memory.scan(&scan).await.unwrap().images;
    let living = images
        .iter()
        .filter(|image| image.header.content.live().is_some());
    living.count()
}

pub fn zone() -> ZoneName {
    ZONE.parse().unwrap()
}

pub fn order(user: &UserId, key: &str, lines: &[(&str, u32, &str)]) -> OrderWish {
    let lines = lines.iter().map(|(product, quantity, price)| LineWish {
        product: product.parse().unwrap(),
        category: None,
        quantity: Quantity::new(*quantity).unwrap(),
        price: Money::parse(price).unwrap(),
    });
    OrderWish {
        user: user.clone(),
        key: IdempotencyKey::parse(key).unwrap(),
        lines: lines.collect(),
        geo_zone: zone(),
        address: Address::parse("1 Main Street").unwrap(),
        payment_method: PaymentMethod::parse("card").unwrap(),
        cart: None::<CartId>,
    }
}

fn first_map(names: &[ShardName]) -> Map {
    let layout = layout::embedded();
    let collections = Collection::ALL.into_iter().map(|collection| {
        let shard_key = layout.collection(collection).shard_key.clone();
        let map = CollectionMap::cut_by(&layout.name, shard_key, Cut::even_slots(names));
        (collection, map)
    });
    Map::first(collections.collect())
}

impl Stage {
    /// Gives orders another layout, on these shards, as a cutover does; every process hears of it at once.
    pub async fn place_orders(&self, layout: &str, shards: &[&str]) {
        let keeper = MapKeeper::new(self.control.clone());
        let map = keeper.load().await.unwrap().unwrap();
        let shards: Vec<ShardName> = shards
            .iter()
            .map(|name| ShardName::new(*name).unwrap())
            .collect();
        let shard_key = map.collections[&Collection::Orders].shard_key.clone();
        let placement = CollectionMap::cut_by(layout, shard_key, Cut::even_slots(&shards));
        let edit = (Collection::Orders, router::Edit::Place { placement });
        keeper.publish(&map.edited(&[edit]).unwrap()).await.unwrap();
        for shop in [&self.shop, &self.other] {
            shop.router().refresh().await.unwrap();
        }
    }

    /// The next map with nothing changed.
    pub async fn publish_notice(&self) {
        let keeper = MapKeeper::new(self.control.clone());
        let map = keeper.load().await.unwrap().unwrap();
        keeper.publish(&map.edited(&[]).unwrap()).await.unwrap();
        for shop in [&self.shop, &self.other] {
            shop.router().refresh().await.unwrap();
        }
    }

    /// As a move leaves it: the shard has what the history has.
    pub async fn copy_history_to(&self, shard: &str) {
        let scan = Scan {
            collection: Collection::Orders,
            scope: layout::Scope::All,
            after: None,
            until: None,
            limit: engine_api::PAGE_RECORDS_MAX,
        };
        let shard = &self.shards[&ShardName::new(shard).unwrap()];
        for image in self.history.memory.scan(&scan).await.unwrap().images {
            let revision = image.newest_revision();
            let context = WriteContext {
                authority: engine_api::Authority::Mover {
                    term: MoverTerm {
                        move_name: "copy".to_owned(),
                        term: 1,
                    },
                },
                now: revision.time(),
                revision,
            };
            let put = shard
                .memory
                .apply(Change::PutImage { image }, context)
                .await;
            assert!(put.unwrap().is_done());
        }
    }

    /// Feeds of the shards that the layout with the history has orders on.
    pub fn feeds_of(&self, shards: &[&str]) -> Vec<Feed> {
        let names: Vec<ShardName> = self.shards.keys().cloned().collect();
        let feeds = names.into_iter().zip(self.feeds());
        let wanted = feeds.filter(|(name, _)| shards.contains(&name.as_str()));
        wanted.map(|(_, feed)| feed).collect()
    }
}
