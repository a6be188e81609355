//! How a sharded deployment divides a collection. Pure.
//!
//! The key is not the header's own field but `shard_key`, which holds the same
//! values in order: a removed record has no header fields any more, and a
//! document whose shard key changes would have to move between shards in the
//! middle of its removal. As hexadecimal text it sorts like the values, so that
//! split points and zones are those of the layout. Only where the shard key is
//! the record's id, `_id` itself is hashed.

use engine_api::layout::{Collection, CollectionLayout, Cut, Field, RangeCut};
use mongodb::bson::{Bson, Document, doc};

use crate::document::hex;

/// Fewer pieces than this and a new collection would sit on few shards until
/// the balancer has moved some away, under load.
const INITIAL_CHUNKS: i32 = 128;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharding {
    pub collection: Collection,
    pub shard_key: Vec<Field>,
    pub cut: Cut,
}

impl Sharding {
    pub fn of(layout: &CollectionLayout) -> Sharding {
        Sharding {
            collection: layout.collection,
            shard_key: layout.shard_key.clone(),
            cut: layout.cut.clone(),
        }
    }

    /// Commands for the `admin` database, in their order.
    pub(crate) fn commands(&self, namespace: &str) -> Vec<Document> {
        match &self.cut {
            Cut::Slots { .. } => vec![doc! {
                "shardCollection": namespace,
                "key": { self.hashed_field(): "hashed" },
                "numInitialChunks": INITIAL_CHUNKS,
            }],
            Cut::Ranges { ranges, zones } => {
                let mut commands: Vec<Document> = Vec::new();
                for (zone, shards) in zones {
                    let join = |shard| doc! { "addShardToZone": shard, "zone": zone };
                    commands.extend(shards.iter().map(join));
                }
                commands.push(doc! { "shardCollection": namespace, "key": { "shard_key": 1 } });
                commands.extend(zone_ranges(namespace, ranges));
                let split =
                    |from| doc! { "split": namespace, "middle": { "shard_key": hex(from) } };
                let points = ranges.iter().filter_map(|range| range.from.as_ref());
                commands.extend(points.map(split));
                commands
            }
        }
    }

    fn hashed_field(&self) -> &'static str {
        if self.shard_key == [self.collection.id_field()] {
            "_id"
        } else {
            "shard_key"
        }
    }
}

/// Each range reaches up to where the next one begins.
fn zone_ranges(namespace: &str, ranges: &[RangeCut]) -> Vec<Document> {
    let bound = |range: Option<&RangeCut>, open: Bson| {
        let from = range.and_then(|range| range.from.as_ref());
        from.map_or(open, |from| Bson::String(hex(from)))
    };
    let command = |(index, range): (usize, &RangeCut)| {
        let zone = range.zone.as_ref()?;
        Some(doc! {
            "updateZoneKeyRange": namespace,
            "min": { "shard_key": bound(Some(range), Bson::MinKey) },
            "max": { "shard_key": bound(ranges.get(index + 1), Bson::MaxKey) },
            "zone": zone,
        })
    };
    ranges.iter().enumerate().filter_map(command).collect()
}
