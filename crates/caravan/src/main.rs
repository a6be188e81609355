//! The `caravan` program: arguments in, text out, one sentence and exit code 2 when it fails.
//!
//! A file per command. Results go to standard output, progress and the one
//! sentence of a failure to standard error.

#![forbid(unsafe_code)]

mod serve;

mod sample;

mod shards;

mod layout_command;

mod map_command;

mod progress;

mod text;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};

use crate::shards::{DEFAULT_DIRECTORY, SHARDS_MAX};

/// What every failure ends with: bad input, a refused directory, a full disk.
const EXIT_FAILED: u8 = 2;

/// The system's allocator takes a third of the time of a durable order.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Keeps an online shop's carts, orders, products and sessions, and moves them
/// while shoppers keep buying.
#[derive(Debug, Parser)]
#[command(name = "caravan", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Open or make a data directory and show how the shop is stored in it
    Serve(ServeArguments),
    /// Check and explain layout files
    #[command(subcommand)]
    Layout(LayoutCommand),
    /// Look at the map: which shard serves which keys
    #[command(subcommand)]
    Map(MapCommand),
}

#[derive(Debug, Args)]
struct ServeArguments {
    /// Fill the directory with a small shop, always the same; once filled it is left as it is
    #[arg(long)]
    sample: bool,
    #[command(flatten)]
    directory: DirectoryArguments,
    /// How many shards a new directory gets [default: 1]; an existing one keeps its own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(SHARDS_MAX)))]
    shards: Option<u16>,
}

#[derive(Debug, Args)]
struct DirectoryArguments {
    /// Where the data is
    #[arg(long, value_name = "DIR", env = "CARAVAN_DATA", default_value = DEFAULT_DIRECTORY)]
    data: PathBuf,
}

#[derive(Debug, Subcommand)]
enum LayoutCommand {
    /// Say of each file whether it can be used, and if not, what to change
    Check {
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Show which table answers each operation of the shop, and at what cost
    Explain {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// List the built-in layout and the files of ./layouts
    List,
}

#[derive(Debug, Subcommand)]
enum MapCommand {
    /// Show the map of a data directory that no other process has open
    Show {
        #[command(flatten)]
        directory: DirectoryArguments,
    },
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return not_understood(&error),
    };
    let mut out = io::stdout().lock();
    let result = run(arguments.command, &mut out).and_then(|()| Ok(out.flush()?));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if reader_left(&error) => ExitCode::SUCCESS,
        Err(error) => failed(&error.to_string()),
    }
}

fn run(command: Command, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        Command::Serve(ServeArguments {
            sample,
            directory,
            shards,
        }) => {
            let filling = if sample {
                serve::Filling::Sample
            } else {
                serve::Filling::AsItIs
            };
            serve::run(&directory.data, shards, filling, out)
        }
        Command::Layout(LayoutCommand::Check { files }) => layout_command::check(&files, out),
        Command::Layout(LayoutCommand::Explain { file }) => layout_command::explain(&file, out),
        Command::Layout(LayoutCommand::List) => layout_command::list(out),
        Command::Map(MapCommand::Show { directory }) => map_command::show(&directory.data, out),
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
    eprintln!("caravan: {sentence}");
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
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_contradict_nothing() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_complaint_becomes_one_line() {
        let text =
            "error: these are missing:\n  <FILE>...\n\nUsage: caravan layout check <FILE>...";
        assert_eq!(first_paragraph(text), "these are missing: <FILE>...");
    }
}
