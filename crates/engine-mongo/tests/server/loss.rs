use engine_api::layout::AccessPath;
use engine_api::{ControlStore, Query};

use super::*;

#[tokio::test]
async fn lost_answers_are_unknown_and_the_same_change_again_has_one_effect() {
    let Some(set) = own_set(Members::One) else {
        return;
    };
    let engine = open(&set.uri(), "lost").await;
    let client = Client::with_uri_str(set.uri()).await.unwrap();
    let start = engine.journal_end().await.unwrap();
    let never_arrived = doc! { "closeConnection": true };
    let arrived =
        doc! { "writeConcernError": { "code": 64, "errmsg": "waiting for replication timed out" } };
    // The driver itself sends a write twice.
    for (id, times, how) in [("S-1", 2, never_arrived), ("S-2", 1, arrived)] {
        let (change, context) = (create(id, session_header(id), vec![]), router(1));
        fail_next(&client, times, "insert", how).await;
        let lost = engine.apply(change.clone(), context.clone()).await;
        assert!(
            matches!(lost, Err(EngineError::OutcomeUnknown { .. })),
            "{id}: {lost:?}"
        );
        let again = engine.apply(change, context.clone()).await;
        assert_eq!(
            again,
            Ok(Outcome::Done {
                revision: context.revision
            }),
            "{id}"
        );
    }
    assert_eq!(
        engine
            .journal_read(&start, 100)
            .await
            .unwrap()
            .entries
            .len(),
        2
    );
}

#[tokio::test]
async fn a_paused_server_is_unavailable_and_a_change_sent_again_is_done() {
    let Some(set) = own_set(Members::One) else {
        return;
    };
    let config = MongoConfig {
        answer_ms_max: 1_000,
        ..MongoConfig::new(set.uri(), "paused", tables::all())
    };
    let engine = Arc::new(MongoEngine::open(config).await.unwrap());
    let context = router(1);
    let change = create("S-1", session_header("S-1"), vec![]);
    set.pause(0).unwrap();
    let read = engine.get(&session_key("S-1"), reader()).await;
    assert!(
        matches!(read, Err(EngineError::Unavailable { .. })),
        "{read:?}"
    );
    let unread = engine.apply(change.clone(), context.clone()).await;
    assert!(
        matches!(unread, Err(EngineError::Unavailable { .. })),
        "nothing is sent unread: {unread:?}"
    );
    set.resume(0).unwrap();
    let again = engine.apply(change, context.clone()).await.unwrap();
    assert_eq!(
        again,
        Outcome::Done {
            revision: context.revision
        }
    );
}

#[tokio::test]
async fn a_server_that_died_is_unavailable_and_serves_again_without_a_new_engine() {
    let Some(set) = own_set(Members::One) else {
        return;
    };
    let config = MongoConfig {
        selection_ms_max: 1_000,
        answer_ms_max: 3_000,
        ..MongoConfig::new(set.uri(), "died", tables::all())
    };
    let engine = MongoEngine::open(config).await.unwrap();
    let kept = create("S-1", session_header("S-1"), vec![]);
    assert!(engine.apply(kept, router(1)).await.unwrap().is_done());

    set.kill9(0).unwrap();
    let change = create("S-2", session_header("S-2"), vec![]);
    let context = router(1);
    let by_user = Query::first(AccessPath::SessionsByUser, vec![Value::text("U-1")], 10);
    let answers = [
        engine.get(&session_key("S-1"), reader()).await.err(),
        engine.query(&by_user, reader()).await.err(),
        engine.apply(change.clone(), context.clone()).await.err(),
        engine.journal_end().await.err(),
        engine.control_get("map").await.err(),
    ];
    for answer in answers {
        assert!(
            matches!(answer, Some(EngineError::Unavailable { .. })),
            "{answer:?}"
        );
    }

    set.restart(0).unwrap();
    assert!(stored(&engine, "S-1").await.is_some());
    let again = engine.apply(change, context.clone()).await;
    assert_eq!(
        again,
        Ok(Outcome::Done {
            revision: context.revision
        })
    );
}
