//! Checks a layout before anything is stored under it.

use crate::file::Layout;
use crate::findings::{Finding, Severity};
use crate::rules::RULES;

/// Everything the rules find, what is refused first.
pub fn check(layout: &Layout) -> Vec<Finding> {
    let mut findings: Vec<Finding> = RULES
        .iter()
        .flat_map(|rule| {
            let found = (rule.check)(layout);
            found.into_iter().map(|finding| Finding {
                rule: rule.name,
                reason: rule.reason,
                ..finding
            })
        })
        .collect();
    findings.sort_by_key(|finding| finding.severity);
    findings
}

/// Whether the layout may be used.
pub fn is_usable(findings: &[Finding]) -> bool {
    findings
        .iter()
        .all(|finding| finding.severity != Severity::Refused)
}
