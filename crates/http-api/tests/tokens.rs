//! Tokens between two processes, one of which answers from copies that lag: what the
//! first has shown or done, the second shows to whoever brings the token.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine_api::memory::MemoryEngine;
use engine_api::{Engine, RealWorld, Timestamp, World, Writer};
use layout::{Collection, Layout};
use router::{
    CollectionMap, Cut, Limits, Map, MapKeeper, MapView, Router, RouterConfig, ShardName,
};
use serde_json::{Value, json};
use shop_service::{Policies, Settings, Shop, ShopConfig};
use support::*;

/// A world in which time can be made to have passed.
#[derive(Debug)]
struct LaterWorld {
    real: RealWorld,
    later_s: AtomicU64,
}

impl World for LaterWorld {
    fn now(&self) -> Timestamp {
        self.real.now()
    }

    fn elapsed(&self) -> Duration {
        self.real.elapsed() + Duration::from_secs(self.later_s.load(Ordering::Relaxed))
    }

    fn random(&self) -> u64 {
        self.real.random()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.real.sleep(duration)
    }
}

/// Two processes over the same shards.
struct Processes {
    /// Reads the latest always.
    ahead: Served,
    /// Lags where the layout allows it.
    behind: Served,
    shards: Vec<Arc<MemoryEngine>>,
}

impl Processes {
    async fn start() -> Processes {
        let names = ["shard-1", "shard-2"].map(|name| ShardName::new(name).unwrap());
        let shards = names.each_ref().map(|_| Arc::new(MemoryEngine::new()));
        let layout = layout::embedded();
        let of_collection = |collection: Collection| {
            let key = layout.collection(collection).shard_key.clone();
            let map = CollectionMap::cut_by(&layout.name, key, Cut::even_slots(&names));
            (collection, map)
        };
        let map = Map::first(Collection::ALL.map(of_collection).into());
        let control = Arc::new(MemoryEngine::new());
        MapKeeper::new(control.clone()).publish(&map).await.unwrap();
        let process = async |number, policies: Policies| {
            let world = Arc::new(LaterWorld {
                real: RealWorld::new(),
                later_s: AtomicU64::new(0),
            });
            let engines = names.iter().zip(&shards).map(|(name, shard)| {
                let engine: Arc<dyn Engine> = shard.clone();
                (name.clone(), engine)
            });
            let config = RouterConfig {
                shards: engines.collect::<BTreeMap<_, _>>(),
                control: control.clone(),
                world: world.clone(),
                writer: Writer::numbered(number),
                limits: Limits::default(),
                map_view: MapView::ThisProcess,
            };
            let shop = Shop::new(ShopConfig {
                router: Router::open(config).await.unwrap(),
                world: world.clone(),
                settings: Settings::default(),
            });
            // The map has stood for longer than any lag.
            world.later_s.store(61, Ordering::Relaxed);
            let shop = shop.with_policies(policies);
            Served::of(shop, world, support::unhurried(), None).await
        };
        Processes {
            ahead: process(1, Policies::default()).await,
            behind: process(2, policies()).await,
            shards: shards.into(),
        }
    }

    fn stand_still(&self) {
        for shard in &self.shards {
            shard.stand_still(Duration::from_secs(2));
        }
    }
}

/// As `mongo-sharded` has them, with sessions that lag as well.
fn policies() -> Policies {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../layouts/mongo-sharded.toml"
    );
    let text = std::fs::read_to_string(file).unwrap();
    let sessions = "\n[collections.sessions.operations.S2]\nread = \"secondary\"\nmay_lag_seconds = 5\n\
                    [collections.sessions.operations.S3]\nread = \"secondary\"\nmay_lag_seconds = 5\n";
    let mut layout = Layout::parse(&format!("{text}{sessions}"), "mongo-sharded").unwrap();
    layout.name = layout::embedded().name;
    Policies::of([&layout])
}

/// A product, an order of ann's and a session, all made at the process ahead: where
/// they are read, and the token of each writer.
async fn filled(shop: &Served) -> Vec<(String, String)> {
    let product = json!({ "category": "phones", "name": "Phone", "price": "10.00" });
    let made = shop.put("/v1/products/p-1", product).send().await;
    made.expect(201);
    let stock = shop.put("/v1/products/p-1/stock/north", json!({ "received": 9 }));
    let stocked = stock.send().await.expect(200);
    let order = json!({
        "user_id": "ann", "geo_zone": "north", "address": "1 Main Street", "payment_method": "card",
        "lines": [{ "product_id": "p-1", "quantity": 1, "price": "10.00" }],
    });
    let order = shop
        .post("/v1/orders", order)
        .header("idempotency-key", "k");
    let placed = order.send().await.expect(201);
    let session = shop.post("/v1/sessions", json!({ "user_id": "ann" }));
    let opened = session.send().await.expect(201);
    let token = |answer: &Answer| answer.header("caravan-token").to_owned();
    let at = |answer: &Answer| answer.header("location").to_owned();
    vec![
        ("/v1/products/p-1".to_owned(), token(&stocked)),
        ("/v1/products?category=phones".to_owned(), token(&stocked)),
        (at(&placed), token(&placed)),
        ("/v1/users/ann/orders".to_owned(), token(&placed)),
        (at(&opened), token(&opened)),
        ("/v1/users/ann/sessions".to_owned(), token(&opened)),
    ]
}

