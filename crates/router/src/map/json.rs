//! The map as JSON that an operator can read: slots as `"0-1023": "a"`, keys as
//! lists of values, scopes by what they are.

use std::collections::BTreeMap;

use engine_api::Timestamp;
use layout::{Field, Scope, ShardKey, Slot, SlotRange, Value};
use rust_decimal::Decimal;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{ShardName, SlotRun};

/// Texts and whole numbers stand as they are; what JSON has no form for is named.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum ValueForm {
    Text(String),
    Int(i64),
    Named(NamedForm),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum NamedForm {
    Decimal(Decimal),
    TimestampMicros(i64),
}

#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct KeyForm(Vec<ValueForm>);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum ScopeForm {
    All,
    Slots(Vec<String>),
    Range {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<KeyForm>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<KeyForm>,
    },
    Keys(Vec<KeyForm>),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PinForm {
    key: KeyForm,
    shard: ShardName,
}

impl From<&ShardKey> for KeyForm {
    fn from(key: &ShardKey) -> KeyForm {
        let form = |value| match value {
            Value::Text(text) => ValueForm::Text(text),
            Value::Int(int) => ValueForm::Int(int),
            Value::Decimal(decimal) => ValueForm::Named(NamedForm::Decimal(decimal)),
            Value::Timestamp(at) => ValueForm::Named(NamedForm::TimestampMicros(at.unix_micros())),
            Value::Inet(_) | Value::Map(_) | Value::List(_) | Value::Blob(_) => {
                unreachable!("the key encoding refuses these kinds, so no shard key holds one")
            }
        };
        KeyForm(key.values().into_iter().map(form).collect())
    }
}

impl KeyForm {
    fn into_key<E: serde::de::Error>(self) -> Result<ShardKey, E> {
        let value = |form| match form {
            ValueForm::Text(text) => Value::Text(text),
            ValueForm::Int(int) => Value::Int(int),
            ValueForm::Named(NamedForm::Decimal(decimal)) => Value::Decimal(decimal),
            ValueForm::Named(NamedForm::TimestampMicros(micros)) => {
                Value::Timestamp(Timestamp::from_unix_micros(micros))
            }
        };
        let values: Vec<Value> = self.0.into_iter().map(value).collect();
        ShardKey::of(&values).map_err(E::custom)
    }
}

impl From<&Scope> for ScopeForm {
    fn from(scope: &Scope) -> ScopeForm {
        match scope {
            Scope::All => ScopeForm::All,
            Scope::Slots(ranges) => ScopeForm::Slots(ranges.iter().map(slots_text).collect()),
            Scope::Range { from, to } => ScopeForm::Range {
                from: from.as_ref().map(KeyForm::from),
                to: to.as_ref().map(KeyForm::from),
            },
            Scope::Keys(keys) => ScopeForm::Keys(keys.iter().map(KeyForm::from).collect()),
        }
    }
}

impl ScopeForm {
    fn into_scope<E: serde::de::Error>(self) -> Result<Scope, E> {
        Ok(match self {
            ScopeForm::All => Scope::All,
            ScopeForm::Slots(texts) => Scope::Slots(
                texts
                    .iter()
                    .map(|text| slots_of(text))
                    .collect::<Result<_, E>>()?,
            ),
            ScopeForm::Range { from, to } => Scope::Range {
                from: from.map(KeyForm::into_key).transpose()?,
                to: to.map(KeyForm::into_key).transpose()?,
            },
            ScopeForm::Keys(keys) => Scope::Keys(
                keys.into_iter()
                    .map(KeyForm::into_key)
                    .collect::<Result<_, E>>()?,
            ),
        })
    }
}

fn slots_text(range: &SlotRange) -> String {
    format!("{}-{}", range.first.number(), range.last.number())
}

fn slots_of<E: serde::de::Error>(text: &str) -> Result<SlotRange, E> {
    let slot = |text: &str| {
        let number: u16 = text.parse().map_err(E::custom)?;
        Slot::try_from(number).map_err(E::custom)
    };
    let (first, last) = text
        .split_once('-')
        .ok_or_else(|| E::custom(format!("{text:?} is not first-last")))?;
    Ok(SlotRange {
        first: slot(first)?,
        last: slot(last)?,
    })
}

pub(super) mod fields {
    use super::*;

    pub fn serialize<S: Serializer>(fields: &[Field], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(fields.iter().map(|field| field.name()))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Field>, D::Error> {
        let names = Vec::<String>::deserialize(from)?;
        let field = |name: &String| {
            Field::named(name)
                .ok_or_else(|| D::Error::custom(format!("there is no field {name:?}")))
        };
        names.iter().map(field).collect()
    }
}

pub(super) mod slot_runs {
    use std::fmt;

    use serde::de::{MapAccess, Visitor};

    use super::*;

    pub fn serialize<S: Serializer>(runs: &[SlotRun], to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(runs.iter().map(|run| (slots_text(&run.slots), &run.shard)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<SlotRun>, D::Error> {
        from.deserialize_map(Runs)
    }

    /// Keeps the runs in the order of the text, so that the check sees what was written.
    struct Runs;

    impl<'de> Visitor<'de> for Runs {
        type Value = Vec<SlotRun>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("runs of slots such as \"0-1023\": \"a\"")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<SlotRun>, A::Error> {
            let mut runs = Vec::new();
            while let Some((slots, shard)) = map.next_entry::<String, ShardName>()? {
                runs.push(SlotRun {
                    slots: slots_of(&slots)?,
                    shard,
                });
            }
            Ok(runs)
        }
    }
}

pub(super) mod pinned {
    use super::*;

    pub fn serialize<S: Serializer>(
        pinned: &BTreeMap<ShardKey, ShardName>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let form = |(key, shard): (&ShardKey, &ShardName)| PinForm {
            key: key.into(),
            shard: shard.clone(),
        };
        to.collect_seq(pinned.iter().map(form))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<ShardKey, ShardName>, D::Error> {
        let mut pinned = BTreeMap::new();
        for pin in Vec::<PinForm>::deserialize(from)? {
            let key: ShardKey = pin.key.into_key()?;
            if pinned.contains_key(&key) {
                return Err(D::Error::custom(format!("key {key} is pinned twice")));
            }
            pinned.insert(key, pin.shard);
        }
        Ok(pinned)
    }
}

/// One scope, for whoever writes scopes elsewhere as the map does.
pub mod scope {
    use super::*;

    pub fn serialize<S: Serializer>(scope: &Scope, to: S) -> Result<S::Ok, S::Error> {
        ScopeForm::from(scope).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Scope, D::Error> {
        ScopeForm::deserialize(from)?.into_scope()
    }
}

pub(super) mod scopes {
    use super::*;

    pub fn serialize<S: Serializer>(scopes: &[Scope], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(scopes.iter().map(ScopeForm::from))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Scope>, D::Error> {
        Vec::<ScopeForm>::deserialize(from)?
            .into_iter()
            .map(ScopeForm::into_scope)
            .collect()
    }
}

pub(super) mod optional_shard_key {
    use super::*;

    pub fn serialize<S: Serializer>(key: &Option<ShardKey>, to: S) -> Result<S::Ok, S::Error> {
        key.as_ref().map(KeyForm::from).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ShardKey>, D::Error> {
        Option::<KeyForm>::deserialize(from)?
            .map(KeyForm::into_key)
            .transpose()
    }
}
