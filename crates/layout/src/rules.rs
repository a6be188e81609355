//! The checker's rules, one small function each: a layout in, findings out.
//!
//! A new rule is a function in the file of its subject and a line in [`RULES`].

mod answers;
mod consistency;
mod engines;
mod keys;
mod lifetimes;
mod spread;

use crate::file::Layout;
use crate::findings::Finding;

pub(crate) struct Rule {
    pub name: &'static str,
    pub check: fn(&Layout) -> Vec<Finding>,
}

const fn rule(name: &'static str, check: fn(&Layout) -> Vec<Finding>) -> Rule {
    Rule { name, check }
}

pub(crate) const RULES: &[Rule] = &[
    rule("every-operation-answered", answers::every_operation),
    rule("one-authority", answers::one_authority),
    rule("table-names", answers::table_names),
    rule("known-fields", keys::known_fields),
    rule("unique-rows", keys::unique_rows),
    rule("missing-key-values", keys::missing_key_values),
    rule("lasting-keys", keys::lasting_keys),
    rule("ordered-ranges", spread::ordered_ranges),
    rule("shared-partitions", spread::shared_partitions),
    rule("growing-partitions", spread::growing_partitions),
    rule("bucket-counts", spread::bucket_counts),
    rule("computed-ids", keys::computed_ids),
    rule("stock-needs-conditions", engines::stock_needs_conditions),
    rule("suited-settings", engines::suited_settings),
    rule("commit-before-answer", engines::commit_before_answer),
    rule("repair-before-grace", engines::repair_before_grace),
    rule("window-compaction", lifetimes::window_compaction),
    rule("ttl-collects-garbage", lifetimes::ttl_collects_garbage),
    rule("cart-within-session", lifetimes::cart_within_session),
    rule("levels-of-the-engine", consistency::levels_of_the_engine),
    rule(
        "operations-of-the-collection",
        consistency::operations_of_the_collection,
    ),
    rule("copies-meet", consistency::copies_meet),
    rule("staleness", consistency::staleness),
    rule("read-repair", consistency::read_repair),
];

/// Runs one rule over a layout with divided keys after a change of its text.
#[cfg(test)]
pub(crate) fn found(rule_name: &str, changes: &[(&str, &str)]) -> Vec<String> {
    let mut text = include_str!("../tests/divided.toml").to_owned();
    for (from, to) in changes {
        assert!(
            text.contains(from),
            "the divided layout has no {from:?} to change"
        );
        text = text.replace(from, to);
    }
    let layout = Layout::parse(&text, "changed.toml").unwrap();
    let rule = RULES.iter().find(|rule| rule.name == rule_name).unwrap();
    (rule.check)(&layout)
        .iter()
        .map(|finding| format!("{}: {}: {}", finding.severity, finding.message, finding.fix))
        .collect()
}

/// Asserts that a change of that layout makes the rule say each of these,
/// and that it says nothing without the change.
#[cfg(test)]
pub(crate) fn check_rule(rule_name: &str, changes: &[(&str, &str)], expected: &[&str]) {
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
