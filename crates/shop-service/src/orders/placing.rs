//! Placing an order (W10–W13).
//!
//! ```text
//!   one shard has all sides:   create order + sell every line + close the cart   one commit
//!
//!   otherwise:   create pending ─▶ take … take ─▶ pending → created ─▶ claim … ─▶ settled
//!                                     │ refused            ▲ the commit point
//!                                     └▶ pending → aborted ─▶ give … ─▶ settled
//! ```
//!
//! The order's id follows from user and key, so that every repeat meets the
//! same record, whoever sends it and wherever it has moved. Every step may be
//! done again, by a repeat or by a sweeper.

use engine_api::{
    Change, Outcome, PartsChange, PriceCondition, Record, RecordKey, Revision, StockAction,
    StockRefusal,
};
use layout::{Collection, Field};
use model::{
    AskedLine, AskedOrder, CartOwner, Money, Order, OrderId, OrderLine, OrderRequest, OrderStatus,
    Repeat, RequestFields, ZoneName,
};

use super::{Current, LineWish, OrderWish, Placed, Together, together};
use crate::error::{Noun, ShopError};
use crate::history::{Making, numbered_key};
use crate::records::{
    KeptOrder, Settlement, cart_header, header, order_header, product_hints, product_of, shelf,
};
use crate::shop::{ATTEMPTS_MAX, Made, Shop, shared};

impl Shop {
    /// O1: the order and its stock, or neither, once for each key.
    pub async fn place_order(&self, wish: OrderWish, seen: Revision) -> Result<Placed, ShopError> {
        let asked = asked(&wish);
        let id = OrderId::derived(&wish.user, &wish.key);
        let mut above = seen;
        for _ in 0..ATTEMPTS_MAX {
            // Nearly every request is the first of its key, so that nobody looks for an
            // order beforehand: the creation meets it before anything else is judged. It
            // does not meet one in the history.
            let making = self.making(&id, beside(&wish), above)?;
            if let Making::Numbered(_) = making
                && let Some(record) = self.found_order(&id, Some(&wish.user)).await?
            {
                return self.repeated(&record, &wish, &asked, seen).await;
            }
            match self.place_new(&wish, &asked, seen, making).await {
                Ok(Placing::Ended(placed)) => return Ok(placed),
                Ok(Placing::Overtaken { stored }) => above = above.max(stored),
                Err(Unplaced::Decided(error)) => return Err(error),
                // A repeat meets the world that the first request left: its cart is closed,
                // its pieces are sold, the price has moved since. None of that refuses it.
                Err(Unplaced::Refused(refusal)) => {
                    return match self.found_order(&id, Some(&wish.user)).await? {
                        Some(record) => self.repeated(&record, &wish, &asked, seen).await,
                        None => Err(refusal),
                    };
                }
            }
        }
        Err(ShopError::Contended)
    }

    async fn place_new(
        &self,
        wish: &OrderWish,
        asked: &AskedOrder,
        seen: Revision,
        making: Making,
    ) -> Result<Placing, Unplaced> {
        let request = self.looked_up(wish).await;
        let request = request.map_err(Unplaced::before_writing)?;
        let pending = KeptOrder {
            order: Order::pending(&wish.user, request, self.now()),
            settlement: Settlement::Open,
            cart: wish.cart.clone(),
        };
        for _ in 0..ATTEMPTS_MAX {
            let attempt = self.sell_at_once(&pending, seen, making).await;
            let decided = match attempt.map_err(Unplaced::before_writing)? {
                AtOnce::Placed(placed) => Ok(Placing::Ended(placed)),
                AtOnce::Exists(record) => {
                    let repeated = self.repeated(&record, wish, asked, seen).await;
                    repeated.map(Placing::Ended)
                }
                AtOnce::Overtaken { stored } => Ok(Placing::Overtaken { stored }),
                AtOnce::NotHere => self.reserve(pending, wish, asked, seen, making).await,
                // If nothing explains the refusal any more, the world has
                // changed in between: pieces came back, or a price did.
                AtOnce::Refused => {
                    let explained = self.explain(&pending, wish).await;
                    explained.map_err(Unplaced::before_writing)?;
                    continue;
                }
            };
            return decided.map_err(Unplaced::Decided);
        }
        Err(Unplaced::Decided(ShopError::Contended))
    }

