//! A shopper: puts things into carts, orders, changes its mind, signs in. One request after the other, so that
//! what it may expect of its records is plain.

use std::cell::Cell;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use super::acting::{Performed, Scribe};
use crate::catalogue::{Product, ZONES};
use crate::client::Client;
use crate::ledger::{Done, Wish};
use crate::wire::{CartStatus, LineWish, OrderStatus, OrderWish, Owner};

/// How many of its orders a shopper still cares for.
const ORDERS_IN_MIND_MAX: usize = 20;
const SESSIONS_IN_MIND_MAX: usize = 10;
/// How often an order without an answer is sent again before the shopper gives up.
const ORDER_ATTEMPTS_MAX: u32 = 3;
/// A shop in trouble is not asked again at once.
const AFTER_A_LOST_ANSWER: Duration = Duration::from_millis(50);

/// An order is known by its address: the judge finds it in listings without knowing its id.
pub const ADDRESS_PREFIX: &str = "Judged street, order ";

#[derive(Debug)]
pub struct Shopper {
    name: String,
    random: StdRng,
    /// Rises when an answer was lost: the records of the lost request are left to the judge.
    identity: u32,
    next_order: u32,
    cart_id: Option<String>,
    orders: Vec<(String, OrderStatus)>,
    /// Wishes that were acknowledged, to be sent once more.
    placed: Vec<Wish>,
    sessions: Vec<String>,
}

/// What shoppers share.
#[derive(Debug)]
pub struct Surroundings<'a> {
    pub scribe: &'a Scribe,
    pub products: &'a [Product],
    /// The server is dead, or about to be.
    pub closing: &'a Cell<bool>,
    /// Between two visits.
    pub rest: Duration,
}

/// A request whose answer was lost.
struct AnswerLost;

type Step<T> = anyhow::Result<Result<T, AnswerLost>>;

/// Leaves the visit when an answer was lost.
macro_rules! known {
    ($step:expr) => {
        match $step? {
            Ok(value) => value,
            Err(lost) => return Ok(Err(lost)),
        }
    };
}

impl Shopper {
    pub fn new(number: u32, seed: u64) -> Shopper {
        Shopper {
            name: format!("judged-{number:03}"),
            random: StdRng::seed_from_u64(seed ^ (u64::from(number) << 40)),
            identity: 0,
            next_order: 0,
            cart_id: None,
            orders: Vec::new(),
            placed: Vec::new(),
            sessions: Vec::new(),
        }
    }

    /// Shops until the server is killed.
    pub async fn shop(
        &mut self,
        client: &mut Client,
        around: &Surroundings<'_>,
    ) -> anyhow::Result<()> {
        // What happened to the last request before the kill is the judge's matter; the cart is asked for anew.
        self.cart_id = None;
        while !around.closing.get() {
            let visit = self.visit(client, around).await?;
            if visit.is_err() && !around.closing.get() {
                self.leave();
                tokio::time::sleep(AFTER_A_LOST_ANSWER).await;
            }
            if !around.rest.is_zero() {
                tokio::time::sleep(around.rest).await;
            }
        }
        Ok(())
    }

    /// The server lives, but the request may still be on its way: its records are left alone.
    fn leave(&mut self) {
        self.identity += 1;
        self.cart_id = None;
        self.orders.clear();
        self.placed.clear();
        self.sessions.clear();
    }

    fn user(&self) -> String {
        format!("{}-{}", self.name, self.identity)
    }

    async fn visit(&mut self, client: &mut Client, around: &Surroundings<'_>) -> Step<()> {
        match self.random.random_range(0..100) {
            0..40 => self.put_item(client, around).await,
            40..50 => self.remove_item(client, around).await,
            50..65 => self.order(client, around, None).await,
            65..72 => self.order_the_cart(client, around).await,
            72..84 => self.change_status(client, around).await,
            84..86 => self.order_once_more(client, around).await,
            86..90 => self.come_as_guest(client, around).await,
            90..92 => self.touch_session(client, around).await,
            92..93 => self.close_session(client, around).await,
            93..99 => self.look(client, around).await,
            _ => self.close_cart(client, around).await,
        }
    }

