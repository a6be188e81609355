//! A small shop whose products stand on memory shards, and a follower over it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use engine_api::memory::MemoryEngine;
use engine_api::{
    Authority, Capabilities, Change, Engine, EngineError, Fence, JournalPage, Maintained,
    Maintenance, MoverTerm, Outcome, Page, PartsChange, Position, Query, ReadContext, Record,
    RecordId, RecordKey, Revision, Scan, ScanPage, Seal, Timestamp, World, WriteContext, Writer,
};
use layout::{Collection, Field, Fields, Value};
use router::{
    CollectionMap, Cut, Limits, Map, MapKeeper, MapView, Router, RouterConfig, ShardName,
};
use rust_decimal::Decimal;
use search::{Follower, ProductIndex};

pub const START_MICROS: i64 = 1_700_000_000_000_000;

/// Runs with tokio's paused clock.
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

/// A memory engine that shows late, scans badly, or is changed in the middle of a scan.
#[derive(Default)]
pub struct Shard {
    pub memory: MemoryEngine,
    /// What reads show instead of what is stored.
    pub shown: Mutex<BTreeMap<RecordKey, Option<Record>>>,
    pub scans_that_fail: AtomicU64,
    pub scans: AtomicU64,
    pub gets: AtomicU64,
    during_scan: Mutex<Option<Interlude>>,
}

type Interlude = Pin<Box<dyn Future<Output = ()> + Send>>;

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shard")
    }
}

impl Shard {
    /// Happens after the next page of a scan was read and before it is answered.
    pub fn during_next_scan(&self, interlude: impl Future<Output = ()> + Send + 'static) {
        *self.during_scan.lock().unwrap() = Some(Box::pin(interlude));
    }

    pub async fn put_image(&self, image: Record) {
        let context = WriteContext {
            authority: Authority::Mover { term: term() },
            now: Timestamp::from_unix_micros(START_MICROS),
            revision: image.newest_revision(),
        };
        let outcome = self.memory.apply(Change::PutImage { image }, context).await;
        assert!(outcome.unwrap().is_done());
    }

    /// Forgets the whole journal.
    pub async fn trim_journal(&self) {
        let work = Maintenance {
            now: Timestamp::from_unix_micros(START_MICROS),
            marks_before: Timestamp::from_unix_micros(0),
            journal_before: Timestamp::from_unix_micros(i64::MAX),
            items_max: usize::MAX,
        };
        self.memory.maintain(work).await.unwrap();
    }
}

fn term() -> MoverTerm {
    MoverTerm {
        move_name: "story".to_owned(),
        term: 1,
    }
}

#[async_trait]
impl Engine for Shard {
    fn capabilities(&self) -> &Capabilities {
        self.memory.capabilities()
    }

    async fn apply(&self, change: Change, context: WriteContext) -> Result<Outcome, EngineError> {
        self.memory.apply(change, context).await
    }

    async fn apply_together(
        &self,
        changes: Vec<Change>,
        context: WriteContext,
    ) -> Result<Outcome, EngineError> {
        self.memory.apply_together(changes, context).await
    }

    async fn get(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Option<Record>, EngineError> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        let shown = self.shown.lock().unwrap().get(key).cloned();
        match shown {
            Some(shown) => Ok(shown),
            None => self.memory.get(key, context).await,
        }
    }

    async fn query(&self, query: &Query, context: ReadContext) -> Result<Page, EngineError> {
        self.memory.query(query, context).await
    }

