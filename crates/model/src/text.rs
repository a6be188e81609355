//! Short texts that people or other systems gave us: checked once, on the way in,
//! so that nothing behind has to ask again how long they are.

use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TextError {
    #[error("the {what} is empty, give at least 1 byte")]
    Empty { what: &'static str },
    #[error("the {what} has {bytes} bytes, shorten it to at most {bytes_max}")]
    TooLong {
        what: &'static str,
        bytes: usize,
        bytes_max: usize,
    },
    #[error("the {what} has control character {character:?} at byte {position}, remove it")]
    Control {
        what: &'static str,
        character: char,
        position: usize,
    },
}

/// Makes a text type of its own, so that an address cannot stand where a name belongs.
/// The text is shared, because ids are copied into keys, parts and journal entries.
macro_rules! text_newtype {
    ($(#[$meta:meta])* $name:ident, $what:literal, $bytes:expr) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            pub fn parse(text: &str) -> Result<Self, $crate::text::TextError> {
                $crate::text::check($what, text, $bytes)?;
                Ok(Self(text.into()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = $crate::text::TextError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                Self::parse(&text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::text::TextError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::parse(text)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
    };
}
pub(crate) use text_newtype;

text_newtype!(ProductName, "product name", 1..=256);
text_newtype!(
    /// Where the picture of a product is found: an address or a path, not the picture.
    Image, "image", 1..=512
);
text_newtype!(
    /// What the product page says about a product, as one paragraph.
    Description, "description", 1..=4096
);
text_newtype!(
    /// Delivery address on one line, as the shopper gave it.
    Address, "delivery address", 1..=512
);
text_newtype!(
    /// Name of a way to pay. The shop knows which exist, the model does not.
    PaymentMethod, "payment method", 1..=64
);
text_newtype!(UserAgent, "user agent", 1..=512);
text_newtype!(DeviceType, "device type", 1..=64);

pub(crate) fn check(
    what: &'static str,
    text: &str,
    bytes: std::ops::RangeInclusive<usize>,
) -> Result<(), TextError> {
    if text.len() > *bytes.end() {
        return Err(TextError::TooLong {
            what,
            bytes: text.len(),
            bytes_max: *bytes.end(),
        });
    }
    if text.is_empty() && *bytes.start() > 0 {
        return Err(TextError::Empty { what });
    }
    match text.char_indices().find(|(_, c)| c.is_control()) {
        Some((position, character)) => Err(TextError::Control {
            what,
            character,
            position,
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_refused_with_the_reason_and_the_limit() {
        fn refusal(text: &str) -> String {
            PaymentMethod::parse(text)
                .map(|_| String::from("accepted"))
                .unwrap_or_else(|error| error.to_string())
        }
        assert_eq!(refusal("card"), "accepted");
        assert_eq!(
            refusal(""),
            "the payment method is empty, give at least 1 byte"
        );
        assert_eq!(
            refusal(&"я".repeat(33)),
            "the payment method has 66 bytes, shorten it to at most 64"
        );
        assert_eq!(
            refusal("ca\nrd"),
            "the payment method has control character '\\n' at byte 2, remove it"
        );
    }
}
