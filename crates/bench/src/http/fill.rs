//! Fills an empty shop over HTTP: products, carts, orders. Nothing unexpected may be answered.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::bail;
use judge::http::Response;
use serde::Deserialize;

use super::load::{self, Caller};
use super::progress::Progress;
use super::shop::{OrderLines, Shop, expect, order_user};

/// More than are measured with: filling has no answers to wait for in a hurry.
const CONNECTIONS: usize = 256;
/// A connection that is refused so often meets more than a shop with too much to do.
const REFUSALS_IN_A_ROW_MAX: u32 = 10_000;
const LOOK: Duration = Duration::from_millis(200);

/// One kind of thing to make so many of, in one or two requests each.
trait Making: Sync {
    fn request(&self, number: u64, step: Step, made: Option<&str>, out: &mut Vec<u8>);
    /// The id in the answer, if it is worth keeping.
    fn judge(&self, step: Step, response: &Response<'_>) -> Result<Option<Box<str>>, String>;
    fn steps(&self) -> u8;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    First,
    Second,
}

pub fn products(address: SocketAddr, shop: &Shop) -> anyhow::Result<()> {
    make(address, "products", shop.products, &Products(shop))?;
    Ok(())
}

/// Returns the id of each user's cart.
pub fn carts(address: SocketAddr, shop: &Shop, users: u64) -> anyhow::Result<Vec<Box<str>>> {
    make(address, "carts", users, &Carts(shop))
}

pub fn orders(address: SocketAddr, shop: &Shop, orders: u64) -> anyhow::Result<Vec<Box<str>>> {
    make(address, "orders", orders, &Orders { shop, orders })
}

struct Products<'a>(&'a Shop);

impl Making for Products<'_> {
    fn request(&self, number: u64, step: Step, _: Option<&str>, out: &mut Vec<u8>) {
        match step {
            Step::First => self.0.put_product(out, number),
            Step::Second => self.0.put_stock(out, number),
        }
    }

    fn judge(&self, step: Step, response: &Response<'_>) -> Result<Option<Box<str>>, String> {
        // Put again on a shop that was filled before: 200.
        if response.status != 200 {
            let status = if step == Step::First { 201 } else { 200 };
            expect("PUT product", status, response)?;
        }
        Ok(None)
    }

    fn steps(&self) -> u8 {
        2
    }
}

struct Carts<'a>(&'a Shop);

#[derive(Deserialize)]
struct CartId {
    cart_id: Box<str>,
}

impl Making for Carts<'_> {
    fn request(&self, number: u64, step: Step, made: Option<&str>, out: &mut Vec<u8>) {
        match (step, made) {
            (Step::Second, Some(cart_id)) => {
                self.0.put_item(out, cart_id, number % self.0.products, 1);
            }
            _ => self.0.post_cart(out, number),
        }
    }

    fn judge(&self, step: Step, response: &Response<'_>) -> Result<Option<Box<str>>, String> {
        if response.status != 200 {
            let status = if step == Step::First { 201 } else { 200 };
            expect("cart", status, response)?;
        }
        let cart: CartId = parse("cart", response)?;
        Ok(Some(cart.cart_id))
    }

    fn steps(&self) -> u8 {
        2
    }
}

struct Orders<'a> {
    shop: &'a Shop,
    orders: u64,
}

#[derive(Deserialize)]
struct OrderId {
    order_id: Box<str>,
}

impl Making for Orders<'_> {
    fn request(&self, number: u64, _: Step, _: Option<&str>, out: &mut Vec<u8>) {
        let lines = OrderLines {
            first_product: number % self.shop.products,
            count: number % 3 + 1,
        };
        let user = order_user(number, self.orders);
        self.shop.post_order(out, &mut Vec::new(), user, lines);
    }

    fn judge(&self, _: Step, response: &Response<'_>) -> Result<Option<Box<str>>, String> {
        expect("POST order", 201, response)?;
        let order: OrderId = parse("order", response)?;
        Ok(Some(order.order_id))
    }

    fn steps(&self) -> u8 {
        1
    }
}

fn parse<'a, T: Deserialize<'a>>(what: &str, response: &Response<'a>) -> Result<T, String> {
    serde_json::from_slice(response.body).map_err(|error| format!("the {what} has no id: {error}"))
}

struct Filler<'a, M> {
    making: &'a M,
    next: &'a AtomicU64,
    total: u64,
    current: u64,
    step: Option<Step>,
    refusals: u32,
    ids: Vec<(u64, Box<str>)>,
}

impl<M: Making> Caller for Filler<'_, M> {
    fn next(&mut self, request: &mut Vec<u8>) -> bool {
        let step = match self.step {
            Some(step) => step,
            None => {
                self.current = self.next.fetch_add(1, Ordering::Relaxed);
                if self.current >= self.total {
                    return false;
                }
                Step::First
            }
        };
        let made = self.ids.last().map(|(_, id)| &**id);
        self.making.request(self.current, step, made, request);
        self.step = Some(step);
        true
    }

    fn answered(&mut self, response: &Response<'_>) -> Result<(), String> {
        // A shop that defends itself is asked again: filling has no hurry.
        if response.status == 503 && self.refusals < REFUSALS_IN_A_ROW_MAX {
            self.refusals += 1;
            return Ok(());
        }
        self.refusals = 0;
        let step = self.step.take().unwrap_or(Step::First);
        let id = self.making.judge(step, response)?;
        if step == Step::First {
            self.ids.extend(id.map(|id| (self.current, id)));
            self.step = (self.making.steps() > 1).then_some(Step::Second);
        }
        Ok(())
    }
}

fn make<M: Making>(
    address: SocketAddr,
    what: &'static str,
    total: u64,
    making: &M,
) -> anyhow::Result<Vec<Box<str>>> {
    let next = AtomicU64::new(0);
    let fillers = (0..CONNECTIONS)
        .map(|_| Filler {
            making,
            next: &next,
            total,
            current: 0,
            step: None,
            refusals: 0,
            ids: Vec::new(),
        })
        .collect();
    let (tally, fillers) = std::thread::scope(|scope| {
        let filling = scope.spawn(|| load::closed(address, fillers, None));
        let mut progress = Progress::begin(what, total);
        while !filling.is_finished() {
            std::thread::sleep(LOOK);
            progress.reach(next.load(Ordering::Relaxed).min(total));
        }
        progress.finish();
        filling
            .join()
            .unwrap_or_else(|_| bail!("the filling has panicked"))
    })?;
    if let Some((unexpected, count)) = tally.unexpected.first_key_value() {
        bail!("{what} cannot be filled: {unexpected} ({count} times)");
    }
    let mut ids: Vec<_> = fillers.into_iter().flat_map(|filler| filler.ids).collect();
    ids.sort_unstable_by_key(|(number, _)| *number);
    Ok(ids.into_iter().map(|(_, id)| id).collect())
}
