//! Plans and findings as text for a terminal.

use std::fmt::Write as _;

use crate::checker::{check, is_usable};
use crate::engine::EngineKind;
use crate::file::{Layout, Store};
use crate::findings::{Finding, Severity};
use crate::path::{AccessPath, Operation};
use crate::planner::{Plan, ShardFanOut, plan, plan_operation};
use crate::table::Body;

const HEADINGS: [&str; 7] = [
    "operation",
    "path",
    "table",
    "partitions",
    "shards",
    "order",
    "body",
];

/// Which table answers which operation and at what cost, then what the checker says.
pub fn explain(layout: &Layout) -> String {
    let mut text = format!(
        "layout {} (from {})\n{}\n\n",
        layout.name,
        layout.source,
        layout.description.trim()
    );
    text += &plan_table(layout);
    text += "\n";
    text += &shard_notes(layout);
    text += &findings_text(&check(layout));
    text
}

/// One line per operation and path; two where a history is read as well (W33).
pub fn plan_table(layout: &Layout) -> String {
    let mut rows: Vec<[String; 7]> = vec![HEADINGS.map(str::to_owned)];
    for operation in Operation::ALL {
        if operation.paths().is_empty() {
            let mut row = [const { String::new() }; 7];
            row[0] = operation.to_string();
            row[1] = "the shop's own search index, fed from the journal".to_owned();
            rows.push(row);
        }
        for path in operation.paths() {
            let collection = layout.collection(path.shape().collection);
            for store in collection.stores() {
                let row = match plan_operation(
                    collection,
                    store,
                    operation,
                    *path,
                    &store.initial_buckets,
                ) {
                    Ok(plan) => plan_row(operation, store, &plan),
                    Err(missing) => {
                        let mut row = [const { String::new() }; 7];
                        row[..3].clone_from_slice(&[
                            operation.to_string(),
                            path.to_string(),
                            format!("none: {}", missing.advice),
                        ]);
                        row
                    }
                };
                rows.push(row);
            }
        }
    }
    aligned(&rows)
}

pub fn findings_text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let _ = writeln!(
            text,
            "{} [{}] {}\n    {}",
            finding.severity, finding.rule, finding.message, finding.fix
        );
    }
    let count = |severity| {
        findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    };
    let verdict = if is_usable(findings) {
        "usable"
    } else {
        "refused"
    };
    let _ = writeln!(
        text,
        "{verdict} (refused: {}, warnings: {})",
        count(Severity::Refused),
        count(Severity::Warning)
    );
    text
}

fn plan_row(operation: Operation, store: &Store, plan: &Plan) -> [String; 7] {
    [
        operation.to_string(),
        plan.path.to_string(),
        format!("{}.{}", store.engine, plan.table),
        plan.fan_out.to_string(),
        plan.shards.to_string(),
        plan.sort.to_string(),
        match plan.body {
            Body::Whole => "whole".to_owned(),
            Body::Pointer => "pointer, then the record".to_owned(),
        },
    ]
}

/// Says for each collection what "every shard" comes to and why.
fn shard_notes(layout: &Layout) -> String {
    let mut text = String::new();
    for collection in layout.collections.values() {
        let key: Vec<&str> = collection
            .shard_key
            .iter()
            .map(|field| field.name())
            .collect();
        let shards = collection.cut.shards().len();
        let shards = match (layout.engine(&collection.live).kind, shards) {
            (EngineKind::Mongo, _) => "the cluster's own shards".to_owned(),
            (_, 1) => "one shard at the start".to_owned(),
            (_, several) => format!("{several} shards at the start"),
        };
        let _ = write!(
            text,
            "{}: shard key {}, {shards}",
            collection.collection,
            key.join(", ")
        );
        let scattered: Vec<&str> = AccessPath::of(collection.collection)
            .filter_map(|path| plan(collection, path, &collection.live.initial_buckets).ok())
            .filter(|plan| plan.shards == ShardFanOut::All)
            .map(|plan| plan.path.name())
            .collect();
        if !scattered.is_empty() {
            let _ = write!(
                text,
                "; not given, so every shard is asked, by: {}",
                scattered.join(", ")
            );
        }
        text += "\n";
    }
    text + "\n"
}

fn aligned(rows: &[[String; 7]]) -> String {
    // The last filled cell of a row sets no width: it may be a sentence.
    let mut widths = [0; 7];
    for row in rows {
        let last = row.iter().rposition(|cell| !cell.is_empty()).unwrap_or(0);
        for (width, cell) in widths.iter_mut().zip(&row[..last]) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        text += line.trim_end();
        text += "\n";
    }
    text
}
