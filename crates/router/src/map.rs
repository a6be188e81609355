//! The map: who serves which keys of each collection, under one generation.
//!
//! Pure. A map is never changed in place: an edit makes the next one, whose
//! generation is one higher, and the keeper publishes it by compare-and-set
//! (W20). Which shard a key belongs to is a function of the map alone, so two
//! processes with the same generation always agree.

mod check;
mod edit;
mod error;
mod json;
mod shard_name;

use std::collections::{BTreeMap, BTreeSet};

use engine_api::{Generation, RecordId, RecordKey, Timestamp};
use layout::{BucketCounts, Collection, Field, Fields, Scope, ShardKey, Slot, SlotRange, Value};
use serde::{Deserialize, Serialize};

use crate::history::Note;

pub use check::{FROZEN_SCOPES_MAX, PINNED_KEYS_MAX, RANGES_MAX};
pub use edit::Edit;
pub use error::MapError;
pub use json::scope as scope_json;
pub use shard_name::{SHARD_NAME_BYTES_MAX, ShardName};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Map {
    pub generation: Generation,
    /// Why it was published; an edited map has none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Note>,
    /// Another map is about to follow: who has this one looks for it often, for a while.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub followed_soon: bool,
    pub collections: BTreeMap<Collection, CollectionMap>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectionMap {
    pub layout: String,
    /// The header fields that route a record, in order. They never change (W8).
    #[serde(with = "json::fields")]
    pub shard_key: Vec<Field>,
    pub cut: Cut,
    /// Keys that live elsewhere than the cut says.
    #[serde(
        with = "json::pinned",
        default,
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub pinned: BTreeMap<ShardKey, ShardName>,
    /// Keys that nobody may write now. Their owner still answers reads.
    #[serde(with = "json::scopes", default, skip_serializing_if = "Vec::is_empty")]
    pub frozen: Vec<Scope>,
    /// How many buckets each divided table has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub buckets: BTreeMap<String, u32>,
}

/// How the keys of a collection are cut into pieces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// By hash: runs of slots in order, each of the 4096 in exactly one.
    Slots(#[serde(with = "json::slot_runs")] Vec<SlotRun>),
    /// By order: each range goes from its bound to the next one's.
    Ranges(Vec<RangeStart>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRun {
    pub slots: SlotRange,
    pub shard: ShardName,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RangeStart {
    /// The first key of the range; only the first range has none.
    #[serde(
        with = "json::optional_shard_key",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub from: Option<ShardKey>,
    pub shard: ShardName,
}

impl Map {
    /// The generation of the first map ever published.
    pub const FIRST_GENERATION: Generation = Generation(1);

    pub fn first(collections: BTreeMap<Collection, CollectionMap>) -> Map {
        Map {
            generation: Map::FIRST_GENERATION,
            note: None,
            followed_soon: false,
            collections,
        }
    }

    /// The same map as a notice that the next one is near.
    #[must_use]
    pub fn noticing(self) -> Map {
        Map {
            followed_soon: true,
            ..self
        }
    }

    /// The same map with a note for its history.
    #[must_use]
    pub fn noted(self, at: Timestamp, reason: &str) -> Map {
        Map {
            note: Some(Note::new(at, reason)),
            ..self
        }
    }

    pub fn collection(&self, collection: Collection) -> Result<&CollectionMap, MapError> {
        self.collections
            .get(&collection)
            .ok_or(MapError::NoCollection { collection })
    }

    /// The one shard that serves the key under this generation.
    pub fn owner(&self, key: &RecordKey) -> Result<&ShardName, MapError> {
        Ok(self.collection(key.collection)?.owner(&key.shard_key))
    }

    pub fn is_frozen(&self, key: &RecordKey) -> Result<bool, MapError> {
        Ok(self.collection(key.collection)?.is_frozen(&key.shard_key))
    }

    /// Every shard that serves something.
    pub fn shards(&self) -> BTreeSet<&ShardName> {
        self.collections
            .values()
            .flat_map(CollectionMap::shards)
            .collect()
    }

    /// The full name of a record, its shard key taken from the header.
    pub fn key_for(
        &self,
        collection: Collection,
        id: RecordId,
        header: &Fields,
    ) -> Result<RecordKey, MapError> {
        self.collection(collection)?.key_for(collection, id, header)
    }

    /// The full name of a record whose id alone routes it.
    pub fn key_by_id(&self, collection: Collection, id: RecordId) -> Result<RecordKey, MapError> {
        self.key_for(collection, id, &Fields::new())
    }

    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("a map has text keys and plain values only")
    }

    /// Reads a map and checks its shape: what comes from a store is not trusted.
    pub fn from_json(bytes: &[u8]) -> Result<Map, MapError> {
        let map: Map = serde_json::from_slice(bytes).map_err(|error| MapError::Unreadable {
            reason: error.to_string(),
        })?;
        map.check_shape()?;
        Ok(map)
    }
}

impl CollectionMap {
    /// All 4096 slots on one shard: how a shop begins.
    pub fn on_one_shard(layout: &str, shard_key: Vec<Field>, shard: ShardName) -> CollectionMap {
        CollectionMap::cut_by(layout, shard_key, Cut::even_slots(&[shard]))
    }

    /// Nothing pinned, nothing frozen, nothing divided.
    pub fn cut_by(layout: &str, shard_key: Vec<Field>, cut: Cut) -> CollectionMap {
        CollectionMap {
            layout: layout.to_owned(),
            shard_key,
            cut,
            pinned: BTreeMap::new(),
            frozen: Vec::new(),
            buckets: BTreeMap::new(),
        }
    }

    pub fn owner(&self, key: &ShardKey) -> &ShardName {
        self.pinned
            .get(key)
            .unwrap_or_else(|| self.cut.shard_of(key))
    }

    /// Whose the key would be if it were not pinned.
    pub fn owner_by_cut(&self, key: &ShardKey) -> &ShardName {
        self.cut.shard_of(key)
    }

    pub fn is_frozen(&self, key: &ShardKey) -> bool {
        self.frozen.iter().any(|scope| scope.contains(key))
    }

    pub fn shards(&self) -> BTreeSet<&ShardName> {
        self.cut.shards().chain(self.pinned.values()).collect()
    }

    /// Where the keys are, without what is frozen for a moment.
    #[must_use]
    pub fn placement(&self) -> CollectionMap {
        CollectionMap {
            frozen: Vec::new(),
            ..self.clone()
        }
    }

    /// The full name of a record, its shard key taken from the id and the header.
    pub fn key_for(
        &self,
        collection: Collection,
        id: RecordId,
        header: &Fields,
    ) -> Result<RecordKey, MapError> {
        let id_field = collection.id_field();
        if self.shard_key == [id_field] {
            return Ok(RecordKey::by_id(collection, id));
        }
        let value = |field: Field| {
            if field == id_field {
                Some(Value::text(id.as_str()))
            } else {
                header.get(field).cloned()
            }
        };
        let shard_key = self.shard_key_from(collection, value)?;
        Ok(RecordKey {
            collection,
            id,
            shard_key,
        })
    }

    pub fn bucket_counts(&self) -> BucketCounts {
        BucketCounts::new(self.buckets.clone())
    }

    /// The shard key made of the values that `value` gives for its fields.
    pub fn shard_key_from(
        &self,
        collection: Collection,
        value: impl Fn(Field) -> Option<Value>,
    ) -> Result<ShardKey, MapError> {
        let values = self
            .shard_key
            .iter()
            .map(|field| {
                value(*field).ok_or(MapError::ShardKeyFieldMissing {
                    collection,
                    field: *field,
                })
            })
            .collect::<Result<Vec<Value>, MapError>>()?;
        ShardKey::of(&values).map_err(|error| MapError::NotAShardKey {
            collection,
            reason: error.to_string(),
        })
    }
}

impl Cut {
    /// The slots dealt out in equal runs, in the order of the shards.
    ///
    /// # Panics
    /// When no shard is given, or more shards than there are slots.
    pub fn even_slots(shards: &[ShardName]) -> Cut {
        assert!(!shards.is_empty() && shards.len() <= usize::from(layout::SLOT_COUNT));
        let owners = Slot::all()
            .map(|slot| {
                let index =
                    usize::from(slot.number()) * shards.len() / usize::from(layout::SLOT_COUNT);
                shards[index].clone()
            })
            .collect();
        Cut::Slots(edit::runs_of(owners))
    }

    /// Where a key belongs that is not pinned.
    pub fn shard_of(&self, key: &ShardKey) -> &ShardName {
        match self {
            Cut::Slots(runs) => {
                let slot = key.slot();
                &runs[runs.partition_point(|run| run.slots.last < slot)].shard
            }
            Cut::Ranges(ranges) => {
                let starts_at_or_before =
                    |range: &RangeStart| range.from.as_ref().is_none_or(|from| from <= key);
                &ranges[ranges.partition_point(starts_at_or_before) - 1].shard
            }
        }
    }

    fn shards(&self) -> Box<dyn Iterator<Item = &ShardName> + '_> {
        match self {
            Cut::Slots(runs) => Box::new(runs.iter().map(|run| &run.shard)),
            Cut::Ranges(ranges) => Box::new(ranges.iter().map(|range| &range.shard)),
        }
    }
}
