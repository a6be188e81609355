//! Derived tables: rows that lead to records, checked by whoever reads them (W9).
//!
//! A row is written at the revision of the header it was made from, and
//! deleted one below the revision that outgrew it, so that the order in which
//! the two arrive does not matter (W6). Images are written at the clock when it
//! is ahead of their revisions: the row may have been collected here before, and
//! what was deleted then must hide nothing of it now.
//!
//! A table that the layout calls whole also holds a copy of header and items,
//! for those who read it without us. Our own answers come from the authority.

mod content;
mod copy;
mod path;
mod walk;

use engine_api::{
    Cursor, EngineError, Header, Part, PartKey, Record, RecordId, Revision, Timestamp,
};
use layout::{Field, KeyColumn, Table, Value};
use scylla::response::PagingState;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::Row;

use crate::authority::numbered;
use crate::cell::to_cell;
use crate::column::{key_columns, key_name, key_value};
use crate::config::OpenError;
use crate::connection::{Bound, Cells, Columns, Connection, PageStart, number};
use crate::failure::damaged;
use crate::schema::{CopyForm, ITEM_KEY, copy_of};
use content::ContentRead;
pub(crate) use content::RowState;
use copy::CopyStatements;
pub(crate) use path::PathRead;
pub(crate) use walk::{DerivedRow, Walk};

/// The servers take no longer TTL than this: 20 years.
const TTL_SECONDS_MAX: i64 = 20 * 365 * 24 * 3600;

#[derive(Debug)]
pub(crate) struct DerivedTable {
    pub table: Table,
    pub buckets: u32,
    key: Vec<KeyColumn>,
    copy: CopyStatements,
    content: ContentRead,
    delete: PreparedStatement,
    stamp: PreparedStatement,
    all: PreparedStatement,
}

/// When rows are written, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    now: Timestamp,
    /// The timestamp of the header's row.
    pub stamp: i64,
    /// Copies of parts are written at their revisions, and none below this.
    parts_least: i64,
}

impl Moment {
    /// As the record says.
    pub fn of_record(record: &Record, now: Timestamp) -> Moment {
        Moment {
            now,
            stamp: record.header.revision.to_i64(),
            parts_least: i64::MIN,
        }
    }

    /// By the clock when it is ahead of the record.
    pub fn of_image(record: &Record, now: Timestamp) -> Moment {
        Moment::over(record, now.unix_micros(), now)
    }

    /// Not below what was written or deleted in the row before.
    fn over(record: &Record, earlier: i64, now: Timestamp) -> Moment {
        let stamp = record.header.revision.to_i64().max(earlier);
        Moment {
            now,
            stamp,
            parts_least: stamp,
        }
    }
}

impl DerivedTable {
    pub async fn prepare(
        connection: &Connection,
        keyspace: &str,
        table: Table,
        buckets: u32,
    ) -> Result<DerivedTable, OpenError> {
        let full = format!("{keyspace}.{}", table.name);
        let key: Vec<KeyColumn> = key_columns(&table)
            .into_iter()
            .map(|(column, _)| column)
            .collect();
        let equal: Vec<String> = key
            .iter()
            .map(|column| format!("{} = ?", key_name(column)))
            .collect();
        let equal = equal.join(" AND ");
        let header_row = match copy_of(&table) {
            CopyForm::Rows => ITEM_KEY
                .iter()
                .map(|(name, _)| format!(" AND {name} = ''"))
                .collect(),
            CopyForm::Pointer | CopyForm::Inside => String::new(),
        };
        let columns: Vec<String> = key.iter().map(key_name).collect();
        let columns = columns.join(", ");
        let repeatable = async |statement: String| connection.prepare_repeatable(&statement).await;
        Ok(DerivedTable {
            copy: CopyStatements::prepare(connection, keyspace, &table).await?,
            content: ContentRead::prepare(connection, keyspace, &table, &equal).await?,
            delete: repeatable(format!(
                "DELETE FROM {full} USING TIMESTAMP ? WHERE {equal}"
            ))
            .await?,
            stamp: repeatable(format!(
                "SELECT writetime(revision) FROM {full} WHERE {equal}{header_row}"
            ))
            .await?,
            all: repeatable(format!("SELECT {columns}, writetime(revision) FROM {full}")).await?,
            key,
            table,
            buckets,
        })
    }

    /// The record's row key here, if it has one.
    pub fn row(&self, header: &Header) -> Option<Vec<Value>> {
        let header = header.content.live()?;
        let wanted = |(field, text): &(Field, String)| header.text(*field) == Some(text.as_str());
        if !self.table.only.as_ref().is_none_or(wanted) {
            return None;
        }
        let value = |column: &KeyColumn| column.value(header, self.buckets);
        self.key.iter().map(value).collect()
    }

