//! `caravan map`: the map as an operator reads it.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use layout::Scope;
use router::{CollectionMap, Cut, Map};

use crate::shards::{self, Shards};
use crate::text::columns;

pub fn show(directory: &Path, out: &mut dyn Write) -> Result<()> {
    shards::runtime()?.block_on(async {
        let shards = Shards::open_existing(directory).await?;
        write!(out, "{}", describe(&shards.router.map()))?;
        Ok(())
    })
}

/// The generation, then a line per collection and piece.
pub fn describe(map: &Map) -> String {
    let mut rows = vec![["collection", "layout", "shard key", "keys", "shard"].map(str::to_owned)];
    for (collection, collection_map) in &map.collections {
        let fields: Vec<&str> = collection_map
            .shard_key
            .iter()
            .map(|field| field.name())
            .collect();
        for (keys, shard) in pieces(collection_map) {
            rows.push([
                collection.to_string(),
                collection_map.layout.clone(),
                fields.join(", "),
                keys,
                shard,
            ]);
        }
    }
    format!("generation {}\n{}", map.generation, columns(&rows))
}

/// What the cut says, then what overrides it.
fn pieces(map: &CollectionMap) -> Vec<(String, String)> {
    let mut pieces: Vec<(String, String)> = match &map.cut {
        Cut::Slots(runs) => runs
            .iter()
            .map(|run| {
                let (first, last) = (run.slots.first.number(), run.slots.last.number());
                (format!("slots {first}-{last}"), run.shard.to_string())
            })
            .collect(),
        Cut::Ranges(ranges) => ranges
            .iter()
            .map(|range| {
                let from = range.from.as_ref();
                let from = from.map_or("the beginning".to_owned(), ToString::to_string);
                (format!("range from {from}"), range.shard.to_string())
            })
            .collect(),
    };
    let pinned = map.pinned.iter();
    pieces.extend(pinned.map(|(key, shard)| (format!("pinned {key}"), shard.to_string())));
    let frozen = map.frozen.iter();
    pieces.extend(frozen.map(|scope| (format!("frozen {}", scope_text(scope)), "-".to_owned())));
    let buckets = map.buckets.iter();
    pieces.extend(
        buckets.map(|(table, count)| (format!("{count} buckets in {table}"), "-".to_owned())),
    );
    pieces
}

fn scope_text(scope: &Scope) -> String {
    match scope {
        Scope::All => "all keys".to_owned(),
        Scope::Slots(ranges) => {
            let ranges = ranges.iter();
            let texts =
                ranges.map(|range| format!("{}-{}", range.first.number(), range.last.number()));
            format!("slots {}", texts.collect::<Vec<_>>().join(", "))
        }
        Scope::Range { from, to } => {
            let from = from
                .as_ref()
                .map_or("the beginning".to_owned(), ToString::to_string);
            let to = to
                .as_ref()
                .map_or("the end".to_owned(), ToString::to_string);
            format!("from {from} to {to}")
        }
        Scope::Keys(keys) => {
            let texts: Vec<String> = keys.iter().map(ToString::to_string).collect();
            format!("keys {}", texts.join(" "))
        }
    }
}