    /// The active cart of the user, opened if need be.
    async fn cart(
        &mut self,
        client: &mut Client,
        around: &Surroundings<'_>,
    ) -> Step<Option<String>> {
        if self.cart_id.is_none() {
            let owner = Owner::UserId(self.user());
            let opened = known!(act(client, around, Wish::OpenCart { owner }).await);
            if let Some(Done::Cart(cart)) = opened {
                self.cart_id = Some(cart.cart_id);
            }
        }
        Ok(Ok(self.cart_id.clone()))
    }

    async fn put_item(&mut self, client: &mut Client, around: &Surroundings<'_>) -> Step<()> {
        if let Some(cart_id) = known!(self.cart(client, around).await) {
            let wish = Wish::PutItem {
                cart_id,
                product_id: self.product(around).id,
                quantity: self.random.random_range(1..6),
            };
            known!(act(client, around, wish).await);
        }
        Ok(Ok(()))
    }

    async fn remove_item(&mut self, client: &mut Client, around: &Surroundings<'_>) -> Step<()> {
        if let Some(cart_id) = known!(self.cart(client, around).await) {
            let product_id = self.product(around).id;
            known!(
                act(
                    client,
                    around,
                    Wish::RemoveItem {
                        cart_id,
                        product_id
                    }
                )
                .await
            );
        }
        Ok(Ok(()))
    }

    async fn close_cart(&mut self, client: &mut Client, around: &Surroundings<'_>) -> Step<()> {
        if let Some(cart_id) = known!(self.cart(client, around).await) {
            let status = CartStatus::Abandoned;
            known!(act(client, around, Wish::CloseCart { cart_id, status }).await);
            self.cart_id = None;
        }
        Ok(Ok(()))
    }

    async fn order_the_cart(&mut self, client: &mut Client, around: &Surroundings<'_>) -> Step<()> {
        let cart_id = known!(self.cart(client, around).await);
        known!(self.order(client, around, cart_id).await);
        self.cart_id = None;
        Ok(Ok(()))
    }

    async fn order(
        &mut self,
        client: &mut Client,
        around: &Surroundings<'_>,
        cart_id: Option<String>,
    ) -> Step<()> {
        let key = format!("{}-{}", self.user(), self.next_order);
        self.next_order += 1;
        let count = self.random.random_range(1..=3);
        let products: Vec<Product> = around
            .products
            .sample(&mut self.random, count)
            .cloned()
            .collect();
        let lines = products.into_iter().map(|product| LineWish {
            product_id: product.id,
            quantity: self.random.random_range(1..4),
            price: product.price,
        });
        let order = OrderWish {
            user_id: format!("{}-{}", self.name, self.identity),
            lines: lines.collect(),
            geo_zone: ZONES[self.random.random_range(0..ZONES.len())].to_owned(),
            address: format!("{ADDRESS_PREFIX}{key}"),
            payment_method: "card".into(),
            cart_id,
        };
        let wish = Wish::Order { key, order };
        for _ in 0..ORDER_ATTEMPTS_MAX {
            match act(client, around, wish.clone()).await? {
                Ok(Some(Done::Order(order))) => {
                    remember(
                        &mut self.orders,
                        (order.order_id, order.status),
                        ORDERS_IN_MIND_MAX,
                    );
                    remember(&mut self.placed, wish, ORDERS_IN_MIND_MAX);
                    return Ok(Ok(()));
                }
                Ok(_) => return Ok(Ok(())),
                // As a client is told to: the same again under the same key.
                Err(AnswerLost) if !around.closing.get() => {}
                Err(AnswerLost) => break,
            }
        }
        Ok(Err(AnswerLost))
    }

    /// A client that missed the answer sends the same again: one order stays one.
    async fn order_once_more(
        &mut self,
        client: &mut Client,
        around: &Surroundings<'_>,
    ) -> Step<()> {
        if let Some(wish) = self.placed.choose(&mut self.random).cloned() {
            known!(act(client, around, wish).await);
        }
        Ok(Ok(()))
    }

