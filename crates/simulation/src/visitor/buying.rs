//! Orders: placed under a key that is sent again, here and elsewhere, one after
//! the other and at once; then paid, shipped, cancelled, shipped against
//! cancelled.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine_api::Revision;
use model::{CartOwner, Money, OrderId, OrderStatus, ProductId, Quantity, UserId};
use shop_service::{LineWish, OrderWish, PageWish, ShopError};

use super::{Interest, Page, Visitor, locked};
use crate::ledger::Wish;
use crate::scenery::{GOODS, PRICES_CENTS, ZONE, money, noun};

const PIECES_MAX: u64 = 3;
/// From the shop to the door.
const COURSE: [OrderStatus; 3] = [
    OrderStatus::Paid,
    OrderStatus::Shipped,
    OrderStatus::Delivered,
];
/// How often a visitor sends an order that was not answered.
const ATTEMPTS_MAX: u32 = 3;

impl Visitor {
    pub(super) async fn buy(&self) {
        let Some(wish) = self.order_wish().await else {
            return;
        };
        let way = self.chance().below(100);
        match way {
            0..=24 => {
                futures::join!(self.place(&wish), self.place(&wish));
            }
            // Two keys for one cart, as two windows would send them.
            25..=31 => {
                let other = OrderWish {
                    key: self.new_key(),
                    ..wish.clone()
                };
                futures::join!(self.place(&wish), self.place(&other));
            }
            _ => self.place_until_answered(&wish).await,
        }
        if self.percent(40) {
            self.list_orders(&wish.user).await;
        }
        if self.percent(25) {
            self.place(&wish).await;
        }
        if self.percent(12) {
            let mut other = wish.clone();
            other.lines[0].quantity = other_than(other.lines[0].quantity);
            self.place(&other).await;
        }
    }

    async fn order_wish(&self) -> Option<OrderWish> {
        let user = self.user();
        let mut lines = Vec::new();
        let first = self.chance().below(2);
        let count = if self.percent(35) { 2 } else { 1 };
        for product in GOODS
            .iter()
            .cycle()
            .skip(usize::from(first == 1))
            .take(count)
        {
            lines.push(LineWish {
                product: noun(product),
                category: None,
                quantity: self.pieces(),
                price: self.price_of(product).await?,
            });
        }
        let cart = if self.percent(35) {
            self.open_by_one_or_two(&CartOwner::User(user.clone()))
                .await
        } else {
            None
        };
        Some(OrderWish {
            user,
            key: self.new_key(),
            lines,
            geo_zone: noun(ZONE),
            address: noun("1 Main Street"),
            payment_method: noun("card"),
            cart,
        })
    }

    /// What the product's page shows, or what it showed once.
    async fn price_of(&self, product: &str) -> Option<Money> {
        if self.percent(12) {
            let cents = *self.chance().pick(&PRICES_CENTS);
            return Some(money(cents));
        }
        let id: ProductId = noun(product);
        let wish = Wish::ReadProduct {
            product: id.clone(),
        };
        let page = self.ask(wish, |shop, _| async move {
            shop.product(&id, None).await.map(Page)
        });
        Some(page.await?.ok()?.0.value.price)
    }

    /// Sends the same again while it is not known what became of it.
    async fn place_until_answered(&self, wish: &OrderWish) {
        for _ in 0..ATTEMPTS_MAX {
            match self.place(wish).await {
                Some(Err(ShopError::Store(_) | ShopError::Contended)) | None => {}
                Some(_) => return,
            }
        }
    }

    async fn place(&self, wish: &OrderWish) -> Option<Result<OrderId, ShopError>> {
        let asked = wish.clone();
        let answer = self
            .ask(Wish::PlaceOrder(wish.clone()), |shop, seen| async move {
                shop.place_order(asked, seen).await
            })
            .await?;
        Some(answer.map(|placed| {
            let id = placed.order.value.header().id.clone();
            let mut orders = locked(&self.hall.orders);
            if !orders.contains(&id) {
                orders.push(id.clone());
                locked(&self.hall.wishes).push(wish.clone());
            }
            id
        }))
    }

