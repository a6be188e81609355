//! Keys as bytes that sort like the values they were made of.
//!
//! One encoding serves shard keys, the rows of derived tables and listing
//! cursors, so that "comes after" means the same in all three. Each value
//! starts with a tag for its kind; a text ends with a terminator, so that
//! ("a", "bc") and ("ab", "c") differ and a prefix of values is a prefix of
//! bytes.

use model::Timestamp;
use rust_decimal::Decimal;

use crate::value::Value;

const TAG_INT: u8 = 1;
const TAG_TIMESTAMP: u8 = 2;
const TAG_DECIMAL: u8 = 3;
const TAG_TEXT: u8 = 4;

/// Decimals sort as whole numbers of 10⁻⁸: more places than any price has.
const DECIMAL_SCALE: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    Ascending,
    Descending,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("{value} cannot stand in a key: use a text, a whole number, a decimal or a timestamp")]
    NotAKey { value: Value },
    #[error("{value} is too large to stand in a key: at most 10²⁰ with 8 decimal places")]
    TooLarge { value: Value },
    #[error("these bytes are not an encoded key: {reason}")]
    Malformed { reason: &'static str },
}

/// Appends `value` to `key` so that byte order is value order in `direction`.
pub fn encode_value(
    key: &mut Vec<u8>,
    value: &Value,
    direction: Direction,
) -> Result<(), KeyError> {
    let start = key.len();
    match value {
        Value::Int(int) => {
            key.push(TAG_INT);
            key.extend_from_slice(&order_preserving(*int));
        }
        Value::Timestamp(timestamp) => {
            key.push(TAG_TIMESTAMP);
            key.extend_from_slice(&order_preserving(timestamp.unix_micros()));
        }
        Value::Decimal(decimal) => {
            key.push(TAG_DECIMAL);
            let whole = scaled(*decimal).ok_or_else(|| KeyError::TooLarge {
                value: value.clone(),
            })?;
            key.extend_from_slice(&((whole as u128) ^ (1 << 127)).to_be_bytes());
        }
        Value::Text(text) => encode_text(key, text),
        Value::Inet(_) | Value::Map(_) | Value::List(_) | Value::Blob(_) => {
            return Err(KeyError::NotAKey {
                value: value.clone(),
            });
        }
    }
    if direction == Direction::Descending {
        key[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    Ok(())
}

/// A text upwards: zeros inside are marked, two zeros end it.
pub(crate) fn encode_text(key: &mut Vec<u8>, text: &str) {
    key.push(TAG_TEXT);
    for (index, piece) in text.as_bytes().split(|byte| *byte == 0).enumerate() {
        if index > 0 {
            key.extend_from_slice(&[0, 0xff]);
        }
        key.extend_from_slice(piece);
    }
    key.extend_from_slice(&[0, 0]);
}

/// The values of an ascending key, as they were given.
pub fn decode_values(mut bytes: &[u8]) -> Result<Vec<Value>, KeyError> {
    let mut values = Vec::new();
    while let Some((tag, rest)) = bytes.split_first() {
        let (value, rest) = decode_one(*tag, rest)?;
        values.push(value);
        bytes = rest;
    }
    Ok(values)
}

/// How many values an ascending key is made of. The key is well-formed; what is not
/// ends the count.
pub(crate) fn count_values(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while let Some((tag, rest)) = bytes.split_first() {
        count += 1;
        let length = match *tag {
            TAG_INT | TAG_TIMESTAMP => 8,
            TAG_DECIMAL => 16,
            _ => text_length(rest),
        };
        bytes = rest.get(length..).unwrap_or_default();
    }
    count
}

/// Up to and with the two zeros that end a text.
fn text_length(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(zero) = bytes[at..].iter().position(|byte| *byte == 0) {
        at += zero + 2;
        if at > bytes.len() || bytes[at - 1] == 0 {
            return at.min(bytes.len());
        }
    }
    bytes.len()
}

fn decode_one(tag: u8, bytes: &[u8]) -> Result<(Value, &[u8]), KeyError> {
    let short = KeyError::Malformed {
        reason: "a value is cut short",
    };
    match tag {
        TAG_INT | TAG_TIMESTAMP => {
            let (number, rest) = bytes.split_first_chunk::<8>().ok_or(short)?;
            let number = (u64::from_be_bytes(*number) ^ (1 << 63)) as i64;
            let value = if tag == TAG_INT {
                Value::Int(number)
            } else {
                Value::Timestamp(Timestamp::from_unix_micros(number))
            };
            Ok((value, rest))
        }
        TAG_DECIMAL => {
            let (number, rest) = bytes.split_first_chunk::<16>().ok_or(short)?;
            let number = (u128::from_be_bytes(*number) ^ (1 << 127)) as i128;
            let decimal =
                Decimal::try_from_i128_with_scale(number, DECIMAL_SCALE).map_err(|_| {
                    KeyError::Malformed {
                        reason: "a decimal is out of range",
                    }
                })?;
            Ok((Value::Decimal(decimal.normalize()), rest))
        }
        TAG_TEXT => decode_text(bytes),
        _ => Err(KeyError::Malformed {
            reason: "a value has an unknown tag",
        }),
    }
}

fn decode_text(bytes: &[u8]) -> Result<(Value, &[u8]), KeyError> {
    let mut text = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if *byte != 0 {
            text.push(*byte);
            at += 1;
            continue;
        }
        match bytes.get(at + 1) {
            Some(0xff) => text.push(0),
            Some(0) => {
                let text = String::from_utf8(text).map_err(|_| KeyError::Malformed {
                    reason: "a text is not UTF-8",
                })?;
                return Ok((Value::Text(text), &bytes[at + 2..]));
            }
            _ => {
                return Err(KeyError::Malformed {
                    reason: "a text has a stray zero byte",
                });
            }
        }
        at += 2;
    }
    Err(KeyError::Malformed {
        reason: "a text has no end",
    })
}

fn order_preserving(number: i64) -> [u8; 8] {
    ((number as u64) ^ (1 << 63)).to_be_bytes()
}

fn scaled(decimal: Decimal) -> Option<i128> {
    let mut decimal = decimal.normalize();
    if decimal.scale() > DECIMAL_SCALE {
        return None;
    }
    decimal.rescale(DECIMAL_SCALE);
    (decimal.scale() == DECIMAL_SCALE).then(|| decimal.mantissa())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key_value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<i64>().prop_map(Value::Int),
            any::<i64>().prop_map(|micros| Value::Timestamp(Timestamp::from_unix_micros(micros))),
            (any::<i64>(), 0u32..=8).prop_map(|(mantissa, scale)| Value::Decimal(
                Decimal::new(mantissa, scale).normalize()
            )),
            "[a-c\u{0}я]{0,6}".prop_map(Value::Text),
        ]
    }

    fn encoded(values: &[Value], direction: Direction) -> Option<Vec<u8>> {
        let mut key = Vec::new();
        for value in values {
            encode_value(&mut key, value, direction).ok()?;
        }
        Some(key)
    }

    proptest! {
        #[test]
        fn a_key_gives_back_its_values(values in prop::collection::vec(key_value(), 0..4)) {
            if let Some(key) = encoded(&values, Direction::Ascending) {
                prop_assert_eq!(count_values(&key), values.len());
                prop_assert_eq!(decode_values(&key).unwrap(), values);
            }
        }

        #[test]
        fn bytes_sort_like_texts(a in "[a-c\u{0}я]{0,6}", b in "[a-c\u{0}я]{0,6}") {
            let key = |text: &str, way| encoded(&[Value::text(text)], way).unwrap();
            prop_assert_eq!(a.cmp(&b), key(&a, Direction::Ascending).cmp(&key(&b, Direction::Ascending)));
            prop_assert_eq!(b.cmp(&a), key(&a, Direction::Descending).cmp(&key(&b, Direction::Descending)));
        }

        #[test]
        fn bytes_sort_like_decimals(a in any::<i64>(), b in any::<i64>(), i in 0u32..=8, j in 0u32..=8) {
            let (a, b) = (Decimal::new(a, i), Decimal::new(b, j));
            let keys = [a, b].map(|d| encoded(&[Value::Decimal(d)], Direction::Ascending));
            if let [Some(x), Some(y)] = keys {
                prop_assert_eq!(a.cmp(&b), x.cmp(&y));
            }
        }

        #[test]
        fn decoding_garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = decode_values(&bytes);
            let _ = count_values(&bytes);
        }
    }
}
