//! Carts: opened by two at once, filled, emptied, closed.

use engine_api::Revision;
use model::{Cart, CartId, CartOwner, CartStatus, ProductId, Quantity};
use shop_service::{ItemWish, Made, ShopError, Stored};

use super::{Visitor, cart_of};
use crate::ledger::Wish;
use crate::scenery::{GOODS, noun};

/// Changes of items in one visit.
const ITEMS_MAX: u64 = 3;

impl Visitor {
    pub(super) async fn fill_cart(&self) {
        let owner = CartOwner::User(self.user());
        let Some(cart) = self.open_by_one_or_two(&owner).await else {
            return;
        };
        self.change_items(&cart).await;
        let end = self.chance().below(100);
        match end {
            0..=9 => self.close_cart(&cart, CartStatus::Abandoned).await,
            10..=14 => self.close_cart(&cart, CartStatus::Ordered).await,
            // The next one is opened while the first is closed.
            15..=24 => {
                let close = self.close_cart(&cart, CartStatus::Abandoned);
                futures::join!(close, self.open_cart(&owner), self.put_item(&cart));
            }
            25..=54 => self.read_cart(&cart).await,
            _ => {}
        }
    }

    pub(super) async fn open_by_one_or_two(&self, owner: &CartOwner) -> Option<CartId> {
        if self.percent(35) {
            let (one, other) = futures::join!(self.open_cart(owner), self.open_cart(owner));
            return cart_of(&one).or(cart_of(&other));
        }
        cart_of(&self.open_cart(owner).await)
    }

    pub(super) async fn open_cart(
        &self,
        owner: &CartOwner,
    ) -> Option<Result<(Made, Stored<Cart>), ShopError>> {
        let wish = Wish::OpenCart {
            owner: owner.clone(),
        };
        let owner = owner.clone();
        let request = |shop: std::sync::Arc<shop_service::Shop>, seen: Revision| async move {
            shop.open_cart(&owner, seen).await
        };
        self.ask(wish, request).await
    }

    pub(super) async fn change_items(&self, cart: &CartId) {
        let changes = self.chance().between(1, ITEMS_MAX);
        for _ in 0..changes {
            let kind = self.chance().below(100);
            match kind {
                0..=64 => self.put_item(cart).await,
                65..=79 => {
                    futures::join!(self.put_item(cart), self.put_item(cart));
                }
                _ => self.remove_item(cart).await,
            }
        }
    }

    pub(super) async fn put_item(&self, cart: &CartId) {
        let (product, pieces) = (self.goods(), self.new_pieces());
        let wish = Wish::PutItem {
            cart: cart.clone(),
            product: product.clone(),
            pieces,
        };
        let item = ItemWish {
            product,
            category: None,
            quantity: Quantity::new(pieces).expect("items of one seed are few"),
        };
        let cart = cart.clone();
        self.ask(wish, |shop, seen| async move {
            shop.put_item(&cart, item, seen).await
        })
        .await;
    }

    async fn remove_item(&self, cart: &CartId) {
        let product = self.goods();
        let wish = Wish::RemoveItem {
            cart: cart.clone(),
            product: product.clone(),
        };
        let cart = cart.clone();
        self.ask(wish, |shop, seen| async move {
            shop.remove_item(&cart, &product, seen).await
        })
        .await;
    }

    async fn close_cart(&self, cart: &CartId, status: CartStatus) {
        let wish = Wish::CloseCart {
            cart: cart.clone(),
            status,
        };
        let cart = cart.clone();
        self.ask(wish, |shop, seen| async move {
            shop.close_cart(&cart, status, seen).await
        })
        .await;
    }

    async fn read_cart(&self, cart: &CartId) {
        let wish = Wish::ReadCart { cart: cart.clone() };
        let cart = cart.clone();
        self.ask(wish, |shop, _| async move { shop.cart(&cart).await })
            .await;
    }

    pub(super) fn goods(&self) -> ProductId {
        noun(self.chance().pick::<&str>(&GOODS))
    }
}
