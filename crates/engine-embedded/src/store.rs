//! The tables: ordered bytes in a few spaces, with views that do not change.
//!
//! Each space is a log-structured tree of the storage library, which has no log
//! of its own: what is applied lies in memory until a checkpoint, and the commit
//! log holds it until then.
//!
//! Only one thread applies. It alone seals memory tables, and only between
//! batches: a table on disk never holds half a batch.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Debug;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use engine_api::SharedRecord;
use lsm_tree::compaction::Leveled;
use lsm_tree::config::{BlockSizePolicy, CompressionPolicy, PinningPolicy};
use lsm_tree::{
    AbstractTree, AnyTree, Cache, CompressionType, Config, DescriptorTable, Guard,
    SequenceNumberCounter, Slice,
};

use crate::batch::{Batch, Space};
use crate::cache::RecordCache;
use crate::segment::Sequence;
use crate::tables::record_key;

/// The last group that the tables on disk hold, written by each checkpoint.
const META_CHECKPOINT: &[u8] = b"checkpoint";

/// Files kept open.
const OPEN_FILES_MAX: usize = 900;

/// Steps of one tidying: bounds it should the library never come to rest.
const COMPACTIONS_MAX: usize = 64;

const LEVELS: usize = 7;

#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Library(String),
}

pub(crate) type Row = (Slice, Slice);

#[derive(Clone)]
pub(crate) struct Store(Arc<Inner>);

struct Inner {
    trees: Vec<AnyTree>,
    /// Numbers of the library, for batches and for its own changes of files.
    numbers: SequenceNumberCounter,
    /// What readers see now.
    current: Mutex<Arc<Sight>>,
    sights: Sights,
    /// Held while a group is on its way into the memory tables.
    memory: Mutex<Memory>,
    cache: RecordCache,
}

#[derive(Debug, Default)]
struct Memory {
    /// What was applied since memory tables were last sealed.
    bytes: u64,
    /// A group lies in memory that did not reach the disk: nobody may see it,
    /// nor anything after it.
    spoilt: bool,
}

