//! Positions are bytes that only their engine understands; JSON has none.

use engine_api::{Position, ScanPosition};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

pub trait Bytes: Sized {
    fn bytes(&self) -> &[u8];
    fn of(bytes: Vec<u8>) -> Self;
}

impl Bytes for Position {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
    fn of(bytes: Vec<u8>) -> Position {
        Position(bytes)
    }
}

impl Bytes for ScanPosition {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
    fn of(bytes: Vec<u8>) -> ScanPosition {
        ScanPosition(bytes)
    }
}

pub fn serialize<T: Bytes, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&text(value))
}

pub fn deserialize<'de, T: Bytes, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let text = String::deserialize(from)?;
    parsed(&text).ok_or_else(|| D::Error::custom("a position is not hexadecimal"))
}

pub mod optional {
    use super::{Bytes, Deserialize, Deserializer, Error, Serializer, parsed, text};

    pub fn serialize<T: Bytes, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.serialize_some(&text(value)),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, T: Bytes, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<T>, D::Error> {
        let Some(text) = Option::<String>::deserialize(from)? else {
            return Ok(None);
        };
        match parsed(&text) {
            Some(value) => Ok(Some(value)),
            None => Err(D::Error::custom("a position is not hexadecimal")),
        }
    }
}

fn text(value: &impl Bytes) -> String {
    let digits = value.bytes().iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}

fn parsed<T: Bytes>(text: &str) -> Option<T> {
    let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !text.len().is_multiple_of(2) || !digits {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
    Some(T::of(bytes?))
}
