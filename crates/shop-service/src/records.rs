//! From the shop's nouns to records and back: which field holds what.
//!
//! Reading back is checked by the model's `restore`; what it refuses is damaged.

mod cart;
mod order;
mod product;
mod session;

pub(crate) use cart::*;
pub(crate) use order::*;
pub(crate) use product::*;
pub(crate) use session::*;

use std::fmt::Display;
use std::str::FromStr;

use engine_api::Record;
use layout::{Field, Fields, Value};
use model::{Money, Timestamp};

use crate::error::ShopError;

pub(crate) fn text(noun: &impl Display) -> Value {
    Value::text(noun.to_string())
}

/// The header, with the optional values that are there.
pub(crate) fn with_optional(
    header: Fields,
    optional: impl IntoIterator<Item = (Field, Option<Value>)>,
) -> Fields {
    optional
        .into_iter()
        .fold(header, |header, (field, value)| match value {
            Some(value) => header.with(field, value),
            None => header,
        })
}

/// The header of a record that was found live.
pub(crate) fn header(record: &Record) -> Result<Reader<'_>, ShopError> {
    match record.header.content.live() {
        Some(fields) => Ok(Reader { record, fields }),
        None => Err(ShopError::Damaged {
            reason: format!("{} has no header", record.key),
        }),
    }
}

/// Reads fields into the model's nouns and says which one is wrong.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    record: &'a Record,
    pub fields: &'a Fields,
}

impl<'a> Reader<'a> {
    /// The same record's part.
    pub(crate) fn part(self, fields: &'a Fields) -> Reader<'a> {
        Reader { fields, ..self }
    }

    pub(crate) fn noun<T>(self, field: Field) -> Result<T, ShopError>
    where
        T: FromStr<Err: Display>,
    {
        self.optional(field)?.ok_or_else(|| self.lacks(field))
    }

    pub(crate) fn optional<T>(self, field: Field) -> Result<Option<T>, ShopError>
    where
        T: FromStr<Err: Display>,
    {
        match self.fields.get(field) {
            None => Ok(None),
            Some(value) => {
                let text = value.as_text().ok_or_else(|| self.lacks(field))?;
                let noun = text.parse().map_err(|error| self.damaged(error))?;
                Ok(Some(noun))
            }
        }
    }

    pub(crate) fn text(self, field: Field) -> Result<&'a str, ShopError> {
        self.fields.text(field).ok_or_else(|| self.lacks(field))
    }

    pub(crate) fn timestamp(self, field: Field) -> Result<Timestamp, ShopError> {
        self.optional_timestamp(field)
            .ok_or_else(|| self.lacks(field))
    }

    pub(crate) fn optional_timestamp(self, field: Field) -> Option<Timestamp> {
        self.fields.get(field)?.as_timestamp()
    }

    pub(crate) fn int(self, field: Field) -> Result<i64, ShopError> {
        let value = self.fields.get(field).and_then(Value::as_int);
        value.ok_or_else(|| self.lacks(field))
    }

    pub(crate) fn money(self, field: Field) -> Result<Money, ShopError> {
        let value = self.fields.get(field).and_then(Value::as_decimal);
        let decimal = value.ok_or_else(|| self.lacks(field))?;
        Money::from_decimal(decimal).map_err(|error| self.damaged(error))
    }

    pub(crate) fn damaged(self, reason: impl Display) -> ShopError {
        ShopError::Damaged {
            reason: format!("{}: {reason}", self.record.key),
        }
    }

    fn lacks(self, field: Field) -> ShopError {
        self.damaged(format_args!("{field} is missing or of another kind"))
    }
}
