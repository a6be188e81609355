//! Is every key in one range, and do partitions spread the load?

use super::keys::each_table;
use crate::engine::EngineKind;
use crate::field::Field;
use crate::file::{Cut, Layout};
use crate::findings::{Finding, Severity};
use crate::table::KeyColumn;

pub(super) fn ordered_ranges(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for collection in layout.collections.values() {
        let (name, Cut::Ranges { ranges, zones }) = (collection.collection, &collection.cut) else {
            continue;
        };
        if ranges.first().is_some_and(|range| range.from.is_some()) {
            findings.push(Finding::refused(
                format!("the first range of {name} leaves out the keys below it"),
                "remove its from",
            ));
        }
        for pair in ranges.windows(2) {
            if pair[1].from <= pair[0].from {
                let at = pair[1]
                    .from
                    .as_ref()
                    .map_or("none".to_owned(), ToString::to_string);
                findings.push(Finding::refused(
                    format!("the ranges of {name} are not in order at split point {at}"),
                    "sort them by from, each split point once, only the first without one",
                ));
            }
        }
        for zone in ranges.iter().filter_map(|range| range.zone.as_ref()) {
            if !zones.contains_key(zone) {
                findings.push(Finding::refused(
                    format!("a range of {name} is tied to zone {zone}, which is not declared"),
                    format!("declare it in [collections.{name}.zones] with its shards"),
                ));
            }
        }
    }
    findings
}

/// A partition named by the calendar alone takes every write of the shop.
pub(super) fn shared_partitions(layout: &Layout) -> Vec<Finding> {
    each_table(layout, |collection, store, table| {
        let shared = |column: &KeyColumn| matches!(column, KeyColumn::Month(_) | KeyColumn::Day(_));
        if !table.partition.iter().all(shared) {
            return None;
        }
        let kind = layout.engine(store).kind;
        if table.partition.is_empty() && kind != EngineKind::Cassandra {
            return None;
        }
        let severity = match kind {
            EngineKind::Cassandra => Severity::Refused,
            EngineKind::Mongo | EngineKind::Embedded | EngineKind::Memory => Severity::Warning,
        };
        let id = collection.collection.id_field();
        Some(Finding::new(
            severity,
            format!(
                "all writers of {} share one partition at a time",
                table.name
            ),
            format!("add \"bucket({id})\" to its partition and initial_buckets to the table"),
        ))
    })
}

/// O7: one user's orders never end.
pub(super) fn growing_partitions(layout: &Layout) -> Vec<Finding> {
    each_table(layout, |_, store, table| {
        let by_user = table.partition == [KeyColumn::Field(Field::UserId)];
        let listed = table
            .clustering
            .first()
            .is_some_and(|(column, _)| column.source() == Field::CreatedAt);
        let lasting = table.options.ttl_seconds.is_none();
        if layout.engine(store).kind != EngineKind::Cassandra || !(by_user && listed && lasting) {
            return None;
        }
        Some(Finding::warning(
            format!(
                "a partition of {} grows for ever with its user (limit 100 MB)",
                table.name
            ),
            "add \"month(created_at)\" to its partition, or watch the largest partitions",
        ))
    })
}

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
                "set initial_buckets from the rows you expect; the map adapts it later",
            )),
            (false, true) => Some(Finding::refused(
                format!(
                    "{} has initial_buckets and no bucket in its partition",
                    table.name
                ),
                "add a bucket column, or remove initial_buckets",
            )),
            (true, true) | (false, false) => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::check_rule;

    #[test]
    fn ranges_cover_every_key_once_and_zones_exist() {
        let cut = "shard_key = [\"product_id\"]\ncut = \"slots\"";
        let ranges = |ranges: &str| {
            format!("shard_key = [\"product_id\"]\ncut = \"ranges\"\nranges = [{ranges}]")
        };
        check_rule(
            "ordered-ranges",
            &[(cut, &ranges("{}, { from = [\"m\"] }, { from = [\"c\"] }"))],
            &["not in order at split point \"c\""],
        );
        check_rule(
            "ordered-ranges",
            &[(cut, &ranges("{ from = [\"m\"] }"))],
            &["leaves out the keys below it"],
        );
        check_rule(
            "ordered-ranges",
            &[(cut, &ranges("{ zone = \"west\" }"))],
            &["zone west, which is not declared"],
        );
    }

    #[test]
    fn a_day_for_the_whole_shop_is_too_few_partitions() {
        let buckets = "\"day(created_at)\", \"bucket(order_id)\"";
        check_rule(
            "shared-partitions",
            &[(buckets, "\"day(created_at)\"")],
            &["warning: all writers of orders_by_period share one partition"],
        );
        let cassandra = ("kind = \"embedded\"", "kind = \"cassandra\"");
        check_rule(
            "shared-partitions",
            &[cassandra, (buckets, "\"day(created_at)\"")],
            &["refused: all writers"],
        );
    }

    #[test]
    fn a_partition_that_grows_with_its_user_is_pointed_out() {
        let cassandra = ("kind = \"embedded\"", "kind = \"cassandra\"");
        check_rule(
            "growing-partitions",
            &[cassandra],
            &["orders_by_user grows for ever", "sessions_by_user"],
        );
    }

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
            &["refused: orders_by_period has initial_buckets"],
        );
    }
}
