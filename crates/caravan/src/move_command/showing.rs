//! `caravan move status` and `list`: the records, for people and for programs.

use std::io::Write;

use anyhow::Result;
use engine_api::Timestamp;
use feed::tenure::Tenured;
use mover::{GivenUp, MoveName, MoveState, Pace, WriteOwner};
use serde_json::{Value, json};

use super::Format;
use crate::map_command::scope_text;
use crate::text::columns;

pub fn status(
    name: &MoveName,
    record: &Tenured<MoveState>,
    format: Format,
    out: &mut dyn Write,
) -> Result<()> {
    match format {
        Format::Json => writeln!(out, "{:#}", json_of(name, Some(record)))?,
        Format::Text => write!(out, "{}", text_of(name, record))?,
    }
    Ok(())
}

pub fn list(
    moves: &[(MoveName, Option<Tenured<MoveState>>)],
    format: Format,
    out: &mut dyn Write,
) -> Result<()> {
    if format == Format::Json {
        let all = moves
            .iter()
            .map(|(name, record)| json_of(name, record.as_ref()));
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
    for (name, record) in moves {
        let Some(Tenured { state, .. }) = record else {
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
            plan.source.to_string(),
            plan.target.to_string(),
            state.shown.records_copied.to_string(),
            state.shown.differences.to_string(),
            scope_text(&plan.scope),
        ]);
    }
    write!(out, "{}", columns(&rows))?;
    Ok(())
}

fn json_of(name: &MoveName, record: Option<&Tenured<MoveState>>) -> Value {
    let Some(record) = record else {
        return json!({"move": name, "phase": null});
    };
    let state = &record.state;
    json!({
        "move": name,
        "phase": state.phase.name(),
        "served_by": server(state),
        "ended": state.phase.is_over(),
        "term": record.term,
        "held": record.holder.is_some(),
        "plan": state.plan,
        "pace": state.pace,
        "wish": state.wish,
        "throttle": state.throttle,
        "given_up": state.given_up,
        "shown": state.shown,
        "evidence": state.phase,
    })
}

fn text_of(name: &MoveName, record: &Tenured<MoveState>) -> String {
    let (state, shown) = (&record.state, &record.state.shown);
    let plan = &state.plan;
    let mut rows = Vec::new();
    let mut say = |what: &str, text: String| rows.push([what.to_owned(), text]);
    say("move", name.to_string());
    say("phase", phase_text(state));
    say(
        "keys",
        format!("{} of {}", scope_text(&plan.scope), plan.collection),
    );
    say("from, to", format!("{}, {}", plan.source, plan.target));
    say("served by", server(state).unwrap_or("nobody").to_owned());
    say("works for it", worker(record));
    say("copied", copied(state));
    let age = shown
        .lag_ms
        .map_or(String::new(), |ms| format!(", {:.1} s", seconds(ms)));
    say("lag", format!("{} entries{age}", shown.lag_entries));
    say("throttle", throttle(state));
    say("differences", shown.differences.to_string());
    for key in &shown.differing {
        say("", key.clone());
    }
    for finding in &shown.findings {
        say("broken where it is", finding.clone());
    }
    if let Some(ms) = shown.freeze_ms {
        say(
            "last freeze",
            format!("{ms} ms of {} at most", plan.freeze_ms_max),
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

fn phase_text(state: &MoveState) -> String {
    let wish = state
        .wish
        .map_or(String::new(), |wish| format!(", is to be {}", wish.name()));
    let pace = match state.pace {
        Pace::Paused if !state.phase.is_over() => ", paused",
        Pace::Paused | Pace::Running => "",
    };
    let why = match &state.phase {
        mover::Phase::Aborted { why } => format!(": {why}"),
        _ => String::new(),
    };
    format!("{}{why}{wish}{pace}", state.phase.name())
}

fn server(state: &MoveState) -> Option<&str> {
    match state.phase.write_owner() {
        WriteOwner::Source => Some(state.plan.source.as_str()),
        WriteOwner::Nobody => None,
        WriteOwner::Target => Some(state.plan.target.as_str()),
    }
}

fn worker(record: &Tenured<MoveState>) -> String {
    match (&record.holder, record.state.phase.is_over()) {
        (_, true) => "nobody has to any more".to_owned(),
        (Some(_), false) => format!("a process, under term {}", record.term),
        (None, false) => "nobody yet: a process that serves the layout takes it".to_owned(),
    }
}

fn copied(state: &MoveState) -> String {
    let shown = &state.shown;
    match shown.records_copied_back {
        0 => shown.records_copied.to_string(),
        back => format!("{}, and {back} back", shown.records_copied),
    }
}

fn throttle(state: &MoveState) -> String {
    let throttle = &state.throttle;
    match throttle.records_per_second_max {
        Some(most) => format!("{most} records a second: {}", throttle.reason),
        None => "none".to_owned(),
    }
}

fn given_up_text(given_up: &GivenUp) -> String {
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
