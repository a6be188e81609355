//! `caravan move plan` and `start`: what is to be moved, and whether it can be.

use std::io::Write;

use anyhow::{Context, Result, anyhow};
use mover::Plan;
use ops_api::Request;
use serde_json::Value;

use super::counter::{Counter, Need};
use super::{Format, say};
use crate::arguments::{CutoverArguments, Moved};
use crate::map_command;
use crate::ops::Wanted;
use crate::text::columns;

pub async fn plan(moved: &Moved, out: &mut dyn Write) -> Result<()> {
    let moved_json = wanted(moved, None)?;
    let counter = Counter::open(&moved.named.place, Need::Look).await?;
    let planned = counter.ask(Request::Plan { moved: moved_json }).await?;
    let refused = planned["refused"].as_str().map(str::to_owned);
    match Format::of(&moved.named.json) {
        Format::Json => writeln!(out, "{planned:#}")?,
        Format::Text => write!(out, "{}", text_of(&planned)?)?,
    }
    out.flush()?;
    refused.map_or(Ok(()), |why| Err(anyhow!(why)))
}

pub async fn start(moved: &Moved, time: &CutoverArguments, out: &mut dyn Write) -> Result<()> {
    let moved_json = wanted(moved, time.when())?;
    let counter = Counter::open(&moved.named.place, Need::Change).await?;
    let started = counter.ask(Request::Start { moved: moved_json }).await?;
    say(&started, Format::of(&moved.named.json), out)
}

/// Refused here already if it makes no sense, before anybody is looked for.
fn wanted(moved: &Moved, cutover: Option<String>) -> Result<Value> {
    let wanted = Wanted {
        name: moved.named.name.clone(),
        collection: moved.collection.clone(),
        slots: moved.keys.slots.clone(),
        all: moved.keys.all,
        keys: moved.keys.keys.clone(),
        from: moved.from.clone(),
        to: moved.to.clone(),
        freeze_ms_max: moved.freeze_ms_max,
        records_per_s: moved.records_per_s,
        cutover,
    };
    wanted.understood()?;
    serde_json::to_value(wanted).context("texts and numbers always become JSON")
}

fn text_of(planned: &Value) -> Result<String> {
    let plan: Plan = serde_json::from_value(planned["plan"].clone())?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let owners = planned["owners"].as_array().map_or(&[][..], Vec::as_slice);
    let rows: Vec<[String; 2]> = owners
        .iter()
        .map(|owner| [text(&owner["keys"]), text(&owner["shard"])])
        .collect();
    let head = format!(
        "{} at generation {}:",
        plan.collection, planned["generation"]
    );
    let verdict = match planned["refused"].is_null() {
        true => format!(
            "\n{}: {} of {} from {} to {}: nothing stands in its way\n",
            text(&planned["move"]),
            map_command::scope_text(&plan.scope),
            plan.collection,
            plan.source,
            plan.target
        ),
        false => String::new(),
    };
    Ok(format!("{head}\n{}{verdict}", columns(&rows)))
}