/// The answer without what only says that there is nothing.
fn shown(answer: &Answer) -> Option<Value> {
    match answer.status.as_u16() {
        404 => None,
        200 => {
            let body = answer.json();
            let listed = ["products", "orders", "sessions"].map(|name| body[name].as_array());
            let empty = listed.into_iter().flatten().any(Vec::is_empty);
            (!empty).then_some(body)
        }
        _ => panic!("{answer:?}"),
    }
}

#[tokio::test]
async fn who_wrote_at_one_process_reads_it_at_the_other() {
    let both = Processes::start().await;
    both.stand_still();
    for (path, token) in filled(&both.ahead).await {
        let stranger = both.behind.get(&path).send().await;
        assert_eq!(shown(&stranger), None, "{path} does not lag");
        let own = both.behind.get(&path).header("caravan-token", token);
        assert!(shown(&own.send().await).is_some(), "{path}");
    }
}

#[tokio::test]
async fn who_read_at_one_process_is_not_shown_less_at_the_other() {
    let both = Processes::start().await;
    both.stand_still();
    for (path, _) in filled(&both.ahead).await {
        let read = both.ahead.get(&path).send().await.expect(200);
        let token = read.header("caravan-token").to_owned();
        let at = |path: &str| both.behind.get(path).header("caravan-token", token.clone());
        assert_eq!(shown(&at(&path).send().await), shown(&read), "{path}");
        assert_eq!(shown(&both.behind.get(&path).send().await), None, "{path}");
        // What the other shows it says again, so that no way round leads back.
        let again = at(&path).send().await;
        assert_eq!(again.header("caravan-token"), token, "{path}");
        if let Some(tag) = read.headers.get("etag") {
            let tag = tag.to_str().unwrap().to_owned();
            let held = both.ahead.get(&path).header("if-none-match", tag);
            let held = held.send().await.expect(304);
            assert_eq!(held.header("caravan-token"), token, "{path}");
        }
    }
}

#[tokio::test]
async fn an_older_answer_does_not_take_the_token_back() {
    let both = Processes::start().await;
    let paths = filled(&both.ahead).await;
    let newest = paths.iter().map(|(_, token)| token).next_back().unwrap();
    for (path, _) in &paths {
        let read = both.ahead.get(path).header("caravan-token", newest.clone());
        let read = read.send().await.expect(200);
        assert_eq!(read.header("caravan-token"), newest, "{path}");
    }
    let (session, opened) = &paths[4];
    let closed = both.ahead.delete(session).send().await.expect(204);
    let closed = closed.header("caravan-token");
    assert_ne!(closed, opened, "who closed it has seen that");
}

#[tokio::test]
async fn who_was_told_that_a_session_is_over_does_not_find_it_open() {
    let both = Processes::start().await;
    let (session, _) = filled(&both.ahead).await.swap_remove(4);
    both.stand_still();
    both.ahead.delete(&session).send().await.expect(204);
    let told = both.ahead.get(&session).send().await;
    told.problem(410, "session-ended");
    let token = told.header("caravan-token").to_owned();
    both.behind.get(&session).send().await.expect(200);
    let again = both.behind.get(&session).header("caravan-token", token);
    again.send().await.problem(410, "session-ended");
}

#[tokio::test]
async fn what_was_served_stands_in_the_metrics() {
    let both = Processes::start().await;
    let paths = filled(&both.ahead).await;
    both.stand_still();
    let (order, token) = &paths[2];
    both.behind.get(order).send().await.expect(200);
    let paid = both
        .ahead
        .post(&format!("{order}/status"), json!({ "status": "paid" }));
    let paid = paid.send().await.expect(200);
    let paid = paid.header("caravan-token").to_owned();
    both.behind
        .get(order)
        .header("caravan-token", token)
        .send()
        .await
        .expect(200);
    both.behind
        .get(order)
        .header("caravan-token", paid)
        .send()
        .await
        .expect(200);
    both.stand_still();
    both.behind.get(order).send().await.expect(200);
    both.behind
        .get("/v1/products/p-1/stock")
        .send()
        .await
        .expect(200);
    let metrics = both.behind.get("/metrics").send().await.expect(200).text();
    for line in [
        "caravan_reads_total{operation=\"O3\",level=\"secondary\"} 2",
        "caravan_reads_total{operation=\"O3\",level=\"latest\"} 2",
        "caravan_reads_total{operation=\"P4\",level=\"latest\"} 1",
        "caravan_reads_fallbacks_total{operation=\"O3\",reason=\"token\"} 1",
        "caravan_reads_fallbacks_total{operation=\"O3\",reason=\"status\"} 1",
        "caravan_reads_staleness_seconds_count{operation=\"O3\"} 2",
        "caravan_reads_staleness_seconds_sum{operation=\"O3\"} 4.0",
        "caravan_reads_staleness_seconds_bucket{le=\"1.0\",operation=\"O3\"} 0",
        "caravan_reads_staleness_seconds_bucket{le=\"2.0\",operation=\"O3\"} 2",
    ] {
        let found = metrics.lines().any(|found| found == line);
        let reads: Vec<&str> = metrics
            .lines()
            .filter(|line| line.starts_with("caravan_reads"))
            .collect();
        assert!(found, "{line} in\n{}", reads.join("\n"));
    }
}
