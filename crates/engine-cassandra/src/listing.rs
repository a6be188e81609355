//! Reading many: pages of an access path, and scans by token.

use engine_api::{
    Cursor, EngineError, PAGE_RECORDS_MAX, Page, Query, ReadContext, Record, RecordId, Scan,
    ScanPage, ScanPosition, answers,
};
use futures::{StreamExt, TryStreamExt, stream};
use layout::AccessPath;
use scylla::response::PagingState;

use crate::authority::{Read, ScannedKey};
use crate::derived::{DerivedRow, DerivedTable};
use crate::engine::{CassandraEngine, Tables, read_of};
use crate::failure::damaged;

/// Records read at once for one page.
const READS_AT_ONCE: usize = 16;
/// Derived rows looked at for one page; beyond it the page is cut short.
const LISTING_ROWS_MAX: usize = 10_000;
/// Keys looked at for one page of a scan; beyond it the page is cut short.
const SCAN_KEYS_MAX: usize = 100_000;

pub(crate) async fn query(
    engine: &CassandraEngine,
    tables: &Tables,
    query: &Query,
    context: ReadContext,
) -> Result<Page, EngineError> {
    let path = query.path;
    if path == AccessPath::by_id(path.shape().collection) {
        return by_id(engine, tables, query, context).await;
    }
    let Some(table) = tables.derived.iter().find(|table| table.answers(path)) else {
        return Err(EngineError::Unsupported {
            what: format!("answer {path} without a derived table for it"),
        });
    };
    let limit = query.limit.clamp(1, PAGE_RECORDS_MAX);
    let (mut records, mut looked_at) = (Vec::new(), 0);
    let mut paging = Some(PagingState::start());
    while let Some(from) = paging.take() {
        let (rows, next) = table.page(engine.connection(), query, from).await?;
        looked_at += rows.len();
        let last = rows.last().map(place).transpose()?;
        let wanted = limit + 1 - records.len();
        records.extend(check(engine, tables, table, query, context, rows, wanted).await?);
        if records.len() > limit {
            break;
        }
        if looked_at >= LISTING_ROWS_MAX && next.is_some() {
            return Ok(Page {
                records,
                next: last,
            });
        }
        paging = next;
    }
    let more = records.len() > limit;
    records.truncate(limit);
    let next = records
        .last()
        .filter(|_| more)
        .map(|record| Cursor::of(path, record));
    Ok(Page { records, next })
}

pub(crate) async fn scan(
    engine: &CassandraEngine,
    tables: &Tables,
    scan: &Scan,
) -> Result<ScanPage, EngineError> {
    let limit = scan.limit.clamp(1, PAGE_RECORDS_MAX);
    let start = scan
        .after
        .as_ref()
        .map(token_of)
        .transpose()?
        .unwrap_or(i64::MIN);
    let (mut images, mut looked_at) = (Vec::new(), 0);
    let mut paging = Some(PagingState::start());
    while let Some(from) = paging.take() {
        let (keys, next) = tables
            .authority
            .keys_from(engine.connection(), start, from, limit + 2)
            .await?;
        looked_at += keys.len();
        let last = keys.last().map(position);
        let ended = scan
            .until
            .as_ref()
            .zip(last.as_ref())
            .is_some_and(|(until, last)| last >= until);
        let wanted: Vec<_> = keys
            .into_iter()
            .filter(|key| is_wanted(scan, key))
            .map(|key| image(engine, tables, key))
            .collect();
        let mut loaded = stream::iter(wanted).buffered(READS_AT_ONCE.min(limit + 1));
        while images.len() <= limit
            && let Some(loaded) = loaded.try_next().await?
        {
            images.extend(loaded);
        }
        if images.len() > limit || ended {
            break;
        }
        if looked_at >= SCAN_KEYS_MAX && next.is_some() {
            return Ok(ScanPage {
                images: images.into_iter().map(|(_, image)| image).collect(),
                next: last,
            });
        }
        paging = next;
    }
    let more = images.len() > limit;
    images.truncate(limit);
    let next = images
        .last()
        .filter(|_| more)
        .map(|(position, _)| position.clone());
    Ok(ScanPage {
        images: images.into_iter().map(|(_, image)| image).collect(),
        next,
    })
}

