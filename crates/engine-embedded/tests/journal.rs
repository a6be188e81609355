//! How long the journal is, told without reading it.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use engine_api::layout::{Collection, Field, Fields, Value};
use engine_api::{
    Authority, Change, Engine, Generation, Maintenance, Outcome, RecordId, RecordKey, Revision,
    Timestamp, WriteContext, Writer,
};
use engine_embedded::{EmbeddedConfig, EmbeddedEngine};

fn open(path: &Path) -> EmbeddedEngine {
    let collections = engine_api::layout::embedded().collections.into_values();
    EmbeddedEngine::open(EmbeddedConfig {
        path: path.to_owned(),
        tables: collections.flat_map(|kept| kept.live.tables).collect(),
        cache_bytes: 1 << 20,
    })
    .unwrap()
}

fn second(number: i64) -> Timestamp {
    Timestamp::from_unix_micros(number * 1_000_000)
}

/// One session, and with it one entry of the journal, written at that second.
async fn write(engine: &EmbeddedEngine, number: i64) {
    let now = second(number);
    let id = RecordId::new(format!("SESS-{number}")).unwrap();
    let header = Fields::new()
        .with(Field::SessionId, Value::text(id.as_str()))
        .with(Field::Status, Value::text("open"))
        .with(Field::CreatedAt, Value::Timestamp(now));
    let change = Change::CreateIfAbsent {
        key: RecordKey::by_id(Collection::Sessions, id),
        header,
        parts: Vec::new(),
    };
    let context = WriteContext {
        authority: Authority::Router {
            generation: Generation(1),
        },
        now,
        revision: Revision::at(now, Writer::numbered(0)),
    };
    let outcome = engine.apply(change, context).await.unwrap();
    assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
}

async fn trim(engine: &EmbeddedEngine, before: i64) -> usize {
    let work = Maintenance {
        now: second(0),
        marks_before: second(0),
        journal_before: second(before),
        items_max: 1000,
    };
    engine.maintain(work).await.unwrap().journal_entries
}

#[tokio::test]
async fn the_length_follows_writing_and_trimming_and_outlives_closing() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path());
    assert_eq!(engine.journal_entries(), 0);
    for number in 1..=10 {
        write(&engine, number).await;
    }
    assert_eq!(engine.journal_entries(), 10);
    assert_eq!(trim(&engine, 7).await, 6);
    assert_eq!(engine.journal_entries(), 4);
    drop(engine);

    let engine = open(folder.path());
    assert_eq!(engine.journal_entries(), 4);
    write(&engine, 11).await;
    assert_eq!(engine.journal_entries(), 5);
    // The last entry is never trimmed: numbers go on after it.
    assert_eq!(trim(&engine, 100).await, 4);
    assert_eq!(engine.journal_entries(), 1);
    engine.rest().await.unwrap();
    drop(engine);
    assert_eq!(open(folder.path()).journal_entries(), 1);
}