    /// One commit for everything. Nobody ever sees the order without its stock,
    /// so that it needs no reservation.
    async fn sell_at_once(
        &self,
        pending: &KeptOrder,
        seen: Revision,
        making: Making,
    ) -> Result<AtOnce, ShopError> {
        let mut created = pending.clone();
        created.settlement = Settlement::Settled;
        let now = created.order.header().created_at;
        created.order.change_status(OrderStatus::Created, now)?;
        let mut changes = vec![self.creation(&created)?];
        let zone = zone(&created.order);
        for line in created.order.lines() {
            let sell = StockAction::Sell {
                quantity: line.quantity.get(),
            };
            changes.push(self.stock_change(line, &zone, exactly(line), sell)?);
        }
        changes.extend(self.cart_closing(pending).await?);
        let written = match together(self.write_new(changes, seen, making).await)? {
            Together::Answered(written) => written,
            Together::NotHere => return Ok(AtOnce::NotHere),
        };
        Ok(match written.outcome {
            Outcome::Done { revision } => AtOnce::Placed(Placed {
                made: Made::Now,
                order: Current {
                    kept: created,
                    revision,
                }
                .into_stored(),
            }),
            Outcome::Exists { record } => AtOnce::Exists(record),
            Outcome::Stale { stored } => AtOnce::Overtaken { stored },
            _ => AtOnce::Refused,
        })
    }

    /// The way over several shards or engines.
    async fn reserve(
        &self,
        pending: KeptOrder,
        wish: &OrderWish,
        asked: &AskedOrder,
        seen: Revision,
        making: Making,
    ) -> Result<Placing, ShopError> {
        let creation = vec![self.creation(&pending)?];
        let placed = match self.write_new(creation, seen, making).await?.outcome {
            Outcome::Done { revision } => {
                let current = Current {
                    kept: pending,
                    revision,
                };
                self.complete(current, Made::Now, seen).await?
            }
            Outcome::Exists { record } => {
                Box::pin(self.repeated(&record, wish, asked, seen)).await?
            }
            Outcome::Stale { stored } => return Ok(Placing::Overtaken { stored }),
            _ => return Err(ShopError::Contended),
        };
        Ok(Placing::Ended(placed))
    }

    /// The order of an earlier attempt: the same answer, or a refusal.
    async fn repeated(
        &self,
        record: &Record,
        wish: &OrderWish,
        asked: &AskedOrder,
        seen: Revision,
    ) -> Result<Placed, ShopError> {
        let current = Current::of(record)?;
        let order = &current.kept.order;
        match order.judge_repeat(&wish.user, asked) {
            Repeat::OtherRequest | Repeat::OtherOrder => return Err(ShopError::KeyReused),
            Repeat::AbortedUnseen => return Err(aborted(order)),
            Repeat::Same => {}
        }
        match current.status() {
            OrderStatus::Pending => self.complete(current, Made::Before, seen).await,
            OrderStatus::Aborted => Err(aborted(order)),
            OrderStatus::Created
            | OrderStatus::Paid
            | OrderStatus::Shipped
            | OrderStatus::Delivered
            | OrderStatus::Cancelled
            | OrderStatus::Returned => Ok(Placed {
                made: Made::Before,
                // Whoever asked first may have died on the way.
                order: self.settle(current).await?.into_stored(),
            }),
        }
    }

    /// From a pending order to a created one, or to an aborted one.
    async fn complete(
        &self,
        mut current: Current,
        made: Made,
        seen: Revision,
    ) -> Result<Placed, ShopError> {
        let id = current.kept.order.header().id.clone();
        let user = current.kept.order.header().user.clone();
        for _ in 0..ATTEMPTS_MAX {
            match current.status() {
                OrderStatus::Pending => {
                    let mut next = current.kept.clone();
                    let refusal = self.take_all(&next.order).await?;
                    let status = match refusal {
                        None => OrderStatus::Created,
                        Some(_) => OrderStatus::Aborted,
                    };
                    next.order.change_status(status, self.now())?;
                    if let Some(decided) = self.replace_order(&current, next, seen).await? {
                        let settled = self.settle(decided).await?;
                        return match refusal {
                            None => Ok(Placed {
                                made,
                                order: settled.into_stored(),
                            }),
                            Some(refusal) => Err(refusal),
                        };
                    }
                }
                OrderStatus::Aborted => {
                    // A sweeper gave up on us; what we took since goes back too.
                    let given_up = self.settle_again(current).await?;
                    return Err(aborted(&given_up.kept.order));
                }
                OrderStatus::Created
                | OrderStatus::Paid
                | OrderStatus::Shipped
                | OrderStatus::Delivered
                | OrderStatus::Cancelled
                | OrderStatus::Returned => {
                    // Whoever was faster may have died on the way.
                    return Ok(Placed {
                        made,
                        order: self.settle(current).await?.into_stored(),
                    });
                }
            }
            current = self.current_order(&id, Some(&user)).await?;
        }
        Err(ShopError::Contended)
    }

