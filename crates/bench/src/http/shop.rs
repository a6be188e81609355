//! The shop that is measured: its products, shoppers and orders, and the requests they make.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use judge::http::{Response, write_request};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::load::Caller;

pub const ZONE: &str = "moscow";
pub const CATEGORY: &str = "phones";
const NAME: &str = "Galaxy S25 Ultra 512 GB";
const ADDRESS: &str = "Moscow, Tverskaya street 12, building 3, apartment 45";
/// More than any run can sell.
const RECEIVED: u64 = 1_000_000_000;
/// A history is two pages of ten long.
pub const ORDERS_PER_USER: u64 = 20;
const HISTORY_PAGE: u64 = 10;
const CATEGORY_PAGE: u64 = 100;

/// Shoppers who are in the shop right now, and read their carts again and again (G1).
const HOT_CARTS: u64 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    HotCartRead,
    CartRead,
    ProductRead,
    /// A page of a hundred products of a category.
    CategoryPage,
    OrderRead,
    History,
    CartWrite,
    Order,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::HotCartRead | Kind::CartRead => "GET active cart",
            Kind::ProductRead => "GET product",
            Kind::CategoryPage => "GET category",
            Kind::OrderRead => "GET order",
            Kind::History => "GET history",
            Kind::CartWrite => "PUT cart item",
            Kind::Order => "POST order",
        }
    }

    fn expected(self) -> u16 {
        match self {
            Kind::Order => 201,
            _ => 200,
        }
    }
}

/// Kinds and their shares in percent.
pub type Mix = &'static [(Kind, u32)];

/// What shoppers do in an ordinary hour (G6).
pub const SHOP_MIX: Mix = &[
    (Kind::CartRead, 70),
    (Kind::OrderRead, 15),
    (Kind::History, 5),
    (Kind::CartWrite, 8),
    (Kind::Order, 2),
];

/// What the server holds, as far as requests have to name it.
#[derive(Debug)]
pub struct Shop {
    pub products: u64,
    /// Of the user with the same number.
    pub cart_ids: Vec<Box<str>>,
    pub order_ids: Vec<Box<str>>,
    /// Makes idempotency keys differ from those of earlier runs on the same server.
    pub run: u64,
    pub next_order: AtomicU64,
}

impl Shop {
    pub fn empty(products: u64, run: u64) -> Shop {
        Shop {
            products,
            cart_ids: Vec::new(),
            order_ids: Vec::new(),
            run,
            next_order: AtomicU64::new(0),
        }
    }

    pub fn put_product(&self, request: &mut Vec<u8>, product: u64) {
        let body = format!(
            r#"{{"category":"{CATEGORY}","name":"{NAME}","price":"{}","description":"{}","attributes":{{"colour":"black","memory":"512 GB"}}}}"#,
            price(product),
            "A phone. ".repeat(20),
        );
        let path = format!("/v1/products/{}", product_id(product));
        write_request(request, "PUT", &path, &[], Some(body.as_bytes()));
    }

