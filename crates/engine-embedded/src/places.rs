//! Where bodies lie: one look-up in memory, whatever their number.
//!
//! The tables hold the same by key, for views that are older than a change, for scans,
//! and to fill this after a start. Here stands only a part of the key's hash, with the place: 16
//! bytes a record, found in one line of the processor's cache. Of some million records a few share theirs:
//! these are looked up in the tables, and a body is never given out without comparing its key.

use std::hash::{BuildHasher, RandomState};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Where a body lies. Places are given out in rising order, and none twice while the engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// From one on.
    pub file: u32,
    pub offset: u32,
    /// Of the whole entry: head, key and body.
    pub bytes: u32,
}

impl Place {
    pub(crate) fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.file.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.offset.to_be_bytes());
        bytes[8..].copy_from_slice(&self.bytes.to_be_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Place> {
        let (file, rest) = bytes.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        Some(Place {
            file: u32::from_be_bytes(*file),
            offset: u32::from_be_bytes(*offset),
            bytes: u32::from_be_bytes(rest.try_into().ok()?),
        })
    }
}

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// Of all records only the one at this place has the key's hash.
    One(Place),
    /// Several records had this hash: ask the tables.
    Several,
}

/// Whether a record was there before it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    New,
    Known,
}

const SHARDS: usize = 64;

#[derive(Debug)]
pub(crate) struct Places {
    /// Drawn by chance: who chooses ids does not choose hashes.
    seed: u64,
    shards: Vec<RwLock<Shard>>,
}

impl Default for Places {
    fn default() -> Places {
        Places {
            seed: RandomState::new().hash_one(SHARDS),
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
        }
    }
}

impl Places {
    /// `None`: there is no such record.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Spot> {
        let (shard, tag) = self.hash(key);
        self.read(shard).get(tag)
    }

    /// Answers where the body lay before, if that is known.
    pub(crate) fn set(&self, key: &[u8], place: Place, arrival: Arrival) -> Option<Place> {
        let (shard, tag) = self.hash(key);
        let mut shard = self.write(shard);
        match (shard.get(tag), arrival) {
            (None, _) => {
                shard.set(tag, Spot::One(place));
                None
            }
            (Some(Spot::One(before)), Arrival::Known) => {
                shard.set(tag, Spot::One(place));
                Some(before)
            }
            // It stays so until the next start, because nobody counts them.
            (Some(_), Arrival::New) | (Some(Spot::Several), Arrival::Known) => {
                shard.set(tag, Spot::Several);
                None
            }
        }
    }

    /// Answers where the body lay, if that is known.
    pub(crate) fn remove(&self, key: &[u8]) -> Option<Place> {
        let (shard, tag) = self.hash(key);
        let mut shard = self.write(shard);
        match shard.get(tag) {
            Some(Spot::One(place)) => {
                shard.remove(tag);
                Some(place)
            }
            // Of those with this hash others may still be there.
            Some(Spot::Several) | None => None,
        }
    }

    fn hash(&self, key: &[u8]) -> (usize, u32) {
        let hash = xxh3_64_with_seed(key, self.seed);
        (hash as usize % SHARDS, (hash >> 32) as u32)
    }

    fn read(&self, shard: usize) -> RwLockReadGuard<'_, Shard> {
        self.shards[shard].read().expect(NO_PANIC)
    }

    fn write(&self, shard: usize) -> RwLockWriteGuard<'_, Shard> {
        self.shards[shard].write().expect(NO_PANIC)
    }
}

const NO_PANIC: &str = "no code panics while it holds the lock";

/// Open addressing, in the order of the tags: a slot is never far from where its tag belongs.
#[derive(Debug, Default)]
struct Shard {
    slots: Vec<Slot>,
    used: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    tag: u32,
    place: Place,
}

const EMPTY: Slot = Slot {
    tag: 0,
    place: Place {
        file: 0,
        offset: 0,
        bytes: 0,
    },
};

/// No file has the number 0.
const SEVERAL: Place = Place {
    file: 0,
    offset: 0,
    bytes: 1,
};

impl Slot {
    fn is_empty(self) -> bool {
        self.place == EMPTY.place
    }
}

impl Shard {
    fn get(&self, tag: u32) -> Option<Spot> {
        if self.slots.is_empty() {
            return None;
        }
        let slot = self.slots[self.find(tag)];
        match slot.place {
            _ if slot.is_empty() => None,
            SEVERAL => Some(Spot::Several),
            place => Some(Spot::One(place)),
        }
    }

