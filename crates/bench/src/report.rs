//! Ratios taken in one run: a table on the terminal, JSON in `target/bench`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;

/// One claim of speed or size.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub id: String,
    pub ratio: f64,
    pub goal: String,
    pub holds: bool,
    /// Least and most of the rounds, in the ratio's unit.
    pub spread: Option<[f64; 2]>,
    pub notes: String,
}

/// Which side of the goal is good.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Finding {
    pub fn of(id: &str, rounds: &[f64], goal: Goal, notes: String) -> Finding {
        let ratio = median(rounds);
        let (text, holds) = match goal {
            Goal::AtLeast(bound) => (format!("≥ {bound}"), ratio >= bound),
            Goal::AtMost(bound) => (format!("≤ {bound}"), ratio <= bound),
        };
        let spread = (rounds.len() > 1).then(|| {
            let least = rounds.iter().copied().fold(f64::INFINITY, f64::min);
            let most = rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            [least, most]
        });
        Finding {
            id: id.to_owned(),
            ratio,
            goal: text,
            holds,
            spread,
            notes,
        }
    }
}

pub fn median(rounds: &[f64]) -> f64 {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

pub fn print(findings: &[Finding]) {
    println!(
        "{:<28} {:>8} {:>9} {:>6}  {:<17} notes",
        "id", "ratio", "goal", "holds", "spread"
    );
    for finding in findings {
        let spread = finding.spread.map_or_else(String::new, |[least, most]| {
            format!("{least:.2} – {most:.2}")
        });
        let holds = if finding.holds { "yes" } else { "NO" };
        println!(
            "{:<28} {:>8.2} {:>9} {:>6}  {:<17} {}",
            finding.id, finding.ratio, finding.goal, holds, spread, finding.notes
        );
    }
}

pub fn write(name: &str, findings: &[Finding]) -> anyhow::Result<PathBuf> {
    let folder = Path::new("target/bench");
    std::fs::create_dir_all(folder).context("target/bench cannot be made")?;
    let path = folder.join(format!("{name}.json"));
    std::fs::write(&path, serde_json::to_vec_pretty(findings)?)
        .with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_holds_by_its_median() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert!(Finding::of("a", &[0.4, 0.5, 0.6], Goal::AtLeast(0.45), String::new()).holds);
        assert!(!Finding::of("a", &[0.4, 0.5, 0.6], Goal::AtMost(0.45), String::new()).holds);
    }
}
