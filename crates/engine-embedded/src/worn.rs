//! An engine whose records are changed all the time: bounded on disk, and whole after a crash
//! between any two steps of a checkpoint.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use engine_api::layout::{Collection, Field, Fields, Value};
use engine_api::{
    Authority, Change, Content, Engine, EngineError, Freshness, Generation, Outcome, PartsChange,
    ReadContext, Record, RecordId, RecordKey, Revision, Timestamp, WriteContext, Writer,
};

use crate::directory::OpenError;
use crate::engine::{EmbeddedConfig, EmbeddedEngine, Sizes};
use crate::store::Step;

const SMALL: Sizes = Sizes {
    segment_bytes: 64 * 1024,
    memory_bytes: 16 * 1024,
};

fn open(path: &Path) -> Result<EmbeddedEngine, OpenError> {
    let layout = engine_api::layout::embedded();
    let tables = layout
        .collections
        .values()
        .flat_map(|kept| kept.live.tables.clone())
        .collect();
    let config = EmbeddedConfig {
        path: path.to_owned(),
        tables,
        cache_bytes: 1 << 20,
    };
    EmbeddedEngine::open_with(&config, SMALL, |log| Box::new(log))
}

fn key(number: u64) -> RecordKey {
    let id = RecordId::new(format!("SESS-{number}")).unwrap();
    RecordKey::by_id(Collection::Sessions, id)
}

/// Session `number` as its change `turn` leaves it.
async fn write(engine: &EmbeddedEngine, number: u64, turn: u64) -> Result<Outcome, EngineError> {
    let at = |turn: u64| Timestamp::from_unix_micros(1_000_000 + turn as i64 * 1000);
    let revision = |turn: u64| Revision::at(at(turn), Writer::numbered(0));
    let key = key(number);
    let header = Fields::new()
        .with(Field::SessionId, Value::text(key.id.as_str()))
        .with(Field::Status, Value::text(format!("{turn:0>300}")))
        .with(Field::CreatedAt, Value::Timestamp(at(0)));
    let change = match turn {
        0 => Change::CreateIfAbsent {
            key,
            header,
            parts: Vec::new(),
        },
        turn => Change::ChangeIf {
            key,
            expected: revision(turn - 1),
            header,
            parts: PartsChange::Keep,
        },
    };
    let context = WriteContext {
        authority: Authority::Router {
            generation: Generation(1),
        },
        now: at(turn),
        revision: revision(turn),
    };
    engine.apply(change, context).await
}

async fn read(engine: &EmbeddedEngine, number: u64) -> Result<Option<Record>, EngineError> {
    let context = ReadContext {
        now: Timestamp::from_unix_micros(0),
        freshness: Freshness::Latest,
    };
    engine.get(&key(number), context).await
}

/// The turn that the session shows.
async fn turn(engine: &EmbeddedEngine, number: u64) -> Option<u64> {
    let record = read(engine, number).await.unwrap()?;
    let Content::Live(header) = record.header.content else {
        return None;
    };
    header.text(Field::Status)?.parse().ok()
}

fn bodies_bytes(path: &Path) -> u64 {
    let files = fs::read_dir(path.join("data/bodies")).unwrap();
    files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum()
}

fn first_file(path: &Path) -> std::path::PathBuf {
    let files = fs::read_dir(path.join("data/bodies")).unwrap();
    files.map(|file| file.unwrap().path()).min().unwrap()
}

/// One session changed with every step, and now and then another that stays as it is.
const STEPS: u64 = 900;
const COLD_EVERY: u64 = 15;

/// No session takes more in a file of bodies.
const ENTRY_BYTES: u64 = 400;

fn living_bytes(step: u64) -> u64 {
    (step / COLD_EVERY + 2) * ENTRY_BYTES
}

