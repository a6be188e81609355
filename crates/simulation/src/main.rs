//! `simulation run`: lives through seeds and says which of them do not hold.
//! Exit code 0: all hold. 1: some do not; `failing seed: N` names each.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use simulation::report::{After, Failing, Tally, survey};
use simulation::seed::live;

const SEEDS_DEFAULT: u64 = 1000;

#[derive(Debug, Parser)]
#[command(about = "The shop and its router in a seeded world of faults")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lives through seeds and judges them
    Run(Run),
}

#[derive(Debug, Args)]
struct Run {
    /// Seeds 0 up to this one, excluded
    #[arg(long, value_name = "N", default_value_t = SEEDS_DEFAULT, conflicts_with = "seed")]
    seeds: u64,
    /// This seed alone
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Prints everything that happens in the seed
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Stops at the first seed that fails
    #[arg(long)]
    until_failure: bool,
    /// Prints failures only
    #[arg(long)]
    quiet: bool,
}

fn main() -> ExitCode {
    let Command::Run(run) = Arguments::parse().command;
    let (tally, failing) = match run.seed {
        Some(seed) => replay(seed, run.trace),
        None => survey(
            run.seeds,
            if run.until_failure {
                After::Stop
            } else {
                After::GoOn
            },
        ),
    };
    failing.iter().for_each(|failing| println!("{failing}"));
    if !run.quiet {
        println!("{tally}");
    }
    if failing.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn replay(seed: u64, trace: bool) -> (Tally, Vec<Failing>) {
    let lived = live(seed);
    if trace {
        for (number, event) in lived.history.events.iter().enumerate() {
            println!(
                "{:>5} {:>9.3} ms  {}",
                number + 1,
                event.at.as_secs_f64() * 1000.0,
                event.what
            );
        }
        println!("digest: {:016x}", lived.history.digest());
    }
    let mut tally = Tally::default();
    tally.add(&lived);
    let breaches = lived.breaches;
    let failing = if breaches.is_empty() {
        vec![]
    } else {
        vec![Failing { seed, breaches }]
    };
    (tally, failing)
}