impl Store {
    pub(crate) fn open(path: &Path, cache_bytes: u64) -> Result<Store, StoreError> {
        let numbers = SequenceNumberCounter::default();
        let cache = Arc::new(Cache::with_capacity_bytes(cache_bytes));
        let files = Arc::new(DescriptorTable::new(OPEN_FILES_MAX));
        let open = |space: Space| {
            // The library raises this counter when it changes its files, be a
            // batch half applied or not: so it is not the one readers go by.
            let unused = SequenceNumberCounter::default();
            Config::new(path.join(space.name()), numbers.clone(), unused)
                .use_cache(cache.clone())
                .use_descriptor_table(Some(files.clone()))
                .data_block_compression_policy(CompressionPolicy::all(compression(space)))
                .data_block_size_policy(BlockSizePolicy::all(block_bytes(space)))
                .filter_block_pinning_policy(PinningPolicy::all(true))
                .index_block_pinning_policy(PinningPolicy::all(true))
                .open()
        };
        let trees: Vec<AnyTree> = Space::ALL.into_iter().map(open).collect::<Result<_, _>>()?;
        let highest = trees.iter().filter_map(|tree| tree.get_highest_seqno());
        numbers.fetch_max(highest.max().map_or(1, |number| number + 1));
        let sights = Sights::default();
        let current = Mutex::new(Sight::open(&sights, numbers.get()));
        Ok(Store(Arc::new(Inner {
            trees,
            numbers,
            current,
            sights,
            memory: Mutex::default(),
            cache: RecordCache::default(),
        })))
    }

    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        self.view().get(space, key)
    }

    /// A decoded record as the tables hold it now.
    pub(crate) fn cached(&self, key: &[u8]) -> Option<SharedRecord> {
        self.0.cache.get(key, u64::MAX)
    }

    pub(crate) fn first_key(&self, space: Space) -> Result<Option<Slice>, StoreError> {
        let view = self.view();
        let first = self.0.tree(space).first_key_value(view.sight.until, None);
        Ok(first.map(Guard::key).transpose()?)
    }

    pub(crate) fn last_key(&self, space: Space) -> Result<Option<Slice>, StoreError> {
        let view = self.view();
        let last = self.0.tree(space).last_key_value(view.sight.until, None);
        Ok(last.map(Guard::key).transpose()?)
    }

    pub(crate) fn view(&self) -> View {
        View {
            sight: self.0.current().clone(),
            store: self.0.clone(),
        }
    }

    /// Puts the batches into memory, where nobody sees them until `synced` has
    /// answered, then shows everything at once. Answers how many bytes lie in
    /// memory now, or the error of `synced`; then nothing is ever shown again.
    pub(crate) fn apply_when<'a, E>(
        &self,
        batches: impl IntoIterator<Item = &'a Batch> + Clone,
        changed: &[SharedRecord],
        synced: impl FnOnce() -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut memory = self.0.memory();
        let number = self.0.numbers.next();
        for (space, key, value) in batches.clone().into_iter().flat_map(Batch::writes) {
            let tree = self.0.tree(space);
            let (added, _) = match value {
                Some(value) => tree.insert(key, value, number),
                None => tree.remove(key, number),
            };
            memory.bytes += added;
        }
        memory.spoilt = true;
        synced()?;
        memory.spoilt = false;
        for write in batches.into_iter().flat_map(Batch::writes) {
            self.0.cache.forget(write, number);
        }
        self.0.show(number + 1);
        // A record that is changed all the time has as many versions in memory:
        // it is read from here, not searched among them.
        for record in changed {
            let key = record_key(record.key.collection, &record.key.id);
            self.0.cache.put(&key, record.clone(), number + 1);
        }
        Ok(memory.bytes)
    }

    /// For what is on disk already.
    pub(crate) fn apply<'a>(&self, batches: impl IntoIterator<Item = &'a Batch> + Clone) {
        let applied: Result<u64, Infallible> = self.apply_when(batches, &[], || Ok(()));
        match applied {
            Ok(_) => {}
        }
    }

    /// Seals everything applied so far, which goes up to `last`, for
    /// [`Store::flush`]. Called by the thread that applies.
    pub(crate) fn seal(&self, last: Sequence) {
        let mut batch = Batch::default();
        batch.put(Space::Meta, META_CHECKPOINT, &last.0.to_be_bytes());
        self.apply([&batch]);
        let mut memory = self.0.memory();
        for tree in &self.0.trees {
            tree.rotate_memtable();
        }
        memory.bytes = 0;
    }

    /// Writes what was sealed to tables on disk. The space that says how far
    /// they go comes last: it is there only if all others are.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        for space in Space::ALL {
            let tree = self.0.tree(space);
            tree.flush(&tree.get_flush_lock(), self.unseen())?;
        }
        self.move_on();
        Ok(())
    }

    /// The last group that the tables on disk hold.
    pub(crate) fn checkpoint(&self) -> Result<Sequence, StoreError> {
        let stored = self.get(Space::Meta, META_CHECKPOINT)?;
        let number = stored.as_deref().map(<[u8; 8]>::try_from).transpose();
        match number {
            Ok(number) => Ok(Sequence(number.map_or(0, u64::from_be_bytes))),
            Err(_) => Err(StoreError::Library(
                "the number of the checkpoint has a wrong length".to_owned(),
            )),
        }
    }

    /// Merges tables until the library finds nothing more to do.
    pub(crate) fn tidy(&self) -> Result<(), StoreError> {
        for tree in &self.0.trees {
            for _ in 0..COMPACTIONS_MAX {
                let before = shape(tree);
                tree.compact(Arc::new(Leveled::default()), self.unseen())?;
                if shape(tree) == before {
                    break;
                }
            }
        }
        self.move_on();
        Ok(())
    }

    /// Lets readers see the newest tables: without a new batch they would go on
    /// with those before, whose memory stays in use.
    fn move_on(&self) {
        let memory = self.0.memory();
        if !memory.spoilt {
            self.0.show(self.0.numbers.get());
        }
    }

    /// Older versions of a key below this number are seen by no view.
    fn unseen(&self) -> u64 {
        // The current sight is one of them.
        let oldest = lock(&self.0.sights).keys().next().copied();
        oldest.unwrap_or_default().saturating_sub(1)
    }
}

