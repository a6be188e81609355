//! How rules are proved: a layout that keeps them all, changed until one is broken.

use super::RULES;
use crate::file::Layout;

/// Runs one rule over a layout with divided keys after a change of its text.
pub(super) fn found(rule_name: &str, changes: &[(&str, &str)]) -> Vec<String> {
    let mut text = include_str!("../../tests/divided.toml").to_owned();
    for (from, to) in changes {
        assert!(
            text.contains(from),
            "the divided layout has no {from:?} to change"
        );
        text = text.replace(from, to);
    }
    let layout = Layout::parse(&text, "changed.toml").unwrap();
    let rule = RULES.iter().find(|rule| rule.name == rule_name).unwrap();
    let findings = (rule.check)(&layout);
    for finding in &findings {
        let place = &finding.place;
        assert!(
            !place.keys().is_empty(),
            "{finding:?} points nowhere in the file"
        );
        assert!(place.locate(&text).is_some_and(|at| at.start.line > 1));
    }
    findings
        .iter()
        .map(|finding| format!("{}: {}: {}", finding.severity, finding.message, finding.fix))
        .collect()
}

/// Asserts that a change of that layout makes the rule say each of these,
/// and that it says nothing without the change.
pub(super) fn check_rule(rule_name: &str, changes: &[(&str, &str)], expected: &[&str]) {
    assert_eq!(found(rule_name, &[]), Vec::<String>::new());
    let found = found(rule_name, changes);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            found.contains(expected),
            "{found:?} does not contain {expected:?}"
        );
    }
}

/// Text, not syntax: a new rule without tests is noticed, not a weak test.
#[test]
fn every_rule_is_named_in_the_tests_of_its_file() {
    let sources = [
        include_str!("answers.rs"),
        include_str!("buckets.rs"),
        include_str!("consistency.rs"),
        include_str!("engines.rs"),
        include_str!("keys.rs"),
        include_str!("lifetimes.rs"),
        include_str!("mistakes.rs"),
        include_str!("repair.rs"),
        include_str!("spread.rs"),
        include_str!("staleness.rs"),
        include_str!("versions.rs"),
    ]
    .map(|source| {
        source
            .split_once("mod tests {")
            .map_or("", |(_, tests)| tests)
    });
    for rule in RULES {
        let name = format!("\"{}\"", rule.name);
        assert!(
            sources.iter().any(|tests| tests.contains(&name)),
            "{} has no test",
            rule.name
        );
    }
}

#[test]
fn names_are_kebab_case_and_given_once() {
    let mut names: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
    let kebab = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    assert!(names.iter().all(|name| kebab(name)));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), RULES.len());
}
