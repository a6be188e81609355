//! How keys are cut: the shard key of a record, its slot, and scopes of keys.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::key::{Direction, KeyError, count_values, decode_values, encode_text, encode_value};
use crate::value::Value;

pub const SLOT_COUNT: u16 = 4096;

/// The values that route a record, encoded in order. They never change (W8).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardKey(Arc<[u8]>);

/// One of the 4096 pieces of a hashed shard key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct Slot(u16);

/// Slots from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotRange {
    pub first: Slot,
    pub last: Slot,
}

/// Some keys of one collection: what a fence stops, what a move takes along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    All,
    Slots(Vec<SlotRange>),
    /// From `from` (included) up to `to` (excluded); `None` has no bound.
    Range {
        from: Option<ShardKey>,
        to: Option<ShardKey>,
    },
    Keys(Vec<ShardKey>),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("slot {number} does not exist: slots go from 0 to {last}", last = SLOT_COUNT - 1)]
pub struct NoSuchSlot {
    pub number: u16,
}

impl ShardKey {
    pub fn of(values: &[Value]) -> Result<ShardKey, KeyError> {
        let mut bytes = Vec::with_capacity(32);
        for value in values {
            encode_value(&mut bytes, value, Direction::Ascending)?;
        }
        Ok(ShardKey(bytes.into()))
    }

    pub fn of_text(text: &str) -> ShardKey {
        let mut bytes = Vec::with_capacity(text.len() + 3);
        encode_text(&mut bytes, text);
        ShardKey(bytes.into())
    }

    /// Checks bytes that come from disk or network.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<ShardKey, KeyError> {
        decode_values(&bytes)?;
        Ok(ShardKey(bytes.into()))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn values(&self) -> Vec<Value> {
        decode_values(&self.0).expect("a shard key is made of encoded values only")
    }

    /// How many values it is made of, counted without making them.
    pub fn width(&self) -> usize {
        count_values(&self.0)
    }

    /// xxh3-64 with seed 0 of the encoded key, remainder by 4096. Documented
    /// because other programs must be able to compute it, and never changed.
    pub fn slot(&self) -> Slot {
        Slot((xxh3_64(&self.0) % u64::from(SLOT_COUNT)) as u16)
    }
}

impl fmt::Display for ShardKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, value) in self.values().iter().enumerate() {
            write!(f, "{}{value}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Debug for ShardKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShardKey({self})")
    }
}

impl Slot {
    pub fn number(self) -> u16 {
        self.0
    }

    pub fn all() -> impl Iterator<Item = Slot> {
        (0..SLOT_COUNT).map(Slot)
    }
}

impl TryFrom<u16> for Slot {
    type Error = NoSuchSlot;

    fn try_from(number: u16) -> Result<Slot, NoSuchSlot> {
        if number < SLOT_COUNT {
            Ok(Slot(number))
        } else {
            Err(NoSuchSlot { number })
        }
    }
}

impl From<Slot> for u16 {
    fn from(slot: Slot) -> u16 {
        slot.0
    }
}

impl SlotRange {
    pub fn contains(&self, slot: Slot) -> bool {
        self.first <= slot && slot <= self.last
    }
}

impl Scope {
    pub fn contains(&self, key: &ShardKey) -> bool {
        match self {
            Scope::All => true,
            Scope::Slots(ranges) => {
                let slot = key.slot();
                ranges.iter().any(|range| range.contains(slot))
            }
            Scope::Range { from, to } => {
                from.as_ref().is_none_or(|from| from <= key)
                    && to.as_ref().is_none_or(|to| key < to)
            }
            Scope::Keys(keys) => keys.contains(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_stay_where_they_are_for_ever() {
        let slots = ["USER-98765", "USER-1", "SESS-abc123", ""]
            .map(|id| ShardKey::of_text(id).slot().number());
        assert_eq!(slots, SLOTS_OF_THE_FIRST_RELEASE);
    }

    const SLOTS_OF_THE_FIRST_RELEASE: [u16; 4] = [3114, 2942, 3427, 225];

    #[test]
    fn slots_are_spread_evenly() {
        let mut counts = vec![0u32; usize::from(SLOT_COUNT)];
        for user in 0..409_600 {
            counts[usize::from(ShardKey::of_text(&format!("USER-{user}")).slot().number())] += 1;
        }
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(
            *least > 50 && *most < 160,
            "100 expected in each, {least} to {most} found"
        );
    }

    #[test]
    fn a_scope_knows_its_keys() {
        let key = |text: &str| ShardKey::of_text(text);
        let slot = key("b").slot();
        let range = Scope::Range {
            from: Some(key("b")),
            to: Some(key("d")),
        };
        assert!(Scope::All.contains(&key("b")));
        assert!(
            Scope::Slots(vec![SlotRange {
                first: slot,
                last: slot
            }])
            .contains(&key("b"))
        );
        assert!(
            !range.contains(&key("a")) && range.contains(&key("b")) && range.contains(&key("c"))
        );
        assert!(!range.contains(&key("d")));
        assert!(
            Scope::Keys(vec![key("b")]).contains(&key("b"))
                && !Scope::Keys(vec![]).contains(&key("b"))
        );
        assert!(Slot::try_from(4096).is_err());
    }
}