    /// Somebody's order is read, or moved along its course.
    pub(super) async fn follow_order(&self) {
        let known = locked(&self.hall.orders).clone();
        if known.is_empty() {
            return self.buy().await;
        }
        let order = self.chance().pick(&known).clone();
        let way = self.chance().below(100);
        match way {
            0..=14 => self.read_order(order).await,
            15..=49 => {
                self.change_status(&order, OrderStatus::Paid).await;
                futures::join!(
                    self.change_status(&order, OrderStatus::Shipped),
                    self.change_status(&order, OrderStatus::Cancelled)
                );
            }
            50..=69 => {
                futures::join!(
                    self.change_status(&order, OrderStatus::Cancelled),
                    self.change_status(&order, OrderStatus::Cancelled)
                );
            }
            _ => {
                for status in COURSE {
                    self.change_status(&order, status).await;
                }
                if self.hall.interest == Interest::Everything {
                    self.change_status(&order, OrderStatus::Returned).await;
                }
            }
        }
    }

    /// An order that is placed and comes to the door at once.
    pub(super) async fn buy_and_receive(&self) {
        let Some(wish) = self.order_wish().await else {
            return;
        };
        if let Some(Ok(order)) = self.place(&wish).await {
            for status in COURSE {
                self.change_status(&order, status).await;
            }
            locked(&self.hall.received_orders).push(order);
        }
    }

    /// An order that came to somebody's door goes back, soon or much later.
    pub(super) async fn return_order(&self) {
        let known = locked(&self.hall.received_orders).clone();
        if known.is_empty() {
            return self.buy_and_receive().await;
        }
        let order = self.chance().pick(&known).clone();
        if self.percent(50) {
            self.change_status(&order, OrderStatus::Returned).await;
        } else {
            futures::join!(
                self.change_status(&order, OrderStatus::Returned),
                self.change_status(&order, OrderStatus::Returned)
            );
        }
        self.read_order(order).await;
    }

    pub(super) async fn read_order(&self, order: OrderId) {
        let wish = Wish::ReadOrder {
            order: order.clone(),
        };
        let asked = self.ask(
            wish,
            |shop, _| async move { shop.order(&order, None).await },
        );
        asked.await;
    }

    /// Sends a request of long ago once more.
    pub(super) async fn buy_again(&self) {
        let known = locked(&self.hall.wishes).clone();
        if known.is_empty() {
            return self.buy().await;
        }
        let wish = self.chance().pick(&known).clone();
        self.place(&wish).await;
        self.list_orders(&wish.user).await;
    }

    pub(super) async fn list_orders(&self, user: &UserId) {
        let wish = Wish::ListOrders { user: user.clone() };
        let user = user.clone();
        let page = PageWish {
            after: None,
            limit: engine_api::PAGE_RECORDS_MAX,
        };
        let any = Arc::clone(self.chance().pick(&self.hall.processes));
        self.ask_at(any, wish, |shop, _| async move {
            shop.orders_of_user(&user, None, None, page).await
        })
        .await;
    }

    async fn change_status(&self, order: &OrderId, status: OrderStatus) {
        let wish = Wish::ChangeStatus {
            order: order.clone(),
            status,
        };
        let order = order.clone();
        self.ask(wish, |shop, seen: Revision| async move {
            shop.change_order_status(&order, status, None, seen).await
        })
        .await;
    }

    fn pieces(&self) -> Quantity {
        let pieces = self.chance().between(1, PIECES_MAX);
        Quantity::from_pieces(pieces).expect("a few pieces are few")
    }

    fn new_key(&self) -> model::IdempotencyKey {
        let number = self.hall.keys.fetch_add(1, Ordering::Relaxed);
        noun(&format!("key-{number}"))
    }
}

fn other_than(quantity: Quantity) -> Quantity {
    Quantity::new(quantity.get() % 3 + 1).expect("one to three pieces are a quantity")
}
