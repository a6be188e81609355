//! The table that decides: header and parts of a record in one partition, so
//! that one conditional batch writes them.
//!
//! The header stands in a row of its own, each part in another. A table of
//! records without parts has one row a record.

mod keys;
mod partition;
mod parts;

use engine_api::{EngineError, Header, Part, PartKey, Record, RecordId, Revision, Timestamp};
use layout::{Collection, KeyColumn, Table};
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlValue;

use crate::cell::to_cell;
use crate::column::{Faith, HeaderColumn, id_value, key_columns, key_name};
use crate::config::OpenError;
use crate::connection::{Bound, Cells, Connection, Decided, number};
use crate::levels::Levels;
pub(crate) use keys::{KeyPiece, SCAN_PAGE_KEYS_MAX, ScannedKey};
use partition::{ORIGIN_HEADER, Shape, assemble, part_cells, row_cells};
pub(crate) use partition::{Stored, numbered};
use parts::PartStatements;

#[derive(Debug)]
pub(crate) struct AuthorityTable {
    pub collection: Collection,
    pub levels: Levels,
    keyspace: String,
    key: Vec<KeyColumn>,
    buckets: u32,
    shape: Shape,
    select: PreparedStatement,
    select_keys: PreparedStatement,
    /// `None` where a partition is one record.
    select_rest: Option<PreparedStatement>,
    set_header: PreparedStatement,
    drop_header: PreparedStatement,
    set_turn: PreparedStatement,
    /// `None` where records have no parts.
    parts: Option<PartStatements>,
}

impl AuthorityTable {
    pub async fn prepare(
        connection: &Connection,
        keyspace: &str,
        table: &Table,
        buckets: u32,
        levels: Levels,
    ) -> Result<AuthorityTable, OpenError> {
        let full = format!("{keyspace}.{}", table.name);
        let shape = Shape {
            header: HeaderColumn::of(table, Faith::Lossless),
            has_parts: !table.collection.part_kinds().is_empty(),
        };
        let key: Vec<KeyColumn> = key_columns(table)
            .into_iter()
            .map(|(column, _)| column)
            .collect();
        let id = table.collection.id_field();
        let where_id = |is: &str| {
            let compared = |column: &KeyColumn| match column {
                KeyColumn::Field(_) => format!("{id} {is} ?"),
                other => format!("{} = ?", key_name(other)),
            };
            key.iter().map(compared).collect::<Vec<_>>().join(" AND ")
        };
        let equal = where_id("=");
        let (origin, header_row) = if shape.has_parts {
            let row =
                format!("origin = {ORIGIN_HEADER} AND kind = '' AND name = '' AND subname = ''");
            (
                format!(" AND origin = {ORIGIN_HEADER} ALLOW FILTERING"),
                format!("{equal} AND {row}"),
            )
        } else {
            (String::new(), equal.clone())
        };
        let sets: String = shape
            .header
            .iter()
            .map(|column| format!(", {} = ?", column.name()))
            .collect();
        let partition: Vec<String> = table.partition.iter().map(key_name).collect();
        let token = format!("token({})", partition.join(", "));
        let select_keys = format!("SELECT {id}, {token}, shard_key FROM {full}");
        let select_rest = match table.partition.contains(&KeyColumn::Field(id)) {
            true => None,
            false => {
                let rest = format!("{select_keys} WHERE {}{origin}", where_id(">"));
                Some(connection.prepare_repeatable(&rest).await?)
            }
        };
        let parts = match shape.has_parts {
            true => Some(PartStatements::prepare(connection, &full, &key).await?),
            false => None,
        };
        Ok(AuthorityTable {
            collection: table.collection,
            levels,
            keyspace: keyspace.to_owned(),
            buckets,
            select: connection
                .prepare_repeatable(&format!(
                    "SELECT {} FROM {full} WHERE {equal}",
                    shape.columns().join(", ")
                ))
                .await?,
            select_keys: connection
                .prepare_repeatable(&format!("{select_keys} WHERE {token} >= ?{origin}"))
                .await?,
            select_rest,
            set_header: connection
                .prepare(&format!(
                    "UPDATE {full} SET turn = ?, shard_key = ?, revision = ?, cleared = ?, live = ?{sets} \
                     WHERE {header_row} IF turn = ?"
                ))
                .await?,
            drop_header: connection
                .prepare(&format!("DELETE FROM {full} WHERE {header_row} IF turn = ?"))
                .await?,
            set_turn: connection
                .prepare(&format!("UPDATE {full} SET turn = ? WHERE {header_row} IF turn = ?"))
                .await?,
            key,
            shape,
            parts,
        })
    }

