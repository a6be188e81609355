//! Do keys name real fields, name a record once, and last?

use crate::column::clustering_text;
use crate::field::{Field, FieldKind};
use crate::file::{CollectionLayout, Layout, Store};
use crate::findings::Finding;
use crate::id_encoding::IdEncoding;
use crate::key::Direction;
use crate::table::{KeyColumn, Role, Table};

pub(super) fn known_fields(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for collection in layout.collections.values() {
        let of_shard_key = collection
            .shard_key
            .iter()
            .map(|field| ("the shard key", KeyColumn::Field(*field)));
        let tables = collection.stores().flat_map(|store| &store.tables);
        let of_tables = tables.flat_map(|table| {
            let only = table
                .only
                .as_ref()
                .map(|(field, _)| KeyColumn::Field(*field));
            columns(table)
                .cloned()
                .chain(only)
                .map(|column| (table.name.as_str(), column))
        });
        let name = collection.collection;
        for (place, column) in of_shard_key.chain(of_tables) {
            let field = column.source();
            if !name.header_fields().contains(&field) {
                let known: Vec<&str> = name
                    .header_fields()
                    .iter()
                    .map(|field| field.name())
                    .collect();
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
            format!(
                "rows of {} are not unique: {id} is not in its key",
                table.name
            ),
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
        for field in collection
            .shard_key
            .iter()
            .filter(|field| optional.contains(field))
        {
            findings.push(Finding::refused(
                format!(
                    "the shard key of {} uses {field}, which a record may lack",
                    collection.collection
                ),
                format!(
                    "cut by {}, or by another field that every record has",
                    collection.collection.id_field()
                ),
            ));
        }
    }
    findings.extend(each_table(layout, |collection, _, table| {
        let optional = collection.collection.optional_fields();
        let lacking = |column: &&KeyColumn| optional.contains(&column.source());
        let in_clustering = table
            .clustering
            .iter()
            .map(|(column, _)| column)
            .find(lacking);
        let column = match table.role {
            Role::Authority => table.partition.iter().find(lacking).or(in_clustering),
            Role::Derived => in_clustering,
        }?;
        Some(Finding::refused(
            format!(
                "{} would have no row for a record without {}",
                table.name,
                column.source()
            ),
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
        for field in collection
            .shard_key
            .iter()
            .filter(|field| may_change(**field))
        {
            findings.push(Finding::refused(
                format!(
                    "the shard key of {} uses {field}, which changes",
                    collection.collection
                ),
                "cut by fields that never change, such as an id",
            ));
        }
    }
    findings.extend(each_table(layout, |_, _, table| {
        let column = columns(table).find(|column| may_change(column.source()))?;
        (table.role == Role::Authority).then(|| {
            Finding::refused(
                format!(
                    "the key of authority {} uses {column}, which changes",
                    table.name
                ),
                "keep it out of the key here; a derived table may have it",
            )
        })
    }));
    findings
}

/// Order and cart ids are computed from what they stand for, so that racing
/// requests meet; they are neither UUIDs nor ObjectIds.
pub(super) fn computed_ids(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for collection in layout.collections.values() {
        for (field, encoding) in collection.encodings.iter() {
            if matches!(field, Field::OrderId | Field::CartId) && encoding != IdEncoding::Text {
                findings.push(Finding::refused(
                    format!(
                        "{} encode {field} as {encoding}, but its values are computed texts",
                        collection.collection
                    ),
                    format!("write {field} = \"text\", or leave it out"),
                ));
            }
        }
    }
    findings
}

pub(super) fn each_table(
    layout: &Layout,
    check: impl Fn(&CollectionLayout, &Store, &Table) -> Option<Finding>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (collection, store) in layout.stores() {
        findings.extend(
            store
                .tables
                .iter()
                .filter_map(|table| check(collection, store, table)),
        );
    }
    findings
}

fn columns(table: &Table) -> impl Iterator<Item = &KeyColumn> {
    table
        .partition
        .iter()
        .chain(table.clustering.iter().map(|(column, _)| column))
}

fn suits(column: &KeyColumn) -> bool {
    let kind = column.source().kind();
    match column {
        KeyColumn::Field(_) => !matches!(
            kind,
            FieldKind::Map | FieldKind::List | FieldKind::Blob | FieldKind::Inet
        ),
        KeyColumn::Month(_) | KeyColumn::Day(_) => kind == FieldKind::Timestamp,
        KeyColumn::Bucket(_) => matches!(kind, FieldKind::Id | FieldKind::Text),
    }
}

/// A category belongs to a product for good (W8): products are found by it.
fn may_change(field: Field) -> bool {
    use Field::*;
    matches!(
        field,
        Status
            | UpdatedAt
            | LastActive
            | ExpiresAt
            | Name
            | Price
            | Image
            | Description
            | Attributes
            | Address
            | PaymentMethod
            | Outcome
            | SessionData
    )
}

#[cfg(test)]
mod tests {
    use super::super::check_rule;

    #[test]
    fn a_key_uses_fields_of_its_own_collection_in_a_way_that_suits_them() {
        let by_user = "clustering = [\"created_at desc\", \"order_id\"]";
        check_rule(
            "known-fields",
            &[(by_user, "clustering = [\"price\", \"order_id\"]")],
            &["orders_by_user of orders uses price", "orders_by_period"],
        );
        check_rule(
            "known-fields",
            &[("\"bucket(order_id)\"", "\"bucket(total)\"")],
            &["cannot use bucket(total)"],
        );
    }

    #[test]
    fn a_key_without_the_id_is_refused() {
        check_rule(
            "unique-rows",
            &[(
                "partition = [\"category\"]\nclustering = [\"price\", \"product_id\"]",
                "partition = [\"category\"]\nclustering = [\"price\"]",
            )],
            &["write clustering = [\"price\", \"product_id\"]"],
        );
    }

    #[test]
    fn keys_that_a_record_may_lack_are_refused_where_it_would_be_lost() {
        check_rule(
            "missing-key-values",
            &[("shard_key = [\"cart_id\"]", "shard_key = [\"user_id\"]")],
            &["the shard key of carts uses user_id"],
        );
        check_rule(
            "missing-key-values",
            &[("partition = [\"cart_id\"]", "partition = [\"session_id\"]")],
            &["carts_by_id would have no row"],
        );
    }

    #[test]
    fn keys_that_change_are_refused_where_rows_must_stay() {
        check_rule(
            "lasting-keys",
            &[("shard_key = [\"product_id\"]", "shard_key = [\"price\"]")],
            &["uses price, which changes"],
        );
        check_rule(
            "lasting-keys",
            &[(
                "partition = [\"cart_id\"]",
                "partition = [\"cart_id\", \"status\"]",
            )],
            &["the key of authority carts_by_id uses status"],
        );
    }

    #[test]
    fn computed_ids_stay_text() {
        let orders = "[collections.orders]\n";
        check_rule(
            "computed-ids",
            &[(
                orders,
                "[collections.orders]\nids = { order_id = \"uuid\", user_id = \"uuid\" }\n",
            )],
            &["orders encode order_id as uuid"],
        );
    }
}
