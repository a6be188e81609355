//! Are divided partitions divided enough?

use super::each_table;
use crate::engine::EngineKind;
use crate::estimate::{
    PARTITION_BYTES_AIM, PARTITION_BYTES_MAX, buckets_for, bytes_text, partition_bytes,
};
use crate::file::Layout;
use crate::findings::Finding;
use crate::table::KeyColumn;

pub(super) fn bucket_counts(layout: &Layout) -> Vec<Finding> {
    each_table(layout, |_, store, table| {
        let divided = table
            .partition
            .iter()
            .any(|column| matches!(column, KeyColumn::Bucket(_)));
        let counted = store
            .initial_buckets
            .iter()
            .any(|(name, _)| name == table.name);
        match (divided, counted) {
            (true, false) => Some(Finding::warning(
                format!("{} has a bucket in its key and starts with one", table.name),
                "say how many rows you expect in expected_rows; the map adapts the count later",
            )),
            (false, true) => Some(
                Finding::refused(
                    format!(
                        "{} has initial_buckets and no bucket in its partition",
                        table.name
                    ),
                    "add a bucket column, or remove initial_buckets",
                )
                .at("initial_buckets"),
            ),
            (true, true) | (false, false) => None,
        }
    })
}

/// Only where the file says how many rows it expects; `layout explain` estimates
/// the others for a given load.
pub(super) fn partition_size(layout: &Layout) -> Vec<Finding> {
    each_table(layout, |_, store, table| {
        let rows = table.options.expected_rows?;
        if layout.engine(store).kind != EngineKind::Cassandra {
            return None;
        }
        let buckets = store.initial_buckets.of(&table.name);
        let bytes = partition_bytes(table, rows, buckets);
        let message = format!(
            "a partition of {} gets {} of the {rows} rows expected, in {buckets} buckets",
            table.name,
            bytes_text(bytes)
        );
        let fix = match buckets_for(table) {
            Some(enough) => format!(
                "write initial_buckets = {enough}, or leave it out: it is then sized from expected_rows"
            ),
            None => "add a bucket to its partition".to_owned(),
        };
        if bytes > PARTITION_BYTES_MAX {
            Some(Finding::refused(message, fix).at("expected_rows"))
        } else if bytes > PARTITION_BYTES_AIM {
            Some(Finding::warning(message, fix).at("expected_rows"))
        } else {
            None
        }
    })
}

pub(super) fn stored_columns(layout: &Layout) -> Vec<Finding> {
    each_table(layout, |_, store, table| {
        let computed = |column: &&KeyColumn| !matches!(column, KeyColumn::Field(_));
        let column = table.partition.iter().find(computed)?;
        (layout.engine(store).kind == EngineKind::Mongo).then(|| {
            let finding = Finding::refused(
                format!("{} has {column} in its key, on mongo", table.name),
                "leave it out: an index is walked in its order, and each shard has a piece of it",
            );
            finding.at("partition")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::check_rule;

    #[test]
    fn bucket_counts_belong_to_bucketed_tables() {
        check_rule(
            "bucket-counts",
            &[("initial_buckets = 8\n", "")],
            &["warning: orders_by_period has a bucket"],
        );
        check_rule(
            "bucket-counts",
            &[(", \"bucket(order_id)\"", "")],
            &["error: orders_by_period has initial_buckets"],
        );
    }

    #[test]
    fn an_index_has_no_computed_columns() {
        check_rule(
            "stored-columns",
            &[("kind = \"embedded\"", "kind = \"mongo\"")],
            &[
                "orders_by_period has day(created_at) in its key, on mongo",
                "orders_open has bucket(user_id)",
            ],
        );
    }

    #[test]
    fn partitions_are_divided_enough_for_the_rows_expected() {
        let cassandra = ("kind = \"embedded\"", "kind = \"cassandra\"");
        let expecting = |buckets: u32, rows: u64| {
            format!("initial_buckets = {buckets}\nexpected_rows = {rows}")
        };
        let check = |buckets, rows, expected: &[&str]| {
            let to = expecting(buckets, rows);
            check_rule(
                "partition-size",
                &[cassandra, ("initial_buckets = 8", &to)],
                expected,
            );
        };
        check(
            1,
            10_000_000,
            &["error: a partition of orders_by_period gets 1.5 GB"],
        );
        check(
            1,
            100_000,
            &["warning: a partition of orders_by_period gets 15 MB"],
        );
        check(16, 1_000_000, &[]);
    }
}
