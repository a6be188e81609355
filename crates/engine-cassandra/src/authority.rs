//! The table that decides: one partition a record, header and parts in it.

mod partition;

use engine_api::{EngineError, Header, Part, PartKey, Record, RecordId, Revision};
use layout::{Collection, ShardKey};
use scylla::response::PagingState;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlValue, Row};

use crate::cell::to_cell;
use crate::config::OpenError;
use crate::connection::{Bound, Cells, Columns, Connection, Decided, number, text};
use crate::failure::damaged;
use partition::{ORIGIN_DECIDED, ORIGIN_PATCHED, assemble, part_cells, row_cells};
pub(crate) use partition::{Stored, numbered};

/// The most keys that one page of a scan asks the servers for.
pub(crate) const SCAN_PAGE_KEYS_MAX: usize = 256;
/// The fewest: a scope may leave out most of them.
const SCAN_PAGE_KEYS_MIN: usize = 16;

#[derive(Debug)]
pub(crate) struct AuthorityTable {
    pub collection: Collection,
    select_latest: PreparedStatement,
    select_quorum: PreparedStatement,
    select_keys: PreparedStatement,
    set_header: PreparedStatement,
    put_part: PreparedStatement,
    drop_part: PreparedStatement,
    drop_parts: PreparedStatement,
    patch_part: PreparedStatement,
    clear_patched: PreparedStatement,
    drop_patched: PreparedStatement,
}

/// How a record is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// After whatever decision is under way (W3).
    Serial,
    /// From a quorum, without waiting for decisions under way.
    Quorum,
}

/// A record's key as a scan meets it.
#[derive(Debug)]
pub(crate) struct ScannedKey {
    pub token: i64,
    pub id: String,
    /// `None` where only orphans are left.
    pub shard_key: Option<ShardKey>,
}

impl AuthorityTable {
    pub async fn prepare(
        connection: &Connection,
        collection: Collection,
        table: &str,
    ) -> Result<AuthorityTable, OpenError> {
        let names: Vec<&str> = collection
            .header_fields()
            .iter()
            .map(|field| field.name())
            .collect();
        let select = format!(
            "SELECT turn, shard_key, revision, cleared, live, {}, origin, kind, name, subname, \
             part_revision, part_live, content FROM {table} WHERE id = ?",
            names.join(", ")
        );
        let sets: String = names.iter().map(|name| format!(", {name} = ?")).collect();
        let row = "id, origin, kind, name, subname, part_revision, part_live, content";
        let insert =
            |origin| format!("INSERT INTO {table} ({row}) VALUES (?, {origin}, ?, ?, ?, ?, ?, ?)");
        let row_of = |origin| {
            format!("id = ? AND origin = {origin} AND kind = ? AND name = ? AND subname = ?")
        };
        let keys =
            format!("SELECT DISTINCT id, token(id), shard_key FROM {table} WHERE token(id) >= ?");
        let prepare = async |statement: String| connection.prepare(&statement).await;
        Ok(AuthorityTable {
            collection,
            select_latest: connection.prepare_read(&select, Consistency::LocalSerial).await?,
            select_quorum: connection.prepare_read(&select, Consistency::LocalQuorum).await?,
            select_keys: connection.prepare_read(&keys, Consistency::LocalQuorum).await?,
            set_header: prepare(format!(
                "UPDATE {table} SET turn = ?, shard_key = ?, revision = ?, cleared = ?, live = ?{sets} \
                 WHERE id = ? IF turn = ?"
            ))
            .await?,
            put_part: prepare(insert(ORIGIN_DECIDED)).await?,
            drop_part: prepare(format!("DELETE FROM {table} WHERE {}", row_of(ORIGIN_DECIDED))).await?,
            drop_patched: prepare(format!(
                "DELETE FROM {table} USING TIMESTAMP ? WHERE {}",
                row_of(ORIGIN_PATCHED)
            ))
            .await?,
            drop_parts: prepare(format!("DELETE FROM {table} WHERE id = ? AND origin = {ORIGIN_DECIDED}"))
                .await?,
            patch_part: prepare(format!("{} USING TIMESTAMP ?", insert(ORIGIN_PATCHED))).await?,
            clear_patched: prepare(format!(
                "DELETE FROM {table} USING TIMESTAMP ? WHERE id = ? AND origin = {ORIGIN_PATCHED}"
            ))
            .await?,
        })
    }

    pub async fn load(
        &self,
        connection: &Connection,
        id: &str,
        read: Read,
    ) -> Result<Stored, EngineError> {
        let statement = match read {
            Read::Serial => &self.select_latest,
            Read::Quorum => &self.select_quorum,
        };
        assemble(
            self.collection,
            id,
            connection.read(statement, vec![text(id)]).await?,
        )
    }

