//! Reading: bodies, parts apart, and pages of access paths from one snapshot.

use std::ops::Bound;

use engine_api::layout::key::encode_value;
use engine_api::layout::{Collection, Direction, Field, Value};
use engine_api::{
    Cursor, EngineError, JOURNAL_ENTRIES_MAX, JournalEntry, JournalPage, PAGE_RECORDS_MAX, Page,
    Position, Query, ReadContext, Record, RecordId, Scan, ScanPage, ScanPosition, SharedRecord,
    answers,
};

use crate::batch::Space;
use crate::body::Entry;
use crate::cache::RecordCache;
use crate::codec::{
    Damaged, decode_entry, decode_part, decode_part_key, decode_record, decode_root, split_entries,
};
use crate::state::{first_entry, number, position};
use crate::store::{Store, StoreError};
use crate::tables::{PathPlan, PointerTable, Tables, parts_prefix, record_key};
use crate::view::View;

type RowBound = Bound<Vec<u8>>;

pub(crate) fn get(
    store: &Store,
    tables: &Tables,
    collection: Collection,
    id: &RecordId,
) -> Result<Option<SharedRecord>, EngineError> {
    if RecordCache::keeps(collection)
        && let Some(record) = store.cached(&record_key(collection, id))
    {
        return Ok(Some(record));
    }
    let view = store.view();
    let key = record_key(collection, id);
    match view.latest_body(&key).map_err(store_failed)? {
        Some(body) => Ok(Some(decode(&view, tables, collection, id, &body)?)),
        None => Ok(None),
    }
}

pub(crate) fn query(
    view: &View,
    tables: &Tables,
    query: &Query,
    context: ReadContext,
) -> Result<Page, EngineError> {
    let shape = query.path.shape();
    if query.equals.len() != shape.equals.len() {
        let reason = format!("{} is asked with {} values", query.path, shape.equals.len());
        return Err(EngineError::Invalid { reason });
    }
    let plan = tables
        .plan(query.path)
        .ok_or_else(|| EngineError::Unsupported {
            what: format!("answer {}: no table of the layout does", query.path),
        })?;
    let limit = query.limit.clamp(1, PAGE_RECORDS_MAX);
    let mut records = match plan {
        PathPlan::Body => by_id(view, tables, query)?,
        PathPlan::Pointers(table) => by_pointers(view, tables, &table, query, context, limit + 1)?,
    };
    records.retain(|record| {
        record
            .live_at(context.now)
            .is_some_and(|header| answers(query, header))
    });
    let more = records.len() > limit;
    records.truncate(limit);
    let next = records
        .last()
        .filter(|_| more)
        .map(|last| Cursor::of(query.path, last));
    let records = records.into_iter().map(SharedRecord::into_record).collect();
    Ok(Page { records, next })
}

pub(crate) fn scan(view: &View, tables: &Tables, scan: &Scan) -> Result<ScanPage, EngineError> {
    let mut images = Vec::new();
    let next = scan_each(view, tables, scan, |image| images.push(image))?;
    Ok(ScanPage { images, next })
}

/// Answers where the next page begins.
pub(crate) fn scan_each(
    view: &View,
    tables: &Tables,
    scan: &Scan,
    mut take: impl FnMut(Record),
) -> Result<Option<ScanPosition>, EngineError> {
    tables.check(scan.collection)?;
    let number = scan.collection.number();
    let place = |at: &ScanPosition| [&[number][..], &at.0].concat();
    let from = match &scan.after {
        Some(after) => Bound::Excluded(place(after)),
        None => Bound::Included(vec![number]),
    };
    let to = match &scan.until {
        Some(until) => Bound::Included(place(until)),
        None => Bound::Excluded(vec![number + 1]),
    };
    let limit = scan.limit.clamp(1, PAGE_RECORDS_MAX);
    let mut last = None;
    let mut left = limit;
    for entry in view.bodies(from, to) {
        let body = entry.map_err(store_failed)?;
        let id = id_of(&body.key()[1..])?;
        let mut image = decode_record(scan.collection, id, body.body()).map_err(damaged)?;
        if !scan.scope.contains(&image.key.shard_key) {
            continue;
        }
        if left == 0 {
            return Ok(last.map(|id: RecordId| ScanPosition(id.as_str().into())));
        }
        if tables.has_parts_apart(scan.collection) {
            add_parts_apart(view, &mut image)?;
        }
        left -= 1;
        if left == 0 {
            last = Some(image.key.id.clone());
        }
        take(image);
    }
    Ok(None)
}

