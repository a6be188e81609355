//! The round of the shelves: pieces sold and reserved, against the lines of the orders.
//!
//! Two sides that shoppers change all the time cannot be compared at one moment. They
//! need not be: as long as a shelf's own record stays as it is, no order takes from it or
//! gives back, and each order may be read at any moment of that time. So the stock is
//! read, then all orders, then the stock again:
//!
//! ```text
//!   stock ─▶ live orders ─▶ history ─▶ stock again    unchanged, and still not the same?
//!     ▲                                   │           then it is a problem
//!     └──── only those that differ ◀──────┘ changed: once more
//! ```
//!
//! An order with steps still to be done may hold its pieces or not; it is counted both
//! ways, as the least and the most that the orders can account for.

use std::collections::{BTreeMap, BTreeSet};

use engine_api::{EngineError, Record, Revision, Scan, ScanPosition, stock_of};
use layout::{Collection, PartKind, Scope};
use model::{OrderId, OrderStatus, ProductId, ZoneName};
use router::{RouterError, SurveyPlace};

use super::care::{Problem, ShelfSum};
use super::report::Kind;
use super::{Place, Reconciler};
use crate::error::ShopError;
use crate::history::OrderHistory;
use crate::orders::Current;
use crate::records::{Settlement, order_of};

/// How often shelves that changed while they were counted are counted again.
const RECOUNTS_MAX: u32 = 3;

/// Orders that a recount tells apart, so that one that went to the history while it was
/// counted does not count twice.
const ORDERS_REMEMBERED_MAX: usize = 500_000;

type ShelfKey = (ProductId, ZoneName);

/// A count under way.
#[derive(Debug)]
pub(super) struct Counting {
    phase: Phase,
    shelves: BTreeMap<ShelfKey, Shelf>,
    /// The products after those of these shelves.
    next: Option<Place>,
    round: Count,
}

#[derive(Clone, Debug)]
enum Phase {
    Stock { from: Place },
    Orders { from: Option<SurveyPlace> },
    History { after: Option<ScanPosition> },
    Judging,
}

#[derive(Debug)]
enum Count {
    /// Of everything; what differs here is only suspected.
    First,
    /// Of what differed, each order once.
    Again {
        recounts: u32,
        counted: BTreeSet<OrderId>,
    },
}

#[derive(Clone, Debug)]
struct Shelf {
    product: engine_api::RecordKey,
    /// Of its stock parts, as they were before the orders were read.
    revisions: Vec<Revision>,
    held: u64,
    least: u64,
    most: u64,
}

impl Shelf {
    fn agrees(&self) -> bool {
        (self.least..=self.most).contains(&self.held)
    }
}

impl Counting {
    fn begin(place: &Place) -> Counting {
        Counting {
            phase: Phase::Stock {
                from: place.clone(),
            },
            shelves: BTreeMap::new(),
            next: None,
            round: Count::First,
        }
    }

    /// Adds what the order takes from these shelves.
    fn count(&mut self, order: &Current) {
        let kept = &order.kept;
        let Some(request) = kept.order.request() else {
            return;
        };
        let zone = request.geo_zone();
        for line in kept.order.lines() {
            let key = (line.product.clone(), zone.clone());
            let Some(shelf) = self.shelves.get_mut(&key) else {
                continue;
            };
            let (least, most) = holds(kept.settlement, order.status());
            shelf.least += line.quantity.pieces() * least;
            shelf.most += line.quantity.pieces() * most;
        }
    }

    /// Whether the order is met for the first time, as far as that is told apart.
    fn is_new(&mut self, order: &OrderId) -> bool {
        match &mut self.round {
            Count::First => true,
            Count::Again { counted, .. } => counted.insert(order.clone()),
        }
    }

    fn is_too_large(&self) -> bool {
        match &self.round {
            Count::First => false,
            Count::Again { counted, .. } => counted.len() > ORDERS_REMEMBERED_MAX,
        }
    }
}

/// How many times its pieces an order can hold, at the least and at the most.
fn holds(settlement: Settlement, status: OrderStatus) -> (u64, u64) {
    match (status, settlement) {
        (
            OrderStatus::Created
            | OrderStatus::Paid
            | OrderStatus::Shipped
            | OrderStatus::Delivered,
            Settlement::Open | Settlement::Settled,
        ) => (1, 1),
        (OrderStatus::Pending, Settlement::Open | Settlement::Settled)
        | (
            OrderStatus::Cancelled | OrderStatus::Returned | OrderStatus::Aborted,
            Settlement::Open,
        ) => (0, 1),
        (
            OrderStatus::Cancelled | OrderStatus::Returned | OrderStatus::Aborted,
            Settlement::Settled,
        ) => (0, 0),
    }
}

