//! Derived tables: rows that point to records, checked by whoever reads them (W9).
//!
//! A row is written at the revision of the header it was made from, and
//! deleted one below the revision that outgrew it, so that the order in which
//! the two arrive does not matter (W6). Images are written at the clock when it
//! is ahead of their revision: the row may have been collected here before, and
//! what was deleted then must not hide it now.

use engine_api::{EngineError, Header, Query, Record, Revision, Timestamp};
use layout::{
    AccessPath, BucketCounts, Direction, Field, FieldKind, Fields, KeyColumn, Table, Value,
};
use scylla::response::PagingState;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlValue, Row};

use crate::authority::numbered;
use crate::cell::{from_cell, to_cell};
use crate::config::OpenError;
use crate::connection::{Cells, Columns, Connection, number, text};
use crate::failure::damaged;
use crate::schema::column_name;

/// How many rows one page of a listing asks the servers for.
const LISTING_PAGE_ROWS: i32 = 64;

#[derive(Debug)]
pub(crate) struct DerivedTable {
    table: Table,
    buckets: BucketCounts,
    insert: PreparedStatement,
    delete: PreparedStatement,
    stamp: PreparedStatement,
    page: PreparedStatement,
}

/// A row as a listing meets it.
#[derive(Debug)]
pub(crate) struct DerivedRow {
    pub id: String,
    pub sort: Option<Value>,
    /// The timestamp it was written at.
    pub stamp: i64,
}

impl DerivedTable {
    pub async fn prepare(
        connection: &Connection,
        keyspace: &str,
        table: Table,
    ) -> Result<DerivedTable, OpenError> {
        let full = format!("{keyspace}.{}", table.name);
        let clustering = table.clustering.iter().map(|(column, _)| column);
        let names: Vec<String> = table
            .partition
            .iter()
            .chain(clustering)
            .map(column_name)
            .collect();
        let marks: String = names.iter().map(|_| "?, ").collect();
        let key: String = names
            .iter()
            .map(|name| format!("{name} = ? AND "))
            .collect();
        let partition: Vec<String> = table
            .partition
            .iter()
            .map(|column| format!("{} = ?", column_name(column)))
            .collect();
        let (sort, bounds) = match table.clustering.first() {
            Some((column, _)) => {
                let name = column_name(column);
                (format!("{name}, "), format!("{name} >= ? AND {name} <= ?"))
            }
            None => (String::new(), "id > ?".to_owned()),
        };
        let page = format!(
            "SELECT {sort}id, writetime(revision) FROM {full} WHERE {} AND {bounds}",
            partition.join(" AND ")
        );
        let stamp = format!("SELECT writetime(revision) FROM {full} WHERE {key}id = ?");
        let mut page = connection
            .prepare_read(&page, Consistency::LocalQuorum)
            .await?;
        page.set_page_size(LISTING_PAGE_ROWS);
        let columns = names.join(", ");
        let insert = format!(
            "INSERT INTO {full} ({columns}, id, revision) VALUES ({marks}?, ?) USING TIMESTAMP ?"
        );
        let delete = format!("DELETE FROM {full} USING TIMESTAMP ? WHERE {key}id = ?");
        Ok(DerivedTable {
            insert: connection.prepare(&insert).await?,
            delete: connection.prepare(&delete).await?,
            stamp: connection
                .prepare_read(&stamp, Consistency::LocalQuorum)
                .await?,
            page,
            table,
            buckets: BucketCounts::default(),
        })
    }

    /// Whether a page of this table is a page of the path, in its order.
    pub fn answers(&self, path: AccessPath) -> bool {
        let shape = path.shape();
        let id_field = shape.collection.id_field();
        let given = |column: &KeyColumn| match column {
            KeyColumn::Field(field) | KeyColumn::Bucket(field) => shape.equals.contains(field),
            KeyColumn::Month(_) | KeyColumn::Day(_) => false,
        };
        let covers = match (&self.table.only, shape.only) {
            (None, _) => true,
            (Some((field, text)), Some((asked, wanted))) => *field == asked && text == wanted,
            (Some(_), None) => false,
        };
        let ordered = match (shape.sort, self.table.clustering.as_slice()) {
            (None, []) => true,
            (Some(sort), [first, rest @ ..]) => {
                sorts_by(first, sort)
                    && rest
                        .iter()
                        .all(|column| *column == (KeyColumn::Field(id_field), Direction::Ascending))
            }
            _ => false,
        };
        self.table.collection == shape.collection
            && self.table.partition.iter().all(given)
            && covers
            && ordered
    }

    /// The record's row key here, if it has one.
    pub fn row(&self, header: &Header) -> Option<Vec<Value>> {
        let header = header.content.live()?;
        let wanted = |(field, text): &(Field, String)| header.text(*field) == Some(text.as_str());
        if !self.table.only.as_ref().is_none_or(wanted) {
            return None;
        }
        let clustering = self.table.clustering.iter().map(|(column, _)| column);
        let count = self.buckets.of(&self.table.name);
        self.table
            .partition
            .iter()
            .chain(clustering)
            .map(|column| column.value(header, count))
            .collect()
    }

    /// Whether `row` is the row of this very header, of all that its record ever had.
    pub fn is_own(&self, header: &Header, row: &DerivedRow) -> bool {
        self.row(header).is_some_and(|values| {
            let sort = self
                .table
                .clustering
                .first()
                .map(|_| &values[self.table.partition.len()]);
            sort == row.sort.as_ref()
        })
    }

