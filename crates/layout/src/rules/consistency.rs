//! Can the engine keep what the policy promises, and is the promise honest?

use crate::collection::Collection;
use crate::consistency::{Policy, ReadLevel, WriteLevel};
use crate::engine::EngineKind;
use crate::file::Layout;
use crate::findings::{Finding, Severity};
use crate::path::Operation;

/// The least that MongoDB takes for `maxStalenessSeconds`.
const MONGO_STALENESS_SECONDS_MIN: u64 = 90;

pub(super) fn levels_of_the_engine(layout: &Layout) -> Vec<Finding> {
    each_policy(layout, |collection, kind, operation, policy, _| {
        let (read, write) = match kind {
            EngineKind::Cassandra => (
                !matches!(policy.read, ReadLevel::Primary | ReadLevel::Secondary),
                policy.write != WriteLevel::Majority,
            ),
            EngineKind::Mongo => (
                matches!(policy.read, ReadLevel::Primary | ReadLevel::Secondary),
                policy.write == WriteLevel::Majority,
            ),
            EngineKind::Embedded | EngineKind::Memory => (
                policy.read == ReadLevel::Primary,
                policy.write == WriteLevel::Majority,
            ),
        };
        if read && write {
            return None;
        }
        let fix = match kind {
            EngineKind::Cassandra => {
                "read with one, quorum, local_quorum, all or serial; write with one, quorum, local_quorum or all"
            }
            EngineKind::Mongo => "read with primary or secondary; write with majority",
            EngineKind::Embedded | EngineKind::Memory => {
                "read with primary and write with majority: there is one copy"
            }
        };
        let place = place(collection, operation);
        Some(Finding::refused(
            format!(
                "{kind} cannot read {place} with {} and write with {}",
                policy.read, policy.write
            ),
            fix,
        ))
    })
}

pub(super) fn operations_of_the_collection(layout: &Layout) -> Vec<Finding> {
    each_policy(layout, |collection, _, operation, _, _| {
        let operation = operation.filter(|operation| !operation.uses(collection))?;
        let finding = Finding::refused(
            format!("{operation} does not use {collection}, so its policy there has no effect"),
            format!(
                "move it to [collections.{}.operations.{operation:?}]",
                operation.home()
            ),
        );
        Some(finding.about(operation))
    })
}

/// Reads that may miss the last acknowledged write are eventual, whatever they
/// are called; orders may not be (W36).
pub(super) fn copies_meet(layout: &Layout) -> Vec<Finding> {
    each_policy(layout, |collection, kind, operation, policy, overlaps| {
        if kind != EngineKind::Cassandra || overlaps {
            return None;
        }
        let severity = match collection {
            Collection::Orders | Collection::Products => Severity::Refused,
            Collection::Carts | Collection::Sessions => Severity::Warning,
        };
        let place = place(collection, operation);
        Some(Finding::new(
            severity,
            format!(
                "{place} is eventual: write {} and read {} need not meet in any copy",
                policy.write, policy.read
            ),
            "write and read with quorum where the last write must be seen",
        ))
    })
}

pub(super) fn staleness(layout: &Layout) -> Vec<Finding> {
    each_policy(layout, |collection, kind, operation, policy, _| {
        if kind != EngineKind::Mongo || policy.read != ReadLevel::Secondary {
            return None;
        }
        let place = place(collection, operation);
        match policy.may_lag_seconds {
            0 => Some(Finding::refused(
                format!("{place} reads from a secondary and may not lag"),
                "read from the primary, or set may_lag_seconds",
            )),
            lag if lag < MONGO_STALENESS_SECONDS_MIN => Some(Finding::warning(
                format!(
                    "{place} may lag {lag} s, and MongoDB itself bounds nothing below {MONGO_STALENESS_SECONDS_MIN} s"
                ),
                "nothing to do: such reads wait for a sampled cluster time and fall back to the primary",
            )),
            _ => None,
        }
    })
}

