//! What follows an order's decision: its stock, its cart, and the mark that
//! says something is still to be done.

use engine_api::{Change, Outcome, PriceCondition, Revision, StockAction, StockRefusal};
use model::{CartStatus, Order, OrderStatus};

use super::Current;
use super::placing::zone;
use crate::error::ShopError;
use crate::records::Settlement;
use crate::shop::{ATTEMPTS_MAX, Shop};

impl Shop {
    /// Does what the order's status asks for and takes the open mark away.
    /// May run twice, or beside another: all of it is repeatable.
    pub(crate) async fn settle(&self, mut current: Current) -> Result<Current, ShopError> {
        for _ in 0..ATTEMPTS_MAX {
            if current.kept.settlement == Settlement::Settled {
                return Ok(current);
            }
            self.follow(&current).await?;
            let mut next = current.kept.clone();
            next.settlement = Settlement::Settled;
            if let Some(settled) = self.replace_order(&current, next, Revision::ZERO).await? {
                return Ok(settled);
            }
            // Somebody else moved the order on; its new status may ask for more.
            let header = current.kept.order.header();
            current = self.current_order(&header.id, Some(&header.user)).await?;
        }
        Err(ShopError::Contended)
    }

    /// Gives back what this process took after somebody else had settled the order.
    pub(super) async fn settle_again(&self, current: Current) -> Result<Current, ShopError> {
        self.follow(&current).await?;
        self.settle(current).await
    }

    async fn follow(&self, current: &Current) -> Result<(), ShopError> {
        for change in self.stock_changes(&current.kept.order)? {
            let key = change.key().clone();
            match self.router.write(change, Revision::ZERO).await?.outcome {
                // Without a reservation it was settled and forgotten; below the
                // floor it came back and was forgotten.
                Outcome::Done { .. }
                | Outcome::NoRecord
                | Outcome::Stock(
                    StockRefusal::NoReservation
                    | StockRefusal::BelowFloor { .. }
                    | StockRefusal::NoSuchStock,
                ) => {}
                refusal => {
                    return Err(ShopError::Damaged {
                        reason: format!(
                            "{key} does not follow order {}: {refusal:?}",
                            current.kept.order.header().id
                        ),
                    });
                }
            }
        }
        match (&current.kept.cart, counts(current.status())) {
            (Some(cart), Counts::Yes) => {
                match self
                    .close_cart(cart, CartStatus::Ordered, Revision::ZERO)
                    .await
                {
                    Ok(_) | Err(ShopError::CartClosed { .. } | ShopError::NotFound { .. }) => {
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            }
            _ => Ok(()),
        }
    }

    /// What each line's stock has to do for an order of this status.
    pub(super) fn stock_changes(&self, order: &Order) -> Result<Vec<Change>, ShopError> {
        let header = order.header();
        let at = header.changed_at;
        let zone = zone(order);
        let mut changes = Vec::with_capacity(order.lines().len());
        for line in order.lines() {
            let id = header.id.to_string();
            let quantity = line.quantity.get();
            let action = match header.status {
                OrderStatus::Pending => continue,
                OrderStatus::Created
                | OrderStatus::Paid
                | OrderStatus::Shipped
                | OrderStatus::Delivered => StockAction::Claim { order: id },
                OrderStatus::Cancelled | OrderStatus::Returned => StockAction::Return {
                    order: id,
                    quantity,
                    at,
                },
                OrderStatus::Aborted => StockAction::Give {
                    order: id,
                    quantity,
                    at,
                },
            };
            changes.push(self.stock_change(line, &zone, PriceCondition::Any, action)?);
        }
        Ok(changes)
    }
}

/// Whether an order of this status was ever placed.
enum Counts {
    Yes,
    No,
}

fn counts(status: OrderStatus) -> Counts {
    match status {
        OrderStatus::Pending | OrderStatus::Aborted => Counts::No,
        OrderStatus::Created
        | OrderStatus::Paid
        | OrderStatus::Shipped
        | OrderStatus::Delivered
        | OrderStatus::Cancelled
        | OrderStatus::Returned => Counts::Yes,
    }
}
