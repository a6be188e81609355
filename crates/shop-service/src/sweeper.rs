//! The sweeper: finishes what a crashed request left half-done (W11).
//!
//! It finds orders by their open mark, which stands in the order's own record
//! from before the first piece is taken until the last one is settled. Any
//! number of sweepers may run at once, and beside the requests themselves: each
//! step is a conditional change of the order or a repeatable one of the stock.

use engine_api::{Query, Record, Revision, SortRange, Timestamp};
use layout::{AccessPath, Value};
use model::OrderStatus;

use crate::error::ShopError;
use crate::orders::Current;
use crate::shop::Shop;

/// Open orders that one sweep looks at.
const ORDERS_MAX: usize = 200;

/// What one sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Orders whose stock and cart were brought in line with their status.
    pub finished: u64,
    /// Orders that were given up before they counted.
    pub aborted: u64,
    /// Orders that could not be settled now; the next sweep meets them again.
    pub failed: u64,
}

impl Shop {
    /// One pass over the oldest open orders.
    pub async fn sweep(&self) -> Result<Swept, ShopError> {
        let patience_s = i64::from(self.settings.sweep_after_s.seconds());
        let oldest = Timestamp::from_unix_micros(i64::MIN);
        let before = self.now().checked_add_seconds(-patience_s);
        let query = Query {
            path: AccessPath::OrdersOpen,
            equals: Vec::new(),
            range: SortRange {
                least: None,
                most: Some(Value::Timestamp(before.unwrap_or(oldest))),
            },
            after: None,
            limit: ORDERS_MAX,
        };
        let mut swept = Swept::default();
        for record in self.router.query(&query).await?.records {
            match self.sweep_one(&record).await {
                Ok(OrderStatus::Aborted) => swept.aborted += 1,
                Ok(_) => swept.finished += 1,
                Err(error) => {
                    tracing::warn!(order = %record.key.id, %error, "an open order cannot be settled");
                    swept.failed += 1;
                }
            }
        }
        Ok(swept)
    }

    pub(crate) async fn sweep_one(&self, record: &Record) -> Result<OrderStatus, ShopError> {
        let mut current = Current::of(record)?;
        if current.status() == OrderStatus::Pending {
            let mut next = current.kept.clone();
            next.order.change_status(OrderStatus::Aborted, self.now())?;
            match self.replace_order(&current, next, Revision::ZERO).await? {
                Some(aborted) => current = aborted,
                // The request lives after all.
                None => return Ok(OrderStatus::Created),
            }
        }
        Ok(self.settle(current).await?.status())
    }
}
