//! A product with its price and its stock by zone and bucket.
//!
//! The category never changes, because layouts cut products by it (W8): a product that
//! moves to another category is a new one.

use crate::attributes::Attributes;
use crate::id::{CategoryName, OrderId, ProductId, ZoneName};
use crate::money::Money;
use crate::quantity::Quantity;
use crate::stock::{Stock, TakeOutcome};
use crate::text::{Description, Image, ProductName};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use thiserror::Error;

/// Zones times buckets of one product.
pub const STOCKS_MAX: usize = 1024;

/// A piece of a zone's stock, divided so that a flash sale does not queue at one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bucket(u16);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StockKey {
    pub zone: ZoneName,
    pub bucket: Bucket,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Product {
    id: ProductId,
    category: CategoryName,
    pub name: ProductName,
    pub price: Money,
    pub image: Option<Image>,
    pub description: Option<Description>,
    pub attributes: Attributes,
    stocks: BTreeMap<StockKey, Stock>,
}

/// A take of stock with the price it was decided on (W13).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Take<'a> {
    pub order: &'a OrderId,
    pub quantity: Quantity,
    pub price_seen: Money,
    /// The order's first `created_at`.
    pub at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the price moved from {seen} to {now}, show it to the shopper and ask again")]
pub struct PriceMoved {
    pub seen: Money,
    pub now: Money,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProductError {
    #[error(transparent)]
    PriceMoved(#[from] PriceMoved),
    #[error("product {product} has no stock in zone {zone}, bucket {bucket}, choose another")]
    NoStock {
        product: ProductId,
        zone: ZoneName,
        bucket: Bucket,
    },
    #[error("product {product} has stock in {STOCKS_MAX} places, use one of them")]
    TooManyStocks { product: ProductId },
}

impl Bucket {
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    pub const fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Product {
    pub fn new(
        id: ProductId,
        category: CategoryName,
        name: ProductName,
        price: Money,
        attributes: Attributes,
    ) -> Self {
        Self {
            id,
            category,
            name,
            price,
            image: None,
            description: None,
            attributes,
            stocks: BTreeMap::new(),
        }
    }

    /// An order is refused, never silently repriced (P6): cheaper counts as moved, too.
    pub fn check_price(&self, seen: Money) -> Result<(), PriceMoved> {
        if seen == self.price {
            Ok(())
        } else {
            Err(PriceMoved {
                seen,
                now: self.price,
            })
        }
    }

    /// Price and stock are decided at one instant (W13). A repeat of a take that
    /// succeeded is answered as such even when the price has moved since.
    pub fn take(&mut self, key: &StockKey, take: Take<'_>) -> Result<TakeOutcome, ProductError> {
        let known = self
            .stocks
            .get(key)
            .is_some_and(|stock| stock.reservation(take.order).is_some());
        if !known {
            self.check_price(take.price_seen)?;
        }
        let stock = self.stock_mut(key)?;
        Ok(stock.take(take.order, take.quantity, take.at))
    }

    /// Adds a place where stock lies, or replaces what is known of it.
    pub fn put_stock(&mut self, key: StockKey, stock: Stock) -> Result<(), ProductError> {
        if self.stocks.len() >= STOCKS_MAX && !self.stocks.contains_key(&key) {
            return Err(ProductError::TooManyStocks {
                product: self.id.clone(),
            });
        }
        self.stocks.insert(key, stock);
        Ok(())
    }

    pub fn stock_mut(&mut self, key: &StockKey) -> Result<&mut Stock, ProductError> {
        self.stocks
            .get_mut(key)
            .ok_or_else(|| ProductError::NoStock {
                product: self.id.clone(),
                zone: key.zone.clone(),
                bucket: key.bucket,
            })
    }

    pub fn stock(&self, key: &StockKey) -> Option<&Stock> {
        self.stocks.get(key)
    }

    pub fn stocks(&self) -> impl Iterator<Item = (&StockKey, &Stock)> {
        self.stocks.iter()
    }

    pub fn id(&self) -> &ProductId {
        &self.id
    }

    pub fn category(&self) -> &CategoryName {
        &self.category
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn money(text: &str) -> Money {
        Money::parse(text).unwrap()
    }

    fn key(zone: &str) -> StockKey {
        StockKey {
            zone: ZoneName::parse(zone).unwrap(),
            bucket: Bucket::new(0),
        }
    }

    fn phone() -> Product {
        let mut phone = Product::new(
            ProductId::parse("phone").unwrap(),
            CategoryName::parse("phones").unwrap(),
            ProductName::parse("Phone").unwrap(),
            money("100.00"),
            Attributes::default(),
        );
        let mut stock = Stock::default();
        stock.receive(5).unwrap();
        phone.put_stock(key("north"), stock).unwrap();
        phone
    }

    #[test]
    fn a_moved_price_refuses_a_new_take_but_not_the_repeat_of_an_old_one() {
        let mut phone = phone();
        let order = OrderId::parse("o-1").unwrap();
        let take = Take {
            order: &order,
            quantity: Quantity::new(2).unwrap(),
            price_seen: money("100"),
            at: Timestamp::from_unix_micros(1),
        };
        assert_eq!(phone.take(&key("north"), take), Ok(TakeOutcome::Taken));
        phone.price = money("90");
        assert_eq!(
            phone.take(&key("north"), take),
            Ok(TakeOutcome::AlreadyTaken)
        );
        let other = OrderId::parse("o-2").unwrap();
        let late = Take {
            order: &other,
            ..take
        };
        let moved = PriceMoved {
            seen: money("100"),
            now: money("90"),
        };
        assert_eq!(phone.take(&key("north"), late), Err(moved.into()));
        assert_eq!(phone.stock(&key("north")).unwrap().available(), 3);
    }

    #[test]
    fn stock_is_taken_from_the_zone_that_was_named() {
        let mut phone = phone();
        let missing = phone.stock_mut(&key("south")).unwrap_err();
        assert!(missing.to_string().contains("zone south"));
    }
}
