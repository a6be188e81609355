//! How old may an answer be, and who can promise that?

use super::consistency::{each_policy, place};
use crate::consistency::ReadLevel;
use crate::engine::EngineKind;
use crate::file::Layout;
use crate::findings::Finding;
use crate::path::Operation;

/// MongoDB's reads wait for a cluster time sampled at the primary, so that any
/// bound of whole seconds can be kept; Cassandra's copies have no common clock.
pub(super) fn keepable_staleness(layout: &Layout) -> Vec<Finding> {
    each_policy(layout, |collection, engine, operation, policy| {
        let place = place(collection, operation);
        let secondary = policy.read == ReadLevel::Secondary;
        match (engine.kind, policy.may_lag_seconds) {
            (EngineKind::Mongo, 0) if secondary => {
                let finding = Finding::refused(
                    format!("{place} reads from a secondary and may not lag"),
                    "read from the primary, or set may_lag_seconds",
                );
                Some(finding.at("read"))
            }
            (EngineKind::Cassandra, lag) if lag > 0 && !policy.overlaps(&engine.replication) => {
                let finding = Finding::refused(
                    format!(
                        "{place} promises to lag at most {lag} s with write {} and read {}",
                        policy.write, policy.read
                    ),
                    "write and read with quorum, or remove may_lag_seconds and label it eventual",
                );
                Some(finding.at("may_lag_seconds"))
            }
            _ => None,
        }
    })
}

/// R3: the status "paid", stock, the price at checkout, the owner's active cart.
pub(super) fn decisions_never_lag(layout: &Layout) -> Vec<Finding> {
    use Operation::{C1, C2, C3, C4, C5, C6, C9, O1, O3, O4, P4, P5, P6};
    each_policy(layout, |collection, _, operation, policy| {
        if policy.may_lag_seconds == 0 {
            return None;
        }
        let lag = policy.may_lag_seconds;
        // A lag of the whole collection reaches its deciding operations too.
        let Some(operation) = operation else {
            let finding = Finding::refused(
                format!(
                    "every operation of {collection} may lag {lag} s, those that decide included"
                ),
                format!(
                    "give the lag to single operations: [collections.{collection}.operations.…]"
                ),
            );
            return Some(finding.at("may_lag_seconds"));
        };
        match operation {
            O3 if policy.unless_status.iter().any(|status| status == "paid") => None,
            O3 => {
                let finding = Finding::refused(
                    format!("{operation} may lag {lag} s, also when the answer is \"paid\""),
                    "write unless_status = [\"paid\"]: such an answer is read again from the primary",
                );
                Some(finding.about(operation))
            }
            C1 | C2 | C3 | C4 | C5 | C6 | C9 | O1 | O4 | P4 | P5 | P6 => {
                let finding = Finding::refused(
                    format!("{operation} may lag {lag} s, and decides"),
                    "remove may_lag_seconds and read from the primary",
                );
                Some(finding.at("may_lag_seconds").about(operation))
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::check_rule;

    const KIND: &str = "kind = \"embedded\"";
    const ORDERS: &str = "[collections.orders.tables.orders_by_id]";

    fn check(rule: &str, kind: &str, policy: &str, expected: &[&str]) {
        let kind = format!("kind = \"{kind}\"");
        let policy = format!("{policy}\n{ORDERS}");
        check_rule(rule, &[(KIND, &kind), (ORDERS, &policy)], expected);
    }

    #[test]
    fn a_secondary_lags_and_mongo_can_bound_it() {
        let lag = |seconds: u32| {
            format!(
                "[collections.orders.operations.O2]\nread = \"secondary\"\nmay_lag_seconds = {seconds}"
            )
        };
        check_rule("keepable-staleness", &[(KIND, "kind = \"mongo\"")], &[]);
        check(
            "keepable-staleness",
            "mongo",
            &lag(0),
            &["O2 (history of one user) of orders reads from a secondary"],
        );
        check("keepable-staleness", "mongo", &lag(10), &[]);
    }

    #[test]
    fn cassandra_bounds_nothing_that_need_not_meet() {
        let one = "[collections.orders.consistency]\nread = \"one\"\nmay_lag_seconds = 5";
        check(
            "keepable-staleness",
            "cassandra",
            one,
            &["orders promises to lag at most 5 s with write quorum and read one"],
        );
        let met = "[collections.orders.consistency]\nmay_lag_seconds = 5";
        check("keepable-staleness", "cassandra", met, &[]);
    }

    #[test]
    fn what_decides_reads_the_newest_state() {
        let lag = |operation: &str, rest: &str| {
            format!(
                "[collections.orders.operations.{operation}]\nread = \"secondary\"\nmay_lag_seconds = 5\n{rest}"
            )
        };
        let rule = "decisions-never-lag";
        check(
            rule,
            "mongo",
            &lag("O4", ""),
            &["O4 (change an order's status) may lag 5 s, and decides"],
        );
        check(
            rule,
            "mongo",
            &lag("O3", ""),
            &["also when the answer is \"paid\""],
        );
        check(rule, "mongo", &lag("O3", "unless_status = [\"paid\"]"), &[]);
        check(rule, "mongo", &lag("O2", ""), &[]);
        let all = "[collections.orders.consistency]\nread = \"secondary\"\nmay_lag_seconds = 5";
        check(
            rule,
            "mongo",
            all,
            &["every operation of orders may lag 5 s"],
        );
        check_rule(rule, &[(KIND, "kind = \"mongo\"")], &[]);
    }
}
