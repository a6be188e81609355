//! A partition's rows as a record, and a part as a row.

use std::collections::BTreeMap;

use engine_api::{
    Content, EngineError, Header, Part, PartKey, Record, RecordId, RecordKey, Revision,
};
use layout::{Collection, Fields, PartKind, ShardKey, Value};
use scylla::value::{CqlValue, Row};

use crate::cell::{fields_from_text, fields_to_text};
use crate::column::HeaderColumn;
use crate::connection::{Cells, Columns, number, text};
use crate::failure::damaged;

/// The row of the header, written by conditional batches only.
pub(super) const ORIGIN_HEADER: i64 = 0;
/// Rows of parts that came with a decision, written by conditional batches only.
pub(super) const ORIGIN_DECIDED: i64 = 1;
/// Rows of parts that came with a patch, written by client timestamp only.
pub(super) const ORIGIN_PATCHED: i64 = 2;

/// What a row of the table is made of.
#[derive(Debug)]
pub(super) struct Shape {
    pub header: Vec<HeaderColumn>,
    pub has_parts: bool,
}

impl Shape {
    /// The columns that `assemble` takes apart, in this order.
    pub fn columns(&self) -> Vec<String> {
        let fixed = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        let mut columns = fixed(&["turn", "shard_key", "revision", "cleared", "live"]);
        columns.extend(self.header.iter().map(|column| column.name()));
        if self.has_parts {
            columns.insert(0, "origin".to_owned());
            columns.extend(fixed(&[
                "kind",
                "name",
                "subname",
                "part_revision",
                "part_live",
                "content",
            ]));
        }
        columns
    }
}

/// A partition as it was read: what a decision is made on, and bound to.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    pub record: Option<Record>,
    /// The newest row that no header owns: what a collected record has left.
    pub orphans_newest: Revision,
    /// Below zero: the record is condemned (W47).
    pub(super) turn: Option<i64>,
    pub(super) decided: Vec<PartKey>,
    pub(super) patched: BTreeMap<PartKey, Revision>,
}

impl Stored {
    pub fn is_condemned(&self) -> bool {
        self.turn.is_some_and(|turn| turn < 0)
    }

    /// Above every turn the partition has had.
    pub(super) fn next_turn(&self) -> i64 {
        self.turn.unwrap_or(0).saturating_abs() + 1
    }

    pub fn turn(&self) -> Option<i64> {
        self.turn
    }

    /// The same partition, taken for one without a record; and the record.
    pub fn without_record(self) -> (Stored, Option<Record>) {
        let emptied = Stored {
            record: None,
            orphans_newest: Revision::ZERO,
            patched: BTreeMap::new(),
            ..self
        };
        (emptied, self.record)
    }
}

/// The record that the rows make, and what is needed to change it.
pub(super) fn assemble(
    collection: Collection,
    shape: &Shape,
    id: &str,
    rows: Vec<Row>,
) -> Result<Stored, EngineError> {
    let mut stored = Stored::default();
    let mut parts: BTreeMap<PartKey, Part> = BTreeMap::new();
    let mut header = None;
    for row in rows {
        let mut columns = Columns::of(row);
        let origin = match shape.has_parts {
            true => columns.number()?.unwrap_or(ORIGIN_HEADER),
            false => ORIGIN_HEADER,
        };
        let turn = columns.number()?;
        let found = read_header(collection, shape, id, &mut columns)?;
        if origin == ORIGIN_HEADER {
            stored.turn = turn;
            header = found;
            continue;
        }
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
    shape: &Shape,
    id: &str,
    columns: &mut Columns,
) -> Result<Option<(ShardKey, Header)>, EngineError> {
    let shard_key = columns
        .bytes()?
        .map(ShardKey::from_bytes)
        .transpose()
        .map_err(damaged)?;
    let (revision, cleared, live) = (columns.number()?, columns.number()?, columns.truth()?);
    let mut fields = Fields::new();
    for column in &shape.header {
        if let Some(cell) = columns.cell() {
            fields
                .insert(column.field, column.value(&cell)?)
                .map_err(damaged)?;
        }
    }
    match (shard_key, revision, cleared, live) {
        (None, None, None, None) => Ok(None),
        (Some(shard_key), Some(revision), Some(cleared), Some(live)) => {
            let content = if live {
                Content::Live(fields.with(collection.id_field(), Value::text(id)))
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

/// The columns that name a part's row, around the origin.
pub(super) fn row_cells(mut record: Cells, key: &PartKey) -> Cells {
    let name = |index: usize| text(key.path().get(index).map_or("", String::as_str));
    record.extend([text(key.kind().name()), name(0), name(1)]);
    record
}

/// A mark has an empty content rather than none: a missing cell would be a
/// tombstone for every reader to step over.
pub(super) fn part_cells(record: Cells, key: &PartKey, part: &Part) -> Cells {
    let live = part.content.live();
    let content = live.map(fields_to_text).unwrap_or_default();
    let mut cells = row_cells(record, key);
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
