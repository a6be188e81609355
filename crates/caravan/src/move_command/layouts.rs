//! `caravan move layout`: whole collections go to another layout, one after the other.

use std::io::Write;

use anyhow::{Context, Result, bail};
use ops_api::Request;
use serde_json::Value;

use super::counter::{Counter, Need};
use super::{Format, say};
use crate::arguments::LayoutMove;
use crate::config::Config;
use crate::ops::{LayoutWanted, Size, freeze_text};
use crate::shards;
use crate::text::columns;

pub async fn plan(moved: &LayoutMove, format: Format, out: &mut dyn Write) -> Result<()> {
    let (counter, wanted) = opened(moved, Need::Look).await?;
    let planned = counter.ask(Request::PlanLayout { moved: wanted }).await?;
    match format {
        Format::Json => writeln!(out, "{planned:#}")?,
        Format::Text => write!(out, "{}", text_of(&planned, moved)?)?,
    }
    out.flush()?;
    let moves = planned["moves"].as_array().into_iter().flatten();
    let refusals: Vec<String> = moves
        .filter_map(|one| {
            let (collection, refused) = (one["collection"].as_str()?, one["refused"].as_str()?);
            Some(format!("{collection}: {refused}"))
        })
        .collect();
    match refusals.is_empty() {
        true => Ok(()),
        false => bail!("{}", refusals.join("\n")),
    }
}

pub async fn start(moved: &LayoutMove, out: &mut dyn Write) -> Result<()> {
    let (counter, wanted) = opened(moved, Need::Change).await?;
    let started = counter.ask(Request::StartLayout { moved: wanted }).await?;
    say(&started, Format::Text, out)
}

/// Who is asked, and what for.
async fn opened(moved: &LayoutMove, need: Need) -> Result<(Counter, Value)> {
    let config = Config::load(&moved.settings())?;
    let toward = match &config.toward {
        Some(file) => Some(shards::Plan::of(&config, file)?.layout.name),
        None => None,
    };
    let collection = moved.collection.as_deref().map(LayoutWanted::collection);
    let wanted = LayoutWanted {
        toward,
        collection: collection.transpose()?,
        name: moved.name.clone(),
        freeze_ms_max: moved.freeze_ms_max,
        records_per_s: moved.most.records_per_s,
        bytes_per_s: moved.most.bytes_per_s,
        p99_ms_max: moved.most.p99_ms_max,
    };
    let wanted = serde_json::to_value(wanted).context("texts and numbers always become JSON")?;
    // A directory's folders are open in the process that serves them, and nowhere else.
    let counter = match shards::uses_directory(&config)? {
        true => Counter::at_directory(config, need).await?,
        false => Counter::of_servers(config),
    };
    Ok((counter, wanted))
}

fn text_of(planned: &Value, moved: &LayoutMove) -> Result<String> {
    let told = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let head = [
        "collection",
        "stands",
        "from",
        "to",
        "records",
        "bytes",
        "known by",
        "takes about",
        "why in this order",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for one in planned["moves"].as_array().into_iter().flatten() {
        let size: Option<Size> = serde_json::from_value(one["size"].clone())?;
        let [records, bytes, known_by, takes] = match size {
            Some(size) => [
                size.records.to_string(),
                size.bytes.to_string(),
                size.known_by.text().to_owned(),
                format!(
                    "{:.0} s",
                    size.forecast(moved.most.records_per_s).as_secs_f64().ceil()
                ),
            ],
            None => ["-"; 4].map(str::to_owned),
        };
        rows.push([
            told(&one["collection"]),
            told(&one["stands"]),
            told(&one["from"]),
            told(&one["to"]),
            records,
            bytes,
            known_by,
            takes,
            told(&one["why"]),
        ]);
    }
    let freezes: Vec<u64> = serde_json::from_value(planned["freezes_ms_before"].clone())?;
    Ok(format!(
        "{} to {}:\n{}{}\n",
        told(&planned["layout"]),
        told(&planned["toward"]),
        columns(&rows),
        freeze_text(moved.freeze_ms_max, &freezes)
    ))
}
