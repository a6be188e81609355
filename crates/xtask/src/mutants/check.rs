//! The check that must notice a mutation: the simulation over its seeds, or a named test.

use std::fmt;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Deserialize;

use crate::executables::{self, Executable, Kind};
use crate::limited::{self, Ended};
use crate::workspace::cargo_in;

/// How many seeds a mutation must be noticed in.
const SEEDS: &str = "300";

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    expecting = "command is \"simulation\" or { test = \"crate\", filter = \"name\" }"
)]
pub enum Check {
    Named(Named),
    Test(Test),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Named {
    Simulation,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    #[serde(rename = "test")]
    package: String,
    filter: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The check passed: with a mutation applied that means nobody noticed.
    Survived,
    Caught {
        by: String,
    },
    DoesNotCompile,
    Hung {
        seconds: u64,
    },
    /// It ended in a way that is neither a pass nor a finding.
    BrokeOff {
        how: String,
    },
}

/// Where checks are built and run.
#[derive(Debug)]
pub struct Bench<'a> {
    pub tree: &'a Path,
    pub target: &'a Path,
    pub logs: &'a Path,
    pub limit: Duration,
}

impl Default for Check {
    fn default() -> Self {
        Self::Named(Named::Simulation)
    }
}

impl Check {
    /// What is built for it.
    pub fn package(&self) -> &str {
        match self {
            Self::Named(Named::Simulation) => "simulation",
            Self::Test(test) => &test.package,
        }
    }

    pub fn unfit(&self) -> Option<&'static str> {
        match self {
            Self::Named(Named::Simulation) => None,
            Self::Test(test) => (test.package.is_empty() || test.filter.is_empty())
                .then_some("`test` and `filter` of `command` must say something"),
        }
    }
}

impl Bench<'_> {
    /// Builds and runs one check. What it printed stands in `<logs>/<name>.log`.
    pub fn run(&self, check: &Check, name: &str) -> anyhow::Result<Outcome> {
        let log = self.logs.join(format!("{name}.log"));
        let build_log =
            File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut cargo = cargo_in(self.tree);
        cargo.env("CARGO_TARGET_DIR", self.target).stderr(build_log);
        match check {
            Check::Named(Named::Simulation) => cargo.args(["build", "--package", "simulation"]),
            Check::Test(test) => cargo.args(["test", "--no-run", "--package", &test.package]),
        };
        let Some(built) = executables::build(&mut cargo)? else {
            return Ok(Outcome::DoesNotCompile);
        };
        // What cargo said is of use only when the build fails; the findings are read from here on.
        File::create(&log)?;
        match check {
            Check::Named(Named::Simulation) => self.simulate(&built, &log),
            Check::Test(test) => self.test(test, &built, &log),
        }
    }

    fn simulate(&self, built: &[Executable], log: &Path) -> anyhow::Result<Outcome> {
        let mut command = executables::binary(built, "simulation")?.command();
        command.current_dir(self.tree);
        command.args(["run", "--seeds", SEEDS, "--until-failure", "--quiet"]);
        let Ended::Exited(status) = self.limited(&mut command, log, Instant::now() + self.limit)?
        else {
            return Ok(self.hung());
        };
        // Exit code 1 alone is also what a program gives that could not even begin.
        match (status.code(), failing_seed(&read(log)?)) {
            (Some(0), _) => Ok(Outcome::Survived),
            (Some(1), Some(seed)) => Ok(Outcome::Caught {
                by: format!("seed {seed}"),
            }),
            _ => Ok(Outcome::BrokeOff {
                how: status.to_string(),
            }),
        }
    }

    fn test(&self, test: &Test, built: &[Executable], log: &Path) -> anyhow::Result<Outcome> {
        let deadline = Instant::now() + self.limit;
        for executable in built
            .iter()
            .filter(|executable| executable.kind == Kind::Test)
        {
            let mut command = executable.command();
            let Ended::Exited(status) = self.limited(command.arg(&test.filter), log, deadline)?
            else {
                return Ok(self.hung());
            };
            if !status.success() {
                return Ok(match failed_test(&read(log)?) {
                    Some(name) => Outcome::Caught {
                        by: format!("test {name}"),
                    },
                    None => Outcome::BrokeOff {
                        how: status.to_string(),
                    },
                });
            }
        }
        if passed_tests(&read(log)?) == 0 {
            return Ok(Outcome::BrokeOff {
                how: format!("no test named like `{}`", test.filter),
            });
        }
        Ok(Outcome::Survived)
    }

    fn limited(
        &self,
        command: &mut Command,
        log: &Path,
        deadline: Instant,
    ) -> anyhow::Result<Ended> {
        // Where cargo in a test builds something, it must not be the main build.
        limited::run(command.env("CARGO_TARGET_DIR", self.target), log, deadline)
    }

    fn hung(&self) -> Outcome {
        Outcome::Hung {
            seconds: self.limit.as_secs(),
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(Named::Simulation) => write!(formatter, "simulation of {SEEDS} seeds"),
            Self::Test(test) => write!(formatter, "test `{}` of {}", test.filter, test.package),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Survived => write!(formatter, "survived"),
            Self::Caught { by } => write!(formatter, "{by}"),
            Self::DoesNotCompile => write!(formatter, "does not compile"),
            Self::Hung { seconds } => write!(formatter, "hanging for {seconds} s"),
            Self::BrokeOff { how } => write!(formatter, "broke off: {how}"),
        }
    }
}

fn read(log: &Path) -> anyhow::Result<String> {
    let bytes = fs::read(log).with_context(|| format!("cannot read {}", log.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn failing_seed(log: &str) -> Option<u64> {
    log.lines().find_map(|line| {
        line.trim()
            .strip_prefix("failing seed: ")?
            .trim()
            .parse()
            .ok()
    })
}

fn failed_test(log: &str) -> Option<&str> {
    log.lines()
        .find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
}

fn passed_tests(log: &str) -> u64 {
    log.lines()
        .filter_map(|line| {
            line.strip_prefix("test result: ok. ")?
                .split_once(" passed")
        })
        .filter_map(|(count, _)| count.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_read_from_what_the_check_printed() {
        assert_eq!(failing_seed("noise\nfailing seed: 41\n"), Some(41));
        assert_eq!(failing_seed("failing seed: none"), None);
        let printed = "running 2 tests\ntest a::keeps ... ok\ntest a::merges ... FAILED\n\ntest result: FAILED. 1 passed; 1 failed";
        assert_eq!(failed_test(printed), Some("a::merges"));
        assert_eq!(passed_tests(printed), 0);
        let two = "test result: ok. 3 passed; 0 failed\nnoise\ntest result: ok. 0 passed; 0 failed";
        assert_eq!(passed_tests(two), 3);
    }
}