    /// Writes the record's row and, in a whole table, what its parts look like
    /// now, given how they were before.
    pub fn put<'a>(
        &'a self,
        before: Option<&Record>,
        record: &Record,
        moment: Moment,
    ) -> Vec<Bound<'a>> {
        let Some(row) = self.row(&record.header) else {
            return Vec::new();
        };
        let ttl = self.ttl(record, moment.now);
        let before = before.filter(|before| self.row(&before.header).as_ref() == Some(&row));
        let is_new = |(key, part): &(&PartKey, &Part)| {
            before
                .and_then(|before| before.parts.get(*key))
                .map(|part| part.revision)
                != Some(part.revision)
        };
        let mut bound = vec![
            self.copy
                .put_header(key_cells(&row), record, moment.stamp, ttl),
        ];
        for (key, part) in record.parts.iter().filter(is_new) {
            let stamp = part.revision.to_i64().max(moment.parts_least);
            let live = part.content.live();
            let copied = self.copy.put_part(key_cells(&row), key, live, (stamp, ttl));
            bound.extend(copied);
        }
        bound
    }

    /// Brings the copy in line with a patch. A row that would end before the
    /// record does is written anew, as late as it stands there.
    pub async fn patch<'a>(
        &'a self,
        connection: &Connection,
        before: Option<&Record>,
        record: &Record,
        (now, level): (Timestamp, Consistency),
    ) -> Result<Vec<Bound<'a>>, EngineError> {
        let (Some(row), Some(before)) = (self.row(&record.header), before) else {
            return Ok(Vec::new());
        };
        if self.outlives(before) != self.outlives(record) {
            let moment = match self.stamp_of(connection, &row, level).await? {
                Some(stamp) => Moment::over(record, stamp, now),
                None => Moment::of_record(record, now),
            };
            return Ok(self.put(None, record, moment));
        }
        let ttl = self.ttl(record, now);
        let changed = |(key, part): &(&PartKey, &Part)| {
            before.parts.get(*key).map(|part| part.revision) != Some(part.revision)
        };
        let copied = |(key, part): (&PartKey, &Part)| {
            let (live, stamp) = (part.content.live(), part.revision.to_i64());
            self.copy.put_part(key_cells(&row), key, live, (stamp, ttl))
        };
        let parts = record.parts.iter().filter(changed);
        Ok(parts.filter_map(copied).collect())
    }

    /// Deletes a row that the record has outgrown, with what is copied in it.
    pub fn drop_row<'a>(&'a self, record: &Record, row: &[Value], stamp: i64) -> Vec<Bound<'a>> {
        let mut cells = vec![number(stamp)];
        cells.extend(key_cells(row));
        let mut bound = vec![(&self.delete, cells)];
        bound.extend(self.drop_parts(record, row, |part| part.revision.to_i64() > stamp));
        bound
    }

    /// Deletes the copies of some parts, as they stand.
    pub fn drop_parts<'a>(
        &'a self,
        record: &Record,
        row: &[Value],
        wanted: impl Fn(&Part) -> bool,
    ) -> Vec<Bound<'a>> {
        let gone = |(key, part): (&PartKey, &Part)| {
            let stamp = part.revision.to_i64();
            self.copy.put_part(key_cells(row), key, None, (stamp, 0))
        };
        record
            .parts
            .iter()
            .filter(|(_, part)| wanted(part))
            .filter_map(gone)
            .collect()
    }

    /// Deletes the row as it stands, leaving room for one written later.
    pub async fn forget(
        &self,
        connection: &Connection,
        record: &Record,
        row: &[Value],
        level: Consistency,
    ) -> Result<(), EngineError> {
        match self.stamp_of(connection, row, level).await? {
            Some(stamp) => {
                let bound = self.drop_row(record, row, stamp);
                connection.write_together(bound, level).await
            }
            None => Ok(()),
        }
    }

    /// What the row of a live record is, compared with the record.
    pub async fn state_of(
        &self,
        connection: &Connection,
        record: &Record,
        row: &[Value],
        now: Timestamp,
        level: Consistency,
    ) -> Result<RowState, EngineError> {
        let expires_s = record.expires_at().map(|at| at.unix_micros() / 1_000_000);
        let ends_s = expires_s.filter(|_| self.table.options.ttl_seconds.is_some());
        let left_s = ends_s.map(|at| at - now.unix_micros() / 1_000_000);
        let found = self.content.read(connection, key_cells(row), level).await?;
        Ok(self.content.judge(&found, record, left_s))
    }

    /// Writes the row anew over whatever stands there, at one moment: what came before it goes.
    pub fn rewrite<'a>(&'a self, record: &Record, moment: Moment) -> Vec<Bound<'a>> {
        let Some(row) = self.row(&record.header) else {
            return Vec::new();
        };
        let mut cells = vec![number(moment.stamp - 1)];
        cells.extend(key_cells(&row));
        let mut bound = vec![(&self.delete, cells)];
        bound.extend(self.put(None, record, moment));
        bound
    }

    /// The timestamp of the row, if it is there.
    pub async fn stamp_of(
        &self,
        connection: &Connection,
        row: &[Value],
        level: Consistency,
    ) -> Result<Option<i64>, EngineError> {
        let found = connection.read(&self.stamp, key_cells(row), level).await?;
        match found.into_iter().next() {
            Some(row) => Columns::of(row).number(),
            None => Ok(None),
        }
    }

    /// A page of all rows, in the servers' order.
    pub async fn all_rows(
        &self,
        connection: &Connection,
        page: PageStart,
        id_field: Field,
        level: Consistency,
    ) -> Result<(Vec<DerivedRow>, Option<PagingState>), EngineError> {
        let read = connection.read_page(&self.all, Vec::new(), level, page);
        let (rows, next) = read.await?;
        let mut found = Vec::with_capacity(rows.len());
        for row in rows {
            found.extend(self.read_row(row, id_field, None)?);
        }
        Ok((found, next))
    }

    /// `None` for a row that holds an item and not a header.
    fn read_row(
        &self,
        row: Row,
        id_field: Field,
        sort: Option<Field>,
    ) -> Result<Option<DerivedRow>, EngineError> {
        let missing = || damaged(format!("a row of {} is cut short", self.table.name));
        let mut columns = Columns::of(row);
        let mut key = Vec::with_capacity(self.key.len());
        for column in &self.key {
            key.push(key_value(column, &columns.cell().ok_or_else(missing)?)?);
        }
        let Some(stamp) = columns.number()? else {
            return Ok(None);
        };
        numbered(stamp)?;
        let at = |field: Field| {
            let column = KeyColumn::Field(field);
            let at = self.key.iter().position(|other| *other == column)?;
            Some(key[at].clone())
        };
        let id = at(id_field).ok_or_else(missing)?;
        let place = Cursor {
            sort: sort.and_then(at),
            id: RecordId::new(id.as_text().ok_or_else(missing)?).map_err(damaged)?,
        };
        Ok(Some(DerivedRow { key, place, stamp }))
    }

    /// Deletes a row as it was written, and nothing that is written later.
    pub async fn delete(
        &self,
        connection: &Connection,
        row: &[Value],
        stamp: i64,
        level: Consistency,
    ) -> Result<(), EngineError> {
        let mut cells = vec![number(stamp)];
        cells.extend(key_cells(row));
        connection.write(&self.delete, cells, level).await
    }

    /// Deletes a row that a listing met and that its record has outgrown.
    pub async fn mend(
        &self,
        connection: &Connection,
        row: &DerivedRow,
        outgrown_by: Revision,
        level: Consistency,
    ) -> Result<(), EngineError> {
        // A row above the header may belong to a decision still under way.
        if row.stamp > outgrown_by.to_i64() {
            return Ok(());
        }
        self.delete(connection, &row.key, row.stamp, level).await
    }

    /// Rows of a table with a TTL live until the window after the one in which
    /// their record expires. Putting the expiry off by less than a window then
    /// needs no write here: the row outlives it (W7).
    fn ttl(&self, record: &Record, now: Timestamp) -> i32 {
        let (Some(window), Some(window_number)) =
            (self.table.options.ttl_seconds, self.outlives(record))
        else {
            return 0;
        };
        let window = i64::try_from(window).unwrap_or(TTL_SECONDS_MAX).max(1);
        let end_s = window_number.saturating_add(2).saturating_mul(window);
        let left_s = end_s.saturating_sub(now.unix_micros().div_euclid(1_000_000));
        i32::try_from(left_s.clamp(1, TTL_SECONDS_MAX)).expect("20 years of seconds are an i32")
    }

    /// The window in which the record expires, of those that its row outlives.
    fn outlives(&self, record: &Record) -> Option<i64> {
        let window = i64::try_from(self.table.options.ttl_seconds?).ok()?.max(1);
        let expires_s = record.expires_at()?.unix_micros().div_euclid(1_000_000);
        Some(expires_s.div_euclid(window))
    }
}

fn key_cells(row: &[Value]) -> Cells {
    row.iter().map(|value| Some(to_cell(value))).collect()
}