/// One answer has nothing to be compared with.
pub(super) fn read_repair(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (_, store) in layout.stores() {
        for table in &store.tables {
            match table.options.read_repair.as_deref() {
                Some("BLOCKING") if store.consistency.default.read == ReadLevel::One => {
                    findings.push(Finding::warning(
                        format!("{} is read with one, so read repair compares nothing", table.name),
                        "write read_repair = \"NONE\": hints alone mend it",
                    ));
                }
                None | Some("BLOCKING" | "NONE") => {}
                Some(other) => findings.push(Finding::refused(
                    format!("{} has read_repair {other:?}, which Cassandra does not know", table.name),
                    "write \"BLOCKING\" or \"NONE\"; a share of reads is sampled_repair_percent of the engine",
                )),
            }
        }
    }
    findings
}

fn each_policy(
    layout: &Layout,
    check: impl Fn(Collection, EngineKind, Option<Operation>, &Policy, bool) -> Option<Finding>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (collection, store) in layout.stores() {
        let engine = layout.engine(store);
        for (operation, policy) in store.consistency.policies() {
            let overlaps = policy.overlaps(&engine.replication);
            findings.extend(check(
                collection.collection,
                engine.kind,
                operation,
                policy,
                overlaps,
            ));
        }
    }
    findings
}

fn place(collection: Collection, operation: Option<Operation>) -> String {
    match operation {
        None => collection.to_string(),
        Some(operation) => format!("{operation} of {collection}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check_rule;

    const ORDERS: &str = "[collections.orders.tables.orders_by_id]";

    fn kind(kind: &str) -> (&'static str, String) {
        ("kind = \"embedded\"", format!("kind = \"{kind}\""))
    }

    fn with(policy: &str) -> String {
        format!("{policy}\n{ORDERS}")
    }

    #[test]
    fn levels_of_another_engine_are_refused() {
        let policy = with("[collections.orders.consistency]\nread = \"quorum\"");
        check_rule(
            "levels-of-the-engine",
            &[(ORDERS, &policy)],
            &["embedded cannot read orders with quorum"],
        );
    }

    #[test]
    fn a_policy_stands_where_its_operation_is() {
        let policy = with("[collections.orders.operations.S3]\nmay_lag_seconds = 5");
        check_rule(
            "operations-of-the-collection",
            &[(ORDERS, &policy)],
            &["move it to [collections.sessions.operations.S3]"],
        );
    }

    #[test]
    fn one_and_a_quorum_of_three_do_not_meet() {
        let (from, to) = kind("cassandra");
        let policy =
            with("[collections.orders.consistency]\nwrite = \"one\"\nread = \"local_quorum\"");
        check_rule(
            "copies-meet",
            &[(from, &to), (ORDERS, &policy)],
            &["refused: orders is eventual"],
        );
    }

    #[test]
    fn mongo_has_a_floor_for_staleness() {
        let (from, to) = kind("mongo");
        let lag = |seconds: u32| {
            with(&format!(
                "[collections.orders.operations.O2]\nread = \"secondary\"\nmay_lag_seconds = {seconds}"
            ))
        };
        check_rule(
            "staleness",
            &[(from, &to), (ORDERS, &lag(0))],
            &["refused: O2 (history of one user) of orders reads from a secondary"],
        );
        check_rule(
            "staleness",
            &[(from, &to), (ORDERS, &lag(10))],
            &["warning: O2 (history of one user) of orders may lag 10 s"],
        );
        check_rule("staleness", &[(from, &to), (ORDERS, &lag(90))], &[]);
    }

    #[test]
    fn read_repair_is_blocking_or_none_and_useless_at_one() {
        let (from, to) = kind("cassandra");
        let table = |repair: &str| {
            format!(
                "[collections.orders.consistency]\nread = \"one\"\n{ORDERS}\nread_repair = \"{repair}\""
            )
        };
        check_rule(
            "read-repair",
            &[(from, &to), (ORDERS, &table("BLOCKING"))],
            &["compares nothing"],
        );
        check_rule(
            "read-repair",
            &[(from, &to), (ORDERS, &table("0.1"))],
            &["refused: orders_by_id has read_repair \"0.1\""],
        );
    }
}
