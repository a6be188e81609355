//! The shop's interface as a client sees it: only what the judge sends and looks at.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    UserId(String),
    SessionId(String),
}

impl Owner {
    /// As in the query of the active cart.
    pub fn query(&self) -> String {
        match self {
            Owner::UserId(id) => format!("user_id={id}"),
            Owner::SessionId(id) => format!("session_id={id}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CartStatus {
    Active,
    Ordered,
    Abandoned,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cart {
    pub cart_id: String,
    pub status: CartStatus,
    pub items: Vec<CartItem>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CartItem {
    pub product_id: String,
    pub quantity: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderStatus {
    /// Not yet an order; a crash may leave it to the sweeper.
    Pending,
    Created,
    Paid,
    Shipped,
    Delivered,
    Cancelled,
    Returned,
    /// Never became an order.
    Aborted,
}

impl OrderStatus {
    /// Whether its pieces are out of the stock.
    pub fn takes_stock(self) -> bool {
        match self {
            Self::Created | Self::Paid | Self::Shipped | Self::Delivered => true,
            Self::Pending | Self::Cancelled | Self::Returned | Self::Aborted => false,
        }
    }

    /// Whether a shopper has an order.
    pub fn is_an_order(self) -> bool {
        !matches!(self, Self::Pending | Self::Aborted)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderWish {
    pub user_id: String,
    pub lines: Vec<LineWish>,
    pub geo_zone: String,
    /// Names the idempotency key, so that an order in a listing is recognised whatever its id.
    pub address: String,
    pub payment_method: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cart_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineWish {
    pub product_id: String,
    pub quantity: u64,
    pub price: Decimal,
}

impl OrderWish {
    pub fn total(&self) -> Decimal {
        let totals = self
            .lines
            .iter()
            .map(|line| line.price * Decimal::from(line.quantity));
        totals.sum()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub order_id: String,
    pub user_id: String,
    pub status: OrderStatus,
    pub created_at: String,
    pub geo_zone: String,
    pub address: String,
    pub lines: Vec<OrderLine>,
    pub total: Decimal,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderLine {
    pub product_id: String,
    pub quantity: u64,
    pub price: Decimal,
}

#[derive(Clone, Debug, Deserialize)]
pub struct OrderPage {
    pub orders: Vec<Order>,
    pub next_cursor: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    pub session_id: String,
    pub user_id: Option<String>,
    pub last_active: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct SessionPage {
    pub sessions: Vec<Session>,
    pub next_cursor: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    pub session: Session,
    pub cart: Option<Cart>,
    pub merge: Merge,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merge {
    pub outcome: MergeOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MergeOutcome {
    Merged,
    AlreadyMerged,
    NothingToMerge,
    Refused,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Stock {
    pub zones: Vec<ZoneStock>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ZoneStock {
    pub zone: String,
    pub available: u64,
    pub reserved: u64,
    pub sold: u64,
    pub received: u64,
}

/// Of an RFC 9457 document.
#[derive(Clone, Debug, Deserialize)]
pub struct Problem {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub detail: String,
}

impl Problem {
    pub fn code(&self) -> &str {
        self.kind.rsplit('/').next().unwrap_or(&self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_text_and_totals_are_exact() {
        let line = |price: &str, quantity| LineWish {
            product_id: "p".into(),
            quantity,
            price: price.parse().unwrap(),
        };
        let wish = OrderWish {
            user_id: "u".into(),
            lines: vec![line("149.90", 3), line("0.05", 1)],
            geo_zone: "z".into(),
            address: "a".into(),
            payment_method: "card".into(),
            cart_id: None,
        };
        assert_eq!(wish.total(), "449.75".parse().unwrap());
        let text = serde_json::to_string(&wish).unwrap();
        assert!(text.contains(r#""price":"149.90""#), "{text}");
        assert!(!text.contains("cart_id"), "{text}");
    }
}
