//! `caravan move`: what operators ask of live moves. The command changes records in the control store and ends;
//! the processes that serve do the work.

mod certifying;
mod everywhere;
mod grouping;
mod planning;
mod showing;
mod sizing;
mod spreading;
pub mod typed;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use engine_api::ControlStore;
use mover::{MoveName, Pace, Throttle, Wish};

use crate::arguments::{MoveCommand, NamedMove, NamedMoves, PlaceArguments};
use crate::config::Config;
use crate::shards::Shards;

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

async fn carry_out(command: &MoveCommand, out: &mut dyn Write) -> Result<ExitCode> {
    match command {
        MoveCommand::Plan { moved, json } if spreading::is_asked(moved) => {
            spreading::plan(moved, Format::of(json), out).await?;
        }
        MoveCommand::Start { moved } if spreading::is_asked(moved) => {
            spreading::start(moved, out).await?;
        }
        MoveCommand::Plan { moved, json } => planning::plan(moved, Format::of(json), out).await?,
        MoveCommand::Start { moved } => planning::start(moved, out).await?,
        MoveCommand::Status { named, json } => {
            let control = control_of(&named.place).await?;
            let moves = grouping::named(control.as_ref(), &named.which).await?;
            match (&named.which.name, moves.as_slice()) {
                (Some(_), [(name, record)]) => {
                    showing::status(name, record, Format::of(json), out)?;
                }
                _ => {
                    let some = |(name, record)| (name, Some(record));
                    let moves: Vec<_> = moves.into_iter().map(some).collect();
                    showing::list(&moves, Format::of(json), out)?;
                }
            }
        }
        MoveCommand::List { place, json } => {
            let control = control_of(place).await?;
            let moves = mover::list(control.as_ref()).await?;
            showing::list(&moves, Format::of(json), out)?;
        }
        MoveCommand::Pause(named) => pace(named, Pace::Paused, out).await?,
        MoveCommand::Resume(named) => pace(named, Pace::Running, out).await?,
        MoveCommand::Throttle {
            named,
            records_per_s,
            reason,
        } => {
            let (name, control) = open(named).await?;
            let throttle = Throttle {
                records_per_second_max: *records_per_s,
                reason: reason.clone(),
            };
            mover::set_throttle(control.as_ref(), &name, throttle).await?;
            match records_per_s {
                Some(most) => writeln!(out, "{name}: at most {most} records a second")?,
                None => writeln!(out, "{name}: as fast as both sides allow")?,
            }
        }
        MoveCommand::Cutover(named) => ask(named, Wish::Cutover, out).await?,
        MoveCommand::Rollback(named) => ask(named, Wish::Rollback, out).await?,
        MoveCommand::Complete(named) => ask(named, Wish::Complete, out).await?,
        MoveCommand::Abort(named) => ask(named, Wish::Abort, out).await?,
        MoveCommand::Certificate(wish) => return certifying::show(wish, out).await,
    }
    Ok(ExitCode::SUCCESS)
}

async fn ask(named: &NamedMoves, wish: Wish, out: &mut dyn Write) -> Result<()> {
    let control = control_of(&named.place).await?;
    let moves = grouping::named(control.as_ref(), &named.which).await?;
    let (count, mut refused) = (moves.len(), Vec::new());
    for (name, record) in moves {
        if named.which.group.is_some() && grouping::is_done(&record.state.phase, wish) {
            writeln!(out, "{name}: is {} already", record.state.phase.name())?;
            continue;
        }
        match mover::ask(control.as_ref(), &name, wish).await {
            Ok(()) => writeln!(
                out,
                "{name}: it is to be {}; caravan move status shows what comes of it",
                wish.name()
            )?,
            // The others of a group are asked all the same.
            Err(error) => refused.push(error),
        }
    }
    out.flush()?;
    match (refused.len(), refused.into_iter().next()) {
        (_, None) => Ok(()),
        (_, Some(error)) if count == 1 => Err(error.into()),
        (failed, Some(error)) => {
            bail!("{failed} of {count} moves were refused, the first: {error}")
        }
    }
}

async fn pace(named: &NamedMoves, pace: Pace, out: &mut dyn Write) -> Result<()> {
    let control = control_of(&named.place).await?;
    for (name, _) in grouping::named(control.as_ref(), &named.which).await? {
        mover::set_pace(control.as_ref(), &name, pace).await?;
        match pace {
            Pace::Paused => writeln!(out, "{name}: stands still until caravan move resume")?,
            Pace::Running => writeln!(out, "{name}: goes on")?,
        }
    }
    Ok(())
}

async fn open(named: &NamedMove) -> Result<(MoveName, Arc<dyn ControlStore>)> {
    let name = MoveName::new(&named.name)?;
    Ok((name, control_of(&named.place).await?))
}

async fn control_of(place: &PlaceArguments) -> Result<Arc<dyn ControlStore>> {
    Shards::control(&config_of(place)?).await
}

pub fn config_of(place: &PlaceArguments) -> Result<Config> {
    let config = Config::load(&place.settings())?;
    // The process that serves a directory has it locked, and without one nothing moves.
    ensure!(
        config.layout.is_some(),
        "a data directory lets one process in, the one that would have to move the keys: name a layout on servers with --layout FILE"
    );
    Ok(config)
}

/// Engines elsewhere need more than a clock.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the program cannot start its threads: check the limits of this user")
}
