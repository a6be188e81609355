//! A partition's rows as a record, and a part as a row.

use std::collections::BTreeMap;

use engine_api::{
    Content, EngineError, Header, Part, PartKey, Record, RecordId, RecordKey, Revision,
};
use layout::{Collection, Fields, PartKind, ShardKey};
use scylla::value::{CqlValue, Row};

use crate::cell::{fields_from_text, fields_to_text, from_cell};
use crate::connection::{Cells, Columns, number, text};
use crate::failure::damaged;

/// Rows of parts that came with a decision, written by conditional batches only.
pub(super) const ORIGIN_DECIDED: i64 = 0;
/// Rows of parts that came with a patch, written by client timestamp only.
pub(super) const ORIGIN_PATCHED: i64 = 1;

/// A partition as it was read: what a decision is made on, and bound to.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    pub record: Option<Record>,
    /// The newest row that no header owns: what a collected record has left.
    pub orphans_newest: Revision,
    pub(super) turn: Option<i64>,
    pub(super) decided: Vec<PartKey>,
    pub(super) patched: BTreeMap<PartKey, Revision>,
}

/// The record that a partition holds, and what is needed to change it.
pub(super) fn assemble(
    collection: Collection,
    id: &str,
    rows: Vec<Row>,
) -> Result<Stored, EngineError> {
    let mut stored = Stored::default();
    let mut parts: BTreeMap<PartKey, Part> = BTreeMap::new();
    let mut header = None;
    for row in rows {
        let mut columns = Columns::of(row);
        stored.turn = columns.number()?;
        let found = read_header(collection, &mut columns)?;
        header = header.or(found);
        let Some(origin) = columns.number()? else {
            continue;
        };
        let (key, part) = read_part(&mut columns)?;
        if origin == ORIGIN_PATCHED {
            stored.patched.insert(key.clone(), part.revision);
        } else {
            stored.decided.push(key.clone());
        }
        if parts
            .get(&key)
            .is_none_or(|other| other.revision < part.revision)
        {
            parts.insert(key, part);
        }
    }
    let Some((shard_key, header)) = header else {
        stored.orphans_newest = parts
            .values()
            .map(|part| part.revision)
            .max()
            .unwrap_or(Revision::ZERO);
        return Ok(stored);
    };
    parts.retain(|_, part| part.revision > header.cleared);
    let id = RecordId::new(id).map_err(damaged)?;
    let key = RecordKey {
        collection,
        id,
        shard_key,
    };
    stored.record = Some(Record { key, header, parts });
    Ok(stored)
}

fn read_header(
    collection: Collection,
    columns: &mut Columns,
) -> Result<Option<(ShardKey, Header)>, EngineError> {
    let shard_key = columns
        .bytes()?
        .map(ShardKey::from_bytes)
        .transpose()
        .map_err(damaged)?;
    let (revision, cleared, live) = (columns.number()?, columns.number()?, columns.truth()?);
    let mut fields = Fields::new();
    for field in collection.header_fields() {
        if let Some(cell) = columns.cell() {
            fields
                .insert(*field, from_cell(*field, &cell)?)
                .map_err(damaged)?;
        }
    }
    match (shard_key, revision, cleared, live) {
        (None, None, None, None) => Ok(None),
        (Some(shard_key), Some(revision), Some(cleared), Some(live)) => {
            let content = if live {
                Content::Live(fields)
            } else {
                Content::Removed
            };
            let header = Header {
                revision: numbered(revision)?,
                cleared: numbered(cleared)?,
                content,
            };
            Ok(Some((shard_key, header)))
        }
        half => Err(damaged(format!("half a header: {half:?}"))),
    }
}

fn read_part(columns: &mut Columns) -> Result<(PartKey, Part), EngineError> {
    let missing = || damaged("a part's row is cut short");
    let mut name = || columns.text()?.ok_or_else(missing);
    let (kind, names) = (name()?, [name()?, name()?]);
    let kind =
        PartKind::named(&kind).ok_or_else(|| damaged(format!("no parts are called {kind}")))?;
    let path = names.into_iter().take(kind.path_len()).collect();
    let key = PartKey::new(kind, path).map_err(damaged)?;
    let revision = numbered(columns.number()?.ok_or_else(missing)?)?;
    let live = columns.truth()?.ok_or_else(missing)?;
    let content = columns.text()?.ok_or_else(missing)?;
    let content = if live {
        Content::Live(fields_from_text(&content)?)
    } else {
        Content::Removed
    };
    Ok((key, Part { revision, content }))
}

/// The columns that name a part's row, after the origin.
pub(super) fn row_cells(id: &str, key: &PartKey) -> [Option<CqlValue>; 4] {
    let name = |index: usize| text(key.path().get(index).map_or("", String::as_str));
    [text(id), text(key.kind().name()), name(0), name(1)]
}

/// A mark has an empty content rather than none: a missing cell would be a
/// tombstone for every reader to step over.
pub(super) fn part_cells(id: &str, key: &PartKey, part: &Part) -> Cells {
    let live = part.content.live();
    let content = live.map(fields_to_text).unwrap_or_default();
    let mut cells: Cells = row_cells(id, key).into();
    cells.extend([
        number(part.revision.to_i64()),
        Some(CqlValue::Boolean(live.is_some())),
        text(content),
    ]);
    cells
}

pub(crate) fn numbered(number: i64) -> Result<Revision, EngineError> {
    Revision::from_i64(number).ok_or_else(|| damaged(format!("{number} is not a revision")))
}
