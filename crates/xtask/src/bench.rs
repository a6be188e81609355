//! `cargo xtask bench [name] [--quick]`: runs the benchmarks and sums up their goals in one table.
//!
//! The bench crate measures, prints its own tables and writes `target/bench/<name>.json`. Results that an
//! earlier run left are removed first, so that none can pass for the result of this one.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use serde::Deserialize;

use crate::table;
use crate::verdict::{BadInput, Verdict};
use crate::workspace::Workspace;

/// Benchmarks that start the product's own program.
const PRODUCT_STARTERS: [&str; 4] = ["http", "moves", "overload", "processes"];

#[derive(Debug, Args)]
pub struct Options {
    /// One benchmark, such as `engine` or `http`; all of them when left out
    name: Option<String>,
    /// A short run that shows that the benchmark works; its numbers prove little
    #[arg(long)]
    quick: bool,
}

#[derive(Debug, Deserialize)]
struct Measure {
    id: String,
    ratio: f64,
    goal: Goal,
    holds: bool,
    unit: Option<String>,
}

/// A bare number, or text with its direction such as `≥ 0.45`.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "goal is a number or a text")]
enum Goal {
    Number(f64),
    Text(String),
}

pub fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<Verdict> {
    let results = workspace.target.join("bench");
    if let Some(name) = &options.name {
        check_name(name)?;
    }
    for stale in result_files(&results, options.name.as_deref())? {
        fs::remove_file(&stale).with_context(|| format!("cannot remove {}", stale.display()))?;
    }
    let starts_product = |name: &str| PRODUCT_STARTERS.contains(&name);
    if options.name.as_deref().is_none_or(starts_product) {
        build_product(workspace)?;
    }
    let mut cargo = workspace.cargo();
    cargo
        .args(["run", "--release", "--package", "bench", "--"])
        .args(&options.name);
    if options.quick {
        cargo.arg("--quick");
    }
    let status = cargo
        .status()
        .context("cargo does not start; is it installed?")?;
    if status.code() == Some(2) {
        return Err(BadInput("the benchmark refuses its input, see above".into()).into());
    }
    let measures = read(&result_files(&results, options.name.as_deref())?)?;
    if measures.is_empty() {
        bail!(
            "the benchmark left no result in {} ({status})",
            results.display()
        );
    }
    println!("\n{}", summary(&measures));
    Ok(if status.success() {
        judge(&measures)
    } else {
        Verdict::Fails
    })
}

/// The program lies beside the benchmark once it is built.
fn build_product(workspace: &Workspace) -> anyhow::Result<()> {
    let built = workspace
        .cargo()
        .args(["build", "--release", "--package", "caravan"])
        .status()
        .context("cargo does not start; is it installed?")?;
    if !built.success() {
        bail!("caravan cannot be built ({built}), see above");
    }
    Ok(())
}

/// The name becomes a file name, so it may not lead elsewhere.
fn check_name(name: &str) -> Result<(), BadInput> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    if name.is_empty() || !name.chars().all(plain) {
        return Err(BadInput(format!(
            "`{name}` is no name of a benchmark: use letters, digits, - and _"
        )));
    }
    Ok(())
}

fn result_files(results: &Path, name: Option<&str>) -> anyhow::Result<Vec<PathBuf>> {
    if !results.is_dir() {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for entry in
        fs::read_dir(results).with_context(|| format!("cannot list {}", results.display()))?
    {
        let path = entry?.path();
        let asked = name.is_none_or(|name| path.file_stem().is_some_and(|stem| stem == name));
        if asked
            && path
                .extension()
                .is_some_and(|extension| extension == "json")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read(files: &[PathBuf]) -> anyhow::Result<Vec<Measure>> {
    let mut measures = Vec::new();
    for file in files {
        let text =
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let of_file: Vec<Measure> = serde_json::from_str(&text).with_context(|| {
            format!(
                "{} is no array of {{id, ratio, goal, holds}}",
                file.display()
            )
        })?;
        measures.extend(of_file);
    }
    Ok(measures)
}

fn summary(measures: &[Measure]) -> String {
    let rows: Vec<_> = measures
        .iter()
        .map(|measure| {
            let unit = measure
                .unit
                .as_deref()
                .map(|unit| format!(" {unit}"))
                .unwrap_or_default();
            let goal = match &measure.goal {
                Goal::Number(number) => number.to_string(),
                Goal::Text(text) => text.clone(),
            };
            let holds = if measure.holds { "yes" } else { "NO" };
            [
                measure.id.clone(),
                format!("{:.3}{unit}", measure.ratio),
                goal,
                holds.to_owned(),
            ]
        })
        .collect();
    table::markdown(["id", "ratio", "goal", "holds"], &rows)
}

fn judge(measures: &[Measure]) -> Verdict {
    if measures.iter().all(|measure| measure.holds) {
        Verdict::Holds
    } else {
        Verdict::Fails
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(folder: &Path, name: &str, text: &str) {
        fs::write(folder.join(name), text).unwrap();
    }

    #[test]
    fn one_goal_that_does_not_hold_fails_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        written(
            folder.path(),
            "engine.json",
            r#"[{"id":"G7","ratio":0.5,"goal":0.45,"holds":true,"spread":0.02}]"#,
        );
        let held = read(&result_files(folder.path(), None).unwrap()).unwrap();
        assert_eq!(judge(&held), Verdict::Holds);

        written(
            folder.path(),
            "open.json",
            r#"[{"id":"open","ratio":4.25,"goal":"≤ 3","holds":false,"unit":"s","notes":"cold"}]"#,
        );
        let both = read(&result_files(folder.path(), None).unwrap()).unwrap();
        assert_eq!(judge(&both), Verdict::Fails);
        let table = summary(&both);
        assert!(
            table.contains("| G7   | 0.500   | 0.45 | yes   |"),
            "{table}"
        );
        assert!(
            table.contains("| open | 4.250 s | ≤ 3  | NO    |"),
            "{table}"
        );
    }

    #[test]
    fn a_named_benchmark_does_not_see_the_results_of_others() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["engine.json", "open.json", "engine.txt"] {
            written(folder.path(), name, "[]");
        }
        let files = result_files(folder.path(), Some("engine")).unwrap();
        assert_eq!(files, [folder.path().join("engine.json")]);
    }

    #[test]
    fn a_result_of_another_form_names_its_file() {
        let folder = tempfile::tempdir().unwrap();
        written(folder.path(), "engine.json", r#"[{"id":"G7"}]"#);
        let error = read(&result_files(folder.path(), None).unwrap()).unwrap_err();
        assert!(error.to_string().contains("engine.json"), "{error}");
    }

    #[test]
    fn a_name_that_leads_out_of_the_folder_is_refused() {
        assert!(check_name("../engine").is_err());
        assert!(check_name("").is_err());
        assert!(check_name("engine-size_2").is_ok());
    }
}
