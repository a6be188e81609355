//! Do keys name real fields, name a record once, and last?

use super::each_table;
use crate::collection::Collection;
use crate::column::clustering_text;
use crate::field::{Field, FieldKind};
use crate::file::{CollectionLayout, Layout};
use crate::findings::Finding;
use crate::id_encoding::IdEncoding;
use crate::key::Direction;
use crate::place::Place;
use crate::table::{KeyColumn, Role, Table};

pub(super) fn known_fields(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for collection in layout.collections.values() {
        let of_shard_key = collection.shard_key.iter().enumerate();
        findings.extend(of_shard_key.filter_map(|(at, field)| {
            let column = KeyColumn::Field(*field);
            let found = unsuited(collection.collection, "the shard key", &column)?;
            Some(found.at("shard_key").at(at).under(&place_of(collection)))
        }));
    }
    for (collection, store) in layout.stores() {
        for table in &store.tables {
            let place = collection.place(store).then("tables").then(&table.name);
            findings.extend(columns(table).filter_map(|(key, at, column)| {
                let found = unsuited(collection.collection, &table.name, column)?;
                Some(found.at(key).at(at).under(&place))
            }));
            let only = table.only.as_ref().and_then(|(field, _)| {
                unsuited(
                    collection.collection,
                    &table.name,
                    &KeyColumn::Field(*field),
                )
            });
            findings.extend(only.map(|found| found.at("only").under(&place)));
        }
    }
    findings
}

fn unsuited(collection: Collection, place: &str, column: &KeyColumn) -> Option<Finding> {
    let field = column.source();
    if !collection.header_fields().contains(&field) {
        let known: Vec<&str> = collection
            .header_fields()
            .iter()
            .map(|field| field.name())
            .collect();
        let message =
            format!("{place} of {collection} uses {field}, which {collection} do not have");
        return Some(Finding::refused(
            message,
            format!("use one of {}", known.join(", ")),
        ));
    }
    (!suits(column)).then(|| Finding::refused(
        format!("{place} of {collection} cannot use {column}"),
        "month and day need a timestamp, bucket an id or a text, a plain column neither map nor list",
    ))
}

pub(super) fn unique_rows(layout: &Layout) -> Vec<Finding> {
    each_table(layout, |collection, _, table| {
        let id = collection.collection.id_field();
        if columns(table).any(|(_, _, column)| *column == KeyColumn::Field(id)) {
            return None;
        }
        let mut clustering = table.clustering.clone();
        clustering.push((KeyColumn::Field(id), Direction::Ascending));
        let finding = Finding::refused(
            format!(
                "rows of {} are not unique: {id} is not in its key",
                table.name
            ),
            format!("write clustering = {}", clustering_text(&clustering)),
        );
        Some(finding.at("clustering"))
    })
}

pub(super) fn nullable_shard_key(layout: &Layout) -> Vec<Finding> {
    each_shard_key(layout, |collection, field| {
        collection.may_lack(field).then(|| {
            Finding::refused(
                format!("the shard key of {collection} uses {field}, which a record may lack"),
                format!(
                    "cut by {}, or by another field that every record has",
                    collection.id_field()
                ),
            )
        })
    })
}

/// In a derived table keyed by its partition, having no row is the point
/// (guests are not listed by user); elsewhere the record is lost.
pub(super) fn missing_key_values(layout: &Layout) -> Vec<Finding> {
    each_table(layout, |collection, _, table| {
        let optional = collection.collection.optional_fields();
        let (key, at, column) = columns(table).find(|(key, _, column)| {
            optional.contains(&column.source())
                && (table.role == Role::Authority || *key == "clustering")
        })?;
        let finding = Finding::refused(
            format!(
                "{} would have no row for a record without {}",
                table.name,
                column.source()
            ),
            "use a field that every record has, or move it into the partition of a derived table",
        );
        Some(finding.at(key).at(at))
    })
}

/// A derived row is deleted and written anew in one batch when its key changes.
pub(super) fn lasting_keys(layout: &Layout) -> Vec<Finding> {
    let mut findings = each_shard_key(layout, |collection, field| {
        may_change(field).then(|| {
            Finding::refused(
                format!("the shard key of {collection} uses {field}, which changes"),
                "cut by fields that never change, such as an id",
            )
        })
    });
    findings.extend(each_table(layout, |_, _, table| {
        let (key, at, column) = columns(table).find(|(_, _, column)| may_change(column.source()))?;
        (table.role == Role::Authority).then(|| {
            let finding = Finding::refused(
                format!(
                    "the key of authority {} uses {column}, which changes",
                    table.name
                ),
                "keep it out of the key here; a derived table may have it, its row is deleted and inserted in one logged batch",
            );
            finding.at(key).at(at)
        })
    }));
    findings
}

/// Also in derived tables: there each change would leave a deletion behind.
pub(super) fn row_per_change(layout: &Layout) -> Vec<Finding> {
    each_table(layout, |_, _, table| {
        let touched =
            |column: &KeyColumn| matches!(column.source(), Field::UpdatedAt | Field::LastActive);
        let (key, at, column) = columns(table).find(|(_, _, column)| touched(column))?;
        let finding = Finding::refused(
            format!(
                "{} has {column} in its key: every change is a new row",
                table.name
            ),
            "keep the time as a plain column, and lines apart with parts = \"rows\": product in the key",
        );
        Some(finding.at(key).at(at))
    })
}

pub(super) fn computed_ids(layout: &Layout) -> Vec<Finding> {
    let mut findings = Vec::new();
    for collection in layout.collections.values() {
        for (field, encoding) in collection.encodings.iter() {
            if matches!(field, Field::OrderId | Field::CartId) && encoding != IdEncoding::Text {
                findings.push(
                    Finding::refused(
                        format!(
                            "{} encode {field} as {encoding}, but its values are computed texts",
                            collection.collection
                        ),
                        format!("write {field} = \"text\", or leave it out"),
                    )
                    .at("ids")
                    .at(field)
                    .under(&place_of(collection)),
                );
            }
        }
    }
    findings
}

fn each_shard_key(
    layout: &Layout,
    check: impl Fn(Collection, Field) -> Option<Finding>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for collection in layout.collections.values() {
        let fields = collection.shard_key.iter().enumerate();
        findings.extend(fields.filter_map(|(at, field)| {
            let found = check(collection.collection, *field)?;
            Some(found.at("shard_key").at(at).under(&place_of(collection)))
        }));
    }
    findings
}

fn place_of(collection: &CollectionLayout) -> Place {
    collection.place(&collection.live)
}

/// Key columns, each with the name of its list and its number there.
fn columns(table: &Table) -> impl Iterator<Item = (&'static str, usize, &KeyColumn)> {
    let partition = table.partition.iter().enumerate();
    let clustering = table.clustering.iter().enumerate();
    partition
        .map(|(at, column)| ("partition", at, column))
        .chain(clustering.map(|(at, (column, _))| ("clustering", at, column)))
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
            "nullable-shard-key",
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
    fn a_time_of_change_is_in_no_key_derived_or_not() {
        check_rule(
            "row-per-change",
            &[(
                "partition = [\"session_id\"]\nclustering = [\"cart_id\"]",
                "partition = [\"session_id\"]\nclustering = [\"updated_at desc\", \"cart_id\"]",
            )],
            &["active_carts_by_session has updated_at in its key"],
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
