//! The primary is killed while orders are placed. Every acknowledged order is
//! there once, and its stock was taken once; a bare driver and an own ledger
//! judge.

use std::sync::Mutex;
use std::time::Instant;

use engine_api::{PriceCondition, StockAction};

use super::*;

const WRITERS: usize = 6;
const PIECES: u32 = 2;
const RECEIVED: u64 = 1_000_000;
/// How long one step is sent again before the set counts as lost.
const PATIENCE: Duration = Duration::from_secs(60);

fn order_key(id: &str) -> RecordKey {
    RecordKey {
        collection: Collection::Orders,
        id: RecordId::new(id).unwrap(),
        shard_key: engine_api::layout::ShardKey::of_text("U-1"),
    }
}

fn product_key() -> RecordKey {
    let key = [Value::text("lamps"), Value::text("P-1")];
    RecordKey {
        collection: Collection::Products,
        id: RecordId::new("P-1").unwrap(),
        shard_key: engine_api::layout::ShardKey::of(&key).unwrap(),
    }
}

fn stock(action: StockAction) -> Change {
    Change::Stock {
        key: product_key(),
        part: PartKey::stock("moscow", 0),
        price: PriceCondition::Any,
        action,
    }
}

/// Sends the same change with the same revision until its outcome is known.
async fn settle(engine: &MongoEngine, change: Change) -> Outcome {
    let context = router(1);
    let begun = Instant::now();
    loop {
        match engine.apply(change.clone(), context.clone()).await {
            Ok(outcome) => return outcome,
            Err(EngineError::Unavailable { .. } | EngineError::OutcomeUnknown { .. })
                if begun.elapsed() < PATIENCE =>
            {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

async fn place(engine: &MongoEngine, id: &str) {
    let at = now();
    let header = Fields::new()
        .with(Field::OrderId, Value::text(id))
        .with(Field::UserId, Value::text("U-1"))
        .with(Field::Status, Value::text("created"))
        .with(Field::CreatedAt, Value::Timestamp(at))
        .with(Field::Total, Value::Decimal("19.80".parse().unwrap()))
        .with(Field::Lines, Value::List(vec![]));
    let order = Change::CreateIfAbsent {
        key: order_key(id),
        header,
        parts: vec![],
    };
    let outcome = settle(engine, order).await;
    assert!(outcome.is_done(), "{id}: {outcome:?}");
    let take = stock(StockAction::Take {
        order: id.to_owned(),
        quantity: PIECES,
        at,
    });
    let outcome = settle(engine, take).await;
    assert!(outcome.is_done(), "stock of {id}: {outcome:?}");
    let claim = stock(StockAction::Claim {
        order: id.to_owned(),
    });
    let outcome = settle(engine, claim).await;
    assert!(outcome.is_done(), "claim of {id}: {outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_go_on_after_the_primary_was_killed_and_none_is_lost_or_doubled() {
    let Some(set) = own_set(Members::Three) else {
        return;
    };
    let config = MongoConfig {
        answer_ms_max: 3_000,
        ..MongoConfig::new(set.uri(), "failover", tables::all())
    };
    let engine = MongoEngine::open(config).await.unwrap();
    let product = Change::CreateIfAbsent {
        key: product_key(),
        header: Fields::new()
            .with(Field::ProductId, Value::text("P-1"))
            .with(Field::Category, Value::text("lamps"))
            .with(Field::Name, Value::text("a lamp"))
            .with(Field::Price, Value::Decimal("9.90".parse().unwrap())),
        parts: vec![],
    };
    assert!(settle(&engine, product).await.is_done());
    let receive = stock(StockAction::Receive { total: RECEIVED });
    assert!(settle(&engine, receive).await.is_done());

    let acknowledged: Mutex<Vec<(String, Instant)>> = Mutex::default();
    let count = || acknowledged.lock().unwrap().len();
    let end: Mutex<Option<Instant>> = Mutex::new(None);
    let over = || end.lock().unwrap().is_some_and(|end| Instant::now() > end);
    let writing = futures::future::join_all((0..WRITERS).map(|writer| {
        let (engine, acknowledged, over) = (&engine, &acknowledged, &over);
        async move {
            for number in 0.. {
                if over() {
                    return;
                }
                let id = format!("O-{writer}-{number}");
                place(engine, &id).await;
                acknowledged.lock().unwrap().push((id, Instant::now()));
            }
        }
    }));
    let killing = async {
        while count() < 60 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let primary = set.primary().unwrap();
        tokio::task::block_in_place(|| set.kill9(primary)).unwrap();
        let (killed, before) = (Instant::now(), count());
        while count() < before + 100 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The old primary comes back and takes back what only it had.
        tokio::task::block_in_place(|| set.restart(primary)).unwrap();
        *end.lock().unwrap() = Some(Instant::now() + Duration::from_secs(2));
        (killed, before)
    };
    let (_, (killed, before)) = tokio::join!(writing, killing);

    let acknowledged = acknowledged.into_inner().unwrap();
    // The few that were under way when it happened are answered within the pause.
    let pause = acknowledged[before + WRITERS].1.duration_since(killed);
    println!(
        "{} orders, {before} before the kill, next ones after {pause:?}",
        acknowledged.len()
    );
    judge(&set.uri(), &acknowledged).await;
}

/// Looks with a bare driver at what the majority has.
async fn judge(uri: &str, acknowledged: &[(String, Instant)]) {
    let client = Client::with_uri_str(uri).await.unwrap();
    let database = client.database("failover");
    let orders = database.collection::<Document>("orders");
    for (id, _) in acknowledged {
        let there = orders.count_documents(doc! { "_id": id, "header.live": true });
        assert_eq!(there.await.unwrap(), 1, "{id} was acknowledged");
    }
    let all = orders.count_documents(doc! {}).await.unwrap();
    assert_eq!(all, acknowledged.len() as u64, "orders that nobody placed");

    let products = database.collection::<Document>("products");
    let product = products
        .find_one(doc! { "_id": "P-1" })
        .await
        .unwrap()
        .unwrap();
    let part = product.get_array("parts").unwrap()[0]
        .as_document()
        .unwrap();
    let fields = part.get_document("fields").unwrap();
    let count = |name: &str| fields.get_i64(name).unwrap() as u64;
    let sold = acknowledged.len() as u64 * u64::from(PIECES);
    assert_eq!(count("sold"), sold, "each order sold its pieces once");
    assert_eq!(
        (count("reserved"), count("available")),
        (0, RECEIVED - sold)
    );
}
