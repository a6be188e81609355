//! Benchmarks: ratios taken in one run, because absolute times prove nothing here.

#![forbid(unsafe_code)]

mod engine;
mod engines;
mod http;
mod moves;
mod orders;
mod raw;
mod report;

use std::path::{Path, PathBuf};
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
    /// MongoDB and Cassandra through the engines against the bare drivers
    Engines,
    /// The shop behind HTTP against bare hyper
    Http {
        /// The product's program; the one beside this program when left out
        #[arg(long)]
        binary: Option<PathBuf>,
    },
    /// Two processes over the same servers against one, and what a lease costs
    Processes,
    /// Three times what the shop can answer: what is left of checkout, and who is refused
    Overload {
        /// The product's program; the one beside this program when left out
        #[arg(long)]
        binary: Option<PathBuf>,
    },
    /// A live move: copying and comparing against bare loops, what shoppers feel, the mover's memory
    Moves {
        /// The product's program; the one beside this program when left out
        #[arg(long)]
        binary: Option<PathBuf>,
        /// Only this part of it
        #[arg(long)]
        part: Option<moves::Part>,
    },
    /// The baselines of `http` alone
    Ceilings,
    /// Puts load on a running shop and prints rate and latency
    Load(http::LoadArguments),
    /// Serves the baselines of `http`; part of it
    #[command(hide = true)]
    Baseline,
    /// Moves so many records and tells the most memory that it had; part of `moves`
    #[command(hide = true)]
    MoveAlone { orders: u64 },
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
    match &arguments.benchmark {
        None => {
            run_engine(arguments.quick)?;
            run_engines(arguments.quick)?;
            run_processes(arguments.quick)?;
            run_http(arguments.quick, None)?;
            run_overload(arguments.quick, None)?;
            run_moves(arguments.quick, None, None)
        }
        Some(Benchmark::Engine) => run_engine(arguments.quick),
        Some(Benchmark::Engines) => run_engines(arguments.quick),
        Some(Benchmark::Http { binary }) => run_http(arguments.quick, binary.as_deref()),
        Some(Benchmark::Processes) => run_processes(arguments.quick),
        Some(Benchmark::Overload { binary }) => run_overload(arguments.quick, binary.as_deref()),
        Some(Benchmark::Moves { binary, part }) => {
            run_moves(arguments.quick, *part, binary.as_deref())
        }
        Some(Benchmark::MoveAlone { orders }) => moves::move_alone(*orders),
        Some(Benchmark::Ceilings) => http::print_ceilings(http_size(arguments.quick)),
        Some(Benchmark::Load(load)) => http::put_load(load),
        Some(Benchmark::Baseline) => http::serve_baseline(),
        Some(Benchmark::Fill { path, orders }) => engine::fill_forever(path, *orders),
    }
}

fn run_engine(quick: bool) -> anyhow::Result<()> {
    let size = if quick { engine::QUICK } else { engine::FULL };
    let findings = engine::run(size)?;
    report::print(&findings);
    report::write("engine", &findings)?;
    Ok(())
}

fn run_engines(quick: bool) -> anyhow::Result<()> {
    let size = if quick { engines::QUICK } else { engines::FULL };
    let findings = engines::run(size)?;
    report::print(&findings);
    report::write("engines", &findings)?;
    Ok(())
}

fn run_processes(quick: bool) -> anyhow::Result<()> {
    use http::processes::{FULL, QUICK};
    let findings = http::processes::run(if quick { QUICK } else { FULL })?;
    report::print(&findings);
    report::write("processes", &findings)?;
    Ok(())
}

fn run_http(quick: bool, binary: Option<&Path>) -> anyhow::Result<()> {
    let findings = http::run(http_size(quick), binary)?;
    report::print(&findings);
    report::write("http", &findings)?;
    Ok(())
}

fn run_overload(quick: bool, binary: Option<&Path>) -> anyhow::Result<()> {
    let size = match quick {
        true => http::OVERLOAD_QUICK,
        false => http::OVERLOAD_FULL,
    };
    let findings = http::run_overload(size, binary)?;
    report::print(&findings);
    report::write("overload", &findings)?;
    Ok(())
}

fn run_moves(quick: bool, part: Option<moves::Part>, binary: Option<&Path>) -> anyhow::Result<()> {
    let size = if quick { moves::QUICK } else { moves::FULL };
    let findings = moves::run(size, part, binary)?;
    report::print(&findings);
    report::write("moves", &findings)?;
    Ok(())
}

fn http_size(quick: bool) -> http::Size {
    if quick { http::QUICK } else { http::FULL }
}