    pub async fn load(
        &self,
        connection: &Connection,
        id: &str,
        level: Consistency,
    ) -> Result<Stored, EngineError> {
        let rows = connection.read(&self.select, self.key(id), level).await?;
        assemble(self.collection, &self.shape, id, rows)
    }

    /// After whatever decision is under way.
    pub async fn load_latest(
        &self,
        connection: &Connection,
        id: &str,
    ) -> Result<Stored, EngineError> {
        self.load(connection, id, self.levels.latest()).await
    }

    /// Whichever of its copies something stands on (W25).
    pub async fn load_from_every_copy(
        &self,
        connection: &Connection,
        id: &str,
    ) -> Result<Stored, EngineError> {
        let latest = self.load_latest(connection, id).await?;
        match self.levels.every_copy() {
            Some(level) => self.load(connection, id, level).await,
            None => Ok(latest),
        }
    }

    /// Makes the partition hold `record`, if nobody has decided on it since it was read.
    pub async fn replace(
        &self,
        connection: &Connection,
        stored: &Stored,
        record: &Record,
    ) -> Result<Decided, EngineError> {
        let id = record.key.id.as_str();
        // Above every turn this id ever had, also before it was forgotten: a
        // writer that slept through that must not find its own turn again.
        let turn = stored.next_turn().max(record.header.revision.to_i64());
        let live = record.header.content.live();
        let mut cells = vec![
            number(turn),
            Some(CqlValue::Blob(record.key.shard_key.as_bytes().to_vec())),
            number(record.header.revision.to_i64()),
            number(record.header.cleared.to_i64()),
            Some(CqlValue::Boolean(live.is_some())),
        ];
        let header = self.shape.header.iter();
        cells.extend(header.map(|column| column.cell(live?, &self.keyspace)));
        cells.extend(self.key(id));
        cells.push(stored.turn.map(CqlValue::BigInt));
        let mut bound: Vec<Bound<'_>> = vec![(&self.set_header, cells)];
        if let Some(statements) = &self.parts {
            let before = |key: &PartKey| Some(stored.record.as_ref()?.parts.get(key)?.revision);
            for (key, part) in record
                .parts
                .iter()
                .filter(|(key, part)| before(key) != Some(part.revision))
            {
                bound.push((&statements.put, part_cells(self.key(id), key, part)));
            }
            for key in stored
                .decided
                .iter()
                .filter(|key| !record.parts.contains_key(*key))
            {
                bound.push((&statements.drop, row_cells(self.key(id), key)));
            }
        }
        self.decide(connection, bound).await
    }

    /// Deletes patched rows that `cleared` hides already: garbage, not a decision.
    pub async fn clear_patched(
        &self,
        connection: &Connection,
        stored: &Stored,
        header: &Header,
        id: &RecordId,
    ) -> Result<(), EngineError> {
        let is_kept = |revision: &Revision| *revision > header.cleared;
        if stored.patched.values().all(is_kept) {
            return Ok(());
        }
        let until = header.cleared.to_i64();
        self.clear_to(connection, id.as_str(), until).await
    }

    /// Deletes patched rows, of whatever revision, that were written before now.
    pub async fn clear_to_now(
        &self,
        connection: &Connection,
        id: &str,
        stored: &Stored,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        let Some(newest) = stored.patched.values().max() else {
            return Ok(());
        };
        let until = newest.to_i64().max(now.unix_micros());
        self.clear_to(connection, id, until).await
    }