    /// Makes the partition hold `record`, if nobody has decided on it since it was read.
    pub async fn replace(
        &self,
        connection: &Connection,
        stored: &Stored,
        record: &Record,
    ) -> Result<Decided, EngineError> {
        let id = record.key.id.as_str();
        let mut cells = vec![
            number(stored.turn.unwrap_or(0) + 1),
            Some(CqlValue::Blob(record.key.shard_key.as_bytes().to_vec())),
            number(record.header.revision.to_i64()),
            number(record.header.cleared.to_i64()),
            Some(CqlValue::Boolean(record.header.content.live().is_some())),
        ];
        let live = record.header.content.live();
        let header = self.collection.header_fields().iter();
        cells.extend(header.map(|field| live.and_then(|fields| fields.get(*field)).map(to_cell)));
        cells.extend([text(id), stored.turn.map(CqlValue::BigInt)]);
        let mut bound: Vec<Bound<'_>> = vec![(&self.set_header, cells)];
        let before = |key: &PartKey| Some(stored.record.as_ref()?.parts.get(key)?.revision);
        for (key, part) in record
            .parts
            .iter()
            .filter(|(key, part)| before(key) != Some(part.revision))
        {
            bound.push((&self.put_part, part_cells(id, key, part)));
        }
        for key in stored
            .decided
            .iter()
            .filter(|key| !record.parts.contains_key(*key))
        {
            bound.push((&self.drop_part, row_cells(id, key).into()));
        }
        connection.decide(bound).await
    }

    /// Deletes patched rows that `cleared` hides already: garbage, not a decision.
    pub async fn clear_patched(
        &self,
        connection: &Connection,
        stored: &Stored,
        header: &Header,
        id: &RecordId,
    ) -> Result<(), EngineError> {
        if stored
            .patched
            .values()
            .all(|revision| *revision > header.cleared)
        {
            return Ok(());
        }
        connection
            .write(
                &self.clear_patched,
                vec![number(header.cleared.to_i64()), text(id.as_str())],
            )
            .await
    }

    /// Writes parts at their own revisions; the newest wins by itself.
    pub async fn patch<'a>(
        &self,
        connection: &Connection,
        id: &RecordId,
        parts: impl Iterator<Item = (&'a PartKey, &'a Part)>,
    ) -> Result<(), EngineError> {
        let bound = parts.map(|(key, part)| {
            let mut cells = part_cells(id.as_str(), key, part);
            cells.push(number(part.revision.to_i64()));
            (&self.patch_part, cells)
        });
        connection.write_together(bound.collect()).await
    }

    /// Forgets the record altogether, if nobody has decided on it since it was read.
    pub async fn forget(
        &self,
        connection: &Connection,
        id: &str,
        stored: &Stored,
    ) -> Result<Decided, EngineError> {
        let mut cells: Cells = vec![None; 5 + self.collection.header_fields().len()];
        cells.extend([text(id), stored.turn.map(CqlValue::BigInt)]);
        let bound = vec![
            (&self.set_header, cells),
            (&self.drop_parts, vec![text(id)]),
        ];
        let decided = connection.decide(bound).await?;
        if let (Decided::Applied, Some(newest)) = (decided, stored.patched.values().max()) {
            connection
                .write(&self.clear_patched, vec![number(newest.to_i64()), text(id)])
                .await?;
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
        let id = record.key.id.as_str();
        let is_patched =
            |(key, revision): &&(PartKey, Revision)| stored.patched.get(key) == Some(revision);
        let delete_patched = async |(key, revision): &(PartKey, Revision)| {
            let mut cells: Cells = vec![number(revision.to_i64())];
            cells.extend(row_cells(id, key));
            connection.write(&self.drop_patched, cells).await
        };
        for mark in marks.iter().filter(|mark| !is_patched(mark)) {
            delete_patched(mark).await?;
        }
        let mut kept = record.clone();
        kept.parts
            .retain(|key, _| !marks.iter().any(|(mark, _)| mark == key));
        let decided = self.replace(connection, stored, &kept).await?;
        if decided == Decided::Applied {
            for mark in marks.iter().filter(is_patched) {
                delete_patched(mark).await?;
            }
        }
        Ok(decided)
    }

    pub async fn keys_from(
        &self,
        connection: &Connection,
        token: i64,
        from: PagingState,
        wanted: usize,
    ) -> Result<(Vec<ScannedKey>, Option<PagingState>), EngineError> {
        let mut statement = self.select_keys.clone();
        let page = wanted.clamp(SCAN_PAGE_KEYS_MIN, SCAN_PAGE_KEYS_MAX);
        statement.set_page_size(i32::try_from(page).expect("a page is small"));
        let (rows, next) = connection
            .read_page(&statement, vec![number(token)], from)
            .await?;
        let key = |row: Row| {
            let mut columns = Columns::of(row);
            let id = columns
                .text()?
                .ok_or_else(|| damaged("a partition has no id"))?;
            let token = columns
                .number()?
                .ok_or_else(|| damaged("a partition has no token"))?;
            let shard_key = columns
                .bytes()?
                .map(ShardKey::from_bytes)
                .transpose()
                .map_err(damaged)?;
            Ok(ScannedKey {
                token,
                id,
                shard_key,
            })
        };
        Ok((
            rows.into_iter()
                .map(key)
                .collect::<Result<_, EngineError>>()?,
            next,
        ))
    }
}
