//! Many orders want one product at the same moment, through two engines, as
//! from two processes.

use std::time::Instant;

use engine_api::layout::ShardKey;
use engine_api::{PriceCondition, StockAction, StockRefusal};

use super::*;

const ORDERS: usize = 200;
const RECEIVED: u64 = 300;
const PIECES: u32 = 2;
const PRICE: &str = "9.90";

fn key() -> RecordKey {
    let shard_key = ShardKey::of(&[Value::text("lamps"), Value::text("P-1")]).unwrap();
    RecordKey {
        collection: Collection::Products,
        id: RecordId::new("P-1").unwrap(),
        shard_key,
    }
}

fn stock(zone: &str, price: &str, action: StockAction) -> Change {
    Change::Stock {
        key: key(),
        part: PartKey::stock(zone, 0),
        price: PriceCondition::Exactly(price.parse().unwrap()),
        action,
    }
}

fn take(order: usize, price: &str) -> Change {
    let action = StockAction::Take {
        order: format!("O-{order}"),
        quantity: PIECES,
        at: Timestamp::from_unix_micros(1_700_000_000_000_000),
    };
    stock("moscow", price, action)
}

async fn product(engine: &MongoEngine) {
    let header = Fields::new()
        .with(Field::ProductId, Value::text("P-1"))
        .with(Field::Category, Value::text("lamps"))
        .with(Field::Name, Value::text("a lamp"))
        .with(Field::Price, Value::Decimal(PRICE.parse().unwrap()));
    let created = Change::CreateIfAbsent {
        key: key(),
        header,
        parts: vec![],
    };
    assert!(engine.apply(created, router(1)).await.unwrap().is_done());
    for (zone, total) in [("siberia", 7), ("moscow", RECEIVED)] {
        let receive = stock(zone, PRICE, StockAction::Receive { total });
        assert!(engine.apply(receive, router(1)).await.unwrap().is_done());
    }
}

/// Every change at once, half of them by each engine.
async fn at_once(engines: [&MongoEngine; 2], change: impl Fn(usize) -> Change) -> Vec<Outcome> {
    let changes = (0..ORDERS).map(|order| engines[order % 2].apply(change(order), router(1)));
    let begun = Instant::now();
    let outcomes = futures::future::try_join_all(changes).await.unwrap();
    let rate = ORDERS as f64 / begun.elapsed().as_secs_f64();
    println!("{ORDERS} changes of one record at once, {rate:.0} a second");
    outcomes
}

fn refused(outcomes: &[Outcome], refusal: &StockRefusal) -> usize {
    let refused = |outcome: &&Outcome| **outcome == Outcome::Stock(refusal.clone());
    outcomes.iter().filter(refused).count()
}

fn done(outcomes: &[Outcome]) -> usize {
    outcomes.iter().filter(|outcome| outcome.is_done()).count()
}

async fn counts(engine: &MongoEngine, zone: &str) -> [i64; 4] {
    let record = engine.get(&key(), reader()).await.unwrap().unwrap();
    let fields = record.part(&PartKey::stock(zone, 0)).unwrap();
    [
        Field::Received,
        Field::Available,
        Field::Reserved,
        Field::Sold,
    ]
    .map(|field| fields.get(field).and_then(Value::as_int).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_piece_is_sold_twice_and_none_is_left_over() {
    let Some(set) = set() else { return };
    let database = set.database("sale");
    let engines = [
        open(&set.uri(), &database).await,
        open(&set.uri(), &database).await,
    ];
    let engines = [&engines[0], &engines[1]];
    product(engines[0]).await;
    let start = engines[0].journal_end().await.unwrap();

    let dear = at_once(engines, |order| take(order, "9.91")).await;
    let moved = StockRefusal::PriceMoved {
        now: Some(PRICE.parse().unwrap()),
    };
    assert_eq!(refused(&dear, &moved), ORDERS);

    let twins = at_once(engines, |number| take(number / 2, PRICE)).await;
    assert_eq!(done(&twins), ORDERS, "each order asks twice at once");
    assert_eq!(counts(engines[0], "moscow").await, [300, 100, 200, 0]);

    let winners = (RECEIVED / u64::from(PIECES)) as usize;
    let first = at_once(engines, |order| take(order, PRICE)).await;
    assert_eq!(done(&first), winners);
    let sold_out = StockRefusal::SoldOut { available: 0 };
    assert_eq!(refused(&first, &sold_out), ORDERS - winners);
    assert_eq!(counts(engines[0], "moscow").await, [300, 0, 300, 0]);

    let again = at_once(engines, |order| take(order, PRICE)).await;
    assert_eq!(done(&again), winners, "a repeat takes nothing more");
    assert_eq!(counts(engines[0], "moscow").await, [300, 0, 300, 0]);

    let claim = |order: usize| {
        let order = format!("O-{order}");
        stock("moscow", PRICE, StockAction::Claim { order })
    };
    let claimed = at_once(engines, claim).await;
    assert_eq!(done(&claimed), winners);
    assert_eq!(counts(engines[0], "moscow").await, [300, 0, 0, 300]);
    assert_eq!(
        counts(engines[0], "siberia").await,
        [7, 7, 0, 0],
        "another zone"
    );

    let mut revisions = Vec::new();
    let mut from = start;
    loop {
        let page = engines[0].journal_read(&from, 1_000).await.unwrap();
        if page.entries.is_empty() {
            break;
        }
        for entry in page.entries {
            if let JournalEvent::Changed { revision, .. } = entry.event {
                revisions.push(revision);
            }
        }
        from = page.next;
    }
    assert_eq!(
        revisions.len(),
        2 * winners,
        "an entry for each take and claim"
    );
    assert!(
        revisions.is_sorted_by(|a, b| a < b),
        "each with its own number"
    );
}
