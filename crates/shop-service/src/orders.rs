//! Orders: placed, read, listed, moved along their course.

mod placing;
mod settling;

use engine_api::{
    Aged, Change, EngineError, Freshness, Outcome, Page, PartsChange, Query, Record, Revision,
    SharedRecord, SortRange, Timestamp,
};
use layout::{AccessPath, Collection, Value};
use model::{
    Address, CartId, CategoryName, IdempotencyKey, Money, Order, OrderId, OrderStatus,
    PaymentMethod, ProductId, Quantity, StockEffect, UserId, ZoneName,
};
use router::{RouterError, Written};

use crate::error::{Noun, ShopError};
use crate::history::Recalled;
use crate::records::{KeptOrder, Settlement, order_header, order_hints, order_of};
use crate::shop::{ATTEMPTS_MAX, Listing, Made, PageWish, Shop, Stored};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderWish {
    pub user: UserId,
    pub key: IdempotencyKey,
    pub lines: Vec<LineWish>,
    pub geo_zone: ZoneName,
    pub address: Address,
    pub payment_method: PaymentMethod,
    /// The user's active cart, which becomes `ordered` with the order (C6).
    pub cart: Option<CartId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineWish {
    pub product: ProductId,
    /// Where layouts find products by it; otherwise not needed.
    pub category: Option<CategoryName>,
    pub quantity: Quantity,
    /// What the shopper was shown (P6).
    pub price: Money,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// `Before`: the same request came again.
    pub made: Made,
    pub order: Stored<Order>,
}

/// An order as it was read or written, ready for the next conditional change.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    pub kept: KeptOrder,
    pub revision: Revision,
}

/// Where an order was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Live,
    History,
}

impl Current {
    pub(crate) fn of(record: &Record) -> Result<Current, ShopError> {
        Ok(Current {
            kept: order_of(record)?,
            revision: record.header.revision,
        })
    }

    pub(crate) fn status(&self) -> OrderStatus {
        self.kept.order.header().status
    }

    pub(crate) fn into_stored(self) -> Stored<Order> {
        Stored::new(self.kept.order, self.revision)
    }
}

impl Shop {
    /// O3. `user` helps layouts that find orders by user.
    pub async fn order(
        &self,
        id: &OrderId,
        user: Option<&UserId>,
    ) -> Result<Stored<Order>, ShopError> {
        Ok(self.current_order(id, user).await?.into_stored())
    }

    /// O4. Asking for the status that the order has already changes nothing.
    pub async fn change_order_status(
        &self,
        id: &OrderId,
        status: OrderStatus,
        expected: Option<Revision>,
        seen: Revision,
    ) -> Result<Stored<Order>, ShopError> {
        match status {
            OrderStatus::Paid
            | OrderStatus::Shipped
            | OrderStatus::Delivered
            | OrderStatus::Cancelled
            | OrderStatus::Returned => {}
            OrderStatus::Pending | OrderStatus::Created | OrderStatus::Aborted => {
                return Err(ShopError::NotAWishedStatus { status });
            }
        }
        let mut above = seen;
        for _ in 0..ATTEMPTS_MAX {
            let (current, place) = self.placed_order(id, None).await?;
            if expected.is_some_and(|expected| expected != current.revision) {
                return Err(ShopError::Precondition {
                    current: current.revision,
                });
            }
            if current.status() == status {
                // Whoever asked first may have died on the way.
                return Ok(self.settle(current).await?.into_stored());
            }
            let mut next = current.kept.clone();
            let effect = next.order.change_status(status, self.now())?.stock_effect();
            let changed = match (place, effect) {
                (Place::Live, StockEffect::GiveBack) => {
                    self.end_order(&current, next, seen).await?
                }
                (Place::Live, StockEffect::None | StockEffect::Claim) => {
                    self.replace_order(&current, next, seen).await?
                }
                (Place::History, effect) => {
                    if effect != StockEffect::None {
                        next.settlement = Settlement::Open;
                    }
                    match self.recall(&current, next, above).await? {
                        Recalled::Done(recalled) => Some(self.settle(recalled).await?),
                        Recalled::Again { above: higher } => {
                            above = higher;
                            None
                        }
                    }
                }
            };
            if let Some(changed) = changed {
                return Ok(changed.into_stored());
            }
        }
        Err(ShopError::Contended)
    }

