//! Two layouts side by side, and what a move between them means.

mod facts;

mod meaning;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::collection::Collection;
use crate::explain::promise;
use crate::file::{CollectionLayout, Layout};
use crate::path::{AccessPath, Operation};
use crate::planner::plan_operation;
use facts::{Facts, collection_facts, engine_facts, table_facts};

/// What changes from one layout to the other, collection by collection.
pub fn diff(from: &Layout, to: &Layout) -> String {
    let mut text = format!("{} -> {}\n", from.name, to.name);
    let mut body = section("engines", &engines(from, to));
    for collection in Collection::ALL {
        let lines = collection_lines(from, to, collection);
        body += &section(collection.name(), &lines);
    }
    if body.is_empty() {
        return text + "\nno difference in tables, keys, settings or policies\n";
    }
    text += &body;
    text += &section("a move between them", &meaning::sentences(from, to));
    text
}

fn section(title: &str, lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{title}\n");
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
    text
}

fn engines(from: &Layout, to: &Layout) -> Vec<String> {
    let names: BTreeSet<&String> = from.engines.keys().chain(to.engines.keys()).collect();
    let mut lines = Vec::new();
    for name in names {
        let facts = |layout: &Layout| layout.engines.get(name).map(engine_facts);
        lines.extend(changed(name, facts(from), facts(to)));
    }
    lines
}

fn collection_lines(from: &Layout, to: &Layout, collection: Collection) -> Vec<String> {
    let (before, after) = (from.collection(collection), to.collection(collection));
    let mut lines = changes(
        &collection_facts(from, before),
        &collection_facts(to, after),
    );
    let tables = |layout: &CollectionLayout| -> Vec<(String, Facts)> {
        let stores = layout.stores();
        let tables = stores.flat_map(|store| store.tables.iter().map(move |table| (store, table)));
        tables
            .map(|(store, table)| (table.name.clone(), table_facts(store, table)))
            .collect()
    };
    let (before_tables, after_tables) = (tables(before), tables(after));
    let names: Vec<&String> = before_tables
        .iter()
        .chain(&after_tables)
        .map(|(name, _)| name)
        .collect();
    let mut seen = BTreeSet::new();
    for name in names.into_iter().filter(|name| seen.insert(*name)) {
        let facts = |tables: &[(String, Facts)]| {
            tables
                .iter()
                .find(|(table, _)| table == name)
                .map(|(_, facts)| facts.clone())
        };
        lines.extend(changed(name, facts(&before_tables), facts(&after_tables)));
    }
    lines.extend(answers(from, to, collection));
    lines
}

/// Operations that are answered at another cost, or under another promise; those
/// that change alike stand together.
fn answers(from: &Layout, to: &Layout, collection: Collection) -> Vec<String> {
    let mut groups: Vec<(String, [String; 2])> = Vec::new();
    for path in AccessPath::of(collection) {
        let asking = Operation::ALL
            .into_iter()
            .filter(|operation| operation.paths().contains(&path));
        for operation in asking {
            let answers = [from, to].map(|layout| answer(layout, path, operation));
            if answers[0] == answers[1] {
                continue;
            }
            let asked = format!(" {path}");
            match groups
                .iter_mut()
                .find(|(title, same)| title.ends_with(&asked) && *same == answers)
            {
                Some((title, _)) => {
                    *title = title.replace(&asked, &format!(" {operation:?}{asked}"))
                }
                None => groups.push((format!("{operation:?}{asked}"), answers)),
            }
        }
    }
    let lines = |(title, [before, after]): (String, [String; 2])| {
        [title, format!("      {before}"), format!("   -> {after}")]
    };
    groups.into_iter().flat_map(lines).collect()
}

fn answer(layout: &Layout, path: AccessPath, operation: Operation) -> String {
    let collection = layout.collection(path.shape().collection);
    let store = &collection.live;
    let plan = plan_operation(collection, store, operation, path, &store.initial_buckets);
    let cost = plan.map_or("not answered".to_owned(), |plan| {
        format!("{}, {}", plan.fan_out, plan.shards)
    });
    let promise = promise(layout, store, store.consistency.policy(operation));
    format!("{cost}; {promise}")
}

/// A thing that is gone, new, or not what it was.
fn changed(name: &str, before: Option<Facts>, after: Option<Facts>) -> Vec<String> {
    match (before, after) {
        (None, None) => Vec::new(),
        (Some(before), None) => vec![format!("- {name}: {}", before.text())],
        (None, Some(after)) => vec![format!("+ {name}: {}", after.text())],
        (Some(before), Some(after)) => {
            let changes = changes(&before, &after);
            let line = (!changes.is_empty()).then(|| format!("~ {name}: {}", changes.join("; ")));
            line.into_iter().collect()
        }
    }
}

fn changes(before: &Facts, after: &Facts) -> Vec<String> {
    let mut lines = Vec::new();
    for name in before.names(after) {
        let (was, is) = (before.value(name), after.value(name));
        if was != is {
            let shown = |value: Option<&str>| value.unwrap_or("not set").to_owned();
            lines.push(format!("{name} {} -> {}", shown(was), shown(is)));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(changes: &[(&str, &str)]) -> Layout {
        let mut text = include_str!("../tests/divided.toml").to_owned();
        for (from, to) in changes {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        Layout::parse(&text, "divided.toml").unwrap()
    }

    fn check(changes: &[(&str, &str)], expected: &[&str]) {
        let text = diff(&parsed(&[]), &parsed(changes));
        for expected in expected {
            assert!(text.contains(expected), "{text} lacks {expected}");
        }
    }

    #[test]
    fn a_layout_does_not_differ_from_itself() {
        let text = diff(&parsed(&[]), &parsed(&[]));
        assert!(
            text.ends_with("no difference in tables, keys, settings or policies\n"),
            "{text}"
        );
    }

    #[test]
    fn a_new_key_a_new_table_and_a_lost_one_are_told() {
        check(
            &[(
                "partition = [\"user_id\"]\nclustering = [\"created_at desc\", \"order_id\"]",
                "partition = [\"user_id\", \"month(created_at)\"]\nclustering = [\"created_at desc\", \"order_id\"]",
            )],
            &[
                "~ orders_by_user: key ((user_id), created_at desc, order_id) -> ((user_id, month(created_at)), created_at desc, order_id)",
                "O2 O7 orders by user\n        one partition, one shard; the newest: one copy\n     -> each month, one shard",
                "orders: orders_by_user is written anew from the authority",
            ],
        );
        check(
            &[("tables.orders_by_user", "tables.orders_of_user")],
            &[
                "- orders_by_user: key ((user_id)",
                "+ orders_of_user: key ((user_id)",
                "orders: orders_of_user is filled from the authority before it answers",
            ],
        );
    }

    #[test]
    fn a_new_shard_key_and_a_new_lifetime_are_told() {
        check(
            &[(
                "shard_key = [\"cart_id\"]",
                "shard_key = [\"cart_id\", \"ordinal\"]",
            )],
            &[
                "shard key cart_id -> cart_id, ordinal",
                "carts: every record is routed anew",
            ],
        );
        check(
            &[("604800 # sessions", "86400 # sessions")],
            &[
                "lifetime 604800 s -> 86400 s",
                "sessions: the shorter lifetime of 86400 s holds",
            ],
        );
    }

    #[test]
    fn another_engine_means_that_every_record_is_copied() {
        check(
            &[("kind = \"embedded\"", "kind = \"mongo\"")],
            &[
                "~ local: kind embedded -> mongo",
                "orders: every record is copied from local (embedded) to local (mongo)",
            ],
        );
    }
}
