//! A shop over memory shards that can be made to stop after any write.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use engine_api::memory::MemoryEngine;
use engine_api::{
    Capabilities, Change, Engine, EngineError, Fence, JournalPage, Maintained, Maintenance,
    MoverTerm, Outcome, Page, Position, Query, ReadContext, Record, RecordKey, Scan, ScanPage,
    Seal, Timestamp, World, WriteContext, Writer,
};
use layout::Collection;
use model::{
    Address, CartId, IdempotencyKey, Money, PaymentMethod, ProductId, Quantity, StockCounts,
    UserId, ZoneName,
};
use router::{
    CollectionMap, Cut, Limits, Map, MapKeeper, MapView, Router, RouterConfig, ShardName,
};
use shop_service::{LineWish, OrderWish, ProductWish, Settings, Shop, ShopConfig};

pub const ZONE: &str = "north";

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

#[derive(Debug)]
struct Mortal {
    memory: MemoryEngine,
    life: Arc<Life>,
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
        let left = self.life.writes_left.fetch_sub(1, Ordering::SeqCst);
        match (left, self.life.stop) {
            (1.., _) => write.await,
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
        self.memory.get(key, context).await
    }

    async fn query(&self, query: &Query, context: ReadContext) -> Result<Page, EngineError> {
        self.memory.query(query, context).await
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

#[derive(Debug)]
pub struct Stage {
    pub shop: Arc<Shop>,
    life: Arc<Life>,
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
        let engines: BTreeMap<ShardName, Arc<dyn Engine>> = names
            .into_iter()
            .map(|name| {
                let engine: Arc<dyn Engine> = Arc::new(Mortal {
                    memory: MemoryEngine::new(),
                    life: life.clone(),
                });
                (name, engine)
            })
            .collect();
        let world = Arc::new(StillWorld {
            began: tokio::time::Instant::now(),
            drawn: AtomicU64::new(0),
        });
        let config = RouterConfig {
            shards: engines,
            control,
            world: world.clone(),
            writer: Writer::numbered(1),
            limits: Limits::default(),
            map_view: MapView::ThisProcess,
        };
        let shop = Shop::new(ShopConfig {
            router: Router::open(config).await.unwrap(),
            world,
            settings: Settings::default(),
        });
        Stage {
            shop: Arc::new(shop),
            life,
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
