//! Reading values back, checking every length and tag.

use std::collections::BTreeMap;
use std::net::IpAddr;

use engine_api::layout::{
    Collection, Field, Fields, PartKind, Scope, ShardKey, Slot, SlotRange, Value,
};
use engine_api::{Content, Fence, Generation, Part, PartKey, RecordId, Revision, Timestamp};
use rust_decimal::Decimal;

use super::{Damaged, Read};

/// Maps and lists nest at most this deep; deeper bytes are damaged.
const DEPTH_MAX: u32 = 16;

/// Bytes that are still to be read.
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn end(&self) -> Read<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Damaged("bytes are left over"))
        }
    }

    pub(super) fn byte(&mut self) -> Read<u8> {
        let (byte, rest) = self.0.split_first().ok_or(Damaged("bytes are missing"))?;
        self.0 = rest;
        Ok(*byte)
    }

    pub(super) fn number(&mut self) -> Read<u128> {
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

    pub(super) fn signed(&mut self) -> Read<i128> {
        let number = self.number()?;
        Ok((number >> 1) as i128 ^ -((number & 1) as i128))
    }

    /// A count of things that take at least one byte each.
    pub(super) fn count(&mut self) -> Read<usize> {
        usize::try_from(self.number()?)
            .ok()
            .filter(|count| *count <= self.0.len())
            .ok_or(Damaged("a length is longer than what is left"))
    }

    pub(super) fn bytes(&mut self) -> Read<&'a [u8]> {
        let count = self.count()?;
        let (bytes, rest) = self.0.split_at(count);
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn text(&mut self) -> Read<String> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes)
            .map(str::to_owned)
            .map_err(|_| Damaged("a text is not UTF-8"))
    }

    pub(super) fn revision(&mut self) -> Read<Revision> {
        i64::try_from(self.number()?)
            .ok()
            .and_then(Revision::from_i64)
            .ok_or(Damaged("a revision is out of range"))
    }

    pub(super) fn timestamp(&mut self) -> Read<Timestamp> {
        let micros =
            i64::try_from(self.signed()?).map_err(|_| Damaged("a time is out of range"))?;
        Ok(Timestamp::from_unix_micros(micros))
    }

    pub(super) fn collection(&mut self) -> Read<Collection> {
        Collection::from_number(self.byte()?).ok_or(Damaged("a collection is unknown"))
    }

    pub(super) fn shard_key(&mut self, id: &RecordId) -> Read<ShardKey> {
        match self.bytes()? {
            [] => Ok(ShardKey::of_text(id.as_str())),
            bytes => shard_key_of(bytes),
        }
    }

    pub(super) fn part_key(&mut self) -> Read<PartKey> {
        let kind =
            PartKind::from_number(self.byte()?).ok_or(Damaged("a part is of unknown kind"))?;
        let path = (0..kind.path_len())
            .map(|_| self.text())
            .collect::<Read<Vec<_>>>()?;
        PartKey::new(kind, path).map_err(|_| Damaged("a part's name has a wrong length"))
    }

    pub(super) fn part(&mut self) -> Read<Part> {
        Ok(Part {
            revision: self.revision()?,
            content: self.content()?,
        })
    }

    pub(super) fn content(&mut self) -> Read<Content> {
        self.content_of(|_| true)
    }

    /// With these fields alone.
    pub(super) fn content_of(&mut self, is_wanted: impl Fn(Field) -> bool) -> Read<Content> {
        match self.byte()? {
            0 => Ok(Content::Removed),
            1 => {
                let count = self.count()?;
                let mut fields = Fields::with_capacity(count.min(Field::ALL.len()));
                for _ in 0..count {
                    let field =
                        Field::from_number(self.byte()?).ok_or(Damaged("a field is unknown"))?;
                    if !is_wanted(field) {
                        self.skip_value(0)?;
                        continue;
                    }
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

    pub(super) fn value(&mut self, depth: u32) -> Read<Value> {
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

    fn skip_value(&mut self, depth: u32) -> Read<()> {
        if depth > DEPTH_MAX {
            return Err(Damaged("a value is nested too deep"));
        }
        match self.byte()? {
            1 | 5 | 8 => drop(self.bytes()?),
            2 | 4 => drop(self.number()?),
            3 => {
                self.byte()?;
                self.number()?;
            }
            6 => {
                for _ in 0..self.count()? {
                    if self.bytes()?.is_empty() {
                        self.byte()?;
                    }
                    self.skip_value(depth + 1)?;
                }
            }
            7 => {
                for _ in 0..self.count()? {
                    self.skip_value(depth + 1)?;
                }
            }
            _ => return Err(Damaged("a value has an unknown tag")),
        }
        Ok(())
    }

    pub(super) fn map_key(&mut self) -> Read<String> {
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

    pub(super) fn fence(&mut self) -> Read<Fence> {
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

    pub(super) fn slot(&mut self) -> Read<Slot> {
        let number =
            u16::try_from(self.number()?).map_err(|_| Damaged("a slot is out of range"))?;
        Slot::try_from(number).map_err(|_| Damaged("a slot is out of range"))
    }

    pub(super) fn bound(&mut self) -> Read<Option<ShardKey>> {
        match self.bytes()? {
            [] => Ok(None),
            bytes => shard_key_of(bytes).map(Some),
        }
    }
}

fn shard_key_of(bytes: &[u8]) -> Read<ShardKey> {
    ShardKey::from_bytes(bytes.to_vec()).map_err(|_| Damaged("a shard key is malformed"))
}
