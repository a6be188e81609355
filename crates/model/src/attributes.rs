//! Free keys and values of a product or a shopper session, bounded in number and bytes,
//! because whoever fills them is not us.

use crate::text::text_newtype;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;

pub const ATTRIBUTES_MAX: usize = 64;

/// Bytes of all names and values together.
pub const ATTRIBUTES_BYTES_MAX: usize = 16 * 1024;

text_newtype!(AttributeName, "attribute name", 1..=64);
text_newtype!(AttributeValue, "attribute value", 0..=2048);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<AttributeName, AttributeValue>")]
pub struct Attributes(BTreeMap<AttributeName, AttributeValue>);

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AttributeError {
    #[error("{count} attributes are too many, keep at most {ATTRIBUTES_MAX}")]
    TooMany { count: usize },
    #[error("the attributes have {bytes} bytes, shorten them to at most {ATTRIBUTES_BYTES_MAX}")]
    TooLarge { bytes: usize },
}

impl Attributes {
    pub fn new(entries: BTreeMap<AttributeName, AttributeValue>) -> Result<Self, AttributeError> {
        if entries.len() > ATTRIBUTES_MAX {
            return Err(AttributeError::TooMany {
                count: entries.len(),
            });
        }
        let bytes = entries
            .iter()
            .map(|(name, value)| name.as_str().len() + value.as_str().len())
            .sum();
        if bytes > ATTRIBUTES_BYTES_MAX {
            return Err(AttributeError::TooLarge { bytes });
        }
        Ok(Self(entries))
    }

    pub fn get(&self, name: &AttributeName) -> Option<&AttributeValue> {
        self.0.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&AttributeName, &AttributeValue)> {
        self.0.iter()
    }
}

impl TryFrom<BTreeMap<AttributeName, AttributeValue>> for Attributes {
    type Error = AttributeError;

    fn try_from(entries: BTreeMap<AttributeName, AttributeValue>) -> Result<Self, Self::Error> {
        Self::new(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(count: usize, bytes_each: usize) -> Result<Attributes, AttributeError> {
        let value = AttributeValue::parse(&"v".repeat(bytes_each)).unwrap();
        let name = |number| AttributeName::parse(&format!("{number:04}")).unwrap();
        Attributes::new((0..count).map(|n| (name(n), value.clone())).collect())
    }

    #[test]
    fn attributes_are_bounded_in_number_and_in_bytes() {
        assert!(attributes(ATTRIBUTES_MAX, 252).is_ok());
        assert_eq!(
            attributes(ATTRIBUTES_MAX, 253),
            Err(AttributeError::TooLarge { bytes: 64 * 257 })
        );
        assert_eq!(
            attributes(65, 1),
            Err(AttributeError::TooMany { count: 65 })
        );
    }
}
