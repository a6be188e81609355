//! Pages of an access path: rows of a derived table, each checked against its record.

use std::sync::Arc;

use engine_api::{
    Cursor, EngineError, PAGE_RECORDS_MAX, Page, Query, ReadContext, Record, answers,
};
use futures::{StreamExt, TryStreamExt, stream};
use layout::AccessPath;

use crate::derived::{DerivedRow, DerivedTable, Walk};
use crate::engine::{CassandraEngine, Tables};

/// Records read at once for one page.
const READS_AT_ONCE: usize = 16;
/// Derived rows looked at for one page; beyond it the page is cut short.
const LISTING_ROWS_MAX: usize = 10_000;
/// Rows that one step looks at, at the least: some may be outgrown.
const ROWS_MIN: usize = 16;

pub(crate) async fn query(
    engine: &CassandraEngine,
    tables: &Arc<Tables>,
    query: &Query,
    context: ReadContext,
) -> Result<Page, EngineError> {
    let path = query.path;
    if path == AccessPath::by_id(path.shape().collection) {
        return by_id(engine, tables, query, context).await;
    }
    let Some(read) = tables.paths.iter().find(|read| read.path == path) else {
        return Err(EngineError::Unsupported {
            what: format!("answer {path} without a derived table for it"),
        });
    };
    let table = &tables.derived[read.table];
    let levels = &tables.authority.levels;
    let level = levels.rows_of_path(path, context.freshness);
    let calendar = engine.calendar();
    let mut walk = Walk::open(engine.connection(), calendar, read, table, query, level).await?;
    let limit = query.limit.clamp(1, PAGE_RECORDS_MAX);
    let (mut records, mut looked_at) = (Vec::new(), 0);
    loop {
        let wanted = limit + 1 - records.len();
        let rows = walk.next(wanted.max(ROWS_MIN)).await?;
        let Some(last) = rows.last().map(|row| row.place.clone()) else {
            break;
        };
        looked_at += rows.len();
        records.extend(check(engine, tables, table, query, context, rows, wanted).await?);
        if records.len() > limit {
            break;
        }
        if looked_at >= LISTING_ROWS_MAX {
            return Ok(Page {
                records,
                next: Some(last),
            });
        }
    }
    let more = records.len() > limit;
    records.truncate(limit);
    let next = records
        .last()
        .filter(|_| more)
        .map(|record| Cursor::of(path, record));
    Ok(Page { records, next })
}

async fn by_id(
    engine: &CassandraEngine,
    tables: &Arc<Tables>,
    query: &Query,
    context: ReadContext,
) -> Result<Page, EngineError> {
    let id = query.equals.first().and_then(|value| value.as_text());
    let id = id.ok_or_else(|| EngineError::Invalid {
        reason: format!("{} needs an id", query.path),
    })?;
    let record = engine.load(tables, id, query.path, context).await?;
    let record = record.filter(|record| {
        is_answer(record, query, context) && is_after(&Cursor::of(query.path, record), query)
    });
    Ok(Page {
        records: record.into_iter().collect(),
        next: None,
    })
}

/// The records behind a page of rows, those that answer the query, as many as are wanted.
async fn check(
    engine: &CassandraEngine,
    tables: &Arc<Tables>,
    table: &DerivedTable,
    query: &Query,
    context: ReadContext,
    rows: Vec<DerivedRow>,
    wanted: usize,
) -> Result<Vec<Record>, EngineError> {
    let mut ahead = Vec::with_capacity(rows.len());
    for row in rows {
        if is_after(&row.place, query) {
            ahead.push(check_one(engine, tables, table, query, context, row));
        }
    }
    let mut checked = stream::iter(ahead).buffered(READS_AT_ONCE.min(wanted));
    let mut found = Vec::new();
    while found.len() < wanted
        && let Some(record) = checked.try_next().await?
    {
        found.extend(record);
    }
    Ok(found)
}

async fn check_one(
    engine: &CassandraEngine,
    tables: &Arc<Tables>,
    table: &DerivedTable,
    query: &Query,
    context: ReadContext,
    row: DerivedRow,
) -> Result<Option<Record>, EngineError> {
    let id = row.place.id.as_str();
    let Some(record) = engine.load(tables, id, query.path, context).await? else {
        return Ok(None);
    };
    // Of all rows that the record ever had, only the one of this very header counts.
    if table.row(&record.header).as_ref() != Some(&row.key) || !fits(&record, query) {
        mend(engine, tables, table, &row, &record).await;
        return Ok(None);
    }
    Ok(Some(record).filter(|record| is_answer(record, query, context)))
}

async fn mend(
    engine: &CassandraEngine,
    tables: &Arc<Tables>,
    table: &DerivedTable,
    row: &DerivedRow,
    record: &Record,
) {
    let level = tables.authority.levels.decided;
    let mended = table.mend(engine.connection(), row, record.header.revision, level);
    if let Err(error) = mended.await {
        tracing::warn!(%error, "an outgrown derived row stays until the next reader meets it");
    }
}

/// Whether the header answers the path at all; the range cuts a row off, it does not outgrow it.
fn fits(record: &Record, query: &Query) -> bool {
    let whole = Query {
        range: Default::default(),
        ..query.clone()
    };
    record
        .header
        .content
        .live()
        .is_some_and(|header| answers(&whole, header))
}

fn is_answer(record: &Record, query: &Query, context: ReadContext) -> bool {
    record
        .live_at(context.now)
        .is_some_and(|header| answers(query, header))
}

fn is_after(cursor: &Cursor, query: &Query) -> bool {
    query
        .after
        .as_ref()
        .is_none_or(|after| cursor.compare(after, query.path).is_gt())
}
