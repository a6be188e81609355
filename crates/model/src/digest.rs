//! One number for a list of fields, the same on every machine and for ever.
//!
//! Fields are length-prefixed, so that ("a", "bc") and ("ab", "c") differ, and the
//! list starts with what it is for, so that a cart id never equals an order id.
//! The hash is xxh3-128 with its default seed. It is not a cryptographic one: whoever
//! decides on an equal digest compares the fields behind it too.

use xxhash_rust::xxh3::Xxh3;

pub(crate) struct FieldDigest(Xxh3);

impl FieldDigest {
    pub(crate) fn of(purpose: &'static str) -> Self {
        Self(Xxh3::new()).text(purpose)
    }

    pub(crate) fn text(self, text: &str) -> Self {
        let bytes = u64::try_from(text.len()).expect("a length in memory fits 64 bits");
        let mut digest = self.number(bytes);
        digest.0.update(text.as_bytes());
        digest
    }

    pub(crate) fn number(mut self, number: u64) -> Self {
        self.0.update(&number.to_le_bytes());
        self
    }

    pub(crate) fn finish(self) -> u128 {
        self.0.digest128()
    }
}
