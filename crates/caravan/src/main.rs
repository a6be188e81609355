//! The `caravan` program: arguments in, text out, one sentence and exit code 2 when it fails.
//!
//! A file per command. Results go to standard output; logs, progress and the one
//! sentence of a failure to standard error.

#![forbid(unsafe_code)]
// Futures that open shards on servers are nested deeply.
#![recursion_limit = "256"]

mod arguments;

mod config;

mod logging;

mod serve;

mod sample;

mod import;

mod shards;

mod ops;

mod metered;

mod faults;

mod metrics;

mod layout_command;

mod map_command;

mod move_command;

mod mover_command;

mod shard_command;

mod demo;

mod history_command;

mod reconcile_command;

mod progress;

mod canvas;

mod secrets;

mod text;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::arguments::{Arguments, Command, HistoryCommand, LayoutCommand, MapCommand, SchemaPart};
use crate::config::Config;
use crate::layout_command::Format;

/// What every failure ends with: bad input, a refused directory, a full disk.
const EXIT_FAILED: u8 = 2;

/// The system's allocator takes a third of the time of a durable order.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return not_understood(&error),
    };
    let mut out = io::stdout().lock();
    let result =
        run(arguments.command, &mut out).and_then(|code| Ok(out.flush().map(|()| code)?));
    match result {
        Ok(code) => code,
        Err(error) if reader_left(&error) => ExitCode::SUCCESS,
        Err(error) => failed(&error.to_string()),
    }
}

fn run(command: Command, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let done = match command {
        Command::Reconcile(wish) => {
            return reconcile_command::run(&Config::load(&wish.settings())?, &wish, out);
        }
        Command::Demo(wish) => return demo::run(&wish, out),
        Command::Move(command) => return move_command::run(&command, out),
        Command::Mover { settings } => mover_command::run(&Config::load(&settings)?, out),
        Command::Shard(command) => shard_command::run(&command, out),
        Command::Serve { sample, settings } => {
            let filling = if sample {
                serve::Filling::Sample
            } else {
                serve::Filling::AsItIs
            };
            serve::run(&Config::load(&settings)?, filling, out)
        }
        Command::Import(wish) => import::run(&wish, out),
        Command::Config { settings } => {
            write!(out, "{}", Config::load(&settings)?.text())?;
            Ok(())
        }
        Command::Layout(command) => layout(command, out),
        Command::History(HistoryCommand::Show { settings }) => {
            history_command::show(&Config::load(&settings)?, out)
        }
        Command::History(HistoryCommand::Rebuild { settings }) => {
            history_command::rebuild(&Config::load(&settings)?, out)
        }
        Command::Map(command) => {
            let config = Config::load(&command.place().settings())?;
            match &command {
                MapCommand::Show { .. } => map_command::show(&config, out),
                MapCommand::History { .. } => map_command::history(&config, out),
                MapCommand::Watch { .. } => map_command::watch(&config, out),
                MapCommand::Split(wish) => map_command::split(&config, wish, out),
            }
        }
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn layout(command: LayoutCommand, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        LayoutCommand::Check { files, json } => {
            let format = if json { Format::Json } else { Format::Text };
            layout_command::check(&files, format, out)
        }
        LayoutCommand::Explain { file, load } => layout_command::explain(&file, &load.load(), out),
        LayoutCommand::Diff { from, to } => layout_command::diff(&from, &to, out),
        LayoutCommand::Schema { file, part } => {
            let parts: Vec<_> = part.into_iter().map(SchemaPart::part).collect();
            layout_command::schema(&file, &parts, out)
        }
        LayoutCommand::List => layout_command::list(out),
    }
}

/// Help and version are answers; everything else is one sentence.
fn not_understood(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Nobody is left to be told that standard output is closed.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            failed("no command is given: caravan --help lists them")
        }
        _ => failed(&format!(
            "{}: caravan --help shows what there is",
            first_paragraph(&error.to_string())
        )),
    }
}

/// What the arguments' parser says before it goes on about usage, on one line.
fn first_paragraph(text: &str) -> String {
    let paragraph: Vec<&str> = text
        .lines()
        .take_while(|line| !line.is_empty())
        .map(str::trim)
        .collect();
    let line = paragraph.join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}

fn failed(sentence: &str) -> ExitCode {
    eprintln!("caravan: {}", secrets::masked(sentence));
    ExitCode::from(EXIT_FAILED)
}

/// `caravan … | head` has seen enough: that is no failure.
fn reader_left(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_becomes_one_line() {
        let text =
            "error: these are missing:\n  <FILE>...\n\nUsage: caravan layout check <FILE>...";
        assert_eq!(first_paragraph(text), "these are missing: <FILE>...");
    }
}
