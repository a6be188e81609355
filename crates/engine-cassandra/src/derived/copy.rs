//! What a whole table holds of a record, beside the key: readable columns.

use engine_api::{PartKey, Record};
use layout::{Field, Fields, PartKind, Table};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlValue;

use crate::cell::to_cell;
use crate::column::{CART_ITEM_FIELDS, Faith, HeaderColumn, item_to_cell, key_columns, key_name};
use crate::config::OpenError;
use crate::connection::{Bound, Cells, Connection, number, text};
use crate::schema::{CopyForm, ITEM_KEY, copy_of, has_items, single_parts};

#[derive(Debug)]
pub(super) struct CopyStatements {
    keyspace: String,
    /// Empty in a table of pointers.
    header: Vec<HeaderColumn>,
    put_header: PreparedStatement,
    singles: Vec<(PartKind, Field, PreparedStatement)>,
    items: Items,
}

#[derive(Debug)]
enum Items {
    None,
    Maps {
        set_line: PreparedStatement,
        set_contribution: PreparedStatement,
    },
    Rows {
        put: PreparedStatement,
        drop: PreparedStatement,
    },
}

impl CopyStatements {
    pub async fn prepare(
        connection: &Connection,
        keyspace: &str,
        table: &Table,
    ) -> Result<CopyStatements, OpenError> {
        let form = copy_of(table);
        let full = format!("{keyspace}.{}", table.name);
        let key: Vec<String> = key_columns(table)
            .iter()
            .map(|(column, _)| key_name(column))
            .collect();
        let equal: Vec<String> = key.iter().map(|name| format!("{name} = ?")).collect();
        let equal = equal.join(" AND ");
        let header = match form {
            CopyForm::Pointer => Vec::new(),
            CopyForm::Inside | CopyForm::Rows => HeaderColumn::of(table, Faith::Readable),
        };
        let mut columns = key.clone();
        let mut header_row = equal.clone();
        let mut fixed = String::new();
        if form == CopyForm::Rows {
            for (name, _) in ITEM_KEY {
                columns.push(name.to_owned());
                fixed += "'', ";
                header_row += &format!(" AND {name} = ''");
            }
        }
        columns.push("revision".to_owned());
        columns.extend(header.iter().map(|column| column.name()));
        let put_header = format!(
            "INSERT INTO {full} ({}) VALUES ({}{fixed}{}) USING TIMESTAMP ? AND TTL ?",
            columns.join(", "),
            "?, ".repeat(key.len()),
            vec!["?"; 1 + header.len()].join(", ")
        );
        let mut singles = Vec::new();
        if form != CopyForm::Pointer {
            for (kind, field) in single_parts(table.collection) {
                let statement = format!(
                    "UPDATE {full} USING TIMESTAMP ? AND TTL ? SET {field} = ? WHERE {header_row}"
                );
                singles.push((
                    kind,
                    field,
                    connection.prepare_repeatable(&statement).await?,
                ));
            }
        }
        Ok(CopyStatements {
            keyspace: keyspace.to_owned(),
            put_header: connection.prepare_repeatable(&put_header).await?,
            items: Items::prepare(connection, &full, table, &key, &equal).await?,
            header,
            singles,
        })
    }

    pub fn put_header(&self, key: Cells, record: &Record, stamp: i64, ttl: i32) -> Bound<'_> {
        let mut cells = key;
        cells.push(number(record.header.revision.to_i64()));
        let live = record.header.content.live();
        let header = self.header.iter();
        cells.extend(header.map(|column| column.cell(live?, &self.keyspace)));
        cells.extend([number(stamp), Some(CqlValue::Int(ttl))]);
        (&self.put_header, cells)
    }

    /// A removed part is deleted here: the servers' own tombstone is a mark that
    /// the timestamps put in order, and the authority keeps the real one.
    pub fn put_part(
        &self,
        key: Cells,
        name: &PartKey,
        live: Option<&Fields>,
        (stamp, ttl): (i64, i32),
    ) -> Option<Bound<'_>> {
        let using = [number(stamp), Some(CqlValue::Int(ttl))];
        if let Some((_, field, statement)) =
            self.singles.iter().find(|(kind, ..)| *kind == name.kind())
        {
            let mut cells = Cells::from(using);
            cells.push(live.and_then(|fields| fields.get(*field)).map(to_cell));
            cells.extend(key);
            return Some((statement, cells));
        }
        match (&self.items, name.kind(), name.path()) {
            (Items::Maps { set_line, .. }, PartKind::Line, [product]) => {
                let item = live.map(|fields| item_to_cell(fields, &self.keyspace));
                let mut cells = Cells::from(using);
                cells.extend([text(product.as_str()), item]);
                cells.extend(key);
                Some((set_line, cells))
            }
            (
                Items::Maps {
                    set_contribution, ..
                },
                PartKind::Contribution,
                [product, cart],
            ) => {
                let item = live.map(|fields| item_to_cell(fields, &self.keyspace));
                let pair = [product, cart].map(|name| text(name.as_str()));
                let mut cells = Cells::from(using);
                cells.extend([Some(CqlValue::Tuple(pair.into())), item]);
                cells.extend(key);
                Some((set_contribution, cells))
            }
            (Items::Rows { put, drop }, PartKind::Line | PartKind::Contribution, path) => {
                let name_at = |index: usize| text(path.get(index).map_or("", String::as_str));
                let mut row = key;
                row.extend([text(name.kind().name()), name_at(0), name_at(1)]);
                let Some(fields) = live else {
                    let mut cells = vec![number(stamp)];
                    cells.extend(row);
                    return Some((drop, cells));
                };
                row.extend(
                    CART_ITEM_FIELDS
                        .iter()
                        .map(|field| fields.get(*field).map(to_cell)),
                );
                row.extend(using);
                Some((put, row))
            }
            _ => None,
        }
    }
}

impl Items {
    async fn prepare(
        connection: &Connection,
        full: &str,
        table: &Table,
        key: &[String],
        equal: &str,
    ) -> Result<Items, OpenError> {
        let repeatable = async |statement: String| connection.prepare_repeatable(&statement).await;
        let set = |map: &str| {
            format!("UPDATE {full} USING TIMESTAMP ? AND TTL ? SET {map}[?] = ? WHERE {equal}")
        };
        match copy_of(table) {
            CopyForm::Inside if has_items(table.collection) => Ok(Items::Maps {
                set_line: repeatable(set("items")).await?,
                set_contribution: repeatable(set("merged_items")).await?,
            }),
            CopyForm::Rows => {
                let fields = CART_ITEM_FIELDS.iter().map(|field| field.name().to_owned());
                let item = ITEM_KEY.iter().map(|(name, _)| (*name).to_owned());
                let columns: Vec<String> = key
                    .iter()
                    .cloned()
                    .chain(item.clone())
                    .chain(fields)
                    .collect();
                let row: String = item.map(|name| format!(" AND {name} = ?")).collect();
                Ok(Items::Rows {
                    put: repeatable(format!(
                        "INSERT INTO {full} ({}) VALUES ({}) USING TIMESTAMP ? AND TTL ?",
                        columns.join(", "),
                        vec!["?"; columns.len()].join(", ")
                    ))
                    .await?,
                    drop: repeatable(format!(
                        "DELETE FROM {full} USING TIMESTAMP ? WHERE {equal}{row}"
                    ))
                    .await?,
                })
            }
            CopyForm::Inside | CopyForm::Pointer => Ok(Items::None),
        }
    }
}
