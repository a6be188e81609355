//! What only a real server can show: values through the driver, fences against
//! a mover that sleeps, a journal that rolls over, collection by the server.

mod tables;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine_api::layout::{Collection, Field, Fields, Scope, Table, TableOptions, Value};
use engine_api::{
    Authority, Change, Engine, EngineError, Fence, Freshness, Generation, JournalEvent, MoverTerm,
    Outcome, PartKey, ReadContext, RealWorld, Record, RecordId, RecordKey, Revision, Timestamp,
    World, WriteContext, Writer, expiry_fields,
};
use engine_mongo::{MongoConfig, MongoEngine, OpenError};
use mongodb::Client;
use mongodb::bson::{Document, doc};
use testbed::{Members, MongoSet, required_or_skip};

fn set() -> Option<MongoSet> {
    required_or_skip(testbed::mongo(Members::One), "MongoDB")
}

async fn open(uri: &str, database: &str) -> MongoEngine {
    MongoEngine::open(MongoConfig::new(uri, database, tables::all()))
        .await
        .expect("the server is up")
}

fn now() -> Timestamp {
    RealWorld::new().now()
}

fn router(generation: u64) -> WriteContext {
    let authority = Authority::Router {
        generation: Generation(generation),
    };
    WriteContext {
        authority,
        now: now(),
        revision: Revision::at(now(), Writer::numbered(0)),
    }
}

fn reader() -> ReadContext {
    ReadContext {
        now: now(),
        freshness: Freshness::Latest,
    }
}

fn session_key(id: &str) -> RecordKey {
    RecordKey::by_id(
        Collection::Sessions,
        RecordId::new(id).expect("tests use short ids"),
    )
}

fn session_header(id: &str) -> Fields {
    Fields::new()
        .with(Field::SessionId, Value::text(id))
        .with(Field::Status, Value::text("open"))
        .with(
            Field::CreatedAt,
            Value::Timestamp(Timestamp::from_unix_micros(1_700_000_000_123_457)),
        )
}

fn create(id: &str, header: Fields, parts: Vec<(PartKey, Fields)>) -> Change {
    Change::CreateIfAbsent {
        key: session_key(id),
        header,
        parts,
    }
}

async fn stored(engine: &MongoEngine, id: &str) -> Option<Record> {
    engine
        .get(&session_key(id), reader())
        .await
        .expect("the server answers")
}

fn fence(generation: u64) -> Fence {
    Fence {
        collection: Collection::Sessions,
        scope: Scope::All,
        generation: Generation(generation),
    }
}

fn term(term: u64) -> MoverTerm {
    MoverTerm {
        move_name: "split".to_owned(),
        term,
    }
}

#[tokio::test]
async fn every_kind_of_value_survives_the_server() {
    let Some(set) = set() else { return };
    let engine = open(&set.uri(), &set.database("values")).await;
    let nested = vec![
        Value::text("zero\0byte, я, $where, a.b"),
        Value::Int(i64::MIN),
        Value::Decimal("-79228162514264337593543950335".parse().unwrap()),
        Value::Decimal("0.0000000000000000000000000001".parse().unwrap()),
        Value::Timestamp(Timestamp::from_unix_micros(i64::MAX)),
        Value::Inet("2001:db8::1".parse().unwrap()),
        Value::Blob(vec![0, 255]),
        Value::List(vec![Value::Map(BTreeMap::from([(
            String::new(),
            Value::List(vec![]),
        )]))]),
    ];
    let keys = ["", "a.b", "$set", "\0", "plain", "_id", "я", "$"].map(str::to_owned);
    let header = session_header("S-1")
        .with(Field::IpAddress, Value::Inet("10.0.0.1".parse().unwrap()))
        .with(
            Field::SessionData,
            Value::Map(keys.into_iter().zip(nested).collect()),
        );
    let context = router(1);
    let outcome = engine
        .apply(create("S-1", header.clone(), vec![]), context.clone())
        .await
        .unwrap();
    assert_eq!(
        outcome,
        Outcome::Done {
            revision: context.revision
        }
    );
    assert_eq!(
        stored(&engine, "S-1").await.unwrap().header.content.live(),
        Some(&header)
    );
}

