//! Visitors: they use the shop's own operations, as a browser would, at several
//! processes, sometimes twice at once, and ask again when no answer came.

mod buying;
mod carts;
mod guests;
mod managing;

use std::future::Future;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use engine_api::{EngineError, Revision};
use model::{Cart, CartId, Order, OrderId, Product, ShopperSession, ShopperSessionId, UserId};
use router::RouterError;
use shop_service::{Listing, Login, Made, OrderWish, Placed, Shop, ShopError, Stored};
use tokio::time::sleep;

use crate::chance::Chance;
use crate::ledger::{Told, Wish};
use crate::recording::Recording;
use crate::scenery::{VISITORS_USERS, noun};
use crate::serving::Process;

/// Errands that one visitor runs, of a few requests each.
pub const ERRANDS_MAX: u64 = 7;
/// Where orders go to a history, visitors stay until they do.
const LINGERS_MS_MAX: u64 = 450;
const LINGERS_ERRANDS_MAX: u64 = 10;
/// Looks of somebody who watches the orders, and the time between two.
const WATCHES: u64 = 30;
const WATCHES_MS_MAX: u64 = 200;
const WATCHES_LISTS_PERCENT: u64 = 40;
/// How often a visitor asks at the process it is used to, in percent.
const AT_HOME_PERCENT: u64 = 70;

/// What all visitors share.
#[derive(Debug)]
pub struct Hall {
    pub processes: Vec<Arc<Process>>,
    pub recording: Recording,
    /// Guests that somebody was, orders that somebody was told of.
    pub guests: Mutex<Vec<ShopperSessionId>>,
    pub orders: Mutex<Vec<OrderId>>,
    /// Orders that came to somebody's door.
    pub received_orders: Mutex<Vec<OrderId>>,
    /// How orders were asked for.
    pub wishes: Mutex<Vec<OrderWish>>,
    /// Every item is put with another quantity, so that it names who put it.
    pub pieces: AtomicU32,
    pub keys: AtomicU64,
    /// Pieces of every product that ever arrived.
    pub received: AtomicU64,
    pub interest: Interest,
    /// How long they think before they ask.
    pub thinks_ms_max: u64,
}

/// What visitors mostly do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    Everything,
    /// Orders, and what becomes of them later.
    Orders,
}

#[derive(Debug)]
pub struct Visitor {
    number: usize,
    hall: Arc<Hall>,
    chance: Mutex<Chance>,
    /// The newest revision this visitor has seen (W5).
    seen: Arc<Mutex<Revision>>,
}

/// What the shop answers with.
pub trait Answer {
    fn told(&self) -> Told;

    fn revision(&self) -> Option<Revision>;
}

impl Visitor {
    pub fn new(number: usize, hall: Arc<Hall>, chance: Chance) -> Visitor {
        Visitor {
            number,
            hall,
            chance: Mutex::new(chance),
            seen: Arc::default(),
        }
    }

    pub async fn look_around(&self) {
        match self.hall.interest {
            Interest::Everything => self.look_at_everything().await,
            Interest::Orders => self.follow_orders().await,
        }
    }

    async fn follow_orders(&self) {
        for _ in 0..LINGERS_ERRANDS_MAX {
            let pause = self.chance().below(LINGERS_MS_MAX);
            sleep(Duration::from_millis(pause)).await;
            let errand = self.chance().below(100);
            match errand {
                0..=19 => self.buy().await,
                20..=49 => self.buy_and_receive().await,
                50..=64 => self.follow_order().await,
                65..=89 => self.return_order().await,
                _ => self.buy_again().await,
            }
        }
    }

    /// Looks at everybody's orders all the time, wherever they are just then.
    pub async fn watch(&self) {
        for _ in 0..WATCHES {
            let pause = self.chance().below(WATCHES_MS_MAX);
            sleep(Duration::from_millis(pause)).await;
            let known = locked(&self.hall.orders).clone();
            if known.is_empty() || self.percent(WATCHES_LISTS_PERCENT) {
                self.list_orders(&self.user()).await;
            } else {
                let order = self.chance().pick(&known).clone();
                self.read_order(order).await;
            }
        }
    }

    /// Every order that anybody was told of, by id and in its user's list.
    pub async fn look_back(&self) {
        let known = locked(&self.hall.orders).clone();
        for order in known {
            self.read_order(order).await;
        }
        for user in VISITORS_USERS {
            self.list_orders(&noun(user)).await;
        }
    }

    async fn look_at_everything(&self) {
        for _ in 0..ERRANDS_MAX {
            let pause = self.chance().below(self.hall.thinks_ms_max);
            sleep(Duration::from_millis(pause)).await;
            let errand = self.chance().below(100);
            match errand {
                0..=21 => self.fill_cart().await,
                22..=55 => self.buy().await,
                56..=67 => self.follow_order().await,
                68..=92 => self.come_as_guest().await,
                _ => self.manage().await,
            }
        }
    }

    /// Asks the shop, and notes what was told. `None`: no answer, or none that
    /// helps.
    async fn ask<T, F>(
        &self,
        wish: Wish,
        request: impl FnOnce(Arc<Shop>, Revision) -> F,
    ) -> Option<Result<T, ShopError>>
    where
        T: Answer + Send + 'static,
        F: Future<Output = Result<T, ShopError>> + Send + 'static,
    {
        self.ask_at(self.process(), wish, request).await
    }

