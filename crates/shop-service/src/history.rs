//! Finished orders in a store of their own (W33).
//!
//! ```text
//!   live:     pending … delivered ──feed──▶ history: delivered
//!             (removed, when the history has it)        │ returned?
//!   live:     returned ◀── recalled, as of a number ────┘
//!                └────────feed──▶ history: returned
//! ```
//!
//! Whoever reads looks at the live orders first and at the history after them: what
//! leaves the first has arrived in the second. The history is written by the feed
//! alone and never runs ahead of a live order; where both have one, the newest
//! revision counts.

mod archive;

mod rest;

mod recall;

mod reading;

use std::sync::Arc;

use engine_api::Engine;
use layout::Collection;
use model::OrderStatus;
use router::{Map, ShardName};

pub use archive::{archive_feed, archive_feed_name};
pub(crate) use recall::{Making, Recalled, numbered_key};
pub use rest::{Rest, RestError};

use crate::records::status_text;

/// Where finished orders are kept.
#[derive(Clone, Debug)]
pub struct OrderHistory {
    /// Names the store in messages.
    shard: ShardName,
    engine: Arc<dyn Engine>,
    statuses: Vec<OrderStatus>,
    /// Whose orders it belongs to; `None`: whatever layout they have.
    layout: Option<String>,
    /// Who knows whether orders stay where they are; `None`: they always do.
    rest: Option<Arc<dyn Rest>>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    #[error("a history of orders that are {status:?}: choose among delivered, cancelled, returned")]
    Status { status: String },
}

impl OrderHistory {
    /// `statuses` are those that send an order to the history, as a layout names them.
    pub fn new(
        shard: ShardName,
        engine: Arc<dyn Engine>,
        statuses: &[String],
    ) -> Result<OrderHistory, HistoryError> {
        let statuses = statuses.iter().map(|status| finished(status));
        Ok(OrderHistory {
            shard,
            engine,
            statuses: statuses.collect::<Result<_, _>>()?,
            layout: None,
            rest: None,
        })
    }

    /// The same for the orders of one layout: a move may give them another one, whose
    /// finished orders are elsewhere, or stay.
    #[must_use]
    pub fn of_layout(self, layout: &str) -> OrderHistory {
        OrderHistory {
            layout: Some(layout.to_owned()),
            ..self
        }
    }

    /// The same where orders may be moved to another layout: nothing is archived meanwhile.
    #[must_use]
    pub fn resting(self, rest: Arc<dyn Rest>) -> OrderHistory {
        OrderHistory {
            rest: Some(rest),
            ..self
        }
    }

    /// Whose finished orders are here, if it is of one layout.
    pub fn layout(&self) -> Option<&str> {
        self.layout.as_deref()
    }

    /// Whether the map has orders in the layout that this history is of.
    pub(crate) fn is_of(&self, map: &Map) -> bool {
        let Some(layout) = &self.layout else {
            return true;
        };
        let orders = map.collections.get(&Collection::Orders);
        orders.is_some_and(|orders| orders.layout == *layout)
    }

    pub fn shard(&self) -> &ShardName {
        &self.shard
    }

    pub(crate) fn engine(&self) -> &dyn Engine {
        self.engine.as_ref()
    }
}

/// An order under way changes all the time, and an aborted one never was an order:
/// only a repeat of its request may ask for it, soon or never.
fn finished(text: &str) -> Result<OrderStatus, HistoryError> {
    let known = OrderStatus::ALL
        .into_iter()
        .find(|status| status_text(*status) == text);
    match known {
        Some(
            status @ (OrderStatus::Delivered | OrderStatus::Cancelled | OrderStatus::Returned),
        ) => Ok(status),
        Some(
            OrderStatus::Pending
            | OrderStatus::Created
            | OrderStatus::Paid
            | OrderStatus::Shipped
            | OrderStatus::Aborted,
        )
        | None => Err(HistoryError::Status {
            status: text.to_owned(),
        }),
    }
}