    /// Parts at their own revisions; the newest wins by itself.
    pub fn patch<'a>(
        &'a self,
        id: &RecordId,
        parts: impl Iterator<Item = (&'a PartKey, &'a Part)>,
    ) -> Vec<Bound<'a>> {
        let Some(statements) = &self.parts else {
            return Vec::new();
        };
        let bound = |(key, part): (&PartKey, &Part)| {
            let mut cells = part_cells(self.key(id.as_str()), key, part);
            cells.push(number(part.revision.to_i64()));
            (&statements.patch, cells)
        };
        parts.map(bound).collect()
    }

    /// Condemns the record, if nobody has decided on it since it was read; answers the turn it has then.
    pub async fn condemn(
        &self,
        connection: &Connection,
        id: &str,
        stored: &Stored,
    ) -> Result<(Decided, i64), EngineError> {
        let turn = -stored.next_turn();
        let decided = self.set_turn(connection, id, stored, turn).await?;
        Ok((decided, turn))
    }

    /// Takes a condemned record out again: whoever condemned it does not find its turn any more.
    pub async fn spare(
        &self,
        connection: &Connection,
        id: &str,
        stored: &Stored,
    ) -> Result<Decided, EngineError> {
        let turn = stored.next_turn();
        self.set_turn(connection, id, stored, turn).await
    }

    async fn set_turn(
        &self,
        connection: &Connection,
        id: &str,
        stored: &Stored,
        turn: i64,
    ) -> Result<Decided, EngineError> {
        let mut cells = vec![number(turn)];
        cells.extend(self.key(id));
        cells.push(stored.turn.map(CqlValue::BigInt));
        self.decide(connection, vec![(&self.set_turn, cells)]).await
    }

    /// Forgets the record altogether, if nobody has decided on it since it was read.
    pub async fn forget(
        &self,
        connection: &Connection,
        id: &str,
        stored: &Stored,
    ) -> Result<Decided, EngineError> {
        let mut cells = self.key(id);
        cells.push(stored.turn.map(CqlValue::BigInt));
        let mut bound = vec![(&self.drop_header, cells)];
        if let Some(statements) = &self.parts {
            bound.push((&statements.drop_all, self.key(id)));
        }
        let decided = self.decide(connection, bound).await?;
        if let (Decided::Applied, Some(newest)) = (decided, stored.patched.values().max()) {
            self.clear_to(connection, id, newest.to_i64()).await?;
        }
        Ok(decided)
    }

    /// Forgets marks of parts, if nobody has decided on the record since it was
    /// read. Of the two rows a part can have the older one goes first: the
    /// other way round it would come back.
    pub async fn forget_marks(
        &self,
        connection: &Connection,
        stored: &Stored,
        record: &Record,
        marks: &[(PartKey, Revision)],
    ) -> Result<Decided, EngineError> {
        let is_patched =
            |(key, revision): &&(PartKey, Revision)| stored.patched.get(key) == Some(revision);
        for (key, revision) in marks.iter().filter(|mark| !is_patched(mark)) {
            self.drop_patched(connection, record, key, *revision)
                .await?;
        }
        let mut kept = record.clone();
        kept.parts
            .retain(|key, _| !marks.iter().any(|(mark, _)| mark == key));
        let decided = self.replace(connection, stored, &kept).await?;
        if decided == Decided::Applied {
            for (key, revision) in marks.iter().filter(is_patched) {
                self.drop_patched(connection, record, key, *revision)
                    .await?;
            }
        }
        Ok(decided)
    }

    async fn decide(
        &self,
        connection: &Connection,
        bound: Vec<Bound<'_>>,
    ) -> Result<Decided, EngineError> {
        connection
            .decide(bound, self.levels.decided, self.levels.serial)
            .await
    }

    async fn clear_to(
        &self,
        connection: &Connection,
        id: &str,
        until: i64,
    ) -> Result<(), EngineError> {
        let Some(statements) = &self.parts else {
            return Ok(());
        };
        let mut cells = vec![number(until)];
        cells.extend(self.key(id));
        connection
            .write(&statements.clear_patched, cells, self.levels.decided)
            .await
    }

    async fn drop_patched(
        &self,
        connection: &Connection,
        record: &Record,
        key: &PartKey,
        revision: Revision,
    ) -> Result<(), EngineError> {
        let Some(statements) = &self.parts else {
            return Ok(());
        };
        let mut cells = vec![number(revision.to_i64())];
        cells.extend(row_cells(self.key(record.key.id.as_str()), key));
        connection
            .write(&statements.drop_patched, cells, self.levels.decided)
            .await
    }

    fn key(&self, id: &str) -> Cells {
        let cell = |column| {
            Some(to_cell(&id_value(
                self.collection,
                column,
                id,
                self.buckets,
            )))
        };
        self.key.iter().map(cell).collect()
    }
}
