//! What a shop promises of its records, given by the caller: this crate knows no shop.
//!
//! A rule that the source breaks itself is told and stops nothing, or a move could never end. One that only the target
//! breaks is a difference.

use std::fmt;

use engine_api::{Record, RecordKey, Timestamp};
use layout::{AccessPath, Value};
use xxhash_rust::xxh3::Xxh3;

/// Pure: the same image is judged the same on both sides.
pub trait Invariants: fmt::Debug + Send + Sync {
    /// The rule that an image breaks by itself, in words that follow its key.
    fn broken(&self, image: &Record, now: Timestamp) -> Option<String>;

    /// The listing in which a record must stand alone, if there is one.
    fn sole(&self, image: &Record, now: Timestamp) -> Option<Sole>;
}

/// At most one live record answers the path with these values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sole {
    pub path: AccessPath,
    pub equals: Vec<Value>,
}

/// A rule that the source breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub key: RecordKey,
    pub rule: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.rule)
    }
}

impl Sole {
    pub(crate) fn rule(&self) -> String {
        format!("it is not the only one by {}", self.path)
    }

    fn digest(&self) -> u64 {
        let mut hash = Xxh3::new();
        hash.update(self.path.to_string().as_bytes());
        for value in &self.equals {
            hash.update(&[0]);
            hash.update(value.to_string().as_bytes());
        }
        hash.digest()
    }
}

/// What a round has met of records that must stand alone: one bit for each, whatever their number. A bit that is
/// met twice says only that somebody has to ask.
#[derive(Debug, Default)]
pub(crate) struct Met(Vec<u64>);

/// 8 MiB: among half a million some two thousand are asked for in vain.
const MET_BITS: u64 = 1 << 26;

impl Met {
    /// Whether another one may have been met before.
    pub(crate) fn meet(&mut self, sole: &Sole) -> bool {
        if self.0.is_empty() {
            self.0 = vec![0; (MET_BITS / 64) as usize];
        }
        let bit = sole.digest() % MET_BITS;
        let (word, mask) = (&mut self.0[(bit / 64) as usize], 1 << (bit % 64));
        let is_met = *word & mask != 0;
        *word |= mask;
        is_met
    }

    pub(crate) fn forget(&mut self) {
        self.0 = Vec::new();
    }
}
