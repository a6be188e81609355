//! The narrow face behind which the storage library stands.
//!
//! Ordered bytes in a few spaces, snapshots, and one durable atomic commit:
//! all the engine asks for, so that the choice of library stays open and tests
//! can put a store that fails in its place.

use std::fmt::Debug;
use std::io;
use std::ops::Bound;
use std::path::Path;

use fjall::config::CompressionPolicy;
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode,
    Readable, Slice, Snapshot,
};

/// Separate key spaces; a commit spans them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Space {
    /// Record bodies, by collection and id.
    Records,
    /// Parts that stand apart from their record's body.
    Parts,
    /// Rows of derived tables, which point to bodies.
    Paths,
    Journal,
    /// When something falls due: expiry, age of marks.
    Due,
    /// Fences, terms, control values, tables.
    Meta,
}

impl Space {
    pub(crate) const ALL: [Space; 6] = [
        Space::Records,
        Space::Parts,
        Space::Paths,
        Space::Journal,
        Space::Due,
        Space::Meta,
    ];

    const fn name(self) -> &'static str {
        match self {
            Space::Records => "records",
            Space::Parts => "parts",
            Space::Paths => "paths",
            Space::Journal => "journal",
            Space::Due => "due",
            Space::Meta => "meta",
        }
    }
}

/// What one commit writes: a value, or `None` for a removal.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub writes: Vec<(Space, Vec<u8>, Option<Vec<u8>>)>,
}

impl Batch {
    pub(crate) fn put(&mut self, space: Space, key: Vec<u8>, value: Vec<u8>) {
        self.writes.push((space, key, Some(value)));
    }

    pub(crate) fn remove(&mut self, space: Space, key: Vec<u8>) {
        self.writes.push((space, key, None));
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Library(String),
    /// The library met an error of the disk, perhaps in the background, and
    /// writes no more until it is opened anew.
    #[error("an earlier write to the disk failed; check the disk and its free space")]
    Stopped,
    #[error("another process has it open")]
    Locked,
}

pub(crate) type Row = (Slice, Slice);
pub(crate) type Rows = Box<dyn Iterator<Item = Result<Row, StoreError>> + Send>;

/// One unchanging sight of the store.
pub(crate) trait View: Send {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, StoreError>;
    fn range(&self, space: Space, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Rows;
}

pub(crate) trait Store: Send + Sync + Debug {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, StoreError>;
    fn view(&self) -> Box<dyn View>;
    fn last_key(&self, space: Space) -> Result<Option<Slice>, StoreError>;
    /// Everything or nothing, on disk when it answers. After an error the
    /// store is not to be written again until it was opened anew.
    fn commit(&self, batch: Batch) -> Result<(), StoreError>;
}

#[derive(Clone)]
pub(crate) struct FjallStore {
    database: Database,
    spaces: Vec<Keyspace>,
}

impl FjallStore {
    pub(crate) fn open(path: &Path, cache_bytes: u64) -> Result<FjallStore, StoreError> {
        let database = Database::builder(path)
            .cache_size(cache_bytes)
            .worker_threads(1)
            .max_journaling_size(JOURNALING_BYTES_MAX)
            .open()?;
        let space = |space: Space| {
            let options = || {
                KeyspaceCreateOptions::default()
                    .max_memtable_size(MEMTABLE_BYTES_MAX)
                    .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
            };
            database.keyspace(space.name(), options)
        };
        let spaces = Space::ALL
            .into_iter()
            .map(space)
            .collect::<Result<_, _>>()?;
        Ok(FjallStore { database, spaces })
    }

    fn space(&self, space: Space) -> &Keyspace {
        &self.spaces[space as usize]
    }
}

/// Larger ones mean fewer flushes while writers wait, but more memory.
const MEMTABLE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// What is replayed when the directory is opened after a crash, at most.
const JOURNALING_BYTES_MAX: u64 = 112 * 1024 * 1024;

impl Store for FjallStore {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        Ok(self.space(space).get(key)?)
    }

    fn view(&self) -> Box<dyn View> {
        Box::new(FjallView {
            snapshot: self.database.snapshot(),
            store: self.clone(),
        })
    }

    fn last_key(&self, space: Space) -> Result<Option<Slice>, StoreError> {
        self.space(space)
            .last_key_value()
            .map(|row| Ok(row.key()?))
            .transpose()
    }

    fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        let mut writes = OwnedWriteBatch::with_capacity(self.database.clone(), batch.writes.len())
            .durability(Some(PersistMode::SyncData));
        for (space, key, value) in batch.writes {
            match value {
                Some(value) => writes.insert(self.space(space), key, value),
                None => writes.remove(self.space(space), key),
            }
        }
        Ok(writes.commit()?)
    }
}

impl Debug for FjallStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FjallStore")
    }
}

struct FjallView {
    snapshot: Snapshot,
    store: FjallStore,
}

impl View for FjallView {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        Ok(self.snapshot.get(self.store.space(space), key)?)
    }

    fn range(&self, space: Space, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Rows {
        let rows = self.snapshot.range(self.store.space(space), (from, to));
        Box::new(rows.map(|row| Ok(row.into_inner()?)))
    }
}

impl From<fjall::Error> for StoreError {
    fn from(error: fjall::Error) -> StoreError {
        match error {
            fjall::Error::Io(error) => StoreError::Io(error),
            fjall::Error::Locked => StoreError::Locked,
            fjall::Error::Poisoned => StoreError::Stopped,
            other => StoreError::Library(other.to_string()),
        }
    }
}

impl StoreError {
    /// Whether the disk, or what this process may use of it, is full.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            StoreError::Io(error) => matches!(
                error.kind(),
                io::ErrorKind::StorageFull
                    | io::ErrorKind::QuotaExceeded
                    | io::ErrorKind::FileTooLarge
            ),
            StoreError::Library(_) | StoreError::Stopped | StoreError::Locked => false,
        }
    }
}
