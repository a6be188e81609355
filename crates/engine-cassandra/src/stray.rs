//! Derived rows that do not follow their records (E25), found from both sides.
//!
//! ```text
//!   table 0: the authority   each record ─▶ its row in every derived table: there?
//!   table 1…: derived        each row ─▶ its record: does it have this very row?
//! ```
//!
//! A row is written before its record is decided, so that one that is above the header,
//! or has no record, may belong to a decision under way. After [`ROW_PATIENCE_S`] nobody
//! is told of such a decision any more: the lease of its process has run out, and the
//! router does not take a late answer for one (W16). If it lands all the same, its record
//! lacks a row then, and that is found from the other side.

use engine_api::{
    EngineError, PAGE_RECORDS_MAX, Record, RecordId, RowFault, ScanPosition, Stray, StrayEnd,
    StrayPage, StraySearch, Timestamp,
};
use futures::{StreamExt, TryStreamExt, stream};
use layout::Value;
use scylla::response::PagingState;
use scylla::statement::Consistency;

use crate::authority::{KeyPiece, ScannedKey};
use crate::connection::PageStart;
use crate::derived::{DerivedRow, DerivedTable, Moment, stamp_of_image};
use crate::engine::{CassandraEngine, Tables};
use crate::failure::damaged;

/// How old a row without its record is before nobody waits for it any more: longer than
/// any lease may last, which is ten minutes.
const ROW_PATIENCE_S: i64 = 900;
/// Records read at once for one page.
const READS_AT_ONCE: usize = 16;

/// A page of one table: the authority first, then the derived ones in their order.
pub(crate) async fn find(
    engine: &CassandraEngine,
    tables: &Tables,
    search: &StraySearch,
) -> Result<StrayPage, EngineError> {
    let (table, paging) = parse(search.after.as_ref())?;
    let limit = search.limit.clamp(1, PAGE_RECORDS_MAX);
    let (looked_at, strays, next) = match table.checked_sub(1) {
        None => missing(engine, tables, search, paging, limit).await?,
        Some(derived) => match tables.derived.get(derived) {
            Some(of) => outgrown(engine, tables, of, search, paging, limit).await?,
            None => (0, Vec::new(), None),
        },
    };
    let next = match next {
        Some(paging) => Some(position(table, &paging)),
        None if table < tables.derived.len() => Some(position(table + 1, &PagingState::start())),
        None => None,
    };
    Ok(StrayPage {
        looked_at,
        strays,
        next,
    })
}

pub(crate) async fn mend(
    engine: &CassandraEngine,
    tables: &Tables,
    stray: &Stray,
    now: Timestamp,
) -> Result<StrayEnd, EngineError> {
    let mut of = tables.derived.iter();
    let table = of.find(|table| table.table.name == stray.table);
    let table = table.ok_or_else(|| EngineError::Invalid {
        reason: format!("there is no table {}", stray.table),
    })?;
    match stray.fault {
        RowFault::Missing => put_row(engine, tables, table, &stray.id, now).await,
        RowFault::Outgrown => {
            let (key, stamp) = decode(&stray.row)?;
            drop_row(engine, tables, table, &stray.id, (key, stamp), now).await
        }
    }
}

type Found = (usize, Vec<Stray>, Option<PagingState>);

async fn missing(
    engine: &CassandraEngine,
    tables: &Tables,
    search: &StraySearch,
    paging: PagingState,
    limit: usize,
) -> Result<Found, EngineError> {
    let (connection, authority) = (engine.connection(), &tables.authority);
    let ring = KeyPiece::FromToken(i64::MIN);
    let (keys, next) = authority.keys(connection, &ring, paging, limit).await?;
    let looked_at = keys.len();
    let look = |key: ScannedKey| rowless(engine, tables, key, search);
    let looks: Vec<_> = keys.into_iter().map(look).collect();
    let found: Vec<Vec<Stray>> = stream::iter(looks)
        .buffered(READS_AT_ONCE)
        .try_collect()
        .await?;
    Ok((looked_at, found.into_iter().flatten().collect(), next))
}

/// The tables in which a live record has no row.
async fn rowless(
    engine: &CassandraEngine,
    tables: &Tables,
    key: ScannedKey,
    search: &StraySearch,
) -> Result<Vec<Stray>, EngineError> {
    let connection = engine.connection();
    let stored = tables.authority.load_latest(connection, &key.id).await?;
    let Some(record) = stored.record.filter(|it| it.live_at(search.now).is_some()) else {
        return Ok(Vec::new());
    };
    let mut strays = Vec::new();
    for table in &tables.derived {
        let Some(row) = table.row(&record.header) else {
            continue;
        };
        let stamp = table.stamp_of(connection, &row, level(tables)).await?;
        if stamp.is_none() {
            strays.push(Stray {
                collection: search.collection,
                id: record.key.id.clone(),
                table: table.table.name.clone(),
                fault: RowFault::Missing,
                row: Vec::new(),
            });
        }
    }
    Ok(strays)
}