    pub async fn insert(
        &self,
        connection: &Connection,
        record: &Record,
        row: &[Value],
        stamp: i64,
    ) -> Result<(), EngineError> {
        let mut cells = key_cells(record.key.id.as_str(), row);
        cells.extend([number(record.header.revision.to_i64()), number(stamp)]);
        connection.write(&self.insert, cells).await
    }

    pub async fn delete(
        &self,
        connection: &Connection,
        id: &str,
        row: &[Value],
        stamp: i64,
    ) -> Result<(), EngineError> {
        let mut cells = vec![number(stamp)];
        cells.extend(key_cells(id, row));
        connection.write(&self.delete, cells).await
    }

    /// Deletes the row as it stands, leaving room for one written later.
    pub async fn forget(
        &self,
        connection: &Connection,
        id: &str,
        row: &[Value],
    ) -> Result<(), EngineError> {
        let found = connection.read(&self.stamp, key_cells(id, row)).await?;
        match found
            .into_iter()
            .next()
            .map(|row| Columns::of(row).number())
            .transpose()?
            .flatten()
        {
            Some(stamp) => self.delete(connection, id, row, stamp).await,
            None => Ok(()),
        }
    }

    /// Deletes a row that a listing met and that its record has outgrown.
    pub async fn mend(
        &self,
        connection: &Connection,
        query: &Query,
        row: &DerivedRow,
        outgrown_by: Revision,
    ) -> Result<(), EngineError> {
        // A row above the header may belong to a decision still under way.
        if row.stamp > outgrown_by.to_i64() {
            return Ok(());
        }
        let mut values = self.partition(query)?;
        values.extend(row.sort.clone());
        if self.table.clustering.len() > 1 {
            values.push(Value::text(row.id.as_str()));
        }
        self.delete(connection, &row.id, &values, row.stamp).await
    }

    pub async fn page(
        &self,
        connection: &Connection,
        query: &Query,
        from: PagingState,
    ) -> Result<(Vec<DerivedRow>, Option<PagingState>), EngineError> {
        let mut cells: Cells = self
            .partition(query)?
            .iter()
            .map(|value| Some(to_cell(value)))
            .collect();
        match query.path.shape().sort {
            Some((_, direction)) => cells.extend(bounds(query, direction)),
            None => cells.push(text(
                query.after.as_ref().map_or("", |after| after.id.as_str()),
            )),
        }
        let sort = query.path.shape().sort.map(|(field, _)| field);
        let (rows, next) = connection.read_page(&self.page, cells, from).await?;
        Ok((
            rows.into_iter()
                .map(|row| read_row(row, sort))
                .collect::<Result<_, _>>()?,
            next,
        ))
    }

    fn partition(&self, query: &Query) -> Result<Vec<Value>, EngineError> {
        let wrong = |reason: String| EngineError::Invalid { reason };
        let mut given = Fields::new();
        for (field, value) in query.path.shape().equals.iter().zip(&query.equals) {
            given
                .insert(*field, value.clone())
                .map_err(|error| wrong(error.to_string()))?;
        }
        let count = self.buckets.of(&self.table.name);
        let value = |column: &KeyColumn| {
            column
                .value(&given, count)
                .ok_or_else(|| wrong(format!("{} is not given", column.source())))
        };
        self.table.partition.iter().map(value).collect()
    }
}

/// The timestamp at which the rows of a record are written.
pub(crate) fn stamp_of_image(record: &Record, now: Timestamp) -> i64 {
    record.header.revision.to_i64().max(now.unix_micros())
}

fn sorts_by((column, direction): &(KeyColumn, Direction), sort: (Field, Direction)) -> bool {
    *column == KeyColumn::Field(sort.0)
        && *direction == sort.1
        && matches!(sort.0.kind(), FieldKind::Timestamp | FieldKind::Int)
}

/// The bounds of the sort column, cut to where the page starts.
fn bounds(query: &Query, direction: Direction) -> [Option<CqlValue>; 2] {
    let whole = |value: Option<&Value>| match value {
        Some(Value::Timestamp(at)) => Some(at.unix_micros()),
        Some(Value::Int(int)) => Some(*int),
        _ => None,
    };
    let mut least = whole(query.range.least.as_ref()).unwrap_or(i64::MIN);
    let mut most = whole(query.range.most.as_ref()).unwrap_or(i64::MAX);
    if let Some(after) = query
        .after
        .as_ref()
        .and_then(|after| whole(after.sort.as_ref()))
    {
        match direction {
            Direction::Ascending => least = least.max(after),
            Direction::Descending => most = most.min(after),
        }
    }
    [number(least), number(most)]
}

fn read_row(row: Row, sort: Option<Field>) -> Result<DerivedRow, EngineError> {
    let missing = || damaged("a derived row is cut short");
    let mut columns = Columns::of(row);
    let sort = match sort {
        Some(field) => Some(from_cell(field, &columns.cell().ok_or_else(missing)?)?),
        None => None,
    };
    let id = columns.text()?.ok_or_else(missing)?;
    let stamp = columns.number()?.ok_or_else(missing)?;
    numbered(stamp)?;
    Ok(DerivedRow { id, sort, stamp })
}

fn key_cells(id: &str, row: &[Value]) -> Cells {
    row.iter()
        .map(|value| Some(to_cell(value)))
        .chain([text(id)])
        .collect()
}