#[tokio::test]
async fn opening_twice_changes_nothing_and_fences_stay() {
    let Some(set) = set() else { return };
    let database = set.database("reopened");
    let first = open(&set.uri(), &database).await;
    first.claim_term(term(1)).await.unwrap();
    first.raise_fence(fence(5), term(1), now()).await.unwrap();
    let second = open(&set.uri(), &database).await;
    let refused = second
        .apply(create("S-1", session_header("S-1"), vec![]), router(4))
        .await;
    assert_eq!(
        refused,
        Err(EngineError::Fenced {
            used: Generation(4),
            fence: Generation(5)
        })
    );
    assert!(
        second
            .apply(create("S-1", session_header("S-1"), vec![]), router(5))
            .await
            .unwrap()
            .is_done()
    );
}

#[tokio::test]
async fn engines_that_open_one_new_database_at_once_agree() {
    let Some(set) = set() else { return };
    let database = set.database("raced");
    let uri = set.uri();
    let opening = (0..4).map(|_| open(&uri, &database));
    let engines = futures::future::join_all(opening).await;
    engines[0].claim_term(term(1)).await.unwrap();
    engines[1]
        .raise_fence(fence(2), term(1), now())
        .await
        .unwrap();
    let refused = engines[3]
        .apply(create("S-1", session_header("S-1"), vec![]), router(1))
        .await;
    assert_eq!(
        refused,
        Err(EngineError::Fenced {
            used: Generation(1),
            fence: Generation(2)
        })
    );
}

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

/// Lets the next commands of our engine fail in a way that only networks and time can.
async fn fail_next(client: &Client, times: i32, command: &str, how: Document) {
    let mut data = doc! { "failCommands": [command], "appName": "caravan" };
    data.extend(how);
    let point =
        doc! { "configureFailPoint": "failCommand", "mode": { "times": times }, "data": data };
    client
        .database("admin")
        .run_command(point)
        .await
        .expect("a test server has fail points");
}

#[tokio::test]
async fn lost_answers_are_unknown_and_the_same_change_again_has_one_effect() {
    let Some(set) = required_or_skip(MongoSet::exclusive(Members::One), "MongoDB") else {
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
async fn a_position_that_the_oplog_forgot_is_lost_loudly() {
    let Some(set) = required_or_skip(MongoSet::exclusive(Members::One), "MongoDB") else {
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

#[tokio::test]
async fn a_paused_server_is_unavailable_and_a_change_sent_again_is_done() {
    let Some(set) = required_or_skip(MongoSet::exclusive(Members::One), "MongoDB") else {
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
async fn a_server_that_is_not_there_is_unavailable_and_nothing_is_sent() {
    let uri = "mongodb://127.0.0.1:1/?replicaSet=rs0";
    let config = MongoConfig {
        selection_ms_max: 200,
        ..MongoConfig::new(uri, "nowhere", tables::all())
    };
    let refused = MongoEngine::open(config).await.unwrap_err();
    assert!(
        matches!(refused, OpenError::Engine(EngineError::Unavailable { .. })),
        "{refused}"
    );
}

#[tokio::test]
async fn tables_that_cannot_be_kept_are_refused_before_anything_is_asked() {
    let open =
        |tables| MongoEngine::open(MongoConfig::new("mongodb://127.0.0.1:1", "nowhere", tables));
    let orphan = tables::derived("sessions_by_user", Collection::Sessions, &[Field::UserId]);
    let refused = open(vec![orphan]).await.unwrap_err();
    assert_eq!(
        refused,
        OpenError::NoAuthority {
            collection: Collection::Sessions
        }
    );
    let month = Table {
        partition: vec![engine_api::layout::KeyColumn::Month(Field::CreatedAt)],
        ..tables::derived("sessions_by_month", Collection::Sessions, &[])
    };
    let refused = open(vec![tables::authority(Collection::Sessions), month])
        .await
        .unwrap_err();
    assert!(
        matches!(refused, OpenError::TableRefused { .. }),
        "{refused}"
    );
}
