//! Decoded records that are read again and again: carts, products, sessions.
//!
//! A record in the cache is what the tables hold now. The applier takes a
//! record out before the change to it becomes visible; a reader that saw the
//! tables before that must not put the old record back, so every shard remembers
//! the last change that touched it. Orders stay out: they are many, seldom read
//! twice, and would drive out the carts.

use std::sync::{Mutex, MutexGuard};

use engine_api::SharedRecord;
use engine_api::layout::Collection;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::batch::{Space, Write};
use crate::tables::record_of_part;

/// Two halves a shard: when the young one is full it becomes the old one, and
/// the old one is dropped.
const CACHED_RECORDS_MAX: usize = 32 * 1024;

const SHARDS: usize = 16;
const HALF_RECORDS_MAX: usize = CACHED_RECORDS_MAX / SHARDS / 2;

#[derive(Debug, Default)]
pub(crate) struct RecordCache {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    /// The last change to any record of the shard.
    touched: u64,
    young: FxHashMap<Box<[u8]>, Cached>,
    old: FxHashMap<Box<[u8]>, Cached>,
}

#[derive(Clone, Debug)]
struct Cached {
    record: SharedRecord,
    /// The view it was read from: since then nothing has changed it.
    since: u64,
}

impl RecordCache {
    pub(crate) fn keeps(collection: Collection) -> bool {
        !collection.part_kinds().is_empty()
    }

    /// The record as every view from `until` on sees it.
    pub(crate) fn get(&self, key: &[u8], until: u64) -> Option<SharedRecord> {
        let mut shard = self.shard(key);
        if let Some(cached) = shard.young.get(key) {
            return (cached.since <= until).then(|| cached.record.clone());
        }
        let (key, cached) = shard.old.remove_entry(key)?;
        let record = (cached.since <= until).then(|| cached.record.clone());
        shard.put(key, cached);
        record
    }

    /// Keeps what a view up to `until` has read, unless a change came after it.
    pub(crate) fn put(&self, key: &[u8], record: SharedRecord, until: u64) {
        let mut shard = self.shard(key);
        if shard.touched < until {
            let since = until;
            shard.put(key.into(), Cached { record, since });
        }
    }

    /// Takes the changed record out. Called before the change with this number
    /// becomes visible, which it is to views above the number.
    pub(crate) fn forget(&self, write: Write<'_>, number: u64) {
        let key = match write.space {
            Space::Records => write.key,
            Space::Parts => &record_of_part(write.key),
            Space::Paths | Space::Journal | Space::Due | Space::Meta => return,
        };
        let collection = key.first().copied().and_then(Collection::from_number);
        if collection.is_some_and(RecordCache::keeps) {
            let mut shard = self.shard(key);
            shard.touched = number;
            shard.young.remove(key);
            shard.old.remove(key);
        }
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        use std::hash::BuildHasher;
        // The map takes the low bits of the same hash.
        let hash = FxBuildHasher.hash_one(key);
        self.shards[(hash >> 56) as usize % SHARDS]
            .lock()
            .expect("no code panics while it holds the lock")
    }
}

impl Shard {
    fn put(&mut self, key: Box<[u8]>, cached: Cached) {
        self.old.remove(&key);
        self.young.insert(key, cached);
        if self.young.len() > HALF_RECORDS_MAX {
            self.old = std::mem::take(&mut self.young);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use engine_api::layout::Fields;
    use engine_api::{Content, Header, Record, RecordId, RecordKey, Revision};

    use super::*;
    use crate::places::Arrival;
    use crate::tables::record_key;

    fn record(revision: i64) -> SharedRecord {
        let revision = Revision::from_i64(revision).unwrap();
        SharedRecord::from(Record {
            key: RecordKey::by_id(Collection::Carts, RecordId::new("CART-1").unwrap()),
            header: Header {
                revision,
                cleared: revision,
                content: Content::Live(Fields::new()),
            },
            parts: BTreeMap::new(),
        })
    }

    fn change(space: Space, key: &[u8]) -> Write<'_> {
        Write {
            space,
            key,
            value: Some(b"new"),
            arrival: Arrival::Known,
        }
    }

    #[test]
    fn a_reader_that_was_overtaken_does_not_put_the_old_record_back() {
        let cache = RecordCache::default();
        let key = record_key(Collection::Carts, &RecordId::new("CART-1").unwrap());
        // A reader looks at the tables up to 5; meanwhile change 5 is applied.
        cache.forget(change(Space::Records, &key), 5);
        cache.put(&key, record(1), 5);
        assert_eq!(cache.get(&key, 6), None);
        cache.put(&key, record(2), 6);
        assert_eq!(cache.get(&key, 6), Some(record(2)));
    }

    #[test]
    fn an_older_view_does_not_get_a_newer_record() {
        let cache = RecordCache::default();
        let key = record_key(Collection::Carts, &RecordId::new("CART-1").unwrap());
        cache.put(&key, record(2), 6);
        assert_eq!(cache.get(&key, 5), None);
        assert_eq!(cache.get(&key, 9), Some(record(2)));
    }

    #[test]
    fn a_part_that_stands_apart_takes_its_record_out() {
        let cache = RecordCache::default();
        let id = RecordId::new("PROD-1").unwrap();
        let key = record_key(Collection::Products, &id);
        let part = [
            crate::tables::parts_prefix(Collection::Products, &id),
            vec![1],
        ]
        .concat();
        cache.put(&key, record(1), 3);
        cache.forget(change(Space::Parts, &part), 3);
        assert_eq!(cache.get(&key, 4), None);
    }

    #[test]
    fn it_is_bounded_and_keeps_what_is_read() {
        let cache = RecordCache::default();
        let key = |number: usize| {
            let id = RecordId::new(format!("CART-{number}")).unwrap();
            record_key(Collection::Carts, &id)
        };
        for number in 0..4 * CACHED_RECORDS_MAX {
            cache.put(&key(number), record(1), 1);
            assert!(cache.get(&key(0), 1).is_some(), "{number}");
        }
        let kept = |number: &usize| cache.get(&key(*number), 1).is_some();
        let kept = (0..4 * CACHED_RECORDS_MAX).filter(kept).count();
        assert!(kept <= CACHED_RECORDS_MAX, "{kept}");
    }
}
