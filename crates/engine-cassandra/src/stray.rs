//! Derived rows that do not follow their records (E25), found from both sides.
//!
//! ```text
//!   table 0: the authority   each record ─▶ its row in every derived table: there, and the same?
//!   table 1…: derived        each row ─▶ its record: does it have this very row?
//! ```
//!
//! A row is written before its record is decided, so that one that is above the header,
//! or has no record, may belong to a decision under way. After [`ROW_PATIENCE_S`] nobody
//! is told of such a decision any more: the lease of its process has run out, and the
//! router does not take a late answer for one (W16). If it lands all the same, its record
//! lacks a row then, and that is found from the other side.
//!
//! Records are looked at as a quorum shows them; only what looks wrong that way is looked at
//! once more after every decision under way, which costs several times as much.

mod naming;

use engine_api::{
    EngineError, PAGE_RECORDS_MAX, Patience, Record, RecordId, RowFault, Stray, StrayEnd,
    StrayPage, StraySearch, Timestamp,
};
use futures::{StreamExt, TryStreamExt, stream};
use layout::Value;
use scylla::response::PagingState;
use scylla::statement::Consistency;

use crate::authority::{KeyPiece, ScannedKey};
use crate::connection::PageStart;
use crate::derived::{DerivedRow, DerivedTable, Moment, RowState};
use crate::engine::{CassandraEngine, Tables};
use naming::{decode, encode, parse, position};

/// How old a row without its record is before nobody waits for it any more: longer than
/// any lease may last, which is ten minutes.
const ROW_PATIENCE_S: i64 = 900;
/// How long the change that outgrew a row may take to delete it: longer than a request.
const OUTGROWN_PATIENCE_S: i64 = 60;
/// Records read at once for one page.
const READS_AT_ONCE: usize = 32;

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
        RowFault::Altered => rewrite_row(engine, tables, table, &stray.id, now).await,
        RowFault::Outgrown => {
            let row = decode(&stray.row)?;
            let judged = (now, stray.patience);
            drop_row(engine, tables, table, &stray.id, row, judged).await
        }
    }
}

