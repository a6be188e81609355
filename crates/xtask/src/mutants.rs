//! `cargo xtask mutants [--all | --only NAME | --few N]`: breaks the product on purpose, one rule of the
//! protocol at a time, and sees that a check notices. A check that no mutation can fail proves nothing.
//!
//! The work happens in a copy under `target/mutants` with a target folder of its own, so that neither the
//! sources nor the main build are touched.

mod check;
mod mutation;
mod tree;

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::Args;

use crate::progress::Progress;
use crate::table;
use crate::verdict::{BadInput, Verdict};
use crate::workspace::Workspace;
use check::{Bench, Check, Outcome};
use mutation::Mutation;
use tree::Tree;

/// How long one check may run, building not counted.
const CHECK_SECONDS_MAX: u64 = 180;
/// How many mutations a plain run takes.
pub const FEW: usize = 3;
const FEW_MAX: u64 = 1_000;
const SECONDS_PER_DAY: u64 = 24 * 60 * 60;
/// Overrides the day that the rotation starts from.
const DAY_VARIABLE: &str = "CARAVAN_MUTANTS_DAY";

#[derive(Debug, Args)]
pub struct Options {
    /// Every mutation
    #[arg(long, conflicts_with_all = ["only", "few"])]
    all: bool,
    /// These mutations: the names of their files in mutants/, without .toml
    #[arg(long, value_name = "NAME", num_args = 1.., conflicts_with = "few")]
    only: Vec<String>,
    /// So many, rotating from day to day
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=FEW_MAX))]
    few: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    All,
    Only(Vec<String>),
    Few(usize),
}

pub fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<Verdict> {
    let selection = match (options.only.as_slice(), options.few) {
        ([_, ..], _) => Selection::Only(options.only.clone()),
        ([], Some(few)) => Selection::Few(usize::try_from(few)?),
        ([], None) if options.all => Selection::All,
        ([], None) => Selection::Few(FEW),
    };
    run_selected(workspace, &selection)
}

pub fn run_selected(workspace: &Workspace, selection: &Selection) -> anyhow::Result<Verdict> {
    let chosen = select(mutation::load_all(&workspace.root)?, selection, today()?)?;
    let judged = judge_all(workspace, &chosen, Duration::from_secs(CHECK_SECONDS_MAX))?;
    conclude(&workspace.target.join("mutants/table.md"), &judged)
}

#[derive(Debug)]
struct Judged<'a> {
    mutation: &'a Mutation,
    outcome: Outcome,
    took: Duration,
}

fn today() -> anyhow::Result<u64> {
    match std::env::var(DAY_VARIABLE) {
        Ok(day) => day.parse().map_err(|_| {
            BadInput(format!(
                "{DAY_VARIABLE} is `{day}`; give a whole number of days since 1970"
            ))
            .into()
        }),
        Err(_) => {
            let since_epoch = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .context("the clock stands before 1970; set it")?;
            Ok(since_epoch.as_secs() / SECONDS_PER_DAY)
        }
    }
}

fn select(
    mut mutations: Vec<Mutation>,
    selection: &Selection,
    day: u64,
) -> anyhow::Result<Vec<Mutation>> {
    if mutations.is_empty() {
        bail!("mutants/ holds no mutation; add one as mutants/README.md says");
    }
    match selection {
        Selection::All => {}
        Selection::Only(names) => {
            let known = |name: &&String| mutations.iter().any(|known| known.name == **name);
            if let Some(name) = names.iter().find(|name| !known(name)) {
                return Err(BadInput(format!("there is no mutants/{name}.toml")).into());
            }
            mutations.retain(|mutation| names.contains(&mutation.name));
        }
        Selection::Few(few) => {
            // Staleness is judged before the choice: a stale mutation is worth knowing on every day.
            mutation::refuse_stale(&mutations)?;
            let days_choice = rotating(mutations.len(), *few, day);
            let mut index = 0;
            mutations.retain(|_| {
                index += 1;
                days_choice.contains(&(index - 1))
            });
        }
    }
    mutation::refuse_stale(&mutations)?;
    Ok(mutations)
}

/// The places that a day takes: windows of successive days touch, so that together they cover the list.
fn rotating(length: usize, few: usize, day: u64) -> Vec<usize> {
    let start = (u128::from(day) * few as u128 % length as u128) as usize;
    (0..few.min(length))
        .map(|offset| (start + offset) % length)
        .collect()
}

