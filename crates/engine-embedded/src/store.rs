//! The tables: ordered bytes in a few spaces, with views that do not change.
//!
//! Each space is a log-structured tree of the storage library, which has no log
//! of its own: what is applied lies in memory until a checkpoint, and the commit
//! log holds it until then. Bodies lie in files of their own, which are written once and
//! never merged; the tables hold their places.
//!
//! Only one thread applies. It alone seals memory tables, and only between
//! batches: a table on disk never holds half a batch.

use std::convert::Infallible;
use std::fmt::Debug;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use engine_api::SharedRecord;
use lsm_tree::config::{BlockSizePolicy, CompressionPolicy, PinningPolicy};
use lsm_tree::{
    AbstractTree, AnyTree, Cache, CompressionType, Config, DescriptorTable, Guard,
    SequenceNumberCounter, Slice,
};

use crate::batch::{Batch, Space, Write};
use crate::bodies::Bodies;
use crate::body::{BodyFile, Chunk};
use crate::cache::RecordCache;
use crate::places::{Arrival, Place, Places, Spot};
use crate::salvage::Living;
use crate::tables::record_key;
use crate::view::{Sight, Sights, View, lock, no_place, parse_place};

const BODIES_FOLDER: &str = "bodies";

/// Of the tables' blocks.
const BLOCK_BYTES: u32 = 4 * 1024;

/// Files kept open.
const OPEN_FILES_MAX: usize = 900;

mod disk;

#[cfg(test)]
pub(crate) use disk::Step;

#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Library(String),
    /// What was acknowledged is not there.
    #[error("{0}")]
    Damaged(String),
}

#[derive(Clone)]
pub(crate) struct Store(Arc<Inner>);

pub(crate) struct Inner {
    trees: Vec<AnyTree>,
    /// Numbers of the library, for batches and for its own changes of files.
    numbers: SequenceNumberCounter,
    /// What readers see now.
    current: Mutex<Arc<Sight>>,
    sights: Sights,
    /// Held while a group is on its way into the memory tables.
    memory: Mutex<Memory>,
    pub cache: RecordCache,
    pub places: Places,
    #[cfg(test)]
    fault: Mutex<Option<Step>>,
}

#[derive(Debug)]
struct Memory {
    bodies: Bodies,
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
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
                .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES))
                .filter_block_pinning_policy(PinningPolicy::all(true))
                .index_block_pinning_policy(PinningPolicy::all(true))
                .open()
        };
        let trees: Vec<AnyTree> = Space::ALL.into_iter().map(open).collect::<Result<_, _>>()?;
        let highest = trees.iter().filter_map(|tree| tree.get_highest_seqno());
        numbers.fetch_max(highest.max().map_or(1, |number| number + 1));
        let sights = Sights::default();
        let bodies = Bodies::open(&path.join(BODIES_FOLDER))?;
        let current = Mutex::new(Sight::open(&sights, numbers.get(), &bodies));
        Ok(Store(Arc::new(Inner {
            trees,
            numbers,
            current,
            sights,
            memory: Mutex::new(Memory {
                bodies,
                bytes: 0,
                spoilt: false,
            }),
            cache: RecordCache::default(),
            places: Places::default(),
            #[cfg(test)]
            fault: Mutex::default(),
        })))
    }

    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        self.view().get(space, key)
    }

    /// A decoded record as the tables hold it now.
    pub(crate) fn cached(&self, key: &[u8]) -> Option<SharedRecord> {
        self.0.cache.get(key, u64::MAX)
    }

    /// Learns the places of all bodies from the tables, once the log is replayed, and
    /// refuses files that do not hold what the tables say. Nothing is applied before.
    pub(crate) fn find_bodies(&self) -> Result<(), StoreError> {
        let everything = (Bound::Unbounded, Bound::Unbounded);
        let rows = self
            .view()
            .range(Space::Records, everything.0, everything.1);
        let mut memory = self.0.memory();
        for row in rows {
            let (key, place) = row?;
            let place = parse_place(&place)?;
            if !memory.bodies.found(place) {
                return Err(no_place(place));
            }
            self.0.places.set(&key, place, Arrival::New);
        }
        Ok(())
    }

    pub(crate) fn last_key(&self, space: Space) -> Result<Option<Slice>, StoreError> {
        let until = self.0.current().until;
        let last = self.0.tree(space).last_key_value(until, None);
        Ok(last.map(Guard::key).transpose()?)
    }

    pub(crate) fn view(&self) -> View {
        View::new(self.0.current().clone(), self.0.clone())
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
        let mut chunk = memory.bodies.chunk();
        let mut bodies = Vec::new();
        for write in batches.clone().into_iter().flat_map(Batch::writes) {
            if write.space == Space::Records {
                let place = write.value.map(|body| chunk.push(write.key, body));
                bodies.push((write, place));
                memory.bytes += self.0.point(write.key, place, number);
            } else {
                memory.bytes += self.0.put(write, number);
            }
        }
        memory.spoilt = true;
        synced()?;
        memory.spoilt = false;
        memory.take(chunk);
        for (write, place) in bodies {
            self.0.note(&mut memory.bodies, write, place);
        }
        for write in batches.into_iter().flat_map(Batch::writes) {
            self.0.cache.forget(write, number);
        }
        self.0.show(number + 1, &memory.bodies);
        // A record that is changed all the time has as many versions in memory:
        // it is read from here, not searched among them.
        for record in changed {
            let key = record_key(record.key.collection, &record.key.id);
            self.0.cache.put(&key, record.clone(), number + 1);
        }
        Ok(memory.bytes)
    }

    /// A group of the log. Where bodies lie is learned when all are replayed.
    pub(crate) fn replay(&self, batch: &Batch) {
        let mut memory = self.0.memory();
        let number = self.0.numbers.next();
        let mut chunk = memory.bodies.chunk();
        for write in batch.writes() {
            memory.bytes += match write.space {
                Space::Records => {
                    let place = write.value.map(|body| chunk.push(write.key, body));
                    self.0.point(write.key, place, number)
                }
                _ => self.0.put(write, number),
            };
        }
        memory.take(chunk);
        self.0.show(number + 1, &memory.bodies);
    }

    /// For what is on disk already.
    pub(crate) fn apply<'a>(&self, batches: impl IntoIterator<Item = &'a Batch> + Clone) {
        let applied: Result<u64, Infallible> = self.apply_when(batches, &[], || Ok(()));
        match applied {
            Ok(_) => {}
        }
    }

    /// Puts living bodies of a worn file into the youngest one, those that still live. Nothing
    /// of it goes to the log: until a checkpoint has brought their new places to disk, the
    /// tables there point to the old ones. Called by the thread that applies.
    pub(crate) fn move_bodies(&self, living: &Living) -> Result<u64, StoreError> {
        let mut memory = self.0.memory();
        if memory.spoilt {
            return Ok(memory.bytes);
        }
        let number = self.0.numbers.next();
        let mut chunk = memory.bodies.chunk();
        let mut moved = Vec::new();
        for (old, entry) in &living.entries {
            if self.0.place_of(entry.key(), number)? == Some(*old) {
                let new = chunk.push(entry.key(), entry.body());
                memory.bytes += self.0.point(entry.key(), Some(new), number);
                moved.push((entry.key(), *old, new));
            }
        }
        memory.take(chunk);
        for (key, old, new) in moved {
            self.0.places.set(key, new, Arrival::Known);
            memory.bodies.born(new);
            memory.bodies.died(old);
        }
        if living.is_all {
            memory.bodies.salvaged(living.file);
        }
        self.0.show(number + 1, &memory.bodies);
        Ok(memory.bytes)
    }

    /// The most worn file of bodies, and how long it is.
    pub(crate) fn most_worn(&self) -> Option<(u32, Arc<BodyFile>, u64)> {
        self.0.memory().bodies.most_worn()
    }

    pub(crate) fn leave_alone(&self, file: u32) {
        self.0.memory().bodies.leave_alone(file);
    }

    /// Whether the body at this place may still be asked for by new views.
    pub(crate) fn may_live(&self, key: &[u8], place: Place) -> bool {
        match self.0.places.get(key) {
            Some(Spot::One(current)) => current == place,
            Some(Spot::Several) => true,
            None => false,
        }
    }
}

