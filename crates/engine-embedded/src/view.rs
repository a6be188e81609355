//! Views of the store that do not change while somebody holds them.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

use engine_api::SharedRecord;
use lsm_tree::{AbstractTree, Guard, Slice};

use crate::batch::Space;
use crate::bodies::{Bodies, End, Files};
use crate::body::{Around, BodyFile, Entry};
use crate::places::{Place, Spot};
use crate::store::{Inner, StoreError};

pub(crate) type Row = (Slice, Slice);

/// How far one or more views see.
pub(crate) struct Sight {
    pub until: u64,
    /// Bodies from this place on came later.
    end: End,
    /// Kept, so that no file is gone while it is read.
    files: Arc<Files>,
    sights: Sights,
}

/// All that are open, by the number up to which they see, and how many there are of each.
pub(crate) type Sights = Arc<Mutex<BTreeMap<u64, usize>>>;

impl Sight {
    pub(crate) fn open(sights: &Sights, until: u64, bodies: &Bodies) -> Arc<Sight> {
        *lock(sights).entry(until).or_default() += 1;
        Arc::new(Sight {
            until,
            end: bodies.end(),
            files: bodies.files(),
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

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
    pub(crate) fn new(sight: Arc<Sight>, store: Arc<Inner>) -> View {
        View { sight, store }
    }

    /// The number of the last group of changes that it sees.
    pub(crate) fn until(&self) -> u64 {
        self.sight.until
    }

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

    /// A record's body as this view sees it.
    pub(crate) fn body(&self, key: &[u8]) -> Result<Option<Entry>, StoreError> {
        // A place from the end on was given out after this view was taken.
        if let Some(Spot::One(place)) = self.store.places.get(key)
            && (place.file, place.offset) < self.sight.end
        {
            let entry = self.entry(place)?;
            if entry.key() == key {
                return Ok(Some(entry));
            }
        }
        let place = self.get(Space::Records, key)?;
        let entry = place.map(|place| self.entry(parse_place(&place)?));
        let own = entry.map(|entry| of_record(key, entry?));
        own.transpose()
    }

    /// A record's body as this view sees it; one that was erased since may be missing.
    pub(crate) fn latest_body(&self, key: &[u8]) -> Result<Option<Entry>, StoreError> {
        match self.store.places.get(key) {
            Some(_) => self.body(key),
            None => Ok(None),
        }
    }

    /// Keys with their bodies, in order.
    pub(crate) fn bodies(
        &self,
        from: Bound<Vec<u8>>,
        to: Bound<Vec<u8>>,
    ) -> impl Iterator<Item = Result<Entry, StoreError>> {
        let mut around = Around::default();
        self.range(Space::Records, from, to).map(move |row| {
            let (key, place) = row?;
            let place = parse_place(&place)?;
            let entry = self.file(place)?.read_on(place, &mut around);
            of_record(&key, entry.map_err(unread)?)
        })
    }

    fn entry(&self, place: Place) -> Result<Entry, StoreError> {
        self.file(place)?.read(place).map_err(unread)
    }

    fn file(&self, place: Place) -> Result<&BodyFile, StoreError> {
        let file = self.sight.files.get(&place.file);
        file.map(AsRef::as_ref).ok_or_else(|| no_place(place))
    }
}

fn of_record(key: &[u8], entry: Entry) -> Result<Entry, StoreError> {
    match entry.key() == key {
        true => Ok(entry),
        false => Err(StoreError::Damaged(
            "the place of a body holds that of another record".to_owned(),
        )),
    }
}

fn unread(error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            StoreError::Damaged(error.to_string())
        }
        _ => StoreError::Io(error),
    }
}

pub(crate) fn parse_place(bytes: &[u8]) -> Result<Place, StoreError> {
    Place::from_bytes(bytes)
        .ok_or_else(|| StoreError::Damaged("the place of a body has a wrong length".to_owned()))
}

/// Bodies were acknowledged that are not there.
pub(crate) fn no_place(place: Place) -> StoreError {
    StoreError::Damaged(format!(
        "a body lies at {} of the file {:08x}.bodies, which is missing or cut short",
        place.offset, place.file
    ))
}
