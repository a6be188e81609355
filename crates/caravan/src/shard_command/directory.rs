//! Shards of a data directory: the process that serves it makes the next one.

use std::io::Write;

use anyhow::Result;
use ops_api::Request;
use serde_json::Value;

use crate::arguments::{AddedShard, PlaceArguments};
use crate::move_command::{Counter, Format, Need, say};
use crate::text::columns;

pub async fn add(wish: &AddedShard, out: &mut dyn Write) -> Result<()> {
    let counter = Counter::open(&wish.place, Need::Change).await?;
    let added = counter.ask(Request::AddShard).await?;
    say(&added, Format::of(&wish.json), out)
}

pub async fn list(place: &PlaceArguments, format: Format, out: &mut dyn Write) -> Result<()> {
    let counter = Counter::open(place, Need::Look).await?;
    let shards = counter.ask(Request::Shards).await?;
    if format == Format::Json {
        writeln!(out, "{shards:#}")?;
        return Ok(());
    }
    let mut rows = vec![["shard", "collection", "keys"].map(str::to_owned)];
    for shard in shards.as_array().into_iter().flatten() {
        let name = shard["shard"].as_str().unwrap_or_default();
        let mut owned = 0;
        for (collection, keys) in shard["keys"].as_object().into_iter().flatten() {
            let keys = keys.as_array().into_iter().flatten();
            let keys: Vec<&str> = keys.filter_map(Value::as_str).collect();
            if !keys.is_empty() {
                rows.push([name, collection, &keys.join(", ")].map(str::to_owned));
                owned += 1;
            }
        }
        if owned == 0 {
            rows.push([name, "-", "none yet"].map(str::to_owned));
        }
    }
    write!(out, "{}", columns(&rows))?;
    Ok(())
}
