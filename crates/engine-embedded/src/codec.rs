//! Records and journal entries as bytes on disk.
//!
//! Written by hand rather than derived: it is the disk format, it must not
//! change when a type is renamed, and field names cost one byte each. Numbers
//! are LEB128 varints; every length is checked when read.

mod input;
mod output;

use std::collections::BTreeMap;

use engine_api::layout::{Collection, Field, PartKind};
use engine_api::{
    ChangeKind, Content, Fence, Header, JournalEvent, Part, PartKey, Record, RecordId, RecordKey,
    Timestamp,
};

use input::Input;
pub(crate) use output::put_part_key;
use output::{put_content, put_fence, put_part, put_revision, put_shard_key, put_signed, put_text};

const RECORD_FORMAT: u8 = 1;
const ENTRY_CHANGED: u8 = 1;
const ENTRY_FENCED: u8 = 2;
const ENTRY_LENGTH_BYTES: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stored bytes are damaged: {0}")]
pub(crate) struct Damaged(pub &'static str);

type Read<T> = Result<T, Damaged>;

pub(crate) fn encode_record<'a>(
    record: &Record,
    parts: impl Iterator<Item = (&'a PartKey, &'a Part)>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.push(RECORD_FORMAT);
    put_shard_key(&mut out, &record.key);
    put_revision(&mut out, record.header.revision);
    put_revision(&mut out, record.header.cleared);
    put_content(&mut out, &record.header.content);
    for (key, part) in parts {
        put_part_key(&mut out, key);
        put_part(&mut out, part);
    }
    out
}

pub(crate) fn decode_record(collection: Collection, id: RecordId, bytes: &[u8]) -> Read<Record> {
    decode_some(collection, id, bytes, |_| true, |_| true)
}

/// A record without the header fields and the living parts that no row follows from.
pub(crate) fn decode_root(
    collection: Collection,
    id: RecordId,
    fields: &[Field],
    bytes: &[u8],
) -> Read<Record> {
    let is_wanted = |field| fields.contains(&field);
    let is_expiry = |key: &PartKey| key.kind() == PartKind::Expiry;
    decode_some(collection, id, bytes, is_wanted, is_expiry)
}

/// With these header fields, these living parts, and every removed one.
fn decode_some(
    collection: Collection,
    id: RecordId,
    bytes: &[u8],
    has_field: impl Fn(Field) -> bool,
    has_part: impl Fn(&PartKey) -> bool,
) -> Read<Record> {
    let mut input = Input(bytes);
    if input.byte()? != RECORD_FORMAT {
        return Err(Damaged("a record has an unknown format"));
    }
    let shard_key = input.shard_key(&id)?;
    let header = Header {
        revision: input.revision()?,
        cleared: input.revision()?,
        content: input.content_of(has_field)?,
    };
    let mut parts = BTreeMap::new();
    while !input.0.is_empty() {
        let key = input.part_key()?;
        let is_wanted = has_part(&key);
        let part = Part {
            revision: input.revision()?,
            content: input.content_of(|_| is_wanted)?,
        };
        if is_wanted || part.content == Content::Removed {
            parts.insert(key, part);
        }
    }
    Ok(Record {
        key: RecordKey {
            collection,
            id,
            shard_key,
        },
        header,
        parts,
    })
}

pub(crate) fn encode_part(part: &Part) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    put_part(&mut out, part);
    out
}

pub(crate) fn decode_part(bytes: &[u8]) -> Read<Part> {
    let mut input = Input(bytes);
    let part = input.part()?;
    input.end()?;
    Ok(part)
}

pub(crate) fn decode_part_key(bytes: &[u8]) -> Read<PartKey> {
    let mut input = Input(bytes);
    let key = input.part_key()?;
    input.end()?;
    Ok(key)
}