pub(crate) fn journal(
    view: &View,
    from: &Position,
    limit: usize,
) -> Result<JournalPage, EngineError> {
    let from_number = number(&from.0).map_err(|_| EngineError::PositionLost)?;
    let limit = limit.clamp(1, JOURNAL_ENTRIES_MAX);
    // A row is a group, under the number of its last entry: the first one from the
    // position on holds it, or what follows it. If neither is there, something was
    // trimmed that the reader has not seen.
    let start = Bound::Included(from_number.to_be_bytes().to_vec());
    let mut entries = Vec::new();
    let mut expected = None;
    'rows: for row in view.range(Space::Journal, start, Bound::Unbounded) {
        let (key, value) = row.map_err(store_failed)?;
        let last = number(&key)?;
        let group = split_entries(&value).map_err(damaged)?;
        let first = first_entry(last, &group)?;
        if expected.map_or(first > from_number + 1, |expected| first != expected) {
            return Err(EngineError::PositionLost);
        }
        expected = Some(last + 1);
        for (found, entry) in (first..).zip(group) {
            if found <= from_number {
                continue;
            }
            if entries.len() == limit {
                break 'rows;
            }
            let (written_at, event) = decode_entry(entry).map_err(damaged)?;
            entries.push(JournalEntry {
                position: position(found),
                written_at,
                event,
            });
        }
    }
    // Nothing at or after the position: fine at the very beginning, otherwise
    // the position is not from this journal, whose last entry is never trimmed.
    if expected.is_none() && from_number != 0 {
        return Err(EngineError::PositionLost);
    }
    let next = entries
        .last()
        .map_or_else(|| from.clone(), |entry| entry.position.clone());
    Ok(JournalPage { entries, next })
}

fn by_id(view: &View, tables: &Tables, query: &Query) -> Result<Vec<SharedRecord>, EngineError> {
    let id = query.equals[0]
        .as_text()
        .and_then(|id| RecordId::new(id).ok());
    let past = |id: &RecordId| query.after.as_ref().is_none_or(|after| *id > after.id);
    let Some(id) = id.filter(past) else {
        return Ok(Vec::new());
    };
    Ok(get_in(view, tables, query.path.shape().collection, &id)?
        .into_iter()
        .collect())
}

fn by_pointers(
    view: &View,
    tables: &Tables,
    table: &PointerTable,
    query: &Query,
    context: ReadContext,
    limit: usize,
) -> Result<Vec<SharedRecord>, EngineError> {
    let (from, to) = bounds(table, query)?;
    let mut records = Vec::new();
    for row in view.range(Space::Paths, from, to) {
        let (row, length) = row.map_err(store_failed)?;
        let length = usize::from(*length.first().unwrap_or(&0));
        let start = row
            .len()
            .checked_sub(length)
            .ok_or(Damaged("a pointer is cut short"))
            .map_err(damaged)?;
        let id = id_of(&row[start..])?;
        let record =
            get_in(view, tables, table.collection, &id)?.ok_or_else(|| EngineError::Damaged {
                reason: format!("{} points to no record", table.name),
            })?;
        if record.live_at(context.now).is_some() {
            records.push(record);
            if records.len() == limit {
                break;
            }
        }
    }
    Ok(records)
}

/// The rows between which the page lies: the given values, then the sort
/// range, then the cursor.
fn bounds(table: &PointerTable, query: &Query) -> Result<(RowBound, RowBound), EngineError> {
    let shape = query.path.shape();
    let mut prefix = vec![table.number];
    for (field, way) in &table.columns()[..shape.equals.len()] {
        let index = shape.equals.iter().position(|given| given == field);
        let value = index.and_then(|index| query.equals.get(index));
        put(
            &mut prefix,
            value.expect("a plan has the path's fields first"),
            *way,
        )?;
    }
    let sorted = |value: &Value| {
        let mut key = prefix.clone();
        let way = shape.sort.map_or(Direction::Ascending, |(_, way)| way);
        put(&mut key, value, way).map(|()| key)
    };
    let (first, last) = match shape.sort {
        Some((_, Direction::Descending)) => (&query.range.most, &query.range.least),
        _ => (&query.range.least, &query.range.most),
    };
    let mut from = Bound::Included(match first {
        Some(value) => sorted(value)?,
        None => prefix.clone(),
    });
    if let Some(after) = &query.after {
        let mut place = match &after.sort {
            Some(value) => sorted(value)?,
            None => prefix.clone(),
        };
        place.extend_from_slice(after.id.as_str().as_bytes());
        if !matches!(&from, Bound::Included(first) if *first > place) {
            from = Bound::Excluded(place);
        }
    }
    let to = match last {
        Some(value) => successor(sorted(value)?),
        None => successor(prefix),
    };
    Ok((from, to))
}

