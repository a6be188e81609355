//! Putting values behind one another.

use std::net::IpAddr;

use engine_api::layout::{Field, Scope, ShardKey, Value};
use engine_api::{Content, Fence, Part, PartKey, RecordKey, Revision};

pub(crate) fn put_part_key(out: &mut Vec<u8>, key: &PartKey) {
    out.push(key.kind() as u8);
    key.path().iter().for_each(|text| put_text(out, text));
}

pub(super) fn put_number(out: &mut Vec<u8>, mut number: u128) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(super) fn put_signed(out: &mut Vec<u8>, number: i128) {
    put_number(out, ((number << 1) ^ (number >> 127)) as u128);
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u128);
    out.extend_from_slice(bytes);
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

pub(super) fn put_revision(out: &mut Vec<u8>, revision: Revision) {
    put_number(out, revision.to_i64() as u128);
}

/// Most records are routed by their id, which stands in the key already.
pub(super) fn put_shard_key(out: &mut Vec<u8>, key: &RecordKey) {
    if key.shard_key == ShardKey::of_text(key.id.as_str()) {
        put_bytes(out, &[]);
    } else {
        put_bytes(out, key.shard_key.as_bytes());
    }
}

pub(super) fn put_part(out: &mut Vec<u8>, part: &Part) {
    put_revision(out, part.revision);
    put_content(out, &part.content);
}

pub(super) fn put_content(out: &mut Vec<u8>, content: &Content) {
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

pub(super) fn put_value(out: &mut Vec<u8>, value: &Value) {
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
pub(super) fn put_map_key(out: &mut Vec<u8>, key: &str) {
    match Field::named(key) {
        Some(field) => out.extend_from_slice(&[0, field.number()]),
        None if key.is_empty() => out.extend_from_slice(&[0, 0]),
        None => put_text(out, key),
    }
}

pub(super) fn put_fence(out: &mut Vec<u8>, fence: &Fence) {
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