#[tokio::test]
async fn a_record_that_is_changed_all_the_time_does_not_fill_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path()).unwrap();
    for step in 0..STEPS {
        assert!(write(&engine, 0, step).await.unwrap().is_done());
        if step % COLD_EVERY == 0 {
            assert!(write(&engine, 1 + step, 0).await.unwrap().is_done());
        }
        if step % 100 == 99 {
            engine.rest().await.unwrap();
            let (bytes, living) = (bodies_bytes(folder.path()), living_bytes(step));
            assert!(
                bytes <= 2 * living,
                "{bytes} bytes, {living} of them living"
            );
        }
    }
    assert!(
        2 * living_bytes(STEPS) < STEPS * ENTRY_BYTES / 4,
        "the test is too short to show anything"
    );
    drop(engine);
    let engine = open(folder.path()).unwrap();
    assert_eq!(turn(&engine, 0).await, Some(STEPS - 1));
    for step in (0..STEPS).step_by(COLD_EVERY as usize) {
        assert_eq!(turn(&engine, 1 + step).await, Some(0), "{step}");
    }
}

#[tokio::test]
async fn a_checkpoint_cut_off_anywhere_loses_nothing() {
    for cut in [
        Step::BodiesWritten,
        Step::PlacesWritten,
        Step::TablesWritten,
        Step::FilesDeleted,
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (mut step, mut cold) = (0_u64, Vec::new());
        // The second cut falls into what the first one left behind.
        for _ in 0..3 {
            let engine = open(folder.path()).unwrap();
            for number in &cold {
                assert_eq!(turn(&engine, *number).await, Some(0), "{cut:?}");
            }
            let known = turn(&engine, 0).await;
            assert_eq!(known, step.checked_sub(1), "{cut:?}");
            let begun = step;
            loop {
                if step == begun + 150 {
                    engine.cut_off(cut);
                }
                if write(&engine, 0, step).await.is_err() {
                    break;
                }
                step += 1;
                if step % COLD_EVERY == 0 {
                    match write(&engine, 1 + step, 0).await {
                        Ok(_) => cold.push(1 + step),
                        Err(_) => break,
                    }
                }
                assert!(step < begun + 10_000, "{cut:?} is never reached");
            }
        }
        let engine = open(folder.path()).unwrap();
        assert_eq!(turn(&engine, 0).await, step.checked_sub(1), "{cut:?}");
        engine.rest().await.unwrap();
        for number in &cold {
            assert_eq!(turn(&engine, *number).await, Some(0), "{cut:?}");
        }
        let (bytes, living) = (bodies_bytes(folder.path()), living_bytes(step));
        assert!(
            bytes <= 2 * living,
            "{cut:?}: {bytes} bytes, {living} living"
        );
    }
}

async fn ten_sessions_at_rest(path: &Path) {
    let engine = open(path).unwrap();
    for number in 0..10 {
        assert!(write(&engine, number, 0).await.unwrap().is_done());
    }
    engine.rest().await.unwrap();
}

#[tokio::test]
async fn a_missing_or_shortened_file_of_bodies_is_refused_and_nothing_is_touched() {
    for shorten in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        ten_sessions_at_rest(folder.path()).await;
        let path = first_file(folder.path());
        let bytes = fs::read(&path).unwrap();
        match shorten {
            true => fs::write(&path, &bytes[..bytes.len() - 1]).unwrap(),
            false => fs::remove_file(&path).unwrap(),
        }
        let error = open(folder.path()).unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
        let what = "00000001.bodies, which is missing or cut short): restore";
        assert!(error.to_string().contains(what), "{error}");
        fs::write(&path, &bytes).unwrap();
        let engine = open(folder.path()).unwrap();
        assert_eq!(turn(&engine, 9).await, Some(0));
    }
}

#[tokio::test]
async fn a_damaged_body_is_named_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    ten_sessions_at_rest(folder.path()).await;
    let path = first_file(folder.path());
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let engine = open(folder.path()).unwrap();
    assert_eq!(turn(&engine, 8).await, Some(0));
    let error = read(&engine, 9).await.unwrap_err();
    assert!(matches!(error, EngineError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("00000001.bodies"), "{error}");
}