/// Past everything that starts with `prefix`.
pub(crate) fn successor(mut prefix: Vec<u8>) -> Bound<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        if last < 0xff {
            prefix.push(last + 1);
            return Bound::Excluded(prefix);
        }
    }
    Bound::Unbounded
}

pub(crate) fn get_in(
    view: &View,
    tables: &Tables,
    collection: Collection,
    id: &RecordId,
) -> Result<Option<SharedRecord>, EngineError> {
    let key = record_key(collection, id);
    let is_kept = RecordCache::keeps(collection);
    if is_kept && let Some(record) = view.cached(&key) {
        return Ok(Some(record));
    }
    match view.body(&key).map_err(store_failed)? {
        Some(body) => Ok(Some(decode(view, tables, collection, id, &body)?)),
        None => Ok(None),
    }
}

fn decode(
    view: &View,
    tables: &Tables,
    collection: Collection,
    id: &RecordId,
    body: &Entry,
) -> Result<SharedRecord, EngineError> {
    let mut record = decode_record(collection, id.clone(), body.body()).map_err(damaged)?;
    if tables.has_parts_apart(collection) {
        add_parts_apart(view, &mut record)?;
    }
    let record = SharedRecord::from(record);
    if RecordCache::keeps(collection) {
        view.cache(body.key(), record.clone());
    }
    Ok(record)
}

/// A record as far as its rows follow from it, and no further.
pub(crate) fn root_of(
    view: &View,
    tables: &Tables,
    (collection, id): (Collection, RecordId),
    fields: &[Field],
    body: &Entry,
) -> Result<Record, EngineError> {
    let mut root = decode_root(collection, id, fields, body.body()).map_err(damaged)?;
    if tables.has_parts_apart(collection) {
        add_parts_apart(view, &mut root)?;
    }
    Ok(root)
}

fn add_parts_apart(view: &View, record: &mut Record) -> Result<(), EngineError> {
    let prefix = parts_prefix(record.key.collection, &record.key.id);
    let rows = view.range(
        Space::Parts,
        Bound::Included(prefix.clone()),
        successor(prefix.clone()),
    );
    for row in rows {
        let (row, value) = row.map_err(store_failed)?;
        let key = decode_part_key(&row[prefix.len()..]).map_err(damaged)?;
        record
            .parts
            .insert(key, decode_part(&value).map_err(damaged)?);
    }
    Ok(())
}

fn put(key: &mut Vec<u8>, value: &Value, way: Direction) -> Result<(), EngineError> {
    encode_value(key, value, way).map_err(|error| EngineError::Invalid {
        reason: error.to_string(),
    })
}

pub(crate) fn id_of(bytes: &[u8]) -> Result<RecordId, EngineError> {
    let id = std::str::from_utf8(bytes)
        .ok()
        .and_then(|id| RecordId::new(id).ok());
    id.ok_or_else(|| EngineError::Damaged {
        reason: "a stored id is malformed".to_owned(),
    })
}

/// A long read, on a thread of its own: the one that asks serves shoppers, too. Whoever does not wait for it any more
/// leaves it to its end.
pub(crate) async fn apart<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
) -> Result<T, EngineError> {
    match tokio::task::spawn_blocking(read).await {
        Ok(page) => page,
        Err(ended) => Err(EngineError::Unavailable {
            reason: format!("a read did not come to its end: {ended}"),
        }),
    }
}

pub(crate) fn damaged(error: Damaged) -> EngineError {
    EngineError::Damaged {
        reason: error.to_string(),
    }
}

/// A read that failed changed nothing.
pub(crate) fn store_failed(error: StoreError) -> EngineError {
    let reason = error.to_string();
    match error {
        StoreError::Damaged(_) => EngineError::Damaged { reason },
        StoreError::Io(_) | StoreError::Library(_) => EngineError::Unavailable { reason },
    }
}
