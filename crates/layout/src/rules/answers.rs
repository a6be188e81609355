//! Is every question of the shop answered, and is it clear by whom?

use std::collections::BTreeMap;

use crate::engine::EngineKind;
use crate::file::Layout;
use crate::findings::Finding;
use crate::path::{AccessPath, Operation};
use crate::planner::{advice_undivided, plan_operation};
use crate::table::Role;

/// One finding for each question without a table, with all operations that ask it.
pub(super) fn every_operation(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in AccessPath::ALL {
        let asks = |operation: &Operation| operation.paths().contains(&path);
        let operations: Vec<Operation> = Operation::ALL.into_iter().filter(asks).collect();
        let Some(first) = operations.first() else {
            continue;
        };
        let collection = layout.collection(path.shape().collection);
        for store in collection.stores() {
            let is_history = !std::ptr::eq(store, &collection.live);
            // An order with steps still to be done does not go to the history.
            if is_history && path == AccessPath::OrdersOpen {
                continue;
            }
            let buckets = &store.initial_buckets;
            let Err(missing) = plan_operation(collection, store, *first, path, buckets) else {
                continue;
            };
            let place = if is_history { "the history of " } else { "" };
            let named: Vec<String> = operations.iter().map(ToString::to_string).collect();
            let message = format!(
                "no table of {place}{} finds {path}: {}",
                missing.collection,
                named.join(", ")
            );
            let advice = match layout.engine(store).kind {
                EngineKind::Mongo => advice_undivided(path),
                EngineKind::Cassandra | EngineKind::Embedded | EngineKind::Memory => missing.advice,
            };
            let at = collection.place(store).then("tables");
            findings.push(Finding::refused(message, advice).about(*first).under(&at));
        }
    }
    findings
}

pub(super) fn one_authority(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (collection, store) in layout.stores() {
        let named = |role| -> Vec<&str> {
            let tables = store.tables.iter().filter(|table| table.role == role);
            tables.map(|table| table.name.as_str()).collect()
        };
        let (authorities, id) = (named(Role::Authority), collection.collection.id_field());
        let place = collection.place(store).then("tables");
        let collection = collection.collection;
        findings.extend(match authorities.as_slice() {
            [_] => None,
            [] => Some(Finding::refused(
                format!("collection {collection} has no authority on engine {}", store.engine),
                format!("give one table with {id} in its key role = \"authority\""),
            ).under(&place)),
            [.., last] => Some(Finding::refused(
                format!("collection {collection} has {} authorities: {}", authorities.len(), authorities.join(", ")),
                "keep role = \"authority\" on the table that decides, and remove it from the others",
            ).under(&place.then(last).then("role"))),
        });
    }
    findings
}

/// Tables of one engine share its namespace, whatever collection they belong to.
pub(super) fn table_names(layout: &Layout) -> Vec<Finding> {
    let (mut findings, mut owners) = (Vec::new(), BTreeMap::new());
    for (collection, store) in layout.stores() {
        for table in &store.tables {
            let at = collection.place(store).then("tables").then(&table.name);
            let usable = table.name.len() <= 48
                && table
                    .name
                    .starts_with(|first: char| first.is_ascii_lowercase())
                && table
                    .name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            if !usable {
                findings.push(
                    Finding::refused(
                        format!("table name {:?} is not usable on every engine", table.name),
                        "use at most 48 of a-z, 0-9 and _, a letter first",
                    )
                    .under(&at),
                );
            }
            let place = (store.engine.as_str(), table.name.as_str());
            if let Some(other) = owners.insert(place, collection.collection) {
                findings.push(
                    Finding::refused(
                        format!(
                            "table {} stands twice on engine {}, in {other} and {}",
                            table.name, store.engine, collection.collection
                        ),
                        "give one of them another name",
                    )
                    .under(&at),
                );
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::check_rule;

    #[test]
    fn an_operation_without_a_table_is_refused_with_the_table_to_add() {
        check_rule(
            "every-operation-answered",
            &[("\"day(created_at)\", \"bucket(order_id)\"", "\"status\"")],
            &[
                "error: no table of orders finds orders by period: O5 (orders of a period): add a table with \
               partition [\"day(created_at)\", \"bucket(order_id)\"] and clustering [\"created_at desc\", \"order_id\"]",
            ],
        );
    }

    #[test]
    fn on_mongo_the_table_to_add_is_an_index() {
        let period = "partition = [\"day(created_at)\", \"bucket(order_id)\"]";
        check_rule(
            "every-operation-answered",
            &[
                ("kind = \"embedded\"", "kind = \"mongo\""),
                (period, "partition = [\"status\"]"),
            ],
            &["add a table with partition [] and clustering [\"created_at desc\", \"order_id\"]"],
        );
    }

    #[test]
    fn two_authorities_or_none_are_refused() {
        let authority = "[collections.orders.tables.orders_by_id]\nrole = \"authority\"";
        let name = "[collections.orders.tables.orders_by_id]";
        check_rule(
            "one-authority",
            &[(authority, name)],
            &["collection orders has no authority on engine local"],
        );
        let second = "[collections.orders.tables.orders_by_user]";
        check_rule(
            "one-authority",
            &[(second, &format!("{second}\nrole = \"authority\""))],
            &["has 2 authorities: orders_by_id, orders_by_user"],
        );
    }

    #[test]
    fn a_table_name_is_used_once_and_fits_every_engine() {
        check_rule(
            "table-names",
            &[("tables.sessions_by_user", "tables.orders_by_user")],
            &["stands twice on engine local"],
        );
        check_rule(
            "table-names",
            &[("tables.sessions_by_user", "tables.\"1 x\"")],
            &["is not usable on every engine"],
        );
    }
}