    /// Holds the stock of every line at the price the shopper saw (W13).
    /// `Some`: the stock refuses, for good.
    async fn take_all(&self, order: &Order) -> Result<Option<ShopError>, ShopError> {
        let zone = zone(order);
        for line in order.lines() {
            let take = StockAction::Take {
                order: order.header().id.to_string(),
                quantity: line.quantity.get(),
                at: order.header().created_at,
            };
            let change = self.stock_change(line, &zone, exactly(line), take)?;
            match self.router.write(change, Revision::ZERO).await?.outcome {
                Outcome::Done { .. } => {}
                Outcome::Stock(StockRefusal::TooManyHeld) => return Err(ShopError::Contended),
                Outcome::Stock(refusal) => return Ok(Some(refused(order, line, refusal)?)),
                Outcome::NoRecord => return Ok(Some(unknown(line))),
                _ => return Err(ShopError::Contended),
            }
        }
        Ok(None)
    }

    /// Why a commit was refused, in the words of the line or the cart it failed on.
    async fn explain(&self, pending: &KeptOrder, wish: &OrderWish) -> Result<(), ShopError> {
        self.cart_closing(pending).await?;
        for line in &wish.lines {
            let record = self
                .found_product(&line.product, line.category.as_ref())
                .await?;
            let record = record.ok_or_else(|| ShopError::UnknownProduct {
                product: line.product.clone(),
            })?;
            let product = shared(&record, product_of)?;
            if product.price != line.price {
                return Err(price_moved(line, product.price));
            }
            let mut shelves = product
                .stocks()
                .filter(|(key, _)| key.zone == wish.geo_zone)
                .map(|(_, stock)| stock.available())
                .peekable();
            if shelves.peek().is_none() {
                return Err(ShopError::NoStockInZone {
                    product: line.product.clone(),
                    zone: wish.geo_zone.clone(),
                });
            }
            let available = shelves.sum();
            if available < line.quantity.pieces() {
                return Err(ShopError::SoldOut {
                    product: line.product.clone(),
                    zone: wish.geo_zone.clone(),
                    available,
                });
            }
        }
        Ok(())
    }

    /// The request with names and categories copied in.
    async fn looked_up(&self, wish: &OrderWish) -> Result<OrderRequest, ShopError> {
        let mut lines = Vec::with_capacity(wish.lines.len());
        for line in &wish.lines {
            let record = self
                .found_product(&line.product, line.category.as_ref())
                .await?;
            let record = record.ok_or_else(|| ShopError::UnknownProduct {
                product: line.product.clone(),
            })?;
            // The header alone: the stock is judged in the commit.
            let product = header(&record)?;
            let price = product.money(Field::Price)?;
            if price != line.price {
                return Err(price_moved(line, price));
            }
            lines.push(OrderLine {
                product: line.product.clone(),
                category: product.noun(Field::Category)?,
                name: product.noun(Field::Name)?,
                quantity: line.quantity,
                price: line.price,
            });
        }
        Ok(OrderRequest::new(RequestFields {
            idempotency_key: wish.key.clone(),
            lines,
            geo_zone: wish.geo_zone.clone(),
            address: wish.address.clone(),
            payment_method: wish.payment_method.clone(),
        })?)
    }

    fn creation(&self, kept: &KeptOrder) -> Result<Change, ShopError> {
        let header = order_header(kept);
        let id = kept.order.header().id.as_str();
        Ok(Change::CreateIfAbsent {
            key: self.key(Collection::Orders, id, &header)?,
            header,
            parts: Vec::new(),
        })
    }

    /// What makes the named cart `ordered`. A cart that is closed refuses the
    /// order: two clicks with two keys do not become two orders in one commit.
    /// Over several shards the cart is only looked at here and closed after the
    /// order, so that two at the same moment can both pass: closing it first
    /// would take the cart from a shopper whose order is then refused.
    async fn cart_closing(&self, kept: &KeptOrder) -> Result<Option<Change>, ShopError> {
        let Some(id) = &kept.cart else {
            return Ok(None);
        };
        let user = CartOwner::User(kept.order.header().user.clone());
        match self.find_cart(id).await? {
            Some(mut record) if record.cart.header().owner == user => {
                let closed = |_| ShopError::CartClosed { cart: id.clone() };
                record
                    .cart
                    .change()
                    .mark_ordered(self.now())
                    .map_err(closed)?;
                Ok(Some(Change::ChangeIf {
                    key: record.key,
                    expected: record.header_revision,
                    header: cart_header(&record.cart, record.ordinal),
                    parts: PartsChange::Keep,
                }))
            }
            _ => Err(ShopError::NotFound {
                noun: Noun::Cart,
                id: id.to_string(),
            }),
        }
    }

