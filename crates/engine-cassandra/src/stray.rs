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

mod naming;

use engine_api::{
    EngineError, PAGE_RECORDS_MAX, Record, RecordId, RowFault, Stray, StrayEnd, StrayPage,
    StraySearch, Timestamp,
};
use futures::{StreamExt, TryStreamExt, stream};
use layout::Value;
use scylla::response::PagingState;
use scylla::statement::Consistency;

use crate::authority::{KeyPiece, ScannedKey};
use crate::connection::PageStart;
use crate::derived::{DerivedRow, DerivedTable, Moment, stamp_of_image};
use crate::engine::{CassandraEngine, Tables};
use naming::{decode, encode, parse, position};

/// How old a row without its record is before nobody waits for it any more: longer than
/// any lease may last, which is ten minutes.
const ROW_PATIENCE_S: i64 = 900;
/// How long the change that outgrew a row may take to delete it: longer than a request.
const OUTGROWN_PATIENCE_S: i64 = 60;
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
        // A record that moved on meanwhile took its row along.
        if stamp.is_none() && unchanged(engine, tables, &record).await? {
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

async fn unchanged(
    engine: &CassandraEngine,
    tables: &Tables,
    seen: &Record,
) -> Result<bool, EngineError> {
    let (connection, id) = (engine.connection(), seen.key.id.as_str());
    let again = tables.authority.load_latest(connection, id).await?.record;
    Ok(again.is_some_and(|again| again.header.revision == seen.header.revision))
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
    let connection = engine.connection();
    let again = table.stamp_of(connection, &row.key, level(tables)).await?;
    if again != Some(row.stamp) {
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

/// Whether the row is nobody's, and has been for so long that no change under way is
/// about to delete it, or to make it somebody's.
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
    let header = record.map(|record| record.header.revision.to_i64());
    let (since, patience_s) = match header {
        Some(header) if stamp <= header => (header, OUTGROWN_PATIENCE_S),
        Some(_) | None => (stamp, ROW_PATIENCE_S),
    };
    since < now.unix_micros().saturating_sub(patience_s * 1_000_000)
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
