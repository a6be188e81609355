//! Can the engine keep what the policy promises, and is the promise honest?

use crate::collection::Collection;
use crate::consistency::{Policy, ReadLevel, WriteLevel};
use crate::engine::{EngineDeclaration, EngineKind};
use crate::file::Layout;
use crate::findings::Finding;
use crate::path::Operation;

pub(super) fn levels_of_the_engine(layout: &Layout) -> Vec<Finding> {
    each_policy(layout, |collection, engine, operation, policy| {
        let kind = engine.kind;
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
    each_policy(layout, |collection, _, operation, _| {
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

/// Reads that may miss the last acknowledged write are eventual. Orders may not
/// be (W36); carts and sessions may, if the file says so and what is lost.
pub(super) fn copies_meet(layout: &Layout) -> Vec<Finding> {
    each_policy(layout, |collection, engine, operation, policy| {
        let sum = policy.sum(&engine.replication)?;
        if engine.kind != EngineKind::Cassandra || policy.overlaps(&engine.replication) {
            return None;
        }
        let labelled = policy.is_eventual();
        let message = format!(
            "reading {} is eventual: write {} and read {} need not meet, {} + {} is not more than {}",
            place(collection, operation),
            policy.write,
            policy.read,
            sum.written,
            sum.read,
            sum.copies
        );
        Some(match collection {
            Collection::Orders | Collection::Products => {
                Finding::refused(message, "write and read with quorum")
            }
            Collection::Carts | Collection::Sessions if !labelled => Finding::refused(
                message,
                "write and read with quorum, or say what may be lost: label = \"eventual: …\"",
            ),
            Collection::Carts | Collection::Sessions => Finding::warning(
                message,
                "nothing, if that is meant: a client's own changes are kept by its token",
            ),
        })
    })
}

/// Every policy with its engine; a finding's place is counted from the policy's.
pub(super) fn each_policy(
    layout: &Layout,
    check: impl Fn(Collection, &EngineDeclaration, Option<Operation>, &Policy) -> Option<Finding>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (collection, store) in layout.stores() {
        let engine = layout.engine(store);
        for (operation, policy) in store.consistency.policies() {
            let place = collection.place(store);
            let place = match operation {
                None => place.then("consistency"),
                Some(operation) => place.then("operations").then(format!("{operation:?}")),
            };
            let found = check(collection.collection, engine, operation, policy);
            findings.extend(found.map(|finding| finding.under(&place)));
        }
    }
    findings
}

pub(super) fn place(collection: Collection, operation: Option<Operation>) -> String {
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
            &["error: reading orders is eventual"],
        );
    }

    #[test]
    fn carts_may_be_eventual_if_the_file_says_so() {
        let (from, to) = kind("cassandra");
        let carts = "[collections.carts.tables.carts_by_id]";
        let labelled = |label: &str| {
            format!("[collections.carts.consistency]\nwrite = \"one\"\n{label}\n{carts}")
        };
        let check = |label: &str, expected: &str| {
            check_rule(
                "copies-meet",
                &[(from, &to), (carts, &labelled(label))],
                &[expected],
            );
        };
        check("", "error: reading carts is eventual");
        check("label = \"guaranteed\"", "error: reading carts is eventual");
        check(
            "label = \"eventual: a change may be lost\"",
            "warning: reading carts is eventual",
        );
    }
}
