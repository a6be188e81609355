//! A store that fails on purpose, and what the engine makes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine_api::layout::{Collection, Field, Fields, Value};
use engine_api::{
    Authority, Change, Engine, EngineError, Freshness, Generation, Outcome, ReadContext, Record,
    RecordId, RecordKey, Remedy, Revision, Timestamp, WriteContext, Writer,
};
use fjall::Slice;

use crate::engine::EmbeddedEngine;
use crate::store::{Batch, FjallStore, Space, Store, StoreError, View};
use crate::tables::Tables;

/// Commits until the commit with this number, which fails.
#[derive(Debug)]
struct Failing {
    inner: FjallStore,
    commits: AtomicU64,
    fails_at: u64,
    error: fn() -> std::io::Error,
    /// Whether the failing commit reaches the disk although it reports an error.
    reaches_the_disk: Reach,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Nothing,
    Everything,
}

impl Store for Failing {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        self.inner.get(space, key)
    }

    fn view(&self) -> Box<dyn View> {
        self.inner.view()
    }

    fn last_key(&self, space: Space) -> Result<Option<Slice>, StoreError> {
        self.inner.last_key(space)
    }

    fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        if self.commits.fetch_add(1, Ordering::SeqCst) + 1 < self.fails_at {
            return self.inner.commit(batch);
        }
        if self.reaches_the_disk == Reach::Everything {
            self.inner.commit(batch)?;
        }
        Err(StoreError::Io((self.error)()))
    }
}

fn tables() -> Tables {
    let layout = engine_api::layout::embedded();
    let tables: Vec<_> = layout
        .collections
        .values()
        .flat_map(|kept| kept.live.tables.clone())
        .collect();
    Tables::new(&tables).unwrap()
}

fn engine(
    folder: &tempfile::TempDir,
    fails_at: u64,
    error: fn() -> std::io::Error,
    reaches_the_disk: Reach,
) -> EmbeddedEngine {
    let inner = FjallStore::open(&folder.path().join("data"), 1 << 20).unwrap();
    let store = Failing {
        inner,
        commits: AtomicU64::new(0),
        fails_at,
        error,
        reaches_the_disk,
    };
    EmbeddedEngine::start(Arc::new(store), tables(), None).unwrap()
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

fn broken() -> std::io::Error {
    std::io::Error::other("the disk is broken")
}

fn full() -> std::io::Error {
    std::io::Error::from(std::io::ErrorKind::StorageFull)
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
}

#[tokio::test]
async fn a_commit_that_failed_after_reaching_the_disk_is_unknown_not_refused() {
    let folder = tempfile::tempdir().unwrap();
    let lost = {
        let engine = engine(&folder, 1, broken, Reach::Everything);
        open_session(&engine, 1).await.unwrap_err()
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
