//! `cargo xtask simulate --seed N [--count K]`: replays seeds of the simulation exactly, with their trace.

use anyhow::{Context, bail};
use clap::Args;

use crate::executables;
use crate::verdict::{BadInput, Verdict};
use crate::workspace::Workspace;

const COUNT_MAX: u64 = 10_000;

#[derive(Debug, Args)]
pub struct Options {
    /// The seed to replay, as a failing run prints it
    #[arg(long, value_name = "N")]
    seed: u64,
    /// How many seeds to replay, from that one on
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=COUNT_MAX))]
    count: u64,
}

pub fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<Verdict> {
    let last = options.seed.checked_add(options.count - 1).ok_or_else(|| {
        BadInput("the last seed is too large; give a smaller --seed or --count".into())
    })?;
    let Some(built) =
        executables::build(workspace.cargo().args(["build", "--package", "simulation"]))?
    else {
        bail!("the simulation does not compile; mend it first");
    };
    let simulation = executables::binary(&built, "simulation")?;
    let mut failing = Vec::new();
    for seed in options.seed..=last {
        let status = simulation
            .command()
            .current_dir(&workspace.root)
            .args(["run", "--trace", "--seed", &seed.to_string()])
            .status()
            .context("the simulation does not start")?;
        match status.code() {
            Some(0) => {}
            Some(1) => failing.push(seed.to_string()),
            _ => bail!("the simulation broke off at seed {seed}: {status}"),
        }
    }
    if failing.is_empty() {
        println!("{} replayed, none fails", options.count);
        return Ok(Verdict::Holds);
    }
    println!(
        "{} replayed, failing seeds: {}",
        options.count,
        failing.join(", ")
    );
    Ok(Verdict::Fails)
}
