//! A process that stands still while keys are moved without it, on real servers:
//! what others were told meanwhile stays.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use engine_api::{
    Authority, Capabilities, Change, ControlStore, Engine, EngineError, Fence, FenceKind,
    Freshness, Generation, Guard, JournalPage, Maintained, Maintenance, MoverTerm, Outcome, Page,
    PartChange, PartKey, Position, Query, ReadContext, RealWorld, Record, RecordId, RecordKey,
    Remedy, Revision, Scan, ScanPage, Seal, Timestamp, World, WriteContext, Writer,
};
use engine_cassandra::{CassandraConfig, CassandraEngine, Keyspace};
use engine_mongo::{MongoConfig, MongoEngine};
use layout::{Collection, Field, Fields, Layout, Scope, Value};
use router::{
    CollectionMap, Edit, LeaseJudge, LeaseState, Limits, Map, MapKeeper, MapView, ProcessName,
    Router, RouterConfig, ShardName,
};
use testbed::{CassandraCluster, Members, MongoSet, Nodes, required_or_skip};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

const CARTS: Collection = Collection::Carts;
const CART: &str = "cart-1";
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a process stands still with its write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// It has decided to send, and has not sent.
    Sending,
    /// The answer is there, and nobody has looked at it.
    Answered,
}

/// An engine as a process has it that stands still: its next write stays where it is.
#[derive(Debug)]
struct Stopping {
    engine: Arc<dyn Engine>,
    next: Mutex<Option<At>>,
    stopped: Semaphore,
    goes_on: Semaphore,
}

impl Stopping {
    fn over(engine: Arc<dyn Engine>) -> Arc<Stopping> {
        Arc::new(Stopping {
            engine,
            next: Mutex::default(),
            stopped: Semaphore::new(0),
            goes_on: Semaphore::new(0),
        })
    }

    async fn stop_if(&self, wanted: Option<At>, here: At) {
        if wanted == Some(here) {
            self.stopped.add_permits(1);
            self.goes_on.acquire().await.unwrap().forget();
        }
    }
}

#[async_trait]
impl Engine for Stopping {
    fn capabilities(&self) -> &Capabilities {
        self.engine.capabilities()
    }

    async fn apply(&self, change: Change, context: WriteContext) -> Result<Outcome, EngineError> {
        let wanted = self.next.lock().unwrap().take();
        self.stop_if(wanted, At::Sending).await;
        let answer = self.engine.apply(change, context).await;
        self.stop_if(wanted, At::Answered).await;
        answer
    }

    async fn apply_together(
        &self,
        changes: Vec<Change>,
        context: WriteContext,
    ) -> Result<Outcome, EngineError> {
        self.engine.apply_together(changes, context).await
    }

    async fn get(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Option<Record>, EngineError> {
        self.engine.get(key, context).await
    }

    async fn query(&self, query: &Query, context: ReadContext) -> Result<Page, EngineError> {
        self.engine.query(query, context).await
    }

    async fn scan(&self, scan: &Scan) -> Result<ScanPage, EngineError> {
        self.engine.scan(scan).await
    }

    async fn journal_end(&self) -> Result<Position, EngineError> {
        self.engine.journal_end().await
    }

    async fn journal_read(
        &self,
        from: &Position,
        limit: usize,
    ) -> Result<JournalPage, EngineError> {
        self.engine.journal_read(from, limit).await
    }

    async fn raise_fence(
        &self,
        fence: Fence,
        term: MoverTerm,
        now: Timestamp,
    ) -> Result<Seal, EngineError> {
        self.engine.raise_fence(fence, term, now).await
    }

    async fn claim_term(&self, term: MoverTerm) -> Result<(), EngineError> {
        self.engine.claim_term(term).await
    }

    async fn maintain(&self, work: Maintenance) -> Result<Maintained, EngineError> {
        self.engine.maintain(work).await
    }
}

/// Two shards of one kind, and the control store beside them.
struct Shop {
    source: Arc<dyn Engine>,
    target: Arc<dyn Engine>,
    control: Arc<dyn ControlStore>,
    world: Arc<RealWorld>,
}

impl Shop {
    async fn on_mongo(servers: &Servers) -> Shop {
        Shop {
            source: servers.mongo_shard("source").await,
            target: servers.mongo_shard("target").await,
            control: servers.mongo_shard("control").await,
            world: Arc::new(RealWorld::new()),
        }
    }

    async fn on_cassandra(servers: &Servers) -> Shop {
        Shop {
            source: servers.cassandra_shard("source").await,
            target: servers.cassandra_shard("target").await,
            control: servers.mongo_shard("control").await,
            world: Arc::new(RealWorld::new()),
        }
    }

