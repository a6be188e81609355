//! From a file's text to the cut of a collection: slots, or ranges with split points.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use rust_decimal::Decimal;
use toml::Spanned;

use super::convert::{Problem, problem};
use super::text::RangeText;
use super::{Cut, RangeCut};
use crate::field::{Field, FieldKind};
use crate::shard_key::ShardKey;
use crate::value::Value;

pub(super) fn slots(
    initial_shards: Option<Spanned<Vec<String>>>,
    ranges: Option<Spanned<Vec<Spanned<RangeText>>>>,
    zones: Option<Spanned<BTreeMap<String, Vec<String>>>>,
    engine: &str,
) -> Result<Cut, Problem> {
    if let Some(ranges) = ranges {
        return Err(problem(
            &ranges,
            "ranges need cut = \"ranges\": change the cut or remove them",
        ));
    }
    if let Some(zones) = zones {
        return Err(problem(
            &zones,
            "zones need cut = \"ranges\": change the cut or remove them",
        ));
    }
    let Some(shards) = initial_shards else {
        return Ok(Cut::Slots {
            initial_shards: vec![engine.to_owned()],
        });
    };
    let distinct: BTreeSet<&String> = shards.get_ref().iter().collect();
    if distinct.is_empty() || distinct.len() != shards.get_ref().len() {
        return Err(problem(
            &shards,
            "initial_shards needs one name or more, each once",
        ));
    }
    Ok(Cut::Slots {
        initial_shards: shards.into_inner(),
    })
}

pub(super) fn ranges(
    shard_key: &[Field],
    initial_shards: Option<Spanned<Vec<String>>>,
    texts: Option<Spanned<Vec<Spanned<RangeText>>>>,
    zones: Option<Spanned<BTreeMap<String, Vec<String>>>>,
    engine: &Spanned<String>,
    place: &Spanned<Vec<Spanned<String>>>,
) -> Result<Cut, Problem> {
    if let Some(shards) = initial_shards {
        return Err(problem(
            &shards,
            "with cut = \"ranges\" each range names its shard: remove initial_shards",
        ));
    }
    let Some(texts) = texts else {
        return Err(problem(
            place,
            "cut = \"ranges\" needs ranges: write ranges = [{}] to begin with one",
        ));
    };
    if texts.get_ref().is_empty() {
        return Err(problem(
            &texts,
            "ranges is empty: write [{}] to begin with one range for all keys",
        ));
    }
    let mut ranges = Vec::new();
    for text in texts.into_inner() {
        let from = match &text.get_ref().from {
            None => None,
            Some(values) => Some(split_point(shard_key, values, text.span())?),
        };
        let text = text.into_inner();
        let shard = text.shard.unwrap_or_else(|| engine.get_ref().clone());
        ranges.push(RangeCut {
            from,
            shard,
            zone: text.zone,
        });
    }
    Ok(Cut::Ranges {
        ranges,
        zones: zones.map(Spanned::into_inner).unwrap_or_default(),
    })
}

/// The first values of a shard key; the rest may be left out.
fn split_point(
    shard_key: &[Field],
    values: &[Spanned<toml::Value>],
    span: Range<usize>,
) -> Result<ShardKey, Problem> {
    if values.is_empty() || values.len() > shard_key.len() {
        let names: Vec<&str> = shard_key.iter().map(|field| field.name()).collect();
        let reason = format!(
            "a split point gives values for {}, or for the first of them",
            names.join(", ")
        );
        return Err(Problem { span, reason });
    }
    let mut point = Vec::new();
    for (field, value) in shard_key.iter().zip(values) {
        let typed = match (field.kind(), value.get_ref()) {
            (FieldKind::Id | FieldKind::Text, toml::Value::String(text)) => Some(Value::text(text)),
            (FieldKind::Int, toml::Value::Integer(int)) => Some(Value::Int(*int)),
            (FieldKind::Decimal, toml::Value::String(text)) => {
                text.parse::<Decimal>().ok().map(Value::Decimal)
            }
            _ => None,
        };
        point.push(typed.ok_or_else(|| {
            problem(value, format!("this is no split point of {field}: write a text for ids, texts and decimals, a whole number for counts"))
        })?);
    }
    ShardKey::of(&point).map_err(|error| Problem {
        span,
        reason: error.to_string(),
    })
}
