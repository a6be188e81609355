//! Whoever brings the token of a change sees it, also on secondaries that lag.

use std::sync::atomic::Ordering;

use engine_api::Query;
use engine_api::layout::AccessPath;

use super::*;

const ROUNDS: usize = 30;

fn may_lag(seen: Revision) -> ReadContext {
    ReadContext {
        now: now(),
        freshness: Freshness::MayLag { seconds: 30, seen },
    }
}

fn by_user() -> Query {
    Query::first(AccessPath::SessionsByUser, vec![Value::text("U-1")], 100)
}

fn header(id: &str) -> Fields {
    session_header(id).with(Field::UserId, Value::text("U-1"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_honoured_beside_a_secondary_that_stands_still() {
    let Some(set) = own_set(Members::Three) else {
        return;
    };
    let config = MongoConfig {
        // Whether it waits does not matter here, only what is shown.
        secondary_ms_max: 200,
        ..MongoConfig::new(set.uri(), "tokens", tables::all())
    };
    let engine = MongoEngine::open(config).await.unwrap();
    let first = create("S-0", header("S-0"), vec![]);
    assert!(engine.apply(first, router(1)).await.unwrap().is_done());
    let sampled = async {
        while engine.lag_counts().served_in_all() == 0 {
            engine
                .query(&by_user(), may_lag(Revision::ZERO))
                .await
                .unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let patience = Duration::from_secs(30);
    tokio::time::timeout(patience, sampled).await.unwrap();
    let still = (set.primary().unwrap() + 1) % 3;
    tokio::task::block_in_place(|| set.hold_still(still)).unwrap();

    let mut missed_without = 0;
    for round in 1..=ROUNDS {
        let id = format!("S-{round}");
        let change = create(&id, header(&id), vec![]);
        let Outcome::Done { revision } = engine.apply(change, router(1)).await.unwrap() else {
            panic!("nobody else writes");
        };
        let record = engine
            .get(&session_key(&id), may_lag(revision))
            .await
            .unwrap();
        assert!(record.is_some(), "{id} was not shown to its writer");
        let page = engine.query(&by_user(), may_lag(revision)).await.unwrap();
        assert_eq!(page.records.len(), round + 1, "{id} is not listed");
        let page = engine
            .query(&by_user(), may_lag(Revision::ZERO))
            .await
            .unwrap();
        missed_without += usize::from(page.records.len() <= round);
    }
    let counts = engine.lag_counts();
    println!("missed without a token: {missed_without} of {ROUNDS}; {counts:?}");
    assert!(counts.own_change.load(Ordering::Relaxed) >= ROUNDS as u64);
    assert!(
        missed_without > 0,
        "without the token something must be missed, or this shows nothing"
    );
}
