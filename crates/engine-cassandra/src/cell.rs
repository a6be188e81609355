//! Values as cells, and back without loss.
//!
//! CQL's own timestamp counts milliseconds, ours are microseconds: they stand
//! in `bigint` columns. Maps and lists hold values of mixed kinds, which no CQL
//! collection can: they stand as JSON in `text` columns, and so do the fields
//! of a part.

use std::collections::BTreeMap;

use engine_api::{EngineError, Timestamp};
use layout::{Field, FieldKind, Fields, Value};
use rust_decimal::Decimal;
use scylla::value::{CqlDecimal, CqlValue};
use serde_json::{Map, Value as Json, json};

use crate::failure::damaged;

pub(crate) fn column_type(kind: FieldKind) -> &'static str {
    match kind {
        FieldKind::Id | FieldKind::Text | FieldKind::Map | FieldKind::List => "text",
        FieldKind::Int | FieldKind::Timestamp => "bigint",
        FieldKind::Decimal => "decimal",
        FieldKind::Inet => "inet",
        FieldKind::Blob => "blob",
    }
}

pub(crate) fn to_cell(value: &Value) -> CqlValue {
    match value {
        Value::Text(text) => CqlValue::Text(text.clone()),
        Value::Int(int) => CqlValue::BigInt(*int),
        Value::Decimal(decimal) => CqlValue::Decimal(to_cql_decimal(*decimal)),
        Value::Timestamp(at) => CqlValue::BigInt(at.unix_micros()),
        Value::Inet(address) => CqlValue::Inet(*address),
        Value::Blob(bytes) => CqlValue::Blob(bytes.clone()),
        Value::Map(_) | Value::List(_) => CqlValue::Text(to_json(value).to_string()),
    }
}

pub(crate) fn from_cell(field: Field, cell: &CqlValue) -> Result<Value, EngineError> {
    let value = match (field.kind(), cell) {
        (FieldKind::Id | FieldKind::Text, CqlValue::Text(text)) => Some(Value::Text(text.clone())),
        (FieldKind::Int, CqlValue::BigInt(int)) => Some(Value::Int(*int)),
        (FieldKind::Timestamp, CqlValue::BigInt(micros)) => {
            Some(Value::Timestamp(Timestamp::from_unix_micros(*micros)))
        }
        (FieldKind::Decimal, CqlValue::Decimal(decimal)) => {
            from_cql_decimal(decimal).map(Value::Decimal)
        }
        (FieldKind::Inet, CqlValue::Inet(address)) => Some(Value::Inet(*address)),
        (FieldKind::Blob, CqlValue::Blob(bytes)) => Some(Value::Blob(bytes.clone())),
        (FieldKind::Map | FieldKind::List, CqlValue::Text(text)) => {
            serde_json::from_str(text).ok().as_ref().and_then(from_json)
        }
        _ => None,
    };
    value
        .filter(|value| value.is_of(field.kind()))
        .ok_or_else(|| damaged(format!("column {field} holds {cell:?}")))
}

pub(crate) fn fields_to_text(fields: &Fields) -> String {
    let object: Map<String, Json> = fields
        .iter()
        .map(|(field, value)| (field.name().to_owned(), to_json(value)))
        .collect();
    Json::Object(object).to_string()
}

pub(crate) fn fields_from_text(text: &str) -> Result<Fields, EngineError> {
    let unreadable = || damaged(format!("a part holds {text}"));
    let Ok(Json::Object(object)) = serde_json::from_str(text) else {
        return Err(unreadable());
    };
    let mut fields = Fields::new();
    for (name, json) in &object {
        let field = Field::named(name).ok_or_else(unreadable)?;
        let value = from_json(json).ok_or_else(unreadable)?;
        fields.insert(field, value).map_err(|_| unreadable())?;
    }
    Ok(fields)
}

/// Text, whole numbers and lists as they are; the rest is named by its kind.
fn to_json(value: &Value) -> Json {
    match value {
        Value::Text(text) => json!(text),
        Value::Int(int) => json!(int),
        Value::List(values) => Json::Array(values.iter().map(to_json).collect()),
        Value::Decimal(decimal) => json!({ "decimal": decimal.to_string() }),
        Value::Timestamp(at) => json!({ "timestamp": at.unix_micros() }),
        Value::Inet(address) => json!({ "inet": address.to_string() }),
        Value::Blob(bytes) => json!({ "blob": bytes }),
        Value::Map(values) => {
            let object: Map<String, Json> = values
                .iter()
                .map(|(name, value)| (name.clone(), to_json(value)))
                .collect();
            json!({ "map": object })
        }
    }
}

fn from_json(json: &Json) -> Option<Value> {
    match json {
        Json::String(text) => Some(Value::Text(text.clone())),
        Json::Number(number) => number.as_i64().map(Value::Int),
        Json::Array(values) => values
            .iter()
            .map(from_json)
            .collect::<Option<_>>()
            .map(Value::List),
        Json::Object(object) => {
            let (kind, inner) = object.iter().next().filter(|_| object.len() == 1)?;
            from_named(kind, inner)
        }
        Json::Null | Json::Bool(_) => None,
    }
}

