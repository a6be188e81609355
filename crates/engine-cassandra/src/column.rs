//! Columns of the tables: key columns, and header fields as cells.
//!
//! The lines of an order stand in a list of `order_line`, so that other readers
//! of the table find columns and not our JSON. A list that such lines cannot
//! hold without loss stands as JSON in a column beside it.

use std::collections::BTreeMap;

use engine_api::EngineError;
use layout::{Collection, Direction, Field, Fields, KeyColumn, Table, Value};
use scylla::value::CqlValue;

use crate::cell::{column_type, from_cell, to_cell};
use crate::failure::damaged;

/// The type of an order's line, and its fields.
pub(crate) const ORDER_LINE: &str = "order_line";
pub(crate) const ORDER_LINE_FIELDS: &[Field] = &[
    Field::ProductId,
    Field::Category,
    Field::Name,
    Field::Quantity,
    Field::Price,
];

/// The type of a cart's item, and its fields.
pub(crate) const CART_ITEM: &str = "cart_item";
pub(crate) const CART_ITEM_FIELDS: &[Field] = &[
    Field::Category,
    Field::Name,
    Field::Quantity,
    Field::Price,
    Field::Image,
    Field::UpdatedAt,
];

/// A header field, or half of one, as a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeaderColumn {
    pub field: Field,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Plain,
    Lines,
    /// Lines that the type does not hold.
    OtherLines,
}

/// Whether all of a header must come back from the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Faith {
    /// The authority: what was written comes back.
    Lossless,
    /// A copy for other readers: what has no column of its own is left out.
    Readable,
}

impl HeaderColumn {
    /// The columns of a table for header fields that its key does not hold.
    pub fn of(table: &Table, faith: Faith) -> Vec<HeaderColumn> {
        let key = key_columns(table);
        let mut columns = Vec::new();
        for field in table.collection.header_fields() {
            if key
                .iter()
                .any(|(column, _)| *column == KeyColumn::Field(*field))
            {
                continue;
            }
            let mut push = |form| {
                columns.push(HeaderColumn {
                    field: *field,
                    form,
                })
            };
            match (field, faith) {
                (Field::Lines, Faith::Lossless) => {
                    push(Form::Lines);
                    push(Form::OtherLines);
                }
                (Field::Lines, Faith::Readable) => push(Form::Lines),
                _ => push(Form::Plain),
            }
        }
        columns
    }

    pub fn name(self) -> String {
        match self.form {
            Form::Plain | Form::Lines => self.field.name().to_owned(),
            Form::OtherLines => format!("other_{}", self.field),
        }
    }

    pub fn cql_type(self) -> String {
        match self.form {
            Form::Plain | Form::OtherLines => column_type(self.field.kind()).to_owned(),
            Form::Lines => format!("frozen<list<frozen<{ORDER_LINE}>>>"),
        }
    }

    pub fn cell(self, header: &Fields, keyspace: &str) -> Option<CqlValue> {
        let value = header.get(self.field)?;
        match self.form {
            Form::Plain => Some(to_cell(value)),
            Form::Lines => lines_to_cell(value, keyspace),
            Form::OtherLines => match lines_to_cell(value, keyspace) {
                Some(_) => None,
                None => Some(to_cell(value)),
            },
        }
    }

    pub fn value(self, cell: &CqlValue) -> Result<Value, EngineError> {
        match self.form {
            Form::Plain | Form::OtherLines => from_cell(self.field, cell),
            Form::Lines => lines_from_cell(cell),
        }
    }
}

/// A table's key: partition, clustering, and the id where it is missing, so
/// that no two records share a row.
pub(crate) fn key_columns(table: &Table) -> Vec<(KeyColumn, Direction)> {
    let partition = table
        .partition
        .iter()
        .map(|column| (column.clone(), Direction::Ascending));
    let mut columns: Vec<_> = partition.chain(table.clustering.iter().cloned()).collect();
    let id = KeyColumn::Field(table.collection.id_field());
    if !columns.iter().any(|(column, _)| *column == id) {
        columns.push((id, Direction::Ascending));
    }
    columns
}

pub(crate) fn key_name(column: &KeyColumn) -> String {
    match column {
        KeyColumn::Field(field) => field.name().to_owned(),
        KeyColumn::Month(field) => format!("{field}_month"),
        KeyColumn::Day(field) => format!("{field}_day"),
        KeyColumn::Bucket(field) => format!("{field}_bucket"),
    }
}

pub(crate) fn key_type(column: &KeyColumn) -> &'static str {
    match column {
        KeyColumn::Field(field) => column_type(field.kind()),
        KeyColumn::Month(_) | KeyColumn::Day(_) => "text",
        KeyColumn::Bucket(_) => "bigint",
    }
}

/// The value that a key column was written from.
pub(crate) fn key_value(column: &KeyColumn, cell: &CqlValue) -> Result<Value, EngineError> {
    match (column, cell) {
        (KeyColumn::Field(field), cell) => from_cell(*field, cell),
        (KeyColumn::Month(_) | KeyColumn::Day(_), CqlValue::Text(text)) => {
            Ok(Value::Text(text.clone()))
        }
        (KeyColumn::Bucket(_), CqlValue::BigInt(bucket)) => Ok(Value::Int(*bucket)),
        _ => Err(damaged(format!("key column {column} holds {cell:?}"))),
    }
}