    /// O2, newest first, both bounds included.
    pub async fn orders_of_user(
        &self,
        user: &UserId,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
        page: PageWish,
    ) -> Result<Listing<Order>, ShopError> {
        self.orders(&query_of_user(user, (from, to), page)).await
    }

    /// O5, newest first, both bounds included.
    pub async fn orders_of_period(
        &self,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
        page: PageWish,
    ) -> Result<Listing<Order>, ShopError> {
        self.orders(&query_of_period((from, to), page)).await
    }

    async fn orders(&self, query: &Query) -> Result<Listing<Order>, ShopError> {
        let page = self.order_page(query, Freshness::Latest).await?;
        self.listed_orders(page.answer)
    }

    /// A page of live orders, and of those in the history.
    pub(crate) async fn order_page(
        &self,
        query: &Query,
        freshness: Freshness,
    ) -> Result<Aged<Page>, ShopError> {
        for _ in 0..ATTEMPTS_MAX {
            let map = self.router.map();
            let page = match self.history_under(&map) {
                None => self.router.query_aged(query, freshness).await?,
                Some(history) => self.page_with_history(history, query, freshness).await?,
            };
            if self.still_under(&map) {
                return Ok(page);
            }
        }
        Err(ShopError::Contended)
    }

    pub(crate) fn listed_orders(&self, page: Page) -> Result<Listing<Order>, ShopError> {
        self.listed(page, |record: &Record| Ok(order_of(record)?.order))
    }

    /// Live orders first, then the history (W33).
    pub(crate) async fn found_order(
        &self,
        id: &OrderId,
        user: Option<&UserId>,
    ) -> Result<Option<SharedRecord>, ShopError> {
        let found = self.found_order_aged(id, user, Freshness::Latest);
        Ok(found.await?.answer)
    }

    /// The history is always asked for the latest: it has, from before, whatever an
    /// older copy of the live orders has given up.
    pub(crate) async fn found_order_aged(
        &self,
        id: &OrderId,
        user: Option<&UserId>,
        freshness: Freshness,
    ) -> Result<Aged<Option<SharedRecord>>, ShopError> {
        let hints = order_hints(id, user);
        for _ in 0..ATTEMPTS_MAX {
            let map = self.router.map();
            let live = self.find_aged(Collection::Orders, id.as_str(), &hints, freshness);
            let live = live.await?;
            if live.answer.is_some() {
                return Ok(live);
            }
            let history = self.history_under(&map);
            let answer = self.archived_order(history, id, user).await?;
            if self.still_under(&map) {
                return Ok(live.map(|_| answer));
            }
        }
        Err(ShopError::Contended)
    }

    pub(crate) async fn live_order(
        &self,
        id: &OrderId,
        user: Option<&UserId>,
    ) -> Result<Option<SharedRecord>, ShopError> {
        let hints = order_hints(id, user);
        self.find(Collection::Orders, id.as_str(), &hints).await
    }

    async fn current_order(
        &self,
        id: &OrderId,
        user: Option<&UserId>,
    ) -> Result<Current, ShopError> {
        Ok(self.placed_order(id, user).await?.0)
    }

    async fn placed_order(
        &self,
        id: &OrderId,
        user: Option<&UserId>,
    ) -> Result<(Current, Place), ShopError> {
        for _ in 0..ATTEMPTS_MAX {
            let map = self.router.map();
            if let Some(record) = self.live_order(id, user).await? {
                return Ok((Current::of(&record)?, Place::Live));
            }
            let history = self.history_under(&map);
            let archived = self.archived_order(history, id, user).await?;
            if self.still_under(&map) {
                let record = archived.ok_or_else(|| no_order(id))?;
                return Ok((Current::of(&record)?, Place::History));
            }
        }
        Err(ShopError::Contended)
    }

