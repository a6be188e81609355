//! What the people of the shop do: prices move, goods arrive.

use std::sync::atomic::Ordering;

use model::Attributes;
use shop_service::ProductWish;

use super::Visitor;
use crate::ledger::Wish;
use crate::scenery::{GOODS_CATEGORY, PRICES_CENTS, ZONE, money, noun};

/// Pieces in a delivery.
const DELIVERY: u64 = 3;

impl Visitor {
    pub(super) async fn manage(&self) {
        let product = self.goods();
        if self.percent(65) {
            let cents = *self.chance().pick(&PRICES_CENTS);
            self.set_price(product.as_str(), cents).await;
        } else {
            let total = self.hall.received.fetch_add(DELIVERY, Ordering::Relaxed) + DELIVERY;
            self.receive(product.as_str(), total).await;
        }
    }

    pub async fn set_price(&self, product: &str, cents: i64) {
        let price = money(cents);
        let wish = Wish::SetPrice {
            product: noun(product),
            price,
        };
        let asked = ProductWish {
            id: noun(product),
            category: noun(GOODS_CATEGORY),
            name: noun(product),
            price,
            image: None,
            description: None,
            attributes: Attributes::default(),
        };
        self.ask(wish, |shop, seen| async move {
            shop.put_product(asked, None, seen).await
        })
        .await;
    }

    pub async fn receive(&self, product: &str, total: u64) {
        let wish = Wish::Receive {
            product: noun(product),
            total,
        };
        let id = noun(product);
        self.ask(wish, |shop, seen| async move {
            shop.receive_stock(&id, &noun(ZONE), total, seen).await
        })
        .await;
    }
}
