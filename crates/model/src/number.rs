//! Numbers as clients write them.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;

use serde::de::{Deserializer, Error, Visitor};

/// A whole number within the bounds. Whatever else stands there is told what to choose:
/// what a serde type expects by itself (`u32`) means nothing to who sent it.
pub(crate) fn whole<'de, D: Deserializer<'de>>(
    deserializer: D,
    bounds: RangeInclusive<u64>,
) -> Result<u64, D::Error> {
    // A narrower wish than "any" would let the format word the refusal.
    deserializer.deserialize_any(Whole(bounds))
}

struct Whole(RangeInclusive<u64>);

impl Whole {
    fn refuse<E: Error>(&self, given: impl Display) -> Result<u64, E> {
        let (least, most) = (self.0.start(), self.0.end());
        Err(E::custom(format_args!(
            "choose a whole number from {least} to {most}, not {given}"
        )))
    }
}

impl Visitor<'_> for Whole {
    type Value = u64;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = (self.0.start(), self.0.end());
        write!(formatter, "a whole number from {least} to {most}")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        match self.0.contains(&number) {
            true => Ok(number),
            false => self.refuse(number),
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => self.refuse(number),
        }
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<u64, E> {
        self.refuse(number)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<u64, E> {
        self.refuse("text")
    }

    fn visit_bool<E: Error>(self, given: bool) -> Result<u64, E> {
        self.refuse(given)
    }

    fn visit_unit<E: Error>(self) -> Result<u64, E> {
        self.refuse("null")
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, UnitDeserializer};

    use super::*;

    fn read<'de>(given: impl IntoDeserializer<'de, Error>) -> Result<u64, String> {
        whole(given.into_deserializer(), 1..=100).map_err(|error| error.to_string())
    }

    #[test]
    fn only_whole_numbers_within_the_bounds_are_taken() {
        assert_eq!((read(1_u64), read(100_u64)), (Ok(1), Ok(100)));
        assert_eq!(read(7_i64), Ok(7));
        let refused = [
            (read(0_u64), "0"),
            (read(101_u64), "101"),
            (read(u64::MAX), "18446744073709551615"),
            (read(-1_i64), "-1"),
            (read(1.5_f64), "1.5"),
            (read("two"), "text"),
            (read(true), "true"),
        ];
        for (found, given) in refused {
            let said = format!("choose a whole number from 1 to 100, not {given}");
            assert_eq!(found, Err(said));
        }
        let nothing = whole(UnitDeserializer::<Error>::new(), 1..=100).unwrap_err();
        assert!(nothing.to_string().ends_with("not null"), "{nothing}");
    }
}
