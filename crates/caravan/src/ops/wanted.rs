//! What is to be moved, as it is typed and as it travels; and the plan that follows from it.

use anyhow::{Context, Result, anyhow, ensure};
use layout::{Collection, Field, Scope, ShardKey, Slot, SlotRange, Value};
use mover::{CutoverTime, FREEZE_MS_DEFAULT, MoveName, Plan, TimeOfDay};
use router::{Map, ShardName};
use serde::{Deserialize, Serialize};

/// Keys in one plan: it stands in the list of moves, which everybody reads every second.
const KEYS_MAX: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    pub name: String,
    pub collection: String,
    /// As in `0-1023,2048`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    pub from: String,
    pub to: String,
    #[serde(default = "freeze_ms_default")]
    pub freeze_ms_max: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records_per_s: Option<u32>,
    /// When it cuts over by itself: `ready`, or a time of day as `03:00`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cutover: Option<String>,
}

/// Understood as far as that goes without the map.
#[derive(Clone, Debug)]
pub struct Understood {
    pub name: MoveName,
    pub collection: Collection,
    keys: Keys,
    pub source: ShardName,
    pub target: ShardName,
    freeze_ms_max: u64,
    pub records_per_s: Option<u32>,
    pub cutover: Option<CutoverTime>,
}

#[derive(Clone, Debug)]
enum Keys {
    All,
    Slots(Vec<SlotRange>),
    /// The map says how many values each has.
    Typed(Vec<String>),
}

impl Wanted {
    pub fn understood(&self) -> Result<Understood> {
        let collection = Collection::named(&self.collection).ok_or_else(|| {
            anyhow!(
                "--collection {}: choose carts, orders, products or sessions",
                self.collection
            )
        })?;
        let keys = match (&self.slots, self.all, self.keys.is_empty()) {
            (Some(text), false, true) => Keys::Slots(slots(text)?),
            (None, true, true) => Keys::All,
            (None, false, false) => Keys::Typed(self.keys.clone()),
            _ => {
                return Err(anyhow!(
                    "name slots, keys or all of them, and one of these alone"
                ));
            }
        };
        let cutover = self.cutover.as_deref().map(cutover_time).transpose()?;
        Ok(Understood {
            name: MoveName::new(&self.name)?,
            collection,
            keys,
            source: ShardName::new(&self.from)?,
            target: ShardName::new(&self.to)?,
            freeze_ms_max: self.freeze_ms_max,
            records_per_s: self.records_per_s,
            cutover: cutover.flatten(),
        })
    }
}

impl Understood {
    pub fn plan(&self, map: &Map) -> Result<Plan> {
        let scope = match &self.keys {
            Keys::All => Scope::All,
            Keys::Slots(slots) => Scope::Slots(slots.clone()),
            Keys::Typed(texts) => {
                Scope::Keys(keys(texts, &map.collection(self.collection)?.shard_key)?)
            }
        };
        Ok(Plan {
            collection: self.collection,
            scope,
            source: self.source.clone(),
            target: self.target.clone(),
            freeze_ms_max: self.freeze_ms_max,
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

/// `0-1023,2048` as it is typed.
fn slots(text: &str) -> Result<Vec<SlotRange>> {
    let slot = |text: &str| -> Result<Slot> {
        let number: u16 = text
            .trim()
            .parse()
            .with_context(|| format!("--slots {text}: write slots as in 0-1023,2048-2100"))?;
        Ok(Slot::try_from(number)?)
    };
    let range = |piece: &str| -> Result<SlotRange> {
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        let (first, last) = (slot(first)?, slot(last)?);
        ensure!(
            first <= last,
            "--slots {piece}: the first slot comes first, as in 0-1023"
        );
        Ok(SlotRange { first, last })
    };
    text.split(',').map(range).collect()
}

/// Shard keys by the values that make them, in the order of the map.
fn keys(texts: &[String], fields: &[Field]) -> Result<Vec<ShardKey>> {
    ensure!(
        texts.len() <= KEYS_MAX,
        "--keys: {} of them, at most {KEYS_MAX} go in one move: move slots, or several times",
        texts.len()
    );
    let names: Vec<&str> = fields.iter().map(|field| field.name()).collect();
    let key = |text: &String| -> Result<ShardKey> {
        let values: Vec<Value> = match fields.len() {
            1 => vec![Value::Text(text.clone())],
            _ => text
                .split('/')
                .map(|value| Value::Text(value.to_owned()))
                .collect(),
        };
        let whole = values.len() == fields.len() && !text.is_empty();
        ensure!(whole, "--keys {text}: write each as {}", names.join("/"));
        Ok(ShardKey::of(&values)?)
    };
    texts.iter().map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_read_as_they_are_typed_and_bad_ones_are_named() {
        let ranges = slots("0-1023,2048, 4000-4095").unwrap();
        let pairs: Vec<(u16, u16)> = ranges
            .iter()
            .map(|range| (range.first.number(), range.last.number()))
            .collect();
        assert_eq!(pairs, [(0, 1023), (2048, 2048), (4000, 4095)]);
        for (text, said) in [
            ("", "write slots as in"),
            ("a-b", "write slots as in"),
            ("9-3", "the first slot comes first"),
            ("0-4096", "slots go from 0 to 4095"),
        ] {
            let error = slots(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn keys_have_as_many_values_as_the_map_says() {
        let one = keys(&["a/b".to_owned()], &[Field::CartId]).unwrap();
        assert_eq!(one, [ShardKey::of_text("a/b")]);
        let fields = [Field::Category, Field::ProductId];
        let two = keys(&["cases/C-1".to_owned()], &fields).unwrap();
        let values = ["cases", "C-1"].map(|text| Value::Text(text.to_owned()));
        assert_eq!(two[0].values(), values);
        let error = keys(&["cases".to_owned()], &fields).unwrap_err();
        assert!(error.to_string().contains("category/product_id"), "{error}");
    }
}