    fn set(&mut self, tag: u32, spot: Spot) {
        if (self.used + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        let place = match spot {
            Spot::One(place) => place,
            Spot::Several => SEVERAL,
        };
        let index = self.find(tag);
        self.used += usize::from(self.slots[index].is_empty());
        self.slots[index] = Slot { tag, place };
    }

    /// Those behind move up, so that a search need not step over what is gone.
    fn remove(&mut self, tag: u32) {
        let mut gap = self.find(tag);
        if self.slots[gap].is_empty() {
            return;
        }
        self.used -= 1;
        let mut next = self.after(gap);
        while !self.slots[next].is_empty() {
            let home = self.home(self.slots[next].tag);
            let distance = |from: usize| (next + self.slots.len() - from) % self.slots.len();
            if distance(home) >= distance(gap) {
                self.slots[gap] = self.slots[next];
                gap = next;
            }
            next = self.after(next);
        }
        self.slots[gap] = EMPTY;
    }

    fn grow(&mut self) {
        let larger = vec![EMPTY; (self.slots.len() * 2).max(16)];
        for slot in std::mem::replace(&mut self.slots, larger) {
            if !slot.is_empty() {
                let index = self.find(slot.tag);
                self.slots[index] = slot;
            }
        }
    }

    /// The slot of the tag, or the empty one where it would stand. One in four is empty.
    fn find(&self, tag: u32) -> usize {
        let mut index = self.home(tag);
        while !self.slots[index].is_empty() && self.slots[index].tag != tag {
            index = self.after(index);
        }
        index
    }

    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.slots.len() as u64) >> 32) as usize
    }

    fn after(&self, index: usize) -> usize {
        match index + 1 {
            end if end == self.slots.len() => 0,
            next => next,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn place(offset: u32) -> Place {
        Place {
            file: 1,
            offset,
            bytes: 9,
        }
    }

    #[test]
    fn a_place_comes_back_as_it_was_and_other_lengths_are_refused() {
        let bytes = place(77).to_bytes();
        assert_eq!(Place::from_bytes(&bytes), Some(place(77)));
        assert_eq!(Place::from_bytes(&bytes[..11]), None);
        assert_eq!(Place::from_bytes(&[&bytes[..], &[0]].concat()), None);
    }

    #[test]
    fn a_record_is_found_replaced_and_gone() {
        let places = Places::default();
        assert_eq!(places.get(b"a"), None);
        assert_eq!(places.set(b"a", place(1), Arrival::New), None);
        assert_eq!(places.set(b"a", place(2), Arrival::Known), Some(place(1)));
        assert_eq!(places.get(b"a"), Some(Spot::One(place(2))));
        assert_eq!(places.remove(b"a"), Some(place(2)));
        assert_eq!(places.get(b"a"), None);
    }

    /// Two keys with the same hash cannot be made at will; the same key arriving twice is the same.
    #[test]
    fn of_several_with_one_hash_none_is_taken_for_another_and_none_vanishes() {
        let places = Places::default();
        places.set(b"a", place(1), Arrival::New);
        assert_eq!(places.set(b"a", place(2), Arrival::New), None);
        assert_eq!(places.get(b"a"), Some(Spot::Several));
        assert_eq!(places.set(b"a", place(3), Arrival::Known), None);
        assert_eq!(places.remove(b"a"), None);
        assert_eq!(
            places.get(b"a"),
            Some(Spot::Several),
            "the other is still there"
        );
    }

    proptest! {
        /// Tags from few neighbourhoods, so that searches run into one another and around the end.
        #[test]
        fn a_shard_is_a_map(steps in proptest::collection::vec((any::<bool>(), 0_u32..24, 0_u32..3), 1..200)) {
            let mut shard = Shard::default();
            let mut expected = HashMap::new();
            for (number, (sets, low, high)) in steps.into_iter().enumerate() {
                let tag = low.wrapping_add(high.wrapping_mul(u32::MAX / 2)).wrapping_sub(4);
                if sets {
                    let spot = Spot::One(place(number as u32));
                    shard.set(tag, spot);
                    expected.insert(tag, spot);
                } else if !shard.slots.is_empty() {
                    shard.remove(tag);
                    expected.remove(&tag);
                }
                prop_assert_eq!(shard.used, expected.len());
                for low in 0..24_u32 {
                    for high in 0..3_u32 {
                        let tag = low.wrapping_add(high.wrapping_mul(u32::MAX / 2)).wrapping_sub(4);
                        prop_assert_eq!(shard.get(tag), expected.get(&tag).copied());
                    }
                }
            }
        }
    }
}
