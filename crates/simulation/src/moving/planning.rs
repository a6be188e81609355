//! What is moved, drawn from the map that stands.

use layout::{Collection, Scope, ShardKey, SlotRange};
use router::{CollectionMap, Cut, Map, ShardName};

use crate::chance::Chance;
use crate::scenery::routing_texts;

/// Some keys of one shard, and another shard to take them.
#[derive(Clone, Debug)]
pub struct Picked {
    pub scope: Scope,
    /// One of the scope's keys, to see who owns it.
    pub example: ShardKey,
    pub source: ShardName,
    pub target: ShardName,
}

pub fn pick(
    map: &Map,
    collection: Collection,
    shards: &[ShardName],
    chance: &mut Chance,
) -> Option<Picked> {
    let of_collection = map.collection(collection).ok()?;
    let keys: Vec<ShardKey> = routing_texts(collection)
        .iter()
        .map(|text| ShardKey::of_text(text))
        .collect();
    let source = of_collection.owner(chance.pick(&keys)).clone();
    let others: Vec<ShardName> = shards
        .iter()
        .filter(|shard| **shard != source)
        .cloned()
        .collect();
    let target = chance.pick(&others).clone();
    let mut owned: Vec<ShardKey> = keys
        .iter()
        .filter(|key| *of_collection.owner(key) == source)
        .cloned()
        .collect();
    let owns_all = of_collection.shards().len() == 1;
    let drawn = chance.below(4);
    let scope = match drawn {
        0 if owns_all => Scope::All,
        1 => {
            owned.truncate(2);
            Scope::Keys(owned.clone())
        }
        2 if of_collection.pinned.is_empty() => Scope::Slots(all_slots_of(of_collection, &source)),
        _ => {
            // A pinned key does not go with its slot.
            owned.retain(|key| !of_collection.pinned.contains_key(key));
            let range = |key: &ShardKey| SlotRange {
                first: key.slot(),
                last: key.slot(),
            };
            Scope::Slots(owned.iter().map(range).collect())
        }
    };
    let example = owned.first()?.clone();
    Some(Picked {
        scope,
        example,
        source,
        target,
    })
}

/// Known keys and all others that nobody has named yet.
fn all_slots_of(collection: &CollectionMap, shard: &ShardName) -> Vec<SlotRange> {
    match &collection.cut {
        Cut::Slots(runs) => {
            let own = runs.iter().filter(|run| run.shard == *shard);
            own.map(|run| run.slots).collect()
        }
        Cut::Ranges(_) => Vec::new(),
    }
}