    async fn ask_at<T, F>(
        &self,
        process: Arc<Process>,
        wish: Wish,
        request: impl FnOnce(Arc<Shop>, Revision) -> F,
    ) -> Option<Result<T, ShopError>>
    where
        T: Answer + Send + 'static,
        F: Future<Output = Result<T, ShopError>> + Send + 'static,
    {
        let (recording, seen) = (self.hall.recording.clone(), Arc::clone(&self.seen));
        let visitor = self.number;
        let request = |shop: Arc<Shop>| {
            let entry = recording.begin(visitor, wish);
            let asked = request(shop, *locked(&seen));
            async move {
                let answer = asked.await;
                let told = match &answer {
                    Ok(answer) => {
                        let revision = answer.revision().unwrap_or_default();
                        let mut seen = locked(&seen);
                        *seen = revision.max(*seen);
                        answer.told()
                    }
                    Err(error) => {
                        report_if_impossible(&recording, error);
                        told_of(error)
                    }
                };
                recording.tell(entry, told);
                answer
            }
        };
        process.ask(request).await
    }

    fn process(&self) -> Arc<Process> {
        let processes = &self.hall.processes;
        let mut chance = self.chance();
        if chance.percent(AT_HOME_PERCENT) {
            return Arc::clone(&processes[self.number % processes.len()]);
        }
        Arc::clone(chance.pick(processes))
    }

    fn chance(&self) -> MutexGuard<'_, Chance> {
        locked(&self.chance)
    }

    fn percent(&self, percent: u64) -> bool {
        self.chance().percent(percent)
    }

    fn user(&self) -> UserId {
        noun(self.chance().pick::<&str>(&VISITORS_USERS))
    }

    fn new_pieces(&self) -> u32 {
        self.hall.pieces.fetch_add(1, Ordering::Relaxed) + 1
    }
}

pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .expect("no code panics while it holds the lock")
}

/// A request of several steps may have got through with some of them before the
/// store refused another: only the shop's own words are a refusal.
fn told_of(error: &ShopError) -> Told {
    match error {
        ShopError::Store(_) | ShopError::Contended | ShopError::Damaged { .. } => Told::Unknown {
            why: error.to_string(),
        },
        why => Told::Refused { why: why.clone() },
    }
}

/// Visitors ask nothing malformed, and nothing here breaks by itself: some
/// errors can only mean that a rule did not hold.
fn report_if_impossible(recording: &Recording, error: &ShopError) {
    let impossible = match error {
        ShopError::Store(RouterError::Engine { source, .. }) => !matches!(
            source,
            EngineError::Unavailable { .. } | EngineError::OutcomeUnknown { .. }
        ),
        ShopError::Damaged { .. } | ShopError::CartFull(_) | ShopError::BadOrder(_) => true,
        _ => false,
    };
    if impossible {
        recording.breach(format!("a visitor was told: {error}"));
    }
}

impl Answer for (Made, Stored<Cart>) {
    fn told(&self) -> Told {
        Told::Cart {
            made: Some(self.0),
            cart: self.1.value.clone(),
        }
    }

    fn revision(&self) -> Option<Revision> {
        Some(self.1.revision)
    }
}

impl Answer for Stored<Cart> {
    fn told(&self) -> Told {
        Told::Cart {
            made: None,
            cart: self.value.clone(),
        }
    }

    fn revision(&self) -> Option<Revision> {
        Some(self.revision)
    }
}

impl Answer for Placed {
    fn told(&self) -> Told {
        Told::Order {
            made: Some(self.made),
            order: self.order.value.clone(),
        }
    }

    fn revision(&self) -> Option<Revision> {
        Some(self.order.revision)
    }
}

impl Answer for Stored<Order> {
    fn told(&self) -> Told {
        Told::Order {
            made: None,
            order: self.value.clone(),
        }
    }

    fn revision(&self) -> Option<Revision> {
        Some(self.revision)
    }
}

impl Answer for Listing<Order> {
    fn told(&self) -> Told {
        let orders = self.items.iter().map(|order| order.value.clone());
        Told::Orders {
            orders: orders.collect(),
        }
    }

    fn revision(&self) -> Option<Revision> {
        self.items.iter().map(|order| order.revision).max()
    }
}

impl Answer for Stored<ShopperSession> {
    fn told(&self) -> Told {
        Told::Session {
            session: self.value.id().clone(),
        }
    }

    fn revision(&self) -> Option<Revision> {
        Some(self.revision)
    }
}

impl Answer for Login {
    fn told(&self) -> Told {
        Told::Merged {
            end: self.merge.end.clone(),
        }
    }

    fn revision(&self) -> Option<Revision> {
        let cart = self.merge.cart.as_ref().map(|cart| cart.revision);
        cart.max(Some(self.session.revision))
    }
}

impl Answer for (Made, Stored<Product>) {
    fn told(&self) -> Told {
        Told::Done
    }

    fn revision(&self) -> Option<Revision> {
        Some(self.1.revision)
    }
}

impl Answer for Stored<Product> {
    fn told(&self) -> Told {
        Told::Product {
            product: self.value.clone(),
        }
    }

    fn revision(&self) -> Option<Revision> {
        Some(self.revision)
    }
}

/// A product's page. Stock is numbered with every sale: a visitor that kept the number
/// would send each later change above all of them, and no clock would matter any more.
pub(super) struct Page(pub(super) Stored<Product>);

impl Answer for Page {
    fn told(&self) -> Told {
        self.0.told()
    }

    fn revision(&self) -> Option<Revision> {
        None
    }
}

impl Answer for Revision {
    fn told(&self) -> Told {
        Told::Done
    }

    fn revision(&self) -> Option<Revision> {
        Some(*self)
    }
}

/// The id of the cart that was told of.
fn cart_of(answer: &Option<Result<(Made, Stored<Cart>), ShopError>>) -> Option<CartId> {
    match answer {
        Some(Ok((_, cart))) => Some(cart.value.id().clone()),
        _ => None,
    }
}
