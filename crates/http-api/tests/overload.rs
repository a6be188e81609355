//! Too much is asked, or a shard hangs: who is refused, in which order, and who is not.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use engine_api::memory::MemoryEngine;
use engine_api::{
    Capabilities, Change, Engine, EngineError, Fence, JournalPage, Maintained, Maintenance,
    MoverTerm, Outcome, Page, Position, Query, ReadContext, RealWorld, Record, RecordKey, Scan,
    ScanPage, Seal, Timestamp, World, WriteContext,
};
use http_api::HttpLimits;
use layout::Collection;
use router::{Limits, ShardName};
use serde_json::json;
use support::{Answer, Served, read_all, routed, two_shards};
use tokio::sync::{Notify, Semaphore};

/// A request whose body is announced and does not come.
const WITHOUT_BODY: &str = "PUT /v1/products/p HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\
                            content-type: application/json\r\ncontent-length: 15\r\n\r\n";

/// How long anything in these tests may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(30);

/// The value of one figure of the shop's own.
async fn figure(served: &Served, name: &str) -> f64 {
    let metrics = served.get("/metrics").send().await.expect(200).text();
    let line = metrics.lines().find(|line| line.starts_with(name));
    let value = line.unwrap_or_else(|| panic!("{name} in {metrics}"));
    value.rsplit(' ').next().unwrap().parse().unwrap()
}

async fn until_figure(served: &Served, name: &str, expected: f64) {
    let reached = async {
        while figure(served, name).await != expected {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.unwrap();
}

/// A world whose sleepers wake when the test says so, and as late as it says.
#[derive(Debug)]
struct TestWorld {
    real: RealWorld,
    wakes: Mutex<VecDeque<Duration>>,
    woken: Notify,
    skipped_us: AtomicU64,
}

impl TestWorld {
    fn new() -> Arc<TestWorld> {
        Arc::new(TestWorld {
            real: RealWorld::new(),
            wakes: Mutex::default(),
            woken: Notify::new(),
            skipped_us: AtomicU64::new(0),
        })
    }

    /// So many sleepers wake, one after the other, each so late.
    fn wake(&self, count: usize, late: Duration) {
        let mut wakes = self.wakes.lock().unwrap();
        wakes.extend(std::iter::repeat_n(late, count));
        self.woken.notify_one();
    }
}

impl World for TestWorld {
    fn now(&self) -> Timestamp {
        self.real.now()
    }

    /// Stands still but for what sleepers have slept.
    fn elapsed(&self) -> Duration {
        Duration::from_micros(self.skipped_us.load(Ordering::Relaxed))
    }

    fn random(&self) -> u64 {
        self.real.random()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            loop {
                let late = self.wakes.lock().unwrap().pop_front();
                if let Some(late) = late {
                    let slept = u64::try_from((duration + late).as_micros()).unwrap();
                    self.skipped_us.fetch_add(slept, Ordering::Relaxed);
                    return;
                }
                self.woken.notified().await;
            }
        })
    }
}

/// One request of each class that reads something that is not there.
async fn one_of_each(served: &Served) -> [Answer; 3] {
    [
        served.get("/v1/products/none").send().await,
        served.get("/v1/carts/none").send().await,
        served.get("/v1/orders/none").send().await,
    ]
}

#[tokio::test]
async fn a_queue_that_stands_refuses_browsing_before_carts_before_checkout() {
    let world = TestWorld::new();
    let router = two_shards(Arc::new(RealWorld::new())).await;
    let limits = HttpLimits {
        queue_ms_max: 50,
        queue_window_ms: 100,
        shed_step_percent: 10,
        request_ms_max: 600_000,
        ..HttpLimits::default()
    };
    let served = Served::over(router, world.clone(), limits, None).await;
    let statuses = async || {
        one_of_each(&served)
            .await
            .map(|answer| answer.status.as_u16())
    };
    let shed = async || {
        let ready = served.get("/health/ready").send().await.expect(200);
        ready.json()["shedding"].clone()
    };
    assert_eq!(statuses().await, [404, 404, 404]);
    assert_eq!(shed().await, json!([]));

    // Two pulses that are 60 ms late make a window, and ten windows refuse a class.
    let late = Duration::from_millis(60);
    let steps = [
        (1.0, [503, 404, 404], json!(["browsing"])),
        (2.0, [503, 503, 404], json!(["browsing", "carts"])),
        (
            3.0,
            [503, 503, 503],
            json!(["browsing", "carts", "checkout"]),
        ),
    ];
    for (level, expected, named) in steps {
        world.wake(20, late);
        until_figure(&served, "caravan_http_shed_level", level).await;
        assert_eq!(statuses().await, expected);
        assert_eq!(shed().await, named);
    }
    for (answer, seconds) in one_of_each(&served).await.iter().zip(["5", "2", "1"]) {
        answer.problem(503, "overloaded");
        assert_eq!(answer.header("retry-after"), seconds);
    }
    let answer = read_all(served.connect(WITHOUT_BODY).await).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("/problems/overloaded"), "{answer}");
    assert_eq!(figure(&served, "caravan_http_queue_seconds").await, 0.06);

    // Ten pulses in time make a window, which gives a fiftieth of a class back.
    world.wake(10 * 150, Duration::ZERO);
    until_figure(&served, "caravan_http_shed_level", 0.0).await;
    assert_eq!(statuses().await, [404, 404, 404]);
    assert_eq!(shed().await, json!([]));
}

