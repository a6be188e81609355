//! `caravan move status`, `list` and `audit`: the records, for people and for programs.

use std::io::Write;

use anyhow::Result;
use engine_api::Timestamp;
use mover::{End, GivenUp, MoveState, Pace, Phase, Plan};
use serde_json::Value;

use super::Format;
use crate::map_command::scope_text;
use crate::ops::{Entry, Seen, StandingMove, server};
use crate::text::columns;

pub fn status(seen: &Seen, format: Format, out: &mut dyn Write) -> Result<()> {
    match (format, &seen.record) {
        (Format::Json, _) => writeln!(out, "{:#}", seen.to_json())?,
        (Format::Text, Some(record)) => write!(out, "{}", text_of(seen, record))?,
        (Format::Text, None) => writeln!(out, "{}: never begun: start it again", seen.name)?,
    }
    Ok(())
}

pub fn list(moves: &[Seen], format: Format, out: &mut dyn Write) -> Result<()> {
    if format == Format::Json {
        let all = moves.iter().map(Seen::to_json);
        writeln!(out, "{:#}", Value::from_iter(all))?;
        return Ok(());
    }
    let head = [
        "move",
        "phase",
        "collection",
        "from",
        "to",
        "copied",
        "differences",
        "keys",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for Seen { name, record } in moves {
        let Some(StandingMove { state, .. }) = record else {
            let mut row = std::array::from_fn(|_| "-".to_owned());
            row[0] = name.to_string();
            row[1] = "never begun: start it again".to_owned();
            rows.push(row);
            continue;
        };
        let plan = &state.plan;
        rows.push([
            name.to_string(),
            state.phase.name().to_owned(),
            plan.collection.to_string(),
            plan.called(End::Source),
            plan.called(End::Target),
            state.shown.records_copied.to_string(),
            state.shown.differences.to_string(),
            scope_text(plan.scope()),
        ]);
    }
    write!(out, "{}", columns(&rows))?;
    Ok(())
}

pub fn audit(entries: &[Entry], format: Format, out: &mut dyn Write) -> Result<()> {
    if format == Format::Json {
        writeln!(out, "{:#}", serde_json::to_value(entries)?)?;
        return Ok(());
    }
    let mut rows = vec![["at", "who", "what", "outcome"].map(str::to_owned)];
    rows.extend(entries.iter().map(|entry| {
        let outcome = entry.outcome.clone();
        [
            entry.at().to_string(),
            entry.who.clone(),
            entry.what.clone(),
            outcome.unwrap_or_else(|| "not told: under way, or its process died".to_owned()),
        ]
    }));
    write!(out, "{}", columns(&rows))?;
    Ok(())
}

/// What a move would do, step by step.
pub fn steps(plan: &Plan) -> String {
    let steps = mover::steps(plan);
    let rows: Vec<[String; 2]> = steps
        .into_iter()
        .map(|step| [step.phase.to_owned(), step.what])
        .collect();
    columns(&rows)
}

fn text_of(seen: &Seen, record: &StandingMove) -> String {
    let (state, shown) = (&record.state, &record.state.shown);
    let plan = &state.plan;
    let mut rows = Vec::new();
    let mut say = |what: &str, text: String| rows.push([what.to_owned(), text]);
    say("move", seen.name.to_string());
    say("phase", phase_text(state));
    say(
        "keys",
        format!("{} of {}", scope_text(plan.scope()), plan.collection),
    );
    let [source, target] = [End::Source, End::Target].map(|end| plan.called(end));
    say("from, to", format!("{source}, {target}"));
    say("served by", server(state).unwrap_or("nobody".to_owned()));
    say("works for it", worker(record));
    say("copied", copied(state));
    say("lag", lag(state));
    say("throttle", throttle(state));
    say("differences", shown.differences.to_string());
    for key in &shown.differing {
        say("", key.clone());
    }
    for finding in &shown.findings {
        say("broken where it is", finding.clone());
    }
    if let Some(cleaned) = cleaned(state) {
        say("source", cleaned);
    }
    if let Some(ms) = shown.freeze_ms {
        say(
            "last freeze",
            format!("{ms} ms of {} at most", plan.freeze_ms_max),
        );
    }
    let parts = shown.freeze_parts.to_string();
    if !parts.is_empty() {
        say("of which", parts);
    }
    if let Some(forecast) = shown.forecast {
        let total = forecast.total_us / 1_000;
        say(
            "forecast",
            format!("a freeze of {total} ms: {}", forecast.parts),
        );
    }
    if let Some(given_up) = &state.given_up {
        say("given up", given_up_text(given_up));
    }
    if let Some(trouble) = &shown.trouble {
        say("trouble", trouble.clone());
    }
    columns(&rows)
}

pub fn phase_text(state: &MoveState) -> String {
    let wish = state
        .wish
        .map_or(String::new(), |wish| format!(", is to be {}", wish.name()));
    let by_itself = state
        .cutover_time
        .map_or(String::new(), |time| format!(", cuts over {time}"));
    let pace = match state.pace {
        Pace::Paused if !state.phase.is_over() => ", paused",
        Pace::Paused | Pace::Running => "",
    };
    let why = match &state.phase {
        mover::Phase::Aborted { why } => format!(": {why}"),
        _ => String::new(),
    };
    format!("{}{why}{wish}{by_itself}{pace}", state.phase.name())
}

fn worker(record: &StandingMove) -> String {
    match (record.held, record.state.phase.is_over()) {
        (_, true) => "nobody has to any more".to_owned(),
        (true, false) => format!("a process, under term {}", record.term),
        (false, false) => "nobody yet: a process that serves it takes it".to_owned(),
    }
}

pub fn copied(state: &MoveState) -> String {
    let shown = &state.shown;
    match shown.records_copied_back {
        0 => shown.records_copied.to_string(),
        back => format!("{}, and {back} back", shown.records_copied),
    }
}

/// What becomes of the source after the completion.
pub fn cleaned(state: &MoveState) -> Option<String> {
    let removed = state.shown.records_removed;
    match (&state.phase, &state.shown.in_use) {
        (Phase::Resting { grace_ms, .. }, _) => {
            let seconds = grace_ms.div_ceil(1_000);
            Some(format!("holds what was moved for {seconds} s more"))
        }
        (Phase::Cleaning { .. }, Some(reader)) => Some(format!("is not cleaned: {reader}")),
        (Phase::Cleaning { .. }, None) => Some(format!("{removed} records removed so far")),
        (Phase::Cleaned { .. }, _) => Some(format!("clean: {removed} records removed")),
        (Phase::Completed { .. }, _) if removed > 0 => {
            Some(format!("{removed} records removed, the rest is kept"))
        }
        _ => None,
    }
}

pub fn lag(state: &MoveState) -> String {
    let shown = &state.shown;
    let age = shown
        .lag_ms
        .map_or(String::new(), |ms| format!(", {:.1} s", seconds(ms)));
    format!("{} entries{age}", shown.lag_entries)
}

pub fn throttle(state: &MoveState) -> String {
    let (throttle, pacing) = (&state.throttle, &state.shown.pacing);
    let ms = |us: u64| std::time::Duration::from_micros(us).as_secs_f64() * 1e3;
    let fixed = throttle.records_per_second_max;
    // What was asked for is shown before a process has heard of it.
    let rate = match (pacing.records_per_second, fixed) {
        (Some(rate), Some(fixed)) => Some(rate.min(fixed)),
        (rate, fixed) => rate.or(fixed),
    };
    let why = match pacing.why.is_empty() {
        true => &throttle.reason,
        false => &pacing.why,
    };
    let mut said = match rate {
        Some(rate) => format!("{rate} records a second: {why}"),
        None => "none".to_owned(),
    };
    if let Some(bytes) = throttle.bytes_per_second_max {
        said = format!("{said}; at most {bytes} bytes a second");
    }
    if let (Some(felt), Some(most)) = (pacing.p99_us, pacing.p99_us_max) {
        let felt = format!(
            "99 of 100 requests take {:.1} ms of {:.1}",
            ms(felt),
            ms(most)
        );
        said = format!("{said}; {felt}");
    }
    said
}

pub fn given_up_text(given_up: &GivenUp) -> String {
    let at = Timestamp::from_unix_micros(given_up.at_unix_us);
    let frozen = match (given_up.generation, given_up.freeze_ms) {
        (None, _) => "nothing was frozen".to_owned(),
        (Some(_), Some(ms)) => format!("frozen for {ms} ms"),
        (Some(_), None) => "frozen for an unknown time".to_owned(),
    };
    format!("{at}, {frozen}: {}", given_up.why)
}

fn seconds(ms: u64) -> f64 {
    std::time::Duration::from_millis(ms).as_secs_f64()
}
