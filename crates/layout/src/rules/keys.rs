//! Do keys name real fields, name a record once, last, and spread the load?

use crate::column::clustering_text;
use crate::engine::EngineKind;
use crate::field::{Field, FieldKind};
use crate::file::{CollectionLayout, Cut, Layout, Store};
use crate::findings::{Finding, Severity};
use crate::id_encoding::IdEncoding;
use crate::key::Direction;
use crate::table::{KeyColumn, Role, Table};

pub(super) fn known_fields(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for collection in layout.collections.values() {
        let of_shard_key = collection.shard_key.iter().map(|field| ("the shard key", KeyColumn::Field(*field)));
        let tables = collection.stores().flat_map(|store| &store.tables);
        let of_tables = tables.flat_map(|table| {
            let only = table.only.as_ref().map(|(field, _)| KeyColumn::Field(*field));
            columns(table).cloned().chain(only).map(|column| (table.name.as_str(), column))
        });
        let name = collection.collection;
        for (place, column) in of_shard_key.chain(of_tables) {
            let field = column.source();
            if !name.header_fields().contains(&field) {
                let known: Vec<&str> = name.header_fields().iter().map(|field| field.name()).collect();
                findings.push(Finding::refused(
                    format!("{place} of {name} uses {field}, which {name} do not have"),
                    format!("use one of {}", known.join(", ")),
                ));
            } else if !suits(&column) {
                findings.push(Finding::refused(
                    format!("{place} of {name} cannot use {column}"),
                    "month and day need a timestamp, bucket an id or a text, a plain column neither map nor list",
                ));
            }
        }
    }
    findings
}

/// Two records in one row overwrite each other.
pub(super) fn unique_rows(layout: &Layout) -> Vec<Finding> {
    each_table(layout, |collection, _, table| {
        let id = collection.collection.id_field();
        if columns(table).any(|column| *column == KeyColumn::Field(id)) {
            return None;
        }
        let mut clustering = table.clustering.clone();
        clustering.push((KeyColumn::Field(id), Direction::Ascending));
        Some(Finding::refused(
            format!("rows of {} are not unique: {id} is not in its key", table.name),
            format!("write clustering = {}", clustering_text(&clustering)),
        ))
    })
}

/// A record without the value has no row. In a derived table keyed by its
/// partition that is the point (guests are not listed by user); elsewhere the
/// record is lost, or all such records crowd into one place.
pub(super) fn missing_key_values(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for collection in layout.collections.values() {
        let optional = collection.collection.optional_fields();
        for field in collection.shard_key.iter().filter(|field| optional.contains(field)) {
            findings.push(Finding::refused(
                format!("the shard key of {} uses {field}, which a record may lack", collection.collection),
                format!("cut by {}, or by another field that every record has", collection.collection.id_field()),
            ));
        }
    }
    findings.extend(each_table(layout, |collection, _, table| {
        let optional = collection.collection.optional_fields();
        let lacking = |column: &&KeyColumn| optional.contains(&column.source());
        let in_clustering = table.clustering.iter().map(|(column, _)| column).find(lacking);
        let column = match table.role {
            Role::Authority => table.partition.iter().find(lacking).or(in_clustering),
            Role::Derived => in_clustering,
        }?;
        Some(Finding::refused(
            format!("{} would have no row for a record without {}", table.name, column.source()),
            "use a field that every record has, or move it into the partition of a derived table",
        ))
    }));
    findings
}

/// Rows of the authority stay where they are: a derived row is deleted and
/// written anew when its key changes, the authority's cannot be without a gap.
pub(super) fn lasting_keys(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for collection in layout.collections.values() {
        for field in collection.shard_key.iter().filter(|field| may_change(**field)) {
            findings.push(Finding::refused(
                format!("the shard key of {} uses {field}, which changes", collection.collection),
                "cut by fields that never change, such as an id",
            ));
        }
    }
    findings.extend(each_table(layout, |_, _, table| {
        let column = columns(table).find(|column| may_change(column.source()))?;
        (table.role == Role::Authority).then(|| {
            Finding::refused(
                format!("the key of authority {} uses {column}, which changes", table.name),
                "keep it out of the key here; a derived table may have it",
            )
        })
    }));
    findings
}

