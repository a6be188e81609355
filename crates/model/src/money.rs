//! Exact money: prices and their sums, never a float.
//!
//! An amount is kept without trailing zeros, so that equal amounts have equal texts
//! and equal bytes on every engine, and a digest over them does not depend on how a
//! client wrote `1.50`. There is one currency: the shop's.

use crate::quantity::Quantity;
use rust_decimal::Decimal;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use thiserror::Error;

/// The largest amount, in whole units of the currency. Far below what a decimal
/// holds, so that one multiplication or sum is exact before it is judged.
pub const AMOUNT_MAX: u64 = 1_000_000_000_000;

/// Digits after the point.
pub const AMOUNT_SCALE_MAX: u32 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "String")]
pub struct Money(Decimal);

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MoneyError {
    #[error("{text:?} is no amount, write digits with at most one point, as in 19.90")]
    NotAnAmount { text: String },
    #[error("the amount {amount} is negative, give zero or more")]
    Negative { amount: Decimal },
    #[error(
        "the amount {amount} is too fine, give at most {AMOUNT_SCALE_MAX} digits after the point"
    )]
    TooFine { amount: Decimal },
    #[error("the amount {amount} is too large, stay within {AMOUNT_MAX}")]
    TooLarge { amount: Decimal },
}

impl Money {
    pub const ZERO: Self = Self(Decimal::ZERO);

    /// Stricter than the decimal parser, which also takes `1_000`, `+1` and `.5`.
    pub fn parse(text: &str) -> Result<Self, MoneyError> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        let plain = [whole, fraction]
            .iter()
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
        // Exact: the ordinary parser rounds what it cannot hold.
        match Decimal::from_str_exact(text) {
            Ok(amount) if plain => Self::from_decimal(amount),
            _ => Err(MoneyError::NotAnAmount {
                text: text.chars().take(40).collect(),
            }),
        }
    }

    pub fn from_decimal(amount: Decimal) -> Result<Self, MoneyError> {
        let amount = amount.normalize();
        if amount.is_sign_negative() {
            Err(MoneyError::Negative { amount })
        } else if amount > Decimal::from(AMOUNT_MAX) {
            Err(MoneyError::TooLarge { amount })
        } else if amount.scale() > AMOUNT_SCALE_MAX {
            Err(MoneyError::TooFine { amount })
        } else {
            Ok(Self(amount))
        }
    }

    pub fn as_decimal(self) -> Decimal {
        self.0
    }

    pub fn checked_add(self, other: Self) -> Result<Self, MoneyError> {
        let sum = self.0.checked_add(other.0);
        Self::from_decimal(sum.expect("two amounts within the limit add up in 96 bits"))
    }

    pub fn checked_mul(self, quantity: Quantity) -> Result<Self, MoneyError> {
        self.times(quantity.pieces())
    }

    /// As `checked_mul`, for a number of pieces that may be past the quantity of a line.
    pub(crate) fn times(self, pieces: u64) -> Result<Self, MoneyError> {
        match self.0.checked_mul(Decimal::from(pieces)) {
            Some(product) => Self::from_decimal(product),
            None => Err(MoneyError::TooLarge {
                amount: Decimal::MAX,
            }),
        }
    }
}

impl<'de> Deserialize<'de> for Money {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(AmountVisitor)
    }
}

struct AmountVisitor;

impl Visitor<'_> for AmountVisitor {
    type Value = Money;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an amount as text, such as \"19.90\"")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Money, E> {
        Money::parse(text).map_err(E::custom)
    }
}

impl From<Money> for String {
    fn from(money: Money) -> Self {
        money.to_string()
    }
}

impl fmt::Display for Money {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SCALE: i128 = 10_000;
    const FINEST_MAX: i64 = 10_000_000_000_000_000;

    fn money(finest: i64) -> Money {
        Money::from_decimal(Decimal::new(finest, 4)).unwrap()
    }

    fn finest(money: Money) -> i128 {
        let mut amount = money.as_decimal();
        amount.rescale(4);
        amount.mantissa()
    }

    #[test]
    fn texts_are_amounts_or_are_refused_with_a_reason() {
        fn check(text: &str, expected: Result<&str, &str>) {
            let got = Money::parse(text).map(|money| money.to_string());
            match (got, expected) {
                (Ok(got), Ok(expected)) => assert_eq!(got, expected),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (got, _) => panic!("{text:?} gave {got:?}"),
            }
        }
        check("19.90", Ok("19.9"));
        check("100", Ok("100"));
        check("-0.00", Ok("0"));
        check("0.0001", Ok("0.0001"));
        check("1000000000000", Ok("1000000000000"));
        check("0.00001", Err("too fine"));
        check("-1", Err("negative"));
        check("1000000000000.0001", Err("too large"));
        for text in [
            "", ".", ".5", "5.", "+1", "1_000", "1e3", "1.2.3", "--1", "NaN", "١",
        ] {
            check(text, Err("is no amount"));
        }
        check(&format!("0.{}1", "0".repeat(40)), Err("is no amount"));
    }

    proptest! {
        #[test]
        fn sums_and_products_are_exact_or_refused(
            price in 0..=FINEST_MAX, other in 0..=FINEST_MAX, pieces in 1..=crate::QUANTITY_MAX,
        ) {
            let quantity = Quantity::new(pieces).unwrap();
            let results = [
                (money(price).checked_mul(quantity), i128::from(price) * i128::from(pieces)),
                (money(price).checked_add(money(other)), i128::from(price) + i128::from(other)),
            ];
            for (got, expected) in results {
                match got {
                    Ok(got) => prop_assert_eq!(finest(got), expected),
                    Err(_) => prop_assert!(expected > i128::from(AMOUNT_MAX) * SCALE),
                }
            }
        }

        #[test]
        fn an_amount_comes_back_from_its_text(price in 0..=FINEST_MAX) {
            let price = money(price);
            prop_assert_eq!(Money::parse(&price.to_string()), Ok(price));
        }
    }
}