/// Adds an entry behind those of the same group, its length before it.
pub(crate) fn put_entry(out: &mut Vec<u8>, written_at: Timestamp, event: &JournalEvent) {
    let start = out.len();
    out.extend_from_slice(&[0; ENTRY_LENGTH_BYTES]);
    match event {
        JournalEvent::Changed {
            key,
            kind,
            revision,
        } => {
            out.push(ENTRY_CHANGED);
            put_signed(out, i128::from(written_at.unix_micros()));
            out.push(match kind {
                ChangeKind::Written => 1,
                ChangeKind::Removed => 2,
            });
            put_revision(out, *revision);
            out.push(key.collection.number());
            put_text(out, key.id.as_str());
            put_shard_key(out, key);
        }
        JournalEvent::Fenced { fence } => {
            out.push(ENTRY_FENCED);
            put_signed(out, i128::from(written_at.unix_micros()));
            put_fence(out, fence);
        }
    }
    let length = u32::try_from(out.len() - start - ENTRY_LENGTH_BYTES);
    let length = length.expect("keys and fences are bounded").to_le_bytes();
    out[start..start + ENTRY_LENGTH_BYTES].copy_from_slice(&length);
}

/// The entries of a group, in their order.
pub(crate) fn split_entries(mut row: &[u8]) -> Read<Vec<&[u8]>> {
    let mut entries = Vec::new();
    while let Some((length, rest)) = row.split_first_chunk::<ENTRY_LENGTH_BYTES>() {
        let length = usize::try_from(u32::from_le_bytes(*length)).ok();
        let split = length.and_then(|length| rest.split_at_checked(length));
        let (entry, rest) = split.ok_or(Damaged("a journal entry is cut short"))?;
        entries.push(entry);
        row = rest;
    }
    match row {
        [] => Ok(entries),
        _ => Err(Damaged("a journal row has bytes left over")),
    }
}

pub(crate) fn decode_entry(bytes: &[u8]) -> Read<(Timestamp, JournalEvent)> {
    let mut input = Input(bytes);
    let tag = input.byte()?;
    let written_at = input.timestamp()?;
    let event = match tag {
        ENTRY_CHANGED => {
            let kind = match input.byte()? {
                1 => ChangeKind::Written,
                2 => ChangeKind::Removed,
                _ => return Err(Damaged("a journal entry has an unknown kind")),
            };
            let revision = input.revision()?;
            let collection = input.collection()?;
            let id =
                RecordId::new(input.text()?).map_err(|_| Damaged("an id has a wrong length"))?;
            let shard_key = input.shard_key(&id)?;
            JournalEvent::Changed {
                key: RecordKey {
                    collection,
                    id,
                    shard_key,
                },
                kind,
                revision,
            }
        }
        ENTRY_FENCED => JournalEvent::Fenced {
            fence: input.fence()?,
        },
        _ => return Err(Damaged("a journal entry has an unknown tag")),
    };
    input.end()?;
    Ok((written_at, event))
}

pub(crate) fn encode_fences(fences: &[Fence]) -> Vec<u8> {
    let mut out = Vec::new();
    fences.iter().for_each(|fence| put_fence(&mut out, fence));
    out
}