    pub(super) fn stock_change(
        &self,
        line: &OrderLine,
        zone: &ZoneName,
        price: PriceCondition,
        action: StockAction,
    ) -> Result<Change, ShopError> {
        Ok(Change::Stock {
            key: self.product_key(line)?,
            part: shelf(zone),
            price,
            action,
        })
    }

    fn product_key(&self, line: &OrderLine) -> Result<RecordKey, ShopError> {
        let hints = product_hints(&line.product, Some(&line.category));
        self.key(Collection::Products, line.product.as_str(), &hints)
    }
}

/// Why there is no new order.
enum Unplaced {
    /// Before anything was written: for a repeat it says nothing.
    Refused(ShopError),
    /// By what the order's own record says, or because a store did not answer.
    Decided(ShopError),
}

impl Unplaced {
    fn before_writing(error: ShopError) -> Unplaced {
        match error {
            ShopError::Store(_) | ShopError::Damaged { .. } => Unplaced::Decided(error),
            refusal => Unplaced::Refused(refusal),
        }
    }
}

enum Placing {
    Ended(Placed),
    /// An order of this id came and went since it was looked for: it is in the history.
    Overtaken {
        stored: Revision,
    },
}

enum AtOnce {
    Placed(Placed),
    Exists(Box<Record>),
    /// See [`Placing::Overtaken`]; or the cart was changed by a faster clock.
    Overtaken {
        stored: Revision,
    },
    /// Something in it did not hold; nothing was written.
    Refused,
    NotHere,
}

/// What an order changes beside its own record.
fn beside(wish: &OrderWish) -> Vec<RecordKey> {
    let products = wish.lines.iter().map(|line| line.product.as_str());
    let products = products.map(|id| numbered_key(Collection::Products, id));
    let cart = wish.cart.iter();
    let cart = cart.map(|cart| numbered_key(Collection::Carts, cart.as_str()));
    products.chain(cart).collect()
}

fn asked(wish: &OrderWish) -> AskedOrder {
    let lines = wish.lines.iter().map(|line| AskedLine {
        product: line.product.clone(),
        quantity: line.quantity,
        price: line.price,
    });
    AskedOrder {
        idempotency_key: wish.key.clone(),
        lines: lines.collect(),
        geo_zone: wish.geo_zone.clone(),
        address: wish.address.clone(),
        payment_method: wish.payment_method.clone(),
    }
}

fn exactly(line: &OrderLine) -> PriceCondition {
    PriceCondition::Exactly(line.price.as_decimal())
}

/// Where the order's stock lies. An order without its request has no lines either.
pub(super) fn zone(order: &Order) -> ZoneName {
    match order.request() {
        Some(request) => request.geo_zone().clone(),
        None => ZoneName::parse("nowhere").expect("a short word is a zone's name"),
    }
}

fn aborted(order: &Order) -> ShopError {
    ShopError::OrderAborted {
        order: order.header().id.clone(),
    }
}

fn price_moved(line: &LineWish, now: Money) -> ShopError {
    ShopError::PriceMoved {
        product: line.product.clone(),
        seen: line.price,
        now,
    }
}

fn unknown(line: &OrderLine) -> ShopError {
    ShopError::UnknownProduct {
        product: line.product.clone(),
    }
}

/// The stock's refusal in the shop's words.
fn refused(order: &Order, line: &OrderLine, refusal: StockRefusal) -> Result<ShopError, ShopError> {
    let product = line.product.clone();
    let zone = zone(order);
    Ok(match refusal {
        StockRefusal::SoldOut { available } => ShopError::SoldOut {
            product,
            zone,
            available,
        },
        StockRefusal::NoSuchStock => ShopError::NoStockInZone { product, zone },
        StockRefusal::PriceMoved { now: Some(now) } => ShopError::PriceMoved {
            product,
            seen: line.price,
            now: Money::from_decimal(now).map_err(|error| ShopError::Damaged {
                reason: error.to_string(),
            })?,
        },
        StockRefusal::PriceMoved { now: None } => ShopError::UnknownProduct { product },
        StockRefusal::BelowFloor { .. } | StockRefusal::NoReservation => aborted(order),
        StockRefusal::TooManyHeld
        | StockRefusal::BelowSold { .. }
        | StockRefusal::OtherQuantity { .. } => ShopError::Damaged {
            reason: format!("the stock of {product} answered {refusal:?} to a take"),
        },
    })
}
