//! Values as BSON, without loss.
//!
//! A field's kind is known, so its value stands plainly: text, 64-bit number,
//! Decimal128, and timestamps as microseconds (a BSON date has milliseconds
//! only). Values inside a map or list have no declared kind: what BSON has no
//! type of its own for is wrapped in a document that names it. A map is a list
//! of pairs, because keys of shoppers hold dots, dollars and zero bytes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;

use engine_api::Timestamp;
use engine_api::layout::{Field, FieldKind, Fields, Value};
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Decimal128, Document, doc};
use rust_decimal::Decimal;

use crate::document::Unreadable;

pub(crate) fn fields_to_bson(fields: &Fields) -> Document {
    fields
        .iter()
        .map(|(field, value)| (field.name().to_owned(), field_to_bson(value)))
        .collect()
}

pub(crate) fn fields_from_bson(document: &Document) -> Result<Fields, Unreadable> {
    let mut fields = Fields::new();
    for (name, bson) in document {
        let field = Field::named(name).ok_or_else(|| Unreadable::new("a field name", bson))?;
        let value = field_from_bson(field.kind(), bson)?;
        fields
            .insert(field, value)
            .map_err(|_| Unreadable::new(field.name(), bson))?;
    }
    Ok(fields)
}

/// The value of a field whose kind is known.
pub(crate) fn field_to_bson(value: &Value) -> Bson {
    match value {
        Value::Timestamp(at) => Bson::Int64(at.unix_micros()),
        Value::Inet(address) => Bson::String(address.to_string()),
        Value::Map(map) => pairs(map),
        other => to_bson(other),
    }
}

fn field_from_bson(kind: FieldKind, bson: &Bson) -> Result<Value, Unreadable> {
    match (kind, bson) {
        (FieldKind::Timestamp, Bson::Int64(micros)) => {
            Ok(Value::Timestamp(Timestamp::from_unix_micros(*micros)))
        }
        (FieldKind::Inet, Bson::String(text)) => inet(text, bson),
        (FieldKind::Map, Bson::Array(pairs)) => map(pairs),
        _ => from_bson(bson),
    }
}

fn to_bson(value: &Value) -> Bson {
    match value {
        Value::Text(text) => Bson::String(text.clone()),
        Value::Int(int) => Bson::Int64(*int),
        Value::Decimal(decimal) => Bson::Decimal128(
            Decimal128::from_str(&decimal.to_string())
                .expect("29 digits fit into the 34 of a Decimal128"),
        ),
        Value::Timestamp(at) => Bson::Document(doc! { "timestamp": at.unix_micros() }),
        Value::Inet(address) => Bson::Document(doc! { "inet": address.to_string() }),
        Value::Map(map) => Bson::Document(doc! { "map": pairs(map) }),
        Value::List(list) => Bson::Array(list.iter().map(to_bson).collect()),
        Value::Blob(bytes) => Bson::Binary(Binary {
            subtype: BinarySubtype::Generic,
            bytes: bytes.clone(),
        }),
    }
}

fn from_bson(bson: &Bson) -> Result<Value, Unreadable> {
    match bson {
        Bson::String(text) => Ok(Value::Text(text.clone())),
        Bson::Int64(int) => Ok(Value::Int(*int)),
        Bson::Decimal128(decimal) => decimal_from(&decimal.to_string(), bson),
        Bson::Array(list) => list
            .iter()
            .map(from_bson)
            .collect::<Result<_, _>>()
            .map(Value::List),
        Bson::Binary(Binary {
            subtype: BinarySubtype::Generic,
            bytes,
        }) => Ok(Value::Blob(bytes.clone())),
        Bson::Document(wrapped) => match wrapped.iter().next() {
            Some((name, Bson::Int64(micros))) if name == "timestamp" => {
                Ok(Value::Timestamp(Timestamp::from_unix_micros(*micros)))
            }
            Some((name, Bson::String(text))) if name == "inet" => inet(text, bson),
            Some((name, Bson::Array(pairs))) if name == "map" => map(pairs),
            _ => Err(Unreadable::new("a wrapped value", bson)),
        },
        _ => Err(Unreadable::new("a value", bson)),
    }
}

