//! Mistakes that the file spells out (see [`crate::mistake`]): one rule each.

use crate::file::Layout;
use crate::findings::Finding;
use crate::mistake::MistakeKind;

pub(super) fn appended_lists(layout: &Layout) -> Vec<Finding> {
    each_mistake(layout, |mistake| match mistake {
        MistakeKind::AppendedList { table } => Some(Finding::refused(
            format!("{table} keeps lines in a list"),
            "write parts = \"rows\", a row for each product, or parts = \"inside\", a map by product",
        )),
        _ => None,
    })
}

pub(super) fn hint_window_per_node(layout: &Layout) -> Vec<Finding> {
    each_mistake(layout, |mistake| match mistake {
        MistakeKind::HintWindowOfTable { table, seconds } => Some(Finding::refused(
            format!("{table} wants a hint window of its own, {seconds} s"),
            "write hint_window_seconds at the engine; tables that need another one go to another cluster",
        )),
        _ => None,
    })
}

pub(super) fn no_materialized_views(layout: &Layout) -> Vec<Finding> {
    each_mistake(layout, |mistake| match mistake {
        MistakeKind::MaterializedView { table, of } => Some(Finding::refused(
            format!("{table} is a materialized view of {of}"),
            "remove materialized_view_of: a derived table is written by Caravan, in the record's own batch",
        )),
        _ => None,
    })
}

pub(super) fn adaptive_buckets(layout: &Layout) -> Vec<Finding> {
    each_mistake(layout, |mistake| match mistake {
        MistakeKind::FixedBuckets { table, count } => Some(Finding::refused(
            format!("{table} is divided into {count} buckets for ever"),
            "write expected_rows: the first count is sized from it, the map holds it and adapts it",
        )),
        _ => None,
    })
}

pub(super) fn zone_by_shard_key(layout: &Layout) -> Vec<Finding> {
    each_mistake(layout, |mistake| match mistake {
        MistakeKind::RangeBesideShardKey { named } => {
            let named: Vec<&str> = named.iter().map(|field| field.name()).collect();
            Some(Finding::refused(
                format!(
                    "a range is cut by {}, which the shard key does not begin with",
                    named.join(", ")
                ),
                "give values of the shard key in its order, or of its first fields",
            ))
        }
        _ => None,
    })
}

pub(super) fn staleness_floor(layout: &Layout) -> Vec<Finding> {
    each_mistake(layout, |mistake| match mistake {
        MistakeKind::MaxStaleness { seconds } => Some(Finding::refused(
            format!("max_staleness_seconds = {seconds} is not kept by MongoDB"),
            format!(
                "write may_lag_seconds = {seconds}: such reads wait for a sampled cluster time, and fall back to the primary"
            ),
        )),
        _ => None,
    })
}

fn each_mistake(layout: &Layout, check: impl Fn(&MistakeKind) -> Option<Finding>) -> Vec<Finding> {
    let found = |mistake: &crate::Mistake| Some(check(&mistake.kind)?.under(&mistake.place));
    layout.mistakes.iter().filter_map(found).collect()
}

#[cfg(test)]
mod tests {
    use super::super::check_rule;

    const PERIOD: &str = "initial_buckets = 8";

    #[test]
    fn lines_are_not_appended_to_a_list() {
        check_rule(
            "appended-lists",
            &[(
                "[collections.carts.tables.carts_by_id]",
                "[collections.carts.tables.carts_by_id]\nparts = \"list\"",
            )],
            &["carts_by_id keeps lines in a list"],
        );
    }

    #[test]
    fn a_table_has_neither_hint_window_nor_view_nor_fixed_buckets() {
        let with = |line: &str| format!("{PERIOD}\n{line}");
        check_rule(
            "hint-window-per-node",
            &[(PERIOD, &with("hint_window_seconds = 3600"))],
            &["orders_by_period wants a hint window of its own, 3600 s"],
        );
        check_rule(
            "no-materialized-views",
            &[(PERIOD, &with("materialized_view_of = \"orders_by_id\""))],
            &["orders_by_period is a materialized view of orders_by_id"],
        );
        check_rule(
            "adaptive-buckets",
            &[(PERIOD, "fixed_buckets = 100")],
            &["orders_by_period is divided into 100 buckets for ever"],
        );
    }

    #[test]
    fn a_range_begins_with_the_shard_key() {
        let cut = "shard_key = [\"product_id\"]\ncut = \"slots\"";
        let ranges = |from: &str| {
            format!(
                "shard_key = [\"category\", \"product_id\"]\ncut = \"ranges\"\nranges = [{{}}, {{ from = {from} }}]"
            )
        };
        check_rule(
            "zone-by-shard-key",
            &[(cut, &ranges("{ product_id = \"m\" }"))],
            &["a range is cut by product_id, which the shard key does not begin with"],
        );
        let whole = ranges("{ product_id = \"m\", category = \"c\" }");
        check_rule("zone-by-shard-key", &[(cut, &whole)], &[]);
    }

    #[test]
    fn the_servers_own_bound_is_not_used() {
        let orders = "[collections.orders.tables.orders_by_id]";
        let policy =
            format!("[collections.orders.operations.O2]\nmax_staleness_seconds = 10\n{orders}");
        check_rule(
            "staleness-floor",
            &[(orders, &policy)],
            &["max_staleness_seconds = 10 is not kept by MongoDB: write may_lag_seconds = 10"],
        );
    }
}