impl Reconciler<'_> {
    /// The place stays where the shelves under count begin until they are judged.
    pub(super) async fn shelves(&mut self, place: &Place) -> Result<Option<Place>, ShopError> {
        let mut counting = self
            .counting
            .take()
            .unwrap_or_else(|| Counting::begin(place));
        let after = match counting.phase.clone() {
            Phase::Stock { from } => self.count_stock(&mut counting, from).await?,
            Phase::Orders { from } => self.count_orders(&mut counting, from).await?,
            Phase::History { after } => self.count_history(&mut counting, after).await?,
            Phase::Judging => match self.judge(&mut counting).await? {
                Some(phase) => phase,
                None => return Ok(counting.next),
            },
        };
        if counting.is_too_large() {
            self.report.unjudged(Kind::Shelf, counting.shelves.len());
            return Ok(counting.next);
        }
        counting.phase = after;
        self.counting = Some(counting);
        Ok(Some(place.clone()))
    }

    async fn count_stock(
        &mut self,
        counting: &mut Counting,
        from: Place,
    ) -> Result<Phase, ShopError> {
        let (images, next) = self.survey(Collection::Products, &from).await?;
        self.report.read(images.len());
        for image in images {
            if image.live_at(self.shop.now()).is_some() {
                counting.shelves.extend(shelves_of(&image));
            }
        }
        Ok(match next {
            Some(from) if counting.shelves.len() < self.limits.shelves_at_once => {
                Phase::Stock { from }
            }
            next => {
                counting.next = next;
                Phase::Orders { from: None }
            }
        })
    }

    async fn count_orders(
        &mut self,
        counting: &mut Counting,
        from: Option<SurveyPlace>,
    ) -> Result<Phase, ShopError> {
        let limit = self.limits.page_records;
        let page = self
            .shop
            .router
            .survey(Collection::Orders, from.as_ref(), limit);
        let page = page.await?;
        self.count_all(counting, &page.images);
        Ok(match (page.next, self.shop.history()) {
            (Some(next), _) => Phase::Orders { from: Some(next) },
            (None, Some(_)) => Phase::History { after: None },
            (None, None) => Phase::Judging,
        })
    }

    async fn count_history(
        &mut self,
        counting: &mut Counting,
        after: Option<ScanPosition>,
    ) -> Result<Phase, ShopError> {
        let Some(history) = self.shop.history() else {
            return Ok(Phase::Judging);
        };
        let scan = Scan {
            collection: Collection::Orders,
            scope: Scope::All,
            after,
            until: None,
            limit: self.limits.page_records,
        };
        let page = history.engine().scan(&scan).await;
        let page = page.map_err(of_history(history))?;
        self.count_all(counting, &page.images);
        Ok(match page.next {
            Some(next) => Phase::History { after: Some(next) },
            None => Phase::Judging,
        })
    }

    fn count_all(&mut self, counting: &mut Counting, images: &[Record]) {
        self.report.read(images.len());
        for image in images {
            if image.live_at(self.shop.now()).is_none() {
                continue;
            }
            // One that cannot be read was told of in the round of the orders.
            let Ok(kept) = order_of(image) else { continue };
            if counting.is_new(&kept.order.header().id) {
                counting.count(&Current {
                    kept,
                    revision: image.header.revision,
                });
            }
        }
    }

    /// Tells what differs for sure. `Some`: the rest is counted again.
    async fn judge(&mut self, counting: &mut Counting) -> Result<Option<Phase>, ShopError> {
        if let Count::First = counting.round {
            self.report.look(Kind::Shelf, counting.shelves.len());
        }
        let mut again = BTreeMap::new();
        for (key, shelf) in std::mem::take(&mut counting.shelves) {
            if shelf.agrees() {
                continue;
            }
            let Some(now) = self.shelf_now(&key, &shelf).await? else {
                continue;
            };
            match &counting.round {
                Count::Again { .. } if now.revisions == shelf.revisions => {
                    let (product, zone) = key;
                    let sum = ShelfSum {
                        product,
                        zone,
                        held: shelf.held,
                        least: shelf.least,
                        most: shelf.most,
                    };
                    self.take_care(Problem::Shelf(sum)).await;
                }
                Count::First | Count::Again { .. } => {
                    again.insert(key, now);
                }
            }
        }
        let recounts = match &counting.round {
            Count::First => 0,
            Count::Again { recounts, .. } => *recounts,
        };
        if again.is_empty() {
            return Ok(None);
        }
        if recounts >= RECOUNTS_MAX {
            self.report.unjudged(Kind::Shelf, again.len());
            return Ok(None);
        }
        counting.shelves = again;
        counting.round = Count::Again {
            recounts: recounts + 1,
            counted: BTreeSet::new(),
        };
        Ok(Some(Phase::Orders { from: None }))
    }

    async fn shelf_now(
        &self,
        (_, zone): &ShelfKey,
        shelf: &Shelf,
    ) -> Result<Option<Shelf>, ShopError> {
        let product = self.shop.router.get(&shelf.product).await?;
        let of_zone = |product: &Record| {
            let mut shelves = shelves_of(product).into_iter();
            shelves.find(|((_, other), _)| other == zone)
        };
        let found = product.as_ref().and_then(|product| of_zone(product));
        Ok(found.map(|(_, shelf)| shelf))
    }
}

/// The zones of a product whose stock can be read; those that cannot were told of before.
fn shelves_of(product: &Record) -> BTreeMap<ShelfKey, Shelf> {
    let mut shelves: BTreeMap<ShelfKey, Shelf> = BTreeMap::new();
    let Ok(id) = product.key.id.as_str().parse::<ProductId>() else {
        return shelves;
    };
    for (part, fields) in product.live_parts() {
        let (PartKind::Stock, [zone, _]) = (part.kind(), part.path()) else {
            continue;
        };
        let (Ok(zone), Ok(stock)) = (zone.parse::<ZoneName>(), stock_of(fields)) else {
            continue;
        };
        let shelf = shelves.entry((id.clone(), zone)).or_insert_with(|| Shelf {
            product: product.key.clone(),
            revisions: Vec::new(),
            held: 0,
            least: 0,
            most: 0,
        });
        let counts = stock.counts();
        shelf.held += counts.reserved + counts.sold;
        let revision = product.parts.get(part).map(|part| part.revision);
        shelf.revisions.extend(revision);
    }
    shelves
}

fn of_history(history: &OrderHistory) -> impl FnOnce(EngineError) -> ShopError + '_ {
    move |source| {
        ShopError::Store(RouterError::Engine {
            shard: history.shard().clone(),
            source,
        })
    }
}