    pub fn put_stock(&self, request: &mut Vec<u8>, product: u64) {
        let path = format!("/v1/products/{}/stock/{ZONE}", product_id(product));
        let body = format!(r#"{{"received":{RECEIVED}}}"#);
        write_request(request, "PUT", &path, &[], Some(body.as_bytes()));
    }

    pub fn post_cart(&self, request: &mut Vec<u8>, user: u64) {
        let body = format!(r#"{{"user_id":"{}"}}"#, user_id(user));
        write_request(request, "POST", "/v1/carts", &[], Some(body.as_bytes()));
    }

    pub fn put_item(&self, request: &mut Vec<u8>, cart_id: &str, product: u64, quantity: u32) {
        let path = format!("/v1/carts/{cart_id}/items/{}", product_id(product));
        let body = format!(r#"{{"quantity":{quantity},"category":"{CATEGORY}"}}"#);
        write_request(request, "PUT", &path, &[], Some(body.as_bytes()));
    }

    /// An order of a key never used before.
    pub fn post_order(
        &self,
        request: &mut Vec<u8>,
        body: &mut Vec<u8>,
        user: u64,
        lines: OrderLines,
    ) {
        let key = format!(
            "{:x}-{}",
            self.run,
            self.next_order.fetch_add(1, Ordering::Relaxed)
        );
        body.clear();
        self.write_order(body, user, lines)
            .expect("a vector takes all that is written");
        let headers = [("idempotency-key", key.as_str())];
        write_request(request, "POST", "/v1/orders", &headers, Some(body));
    }

    fn write_order(&self, out: &mut Vec<u8>, user: u64, lines: OrderLines) -> std::io::Result<()> {
        write!(out, r#"{{"user_id":"{}","lines":["#, user_id(user))?;
        for line in 0..lines.count {
            let product = (lines.first_product + line) % self.products;
            let comma = if line == 0 { "" } else { "," };
            write!(
                out,
                r#"{comma}{{"product_id":"{}","quantity":1,"price":"{}","category":"{CATEGORY}"}}"#,
                product_id(product),
                price(product),
            )?;
        }
        write!(
            out,
            r#"],"geo_zone":"{ZONE}","address":"{ADDRESS}","payment_method":"card"}}"#
        )
    }
}

/// Neighbouring products, so that none comes twice.
#[derive(Clone, Copy, Debug)]
pub struct OrderLines {
    pub first_product: u64,
    pub count: u64,
}

pub fn user_id(user: u64) -> String {
    format!("USER-{user:07}")
}

fn product_id(product: u64) -> String {
    format!("PROD-{product:05}")
}

fn price(product: u64) -> String {
    format!("{}.90", 499 + product % 97)
}

/// Which user the n-th of so many orders belongs to.
pub fn order_user(order: u64, orders: u64) -> u64 {
    order % (orders / ORDERS_PER_USER).max(1)
}

/// One connection's worth of shoppers.
#[derive(Debug)]
pub struct Shoppers<'a> {
    shop: &'a Shop,
    mix: Mix,
    random: StdRng,
    body: Vec<u8>,
    asked: Kind,
}

impl<'a> Shoppers<'a> {
    pub fn on_connections(shop: &'a Shop, mix: Mix, connections: u64) -> Vec<Shoppers<'a>> {
        let seed = shop.run;
        (0..connections)
            .map(|connection| Shoppers {
                shop,
                mix,
                random: StdRng::seed_from_u64(seed ^ (connection << 32)),
                body: Vec::with_capacity(1024),
                asked: Kind::CartRead,
            })
            .collect()
    }

    /// What was asked last.
    pub fn asked(&self) -> Kind {
        self.asked
    }

    fn choose(&mut self) -> Kind {
        let total = self.mix.iter().map(|(_, share)| share).sum();
        let mut drawn = self.random.random_range(0..total);
        for (kind, share) in self.mix {
            if drawn < *share {
                return *kind;
            }
            drawn -= share;
        }
        unreachable!("the draw is below the sum of the shares")
    }

    /// Some are asked for far more often than others.
    fn skewed(&mut self, count: u64) -> u64 {
        zipf(self.random.random(), count)
    }

    fn uniform(&mut self, count: u64) -> u64 {
        self.random.random_range(0..count)
    }

    fn users(&self) -> u64 {
        self.shop.cart_ids.len() as u64
    }
}

impl Caller for Shoppers<'_> {
    fn next(&mut self, request: &mut Vec<u8>) -> bool {
        self.asked = self.choose();
        let shop = self.shop;
        let orders = shop.order_ids.len() as u64;
        let get =
            |request: &mut Vec<u8>, path: &str| write_request(request, "GET", path, &[], None);
        match self.asked {
            Kind::HotCartRead | Kind::CartRead => {
                let users = match self.asked {
                    Kind::HotCartRead => self.users().min(HOT_CARTS),
                    _ => self.users(),
                };
                let user = self.skewed(users);
                get(
                    request,
                    &format!("/v1/carts/active?user_id={}", user_id(user)),
                );
            }
            Kind::ProductRead => {
                let product = self.skewed(shop.products);
                get(request, &format!("/v1/products/{}", product_id(product)));
            }
            Kind::CategoryPage => {
                let path = format!("/v1/products?category={CATEGORY}&limit={CATEGORY_PAGE}");
                get(request, &path);
            }
            Kind::OrderRead => {
                let order = self.uniform(orders) as usize;
                get(request, &format!("/v1/orders/{}", shop.order_ids[order]));
            }
            Kind::History => {
                let user = user_id(order_user(self.uniform(orders), orders));
                get(
                    request,
                    &format!("/v1/users/{user}/orders?limit={HISTORY_PAGE}"),
                );
            }
            Kind::CartWrite => {
                let (user, product) = (self.skewed(self.users()), self.skewed(shop.products));
                let quantity = self.random.random_range(1..10);
                // A few products a cart, so that it stays as small as carts are.
                let product = (user + product % 3) % shop.products;
                shop.put_item(request, &shop.cart_ids[user as usize], product, quantity);
            }
            Kind::Order => {
                let user = self.uniform(self.users());
                let lines = OrderLines {
                    first_product: self.skewed(shop.products),
                    count: self.random.random_range(1..=3),
                };
                shop.post_order(request, &mut self.body, user, lines);
            }
        }
        true
    }

    fn answered(&mut self, response: &Response<'_>) -> Result<(), String> {
        expect(self.asked.name(), self.asked.expected(), response)
    }
}

pub fn expect(asked: &str, status: u16, response: &Response<'_>) -> Result<(), String> {
    if response.status == status {
        return Ok(());
    }
    let problem: Option<serde_json::Value> = serde_json::from_slice(response.body).ok();
    let code = problem
        .as_ref()
        .and_then(|problem| problem.get("type")?.as_str()?.rsplit('/').next())
        .unwrap_or("no problem document");
    Err(format!("{asked}: {} {code}, not {status}", response.status))
}

/// The rank drawn by a Zipf distribution of exponent 1 over `count`, at once: a logarithm that is evenly spread
/// falls below ln(k + 1) and above ln(k) with a chance that goes with 1/k. Ranks are scattered over the keys, so
/// that hot ones are no neighbours.
fn zipf(evenly: f64, count: u64) -> u64 {
    let rank = ((count + 1) as f64).powf(evenly) as u64 - 1;
    let rank = rank.min(count - 1);
    // Larger than any count and prime: no two ranks meet.
    (u128::from(rank) * 2_147_483_647 % u128::from(count)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hot_keys_get_the_share_that_zipf_gives_them() {
        let mut random = StdRng::seed_from_u64(7);
        let (count, draws) = (1000, 100_000);
        let mut hits = vec![0u64; count as usize];
        for _ in 0..draws {
            hits[zipf(random.random(), count) as usize] += 1;
        }
        hits.sort_unstable_by(|one, other| other.cmp(one));
        let share = |keys: usize| hits[..keys].iter().sum::<u64>() as f64 / draws as f64;
        assert!((0.08..0.12).contains(&share(1)), "{}", share(1));
        assert!((0.60..0.72).contains(&share(100)), "{}", share(100));
        assert_eq!(zipf(0.0, 1), 0);
        assert!(zipf(0.999_999_999, 10) < 10);
    }

    #[test]
    fn an_order_is_json_of_one_to_three_products() {
        let shop = Shop::empty(10, 1);
        let mut body = Vec::new();
        let lines = OrderLines {
            first_product: 9,
            count: 3,
        };
        shop.write_order(&mut body, 5, lines).unwrap();
        let order: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let products: Vec<_> = order["lines"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line["product_id"].as_str().unwrap())
            .collect();
        assert_eq!(products, ["PROD-00009", "PROD-00000", "PROD-00001"]);
    }
}
