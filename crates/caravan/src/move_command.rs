//! `caravan move` and `caravan shard`: what operators ask of live moves and of shards. The command changes records, or
//! has them changed, and ends; the processes that serve do the work.

mod certifying;
mod counter;
mod planning;
mod showing;
mod watching;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use ops_api::{Asked, Request};
use serde_json::Value;

use crate::arguments::{MoveCommand, NamedMove, PlaceArguments, ShardCommand};
use crate::ops::{Entry, Seen};
use crate::text::columns;
use counter::{Counter, Need};

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Text,
    Json,
}

impl Format {
    fn of(wanted: &bool) -> Format {
        match wanted {
            true => Format::Json,
            false => Format::Text,
        }
    }
}

pub fn run(command: &MoveCommand, out: &mut dyn Write) -> Result<ExitCode> {
    runtime()?.block_on(carry_out(command, out))
}

pub fn run_shard(command: &ShardCommand, out: &mut dyn Write) -> Result<ExitCode> {
    runtime()?.block_on(async {
        match command {
            ShardCommand::List { place, json } => list_shards(place, Format::of(json), out).await?,
            ShardCommand::Add { place, json } => {
                let counter = Counter::open(place, Need::Change).await?;
                let added = counter.ask(Request::AddShard).await?;
                say(&added, Format::of(json), out)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn carry_out(command: &MoveCommand, out: &mut dyn Write) -> Result<ExitCode> {
    match command {
        MoveCommand::Plan { moved } => planning::plan(moved, out).await?,
        MoveCommand::Start { moved, time } => planning::start(moved, time, out).await?,
        MoveCommand::Status(named) => {
            let counter = Counter::open(&named.place, Need::Look).await?;
            let seen = seen(&counter, &named.name).await?;
            showing::status(&seen, Format::of(&named.json), out)?;
        }
        MoveCommand::Watch(wish) => return watching::run(wish, out).await,
        MoveCommand::List { place, json } => {
            let counter = Counter::open(place, Need::Look).await?;
            let moves: Vec<Value> = serde_json::from_value(counter.ask(Request::List).await?)?;
            let moves = moves
                .into_iter()
                .map(Seen::of_json)
                .collect::<Result<Vec<_>>>()?;
            showing::list(&moves, Format::of(json), out)?;
        }
        MoveCommand::Audit { place, json } => {
            let counter = Counter::open(place, Need::Look).await?;
            let entries: Vec<Entry> = serde_json::from_value(counter.ask(Request::Audit).await?)?;
            showing::audit(&entries, Format::of(json), out)?;
        }
        MoveCommand::Pause(named) => ask(named, Asked::Pause {}, out).await?,
        MoveCommand::Resume(named) => ask(named, Asked::Resume {}, out).await?,
        MoveCommand::Throttle {
            named,
            records_per_s,
            reason,
        } => {
            let (records_per_s, reason) = (*records_per_s, reason.clone());
            let asked = Asked::Throttle {
                records_per_s,
                reason,
            };
            ask(named, asked, out).await?;
        }
        MoveCommand::Cutover {
            named,
            time,
            by_hand,
        } => {
            let when = match by_hand {
                true => Some("by hand".to_owned()),
                false => time.when(),
            };
            ask(named, Asked::Cutover { when }, out).await?;
        }
        MoveCommand::Rollback(named) => ask(named, Asked::Rollback {}, out).await?,
        MoveCommand::Complete(named) => ask(named, Asked::Complete {}, out).await?,
        MoveCommand::Abort(named) => ask(named, Asked::Abort {}, out).await?,
        MoveCommand::Certificate(wish) => return certifying::show(wish, out).await,
    }
    Ok(ExitCode::SUCCESS)
}

async fn ask(named: &NamedMove, asked: Asked, out: &mut dyn Write) -> Result<()> {
    let counter = Counter::open(&named.place, Need::Change).await?;
    let name = named.name.clone();
    let told = counter.ask(Request::Ask { name, asked }).await?;
    say(&told, Format::of(&named.json), out)
}

async fn seen(counter: &Counter, name: &str) -> Result<Seen> {
    let name = name.to_owned();
    Seen::of_json(counter.ask(Request::Status { name }).await?)
}

async fn list_shards(place: &PlaceArguments, format: Format, out: &mut dyn Write) -> Result<()> {
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

/// What came of a change, as whoever made it tells it.
fn say(told: &Value, format: Format, out: &mut dyn Write) -> Result<()> {
    match format {
        Format::Json => writeln!(out, "{told:#}")?,
        Format::Text => {
            let sentence = told["told"].as_str();
            writeln!(
                out,
                "{}",
                sentence.context("the answer says nothing: look at the status")?
            )?;
        }
    }
    Ok(())
}

/// Engines elsewhere need more than a clock.
fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the program cannot start its threads: check the limits of this user")
}
