use super::*;

#[tokio::test]
async fn a_quiet_journal_moves_on_beside_a_noisy_neighbour() {
    let Some(set) = set() else { return };
    let engine = open(&set.uri(), &set.database("quiet")).await;
    let start = engine.journal_end().await.unwrap();
    let client = Client::with_uri_str(set.uri()).await.unwrap();
    let noise = client
        .database(&set.database("noise"))
        .collection::<Document>("noise");
    for _ in 0..10 {
        noise
            .insert_many((0..1000).map(|number| doc! { "number": number }))
            .await
            .unwrap();
    }
    assert!(
        engine
            .apply(create("S-1", session_header("S-1"), vec![]), router(1))
            .await
            .unwrap()
            .is_done()
    );
    let page = engine.journal_read(&start, 100).await.unwrap();
    assert_eq!(
        page.entries.len(),
        1,
        "one page reaches past everything of others"
    );
    noise
        .insert_many((0..1000).map(|number| doc! { "number": number }))
        .await
        .unwrap();
    let after = engine.journal_read(&page.next, 100).await.unwrap();
    assert!(after.entries.is_empty());
    assert!(after.next >= page.next);
}

#[tokio::test]
async fn a_position_that_the_oplog_forgot_is_lost_loudly() {
    let Some(set) = own_set(Members::One) else {
        return;
    };
    let engine = open(&set.uri(), "forgotten").await;
    let client = Client::with_uri_str(set.uri()).await.unwrap();
    let start = engine.journal_end().await.unwrap();
    // A real oplog forgets at the earliest after its first checkpoint, a minute from its start.
    fail_next(&client, 1, "aggregate", doc! { "errorCode": 286 }).await;
    assert_eq!(
        engine.journal_read(&start, 1).await,
        Err(EngineError::PositionLost)
    );
    assert!(engine.journal_read(&start, 1).await.is_ok());
}

/// The server looks for expired records once a second.
const COLLECTED_WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn the_server_collects_long_expired_records_without_a_journal_entry() {
    let Some(set) = set() else { return };
    let options = TableOptions {
        ttl_seconds: Some(86_400),
        ..TableOptions::default()
    };
    let table = Table {
        options,
        ..tables::authority(Collection::Sessions)
    };
    let config = MongoConfig::new(set.uri(), set.database("collected"), vec![table]);
    let engine = MongoEngine::open(config).await.unwrap();
    let start = engine.journal_end().await.unwrap();
    let hour_micros = 3_600_000_000;
    let ago = |hours: i64| Timestamp::from_unix_micros(now().unix_micros() - hours * hour_micros);
    let parts = |hours| vec![(PartKey::expiry(), expiry_fields(ago(hours)))];
    let then = WriteContext {
        now: ago(48),
        ..router(1)
    };
    for (id, hours) in [("long-gone", 2), ("just-gone", 0)] {
        let change = create(id, session_header(id), parts(hours));
        assert!(engine.apply(change, then.clone()).await.unwrap().is_done());
    }
    let gone = async {
        while stored(&engine, "long-gone").await.is_some() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(COLLECTED_WITHIN, gone)
        .await
        .expect("the server collects within its period");
    assert!(
        stored(&engine, "just-gone").await.is_some(),
        "the margin keeps what expired a moment ago"
    );
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

/// A stream that begins under writers may have events at once, and then no place before them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_the_journal_is_known_while_others_write() {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    let Some(set) = set() else { return };
    let engine = open(&set.uri(), &set.database("ending")).await;
    let (closing, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let writing = async {
        for number in 1_u64.. {
            if closing.load(Ordering::SeqCst) {
                break;
            }
            let name = format!("S-{number}");
            let change = create(&name, session_header(&name), vec![]);
            assert!(engine.apply(change, router(1)).await.unwrap().is_done());
            acknowledged.store(number, Ordering::SeqCst);
        }
    };
    let ending = async {
        for _ in 0..150 {
            let before = acknowledged.load(Ordering::SeqCst);
            let end = engine.journal_end().await.unwrap();
            let page = engine.journal_read(&end, 5).await.unwrap();
            for entry in page.entries {
                let JournalEvent::Changed { key, .. } = entry.event else {
                    continue;
                };
                let number: u64 = key.id.as_str()[2..].parse().unwrap();
                assert!(number > before, "{number} was acknowledged before");
            }
        }
        closing.store(true, Ordering::SeqCst);
    };
    futures::join!(writing, ending);
}
