//! One product in a cart: the owner's own part, the contributions of guest carts, and
//! the one line that a shopper sees.

use crate::id::{CartId, CategoryName, ProductId};
use crate::money::{Money, MoneyError};
use crate::quantity::{Quantity, QuantityError};
use crate::text::{Image, ProductName};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bytes that quantity, price and time of a part count, whatever an engine makes of them.
const PART_FIXED_BYTES: usize = 4 + 16 + 8;

/// Name, price and image are copies for fast reading; checkout asks the product (P6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CartLine {
    pub product: ProductId,
    pub category: CategoryName,
    pub quantity: Quantity,
    pub name: ProductName,
    pub price: Money,
    pub image: Option<Image>,
    pub changed_at: Timestamp,
}

/// A separately stored and changed piece of a cart (W1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CartPart {
    Own(CartLine),
    Contribution { guest_cart: CartId, line: CartLine },
}

/// The line as the shopper sees it. The quantity is a sum of parts, and parts written
/// at the same time may pass the limit of one line together: then `quantity` tells the
/// shopper what to lower before the order is placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShownLine<'a> {
    pub line: &'a CartLine,
    pub pieces: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LineParts {
    own: Option<CartLine>,
    contributions: BTreeMap<CartId, CartLine>,
}

impl CartPart {
    pub fn line(&self) -> &CartLine {
        match self {
            Self::Own(line) | Self::Contribution { line, .. } => line,
        }
    }

    pub fn bytes(&self) -> usize {
        let guest_cart_bytes = match self {
            Self::Own(_) => 0,
            Self::Contribution { guest_cart, .. } => guest_cart.as_str().len(),
        };
        let line = self.line();
        PART_FIXED_BYTES
            + guest_cart_bytes
            + line.product.as_str().len()
            + line.category.as_str().len()
            + line.name.as_str().len()
            + line.image.as_ref().map_or(0, |image| image.as_str().len())
    }
}

impl ShownLine<'_> {
    pub fn quantity(&self) -> Result<Quantity, QuantityError> {
        Quantity::from_pieces(self.pieces)
    }

    pub fn total(&self) -> Result<Money, MoneyError> {
        self.line.price.times(self.pieces)
    }
}

impl LineParts {
    pub(super) fn own(line: CartLine) -> Self {
        Self {
            own: Some(line),
            contributions: BTreeMap::new(),
        }
    }

    pub(super) fn set(&mut self, part: CartPart) {
        match part {
            CartPart::Own(line) => self.own = Some(line),
            CartPart::Contribution { guest_cart, line } => {
                self.contributions.insert(guest_cart, line);
            }
        }
    }

    pub(super) fn contribution(&self, guest_cart: &CartId) -> Option<&CartLine> {
        self.contributions.get(guest_cart)
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = CartPart> + '_ {
        let own = self.own.iter().cloned().map(CartPart::Own);
        own.chain(
            self.contributions
                .iter()
                .map(|(guest_cart, line)| CartPart::Contribution {
                    guest_cart: guest_cart.clone(),
                    line: line.clone(),
                }),
        )
    }

    /// The owner's own copy describes the product; without one, the newest
    /// contribution, so that the order of merging does not show.
    pub(super) fn shown(&self) -> Option<ShownLine<'_>> {
        let newest = self
            .contributions
            .iter()
            .max_by_key(|(guest_cart, line)| (line.changed_at, *guest_cart))
            .map(|(_, line)| line);
        let line = self.own.as_ref().or(newest)?;
        let pieces = self
            .own
            .iter()
            .chain(self.contributions.values())
            .map(|line| line.quantity.pieces())
            .sum();
        Some(ShownLine { line, pieces })
    }
}