async fn outgrown(
    engine: &CassandraEngine,
    tables: &Tables,
    table: &DerivedTable,
    search: &StraySearch,
    paging: PagingState,
    limit: usize,
) -> Result<Found, EngineError> {
    let page = PageStart {
        from: paging,
        rows: i32::try_from(limit).expect("a page is small"),
    };
    let id_field = search.collection.id_field();
    let rows = table.all_rows(engine.connection(), page, id_field, level(tables));
    let (rows, next) = rows.await?;
    let looked_at = rows.len();
    let look = |row: DerivedRow| recordless(engine, tables, table, row, search);
    let looks: Vec<_> = rows.into_iter().map(look).collect();
    let found: Vec<Option<Stray>> = stream::iter(looks)
        .buffered(READS_AT_ONCE)
        .try_collect()
        .await?;
    Ok((looked_at, found.into_iter().flatten().collect(), next))
}

async fn recordless(
    engine: &CassandraEngine,
    tables: &Tables,
    table: &DerivedTable,
    row: DerivedRow,
    search: &StraySearch,
) -> Result<Option<Stray>, EngineError> {
    let id = &row.place.id;
    let authority = &tables.authority;
    let stored = authority.load_latest(engine.connection(), id.as_str());
    let record = stored.await?.record;
    if !is_stray(table, record.as_ref(), &row.key, row.stamp, search.now) {
        return Ok(None);
    }
    Ok(Some(Stray {
        collection: search.collection,
        id: id.clone(),
        table: table.table.name.clone(),
        fault: RowFault::Outgrown,
        row: encode(&row.key, row.stamp)?,
    }))
}

/// Whether the row is nobody's, and will not be of a decision under way.
fn is_stray(
    table: &DerivedTable,
    record: Option<&Record>,
    row: &[Value],
    stamp: i64,
    now: Timestamp,
) -> bool {
    let own = record.and_then(|record| table.row(&record.header));
    if own.as_deref() == Some(row) {
        return false;
    }
    let is_below = record.is_some_and(|record| stamp <= record.header.revision.to_i64());
    let patience_ends = now.unix_micros().saturating_sub(ROW_PATIENCE_S * 1_000_000);
    is_below || stamp < patience_ends
}

/// Writes the row that the record has now. At its own revision first; where something
/// was deleted above that, at the clock, as images are.
async fn put_row(
    engine: &CassandraEngine,
    tables: &Tables,
    table: &DerivedTable,
    id: &RecordId,
    now: Timestamp,
) -> Result<StrayEnd, EngineError> {
    let (connection, level) = (engine.connection(), level(tables));
    let stored = tables
        .authority
        .load_latest(connection, id.as_str())
        .await?;
    let Some(record) = stored.record.filter(|it| it.live_at(now).is_some()) else {
        return Ok(StrayEnd::Follows);
    };
    let Some(row) = table.row(&record.header) else {
        return Ok(StrayEnd::Follows);
    };
    if table.stamp_of(connection, &row, level).await?.is_some() {
        return Ok(StrayEnd::Follows);
    }
    let revision = record.header.revision.to_i64();
    for stamp in [revision, stamp_of_image(&record, now)] {
        let mut bound = table.put(None, &record, Moment { now, stamp });
        if let (Some(calendar), Some(header)) = (engine.calendar(), record.header.content.live()) {
            // Known or not: the entry may have gone with the row.
            bound.extend(
                calendar
                    .entry(&table.table, header)
                    .map(|it| calendar.put(&it)),
            );
        }
        connection.write_together(bound, level).await?;
        if table.stamp_of(connection, &row, level).await?.is_some() {
            return undo_if_outgrown(engine, tables, table, (&record, &row, stamp)).await;
        }
    }
    Err(EngineError::Unavailable {
        reason: format!("the row of {id} in {} does not stay", table.table.name),
    })
}

/// A record that moved on meanwhile deleted its row before this one was written.
async fn undo_if_outgrown(
    engine: &CassandraEngine,
    tables: &Tables,
    table: &DerivedTable,
    (written, row, stamp): (&Record, &[Value], i64),
) -> Result<StrayEnd, EngineError> {
    let (connection, id) = (engine.connection(), written.key.id.as_str());
    let record = tables.authority.load_latest(connection, id).await?.record;
    let own = record.and_then(|record| table.row(&record.header));
    if own.as_deref() != Some(row) {
        let bound = table.drop_row(written, row, stamp);
        connection.write_together(bound, level(tables)).await?;
    }
    Ok(StrayEnd::Mended)
}