impl Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}

impl Inner {
    pub(crate) fn tree(&self, space: Space) -> &AnyTree {
        &self.trees[space as usize]
    }

    /// Into memory; answers how much larger that is now.
    fn put(&self, write: Write<'_>, number: u64) -> u64 {
        let tree = self.tree(write.space);
        let (added, _) = match write.value {
            Some(value) => tree.insert(write.key, value, number),
            None => tree.remove(write.key, number),
        };
        added
    }

    /// The row of a body: where it lies.
    fn point(&self, key: &[u8], place: Option<Place>, number: u64) -> u64 {
        let place = place.map(Place::to_bytes);
        self.put(
            Write {
                space: Space::Records,
                key,
                value: place.as_ref().map(|place| &place[..]),
                arrival: Arrival::Known,
            },
            number,
        )
    }

    /// A body is on disk, or gone from there.
    fn note(&self, bodies: &mut Bodies, write: Write<'_>, place: Option<Place>) {
        let before = match place {
            Some(place) => {
                bodies.born(place);
                self.places.set(write.key, place, write.arrival)
            }
            None => self.places.remove(write.key),
        };
        if let Some(before) = before {
            bodies.died(before);
        }
    }

    /// Where the record's body lies before the batch with this number.
    fn place_of(&self, key: &[u8], number: u64) -> Result<Option<Place>, StoreError> {
        match self.places.get(key) {
            None => Ok(None),
            Some(Spot::One(place)) => Ok(Some(place)),
            Some(Spot::Several) => {
                let place = self.tree(Space::Records).get(key, number)?;
                place.map(|place| parse_place(&place)).transpose()
            }
        }
    }

    pub(crate) fn current(&self) -> MutexGuard<'_, Arc<Sight>> {
        lock(&self.current)
    }

    /// Everything below this number is whole. Called by who holds the memory.
    fn show(&self, until: u64, bodies: &Bodies) {
        let next = Sight::open(&self.sights, until, bodies);
        let last = std::mem::replace(&mut *self.current(), next);
        drop(last);
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory
            .lock()
            .expect("the library does not panic while it inserts")
    }
}

impl Memory {
    fn take(&mut self, chunk: Chunk) {
        self.bytes += u64::from(chunk.bytes());
        self.bodies.add(chunk);
    }
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
            StoreError::Library(_) | StoreError::Damaged(_) => false,
        }
    }
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
