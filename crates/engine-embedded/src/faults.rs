//! A log and tables that fail on purpose, and what the engine makes of it.

use std::fs;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use engine_api::layout::{Collection, Field, Fields, Value};
use engine_api::{
    Authority, Change, Engine, EngineError, Freshness, Generation, Outcome, ReadContext, Record,
    RecordId, RecordKey, Remedy, Revision, Timestamp, WriteContext, Writer,
};

use crate::batch::{Batch, Space};
use crate::directory::FREE_BYTES_MIN;
use crate::engine::{EmbeddedConfig, EmbeddedEngine, Sizes};
use crate::log::{CommitLog, Log};
use crate::segment::Sequence;
use crate::state::position;
use crate::store::Store;

/// Appends until the group with this number, which fails.
#[derive(Debug)]
struct Failing {
    inner: CommitLog,
    appends: u64,
    fails_at: u64,
    error: fn() -> io::Error,
    /// Whether the failing group reaches the disk although it reports an error.
    reaches_the_disk: Reach,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Nothing,
    Everything,
}

impl Log for Failing {
    fn write(&mut self, batches: &[Batch]) -> io::Result<Sequence> {
        self.appends += 1;
        if self.appends < self.fails_at || self.reaches_the_disk == Reach::Everything {
            return self.inner.write(batches);
        }
        Err((self.error)())
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.appends < self.fails_at {
            return self.inner.sync();
        }
        Err((self.error)())
    }
}

fn open(path: &Path, sizes: Sizes, wrap: impl FnOnce(CommitLog) -> Box<dyn Log>) -> EmbeddedEngine {
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
    EmbeddedEngine::open_with(&config, sizes, wrap).unwrap()
}

const SMALL: Sizes = Sizes {
    segment_bytes: 64 * 1024,
    memory_bytes: 32 * 1024,
};

fn engine(
    folder: &tempfile::TempDir,
    fails_at: u64,
    error: fn() -> io::Error,
    reaches_the_disk: Reach,
) -> EmbeddedEngine {
    open(folder.path(), SMALL, |inner| {
        Box::new(Failing {
            inner,
            appends: 0,
            fails_at,
            error,
            reaches_the_disk,
        })
    })
}

fn session_key(number: u64) -> RecordKey {
    RecordKey::by_id(
        Collection::Sessions,
        RecordId::new(format!("SESS-{number}")).unwrap(),
    )
}

async fn open_session(engine: &EmbeddedEngine, number: u64) -> Result<Outcome, EngineError> {
    let now = Timestamp::from_unix_micros(1_000_000 + number as i64 * 1000);
    let key = session_key(number);
    let header = Fields::new()
        .with(Field::SessionId, Value::text(key.id.as_str()))
        .with(Field::Status, Value::text("open"))
        .with(Field::CreatedAt, Value::Timestamp(now));
    let context = WriteContext {
        authority: Authority::Router {
            generation: Generation(1),
        },
        now,
        revision: Revision::at(now, Writer::numbered(0)),
    };
    engine
        .apply(
            Change::CreateIfAbsent {
                key,
                header,
                parts: Vec::new(),
            },
            context,
        )
        .await
}

async fn read(engine: &EmbeddedEngine, number: u64) -> Option<Record> {
    let context = ReadContext {
        now: Timestamp::from_unix_micros(0),
        freshness: Freshness::Latest,
    };
    engine.get(&session_key(number), context).await.unwrap()
}

fn broken() -> io::Error {
    io::Error::other("the disk is broken")
}

fn full() -> io::Error {
    io::Error::from(io::ErrorKind::StorageFull)
}