fn pairs(map: &BTreeMap<String, Value>) -> Bson {
    let pair = |(key, value): (&String, &Value)| {
        Bson::Document(doc! { "key": key, "value": to_bson(value) })
    };
    Bson::Array(map.iter().map(pair).collect())
}

fn map(pairs: &[Bson]) -> Result<Value, Unreadable> {
    let pair = |bson: &Bson| {
        let entry = bson.as_document();
        match entry.map(|entry| (entry.get("key"), entry.get("value"))) {
            Some((Some(Bson::String(key)), Some(value))) => Ok((key.clone(), from_bson(value)?)),
            _ => Err(Unreadable::new("an entry of a map", bson)),
        }
    };
    pairs
        .iter()
        .map(pair)
        .collect::<Result<_, _>>()
        .map(Value::Map)
}

fn inet(text: &str, bson: &Bson) -> Result<Value, Unreadable> {
    IpAddr::from_str(text)
        .map(Value::Inet)
        .map_err(|_| Unreadable::new("an address", bson))
}

/// A Decimal128 prints small and large numbers with an exponent.
fn decimal_from(text: &str, bson: &Bson) -> Result<Value, Unreadable> {
    let parsed = if text.contains(['E', 'e']) {
        Decimal::from_scientific(text)
    } else {
        Decimal::from_str_exact(text)
    };
    parsed
        .map(Value::Decimal)
        .map_err(|_| Unreadable::new("a decimal", bson))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_value_comes_back_as_it_was() {
        let texts = ["", "я", "a.b$c", "zero\0byte", "$where"];
        let decimals = [
            "0",
            "-0.00",
            "19.90",
            "0.0000000000000000000000000001",
            "-1E-7",
            "79228162514264337593543950335",
            "-7.9228162514264337593543950335",
        ];
        let mut values: Vec<Value> = texts.into_iter().map(Value::text).collect();
        values.extend(decimals.map(|text| {
            let parsed = Decimal::from_str_exact(text).or_else(|_| Decimal::from_scientific(text));
            Value::Decimal(parsed.unwrap())
        }));
        values.extend([i64::MIN, -1, 0, 1, i64::MAX].map(Value::Int));
        values.extend(
            [i64::MIN, 0, 1_700_000_000_123_457]
                .map(|at| Value::Timestamp(Timestamp::from_unix_micros(at))),
        );
        values.extend(
            ["127.0.0.1", "::1", "::ffff:1.2.3.4"].map(|text| Value::Inet(text.parse().unwrap())),
        );
        values.extend([Value::Blob(vec![]), Value::Blob(vec![0, 255, 1])]);
        values.push(Value::Map(BTreeMap::new()));
        values.push(Value::List(vec![]));
        let keys = ["", "a.b", "$set", "\0"].map(str::to_owned);
        values.push(Value::Map(keys.into_iter().zip(values.clone()).collect()));
        values.push(Value::List(values.clone()));
        for value in values {
            assert_eq!(from_bson(&to_bson(&value)).unwrap(), value);
            let kinds = [FieldKind::Timestamp, FieldKind::Inet, FieldKind::Map];
            let kind = kinds
                .into_iter()
                .find(|kind| value.is_of(*kind))
                .unwrap_or(FieldKind::Text);
            assert_eq!(
                field_from_bson(kind, &field_to_bson(&value)).unwrap(),
                value
            );
        }
    }

    #[test]
    fn the_scale_of_a_decimal_is_kept() {
        let Value::Decimal(price) =
            from_bson(&to_bson(&Value::Decimal(Decimal::new(1990, 2)))).unwrap()
        else {
            panic!("a decimal comes back as one")
        };
        assert_eq!(price.to_string(), "19.90");
    }

    #[test]
    fn what_others_wrote_is_refused_not_guessed() {
        for bson in [
            Bson::Null,
            Bson::Int32(1),
            Bson::Double(1.5),
            Bson::Document(doc! { "x": 1 }),
        ] {
            assert!(from_bson(&bson).is_err());
        }
        assert!(fields_from_bson(&doc! { "no_such_field": "x" }).is_err());
        assert!(fields_from_bson(&doc! { "price": "19.90" }).is_err());
    }
}