pub(super) fn ordered_ranges(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for collection in layout.collections.values() {
        let (name, Cut::Ranges { ranges, zones }) = (collection.collection, &collection.cut) else { continue };
        if ranges.first().is_some_and(|range| range.from.is_some()) {
            findings.push(Finding::refused(
                format!("the first range of {name} leaves out the keys below it"),
                "remove its from",
            ));
        }
        for pair in ranges.windows(2) {
            if pair[1].from <= pair[0].from {
                let at = pair[1].from.as_ref().map_or("none".to_owned(), ToString::to_string);
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
            format!("all writers of {} share one partition at a time", table.name),
            format!("add \"bucket({id})\" to its partition and initial_buckets to the table"),
        ))
    })
}

/// O7: one user's orders never end.
pub(super) fn growing_partitions(layout: &Layout) -> Vec<Finding> {
    each_table(layout, |_, store, table| {
        let by_user = table.partition == [KeyColumn::Field(Field::UserId)];
        let listed = table.clustering.first().is_some_and(|(column, _)| column.source() == Field::CreatedAt);
        let lasting = table.options.ttl_seconds.is_none();
        if layout.engine(store).kind != EngineKind::Cassandra || !(by_user && listed && lasting) {
            return None;
        }
        Some(Finding::warning(
            format!("a partition of {} grows for ever with its user (limit 100 MB)", table.name),
            "add \"month(created_at)\" to its partition, or watch the largest partitions",
        ))
    })
}

pub(super) fn bucket_counts(layout: &Layout) -> Vec<Finding> {
    each_table(layout, |_, store, table| {
        let divided = table.partition.iter().any(|column| matches!(column, KeyColumn::Bucket(_)));
        let counted = store.initial_buckets.iter().any(|(name, _)| name == table.name);
        match (divided, counted) {
            (true, false) => Some(Finding::warning(
                format!("{} has a bucket in its key and starts with one", table.name),
                "set initial_buckets from the rows you expect; the map adapts it later",
            )),
            (false, true) => Some(Finding::refused(
                format!("{} has initial_buckets and no bucket in its partition", table.name),
                "add a bucket column, or remove initial_buckets",
            )),
            (true, true) | (false, false) => None,
        }
    })
}

/// Order and cart ids are computed from what they stand for, so that racing
/// requests meet; they are neither UUIDs nor ObjectIds.
pub(super) fn computed_ids(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for collection in layout.collections.values() {
        for (field, encoding) in collection.encodings.iter() {
            if matches!(field, Field::OrderId | Field::CartId) && encoding != IdEncoding::Text {
                findings.push(Finding::refused(
                    format!("{} encode {field} as {encoding}, but its values are computed texts", collection.collection),
                    format!("write {field} = \"text\", or leave it out"),
                ));
            }
        }
    }
    findings
}

fn each_table(
    layout: &Layout,
    check: impl Fn(&CollectionLayout, &Store, &Table) -> Option<Finding>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (collection, store) in layout.stores() {
        findings.extend(store.tables.iter().filter_map(|table| check(collection, store, table)));
    }
    findings
}

fn columns(table: &Table) -> impl Iterator<Item = &KeyColumn> {
    table.partition.iter().chain(table.clustering.iter().map(|(column, _)| column))
}

fn suits(column: &KeyColumn) -> bool {
    let kind = column.source().kind();
    match column {
        KeyColumn::Field(_) => !matches!(kind, FieldKind::Map | FieldKind::List | FieldKind::Blob | FieldKind::Inet),
        KeyColumn::Month(_) | KeyColumn::Day(_) => kind == FieldKind::Timestamp,
        KeyColumn::Bucket(_) => matches!(kind, FieldKind::Id | FieldKind::Text),
    }
}

/// A category belongs to a product for good (W8): products are found by it.
fn may_change(field: Field) -> bool {
    use Field::*;
    matches!(
        field,
        Status | UpdatedAt | LastActive | ExpiresAt | Name | Price | Image | Description | Attributes
            | Address | PaymentMethod | Outcome | SessionData
    )
}