async fn by_id(
    engine: &CassandraEngine,
    tables: &Tables,
    query: &Query,
    context: ReadContext,
) -> Result<Page, EngineError> {
    let id = query.equals.first().and_then(|value| value.as_text());
    let id = id.ok_or_else(|| EngineError::Invalid {
        reason: format!("{} needs an id", query.path),
    })?;
    let record = tables
        .authority
        .load(engine.connection(), id, read_of(context))
        .await?
        .record;
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
    tables: &Tables,
    table: &DerivedTable,
    query: &Query,
    context: ReadContext,
    rows: Vec<DerivedRow>,
    wanted: usize,
) -> Result<Vec<Record>, EngineError> {
    let mut ahead = Vec::with_capacity(rows.len());
    for row in rows {
        if is_after(&place(&row)?, query) {
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
    tables: &Tables,
    table: &DerivedTable,
    query: &Query,
    context: ReadContext,
    row: DerivedRow,
) -> Result<Option<Record>, EngineError> {
    let stored = tables
        .authority
        .load(engine.connection(), &row.id, read_of(context))
        .await?;
    let Some(record) = stored.record else {
        return Ok(None);
    };
    if !table.is_own(&record.header, &row) || !fits(&record, query) {
        mend(engine, table, query, &row, &record).await;
        return Ok(None);
    }
    Ok(Some(record).filter(|record| is_answer(record, query, context)))
}

async fn image(
    engine: &CassandraEngine,
    tables: &Tables,
    key: ScannedKey,
) -> Result<Option<(ScanPosition, Record)>, EngineError> {
    let stored = tables
        .authority
        .load(engine.connection(), &key.id, Read::Serial)
        .await?;
    Ok(stored.record.map(|record| (position(&key), record)))
}

async fn mend(
    engine: &CassandraEngine,
    table: &DerivedTable,
    query: &Query,
    row: &DerivedRow,
    record: &Record,
) {
    if let Err(error) = table
        .mend(engine.connection(), query, row, record.header.revision)
        .await
    {
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

fn place(row: &DerivedRow) -> Result<Cursor, EngineError> {
    Ok(Cursor {
        sort: row.sort.clone(),
        id: RecordId::new(row.id.as_str()).map_err(damaged)?,
    })
}

fn is_wanted(scan: &Scan, key: &ScannedKey) -> bool {
    let at = position(key);
    key.shard_key
        .as_ref()
        .is_some_and(|shard_key| scan.scope.contains(shard_key))
        && scan.after.as_ref().is_none_or(|after| at > *after)
        && scan.until.as_ref().is_none_or(|until| at <= *until)
}

/// The servers' own order: by token, and by id where two have the same.
fn position(key: &ScannedKey) -> ScanPosition {
    let token = (key.token as u64) ^ (1 << 63);
    ScanPosition([&token.to_be_bytes(), key.id.as_bytes()].concat())
}

fn token_of(position: &ScanPosition) -> Result<i64, EngineError> {
    let invalid = || EngineError::Invalid {
        reason: "not a scan position of this engine".to_owned(),
    };
    let token = position.0.first_chunk::<8>().ok_or_else(invalid)?;
    Ok((u64::from_be_bytes(*token) ^ (1 << 63)) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_sort_like_tokens_and_give_them_back() {
        let at = |token| {
            position(&ScannedKey {
                token,
                id: "x".to_owned(),
                shard_key: None,
            })
        };
        let tokens = [i64::MIN, -1, 0, 1, i64::MAX];
        assert!(tokens.windows(2).all(|pair| at(pair[0]) < at(pair[1])));
        for token in tokens {
            assert_eq!(token_of(&at(token)), Ok(token));
        }
        assert!(token_of(&ScanPosition(vec![1])).is_err());
    }
}
