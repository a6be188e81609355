//! Findings for programs: one object a file, in the order they were named.

use std::path::Path;

use anyhow::Result;
use layout::Finding;
use layout::checker::is_usable;
use serde::Serialize;

use super::check::Checked;

#[derive(Serialize)]
struct FileReport<'c> {
    file: String,
    usable: bool,
    findings: Vec<FindingReport<'c>>,
}

/// Lines and columns are counted from one; without them the file has no such place.
#[derive(Serialize)]
struct FindingReport<'c> {
    severity: String,
    rule: &'c str,
    message: &'c str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'c str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<&'c str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    width: Option<usize>,
}

pub(super) fn report(checked: &[(&Path, Checked)]) -> Result<String> {
    let files: Vec<FileReport<'_>> = checked
        .iter()
        .map(|(file, checked)| FileReport {
            file: file.display().to_string(),
            usable: matches!(checked, Checked::Layout { findings, .. } if is_usable(findings)),
            findings: findings(checked),
        })
        .collect();
    Ok(serde_json::to_string_pretty(&files)?)
}

fn findings(checked: &Checked) -> Vec<FindingReport<'_>> {
    match checked {
        Checked::Layout { text, findings } => findings
            .iter()
            .map(|finding| found(finding, text))
            .collect(),
        Checked::NoLayout { error, .. } => vec![FindingReport {
            line: Some(error.line),
            column: Some(error.column),
            ..unusable(&error.reason)
        }],
        Checked::NoText { reason } => vec![unusable(reason)],
    }
}

fn found<'c>(finding: &'c Finding, text: &str) -> FindingReport<'c> {
    let extent = finding.place.locate(text);
    FindingReport {
        severity: finding.severity.to_string(),
        rule: finding.rule,
        message: &finding.message,
        reason: Some(finding.reason),
        fix: Some(&finding.fix),
        operation: finding.operation.map(|operation| format!("{operation:?}")),
        key: Some(finding.place.to_string()),
        line: extent.map(|extent| extent.start.line),
        column: extent.map(|extent| extent.start.column),
        width: extent.map(|extent| extent.width),
    }
}

/// A file that is no layout has no rules to break but the one of being one.
fn unusable(reason: &str) -> FindingReport<'_> {
    FindingReport {
        severity: layout::Severity::Refused.to_string(),
        rule: "file",
        message: reason,
        reason: None,
        fix: None,
        operation: None,
        key: None,
        line: None,
        column: None,
        width: None,
    }
}
