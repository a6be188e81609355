//! Typed values and the fields that hold them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use model::Timestamp;
use rust_decimal::Decimal;

use crate::field::{Field, FieldKind};

/// One value of a field. Ids are text here; how a table encodes them is the layout's affair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Int(i64),
    Decimal(Decimal),
    Timestamp(Timestamp),
    Inet(IpAddr),
    Map(BTreeMap<String, Value>),
    List(Vec<Value>),
    Blob(Vec<u8>),
}

/// The fields of a header or of a part, in the order of their numbers. Shared
/// when cloned: a record passes through queue, rules, cache and image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(Arc<Vec<(Field, Value)>>);

impl Value {
    pub fn text(text: impl Into<String>) -> Value {
        Value::Text(text.into())
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(int) => Some(*int),
            _ => None,
        }
    }

    pub fn as_decimal(&self) -> Option<Decimal> {
        match self {
            Value::Decimal(decimal) => Some(*decimal),
            _ => None,
        }
    }

    pub fn as_timestamp(&self) -> Option<Timestamp> {
        match self {
            Value::Timestamp(timestamp) => Some(*timestamp),
            _ => None,
        }
    }

    /// Whether a field of this kind may hold this value.
    pub fn is_of(&self, kind: FieldKind) -> bool {
        matches!(
            (self, kind),
            (Value::Text(_), FieldKind::Id | FieldKind::Text)
                | (Value::Int(_), FieldKind::Int)
                | (Value::Decimal(_), FieldKind::Decimal)
                | (Value::Timestamp(_), FieldKind::Timestamp)
                | (Value::Inet(_), FieldKind::Inet)
                | (Value::Map(_), FieldKind::Map)
                | (Value::List(_), FieldKind::List)
                | (Value::Blob(_), FieldKind::Blob)
        )
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => write!(f, "{text:?}"),
            Value::Int(int) => write!(f, "{int}"),
            Value::Decimal(decimal) => write!(f, "{decimal}"),
            Value::Timestamp(timestamp) => write!(f, "{timestamp}"),
            Value::Inet(address) => write!(f, "{address}"),
            Value::Map(map) => write!(f, "a map of {} entries", map.len()),
            Value::List(list) => write!(f, "a list of {} values", list.len()),
            Value::Blob(blob) => write!(f, "{} bytes", blob.len()),
        }
    }
}

impl Fields {
    pub fn new() -> Fields {
        Fields::default()
    }

    /// None yet, with room for so many.
    pub fn with_capacity(fields: usize) -> Fields {
        Fields(Arc::new(Vec::with_capacity(fields)))
    }

    /// The same fields with one more, or with another value of it.
    ///
    /// # Panics
    /// When the value is not of the field's kind: that is a fault of the
    /// caller, found by its first test; what comes from outside goes through
    /// [`Fields::insert`].
    #[must_use]
    pub fn with(mut self, field: Field, value: Value) -> Fields {
        assert!(value.is_of(field.kind()), "{field} cannot hold {value}");
        self.put(field, value);
        self
    }

    /// Refuses a value that is not of the field's kind.
    pub fn insert(&mut self, field: Field, value: Value) -> Result<(), WrongKind> {
        if !value.is_of(field.kind()) {
            return Err(WrongKind { field, value });
        }
        self.put(field, value);
        Ok(())
    }

    fn put(&mut self, field: Field, value: Value) {
        let place = self.place(field);
        let fields = Arc::make_mut(&mut self.0);
        match place {
            Ok(index) => fields[index].1 = value,
            Err(index) => fields.insert(index, (field, value)),
        }
    }

    /// Where the field stands, or where it would.
    fn place(&self, field: Field) -> Result<usize, usize> {
        self.0.binary_search_by_key(&field, |(field, _)| *field)
    }

    pub fn remove(&mut self, field: Field) -> Option<Value> {
        let index = self.place(field).ok()?;
        Some(Arc::make_mut(&mut self.0).remove(index).1)
    }

    pub fn get(&self, field: Field) -> Option<&Value> {
        Some(&self.0[self.place(field).ok()?].1)
    }

    pub fn text(&self, field: Field) -> Option<&str> {
        self.get(field)?.as_text()
    }

    pub fn iter(&self) -> impl Iterator<Item = (Field, &Value)> {
        self.0.iter().map(|(field, value)| (*field, value))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("field {field} holds {kind:?} values and cannot hold {value}", kind = field.kind())]
pub struct WrongKind {
    pub field: Field,
    pub value: Value,
}