/// A shard in memory that can be made to hang.
#[derive(Debug)]
struct Hanging {
    memory: MemoryEngine,
    /// One is taken and given back by every call.
    open: Semaphore,
}

impl Hanging {
    async fn pass(&self) {
        drop(self.open.acquire().await.unwrap());
    }
}

#[async_trait]
impl Engine for Hanging {
    fn capabilities(&self) -> &Capabilities {
        self.memory.capabilities()
    }

    async fn apply(&self, change: Change, context: WriteContext) -> Result<Outcome, EngineError> {
        self.pass().await;
        self.memory.apply(change, context).await
    }

    async fn apply_together(
        &self,
        changes: Vec<Change>,
        context: WriteContext,
    ) -> Result<Outcome, EngineError> {
        self.pass().await;
        self.memory.apply_together(changes, context).await
    }

    async fn get(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Option<Record>, EngineError> {
        self.pass().await;
        self.memory.get(key, context).await
    }

    async fn query(&self, query: &Query, context: ReadContext) -> Result<Page, EngineError> {
        self.pass().await;
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

/// Sessions on one shard, everything else on another, which hangs.
async fn half_hanging(limits: HttpLimits, router_limits: Limits) -> (Served, Arc<Hanging>) {
    let world: Arc<dyn World> = Arc::new(RealWorld::new());
    let [slow, quick] = ["slow", "quick"].map(|name| ShardName::new(name).unwrap());
    let hanging = Arc::new(Hanging {
        memory: MemoryEngine::new(),
        open: Semaphore::new(0),
    });
    let engines = [
        (slow.clone(), hanging.clone() as Arc<dyn Engine>),
        (quick.clone(), Arc::new(MemoryEngine::new())),
    ];
    let shards_of = |collection: Collection| match collection {
        Collection::Sessions => vec![quick.clone()],
        _ => vec![slow.clone()],
    };
    let router = routed(world.clone(), engines.into(), shards_of, router_limits).await;
    (Served::over(router, world, limits, None).await, hanging)
}

#[tokio::test]
async fn a_shard_that_hangs_keeps_its_last_places_for_checkout_and_harms_no_other() {
    let router_limits = Limits {
        shard_requests_max: 10,
        shard_low_percent: 60,
        shard_middle_percent: 80,
        ..Limits::default()
    };
    let (served, hanging) = half_hanging(support::unhurried(), router_limits).await;
    let shard = r#"caravan_router_shard_requests{shard="slow"}"#;
    let mut waiting = Vec::new();
    for (path, places) in [("products", 6), ("carts", 8), ("orders", 10)] {
        for place in waiting.len()..places {
            let request = format!(
                "GET /v1/{path}/none-{place} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\r\n"
            );
            waiting.push(served.connect(&request).await);
        }
        until_figure(&served, shard, places as f64).await;
        let refused = served.get(&format!("/v1/{path}/one-more")).send().await;
        refused.problem(503, "overloaded");
        assert_eq!(refused.header("retry-after"), "1");
        let session = json!({"device_type": "phone"});
        served
            .post("/v1/sessions", session)
            .send()
            .await
            .expect(201);
    }
    let refused = r#"caravan_router_shard_refused_total{shard="slow"}"#;
    assert_eq!(figure(&served, refused).await, 3.0);

    let ready = served.get("/health/ready").send().await.expect(200).json();
    assert_eq!(ready["status"], "degraded", "{ready}");
    for check in ready["checks"].as_array().unwrap() {
        let up = check["collection"] == "sessions";
        let down: &[&str] = if up { &[] } else { &["slow"] };
        assert_eq!(
            (&check["answers"], &check["down"]),
            (&json!(up), &json!(down)),
            "{ready}"
        );
    }

    hanging.open.add_permits(1);
    for stream in waiting {
        let answer = read_all(stream).await;
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    }
    for answer in one_of_each(&served).await {
        answer.expect(404);
    }
    let ready = served.get("/health/ready").send().await.expect(200).json();
    assert_eq!(ready["status"], "ready", "{ready}");
}

/// The engine hangs, and the attempt that was sent is given up with the request.
#[tokio::test]
async fn a_request_gives_its_place_at_a_hanging_shard_back_at_its_deadline() {
    let limits = HttpLimits {
        request_ms_max: 50,
        ..HttpLimits::default()
    };
    let (served, _hanging) = half_hanging(limits, Limits::default()).await;
    let answer = served.get("/v1/products/none").send().await;
    answer.problem(504, "deadline-exceeded");
    until_figure(
        &served,
        r#"caravan_router_shard_requests{shard="slow"}"#,
        0.0,
    )
    .await;
}

/// The keys are frozen for longer than the request has: the router knows when to stop.
#[tokio::test]
async fn the_deadline_of_a_request_reaches_the_router() {
    let world: Arc<dyn World> = Arc::new(RealWorld::new());
    let router = two_shards(world.clone()).await;
    let frozen = router.map().freeze(Collection::Carts, layout::Scope::All);
    router.publish(frozen.unwrap()).await.unwrap();
    let limits = HttpLimits {
        request_ms_max: 200,
        ..HttpLimits::default()
    };
    let served = Served::over(router, world, limits, None).await;
    let answer = served
        .post("/v1/carts", json!({"user_id": "u"}))
        .send()
        .await;
    answer.problem(504, "deadline-exceeded");
    let ended = figure(&served, "caravan_router_out_of_time_total").await;
    assert_eq!(ended, 1.0, "the router ended it, before it was cut off");
}
