//! How long the journal is, told without reading it.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use engine_api::layout::{Collection, Field, Fields, Value};
use engine_api::{
    Authority, Change, Engine, EngineError, Generation, Maintenance, Outcome, RecordId, RecordKey,
    Revision, Timestamp, WriteContext, Writer,
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
    let (change, context) = creation(number);
    let outcome = engine.apply(change, context).await.unwrap();
    assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
}

fn creation(number: i64) -> (Change, WriteContext) {
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
    (change, context)
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

/// A group is one row, and a reader may have stopped in the middle of it.
#[tokio::test]
async fn a_position_inside_a_group_is_as_good_as_any() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path());
    let start = engine.journal_end().await.unwrap();
    for group in [1..4, 4..9, 9..10] {
        let (changes, contexts): (Vec<Change>, Vec<WriteContext>) = group.map(creation).unzip();
        let last = contexts.last().unwrap().clone();
        let outcome = engine.apply_together(changes, last).await.unwrap();
        assert!(outcome.is_done(), "{outcome:?}");
    }
    let whole = engine.journal_read(&start, 100).await.unwrap();
    assert_eq!(whole.entries.len(), 9);
    for limit in 1..=9 {
        let mut from = start.clone();
        let mut read = Vec::new();
        while read.len() < 9 {
            let page = engine.journal_read(&from, limit).await.unwrap();
            assert!(page.entries.len() <= limit);
            read.extend(page.entries);
            from = page.next;
        }
        assert_eq!(read, whole.entries, "{limit} at a time");
    }
    // The middle group is trimmed as a whole, and not while one entry is young enough.
    assert_eq!(trim(&engine, 8).await, 3);
    let inside = &whole.entries[4].position;
    let rest = engine.journal_read(inside, 100).await.unwrap();
    assert_eq!(rest.entries, whole.entries[5..]);
    assert_eq!(trim(&engine, 100).await, 5);
    let lost = engine.journal_read(inside, 100).await;
    assert_eq!(lost, Err(EngineError::PositionLost));
    let before_last = &whole.entries[7].position;
    let rest = engine.journal_read(before_last, 100).await.unwrap();
    assert_eq!(rest.entries, whole.entries[8..]);
}