/// Whether it is one still, for who found it without patience.
pub(crate) async fn stands(
    engine: &CassandraEngine,
    tables: &Tables,
    stray: &Stray,
    now: Timestamp,
) -> Result<bool, EngineError> {
    let (connection, id) = (engine.connection(), stray.id.as_str());
    let mut of = tables.derived.iter();
    let Some(table) = of.find(|table| table.table.name == stray.table) else {
        return Ok(false);
    };
    let record = tables.authority.load_latest(connection, id).await?.record;
    if let RowFault::Outgrown = stray.fault {
        let (row, stamp) = decode(&stray.row)?;
        let found = table.stamp_of(connection, &row, level(tables)).await?;
        let judged = (now, stray.patience);
        return Ok(found == Some(stamp) && is_stray(table, record.as_ref(), &row, stamp, judged));
    }
    let Some(record) = record.filter(|it| it.live_at(now).is_some()) else {
        return Ok(false);
    };
    let Some(row) = table.row(&record.header) else {
        return Ok(false);
    };
    let state = table.state_of(connection, &record, &row, now, level(tables));
    Ok(state.await? != RowState::Follows)
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

/// The tables in which a live record has no row, or one of other content.
async fn rowless(
    engine: &CassandraEngine,
    tables: &Tables,
    key: ScannedKey,
    search: &StraySearch,
) -> Result<Vec<Stray>, EngineError> {
    let connection = engine.connection();
    let stored = tables.authority.load(connection, &key.id, level(tables));
    let shown = stored.await?.record;
    let Some(record) = shown.filter(|it| it.live_at(search.now).is_some()) else {
        return Ok(Vec::new());
    };
    if !search.scope.contains(&record.key.shard_key) {
        return Ok(Vec::new());
    }
    let mut strays = Vec::new();
    for table in &tables.derived {
        let Some(row) = table.row(&record.header) else {
            continue;
        };
        let state = table.state_of(connection, &record, &row, search.now, level(tables));
        let fault = match state.await? {
            RowState::Follows => continue,
            RowState::Missing => RowFault::Missing,
            // The patch that changes it writes its copy beside it.
            RowState::Altered if is_recent(&record, search) => continue,
            RowState::Altered => RowFault::Altered,
        };
        // A record that moved on meanwhile took its row along.
        if unchanged(engine, tables, &record).await? {
            strays.push(Stray {
                collection: search.collection,
                id: record.key.id.clone(),
                table: table.table.name.clone(),
                fault,
                patience: search.patience,
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
    Ok(again.is_some_and(|again| again == *seen))
}

fn is_recent(record: &Record, search: &StraySearch) -> bool {
    let before = search.now.checked_add_seconds(-OUTGROWN_PATIENCE_S);
    search.patience == Patience::WithChanges
        && before.is_none_or(|before| record.newest_revision().time() >= before)
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
    let (connection, authority, id) = (engine.connection(), &tables.authority, &row.place.id);
    let shown = authority.load(connection, id.as_str(), level(tables));
    if owns(table, shown.await?.record.as_ref(), &row.key) {
        return Ok(None);
    }
    let record = authority.load_latest(connection, id.as_str()).await?.record;
    let is_outside = |record: &Record| !search.scope.contains(&record.key.shard_key);
    let judged = (search.now, search.patience);
    if record.as_ref().is_some_and(is_outside)
        || !is_stray(table, record.as_ref(), &row.key, row.stamp, judged)
    {
        return Ok(None);
    }
    let again = table.stamp_of(connection, &row.key, level(tables)).await?;
    if again != Some(row.stamp) {
        return Ok(None);
    }
    Ok(Some(Stray {
        collection: search.collection,
        id: id.clone(),
        table: table.table.name.clone(),
        fault: RowFault::Outgrown,
        patience: search.patience,
        row: encode(&row.key, row.stamp)?,
    }))
}

/// Whether this is the very row that the record has in the table.
fn owns(table: &DerivedTable, record: Option<&Record>, row: &[Value]) -> bool {
    let own = record.and_then(|record| table.row(&record.header));
    own.as_deref() == Some(row)
}

/// Whether the row is nobody's; with patience, for so long that no change under way is
/// about to delete it, or to make it somebody's.
fn is_stray(
    table: &DerivedTable,
    record: Option<&Record>,
    row: &[Value],
    stamp: i64,
    (now, patience): (Timestamp, Patience),
) -> bool {
    if owns(table, record, row) {
        return false;
    }
    if patience == Patience::Without {
        return true;
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
    let (of_record, of_image) = (
        Moment::of_record(&record, now),
        Moment::of_image(&record, now),
    );
    for (stamp, mut bound) in [
        (of_record.stamp, table.put(None, &record, of_record)),
        (of_image.stamp, table.rewrite(&record, of_image)),
    ] {
        if let (Some(calendar), Some(header)) = (engine.calendar(), record.header.content.live()) {
            // Known or not: the entry may have gone with the row.
            bound.extend(
                calendar
                    .entry(&table.table, header)
                    .map(|it| calendar.put(&it)),
            );
        }
        connection.write_together(bound, level).await?;
        let state = table.state_of(connection, &record, &row, now, level);
        if state.await? == RowState::Follows {
            return undo_if_outgrown(engine, tables, table, (&record, &row, stamp)).await;
        }
    }
    Err(EngineError::Unavailable {
        reason: format!("the row of {id} in {} does not stay", table.table.name),
    })
}

/// Writes the row anew, at the clock: whatever altered it was written before.
async fn rewrite_row(
    engine: &CassandraEngine,
    tables: &Tables,
    table: &DerivedTable,
    id: &RecordId,
    now: Timestamp,
) -> Result<StrayEnd, EngineError> {
    let (connection, level) = (engine.connection(), level(tables));
    let stored = tables.authority.load_latest(connection, id.as_str());
    let Some(record) = stored.await?.record.filter(|it| it.live_at(now).is_some()) else {
        return Ok(StrayEnd::Follows);
    };
    let Some(row) = table.row(&record.header) else {
        return Ok(StrayEnd::Follows);
    };
    let state = table.state_of(connection, &record, &row, now, level);
    if state.await? == RowState::Follows {
        return Ok(StrayEnd::Follows);
    }
    let moment = Moment::of_image(&record, now);
    let bound = table.rewrite(&record, moment);
    connection.write_together(bound, level).await?;
    undo_if_outgrown(engine, tables, table, (&record, &row, moment.stamp)).await
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
    judged: (Timestamp, Patience),
) -> Result<StrayEnd, EngineError> {
    let connection = engine.connection();
    let load = async || tables.authority.load_latest(connection, id.as_str()).await;
    let record = load().await?.record;
    if !is_stray(table, record.as_ref(), &row, stamp, judged) {
        return Ok(StrayEnd::Follows);
    }
    table.delete(connection, &row, stamp, level(tables)).await?;
    // A decision that nobody waited for any more may have landed: then it needs its row.
    let own = load().await?.record.and_then(|it| table.row(&it.header));
    if own.as_deref() == Some(&row[..]) {
        put_row(engine, tables, table, id, judged.0).await?;
    }
    Ok(StrayEnd::Mended)
}

fn level(tables: &Tables) -> Consistency {
    let levels = &tables.authority.levels;
    levels.rows(levels.latest())
}