    async fn change_status(&mut self, client: &mut Client, around: &Surroundings<'_>) -> Step<()> {
        if self.orders.is_empty() {
            return Ok(Ok(()));
        }
        let index = self.random.random_range(0..self.orders.len());
        let (order_id, from) = self.orders.swap_remove(index);
        let next: &[OrderStatus] = match from {
            OrderStatus::Created => &[OrderStatus::Paid, OrderStatus::Cancelled],
            OrderStatus::Paid => &[
                OrderStatus::Shipped,
                OrderStatus::Shipped,
                OrderStatus::Cancelled,
            ],
            OrderStatus::Shipped => &[OrderStatus::Delivered],
            OrderStatus::Delivered => &[OrderStatus::Returned],
            OrderStatus::Pending
            | OrderStatus::Cancelled
            | OrderStatus::Returned
            | OrderStatus::Aborted => &[],
        };
        let Some(status) = next.choose(&mut self.random).copied() else {
            return Ok(Ok(()));
        };
        let wish = Wish::Status {
            order_id: order_id.clone(),
            status,
        };
        if known!(act(client, around, wish).await).is_some() {
            self.orders.push((order_id, status));
        }
        Ok(Ok(()))
    }

    /// Opens a session, fills a guest's cart, signs in, and sometimes signs in again.
    async fn come_as_guest(&mut self, client: &mut Client, around: &Surroundings<'_>) -> Step<()> {
        let Some(Done::Session(guest)) = known!(act(client, around, Wish::OpenSession).await)
        else {
            return Ok(Ok(()));
        };
        let owner = Owner::SessionId(guest.session_id.clone());
        let Some(Done::Cart(cart)) = known!(act(client, around, Wish::OpenCart { owner }).await)
        else {
            return Ok(Ok(()));
        };
        for _ in 0..self.random.random_range(1..4) {
            let wish = Wish::PutItem {
                cart_id: cart.cart_id.clone(),
                product_id: self.product(around).id,
                quantity: self.random.random_range(1..4),
            };
            known!(act(client, around, wish).await);
        }
        let wish = Wish::Login {
            user_id: self.user(),
            guest_session_id: guest.session_id,
        };
        for _ in 0..self.random.random_range(1..3) {
            let Some(Done::Login(login)) = known!(act(client, around, wish.clone()).await) else {
                return Ok(Ok(()));
            };
            self.cart_id = login.cart.map(|cart| cart.cart_id);
            remember(
                &mut self.sessions,
                login.session.session_id,
                SESSIONS_IN_MIND_MAX,
            );
        }
        Ok(Ok(()))
    }

    async fn touch_session(&mut self, client: &mut Client, around: &Surroundings<'_>) -> Step<()> {
        if let Some(session_id) = self.sessions.choose(&mut self.random).cloned() {
            known!(act(client, around, Wish::TouchSession { session_id }).await);
        }
        Ok(Ok(()))
    }

    async fn close_session(&mut self, client: &mut Client, around: &Surroundings<'_>) -> Step<()> {
        if let Some(session_id) = self.sessions.pop() {
            known!(act(client, around, Wish::CloseSession { session_id }).await);
        }
        Ok(Ok(()))
    }

    /// Through another process than the last change, if there are several.
    async fn look(&mut self, client: &mut Client, around: &Surroundings<'_>) -> Step<()> {
        let cart = self.cart_id.clone();
        let order = self.orders.choose(&mut self.random);
        let order = order.map(|(order_id, _)| order_id.clone());
        let user_id = self.user();
        let wish = match (self.random.random_range(0..3), cart, order) {
            (0, Some(cart_id), _) => Wish::LookAtCart { cart_id },
            (1, _, Some(order_id)) => Wish::LookAtOrder { order_id },
            _ => Wish::LookAtHistory { user_id },
        };
        // A look without an answer leaves nothing in doubt.
        let _shown = act(client, around, wish).await?;
        Ok(Ok(()))
    }

    fn product(&mut self, around: &Surroundings<'_>) -> Product {
        let index = self.random.random_range(0..around.products.len());
        around.products[index].clone()
    }
}

/// What was done; nothing if it was refused.
async fn act(client: &mut Client, around: &Surroundings<'_>, wish: Wish) -> Step<Option<Done>> {
    Ok(match around.scribe.perform(client, wish).await? {
        Performed::Done(done) => Ok(Some(done)),
        Performed::Refused { .. } => Ok(None),
        Performed::Unknown => Err(AnswerLost),
    })
}

/// The oldest is forgotten.
fn remember<T>(kept: &mut Vec<T>, new: T, most: usize) {
    if kept.len() == most {
        kept.remove(0);
    }
    kept.push(new);
}