    async fn publish_first_map(&self) {
        let carts = CollectionMap::on_one_shard("test", vec![Field::CartId], shard("source"));
        let map = Map::first(BTreeMap::from([(CARTS, carts)]));
        let keeper = MapKeeper::new(self.control.clone());
        keeper.publish(&map).await.unwrap();
    }

    async fn process(&self, name: &str, source: Arc<dyn Engine>) -> Arc<Router> {
        let router = Router::open(RouterConfig {
            shards: BTreeMap::from([
                (shard("source"), source),
                (shard("target"), self.target.clone()),
            ]),
            control: self.control.clone(),
            world: self.world.clone(),
            writer: Writer::numbered(0),
            limits: limits(),
            map_view: MapView::Lease {
                process: ProcessName::new(name).unwrap(),
            },
        });
        router.await.unwrap()
    }

    /// Freezes the carts, waits for every process, fences, carries the cart, cuts over.
    async fn move_carts_by(&self, router: &Router) {
        let frozen = router.map().freeze(CARTS, Scope::All).unwrap();
        let frozen = router.publish(frozen).await.unwrap();
        let judge = LeaseJudge::new(self.control.clone(), self.world.clone(), &limits());
        judge.wait_for(frozen, PATIENCE).await.unwrap();
        let term = MoverTerm {
            move_name: "carts".to_owned(),
            term: 1,
        };
        if self.source.capabilities().fence == FenceKind::InStore {
            let fence = Fence {
                collection: CARTS,
                scope: Scope::All,
                generation: frozen.next(),
            };
            let raised = self
                .source
                .raise_fence(fence, term.clone(), self.world.now());
            raised.await.unwrap();
        }
        let context = ReadContext {
            now: self.world.now(),
            freshness: Freshness::Latest,
        };
        let image = self
            .source
            .get(&cart_key(), context)
            .await
            .unwrap()
            .unwrap();
        let context = WriteContext {
            authority: Authority::Mover { term },
            now: self.world.now(),
            revision: image.newest_revision(),
        };
        let put = self.target.apply(Change::PutImage { image }, context);
        assert!(put.await.unwrap().is_done());
        let edits = [
            Edit::Move {
                scope: Scope::All,
                to: shard("target"),
            },
            Edit::Thaw { scope: Scope::All },
        ];
        let next = router.map().edited(&edits.map(|edit| (CARTS, edit)));
        router.publish(next.unwrap()).await.unwrap();
    }
}

struct Servers {
    mongo: MongoSet,
    cassandra: CassandraCluster,
    /// Different for every story, so that they do not meet.
    run: String,
}

impl Servers {
    fn start(story: &str) -> Option<Servers> {
        let mongo = required_or_skip(testbed::mongo(Members::One), "MongoDB")?;
        let cassandra = required_or_skip(testbed::cassandra(Nodes::One), "Cassandra")?;
        let run = cassandra.keyspace(story);
        Some(Servers {
            mongo,
            cassandra,
            run,
        })
    }

    async fn mongo_shard(&self, name: &str) -> Arc<MongoEngine> {
        let database = format!("{name}_{}", self.run);
        let layout = shipped("mongo-sharded");
        let config = MongoConfig::of_layout(&layout, "mongo", self.mongo.uri(), database);
        Arc::new(MongoEngine::open(config).await.unwrap())
    }

