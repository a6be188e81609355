//! Benchmarks: ratios taken in one run, because absolute times prove nothing here.

#![forbid(unsafe_code)]

mod engine;
mod orders;
mod raw;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The system's allocator takes a third of the time of a durable order.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
#[command(about = "Measures Caravan against raw baselines and prints ratios")]
struct Arguments {
    #[command(subcommand)]
    benchmark: Option<Benchmark>,
    /// A short run that only shows that everything works; its ratios mean nothing
    #[arg(long, global = true)]
    quick: bool,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// The embedded engine alone against a raw group commit
    Engine,
    /// Fills a directory and waits to be killed; part of `engine`
    #[command(hide = true)]
    Fill { path: PathBuf, orders: u64 },
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match arguments.benchmark.as_ref().unwrap_or(&Benchmark::Engine) {
        Benchmark::Engine => {
            let size = if arguments.quick {
                engine::QUICK
            } else {
                engine::FULL
            };
            let findings = engine::run(size)?;
            report::print(&findings);
            report::write("engine", &findings)?;
            Ok(())
        }
        Benchmark::Fill { path, orders } => engine::fill_forever(path, *orders),
    }
}
