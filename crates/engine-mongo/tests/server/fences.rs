use super::*;

/// The first mover has written its intent and sleeps before its `collMod`.
#[tokio::test]
async fn a_mover_that_slept_cannot_lower_the_fence_of_the_one_that_took_over() {
    let Some(set) = set() else { return };
    let database = set.database("sleeper");
    let engine = open(&set.uri(), &database).await;
    engine.claim_term(term(1)).await.unwrap();
    let client = Client::with_uri_str(set.uri()).await.unwrap();
    let sessions = client.database(&database);
    let guards = sessions.collection::<Document>("caravan_guards");
    let rules = guards
        .find_one(doc! { "_id": "rules" })
        .await
        .unwrap()
        .unwrap();
    let token = rules.get_str("token").unwrap();
    let pending = doc! { "$set": { "pending": true }, "$inc": { "number": 1_i64 } };
    guards
        .update_one(doc! { "_id": "rules" }, pending)
        .await
        .unwrap();

    engine.raise_fence(fence(7), term(1), now()).await.unwrap();
    let late =
        doc! { "collMod": "sessions", "index": { "name": token, "hidden": true }, "validator": {} };
    let refusal = sessions.run_command(late).await.unwrap_err();

    assert!(
        refusal.to_string().contains("cannot find index"),
        "{refusal}"
    );
    let refused = engine
        .apply(create("S-1", session_header("S-1"), vec![]), router(6))
        .await;
    assert_eq!(
        refused,
        Err(EngineError::Fenced {
            used: Generation(6),
            fence: Generation(7)
        })
    );
}

#[tokio::test]
async fn a_fence_stands_in_the_journal_after_all_that_it_let_through() {
    let Some(set) = set() else { return };
    let engine = open(&set.uri(), &set.database("announced")).await;
    let start = engine.journal_end().await.unwrap();
    engine.claim_term(term(1)).await.unwrap();
    assert!(
        engine
            .apply(create("S-1", session_header("S-1"), vec![]), router(1))
            .await
            .unwrap()
            .is_done()
    );
    let seal = engine.raise_fence(fence(2), term(1), now()).await.unwrap();
    let page = engine.journal_read(&start, 100).await.unwrap();
    let events: Vec<_> = page.entries.iter().map(|entry| &entry.event).collect();
    assert!(
        matches!(
            events[..],
            [JournalEvent::Changed { .. }, JournalEvent::Fenced { .. }]
        ),
        "{events:?}"
    );
    assert!(
        page.entries
            .iter()
            .all(|entry| entry.position <= seal.position)
    );
}
