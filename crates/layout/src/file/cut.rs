//! From a file's text to the cut of a collection: slots, or ranges with split points.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use rust_decimal::Decimal;
use toml::Spanned;

use super::convert::{Problem, Reading, problem};
use super::text::RangeText;
use super::{Cut, RangeCut};
use crate::column::parse_field;
use crate::field::{Field, FieldKind};
use crate::mistake::MistakeKind;
use crate::place::Place;
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

/// What a collection says about its ranges.
pub(super) struct RangesText<'t> {
    pub initial_shards: Option<Spanned<Vec<String>>>,
    pub ranges: Option<Spanned<Vec<Spanned<RangeText>>>>,
    pub zones: Option<Spanned<BTreeMap<String, Vec<String>>>>,
    pub engine: &'t str,
    pub shard_key: &'t Spanned<Vec<Spanned<String>>>,
}

pub(super) fn ranges(
    shard_key: &[Field],
    texts: RangesText<'_>,
    place: &Place,
    reading: &mut Reading,
) -> Result<Cut, Problem> {
    if let Some(shards) = texts.initial_shards {
        return Err(problem(
            &shards,
            "with cut = \"ranges\" each range names its shard: remove initial_shards",
        ));
    }
    let Some(written) = texts.ranges else {
        return Err(problem(
            texts.shard_key,
            "cut = \"ranges\" needs ranges: write ranges = [{}] to begin with one",
        ));
    };
    if written.get_ref().is_empty() {
        return Err(problem(
            &written,
            "ranges is empty: write [{}] to begin with one range for all keys",
        ));
    }
    let mut ranges = Vec::new();
    for (at, text) in written.into_inner().into_iter().enumerate() {
        let span = text.span();
        let text = text.into_inner();
        let from = match text.from {
            None => None,
            Some(toml::Value::Array(values)) => Some(split_point(shard_key, &values, span)?),
            Some(toml::Value::Table(values)) => {
                let (fields, values) = by_field(shard_key, values, &span)?;
                if !shard_key.starts_with(&fields) {
                    let place = place.clone().then("ranges").then(at).then("from");
                    let named = fields.clone();
                    reading.note(place, MistakeKind::RangeBesideShardKey { named });
                }
                Some(split_point(&fields, &values, span)?)
            }
            Some(_) => {
                let reason = "from is a list of values: write [\"m\"]".to_owned();
                return Err(Problem { span, reason });
            }
        };
        let shard = text.shard.unwrap_or_else(|| texts.engine.to_owned());
        ranges.push(RangeCut {
            from,
            shard,
            zone: text.zone,
        });
    }
    Ok(Cut::Ranges {
        ranges,
        zones: texts.zones.map(Spanned::into_inner).unwrap_or_default(),
    })
}

/// Values by field, those of the shard key first and in its order.
fn by_field(
    shard_key: &[Field],
    values: toml::Table,
    span: &Range<usize>,
) -> Result<(Vec<Field>, Vec<toml::Value>), Problem> {
    let mut named = Vec::new();
    for (name, value) in values {
        let field = parse_field(&name).map_err(|error| Problem {
            span: span.clone(),
            reason: error.to_string(),
        })?;
        named.push((field, value));
    }
    named.sort_by_key(|(field, _)| shard_key.iter().position(|key| key == field));
    Ok(named.into_iter().unzip())
}

/// The first values of a shard key; the rest may be left out.
fn split_point(
    shard_key: &[Field],
    values: &[toml::Value],
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
        let typed = match (field.kind(), value) {
            (FieldKind::Id | FieldKind::Text, toml::Value::String(text)) => Some(Value::text(text)),
            (FieldKind::Int, toml::Value::Integer(int)) => Some(Value::Int(*int)),
            (FieldKind::Decimal, toml::Value::String(text)) => {
                text.parse::<Decimal>().ok().map(Value::Decimal)
            }
            _ => None,
        };
        point.push(typed.ok_or_else(|| Problem {
            span: span.clone(),
            reason: format!("this is no split point of {field}: write a text for ids, texts and decimals, a whole number for counts"),
        })?);
    }
    ShardKey::of(&point).map_err(|error| Problem {
        span,
        reason: error.to_string(),
    })
}