/// A part of a cart as a `cart_item`.
pub(crate) fn item_to_cell(fields: &Fields, keyspace: &str) -> CqlValue {
    let cell = |field: &Field| (field.name().to_owned(), fields.get(*field).map(to_cell));
    CqlValue::UserDefinedType {
        keyspace: keyspace.to_owned(),
        name: CART_ITEM.to_owned(),
        fields: CART_ITEM_FIELDS.iter().map(cell).collect(),
    }
}

/// `None` when a line has what the type does not.
fn lines_to_cell(value: &Value, keyspace: &str) -> Option<CqlValue> {
    let Value::List(lines) = value else {
        return None;
    };
    let line = |line: &Value| {
        let Value::Map(line) = line else { return None };
        let fits = |(name, value): (&String, &Value)| {
            Field::named(name).is_some_and(|field| {
                ORDER_LINE_FIELDS.contains(&field) && value.is_of(field.kind())
            })
        };
        line.iter().all(fits).then(|| CqlValue::UserDefinedType {
            keyspace: keyspace.to_owned(),
            name: ORDER_LINE.to_owned(),
            fields: ORDER_LINE_FIELDS
                .iter()
                .map(|field| (field.name().to_owned(), line.get(field.name()).map(to_cell)))
                .collect(),
        })
    };
    lines
        .iter()
        .map(line)
        .collect::<Option<_>>()
        .map(CqlValue::List)
}

fn lines_from_cell(cell: &CqlValue) -> Result<Value, EngineError> {
    let unreadable = || damaged(format!("lines hold {cell:?}"));
    let CqlValue::List(lines) = cell else {
        return Err(unreadable());
    };
    let line = |line: &CqlValue| {
        let mut values = BTreeMap::new();
        for (name, cell) in line.as_udt().ok_or_else(unreadable)? {
            if let Some(cell) = cell {
                let field = Field::named(name).ok_or_else(unreadable)?;
                values.insert(name.clone(), from_cell(field, cell)?);
            }
        }
        Ok(Value::Map(values))
    };
    lines
        .iter()
        .map(line)
        .collect::<Result<_, EngineError>>()
        .map(Value::List)
}

/// The value of a key column for a record of this id; only the id is known.
pub(crate) fn id_value(
    collection: Collection,
    column: &KeyColumn,
    id: &str,
    buckets: u32,
) -> Value {
    let known = Fields::new().with(collection.id_field(), Value::text(id));
    column
        .value(&known, buckets)
        .expect("the key of an authority is made of the id alone")
}

#[cfg(test)]
mod tests {
    use layout::{Role, TableOptions};
    use rust_decimal::Decimal;

    use super::*;

    fn orders() -> Table {
        Table {
            name: "orders_by_id".to_owned(),
            collection: Collection::Orders,
            role: Role::Authority,
            partition: vec![KeyColumn::Field(Field::OrderId)],
            clustering: Vec::new(),
            only: None,
            options: TableOptions::default(),
        }
    }

    fn line(entries: &[(&str, Value)]) -> Value {
        let entries = entries
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()));
        Value::Map(entries.collect())
    }

    #[test]
    fn lines_come_back_whether_the_type_holds_them_or_not() {
        let price = Value::Decimal(Decimal::new(1990, 2));
        let known = line(&[
            ("product_id", Value::text("lamp")),
            ("price", price.clone()),
        ]);
        let unknown = line(&[("product_id", Value::text("lamp")), ("gift", price)]);
        let misused = line(&[("quantity", Value::text("two"))]);
        let cases = [
            (vec![], true),
            (vec![known.clone(), line(&[])], true),
            (vec![known.clone(), unknown], false),
            (vec![misused], false),
            (vec![Value::Int(1)], false),
        ];
        let columns: Vec<HeaderColumn> = HeaderColumn::of(&orders(), Faith::Lossless)
            .into_iter()
            .filter(|column| column.field == Field::Lines)
            .collect();
        let [typed, other] = columns[..] else {
            panic!("lines have two columns")
        };
        for (lines, is_typed) in cases {
            let lines = Value::List(lines);
            let header = Fields::new().with(Field::Lines, lines.clone());
            let cells = [typed, other].map(|column| Some((column, column.cell(&header, "shop")?)));
            assert_eq!(cells.each_ref().map(Option::is_some), [is_typed, !is_typed]);
            let (column, cell) = cells.into_iter().flatten().next().unwrap();
            assert_eq!(column.value(&cell).unwrap(), lines);
        }
    }

    #[test]
    fn a_key_ends_with_the_id_once() {
        let mut table = orders();
        assert_eq!(key_columns(&table).len(), 1);
        table.partition = vec![KeyColumn::Field(Field::UserId)];
        assert_eq!(
            key_columns(&table)[1],
            (KeyColumn::Field(Field::OrderId), Direction::Ascending)
        );
    }
}
