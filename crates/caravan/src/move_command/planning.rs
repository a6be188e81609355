//! `caravan move plan` and `start`: what is to be moved, and whether it can be.

use std::io::Write;

use anyhow::{Context, Result, anyhow};
use layout::{SLOT_COUNT, Scope};
use mover::{End, Plan};
use ops_api::Request;
use serde_json::Value;

use super::counter::{Counter, Need};
use super::{Format, say, showing};
use crate::arguments::{CutoverArguments, Moved};
use crate::map_command;
use crate::ops::{Size, Wanted, freeze_text};
use crate::text::columns;

pub async fn plan(moved: &Moved, out: &mut dyn Write) -> Result<()> {
    let moved_json = wanted(moved, None)?;
    let counter = Counter::open(&moved.named.place, Need::Look).await?;
    let planned = counter.ask(Request::Plan { moved: moved_json }).await?;
    let refused = planned["refused"].as_str().map(str::to_owned);
    match Format::of(&moved.named.json) {
        Format::Json => writeln!(out, "{planned:#}")?,
        Format::Text if planned["moves"].is_array() => {
            write!(out, "{}", spread_text(&planned, moved)?)?;
        }
        Format::Text => write!(out, "{}", text_of(&planned, moved)?)?,
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
    let keys = &moved.keys;
    let wanted = Wanted {
        name: moved.named.name.clone(),
        collection: moved.collection.clone(),
        slots: keys.slots.clone(),
        all: keys.all,
        keys: keys.keys.clone(),
        range: keys.range.clone(),
        unpin: keys.unpin.clone(),
        onto: moved.onto.clone(),
        drain: keys.drain.clone(),
        from: moved.from.clone(),
        to: moved.to.clone(),
        freeze_ms_max: moved.freeze_ms_max,
        records_per_s: moved.most.records_per_s,
        bytes_per_s: moved.most.bytes_per_s,
        p99_ms_max: moved.most.p99_ms_max,
        cutover,
    };
    wanted.understood()?;
    serde_json::to_value(wanted).context("texts and numbers always become JSON")
}

fn text_of(planned: &Value, moved: &Moved) -> Result<String> {
    let plan: Plan = serde_json::from_value(planned["plan"].clone())?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let owners = planned["owners"].as_array().map_or(&[][..], Vec::as_slice);
    let rows: Vec<[String; 2]> = owners
        .iter()
        .map(|owner| [text(&owner["keys"]), text(&owner["shard"])])
        .collect();
    let size: Size = serde_json::from_value(planned["size"].clone())?;
    let verdict = match planned["refused"].is_null() {
        true => format!(
            "\n{}: {} of {} from {} to {}: nothing stands in its way\n",
            text(&planned["move"]),
            map_command::scope_text(plan.scope()),
            plan.collection,
            plan.called(End::Source),
            plan.called(End::Target)
        ),
        false => String::new(),
    };
    Ok(format!(
        "{} at generation {}:\n{}\n{}\n\
         to copy: {} records, {} bytes ({})\n\
         takes: about {:.0} s, by how fast they were read just now\n{}\n{verdict}",
        plan.collection,
        planned["generation"],
        columns(&rows),
        showing::steps(&plan),
        size.records,
        size.bytes,
        size.known_by.text(),
        size.forecast(moved.most.records_per_s).as_secs_f64().ceil(),
        freeze_text(plan.freeze_ms_max, &freezes(planned)?),
    ))
}

/// Several moves at once.
fn spread_text(planned: &Value, moved: &Moved) -> Result<String> {
    let head = [
        "move",
        "from",
        "to",
        "keys",
        "share",
        "records",
        "bytes",
        "known by",
        "takes about",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for one in planned["moves"].as_array().into_iter().flatten() {
        let plan: Plan = serde_json::from_value(one["plan"].clone())?;
        let size: Size = serde_json::from_value(one["size"].clone())?;
        let forecast = size.forecast(moved.most.records_per_s).as_secs_f64().ceil();
        rows.push([
            one["move"].as_str().unwrap_or_default().to_owned(),
            plan.called(End::Source),
            plan.called(End::Target),
            map_command::scope_text(plan.scope()),
            share(plan.scope()),
            size.records.to_string(),
            size.bytes.to_string(),
            size.known_by.text().to_owned(),
            format!("{forecast:.0} s"),
        ]);
    }
    let mut text = columns(&rows);
    for left_out in planned["left_out"].as_array().into_iter().flatten() {
        let told = |name: &str| left_out[name].as_str().unwrap_or_default();
        let (collection, why) = (told("collection"), told("reason"));
        text += &format!("{collection} stay where they are: {why}\n");
    }
    text += &freeze_text(moved.freeze_ms_max, &freezes(planned)?);
    text += "\n";
    if planned["refused"].is_null() {
        text += "nothing stands in their way\n";
    }
    Ok(text)
}

fn freezes(planned: &Value) -> Result<Vec<u64>> {
    Ok(serde_json::from_value(
        planned["freezes_ms_before"].clone(),
    )?)
}

/// How much of the collection's slots.
fn share(scope: &Scope) -> String {
    match scope {
        Scope::All => "100 %".to_owned(),
        Scope::Slots(ranges) => {
            let count = |range: &layout::SlotRange| range.last.number() - range.first.number() + 1;
            let slots: u16 = ranges.iter().map(count).sum();
            format!("{:.1} %", f64::from(slots) * 100.0 / f64::from(SLOT_COUNT))
        }
        Scope::Range { .. } | Scope::Keys(_) => "-".to_owned(),
    }
}