#[tokio::test]
async fn a_failed_commit_is_never_acknowledged_and_nothing_follows_it() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(&folder, 3, broken, Reach::Nothing);
    for number in 1..=2 {
        assert!(open_session(&engine, number).await.unwrap().is_done());
    }
    let lost = open_session(&engine, 3).await.unwrap_err();
    assert_eq!(lost.remedy(), Remedy::ReadBack, "{lost}");
    let refused = open_session(&engine, 4).await.unwrap_err();
    assert!(
        matches!(refused, EngineError::Unavailable { .. }),
        "{refused}"
    );
    assert!(read(&engine, 2).await.is_some());
    assert!(read(&engine, 3).await.is_none());
    assert!(read(&engine, 4).await.is_none());
    drop(engine);
    let engine = open(folder.path(), SMALL, |log| Box::new(log));
    assert!(read(&engine, 2).await.is_some());
    assert!(read(&engine, 3).await.is_none());
}

#[tokio::test]
async fn a_commit_that_failed_after_reaching_the_disk_is_unknown_not_refused() {
    let folder = tempfile::tempdir().unwrap();
    let lost = {
        let engine = engine(&folder, 1, broken, Reach::Everything);
        let lost = open_session(&engine, 1).await.unwrap_err();
        assert!(read(&engine, 1).await.is_none(), "shown without its sync");
        let journal = engine.journal_read(&position(0), 10).await.unwrap();
        assert!(journal.entries.is_empty(), "shown without its sync");
        lost
    };
    assert!(matches!(lost, EngineError::OutcomeUnknown { .. }), "{lost}");
    let engine = engine(&folder, u64::MAX, broken, Reach::Nothing);
    assert!(read(&engine, 1).await.is_some());
    assert!(
        open_session(&engine, 1).await.unwrap().is_done(),
        "the same change sent again"
    );
}

#[tokio::test]
async fn a_full_disk_is_named_and_what_was_acknowledged_stays() {
    let folder = tempfile::tempdir().unwrap();
    {
        let engine = engine(&folder, 2, full, Reach::Nothing);
        assert!(open_session(&engine, 1).await.unwrap().is_done());
        assert!(matches!(
            open_session(&engine, 2).await,
            Err(EngineError::OutcomeUnknown { .. })
        ));
        let refused = open_session(&engine, 3).await.unwrap_err();
        assert!(
            matches!(refused, EngineError::StorageFull { .. }),
            "{refused}"
        );
        assert!(refused.to_string().contains("free space"), "{refused}");
    }
    let engine = engine(&folder, u64::MAX, full, Reach::Nothing);
    assert!(read(&engine, 1).await.is_some());
    assert!(open_session(&engine, 2).await.unwrap().is_done());
}

/// Nobody tidies up meanwhile: what is refused is itself the reason to look for room again.
#[tokio::test]
async fn writes_are_refused_near_the_end_of_the_disk_and_taken_again_once_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path(), SMALL, |log| Box::new(log));
    assert_eq!(engine.refuses_writes(), None);
    engine.pretend_free(FREE_BYTES_MIN - 1);
    let told = engine.refuses_writes().unwrap();
    assert!(matches!(told, EngineError::StorageFull { .. }), "{told}");
    let mut number = 0;
    let refused = loop {
        number += 1;
        match open_session(&engine, number).await {
            Ok(outcome) => assert!(outcome.is_done()),
            Err(error) => break error,
        }
        assert!(number < 1_000, "the disk is full, and nobody looks");
    };
    assert_eq!(refused, told, "who asks is told what a write is told");
    assert!(
        open_session(&engine, number).await.is_err(),
        "it stays full"
    );
    engine.pretend_free(FREE_BYTES_MIN);
    assert_eq!(engine.refuses_writes(), None);
    let mut refusals = 0;
    while open_session(&engine, number).await.is_err() {
        refusals += 1;
        assert!(refusals < 100, "there is room, and nobody looks");
    }
    for known in 1..=number {
        assert!(read(&engine, known).await.is_some(), "{known}");
    }
}

/// A log whose disk takes as long as the test wants.
#[derive(Debug)]
struct Slow {
    inner: CommitLog,
    written: SyncSender<()>,
    synced: Receiver<()>,
}

