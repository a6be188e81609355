//! Records and journal entries as bytes on disk.
//!
//! Written by hand rather than derived: it is the disk format, it must not
//! change when a type is renamed, and field names cost one byte each. Numbers
//! are LEB128 varints; every length is checked when read.

use std::collections::BTreeMap;
use std::net::IpAddr;

use engine_api::layout::{
    Collection, Field, Fields, PartKind, Scope, ShardKey, Slot, SlotRange, Value,
};
use engine_api::{
    ChangeKind, Content, Fence, Generation, Header, JournalEvent, Part, PartKey, Record, RecordId,
    RecordKey, Revision, Timestamp,
};
use rust_decimal::Decimal;

const RECORD_FORMAT: u8 = 1;
const ENTRY_CHANGED: u8 = 1;
const ENTRY_FENCED: u8 = 2;

/// Maps and lists nest at most this deep; deeper bytes are damaged.
const DEPTH_MAX: u32 = 16;

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
    let mut input = Input(bytes);
    if input.byte()? != RECORD_FORMAT {
        return Err(Damaged("a record has an unknown format"));
    }
    let shard_key = input.shard_key(&id)?;
    let header = Header {
        revision: input.revision()?,
        cleared: input.revision()?,
        content: input.content()?,
    };
    let mut parts = BTreeMap::new();
    while !input.0.is_empty() {
        let key = input.part_key()?;
        parts.insert(key, input.part()?);
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

pub(crate) fn put_part_key(out: &mut Vec<u8>, key: &PartKey) {
    out.push(key.kind() as u8);
    key.path().iter().for_each(|text| put_text(out, text));
}

pub(crate) fn decode_part_key(bytes: &[u8]) -> Read<PartKey> {
    let mut input = Input(bytes);
    let key = input.part_key()?;
    input.end()?;
    Ok(key)
}

pub(crate) fn encode_entry(written_at: Timestamp, event: &JournalEvent) -> Vec<u8> {
    let mut out = Vec::with_capacity(96);
    match event {
        JournalEvent::Changed {
            key,
            kind,
            revision,
        } => {
            out.push(ENTRY_CHANGED);
            put_signed(&mut out, i128::from(written_at.unix_micros()));
            out.push(match kind {
                ChangeKind::Written => 1,
                ChangeKind::Removed => 2,
            });
            put_revision(&mut out, *revision);
            out.push(key.collection.number());
            put_text(&mut out, key.id.as_str());
            put_shard_key(&mut out, key);
        }
        JournalEvent::Fenced { fence } => {
            out.push(ENTRY_FENCED);
            put_signed(&mut out, i128::from(written_at.unix_micros()));
            put_fence(&mut out, fence);
        }
    }
    out
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

fn put_number(out: &mut Vec<u8>, mut number: u128) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_signed(out: &mut Vec<u8>, number: i128) {
    put_number(out, ((number << 1) ^ (number >> 127)) as u128);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u128);
    out.extend_from_slice(bytes);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

fn put_revision(out: &mut Vec<u8>, revision: Revision) {
    put_number(out, revision.to_i64() as u128);
}

/// Most records are routed by their id, which stands in the key already.
fn put_shard_key(out: &mut Vec<u8>, key: &RecordKey) {
    if key.shard_key == ShardKey::of_text(key.id.as_str()) {
        put_bytes(out, &[]);
    } else {
        put_bytes(out, key.shard_key.as_bytes());
    }
}

fn put_part(out: &mut Vec<u8>, part: &Part) {
    put_revision(out, part.revision);
    put_content(out, &part.content);
}

fn put_content(out: &mut Vec<u8>, content: &Content) {
    match content {
        Content::Removed => out.push(0),
        Content::Live(fields) => {
            out.push(1);
            put_number(out, fields.len() as u128);
            for (field, value) in fields.iter() {
                out.push(field.number());
                put_value(out, value);
            }
        }
    }
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Text(text) => {
            out.push(1);
            put_text(out, text);
        }
        Value::Int(int) => {
            out.push(2);
            put_signed(out, i128::from(*int));
        }
        Value::Decimal(decimal) => {
            out.push(3);
            out.push(decimal.scale() as u8);
            put_signed(out, decimal.mantissa());
        }
        Value::Timestamp(timestamp) => {
            out.push(4);
            put_signed(out, i128::from(timestamp.unix_micros()));
        }
        Value::Inet(IpAddr::V4(address)) => {
            out.push(5);
            put_bytes(out, &address.octets());
        }
        Value::Inet(IpAddr::V6(address)) => {
            out.push(5);
            put_bytes(out, &address.octets());
        }
        Value::Map(map) => {
            out.push(6);
            put_number(out, map.len() as u128);
            for (key, value) in map {
                put_map_key(out, key);
                put_value(out, value);
            }
        }
        Value::List(list) => {
            out.push(7);
            put_number(out, list.len() as u128);
            list.iter().for_each(|value| put_value(out, value));
        }
        Value::Blob(blob) => {
            out.push(8);
            put_bytes(out, blob);
        }
    }
}

/// A key that is the name of a field, as in the lines of an order, is stored as
/// its number: a zero length and then the number, or another zero for no text.
fn put_map_key(out: &mut Vec<u8>, key: &str) {
    match Field::named(key) {
        Some(field) => out.extend_from_slice(&[0, field.number()]),
        None if key.is_empty() => out.extend_from_slice(&[0, 0]),
        None => put_text(out, key),
    }
}

fn put_fence(out: &mut Vec<u8>, fence: &Fence) {
    out.push(fence.collection.number());
    put_number(out, u128::from(fence.generation.0));
    match &fence.scope {
        Scope::All => out.push(0),
        Scope::Slots(ranges) => {
            out.push(1);
            put_number(out, ranges.len() as u128);
            for range in ranges {
                put_number(out, u128::from(range.first.number()));
                put_number(out, u128::from(range.last.number()));
            }
        }
        Scope::Range { from, to } => {
            out.push(2);
            for bound in [from, to] {
                put_bytes(out, bound.as_ref().map_or(&[][..], ShardKey::as_bytes));
            }
        }
        Scope::Keys(keys) => {
            out.push(3);
            put_number(out, keys.len() as u128);
            keys.iter().for_each(|key| put_bytes(out, key.as_bytes()));
        }
    }
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn end(&self) -> Read<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Damaged("bytes are left over"))
        }
    }

    fn byte(&mut self) -> Read<u8> {
        let (byte, rest) = self.0.split_first().ok_or(Damaged("bytes are missing"))?;
        self.0 = rest;
        Ok(*byte)
    }

    fn number(&mut self) -> Read<u128> {
        let mut number = 0u128;
        for shift in (0..128).step_by(7) {
            let byte = self.byte()?;
            number |= u128::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Damaged("a number is too long"))
    }

    fn signed(&mut self) -> Read<i128> {
        let number = self.number()?;
        Ok((number >> 1) as i128 ^ -((number & 1) as i128))
    }

    /// A count of things that take at least one byte each.
    fn count(&mut self) -> Read<usize> {
        usize::try_from(self.number()?)
            .ok()
            .filter(|count| *count <= self.0.len())
            .ok_or(Damaged("a length is longer than what is left"))
    }

    fn bytes(&mut self) -> Read<&'a [u8]> {
        let count = self.count()?;
        let (bytes, rest) = self.0.split_at(count);
        self.0 = rest;
        Ok(bytes)
    }

    fn text(&mut self) -> Read<String> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes)
            .map(str::to_owned)
            .map_err(|_| Damaged("a text is not UTF-8"))
    }

    fn revision(&mut self) -> Read<Revision> {
        i64::try_from(self.number()?)
            .ok()
            .and_then(Revision::from_i64)
            .ok_or(Damaged("a revision is out of range"))
    }

    fn timestamp(&mut self) -> Read<Timestamp> {
        let micros =
            i64::try_from(self.signed()?).map_err(|_| Damaged("a time is out of range"))?;
        Ok(Timestamp::from_unix_micros(micros))
    }

    fn collection(&mut self) -> Read<Collection> {
        Collection::from_number(self.byte()?).ok_or(Damaged("a collection is unknown"))
    }

    fn shard_key(&mut self, id: &RecordId) -> Read<ShardKey> {
        match self.bytes()? {
            [] => Ok(ShardKey::of_text(id.as_str())),
            bytes => shard_key_of(bytes),
        }
    }

    fn part_key(&mut self) -> Read<PartKey> {
        let kind =
            PartKind::from_number(self.byte()?).ok_or(Damaged("a part is of unknown kind"))?;
        let path = (0..kind.path_len())
            .map(|_| self.text())
            .collect::<Read<Vec<_>>>()?;
        PartKey::new(kind, path).map_err(|_| Damaged("a part's name has a wrong length"))
    }

    fn part(&mut self) -> Read<Part> {
        Ok(Part {
            revision: self.revision()?,
            content: self.content()?,
        })
    }

    fn content(&mut self) -> Read<Content> {
        match self.byte()? {
            0 => Ok(Content::Removed),
            1 => {
                let mut fields = Fields::new();
                for _ in 0..self.count()? {
                    let field =
                        Field::from_number(self.byte()?).ok_or(Damaged("a field is unknown"))?;
                    let value = self.value(0)?;
                    fields
                        .insert(field, value)
                        .map_err(|_| Damaged("a field has a wrong kind"))?;
                }
                Ok(Content::Live(fields))
            }
            _ => Err(Damaged("a content has an unknown tag")),
        }
    }

    fn value(&mut self, depth: u32) -> Read<Value> {
        if depth > DEPTH_MAX {
            return Err(Damaged("a value is nested too deep"));
        }
        Ok(match self.byte()? {
            1 => Value::Text(self.text()?),
            2 => Value::Int(
                i64::try_from(self.signed()?).map_err(|_| Damaged("a number is out of range"))?,
            ),
            3 => {
                let scale = u32::from(self.byte()?);
                let decimal = Decimal::try_from_i128_with_scale(self.signed()?, scale);
                Value::Decimal(decimal.map_err(|_| Damaged("a decimal is out of range"))?)
            }
            4 => Value::Timestamp(self.timestamp()?),
            5 => {
                let bytes = self.bytes()?;
                let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
                let address = v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
                Value::Inet(address.map_err(|_| Damaged("an address has a wrong length"))?)
            }
            6 => {
                let mut map = BTreeMap::new();
                for _ in 0..self.count()? {
                    map.insert(self.map_key()?, self.value(depth + 1)?);
                }
                Value::Map(map)
            }
            7 => {
                let count = self.count()?;
                Value::List(
                    (0..count)
                        .map(|_| self.value(depth + 1))
                        .collect::<Read<_>>()?,
                )
            }
            8 => Value::Blob(self.bytes()?.to_vec()),
            _ => return Err(Damaged("a value has an unknown tag")),
        })
    }

    fn map_key(&mut self) -> Read<String> {
        let text = self.text()?;
        if !text.is_empty() {
            return Ok(text);
        }
        match self.byte()? {
            0 => Ok(text),
            number => {
                let field = Field::from_number(number).ok_or(Damaged("a map key is unknown"))?;
                Ok(field.name().to_owned())
            }
        }
    }

    fn fence(&mut self) -> Read<Fence> {
        let collection = self.collection()?;
        let generation = Generation(
            u64::try_from(self.number()?).map_err(|_| Damaged("a generation is out of range"))?,
        );
        let scope = match self.byte()? {
            0 => Scope::All,
            1 => {
                let count = self.count()?;
                let range = |_| {
                    Ok(SlotRange {
                        first: self.slot()?,
                        last: self.slot()?,
                    })
                };
                Scope::Slots((0..count).map(range).collect::<Read<_>>()?)
            }
            2 => Scope::Range {
                from: self.bound()?,
                to: self.bound()?,
            },
            3 => {
                let count = self.count()?;
                Scope::Keys(
                    (0..count)
                        .map(|_| shard_key_of(self.bytes()?))
                        .collect::<Read<_>>()?,
                )
            }
            _ => return Err(Damaged("a scope has an unknown tag")),
        };
        Ok(Fence {
            collection,
            scope,
            generation,
        })
    }

    fn slot(&mut self) -> Read<Slot> {
        let number =
            u16::try_from(self.number()?).map_err(|_| Damaged("a slot is out of range"))?;
        Slot::try_from(number).map_err(|_| Damaged("a slot is out of range"))
    }

    fn bound(&mut self) -> Read<Option<ShardKey>> {
        match self.bytes()? {
            [] => Ok(None),
            bytes => shard_key_of(bytes).map(Some),
        }
    }
}