    async fn cassandra_shard(&self, name: &str) -> Arc<CassandraEngine> {
        let keyspace = Keyspace {
            name: format!("{name}_{}", self.run),
            replication: [("datacenter1".to_owned(), 1)].into(),
            ..Keyspace::of(&shipped("hybrid"), "cassandra").unwrap()
        };
        let config = CassandraConfig {
            request_timeout_ms: 20_000,
            speculative_after_ms: 5_000,
            clock_off_ms_max: 2_000,
            ..CassandraConfig::new(self.cassandra.contact_points(), keyspace)
        };
        Arc::new(CassandraEngine::open(config).await.unwrap())
    }
}

fn shipped(name: &str) -> Layout {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../layouts");
    let file = format!("{name}.toml");
    let text = std::fs::read_to_string(root.join(&file)).unwrap();
    Layout::parse(&text, &file).unwrap()
}

fn limits() -> Limits {
    Limits {
        lease_ms: 2_000,
        lease_renew_ms: 300,
        lease_look_ms: 50,
        ..Limits::default()
    }
}

fn shard(name: &str) -> ShardName {
    ShardName::new(name).unwrap()
}

fn cart_key() -> RecordKey {
    RecordKey::by_id(CARTS, RecordId::new(CART).unwrap())
}

fn create_cart(now: Timestamp) -> Change {
    let header = Fields::new()
        .with(Field::CartId, Value::text(CART))
        .with(Field::UserId, Value::text("U-1"))
        .with(Field::Status, Value::text("active"))
        .with(Field::CreatedAt, Value::Timestamp(now))
        .with(Field::UpdatedAt, Value::Timestamp(now))
        .with(Field::Ordinal, Value::Int(1));
    Change::CreateIfAbsent {
        key: cart_key(),
        header,
        parts: Vec::new(),
    }
}

fn set_line(quantity: i64) -> Change {
    let fields = Fields::new()
        .with(Field::Name, Value::text("phone"))
        .with(Field::Quantity, Value::Int(quantity));
    Change::Patch {
        key: cart_key(),
        guard: Guard::default(),
        parts: vec![(PartKey::line("PHONE"), PartChange::Set(fields))],
    }
}

async fn written(router: &Router, change: Change) -> (Revision, Generation) {
    let written = router.write(change, Revision::ZERO).await.unwrap();
    assert!(written.outcome.is_done(), "{written:?}");
    (written.revision, written.generation)
}

async fn quantity(router: &Router) -> Option<i64> {
    let cart = router.get(&cart_key()).await.unwrap().unwrap();
    let line = cart.part(&PartKey::line("PHONE"))?;
    line.get(Field::Quantity)?.as_int()
}

fn keep(router: &Arc<Router>) -> JoinHandle<()> {
    let router = router.clone();
    tokio::spawn(async move { router.keep_lease().await })
}

async fn a_stopped_process_takes_nothing_away(shop: &Shop, at: At) {
    shop.publish_first_map().await;
    let door = Stopping::over(shop.source.clone());
    let sleeper = shop.process("sleeper", door.clone()).await;
    let awake = shop.process("awake", shop.source.clone()).await;
    let renewal = keep(&sleeper);
    keep(&awake);
    written(&sleeper, create_cart(shop.world.now())).await;
    written(&sleeper, set_line(1)).await;
    assert_eq!(quantity(&awake).await, Some(1));

    *door.next.lock().unwrap() = Some(at);
    let late = sleeper.clone();
    let late = tokio::spawn(async move { late.write(set_line(2), Revision::ZERO).await });
    door.stopped.acquire().await.unwrap().forget();
    renewal.abort();

    shop.move_carts_by(&awake).await;
    assert_eq!(sleeper.lease(), Some(LeaseState::RanOut));
    assert_eq!(
        sleeper.map().generation,
        Generation(1),
        "it slept through it"
    );
    let (newest, generation) = written(&awake, set_line(3)).await;
    assert_eq!(generation, Generation(3));

    door.goes_on.add_permits(1);
    keep(&sleeper);
    let in_store = shop.source.capabilities().fence == FenceKind::InStore;
    let (shown, newest) = match late.await.unwrap() {
        // Done before the fence, which the store itself vouches for: it was carried, and then replaced.
        Ok(late) if late.generation == Generation(1) => {
            assert!(in_store && at == At::Answered, "{late:?}");
            assert!(late.revision < newest, "{late:?}");
            (3, newest)
        }
        // Refused by the source and sent again: a write like any other, and the last.
        Ok(late) => {
            assert_eq!(late.generation, generation, "by the target: {late:?}");
            assert!(late.revision > newest, "{late:?}");
            (2, late.revision)
        }
        Err(error) => {
            assert_ne!(error.remedy(), Remedy::GiveUp, "{error}");
            (3, newest)
        }
    };
    // It may have heard of its late write before it had a term again.
    let again = async {
        while sleeper.lease() == Some(LeaseState::RanOut) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.unwrap();
    for router in [&awake, &sleeper] {
        assert_eq!(quantity(router).await, Some(shown), "{at:?}");
        let cart = router.get(&cart_key()).await.unwrap().unwrap();
        assert_eq!(cart.newest_revision(), newest);
    }
    let (_, generation) = written(&sleeper, set_line(4)).await;
    assert_eq!(
        generation,
        Generation(3),
        "it serves again, under the new map"
    );
    assert_eq!(quantity(&awake).await, Some(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn on_mongodb_an_acknowledged_write_survives_a_process_that_slept_through_a_move() {
    for (story, at) in [("ms", At::Sending), ("ma", At::Answered)] {
        let Some(servers) = Servers::start(story) else {
            return;
        };
        let shop = Shop::on_mongo(&servers).await;
        a_stopped_process_takes_nothing_away(&shop, at).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_cassandra_an_acknowledged_write_survives_a_process_that_slept_through_a_move() {
    for (story, at) in [("cs", At::Sending), ("ca", At::Answered)] {
        let Some(servers) = Servers::start(story) else {
            return;
        };
        let shop = Shop::on_cassandra(&servers).await;
        a_stopped_process_takes_nothing_away(&shop, at).await;
    }
}
