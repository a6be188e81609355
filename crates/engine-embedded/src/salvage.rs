//! Going through a worn file of bodies for those that still live.
//!
//! A record that is changed leaves its old body behind. When less than half of a file lives, the living
//! bodies are handed to the thread that applies, a few with each group, and come to stand in
//! the youngest file. What lives is judged twice: here, to read little, and by the thread that
//! applies, because the record may have changed in between.

use std::sync::Arc;

use crate::body::{BodyFile, Entry};
use crate::places::Place;
use crate::store::Store;

/// How much is moved at once: writers wait for it.
const MOVED_BYTES_MAX: usize = 256 * 1024;

/// Some bodies of a file that lived when they were read.
#[derive(Debug)]
pub(crate) struct Living {
    pub file: u32,
    pub entries: Vec<(Place, Entry)>,
    /// After these there is nothing more in the file.
    pub is_all: bool,
}

/// A worn file, and how far it was gone through.
#[derive(Debug)]
pub(crate) struct Salvage {
    number: u32,
    file: Arc<BodyFile>,
    bytes: u64,
    next: u32,
}

impl Salvage {
    pub(crate) fn begin(store: &Store) -> Option<Salvage> {
        let (number, file, bytes) = store.most_worn()?;
        Some(Salvage {
            number,
            file,
            bytes,
            next: 0,
        })
    }

    /// The next living bodies; `None` after the last ones. A file that cannot be gone through
    /// to its end is left as it is: whoever reads what is damaged there is told.
    pub(crate) fn next(&mut self, store: &Store) -> Option<Living> {
        if u64::from(self.next) == self.bytes {
            return None;
        }
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while u64::from(self.next) < self.bytes && bytes < MOVED_BYTES_MAX {
            let Ok((place, entry)) = self.file.read_next(self.number, self.next) else {
                store.leave_alone(self.number);
                return None;
            };
            self.next = place.offset + place.bytes;
            if store.may_live(entry.key(), place) {
                bytes += place.bytes as usize;
                entries.push((place, entry));
            }
        }
        Some(Living {
            file: self.number,
            entries,
            is_all: u64::from(self.next) == self.bytes,
        })
    }
}
