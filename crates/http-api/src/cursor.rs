//! Cursors as clients hold them: opaque text for a place in one listing.
//!
//! ```text
//!   version │ kind of the sort value │ sort value │ id │ checksum
//!      1               1              0, 8 or 16   1…64     8      bytes, base64url
//! ```
//! The checksum also covers which listing it is and whose, so that a cursor of another
//! user's orders is as unknown as a damaged one. It is no signature: a cursor only says where
//! to go on reading, and whoever asks may read the listing from anywhere.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use engine_api::{Cursor, RecordId, Timestamp};
use layout::{AccessPath, Value};
use rust_decimal::Decimal;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 8;

/// Longer texts are not even decoded.
const TEXT_BYTES_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum SortKind {
    None = 0,
    Timestamp = 1,
    Decimal = 2,
}

/// `None` if the listing is sorted by something that has no place here.
pub(crate) fn encode(cursor: &Cursor, path: AccessPath, whose: &str) -> Option<String> {
    let mut bytes = vec![VERSION];
    match &cursor.sort {
        None => bytes.push(SortKind::None as u8),
        Some(Value::Timestamp(time)) => {
            bytes.push(SortKind::Timestamp as u8);
            bytes.extend(time.unix_micros().to_be_bytes());
        }
        Some(Value::Decimal(amount)) => {
            bytes.push(SortKind::Decimal as u8);
            bytes.extend(amount.serialize());
        }
        Some(_) => return None,
    }
    bytes.extend(cursor.id.as_str().as_bytes());
    let checksum = checksum(&bytes, path, whose);
    bytes.extend(checksum);
    Some(URL_SAFE_NO_PAD.encode(bytes))
}

/// `None` if the text is no cursor of this path and this owner.
pub(crate) fn decode(text: &str, path: AccessPath, whose: &str) -> Option<Cursor> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (content, sum) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
    if checksum(content, path, whose) != *sum {
        return None;
    }
    let ([VERSION, kind], rest) = content.split_first_chunk::<2>()? else {
        return None;
    };
    let (sort, id) = split_sort(*kind, rest)?;
    let fits = match (&sort, path.shape().sort) {
        (None, None) => true,
        (Some(value), Some((field, _))) => value.is_of(field.kind()),
        _ => false,
    };
    let id = RecordId::new(std::str::from_utf8(id).ok()?).ok()?;
    fits.then_some(Cursor { sort, id })
}

fn split_sort(kind: u8, rest: &[u8]) -> Option<(Option<Value>, &[u8])> {
    if kind == SortKind::Timestamp as u8 {
        let (micros, id) = rest.split_first_chunk::<8>()?;
        let time = Timestamp::from_unix_micros(i64::from_be_bytes(*micros));
        Some((Some(Value::Timestamp(time)), id))
    } else if kind == SortKind::Decimal as u8 {
        let (amount, id) = rest.split_first_chunk::<16>()?;
        Some((Some(Value::Decimal(Decimal::deserialize(*amount))), id))
    } else {
        (kind == SortKind::None as u8).then_some((None, rest))
    }
}

fn checksum(content: &[u8], path: AccessPath, whose: &str) -> [u8; CHECKSUM_BYTES] {
    let of_path = xxh3_64(path.name().as_bytes());
    let of_owner = xxh3_64_with_seed(whose.as_bytes(), of_path);
    xxh3_64_with_seed(content, of_owner).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn by_time(micros: i64, id: &str) -> Cursor {
        Cursor {
            sort: Some(Value::Timestamp(Timestamp::from_unix_micros(micros))),
            id: RecordId::new(id).unwrap(),
        }
    }

    #[test]
    fn a_cursor_belongs_to_one_path_and_one_owner() {
        let cursor = by_time(1_700_000_000_000_000, "o-1");
        let text = encode(&cursor, AccessPath::OrdersByUser, "ann").unwrap();
        let read = |path, whose| decode(&text, path, whose);
        assert_eq!(read(AccessPath::OrdersByUser, "ann"), Some(cursor));
        assert_eq!(read(AccessPath::OrdersByUser, "bob"), None);
        assert_eq!(read(AccessPath::OrdersByPeriod, "ann"), None);
        assert_eq!(read(AccessPath::ProductsByCategory, "ann"), None);
    }

    #[test]
    fn a_cursor_by_price_keeps_the_exact_amount() {
        let cursor = Cursor {
            sort: Some(Value::Decimal(Decimal::new(149_900_001, 4))),
            id: RecordId::new("товар").unwrap(),
        };
        let text = encode(&cursor, AccessPath::ProductsByCategory, "phones").unwrap();
        let read = decode(&text, AccessPath::ProductsByCategory, "phones");
        assert_eq!(read, Some(cursor));
    }

    #[test]
    fn foreign_texts_are_no_cursors() {
        for text in ["", "AAAA", "!", "null", &"A".repeat(300), &"A".repeat(100)] {
            assert_eq!(
                decode(text, AccessPath::OrdersByUser, "ann"),
                None,
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_damaged_cursor_is_unknown(
            micros in any::<i64>(), id in "[a-z0-9-]{1,64}", place in any::<prop::sample::Index>(),
        ) {
            let cursor = by_time(micros, &id);
            let text = encode(&cursor, AccessPath::OrdersByPeriod, "").unwrap();
            prop_assert_eq!(decode(&text, AccessPath::OrdersByPeriod, ""), Some(cursor));
            let mut bytes = text.into_bytes();
            let at = place.index(bytes.len());
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let damaged = String::from_utf8(bytes).unwrap();
            prop_assert_eq!(decode(&damaged, AccessPath::OrdersByPeriod, ""), None);
        }
    }
}