fn shard_key_of(bytes: &[u8]) -> Read<ShardKey> {
    ShardKey::from_bytes(bytes.to_vec()).map_err(|_| Damaged("a shard key is malformed"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
            parts in prop::collection::btree_map(".{1,5}", (revision_and(), content()), 0..4),
        ) -> Record {
            let id = RecordId::new(id).unwrap();
            let mut key = RecordKey::by_id(Collection::Carts, id);
            if other_key {
                key.shard_key = ShardKey::of(&[Value::text("user"), Value::Int(7)]).unwrap();
            }
            let parts = parts.into_iter()
                .map(|(product, (revision, content))| (PartKey::line(&product), Part { revision, content }))
                .collect();
            Record { key, header: Header { revision, cleared, content: header }, parts }
        }
    }

    fn revision_and() -> impl Strategy<Value = Revision> {
        revision()
    }

    proptest! {
        #[test]
        fn a_record_comes_back_as_it_was(record in record()) {
            let bytes = encode_record(&record, record.parts.iter());
            let back = decode_record(Collection::Carts, record.key.id.clone(), &bytes).unwrap();
            prop_assert_eq!(back, record);
        }

        #[test]
        fn damaged_bytes_are_refused_without_panic(record in record(), cut in any::<prop::sample::Index>(), flip in any::<u8>()) {
            let mut bytes = encode_record(&record, record.parts.iter());
            let at = cut.index(bytes.len());
            bytes[at] ^= flip;
            let _ = decode_record(Collection::Carts, record.key.id.clone(), &bytes);
            let _ = decode_record(Collection::Carts, record.key.id.clone(), &bytes[..at]);
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
            prop_assert_eq!(decode_entry(&encode_entry(at, &event)).unwrap(), (at, event));
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
