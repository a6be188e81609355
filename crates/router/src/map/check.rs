//! What must hold of every map, checked before it is published and after it is read.

use std::collections::BTreeSet;

use layout::table::BUCKETS_MAX;
use layout::{Collection, SLOT_COUNT};

use super::{CollectionMap, Cut, Map, MapError, RangeStart, ShardName, SlotRun};

/// The most ranges one collection is cut into.
pub const RANGES_MAX: usize = 4096;
/// The most keys one collection pins.
pub const PINNED_KEYS_MAX: usize = 10_000;
/// The most scopes frozen at once in one collection.
pub const FROZEN_SCOPES_MAX: usize = 64;

impl Map {
    /// The shape of the map, and that every shard it names is among `known`.
    pub fn check(&self, known: &BTreeSet<ShardName>) -> Result<(), MapError> {
        self.check_shape()?;
        match self
            .shards()
            .into_iter()
            .find(|shard| !known.contains(*shard))
        {
            Some(shard) => Err(MapError::UnknownShard {
                shard: shard.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Everything that can be judged without knowing which shards there are.
    pub fn check_shape(&self) -> Result<(), MapError> {
        self.collections
            .iter()
            .try_for_each(|(collection, map)| map.check(*collection))
    }
}

impl CollectionMap {
    fn check(&self, collection: Collection) -> Result<(), MapError> {
        if self.shard_key.is_empty() {
            return Err(MapError::NoShardKey { collection });
        }
        let known = collection.header_fields();
        if let Some(field) = self.shard_key.iter().find(|field| !known.contains(field)) {
            return Err(MapError::NotAHeaderField {
                collection,
                field: *field,
            });
        }
        match &self.cut {
            Cut::Slots(runs) => check_runs(collection, runs)?,
            Cut::Ranges(ranges) => check_ranges(collection, ranges)?,
        }
        at_most(
            collection,
            "pinned keys",
            self.pinned.len(),
            PINNED_KEYS_MAX,
        )?;
        at_most(
            collection,
            "frozen scopes",
            self.frozen.len(),
            FROZEN_SCOPES_MAX,
        )?;
        let wrong_count = |(_, count): &(&String, &u32)| !(1..=BUCKETS_MAX).contains(*count);
        match self.buckets.iter().find(wrong_count) {
            Some((table, count)) => Err(MapError::BucketCount {
                collection,
                table: table.clone(),
                count: *count,
                most: BUCKETS_MAX,
            }),
            None => Ok(()),
        }
    }
}

/// Runs in order, without a gap and without an overlap, from the first slot to the last.
fn check_runs(collection: Collection, runs: &[SlotRun]) -> Result<(), MapError> {
    let mut next = 0;
    for run in runs {
        let (first, last) = (run.slots.first.number(), run.slots.last.number());
        if first > next {
            return Err(MapError::SlotOwners {
                collection,
                slot: next,
                found: 0,
            });
        }
        if first < next || last < first {
            return Err(MapError::SlotOwners {
                collection,
                slot: first,
                found: 2,
            });
        }
        next = last + 1;
    }
    if next < SLOT_COUNT {
        return Err(MapError::SlotOwners {
            collection,
            slot: next,
            found: 0,
        });
    }
    Ok(())
}

/// The first range without a bound, the others with rising ones.
fn check_ranges(collection: Collection, ranges: &[RangeStart]) -> Result<(), MapError> {
    at_most(collection, "ranges", ranges.len(), RANGES_MAX)?;
    match ranges.first() {
        Some(RangeStart { from: None, .. }) => {}
        _ => {
            return Err(MapError::RangesOutOfOrder {
                collection,
                index: 0,
            });
        }
    }
    match ranges
        .windows(2)
        .position(|pair| pair[1].from <= pair[0].from)
    {
        Some(index) => Err(MapError::RangesOutOfOrder {
            collection,
            index: index + 1,
        }),
        None => Ok(()),
    }
}

fn at_most(
    collection: Collection,
    what: &'static str,
    found: usize,
    most: usize,
) -> Result<(), MapError> {
    if found > most {
        return Err(MapError::TooMany {
            collection,
            what,
            found,
            most,
        });
    }
    Ok(())
}