    async fn scan(&self, scan: &Scan) -> Result<ScanPage, EngineError> {
        self.scans.fetch_add(1, Ordering::Relaxed);
        let fails = |left: u64| left.checked_sub(1);
        let order = Ordering::Relaxed;
        if self
            .scans_that_fail
            .fetch_update(order, order, fails)
            .is_ok()
        {
            return Err(EngineError::Unavailable {
                reason: "the story wants it".to_owned(),
            });
        }
        let page = self.memory.scan(scan).await;
        let interlude = self.during_scan.lock().unwrap().take();
        if let Some(interlude) = interlude {
            interlude.await;
        }
        page
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

#[derive(Clone)]
pub struct Shop {
    pub shards: BTreeMap<ShardName, Arc<Shard>>,
    pub world: Arc<StillWorld>,
    pub router: Arc<Router>,
}

impl Shop {
    /// The stored image of a record that must be there.
    pub async fn image(&self, key: &RecordKey) -> Record {
        let image = self.router.image(key).await.unwrap();
        image.unwrap().into_record()
    }

    /// Products by id, all slots on shard `a`; `b` waits.
    pub async fn open() -> Shop {
        let shards: BTreeMap<ShardName, Arc<Shard>> = ["a", "b"]
            .into_iter()
            .map(|name| (named(name), Arc::new(Shard::default())))
            .collect();
        let control = Arc::new(MemoryEngine::new());
        let world = Arc::new(StillWorld {
            began: tokio::time::Instant::now(),
            drawn: AtomicU64::new(0),
        });
        let on_a =
            |field| CollectionMap::cut_by("embedded", vec![field], Cut::even_slots(&[named("a")]));
        let map = Map::first(BTreeMap::from([
            (Collection::Products, on_a(Field::ProductId)),
            (Collection::Carts, on_a(Field::CartId)),
        ]));
        MapKeeper::new(control.clone()).publish(&map).await.unwrap();
        let router = Router::open(RouterConfig {
            shards: engines(&shards),
            control,
            world: world.clone(),
            writer: Writer::numbered(1),
            limits: Limits::default(),
            map_view: MapView::ThisProcess,
        });
        Shop {
            router: router.await.unwrap(),
            shards,
            world,
        }
    }

    pub fn shard(&self, name: &str) -> &Arc<Shard> {
        &self.shards[&named(name)]
    }

    pub fn follower(&self, index: &Arc<ProductIndex>) -> Follower {
        Follower::new(index.clone(), self.router.clone(), self.world.clone())
    }

    pub async fn create(&self, id: &str, name: &str, category: &str) {
        self.write(Change::CreateIfAbsent {
            key: key(id),
            header: header(id, name, category),
            parts: Vec::new(),
        })
        .await;
    }

    pub async fn rename(&self, id: &str, name: &str) {
        let stored = self.router.get(&key(id)).await.unwrap().unwrap();
        let fields = stored.header.content.live().unwrap().clone();
        self.write(Change::ChangeIf {
            key: key(id),
            expected: stored.header.revision,
            header: fields.with(Field::Name, Value::text(name)),
            parts: PartsChange::Keep,
        })
        .await;
    }

    pub async fn remove(&self, id: &str) {
        let stored = self.router.get(&key(id)).await.unwrap().unwrap();
        self.write(Change::Remove {
            key: key(id),
            expected: stored.header.revision,
        })
        .await;
    }

    pub async fn write(&self, change: Change) -> Revision {
        let written = self.router.write(change, Revision::ZERO).await.unwrap();
        match written.outcome {
            Outcome::Done { revision } => revision,
            outcome => panic!("{outcome:?}"),
        }
    }
}

fn engines(shards: &BTreeMap<ShardName, Arc<Shard>>) -> BTreeMap<ShardName, Arc<dyn Engine>> {
    shards
        .iter()
        .map(|(name, shard)| (name.clone(), shard.clone() as Arc<dyn Engine>))
        .collect()
}

pub fn named(name: &str) -> ShardName {
    ShardName::new(name).unwrap()
}

pub fn key(id: &str) -> RecordKey {
    RecordKey::by_id(Collection::Products, RecordId::new(id).unwrap())
}

pub fn header(id: &str, name: &str, category: &str) -> Fields {
    Fields::new()
        .with(Field::ProductId, Value::text(id))
        .with(Field::Category, Value::text(category))
        .with(Field::Name, Value::text(name))
        .with(Field::Price, Value::Decimal(Decimal::ONE))
}

pub fn found(index: &ProductIndex, text: &str) -> Vec<String> {
    let ids = index.search(text, 100).unwrap();
    ids.iter().map(|id| id.as_str().to_owned()).collect()
}