    /// The conditional change of the order's record. `None`: somebody was faster.
    pub(crate) async fn replace_order(
        &self,
        current: &Current,
        next: KeptOrder,
        seen: Revision,
    ) -> Result<Option<Current>, ShopError> {
        let change = self.order_change(current, &next)?;
        Ok(match self.router.write(change, seen).await?.outcome {
            Outcome::Done { revision } => Some(Current {
                kept: next,
                revision,
            }),
            _ => None,
        })
    }

    fn order_change(&self, current: &Current, next: &KeptOrder) -> Result<Change, ShopError> {
        let header = order_header(next);
        let id = next.order.header().id.clone();
        Ok(Change::ChangeIf {
            key: self.key(Collection::Orders, id.as_str(), &header)?,
            expected: current.revision,
            header,
            parts: PartsChange::Keep,
        })
    }

    /// Cancels or returns: with its stock in one commit where one shard has both
    /// sides, otherwise the order first and the stock after it.
    async fn end_order(
        &self,
        current: &Current,
        mut next: KeptOrder,
        seen: Revision,
    ) -> Result<Option<Current>, ShopError> {
        if current.kept.settlement == Settlement::Settled {
            let mut changes = vec![self.order_change(current, &next)?];
            changes.extend(self.stock_changes(&next.order)?);
            match together(self.router.write_together(changes, seen).await)? {
                Together::Answered(written) => {
                    return match written.outcome {
                        Outcome::Done { revision } => Ok(Some(Current {
                            kept: next,
                            revision,
                        })),
                        Outcome::Stock(refusal) => Err(ShopError::Damaged {
                            reason: format!(
                                "the stock of order {} does not come back: {refusal:?}",
                                next.order.header().id
                            ),
                        }),
                        _ => Ok(None),
                    };
                }
                Together::NotHere => {}
            }
        }
        next.settlement = Settlement::Open;
        match self.replace_order(current, next, seen).await? {
            Some(ended) => Ok(Some(self.settle(ended).await?)),
            None => Ok(None),
        }
    }
}

/// Both bounds included.
type Period = (Option<Timestamp>, Option<Timestamp>);

pub(crate) fn query_of_user(user: &UserId, period: Period, page: PageWish) -> Query {
    let equals = vec![Value::text(user.as_str())];
    query_of(AccessPath::OrdersByUser, equals, period, page)
}

pub(crate) fn query_of_period(period: Period, page: PageWish) -> Query {
    query_of(AccessPath::OrdersByPeriod, Vec::new(), period, page)
}

fn query_of(path: AccessPath, equals: Vec<Value>, (from, to): Period, page: PageWish) -> Query {
    Query {
        path,
        equals,
        range: SortRange {
            least: from.map(Value::Timestamp),
            most: to.map(Value::Timestamp),
        },
        after: page.after,
        limit: page.limit,
    }
}

pub(crate) fn no_order(id: &OrderId) -> ShopError {
    ShopError::NotFound {
        noun: Noun::Order,
        id: id.to_string(),
    }
}

/// What became of changes that were sent to stand or fall together.
enum Together {
    Answered(Written),
    /// They are on different shards, or the engine has no such commit.
    NotHere,
}

fn together(answer: Result<Written, RouterError>) -> Result<Together, ShopError> {
    match answer {
        Ok(written) => Ok(Together::Answered(written)),
        Err(
            RouterError::NotTogether { .. }
            | RouterError::Engine {
                source: EngineError::Unsupported { .. },
                ..
            },
        ) => Ok(Together::NotHere),
        Err(error) => Err(error.into()),
    }
}
