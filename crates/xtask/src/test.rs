//! `cargo xtask test [--all]`: everything that must hold before a change is taken, in order of cost.
//!
//! Stops at the first step that fails. The last line is `N passed, N failed`, counting steps.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context;
use clap::Args;

use crate::executables::{self, Executable};
use crate::mutants::{self, Selection};
use crate::verdict::Verdict;
use crate::workspace::Workspace;

const SEEDS: &str = "5000";
const SEEDS_OF_ALL: &str = "20000";

#[derive(Debug, Args)]
pub struct Options {
    /// Four times the seeds, and every mutant instead of a rotating few
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Format,
    Lints,
    Build,
    Tests,
    Simulation,
    Mutants,
    ServersDown,
}

const STEPS: [Step; 6] = [
    Step::Format,
    Step::Lints,
    Step::Build,
    Step::Tests,
    Step::Simulation,
    Step::Mutants,
];

impl Step {
    fn title(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Lints => "lints",
            Self::Build => "build",
            Self::Tests => "tests",
            Self::Simulation => "simulation",
            Self::Mutants => "mutants",
            Self::ServersDown => "servers down",
        }
    }
}

pub fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<Verdict> {
    let mut run = Run {
        workspace,
        options,
        built: Vec::new(),
        servers: Servers::NotOurs,
    };
    let mut count = Count::default();
    for step in STEPS {
        if count.take(step, |step| run.step(step)) == Verdict::Fails {
            break;
        }
    }
    if run.has_started_servers() {
        count.take(Step::ServersDown, |step| run.step(step));
    }
    println!("{count}");
    Ok(count.verdict())
}

struct Run<'a> {
    workspace: &'a Workspace,
    options: &'a Options,
    built: Vec<Executable>,
    servers: Servers,
}

/// Servers that somebody else had running before are left running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Servers {
    NotOurs,
    OursIfAny,
}

impl Run<'_> {
    fn step(&mut self, step: Step) -> anyhow::Result<Verdict> {
        match step {
            Step::Format => status(self.workspace.cargo().args(["fmt", "--all", "--check"])),
            Step::Lints => status(self.workspace.cargo().args([
                "clippy",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ])),
            Step::Build => self.build(),
            Step::Tests => {
                self.note_servers()?;
                let mut tests = self.workspace.cargo();
                tests.args(["test", "--workspace", "--no-fail-fast"]);
                if self.options.all {
                    tests.env("CARAVAN_TESTBED_ALL", "1");
                }
                status(&mut tests)
            }
            Step::Simulation => {
                let seeds = if self.options.all {
                    SEEDS_OF_ALL
                } else {
                    SEEDS
                };
                let simulation = executables::binary(&self.built, "simulation")?;
                status(
                    simulation
                        .command()
                        .current_dir(&self.workspace.root)
                        .args(["run", "--seeds", seeds]),
                )
            }
            Step::Mutants => {
                let selection = if self.options.all {
                    Selection::All
                } else {
                    Selection::Few(mutants::FEW)
                };
                mutants::run_selected(self.workspace, &selection)
            }
            Step::ServersDown => status(self.testbed()?.arg("down")),
        }
    }

    /// Tests and binaries in one build of the whole workspace: the features are those that the tests are
    /// built with, so that nothing is built twice. `cargo run -p` would resolve other features.
    fn build(&mut self) -> anyhow::Result<Verdict> {
        let mut cargo = self.workspace.cargo();
        let Some(built) =
            executables::build(cargo.args(["build", "--workspace", "--bins", "--tests"]))?
        else {
            return Ok(Verdict::Fails);
        };
        self.built = built;
        Ok(Verdict::Holds)
    }

    fn note_servers(&mut self) -> anyhow::Result<()> {
        if !self.servers_run()? {
            self.servers = Servers::OursIfAny;
        }
        Ok(())
    }

    /// When it cannot be told, they are taken for started: ending none does no harm.
    fn has_started_servers(&self) -> bool {
        self.servers == Servers::OursIfAny && self.servers_run().unwrap_or(true)
    }

    fn servers_run(&self) -> anyhow::Result<bool> {
        let output = self
            .testbed()?
            .arg("status")
            .stderr(Stdio::inherit())
            .output()
            .context("the testbed does not start")?;
        anyhow::ensure!(
            output.status.success(),
            "testbed status fails: {}",
            output.status
        );
        Ok(lists_a_server(&String::from_utf8_lossy(&output.stdout)))
    }

    fn testbed(&self) -> anyhow::Result<Command> {
        let mut command = executables::binary(&self.built, "testbed")?.command();
        command.current_dir(&self.workspace.root);
        Ok(command)
    }
}

/// `testbed status` prints a line `running NAME …` for each.
fn lists_a_server(status: &str) -> bool {
    status.lines().any(|line| line.starts_with("running "))
}

fn status(command: &mut Command) -> anyhow::Result<Verdict> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    Ok(Verdict::of(status))
}

#[derive(Debug, Default)]
struct Count {
    passed: usize,
    failed: usize,
}

impl Count {
    fn take(&mut self, step: Step, run: impl FnOnce(Step) -> anyhow::Result<Verdict>) -> Verdict {
        println!("== step: {}", step.title());
        let started = Instant::now();
        let verdict = run(step).unwrap_or_else(|error| {
            eprintln!("error: {error:#}");
            Verdict::Fails
        });
        let seconds = started.elapsed().as_secs_f64();
        match verdict {
            Verdict::Holds => {
                self.passed += 1;
                println!("== {}: passed in {seconds:.1} s", step.title());
            }
            Verdict::Fails => {
                self.failed += 1;
                println!("== {}: FAILED after {seconds:.1} s", step.title());
            }
        }
        verdict
    }

    fn verdict(&self) -> Verdict {
        if self.failed == 0 {
            Verdict::Holds
        } else {
            Verdict::Fails
        }
    }
}

impl std::fmt::Display for Count {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_fail_or_cannot_run_are_counted_as_failed() {
        let mut count = Count::default();
        assert_eq!(
            count.take(Step::Format, |_| Ok(Verdict::Holds)),
            Verdict::Holds
        );
        assert_eq!(count.verdict(), Verdict::Holds);
        assert_eq!(
            count.take(Step::Lints, |_| Ok(Verdict::Fails)),
            Verdict::Fails
        );
        assert_eq!(
            count.take(Step::Tests, |_| anyhow::bail!("no cargo")),
            Verdict::Fails
        );
        assert_eq!(count.to_string(), "1 passed, 2 failed");
        assert_eq!(count.verdict(), Verdict::Fails);
    }

    #[test]
    fn servers_run_only_when_the_testbed_lists_one() {
        assert!(!lists_a_server("no shared server is up\n"));
        assert!(lists_a_server(
            "running mongo:1     127.0.0.1:40001 (process 7)\n"
        ));
    }
}