pub(crate) fn decode_fences(bytes: &[u8]) -> Read<Vec<Fence>> {
    let mut input = Input(bytes);
    let mut fences = Vec::new();
    while !input.0.is_empty() {
        fences.push(input.fence()?);
    }
    Ok(fences)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use engine_api::layout::{Fields, Scope, ShardKey, Slot, SlotRange, Value};
    use engine_api::{Generation, Revision, expiry_fields};
    use proptest::prelude::*;
    use rust_decimal::Decimal;

    use super::*;
    use crate::stray::following;
    use crate::tables::Tables;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            ".{0,8}".prop_map(Value::Text),
            any::<i64>().prop_map(Value::Int),
            (any::<i64>(), 0u32..=28).prop_map(|(m, s)| Value::Decimal(Decimal::new(m, s))),
            any::<i64>().prop_map(|at| Value::Timestamp(Timestamp::from_unix_micros(at))),
            any::<IpAddr>().prop_map(Value::Inet),
            prop::collection::vec(any::<u8>(), 0..8).prop_map(Value::Blob),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                prop::collection::btree_map("(|price|name|.{0,4})", inner.clone(), 0..4)
                    .prop_map(Value::Map),
                prop::collection::vec(inner, 0..4).prop_map(Value::List),
            ]
        })
    }

    fn content() -> impl Strategy<Value = Content> {
        prop_oneof![
            Just(Content::Removed),
            prop::collection::vec((prop::sample::select(Field::ALL), value()), 0..6).prop_map(
                |pairs| {
                    let mut fields = Fields::new();
                    for (field, value) in pairs {
                        // Values of another kind are not part of this record.
                        let _ = fields.insert(field, value);
                    }
                    Content::Live(fields)
                }
            ),
        ]
    }

    fn revision() -> impl Strategy<Value = Revision> {
        (0i64..i64::MAX).prop_map(|number| Revision::from_i64(number).unwrap())
    }

    prop_compose! {
        fn record()(
            id in ".{1,12}", other_key in any::<bool>(), header in content(),
            revision in revision(), cleared in revision(),
            parts in prop::collection::btree_map(".{1,5}", (revision(), content()), 0..4),
            expiry in prop::option::of((revision(), any::<i64>())),
        ) -> Record {
            let id = RecordId::new(id).unwrap();
            let mut key = RecordKey::by_id(Collection::Carts, id);
            if other_key {
                key.shard_key = ShardKey::of(&[Value::text("user"), Value::Int(7)]).unwrap();
            }
            let mut parts: BTreeMap<_, _> = parts.into_iter()
                .map(|(product, (revision, content))| (PartKey::line(&product), Part { revision, content }))
                .collect();
            if let Some((revision, at)) = expiry {
                let fields = expiry_fields(Timestamp::from_unix_micros(at));
                parts.insert(PartKey::expiry(), Part::live(revision, fields));
            }
            Record { key, header: Header { revision, cleared, content: header }, parts }
        }
    }

    proptest! {
        #[test]
        fn a_record_comes_back_as_it_was(record in record()) {
            let bytes = encode_record(&record, record.parts.iter());
            let back = decode_record(Collection::Carts, record.key.id.clone(), &bytes).unwrap();
            prop_assert_eq!(back, record);
        }

        #[test]
        fn the_same_rows_follow_from_a_record_and_its_root(record in record()) {
            let layout = engine_api::layout::embedded();
            let tables = Tables::new(&layout.collections[&Collection::Carts].live.tables).unwrap();
            let bytes = encode_record(&record, record.parts.iter());
            let fields = tables.row_fields(Collection::Carts);
            let root = decode_root(Collection::Carts, record.key.id.clone(), &fields, &bytes).unwrap();
            let rows = |of: &Record| format!("{:?}", following(&tables, of));
            prop_assert_eq!(rows(&root), rows(&record));
        }

        #[test]
        fn damaged_bytes_are_refused_without_panic(record in record(), cut in any::<prop::sample::Index>(), flip in any::<u8>()) {
            let mut bytes = encode_record(&record, record.parts.iter());
            let at = cut.index(bytes.len());
            bytes[at] ^= flip;
            let _ = decode_record(Collection::Carts, record.key.id.clone(), &bytes);
            let _ = decode_record(Collection::Carts, record.key.id.clone(), &bytes[..at]);
            let _ = decode_root(Collection::Carts, record.key.id.clone(), &[], &bytes);
            let _ = decode_entry(&bytes);
            let _ = decode_fences(&bytes);
            let _ = decode_part(&bytes);
        }

        #[test]
        fn a_journal_entry_comes_back_as_it_was(record in record(), at in any::<i64>()) {
            let at = Timestamp::from_unix_micros(at);
            let event = JournalEvent::Changed {
                key: record.key, kind: ChangeKind::Removed, revision: record.header.revision,
            };
            let mut row = Vec::new();
            put_entry(&mut row, at, &event);
            put_entry(&mut row, at, &event);
            let entries = split_entries(&row).unwrap();
            prop_assert_eq!(entries.len(), 2);
            for entry in entries {
                prop_assert_eq!(decode_entry(entry).unwrap(), (at, event.clone()));
            }
            for cut in 1..row.len() / 2 {
                prop_assert!(split_entries(&row[..cut]).is_err());
            }
        }
    }

    #[test]
    fn fences_come_back_as_they_were() {
        let key = |text: &str| ShardKey::of_text(text);
        let slot = |number| Slot::try_from(number).unwrap();
        let scopes = [
            Scope::All,
            Scope::Slots(vec![SlotRange {
                first: slot(3),
                last: slot(4095),
            }]),
            Scope::Range {
                from: None,
                to: Some(key("m")),
            },
            Scope::Keys(vec![key("a"), key("b")]),
        ];
        let fences: Vec<Fence> = scopes
            .into_iter()
            .map(|scope| Fence {
                collection: Collection::Orders,
                scope,
                generation: Generation(9),
            })
            .collect();
        assert_eq!(decode_fences(&encode_fences(&fences)).unwrap(), fences);
    }
}
