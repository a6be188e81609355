//! What is to be moved, as it is typed and as it travels; and the plan that follows from it.

use anyhow::{Context, Result, anyhow, ensure};
use layout::{Collection, Scope, SlotRange};
use mover::{CutoverTime, FREEZE_MS_DEFAULT, MoveName, Plan, Throttle, TimeOfDay};
use router::{Map, ShardName};
use serde::{Deserialize, Serialize};

use super::typed;

pub const THROTTLED_FROM_THE_START: &str = "so it was started";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Of the move, or of the group that several moves are named after.
    pub name: String,
    /// Several moves at once take all of them if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
    /// As in `0-1023,2048`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// As in `cases/C-1..m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unpin: Vec<String>,
    /// The shard that gets its share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub onto: Option<String>,
    /// The shard that is left empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    #[serde(default = "freeze_ms_default")]
    pub freeze_ms_max: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records_per_s: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms_max: Option<u32>,
    /// When it cuts over by itself: `ready`, or a time of day as `03:00`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cutover: Option<String>,
}

/// Understood as far as that goes without the map.
#[derive(Clone, Debug)]
pub struct Understood {
    /// Of the move, or of the group.
    pub name: MoveName,
    pub what: What,
    pub freeze_ms_max: u64,
    pub throttle: Throttle,
    pub cutover: Option<CutoverTime>,
}

#[derive(Clone, Debug)]
pub enum What {
    One(One),
    Spread(Spread),
}

/// One move.
#[derive(Clone, Debug)]
pub struct One {
    pub collection: Collection,
    keys: Keys,
    /// Source and target; `None`: the map has them.
    pub between: Option<(ShardName, ShardName)>,
}

/// Several moves that make way for a shard, or for its end.
#[derive(Clone, Debug)]
pub struct Spread {
    pub only: Option<Collection>,
    pub way: SpreadWay,
}

#[derive(Clone, Debug)]
pub enum SpreadWay {
    Onto(ShardName),
    Away(ShardName),
}

impl SpreadWay {
    pub fn shard(&self) -> &ShardName {
        match self {
            SpreadWay::Onto(shard) | SpreadWay::Away(shard) => shard,
        }
    }
}

/// What needs the map is kept as it was typed.
#[derive(Clone, Debug)]
enum Keys {
    All,
    Slots(Vec<SlotRange>),
    Typed(Vec<String>),
    Range(String),
    /// Each goes back to where the cut has it.
    Unpinned(Vec<String>),
}

impl Wanted {
    pub fn understood(&self) -> Result<Understood> {
        let cutover = self.cutover.as_deref().map(cutover_time).transpose()?;
        let collection = self.collection.as_deref().map(typed::collection);
        let collection = collection.transpose()?;
        let what = match self.spread_way()? {
            Some(way) => What::Spread(Spread {
                only: collection,
                way,
            }),
            None => What::One(self.one(collection)?),
        };
        Ok(Understood {
            name: MoveName::new(&self.name)?,
            what,
            freeze_ms_max: self.freeze_ms_max,
            throttle: Throttle {
                records_per_second_max: self.records_per_s,
                bytes_per_second_max: self.bytes_per_s,
                p99_ms_max: self.p99_ms_max,
                reason: THROTTLED_FROM_THE_START.to_owned(),
            },
            cutover: cutover.flatten(),
        })
    }

    fn spread_way(&self) -> Result<Option<SpreadWay>> {
        let way = match (&self.onto, &self.drain) {
            (None, None) => return Ok(None),
            (Some(onto), None) => SpreadWay::Onto(ShardName::new(onto)?),
            (None, Some(drained)) => SpreadWay::Away(ShardName::new(drained)?),
            (Some(_), Some(_)) => {
                return Err(anyhow!("a shard is filled or drained: name one of these"));
            }
        };
        let nothing_else = self.kinds_of_keys() == 0 && self.from.is_none() && self.to.is_none();
        ensure!(
            nothing_else,
            "several moves find their own keys and shards: leave those out"
        );
        Ok(Some(way))
    }