#[cfg(test)]
mod tests {
    use super::super::check_rule;

    #[test]
    fn a_key_uses_fields_of_its_own_collection_in_a_way_that_suits_them() {
        let by_user = "clustering = [\"created_at desc\", \"order_id\"]";
        check_rule("known-fields", &[(by_user, "clustering = [\"price\", \"order_id\"]")], &["orders_by_user of orders uses price", "orders_by_period"]);
        check_rule("known-fields", &[("\"bucket(order_id)\"", "\"bucket(total)\"")], &["cannot use bucket(total)"]);
    }

    #[test]
    fn a_key_without_the_id_is_refused() {
        check_rule(
            "unique-rows",
            &[("partition = [\"category\"]\nclustering = [\"price\", \"product_id\"]", "partition = [\"category\"]\nclustering = [\"price\"]")],
            &["write clustering = [\"price\", \"product_id\"]"],
        );
    }

    #[test]
    fn keys_that_a_record_may_lack_are_refused_where_it_would_be_lost() {
        check_rule("missing-key-values", &[("shard_key = [\"cart_id\"]", "shard_key = [\"user_id\"]")], &["the shard key of carts uses user_id"]);
        check_rule("missing-key-values", &[("partition = [\"cart_id\"]", "partition = [\"session_id\"]")], &["carts_by_id would have no row"]);
    }

    #[test]
    fn keys_that_change_are_refused_where_rows_must_stay() {
        check_rule("lasting-keys", &[("shard_key = [\"product_id\"]", "shard_key = [\"price\"]")], &["uses price, which changes"]);
        check_rule("lasting-keys", &[("partition = [\"cart_id\"]", "partition = [\"cart_id\", \"status\"]")], &["the key of authority carts_by_id uses status"]);
    }

    #[test]
    fn ranges_cover_every_key_once_and_zones_exist() {
        let cut = "shard_key = [\"product_id\"]\ncut = \"slots\"";
        let ranges = |ranges: &str| format!("shard_key = [\"product_id\"]\ncut = \"ranges\"\nranges = [{ranges}]");
        check_rule("ordered-ranges", &[(cut, &ranges("{}, { from = [\"m\"] }, { from = [\"c\"] }"))], &["not in order at split point \"c\""]);
        check_rule("ordered-ranges", &[(cut, &ranges("{ from = [\"m\"] }"))], &["leaves out the keys below it"]);
        check_rule("ordered-ranges", &[(cut, &ranges("{ zone = \"west\" }"))], &["zone west, which is not declared"]);
    }

    #[test]
    fn a_day_for_the_whole_shop_is_too_few_partitions() {
        let buckets = "\"day(created_at)\", \"bucket(order_id)\"";
        check_rule("shared-partitions", &[(buckets, "\"day(created_at)\"")], &["warning: all writers of orders_by_period share one partition"]);
        let cassandra = ("kind = \"embedded\"", "kind = \"cassandra\"");
        check_rule("shared-partitions", &[cassandra, (buckets, "\"day(created_at)\"")], &["refused: all writers"]);
    }

    #[test]
    fn a_partition_that_grows_with_its_user_is_pointed_out() {
        let cassandra = ("kind = \"embedded\"", "kind = \"cassandra\"");
        check_rule("growing-partitions", &[cassandra], &["orders_by_user grows for ever", "sessions_by_user"]);
    }

    #[test]
    fn bucket_counts_belong_to_bucketed_tables() {
        check_rule("bucket-counts", &[("initial_buckets = 8\n", "")], &["warning: orders_by_period has a bucket"]);
        check_rule("bucket-counts", &[(", \"bucket(order_id)\"", "")], &["refused: orders_by_period has initial_buckets"]);
    }

    #[test]
    fn computed_ids_stay_text() {
        let orders = "[collections.orders]\n";
        check_rule("computed-ids", &[(orders, "[collections.orders]\nids = { order_id = \"uuid\", user_id = \"uuid\" }\n")], &["orders encode order_id as uuid"]);
    }
}
