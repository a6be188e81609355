//! The `judge` program: starts a shop or is told where one listens, judges it, and says what it found.
//!
//! Exit code 0 when nothing was found, 1 when something was, 2 when there was nothing to judge.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use judge::server::{Caravan, Host};
use judge::verdict::Verdict;
use judge::{carts, flash, keys, shop};

const EXIT_BREACH: u8 = 1;
const EXIT_FAILED: u8 = 2;

/// Judges a running shop from outside, over HTTP.
#[derive(Debug, Parser)]
#[command(name = "judge", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Debug, Subcommand)]
enum Scenario {
    /// Shoppers at work while the server is killed and started again: nothing acknowledged may be missing
    Shop(ShopArguments),
    /// Many buyers at once on one product with few pieces
    Flash {
        #[command(flatten)]
        target: Target,
        #[arg(long, default_value_t = 200)]
        buyers: u64,
        #[arg(long, default_value_t = 50)]
        pieces: u64,
    },
    /// One idempotency key in many requests at once
    Keys {
        #[command(flatten)]
        target: Target,
        #[arg(long, default_value_t = 100)]
        requests: u32,
    },
    /// One cart and many requests at once
    Carts {
        #[command(flatten)]
        target: Target,
    },
}

#[derive(Debug, Args)]
struct ShopArguments {
    /// The `caravan` program
    #[arg(long)]
    binary: PathBuf,
    /// Where the server keeps its data: an empty or new directory
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Where the judge keeps its ledger [default: DIR.ledger beside the data]
    #[arg(long)]
    ledger: Option<PathBuf>,
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// The longest a round goes on before the kill
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    #[arg(long, default_value_t = 64)]
    shoppers: u32,
    /// What shoppers do and when the server is killed follows from it; drawn when left out
    #[arg(long)]
    seed: Option<u64>,
    /// How long the server may take after a restart to finish what the kill cut off
    #[arg(long, default_value_t = 180)]
    settle_seconds: u64,
}

/// A server that runs already, or one to start.
#[derive(Debug, Args)]
struct Target {
    /// Where a shop listens, such as 127.0.0.1:8080
    #[arg(long, conflicts_with_all = ["binary", "data"], required_unless_present_all = ["binary", "data"])]
    address: Option<SocketAddr>,
    /// The `caravan` program
    #[arg(long, requires = "data")]
    binary: Option<PathBuf>,
    /// Where the started server keeps its data
    #[arg(long, value_name = "DIR", requires = "binary")]
    data: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(Arguments::parse().scenario) {
        Ok(verdict) if verdict.holds() => {
            println!("{verdict}");
            ExitCode::SUCCESS
        }
        Ok(verdict) => {
            println!("{verdict}");
            ExitCode::from(EXIT_BREACH)
        }
        Err(error) => {
            eprintln!("judge: {error:#}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

fn run(scenario: Scenario) -> anyhow::Result<Verdict> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match scenario {
        Scenario::Shop(arguments) => runtime.block_on(run_shop(arguments)),
        Scenario::Flash {
            target,
            buyers,
            pieces,
        } => {
            let plan = flash::Plan {
                buyers,
                pieces,
                cancelled: pieces / 5,
            };
            let (_server, address) = target.reach()?;
            runtime.block_on(flash::run(address, plan))
        }
        Scenario::Keys { target, requests } => {
            let (_server, address) = target.reach()?;
            runtime.block_on(keys::run(address, requests))
        }
        Scenario::Carts { target } => {
            let (_server, address) = target.reach()?;
            runtime.block_on(carts::run(address, carts::Plan::default()))
        }
    }
}

async fn run_shop(arguments: ShopArguments) -> anyhow::Result<Verdict> {
    let seed = arguments.seed.unwrap_or_else(judge::together::run_number);
    let ledger = arguments.ledger.unwrap_or_else(|| {
        let mut beside = arguments.data.clone().into_os_string();
        beside.push(".ledger");
        beside.into()
    });
    println!("judge shop --seed {seed}, ledger {}", ledger.display());
    let plan = shop::Plan {
        rounds: arguments.rounds,
        load: Duration::from_secs(arguments.seconds),
        shoppers: arguments.shoppers,
        seed,
        ledger,
        settle: Duration::from_secs(arguments.settle_seconds),
    };
    let mut host = Caravan::new(&arguments.binary, &arguments.data);
    shop::run(&mut host, &plan).await
}

impl Target {
    /// The server lives as long as what is returned first.
    fn reach(&self) -> anyhow::Result<(Option<Caravan>, SocketAddr)> {
        if let Some(address) = self.address {
            return Ok((None, address));
        }
        let binary = self.binary.as_ref().context("neither address nor binary")?;
        let data = self.data.as_ref().context("neither address nor data")?;
        let mut host = Caravan::new(binary, data);
        let address = host.start()?;
        Ok((Some(host), address))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_contradict_nothing() {
        Arguments::command().debug_assert();
    }
}
