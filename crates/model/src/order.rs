//! An order: what was asked for, and where it stands.
//!
//! The record guards itself (W10): it carries the request that made it, so that the
//! same request sent again is recognised wherever the record has moved to since.

mod request;
mod status;

pub use request::{
    AskedLine, AskedOrder, Fingerprint, FingerprintError, ORDER_LINES_MAX, OrderLine, OrderRequest,
    RequestFields,
};
pub use status::{OrderStatus, StatusChange, StatusError, StockEffect};

use crate::id::{OrderId, ProductId, UserId};
use crate::money::{Money, MoneyError};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderHeader {
    pub id: OrderId,
    pub user: UserId,
    pub status: OrderStatus,
    /// Of the first attempt, and kept by every later one (W10).
    pub created_at: Timestamp,
    pub changed_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Order {
    header: OrderHeader,
    /// Missing only where a sweeper aborted an order before its record had arrived.
    request: Option<OrderRequest>,
}

/// What an order that already stands under the id means for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// The same request: answer with this order, in whatever status it is.
    Same,
    /// The order was given up before its request was recorded: send with a new key.
    AbortedUnseen,
    /// The key was used for another request: refuse.
    OtherRequest,
    /// The order of another user or key, met by a collision: refuse, and show nothing of it.
    OtherOrder,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OrderError {
    #[error("the order has no lines, add at least one product")]
    NoLines,
    #[error("the order has {lines} lines, split it into orders of at most {ORDER_LINES_MAX}")]
    TooManyLines { lines: usize },
    #[error("product {product} is in the order twice, put its pieces into one line")]
    ProductTwice { product: ProductId },
    #[error("the total of the order cannot be computed, lower prices or quantities: {source}")]
    Total { source: MoneyError },
    #[error("the stored order {order} contradicts itself ({what}), restore it from a good copy")]
    Contradiction { order: OrderId, what: &'static str },
}

impl Order {
    /// The order before its commit point: it holds its stock, but does not count yet.
    pub fn pending(user: &UserId, request: OrderRequest, now: Timestamp) -> Self {
        let header = OrderHeader {
            id: OrderId::derived(user, request.idempotency_key()),
            user: user.clone(),
            status: OrderStatus::Pending,
            created_at: now,
            changed_at: now,
        };
        Self {
            header,
            request: Some(request),
        }
    }

    /// What a sweeper creates where it found stock held but no order (W11): the delayed
    /// order then meets an existing record instead of landing without its stock.
    pub fn aborted_unseen(id: OrderId, user: UserId, now: Timestamp) -> Self {
        let header = OrderHeader {
            id,
            user,
            status: OrderStatus::Aborted,
            created_at: now,
            changed_at: now,
        };
        Self {
            header,
            request: None,
        }
    }

    pub fn restore(header: OrderHeader, request: Option<OrderRequest>) -> Result<Self, OrderError> {
        let what = if request.is_none() && header.status != OrderStatus::Aborted {
            "only an aborted order may lack its request"
        } else if header.changed_at < header.created_at {
            "it changed before it was created"
        } else {
            return Ok(Self { header, request });
        };
        Err(OrderError::Contradiction {
            order: header.id,
            what,
        })
    }

    /// Moves the order on and says what its stock has to do.
    pub fn change_status(
        &mut self,
        next: OrderStatus,
        now: Timestamp,
    ) -> Result<StatusChange, StatusError> {
        let change = StatusChange::new(self.header.status, next)?;
        self.header.status = change.to();
        self.header.changed_at = self.header.changed_at.max(now);
        Ok(change)
    }

    /// Compares all that the id and the fingerprint were computed from: neither hash is
    /// a cryptographic one, and the client chooses what goes in.
    pub fn judge_repeat(&self, user: &UserId, asked: &AskedOrder) -> Repeat {
        if self.header.user != *user {
            return Repeat::OtherOrder;
        }
        match &self.request {
            None => Repeat::AbortedUnseen,
            Some(first) if *first.idempotency_key() != asked.idempotency_key => Repeat::OtherOrder,
            Some(first) if first.answers(asked) => Repeat::Same,
            Some(_) => Repeat::OtherRequest,
        }
    }

    pub fn header(&self) -> &OrderHeader {
        &self.header
    }

    pub fn request(&self) -> Option<&OrderRequest> {
        self.request.as_ref()
    }

    pub fn lines(&self) -> &[OrderLine] {
        self.request.as_ref().map_or(&[], OrderRequest::lines)
    }

    pub fn total(&self) -> Money {
        self.request
            .as_ref()
            .map_or(Money::ZERO, OrderRequest::total)
    }
}