fn from_named(kind: &str, json: &Json) -> Option<Value> {
    match kind {
        "decimal" => json.as_str()?.parse::<Decimal>().ok().map(Value::Decimal),
        "timestamp" => json
            .as_i64()
            .map(|micros| Value::Timestamp(Timestamp::from_unix_micros(micros))),
        "inet" => json.as_str()?.parse().ok().map(Value::Inet),
        "blob" => {
            let byte = |json: &Json| u8::try_from(json.as_u64()?).ok();
            json.as_array()?
                .iter()
                .map(byte)
                .collect::<Option<_>>()
                .map(Value::Blob)
        }
        "map" => {
            let entry = |(name, json): (&String, &Json)| Some((name.clone(), from_json(json)?));
            json.as_object()?
                .iter()
                .map(entry)
                .collect::<Option<BTreeMap<_, _>>>()
                .map(Value::Map)
        }
        _ => None,
    }
}

fn to_cql_decimal(decimal: Decimal) -> CqlDecimal {
    let bytes = decimal.mantissa().to_be_bytes();
    // The shortest form: leading bytes that only repeat the sign are left out.
    let repeats =
        |pair: &&[u8]| (pair[0] == 0 && pair[1] < 0x80) || (pair[0] == 0xff && pair[1] >= 0x80);
    let skip = bytes.windows(2).take_while(repeats).count();
    let scale = i32::try_from(decimal.scale()).expect("a decimal has at most 28 places");
    CqlDecimal::from_signed_be_bytes_slice_and_exponent(&bytes[skip..], scale)
}

fn from_cql_decimal(decimal: &CqlDecimal) -> Option<Decimal> {
    let (bytes, scale) = decimal.as_signed_be_bytes_slice_and_exponent();
    let first = *bytes.first()?;
    let mut wide = [if first >= 0x80 { 0xff } else { 0 }; 16];
    let start = wide.len().checked_sub(bytes.len())?;
    wide[start..].copy_from_slice(bytes);
    Decimal::try_from_i128_with_scale(i128::from_be_bytes(wide), u32::try_from(scale).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_comes_back_as_a_cell_and_as_a_part() {
        let nested = BTreeMap::from([
            ("empty".to_owned(), Value::text("")),
            (
                "list".to_owned(),
                Value::List(vec![
                    Value::Int(i64::MIN),
                    Value::Decimal(Decimal::new(-1990, 2)),
                ]),
            ),
            (
                "map".to_owned(),
                Value::Map(BTreeMap::from([(
                    "decimal".to_owned(),
                    Value::text("not one"),
                )])),
            ),
            ("blob".to_owned(), Value::Blob(vec![0, 255])),
            (
                "at".to_owned(),
                Value::Timestamp(Timestamp::from_unix_micros(-1)),
            ),
            ("inet".to_owned(), Value::Inet([127, 0, 0, 1].into())),
        ]);
        let values = [
            (Field::Name, Value::text("лампа \u{0} \"quoted\"")),
            (Field::Quantity, Value::Int(i64::MAX)),
            (Field::Price, Value::Decimal(Decimal::MAX)),
            (Field::Price, Value::Decimal(Decimal::MIN)),
            (Field::Price, Value::Decimal(Decimal::new(-128, 28))),
            (Field::Price, Value::Decimal(Decimal::new(12800, 2))),
            (Field::Price, Value::Decimal(Decimal::ZERO)),
            (
                Field::CreatedAt,
                Value::Timestamp(Timestamp::from_unix_micros(1_700_000_000_123_457)),
            ),
            (
                Field::IpAddress,
                Value::Inet("2001:db8::1".parse().unwrap()),
            ),
            (Field::SessionData, Value::Map(nested)),
            (
                Field::Lines,
                Value::List(vec![Value::text("a"), Value::List(vec![])]),
            ),
        ];
        for (field, value) in values {
            assert_eq!(from_cell(field, &to_cell(&value)).unwrap(), value);
            let fields = Fields::new().with(field, value);
            assert_eq!(fields_from_text(&fields_to_text(&fields)).unwrap(), fields);
        }
    }

    #[test]
    fn places_of_a_decimal_are_kept() {
        let price: Decimal = "19.90".parse().unwrap();
        let back = from_cell(Field::Price, &to_cell(&Value::Decimal(price))).unwrap();
        assert_eq!(back.as_decimal().unwrap().to_string(), "19.90");
    }

    #[test]
    fn what_nobody_wrote_is_damage() {
        for text in [
            "",
            "[]",
            "{\"price\":{\"decimal\":\"x\"}}",
            "{\"no_such\":1}",
            "{\"price\":\"text\"}",
        ] {
            assert!(fields_from_text(text).is_err(), "{text}");
        }
        assert!(from_cell(Field::Quantity, &CqlValue::Text("1".to_owned())).is_err());
    }
}