impl Log for Slow {
    fn write(&mut self, batches: &[Batch]) -> io::Result<Sequence> {
        self.inner.write(batches)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.written.send(()).map_err(io::Error::other)?;
        self.synced.recv().map_err(io::Error::other)?;
        self.inner.sync()
    }
}

#[tokio::test]
async fn nothing_is_seen_or_acknowledged_before_its_sync() {
    let folder = tempfile::tempdir().unwrap();
    let (written, is_written) = sync_channel(0);
    let (sync, synced) = sync_channel(0);
    let engine = open(folder.path(), SMALL, |inner| {
        Box::new(Slow {
            inner,
            written,
            synced,
        })
    });
    // Dropped before the engine, which waits for its log: a failing test must end.
    let (is_written, sync) = (is_written, sync);
    let mut answer = std::pin::pin!(open_session(&engine, 1));
    let moment = Duration::from_millis(20);
    let early = tokio::time::timeout(moment, &mut answer).await;
    assert!(early.is_err(), "acknowledged before its sync");
    is_written.recv().unwrap();
    assert!(read(&engine, 1).await.is_none());
    let mut repeat = std::pin::pin!(open_session(&engine, 1));
    let early = tokio::time::timeout(moment, &mut repeat).await;
    assert!(early.is_err(), "answered from what is not on disk");
    sync.send(()).unwrap();
    assert!(answer.await.unwrap().is_done());
    assert!(repeat.await.unwrap().is_done());
    assert!(read(&engine, 1).await.is_some());
}

#[tokio::test]
async fn segments_and_memory_go_round_many_times_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    for round in 0..3 {
        let engine = open(folder.path(), SMALL, |log| Box::new(log));
        for number in round * 400..(round + 1) * 400 {
            assert!(open_session(&engine, number).await.unwrap().is_done());
        }
        for number in (0..(round + 1) * 400).step_by(7) {
            assert!(read(&engine, number).await.is_some(), "{number}");
        }
        let count = || fs::read_dir(&log).unwrap().count();
        // On a busy machine checkpoints come later than they are due.
        for _ in 0..1_000 {
            if count() <= 16 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let segments = count();
        assert!((2..=16).contains(&segments), "{segments} segments");
    }
    let engine = open(folder.path(), SMALL, |log| Box::new(log));
    for number in 0..1200 {
        assert!(read(&engine, number).await.is_some(), "{number}");
    }
}

#[tokio::test]
async fn at_rest_everything_stands_in_tables_and_the_log_has_nothing_to_add() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path(), Sizes::default(), |log| Box::new(log));
    for number in 0..50 {
        assert!(open_session(&engine, number).await.unwrap().is_done());
    }
    engine.rest().await.unwrap();
    assert!(read(&engine, 49).await.is_some());
    drop(engine);
    let store = Store::open(&folder.path().join("data"), 1 << 20).unwrap();
    assert_eq!(
        store.checkpoint().unwrap().0,
        51,
        "the tables, then sessions"
    );
    let rows = store
        .view()
        .range(Space::Records, Bound::Unbounded, Bound::Unbounded);
    assert_eq!(rows.count(), 50);
}

#[tokio::test]
async fn a_checkpoint_that_fails_stops_the_engine_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let tables = folder.path().join("data/records/tables");
    let away = folder.path().join("data/records/away");
    let engine = open(folder.path(), SMALL, |log| Box::new(log));
    fs::rename(&tables, &away).unwrap();
    let mut done = 0;
    let refused = loop {
        match open_session(&engine, done).await {
            Ok(outcome) => assert!(outcome.is_done()),
            Err(error) => break error,
        }
        done += 1;
        assert!(done < 100_000, "the failure was not noticed");
    };
    assert!(
        refused.to_string().contains("a checkpoint failed"),
        "{refused}"
    );
    assert!(engine.rest().await.is_err());
    drop(engine);
    fs::rename(&away, &tables).unwrap();
    let engine = open(folder.path(), SMALL, |log| Box::new(log));
    for number in 0..done {
        assert!(read(&engine, number).await.is_some(), "{number}");
    }
}
