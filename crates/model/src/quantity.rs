//! How many pieces of one product: never zero, never more than a warehouse picks.

use crate::number;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use thiserror::Error;

/// Pieces of one product in one line.
pub const QUANTITY_MAX: u32 = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "u32")]
pub struct Quantity(u32);

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a quantity of {pieces} is out of range, choose 1 to {QUANTITY_MAX}")]
pub struct QuantityError {
    pub pieces: u64,
}

impl Quantity {
    pub fn new(pieces: u32) -> Result<Self, QuantityError> {
        Self::from_pieces(u64::from(pieces))
    }

    pub fn from_pieces(pieces: u64) -> Result<Self, QuantityError> {
        match u32::try_from(pieces) {
            Ok(within) if (1..=QUANTITY_MAX).contains(&within) => Ok(Self(within)),
            _ => Err(QuantityError { pieces }),
        }
    }

    pub fn get(self) -> u32 {
        self.0
    }

    pub fn pieces(self) -> u64 {
        u64::from(self.0)
    }

    pub fn checked_add(self, other: Self) -> Result<Self, QuantityError> {
        Self::from_pieces(self.pieces() + other.pieces())
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pieces = number::whole(deserializer, 1..=u64::from(QUANTITY_MAX))?;
        Self::from_pieces(pieces).map_err(D::Error::custom)
    }
}

impl From<Quantity> for u32 {
    fn from(quantity: Quantity) -> Self {
        quantity.0
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_stays_within_its_limits() {
        assert_eq!(Quantity::new(0), Err(QuantityError { pieces: 0 }));
        assert_eq!(Quantity::new(10_001), Err(QuantityError { pieces: 10_001 }));
        let most = Quantity::new(QUANTITY_MAX).unwrap();
        let one = Quantity::new(1).unwrap();
        assert_eq!(most.checked_add(one), Err(QuantityError { pieces: 10_001 }));
        assert_eq!(one.checked_add(one), Quantity::new(2));
        assert!(Quantity::from_pieces(u64::MAX).is_err());
    }
}
