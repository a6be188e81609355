//! `caravan move`: what operators ask of live moves. The command changes records, or has them changed, and ends; the
//! processes that serve do the work.

mod certifying;
mod counter;
mod grouping;
mod layouts;
mod planning;
mod showing;
mod watching;

use std::io::Write;
use std::mem::ManuallyDrop;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use ops_api::{Asked, Request};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::arguments::{LayoutMoveCommand, MoveCommand, NamedMoves};
use crate::ops::{Entry, Seen};
pub use counter::{Counter, Need};

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
}

impl Format {
    pub fn of(wanted: &bool) -> Format {
        match wanted {
            true => Format::Json,
            false => Format::Text,
        }
    }
}

pub fn run(command: &MoveCommand, out: &mut dyn Write) -> Result<ExitCode> {
    runtime()?.block_on(carry_out(command, out))
}

async fn carry_out(command: &MoveCommand, out: &mut dyn Write) -> Result<ExitCode> {
    match command {
        MoveCommand::Plan { moved } => planning::plan(moved, out).await?,
        MoveCommand::Start { moved, time } => planning::start(moved, time, out).await?,
        MoveCommand::Layout(LayoutMoveCommand::Plan { moved, json }) => {
            layouts::plan(moved, Format::of(json), out).await?;
        }
        MoveCommand::Layout(LayoutMoveCommand::Start { moved }) => {
            layouts::start(moved, out).await?;
        }
        MoveCommand::Status(named) => {
            let counter = Counter::open(&named.place, Need::Look).await?;
            let moves = grouping::named(&counter, &named.which).await?;
            let format = Format::of(&named.json);
            match (&named.which.name, moves.as_slice()) {
                (Some(_), [seen]) => showing::status(seen, format, out)?,
                (_, moves) => showing::list(moves, format, out)?,
            }
        }
        MoveCommand::Watch(wish) => return watching::run(wish, out).await,
        MoveCommand::List { place, json } => {
            let counter = Counter::open(place, Need::Look).await?;
            showing::list(&grouping::all(&counter).await?, Format::of(json), out)?;
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
            most,
            reason,
        } => {
            let asked = Asked::Throttle {
                records_per_s: most.records_per_s,
                bytes_per_s: most.bytes_per_s,
                p99_ms_max: most.p99_ms_max,
                reason: reason.clone(),
            };
            ask(named, asked, out).await?;
        }
        MoveCommand::Cutover {
            named,
            time,
            by_hand,
            within,
        } => {
            let when = match by_hand {
                true => Some("by hand".to_owned()),
                false => time.when(),
            };
            let freeze_ms_max = within.freeze_ms_max;
            let asked = Asked::Cutover {
                when,
                freeze_ms_max,
            };
            ask(named, asked, out).await?;
        }
        MoveCommand::Rollback { named, within } => {
            let freeze_ms_max = within.freeze_ms_max;
            ask(named, Asked::Rollback { freeze_ms_max }, out).await?;
        }
        MoveCommand::Complete { named, grace, keep } => {
            let grace = match keep {
                true => Some("keep".to_owned()),
                false => grace.clone(),
            };
            ask(named, Asked::Complete { grace }, out).await?;
        }
        MoveCommand::Abort(named) => ask(named, Asked::Abort {}, out).await?,
        MoveCommand::Certificate(wish) => return certifying::show(wish, out).await,
    }
    Ok(ExitCode::SUCCESS)
}

async fn ask(named: &NamedMoves, asked: Asked, out: &mut dyn Write) -> Result<()> {
    let counter = Counter::open(&named.place, Need::Change).await?;
    let format = Format::of(&named.json);
    if let Some(name) = &named.which.name {
        return ask_one(&counter, name, asked, format, out).await;
    }
    let moves = grouping::named(&counter, &named.which).await?;
    let (count, mut refused) = (moves.len(), Vec::new());
    for seen in moves {
        let phase = seen.record.as_ref().map(|record| &record.state.phase);
        if let Some(phase) = phase.filter(|phase| grouping::is_done(phase, &asked)) {
            let sentence = format!("{}: is {} already", seen.name, phase.name());
            let told = json!({"move": seen.name, "told": sentence});
            say(&told, format, out)?;
            continue;
        }
        // The others of a group are asked all the same.
        let one = ask_one(&counter, seen.name.as_str(), asked.clone(), format, out).await;
        refused.extend(one.err());
    }
    out.flush()?;
    match (refused.len(), refused.into_iter().next()) {
        (_, None) => Ok(()),
        (_, Some(error)) if count == 1 => Err(error),
        (failed, Some(error)) => {
            bail!("{failed} of {count} moves were refused, the first: {error}")
        }
    }
}

async fn ask_one(
    counter: &Counter,
    name: &str,
    asked: Asked,
    format: Format,
    out: &mut dyn Write,
) -> Result<()> {
    let name = name.to_owned();
    let told = counter.ask(Request::Ask { name, asked }).await?;
    say(&told, format, out)
}

async fn seen(counter: &Counter, name: &str) -> Result<Seen> {
    let name = name.to_owned();
    Seen::of_json(counter.ask(Request::Status { name }).await?)
}

/// What came of a change, as whoever made it tells it.
pub fn say(told: &Value, format: Format, out: &mut dyn Write) -> Result<()> {
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

/// For commands that end, on engines elsewhere. It is not shut down, because the process is about to end: a driver that
/// is cut off in the middle of something would complain beside the one sentence of a failure.
pub fn runtime() -> Result<ManuallyDrop<Runtime>> {
    let built = Builder::new_multi_thread().enable_all().build();
    let built =
        built.context("the program cannot start its threads: check the limits of this user")?;
    Ok(ManuallyDrop::new(built))
}