fn judge_all<'a>(
    workspace: &Workspace,
    mutations: &'a [Mutation],
    limit: Duration,
) -> anyhow::Result<Vec<Judged<'a>>> {
    let home = workspace.target.join("mutants");
    let _lock = lock(&home)?;
    let tree = Tree::refresh(workspace, &home.join("tree"))?;
    let logs = home.join("logs");
    fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
    let bench = Bench {
        tree: &tree.root,
        target: &home.join("target"),
        logs: &logs,
        limit,
    };

    let groups = by_package(mutations);
    let checks: usize = groups.iter().map(|group| group.checks.len()).sum();
    let mut progress = Progress::begin((checks + mutations.len()) as u64);
    let mut judged = Vec::new();
    for Group { checks, mutations } in groups {
        for check in checks {
            progress.working_on(&format!("unmutated copy, {check}"));
            require_survival(&bench, check, &format!("unmutated-{}", check.package()))?;
            progress.done();
        }
        for mutation in mutations {
            progress.working_on(&format!(
                "{} ({}: {})",
                mutation.name, mutation.rule, mutation.breaks
            ));
            let started = Instant::now();
            let mutated = tree.mutate(mutation)?;
            let outcome = bench.run(&mutation.check, &mutation.name);
            mutated.revert()?;
            let outcome = outcome?;
            progress.tell(&outcome.to_string());
            judged.push(Judged {
                mutation,
                outcome,
                took: started.elapsed(),
            });
            progress.done();
        }
    }
    progress.finish();
    judged.sort_by(|one, other| one.mutation.name.cmp(&other.mutation.name));
    Ok(judged)
}

/// What is built together: the checks of one package, and the mutations that they must notice.
#[derive(Default)]
struct Group<'a> {
    checks: Vec<&'a Check>,
    mutations: Vec<&'a Mutation>,
}

/// Mutations of one file follow one another, and those of one package: each change of place
/// builds two crates and all that rest on them, the one that is put back and the next.
fn by_package(mutations: &[Mutation]) -> Vec<Group<'_>> {
    let mut groups: BTreeMap<&str, Group<'_>> = BTreeMap::new();
    for mutation in mutations {
        let group = groups.entry(mutation.check.package()).or_default();
        if !group.checks.contains(&&mutation.check) {
            group.checks.push(&mutation.check);
        }
        group.mutations.push(mutation);
    }
    let mut groups: Vec<Group<'_>> = groups.into_values().collect();
    for group in &mut groups {
        group
            .mutations
            .sort_by(|one, other| one.file.cmp(&other.file));
    }
    groups
}

/// A check that fails without any mutation would "catch" them all.
fn require_survival(bench: &Bench<'_>, check: &Check, name: &str) -> anyhow::Result<()> {
    match bench.run(check, name)? {
        Outcome::Survived => Ok(()),
        outcome => bail!(
            "the unmutated copy does not pass {check}: {outcome}; mend that first, see {}",
            bench.logs.join(format!("{name}.log")).display()
        ),
    }
}

/// Let go by name: a program that another thread is just starting has the file open, too, until it runs.
#[derive(Debug)]
struct Locked(File);

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing the file lets it go as well, if later.
        let _ = self.0.unlock();
    }
}

fn lock(home: &Path) -> anyhow::Result<Locked> {
    fs::create_dir_all(home).with_context(|| format!("cannot make {}", home.display()))?;
    let path: PathBuf = home.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(Locked(file)),
        Err(TryLockError::WouldBlock) => {
            bail!(
                "another run of the mutants uses {}; wait until it ends",
                home.display()
            )
        }
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

fn conclude(path: &Path, judged: &[Judged<'_>]) -> anyhow::Result<Verdict> {
    let rows: Vec<_> = judged
        .iter()
        .map(|judged| {
            let verdict = match verdict(judged.mutation, &judged.outcome) {
                Verdict::Holds => judged.outcome.to_string(),
                Verdict::Fails => format!("**{}**", judged.outcome),
            };
            let seconds = format!("{:.1}", judged.took.as_secs_f64());
            [
                judged.mutation.name.clone(),
                judged.mutation.rule.clone(),
                verdict,
                seconds,
            ]
        })
        .collect();
    let table = table::markdown(["mutation", "rule", "caught by", "seconds"], &rows);
    print!("{table}");
    fs::write(path, &table).with_context(|| format!("cannot write {}", path.display()))?;

    let mut whole = Verdict::Holds;
    let mut uncompiled = Vec::new();
    for Judged {
        mutation, outcome, ..
    } in judged
    {
        if matches!(outcome, Outcome::DoesNotCompile) {
            uncompiled.push(mutation.name.as_str());
        } else if verdict(mutation, outcome) == Verdict::Fails {
            eprintln!(
                "{}: {outcome}, though {} ({})",
                mutation.name, mutation.breaks, mutation.rule
            );
            whole = Verdict::Fails;
        }
    }
    if !uncompiled.is_empty() {
        let names = uncompiled.join(", ");
        return Err(BadInput(format!(
            "does not compile and so proves nothing: {names}; mend `replace` in mutants/"
        ))
        .into());
    }
    Ok(whole)
}

fn verdict(mutation: &Mutation, outcome: &Outcome) -> Verdict {
    match outcome {
        Outcome::Caught { .. } => Verdict::Holds,
        Outcome::Hung { .. } if mutation.may_hang => Verdict::Holds,
        Outcome::Hung { .. }
        | Outcome::Survived
        | Outcome::DoesNotCompile
        | Outcome::BrokeOff { .. } => Verdict::Fails,
    }
}

#[cfg(test)]
mod tests;