impl Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}

impl Inner {
    fn tree(&self, space: Space) -> &AnyTree {
        &self.trees[space as usize]
    }

    fn current(&self) -> MutexGuard<'_, Arc<Sight>> {
        lock(&self.current)
    }

    /// Everything below this number is whole. Called by who holds the memory.
    fn show(&self, until: u64) {
        let next = Sight::open(&self.sights, until);
        let last = std::mem::replace(&mut *self.current(), next);
        drop(last);
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory
            .lock()
            .expect("the library does not panic while it inserts")
    }
}

/// How far one or more views see.
struct Sight {
    until: u64,
    sights: Sights,
}

/// All that are open, by the number up to which they see, and how many there are of each.
type Sights = Arc<Mutex<BTreeMap<u64, usize>>>;

impl Sight {
    fn open(sights: &Sights, until: u64) -> Arc<Sight> {
        *lock(sights).entry(until).or_default() += 1;
        Arc::new(Sight {
            until,
            sights: sights.clone(),
        })
    }
}

impl Drop for Sight {
    fn drop(&mut self) {
        let mut sights = lock(&self.sights);
        if let Some(count) = sights.get_mut(&self.until) {
            *count -= 1;
            if *count == 0 {
                sights.remove(&self.until);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .expect("no code panics while it holds the lock")
}

/// One unchanging view of the store.
pub(crate) struct View {
    sight: Arc<Sight>,
    store: Arc<Inner>,
}

impl View {
    /// A decoded record as this view sees it.
    pub(crate) fn cached(&self, key: &[u8]) -> Option<SharedRecord> {
        self.store.cache.get(key, self.sight.until)
    }

    /// Keeps a record that was read from this view.
    pub(crate) fn cache(&self, key: &[u8], record: SharedRecord) {
        self.store.cache.put(key, record, self.sight.until);
    }

    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        Ok(self.store.tree(space).get(key, self.sight.until)?)
    }

    pub(crate) fn range(
        &self,
        space: Space,
        from: Bound<Vec<u8>>,
        to: Bound<Vec<u8>>,
    ) -> impl Iterator<Item = Result<Row, StoreError>> + use<> {
        let rows = self
            .store
            .tree(space)
            .range((from, to), self.sight.until, None);
        rows.map(|row| Ok(row.into_inner()?))
    }
}

/// Bodies are read one by one and at random: unpacking a block for each would
/// cost more than reading it.
const fn compression(space: Space) -> CompressionType {
    match space {
        Space::Records => CompressionType::None,
        Space::Parts | Space::Paths | Space::Journal | Space::Due | Space::Meta => {
            CompressionType::Lz4
        }
    }
}

const fn block_bytes(space: Space) -> u32 {
    match space {
        Space::Records => 2 * 1024,
        Space::Parts | Space::Paths | Space::Journal | Space::Due | Space::Meta => 4 * 1024,
    }
}

/// How many tables each level has: changes with every step of a compaction.
fn shape(tree: &AnyTree) -> [Option<usize>; LEVELS] {
    std::array::from_fn(|level| tree.level_table_count(level))
}

impl From<lsm_tree::Error> for StoreError {
    fn from(error: lsm_tree::Error) -> StoreError {
        match error {
            lsm_tree::Error::Io(error) => StoreError::Io(error),
            other => StoreError::Library(other.to_string()),
        }
    }
}

impl StoreError {
    /// Whether the disk, or what this process may use of it, is full.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            StoreError::Io(error) => is_full(error),
            StoreError::Library(_) => false,
        }
    }
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
