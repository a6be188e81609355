//! Where an order stands, which changes are legal (O4), and what each does to stock.
//!
//! ```text
//! pending ──▶ created ──▶ paid ──▶ shipped ──▶ delivered ──▶ returned
//!    │           └────┬─────┘
//!    ▼                ▼
//! aborted         cancelled
//! ```
//! `pending → created` is the commit point; `aborted` is its only rival (W11).

use serde::{Deserialize, Serialize};
use thiserror::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderStatus {
    Pending,
    Created,
    Paid,
    Shipped,
    Delivered,
    Cancelled,
    Returned,
    Aborted,
}

/// A legal change: there is no other way to make one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusChange {
    from: OrderStatus,
    to: OrderStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StockEffect {
    None,
    /// What was reserved is sold.
    Claim,
    /// What was reserved or sold is available again.
    GiveBack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum StatusError {
    #[error("the order is {status:?} already, there is nothing to change")]
    Already { status: OrderStatus },
    #[error(
        "an order that is {from:?} cannot become {to:?}, read it again and choose a legal status"
    )]
    Illegal { from: OrderStatus, to: OrderStatus },
}

impl OrderStatus {
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Created,
        Self::Paid,
        Self::Shipped,
        Self::Delivered,
        Self::Cancelled,
        Self::Returned,
        Self::Aborted,
    ];

    pub fn change_to(self, next: Self) -> Result<Self, StatusError> {
        StatusChange::new(self, next).map(StatusChange::to)
    }

    /// Spelled out from each status, so that a new one fails to compile here until
    /// someone decides where it leads.
    pub fn next(self) -> &'static [Self] {
        match self {
            Self::Pending => &[Self::Created, Self::Aborted],
            Self::Created => &[Self::Paid, Self::Cancelled],
            Self::Paid => &[Self::Shipped, Self::Cancelled],
            Self::Shipped => &[Self::Delivered],
            Self::Delivered => &[Self::Returned],
            Self::Cancelled | Self::Returned | Self::Aborted => &[],
        }
    }

    pub fn is_terminal(self) -> bool {
        self.next().is_empty()
    }
}

impl StatusChange {
    pub fn new(from: OrderStatus, to: OrderStatus) -> Result<Self, StatusError> {
        if from == to {
            Err(StatusError::Already { status: from })
        } else if from.next().contains(&to) {
            Ok(Self { from, to })
        } else {
            Err(StatusError::Illegal { from, to })
        }
    }

    pub fn from(self) -> OrderStatus {
        self.from
    }

    pub fn to(self) -> OrderStatus {
        self.to
    }

    pub fn stock_effect(self) -> StockEffect {
        match self.to {
            OrderStatus::Created => StockEffect::Claim,
            OrderStatus::Cancelled | OrderStatus::Returned | OrderStatus::Aborted => {
                StockEffect::GiveBack
            }
            OrderStatus::Pending
            | OrderStatus::Paid
            | OrderStatus::Shipped
            | OrderStatus::Delivered => StockEffect::None,
        }
    }
}
