//! The papers' layouts as they were written: the checker names every mistake.
//!
//! `docs/layout-checks.md` lists the mistakes. A file of `papers/` spells out each
//! that a layout can spell out, with the paper's own lines beside it; for the others
//! the document says why no file can.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use layout::report::{Paint, SourceText, report};
use layout::rules::RULES;
use layout::{Layout, check};

const PAPERS: [(&str, &str); 4] = [
    ("d0.toml", include_str!("papers/d0.toml")),
    ("d1.toml", include_str!("papers/d1.toml")),
    ("d2.toml", include_str!("papers/d2.toml")),
    ("d3.toml", include_str!("papers/d3.toml")),
];

const DOCUMENT: &str = include_str!("../../../docs/layout-checks.md");

/// Rows of the requirements' table of traps.
const TRAPS: usize = 23;

/// One row of the document's table of mistakes.
struct Trap<'d> {
    written: &'d str,
    rules: Vec<&'d str>,
    place: &'d str,
}

fn traps() -> Vec<Trap<'static>> {
    rows("## Mistakes of the papers")
        .into_iter()
        .map(|cells| Trap {
            written: cells[0],
            rules: quoted(cells[1]),
            place: cells[2],
        })
        .collect()
}

/// The cells of the first table under a heading, without its own two lines.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let (_, section) = DOCUMENT.split_once(heading).unwrap();
    section
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect()
}

fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The rules that each paper's layout breaks.
fn broken() -> BTreeMap<&'static str, Vec<&'static str>> {
    PAPERS
        .into_iter()
        .map(|(name, text)| {
            let findings = check(&Layout::parse(text, name).unwrap());
            (name, findings.iter().map(|finding| finding.rule).collect())
        })
        .collect()
}

#[test]
fn findings_for_the_papers_stay_as_they_are() {
    for (origin, text) in PAPERS {
        let findings = check(&Layout::parse(text, origin).unwrap());
        let said = report(&findings, SourceText { origin, text }, Paint::Plain);
        insta::assert_snapshot!(origin, said);
    }
}

#[test]
fn every_mistake_is_caught_in_its_paper_or_cannot_be_written() {
    let (traps, broken) = (traps(), broken());
    assert_eq!(traps.len(), TRAPS);
    for trap in &traps {
        let files = quoted(trap.place);
        let papers: Vec<&&str> = files
            .iter()
            .filter(|file| broken.contains_key(**file))
            .collect();
        if trap.rules.is_empty() {
            assert!(
                trap.place.len() > 40 && papers.is_empty(),
                "no reason: {}",
                trap.written
            );
            continue;
        }
        assert!(!papers.is_empty(), "no paper's file: {}", trap.written);
        for rule in &trap.rules {
            assert!(
                papers.iter().any(|paper| broken[**paper].contains(rule)),
                "{rule} is not broken in {}: {}",
                trap.place,
                trap.written
            );
        }
    }
}

#[test]
fn each_paper_is_needed() {
    for (paper, _) in PAPERS {
        let cited = |trap: &Trap<'_>| quoted(trap.place).contains(&paper);
        assert!(traps().iter().any(cited), "{paper} is cited by no row");
    }
}

#[test]
fn the_document_lists_every_rule_with_its_reason_and_no_other() {
    let listed: Vec<(&str, &str)> = rows("## Rules")
        .iter()
        .map(|cells| (quoted(cells[0])[0], cells[1]))
        .collect();
    let rules: Vec<(&str, &str)> = RULES.iter().map(|rule| (rule.name, rule.reason)).collect();
    assert_eq!(listed, rules);
}
