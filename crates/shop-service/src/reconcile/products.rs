//! The round of the products: stock that adds up, and reservations that are somebody's.

use engine_api::{PartKey, Record, SharedRecord, stock_of};
use layout::{Collection, PartKind};
use model::{OrderId, OrderStatus, ReservationState, Stock};

use super::care::{HeldPieces, Problem};
use super::report::Kind;
use super::{Place, Reconciler};
use crate::error::ShopError;
use crate::orders::Current;
use crate::records::Settlement;

impl Reconciler<'_> {
    pub(super) async fn products(&mut self, place: &Place) -> Result<Option<Place>, ShopError> {
        let (images, next) = self.survey(Collection::Products, place).await?;
        self.report.read(images.len());
        for image in images {
            if image.live_at(self.shop.now()).is_some() {
                self.shelves_of(&image).await?;
            }
        }
        Ok(next)
    }

    async fn shelves_of(&mut self, product: &Record) -> Result<(), ShopError> {
        for (part, fields) in product.live_parts() {
            if part.kind() != PartKind::Stock {
                continue;
            }
            self.report.look(Kind::Unreadable, 1);
            match stock_of(fields) {
                Ok(stock) => self.reservations(product, part, &stock).await?,
                Err(error) => {
                    let key = format!("{}/{part}", product.key.id);
                    let reason = error.to_string();
                    self.take_care(Problem::Unreadable { key, reason }).await;
                }
            }
        }
        Ok(())
    }

    async fn reservations(
        &mut self,
        product: &Record,
        part: &PartKey,
        stock: &Stock,
    ) -> Result<(), ShopError> {
        for (order, reservation) in stock.reservations() {
            if reservation.state != ReservationState::Held {
                continue;
            }
            self.report.look(Kind::Reservation, 1);
            let held = HeldPieces {
                product: product.key.clone(),
                part: part.clone(),
                order: order.clone(),
                quantity: reservation.quantity,
            };
            if let Some(problem) = self.judge_reservation(held).await? {
                self.take_care(problem).await;
            }
        }
        Ok(())
    }

    /// The order first, then the stock again: what a settled order holds after it was
    /// seen settled is held for nobody. How old the reservation is says nothing.
    async fn judge_reservation(&self, held: HeldPieces) -> Result<Option<Problem>, ShopError> {
        let found = self.shop.found_order(&held.order, None).await?;
        let problem = match found {
            None => Problem::Orderless { held: held.clone() },
            Some(record) => match self.judge_order(&record, &held)? {
                Some(problem) => problem,
                None => return Ok(None),
            },
        };
        Ok(self.is_still_held(&held).await?.then_some(problem))
    }

    fn judge_order(
        &self,
        record: &SharedRecord,
        held: &HeldPieces,
    ) -> Result<Option<Problem>, ShopError> {
        let order = match Current::of(record) {
            Ok(order) => order,
            Err(ShopError::Damaged { reason }) => {
                let key = held.order.to_string();
                return Ok(Some(Problem::Unreadable { key, reason }));
            }
            Err(error) => return Err(error),
        };
        Ok(match (order.kept.settlement, order.status()) {
            // The request, a sweeper or the round of the orders goes on with it.
            (Settlement::Open, _) => None,
            (Settlement::Settled, OrderStatus::Pending) => Some(Problem::Unreadable {
                key: held.order.to_string(),
                reason: "the order is pending, and no mark leads to it".to_owned(),
            }),
            (Settlement::Settled, _) => Some(Problem::Held {
                held: held.clone(),
                order,
            }),
        })
    }

    async fn is_still_held(&self, held: &HeldPieces) -> Result<bool, ShopError> {
        let Some(product) = self.shop.router.get(&held.product).await? else {
            return Ok(false);
        };
        let part = product.parts.get(&held.part);
        let Some(fields) = part.and_then(|part| part.content.live()) else {
            return Ok(false);
        };
        let stock = stock_of(fields).map_err(|error| ShopError::Damaged {
            reason: error.to_string(),
        })?;
        Ok(is_held(&stock, &held.order))
    }
}

fn is_held(stock: &Stock, order: &OrderId) -> bool {
    let known = stock.reservation(order);
    known.is_some_and(|known| known.state == ReservationState::Held)
}
