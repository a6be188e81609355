//! The load: shoppers who change carts and order, each on a thread of its own, and write down what they are told.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::ledger::{Event, Pen};
use super::shop::{OwnShop, Web};

/// Each shopper does this much for several users, so that its carts lie in many slots.
const USERS_PER_SHOPPER: u32 = 16;
/// What a line can hold; then the cart is left alone.
const QUANTITY_MAX: u32 = 10_000;
/// Every so many changes of carts, an order and a look back.
const ORDER_EVERY: u32 = 4;
const LOOK_EVERY: u32 = 7;
/// A shopper thinks; without that the machine would be measured and nothing else.
const THINKING: Duration = Duration::from_millis(2);

/// What the requests of one look took.
#[derive(Debug, Default)]
pub struct Took {
    micros: Mutex<Vec<u32>>,
}

/// Figures of the last moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub per_s: u64,
    pub p99_ms: f64,
}

#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    pub acknowledged: Arc<AtomicU64>,
    took: Arc<Took>,
    shoppers: Vec<JoinHandle<Result<()>>>,
    began: Instant,
}

/// What the whole load came to.
#[derive(Debug)]
pub struct Told {
    acknowledged: u64,
    seconds: u64,
}

struct Shopper {
    web: Web,
    pen: Pen,
    /// Each with the quantity that was last acknowledged.
    carts: Vec<(String, String, u32)>,
    number: u32,
    orders: u32,
    acknowledged: Arc<AtomicU64>,
    took: Arc<Took>,
}

impl Load {
    pub fn start(shop: &OwnShop, folder: &Path, shoppers: u32) -> Result<Load> {
        let mut load = Load {
            stop: Arc::default(),
            acknowledged: Arc::default(),
            took: Arc::default(),
            shoppers: Vec::new(),
            began: Instant::now(),
        };
        for number in 0..shoppers {
            let shopper = Shopper {
                web: shop.web.clone(),
                pen: Pen::of_shopper(folder, number)?,
                carts: Vec::new(),
                number,
                orders: 0,
                acknowledged: load.acknowledged.clone(),
                took: load.took.clone(),
            };
            let stop = load.stop.clone();
            let running = thread::Builder::new()
                .name(format!("shopper-{number}"))
                .spawn(move || shopper.shop(&stop))?;
            load.shoppers.push(running);
        }
        Ok(load)
    }

    /// Since the last time that somebody asked.
    pub fn figures(&self, passed: Duration) -> Figures {
        self.took.figures(passed)
    }

    /// Whether a shopper has given up; `stop` says why.
    pub fn is_broken(&self) -> bool {
        self.shoppers.iter().any(JoinHandle::is_finished)
    }

    /// Every shopper finishes what it is at.
    pub fn stop(self) -> Result<Told> {
        self.stop.store(true, Ordering::Relaxed);
        for shopper in self.shoppers {
            let ended = shopper.join();
            ended.map_err(|_| anyhow!("a shopper failed: see the lines above"))??;
        }
        Ok(Told {
            acknowledged: self.acknowledged.load(Ordering::Relaxed),
            seconds: self.began.elapsed().as_secs(),
        })
    }
}

impl Shopper {
    fn shop(mut self, stop: &AtomicBool) -> Result<()> {
        for user in 0..USERS_PER_SHOPPER {
            let user = format!("demo-{}-{user}", self.number);
            let cart = self.web.new_cart(&user)?;
            self.carts.push((user, cart, 0));
        }
        let mut step = 0u32;
        while !stop.load(Ordering::Relaxed) {
            step = step.wrapping_add(1);
            let index = step as usize % self.carts.len();
            self.change_cart(index)?;
            if step.is_multiple_of(ORDER_EVERY) {
                self.order()?;
            }
            if step.is_multiple_of(LOOK_EVERY) {
                self.look_back(index)?;
            }
            thread::sleep(THINKING);
        }
        Ok(())
    }

    fn change_cart(&mut self, index: usize) -> Result<()> {
        let (_, cart, told) = &mut self.carts[index];
        let quantity = *told + 1;
        if quantity > QUANTITY_MAX {
            return Ok(());
        }
        let cart_id = || cart.clone();
        let sent = Event::CartSent {
            cart: cart_id(),
            quantity,
        };
        self.pen.note(&sent)?;
        let began = Instant::now();
        self.web.set_cart(cart, quantity)?;
        self.took.note(began.elapsed());
        let acknowledged = Event::CartAcknowledged {
            cart: cart_id(),
            quantity,
        };
        self.pen.note_synced(&acknowledged)?;
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
        *told = quantity;
        Ok(())
    }

    fn order(&mut self) -> Result<()> {
        self.orders += 1;
        let index = self.orders as usize % self.carts.len();
        let key = format!("demo-{}-{}", self.number, self.orders);
        let (user, quantity) = (self.carts[index].0.clone(), self.orders % 5 + 1);
        self.pen.note(&Event::OrderSent {
            key: key.clone(),
            user: user.clone(),
            quantity,
        })?;
        let began = Instant::now();
        let order = self.web.place(&key, &user, quantity)?;
        self.took.note(began.elapsed());
        self.pen
            .note_synced(&Event::OrderAcknowledged { key, order })?;
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Nobody else changes this cart: it shows what was acknowledged last.
    fn look_back(&mut self, index: usize) -> Result<()> {
        let (_, cart, told) = &self.carts[index];
        let began = Instant::now();
        let shown = self.web.cart(cart)?.unwrap_or(0);
        self.took.note(began.elapsed());
        if shown < *told {
            let (cart, told) = (cart.clone(), *told);
            self.pen
                .note_synced(&Event::ShownOlder { cart, told, shown })?;
        }
        Ok(())
    }
}

impl Took {
    fn note(&self, took: Duration) {
        let micros = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        let held = self.micros.lock();
        held.expect("no code panics while it holds the lock")
            .push(micros);
    }

    fn figures(&self, passed: Duration) -> Figures {
        let held = self.micros.lock();
        let mut micros =
            std::mem::take(&mut *held.expect("no code panics while it holds the lock"));
        micros.sort_unstable();
        let count = micros.len();
        let p99 = micros.get((count * 99 / 100).min(count.saturating_sub(1)));
        let passed_ms = passed.as_millis().max(1);
        Figures {
            per_s: u64::try_from(count as u128 * 1_000 / passed_ms).unwrap_or(u64::MAX),
            p99_ms: p99.map_or(0.0, |micros| f64::from(*micros) / 1_000.0),
        }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Told {
            acknowledged,
            seconds,
        } = self;
        write!(f, "{seconds} s with {acknowledged} acknowledged changes")
    }
}