async fn drop_row(
    engine: &CassandraEngine,
    tables: &Tables,
    table: &DerivedTable,
    id: &RecordId,
    (row, stamp): (Vec<Value>, i64),
    now: Timestamp,
) -> Result<StrayEnd, EngineError> {
    let connection = engine.connection();
    let load = async || tables.authority.load_latest(connection, id.as_str()).await;
    let record = load().await?.record;
    if !is_stray(table, record.as_ref(), &row, stamp, now) {
        return Ok(StrayEnd::Follows);
    }
    table.delete(connection, &row, stamp, level(tables)).await?;
    // A decision that nobody waited for any more may have landed: then it needs its row.
    let own = load().await?.record.and_then(|it| table.row(&it.header));
    if own.as_deref() == Some(&row[..]) {
        put_row(engine, tables, table, id, now).await?;
    }
    Ok(StrayEnd::Mended)
}

fn level(tables: &Tables) -> Consistency {
    let levels = &tables.authority.levels;
    levels.rows(levels.latest())
}

/// The table's number, then how far the servers have come in it.
fn position(table: usize, paging: &PagingState) -> ScanPosition {
    let mut bytes = vec![u8::try_from(table).expect("a collection has few tables")];
    if let Some(state) = paging.as_bytes_slice() {
        bytes.extend_from_slice(state);
    }
    ScanPosition(bytes)
}

fn parse(position: Option<&ScanPosition>) -> Result<(usize, PagingState), EngineError> {
    let Some(position) = position else {
        return Ok((0, PagingState::start()));
    };
    let (table, state) = position
        .0
        .split_first()
        .ok_or_else(|| EngineError::Invalid {
            reason: "not a position of this engine".to_owned(),
        })?;
    let paging = match state {
        [] => PagingState::start(),
        state => PagingState::new_from_raw_bytes(state),
    };
    Ok((usize::from(*table), paging))
}

/// A row's key and timestamp. Key columns hold texts, numbers and moments.
fn encode(key: &[Value], stamp: i64) -> Result<Vec<u8>, EngineError> {
    let mut bytes = stamp.to_be_bytes().to_vec();
    for value in key {
        let (tag, content) = match value {
            Value::Text(text) => (b't', text.as_bytes().to_vec()),
            Value::Int(int) => (b'i', int.to_be_bytes().to_vec()),
            Value::Timestamp(at) => (b'm', at.unix_micros().to_be_bytes().to_vec()),
            other => return Err(damaged(format!("{other} stands in a key"))),
        };
        let length = u32::try_from(content.len()).map_err(damaged)?;
        bytes.push(tag);
        bytes.extend(length.to_be_bytes());
        bytes.extend(content);
    }
    Ok(bytes)
}

fn decode(bytes: &[u8]) -> Result<(Vec<Value>, i64), EngineError> {
    let invalid = || EngineError::Invalid {
        reason: "not a row of this engine".to_owned(),
    };
    let (stamp, mut rest) = bytes.split_first_chunk::<8>().ok_or_else(invalid)?;
    let mut key = Vec::new();
    while let Some((tag, more)) = rest.split_first() {
        let (length, more) = more.split_first_chunk::<4>().ok_or_else(invalid)?;
        let length = u32::from_be_bytes(*length) as usize;
        let (content, more) = more.split_at_checked(length).ok_or_else(invalid)?;
        let number = || Some(i64::from_be_bytes(content.try_into().ok()?));
        let value = match tag {
            b't' => String::from_utf8(content.to_vec()).ok().map(Value::Text),
            b'i' => number().map(Value::Int),
            b'm' => number().map(|at| Value::Timestamp(Timestamp::from_unix_micros(at))),
            _ => None,
        };
        key.push(value.ok_or_else(invalid)?);
        rest = more;
    }
    Ok((key, i64::from_be_bytes(*stamp)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_positions_are_read_as_they_are_written() {
        let key = vec![
            Value::text("ann"),
            Value::Int(-3),
            Value::Timestamp(Timestamp::from_unix_micros(7)),
            Value::text(""),
        ];
        let bytes = encode(&key, -5).unwrap();
        assert_eq!(decode(&bytes), Ok((key, -5)));
        assert!(decode(&bytes[..bytes.len() - 1]).is_err());
        assert!(encode(&[Value::Blob(vec![1])], 0).is_err());
        let state = PagingState::new_from_raw_bytes(&[1, 2, 3][..]);
        let (table, paging) = parse(Some(&position(2, &state))).unwrap();
        let bytes = paging.as_bytes_slice().map(|bytes| bytes.to_vec());
        assert_eq!((table, bytes), (2, Some(vec![1, 2, 3])));
        assert_eq!(parse(None).unwrap().0, 0);
        assert!(parse(Some(&ScanPosition(Vec::new()))).is_err());
    }
}