    fn one(&self, collection: Option<Collection>) -> Result<One> {
        let collection = collection.context("a move needs --collection")?;
        ensure!(
            self.kinds_of_keys() == 1,
            "name slots, a range, keys, pinned keys or all of them, and one of these alone"
        );
        let keys = match (&self.slots, &self.range) {
            (Some(slots), _) => Keys::Slots(typed::slots(slots)?),
            (None, Some(range)) => Keys::Range(range.clone()),
            (None, None) if self.all => Keys::All,
            (None, None) if self.keys.is_empty() => Keys::Unpinned(self.unpin.clone()),
            (None, None) => Keys::Typed(self.keys.clone()),
        };
        let told = |shard: &Option<String>| shard.as_deref().map(ShardName::new).transpose();
        let between = told(&self.from)?.zip(told(&self.to)?);
        match (&keys, &between) {
            (Keys::Unpinned(_), Some(_)) => Err(anyhow!(
                "pinned keys go back to where the cut has them: leave --from and --to out"
            )),
            (Keys::Unpinned(_), None) | (_, Some(_)) => Ok(One {
                collection,
                keys,
                between,
            }),
            (_, None) => Err(anyhow!("a move needs --from SHARD and --to SHARD")),
        }
    }

    fn kinds_of_keys(&self) -> usize {
        let named = [
            self.slots.is_some(),
            self.range.is_some(),
            self.all,
            !self.keys.is_empty(),
            !self.unpin.is_empty(),
        ];
        named.into_iter().filter(|named| *named).count()
    }
}

impl One {
    /// Where the keys are, and where they are to go.
    pub fn ends(&self, map: &Map) -> Result<(ShardName, ShardName)> {
        if let Some(between) = &self.between {
            return Ok(between.clone());
        }
        let Keys::Unpinned(texts) = &self.keys else {
            return Err(anyhow!("a move needs --from SHARD and --to SHARD"));
        };
        let pinned = map.collection(self.collection)?;
        let keys = typed::keys(texts, &pinned.shard_key)?;
        typed::unpinned(self.collection, pinned, &keys)
    }

    pub fn plan(&self, map: &Map, freeze_ms_max: u64) -> Result<Plan> {
        let fields = &map.collection(self.collection)?.shard_key;
        let scope = match &self.keys {
            Keys::All => Scope::All,
            Keys::Slots(slots) => Scope::Slots(slots.clone()),
            Keys::Range(text) => typed::range(text, fields)?,
            Keys::Typed(texts) | Keys::Unpinned(texts) => Scope::Keys(typed::keys(texts, fields)?),
        };
        let (source, target) = self.ends(map)?;
        Ok(Plan {
            collection: self.collection,
            moved: mover::Moved::Keys {
                scope,
                source,
                target,
            },
            freeze_ms_max,
        })
    }
}

/// `ready`, `03:00`, or `by hand`.
pub fn cutover_time(text: &str) -> Result<Option<CutoverTime>> {
    Ok(match text {
        "by hand" => None,
        "ready" => Some(CutoverTime::WhenReady),
        time => Some(CutoverTime::At(TimeOfDay::parse(time)?)),
    })
}

fn freeze_ms_default() -> u64 {
    FREEZE_MS_DEFAULT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_go_together_is_refused_with_what_to_do() {
        let told = |text: &str| Some(text.to_owned());
        let carts = || Wanted {
            name: "m".to_owned(),
            collection: told("carts"),
            ..Wanted::default()
        };
        let check = |wanted: Wanted, said: &str| {
            let error = wanted.understood().unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        };
        let slots = Wanted {
            slots: told("0-9"),
            ..carts()
        };
        check(carts(), "name slots, a range");
        check(
            Wanted {
                all: true,
                ..slots.clone()
            },
            "one of these alone",
        );
        check(slots.clone(), "--from SHARD and --to SHARD");
        let onto = Wanted {
            onto: told("b"),
            ..slots
        };
        check(onto, "leave those out");
        let both = Wanted {
            onto: told("b"),
            drain: told("a"),
            ..carts()
        };
        check(both, "name one of these");
        let unpin = Wanted {
            unpin: vec!["k".to_owned()],
            from: told("a"),
            to: told("b"),
            ..carts()
        };
        check(unpin, "leave --from and --to out");
    }
}
