//! The one entry for tests and benchmarks: `cargo xtask test | bench | simulate | mutants`.
//!
//! Exit codes: 0 everything checked holds; 1 something does not hold or could not be checked;
//! 2 the input is wrong, said in one sentence.

#![forbid(unsafe_code)]

mod verdict;
mod workspace;

mod executables;
mod limited;
mod progress;
mod table;

mod bench;
mod mutants;
mod simulate;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand, error::ErrorKind};

use verdict::{BadInput, Verdict};
use workspace::Workspace;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Tests and benchmarks of Caravan")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Format, lints, every test, the simulation and a rotating few mutants
    Test(test::Options),
    /// Benchmarks with their goals, as one table of ratios
    Bench(bench::Options),
    /// Replay seeds of the simulation exactly, with their trace
    Simulate(simulate::Options),
    /// Break the product on purpose and see that a check notices
    Mutants(mutants::Options),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return answer_to_unparsed(&error),
    };
    match run(arguments.command) {
        Ok(Verdict::Holds) => ExitCode::SUCCESS,
        Ok(Verdict::Fails) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(if error.is::<BadInput>() { 2 } else { 1 })
        }
    }
}

fn run(command: Command) -> anyhow::Result<Verdict> {
    let workspace = Workspace::locate()?;
    match command {
        Command::Test(options) => test::run(&workspace, &options),
        Command::Bench(options) => bench::run(&workspace, &options),
        Command::Simulate(options) => simulate::run(&workspace, &options),
        Command::Mutants(options) => mutants::run(&workspace, &options),
    }
}

fn answer_to_unparsed(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        // Nothing is lost when help cannot be printed: the exit code still tells.
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    eprintln!("{}", first_sentence(&error.to_string()));
    ExitCode::from(2)
}

/// clap explains over several lines; what is wrong stands before the first empty one.
fn first_sentence(message: &str) -> String {
    message
        .lines()
        .take_while(|line| !line.trim().is_empty())
        .map(str::trim)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_arguments_is_sound() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    #[test]
    fn bad_input_is_told_in_one_sentence() {
        let cases = [
            (vec!["xtask", "simulate"], "--seed <N>"),
            (vec!["xtask", "simulate", "--seed", "x"], "invalid value"),
            (
                vec!["xtask", "mutants", "--all", "--few", "2"],
                "cannot be used with",
            ),
            (vec!["xtask", "mutants", "--few", "0"], "invalid value '0'"),
            (vec!["xtask", "tset"], "unrecognized subcommand"),
        ];
        for (arguments, expected) in cases {
            let error = Arguments::try_parse_from(&arguments).unwrap_err();
            let sentence = first_sentence(&error.to_string());
            assert!(
                sentence.contains(expected),
                "{arguments:?} told {sentence:?}"
            );
            assert!(
                !sentence.contains('\n') && !sentence.contains("Usage"),
                "{sentence:?}"
            );
            assert_eq!(error.exit_code(), 2);
        }
    }
}
