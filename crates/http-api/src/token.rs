//! Texts of a revision: the read-your-writes token and the entity tag.
//!
//! A token is opaque to clients: `t`, the revision in base 36, two check digits. The
//! digits tell a damaged token from a good one; they keep nobody from making one, and
//! a made one can do no harm that a clock limit does not stop.

use engine_api::{Revision, Timestamp};
use xxhash_rust::xxh3::xxh3_64;

const PREFIX: u8 = b't';
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
const CHECK_DIGITS: usize = 2;

/// Prefix, 13 digits of a 64-bit number, check digits.
const TOKEN_BYTES_MAX: usize = 1 + 13 + CHECK_DIGITS;

/// Quotes and 20 digits of a 64-bit number.
const TAG_BYTES_MAX: usize = 22;

/// A short text on the stack, for a header's value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Short<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("the token is damaged, send the last one you were given or none")]
    Damaged,
    #[error("the token is {ahead_ms} ms ahead of this shop's clock, send none and read again")]
    FromTheFuture { ahead_ms: u64 },
}

pub(crate) fn token(revision: Revision) -> Short<TOKEN_BYTES_MAX> {
    let number = revision.to_i64().unsigned_abs();
    let mut text = Short::new();
    text.push(PREFIX);
    text.push_number(number, 36);
    let check = xxh3_64(&number.to_le_bytes());
    text.push(DIGITS[(check % 36) as usize]);
    text.push(DIGITS[(check / 36 % 36) as usize]);
    text
}

/// What a client has seen, if it can be true: a revision from the far future would
/// push this process's clock along with every write.
pub(crate) fn parse_token(
    text: &str,
    now: Timestamp,
    ahead_ms_max: u64,
) -> Result<Revision, TokenError> {
    let revision = revision_of(text).ok_or(TokenError::Damaged)?;
    let ahead_us = revision
        .time()
        .unix_micros()
        .saturating_sub(now.unix_micros());
    let ahead_ms = u64::try_from(ahead_us / 1000).unwrap_or(0);
    if ahead_ms > ahead_ms_max {
        return Err(TokenError::FromTheFuture { ahead_ms });
    }
    Ok(revision)
}

fn revision_of(text: &str) -> Option<Revision> {
    let digits = text
        .strip_prefix(char::from(PREFIX))
        .filter(|rest| rest.is_ascii() && rest.len() > CHECK_DIGITS)
        .map(|rest| &rest[..rest.len() - CHECK_DIGITS])?;
    let revision = Revision::from_i64(i64::from_str_radix(digits, 36).ok()?)?;
    // Written again it must be the same text: that holds the check digits, and that
    // every revision has one token only.
    (token(revision).as_bytes() == text.as_bytes()).then_some(revision)
}

/// The entity tag of a record, quotes included.
pub(crate) fn tag(revision: Revision) -> Short<TAG_BYTES_MAX> {
    let mut text = Short::new();
    text.push(b'"');
    text.push_number(revision.to_i64().unsigned_abs(), 10);
    text.push(b'"');
    text
}

impl<const N: usize> Short<N> {
    fn new() -> Short<N> {
        Short {
            bytes: [0; N],
            len: 0,
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    fn push_number(&mut self, mut number: u64, base: u64) {
        let start = self.len;
        loop {
            self.push(DIGITS[(number % base) as usize]);
            number /= base;
            if number == 0 {
                break;
            }
        }
        self.bytes[start..self.len].reverse();
    }
}

#[cfg(test)]
mod tests {
    use engine_api::Writer;
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_unix_micros(1_700_000_000_000_000);

    fn text(revision: Revision) -> String {
        String::from_utf8(token(revision).as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn a_token_of_the_far_future_is_refused() {
        let at = |ms: i64| {
            let time = Timestamp::from_unix_micros(NOW.unix_micros() + ms * 1000);
            text(Revision::at(time, Writer::numbered(3)))
        };
        assert!(parse_token(&at(0), NOW, 500).is_ok());
        assert!(parse_token(&at(499), NOW, 500).is_ok());
        let refused = parse_token(&at(10_000), NOW, 500).unwrap_err();
        assert!(matches!(refused, TokenError::FromTheFuture { ahead_ms } if ahead_ms > 9_000));
        let furthest = text(Revision::from_i64(i64::MAX).unwrap());
        assert_eq!(furthest, "t1y2p0ij32e8e764");
        assert!(parse_token(&furthest, NOW, 500).is_err());
    }

    #[test]
    fn other_texts_are_no_tokens() {
        let good = text(Revision::at(NOW, Writer::numbered(1)));
        let mut padded = good.clone();
        padded.insert(1, '0');
        for bad in [
            "",
            "t",
            "t0",
            "x",
            "tй",
            "t-100",
            &good[1..],
            &good.to_uppercase(),
            &padded,
        ] {
            assert_eq!(
                parse_token(bad, NOW, 500),
                Err(TokenError::Damaged),
                "{bad}"
            );
        }
        assert_eq!(
            parse_token(&text(Revision::ZERO), NOW, 500),
            Ok(Revision::ZERO)
        );
    }

    #[test]
    fn a_tag_is_the_revision_in_quotes() {
        let revision = Revision::from_i64(1_234_567).unwrap();
        assert_eq!(tag(revision).as_bytes(), b"\"1234567\"");
        assert_eq!(tag(Revision::ZERO).as_bytes(), b"\"0\"");
        let longest = tag(Revision::from_i64(i64::MAX).unwrap());
        assert_eq!(longest.as_bytes(), b"\"9223372036854775807\"");
    }

    proptest! {
        #[test]
        fn a_revision_comes_back_from_its_token(number in 0..=i64::MAX) {
            let revision = Revision::from_i64(number).unwrap();
            prop_assert_eq!(revision_of(&text(revision)), Some(revision));
        }

        /// Two check digits let one wrong text in 1296 through; that is what is held here.
        #[test]
        fn most_texts_with_a_wrong_digit_are_refused(number in 1..=i64::MAX / 36) {
            let good = text(Revision::from_i64(number).unwrap());
            let wrong = (0..36).filter(|digit| {
                let mut bytes = good.clone().into_bytes();
                bytes[1] = DIGITS[*digit];
                let bad = String::from_utf8(bytes).unwrap();
                bad != good && revision_of(&bad).is_some()
            });
            prop_assert!(wrong.count() <= 2);
        }
    }
}
