//! `bench overload`: a shop that is asked three times what it can answer.
//!
//! First the capacity: as many requests of the mix as are answered, closed loop. Then
//! three times that on schedule, whether or not answers come. What counts is the
//! goodput of checkout: orders placed within the time that a shopper waits. Both are
//! taken in one run, in turn, because the machine has other things to do as well.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use judge::http::{Connection, Response, write_request};
use judge::server::{ServerProcess, serve_command};

use super::load::{self, Caller};
use super::shop::{Kind, Mix, Shop, Shoppers};
use super::{PRODUCTS, caravan_beside, fill};
use crate::report::{Finding, Goal, median};

const TIMES: u64 = 3;
const GOODPUT_LEAST: f64 = 0.8;
/// Of three requests the shop can answer one; most of what it refuses is to be browsing.
const BROWSING_REFUSED_LEAST: f64 = 0.5;
/// A shopper who waits longer is gone.
const PATIENCE: Duration = Duration::from_secs(2);
/// Enough to keep the cores busy without a queue of any length.
const CLOSED_CONNECTIONS: u64 = 16;
/// What may be refused while the capacity is measured: a hiccup of the machine.
const REFUSED_SHARE_MAX: f64 = 0.02;
/// Enough that refused shoppers do not keep others from asking.
const OPEN_CONNECTIONS: u64 = 1_024;
/// After this the shop has settled on whom to refuse.
const SETTLING: Duration = Duration::from_secs(3);
/// How long the shop may take to let everybody in again.
const CALM_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// Most look, some fill a cart, a few buy.
const MIX: Mix = &[
    (Kind::CategoryPage, 60),
    (Kind::CartRead, 15),
    (Kind::CartWrite, 10),
    (Kind::Order, 15),
];

#[derive(Clone, Copy, Debug)]
pub struct Size {
    users: u64,
    rounds: usize,
    closed: Duration,
    open: Duration,
}

pub const FULL: Size = Size {
    users: 20_000,
    rounds: 3,
    closed: Duration::from_secs(5),
    open: Duration::from_secs(10),
};
pub const QUICK: Size = Size {
    users: 1_000,
    rounds: 1,
    closed: Duration::from_secs(3),
    open: Duration::from_secs(5),
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Browsing,
    Carts,
    Checkout,
}

impl Class {
    const ALL: [Class; 3] = [Class::Browsing, Class::Carts, Class::Checkout];

    fn of(kind: Kind) -> Class {
        match kind {
            Kind::ProductRead | Kind::CategoryPage | Kind::History => Class::Browsing,
            Kind::HotCartRead | Kind::CartRead | Kind::CartWrite => Class::Carts,
            Kind::OrderRead | Kind::Order => Class::Checkout,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Class::Browsing => "browsing",
            Class::Carts => "carts",
            Class::Checkout => "checkout",
        }
    }
}

/// What became of the requests, by class.
#[derive(Debug, Default)]
struct Outcomes([Outcome; Class::ALL.len()]);

#[derive(Debug, Default)]
struct Outcome {
    answered: AtomicU64,
    /// Of those, as wished and in time.
    good: AtomicU64,
    /// Of those, refused because too much was asked.
    refused: AtomicU64,
}

impl Outcomes {
    fn count(&self, kind: Kind, judged: &Result<(), String>, status: u16, waited: Duration) {
        let outcome = &self.0[Class::of(kind) as usize];
        let add = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        add(&outcome.answered);
        if judged.is_ok() && waited <= PATIENCE {
            add(&outcome.good);
        }
        if status == 503 {
            add(&outcome.refused);
        }
    }

    fn good(&self, class: Class) -> f64 {
        self.0[class as usize].good.load(Ordering::Relaxed) as f64
    }

    fn refused_share(&self, class: Class) -> f64 {
        let outcome = &self.0[class as usize];
        let answered = outcome.answered.load(Ordering::Relaxed).max(1);
        outcome.refused.load(Ordering::Relaxed) as f64 / answered as f64
    }
}

struct Counted<'a> {
    shoppers: Shoppers<'a>,
    outcomes: &'a Outcomes,
    first: First,
}

/// What the first request of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Counts,
    /// Sent before the schedule begins.
    WarmsUp,
}

impl<'a> Counted<'a> {
    fn on_connections(
        shop: &'a Shop,
        outcomes: &'a Outcomes,
        connections: u64,
        first: First,
    ) -> Vec<Self> {
        let shoppers = Shoppers::on_connections(shop, MIX, connections).into_iter();
        let counted = |shoppers| Counted {
            shoppers,
            outcomes,
            first,
        };
        shoppers.map(counted).collect()
    }
}

impl Caller for Counted<'_> {
    fn next(&mut self, request: &mut Vec<u8>) -> bool {
        self.shoppers.next(request)
    }

    fn answered(&mut self, response: &Response<'_>) -> Result<(), String> {
        self.shoppers.answered(response)
    }

    fn answered_after(&mut self, response: &Response<'_>, waited: Duration) -> Result<(), String> {
        let judged = self.answered(response);
        match std::mem::replace(&mut self.first, First::Counts) {
            First::WarmsUp => {}
            First::Counts => {
                let kind = self.shoppers.asked();
                self.outcomes.count(kind, &judged, response.status, waited);
            }
        }
        judged
    }
}

/// One round: the capacity, and what is left of it when three times as much is asked.
#[derive(Debug)]
struct Round {
    capacity: f64,
    peak: f64,
    goodput: f64,
    refused: [f64; Class::ALL.len()],
    p99_ms: f64,
}

pub fn run(size: Size, binary: Option<&Path>) -> anyhow::Result<Vec<Finding>> {
    let binary = binary.map_or_else(caravan_beside, |binary| Ok(binary.to_owned()))?;
    let folder = tempfile::tempdir_in(".").context("no room for the benchmark's data here")?;
    let server = ServerProcess::start(serve_command(&binary, &folder.path().join("shop")))?;
    let mut shop = Shop::empty(PRODUCTS, judge::together::run_number());
    fill::products(server.address(), &shop)?;
    shop.cart_ids = fill::carts(server.address(), &shop, size.users)?;
    let mut rounds = Vec::new();
    for number in 1..=size.rounds {
        eprintln!(
            "round {number} of {}: capacity, then {TIMES} times that",
            size.rounds
        );
        rounds.push(round(&server, &shop, size)?);
    }
    Ok(findings(&rounds))
}

fn round(server: &ServerProcess, shop: &Shop, size: Size) -> anyhow::Result<Round> {
    until_calm(server.address())?;
    let outcomes = Outcomes::default();
    let callers = Counted::on_connections(shop, &outcomes, CLOSED_CONNECTIONS, First::Counts);
    let (tally, _) = load::closed(server.address(), callers, Some(size.closed))?;
    ensure!(
        tally.unexpected_count() as f64 <= REFUSED_SHARE_MAX * tally.answers as f64,
        "the capacity cannot be measured: {:?}",
        tally.unexpected
    );
    let capacity = tally.rate();
    let peak = outcomes.good(Class::Checkout) / tally.length.as_secs_f64();

    let rate = ((capacity * TIMES as f64) as u64).max(1);
    let uncounted = Outcomes::default();
    let callers = Counted::on_connections(shop, &uncounted, OPEN_CONNECTIONS, First::WarmsUp);
    load::open(server.address(), callers, rate, SETTLING)?;
    let outcomes = Outcomes::default();
    let callers = Counted::on_connections(shop, &outcomes, OPEN_CONNECTIONS, First::WarmsUp);
    let open = load::open(server.address(), callers, rate, size.open)?;
    let told = open.answered.unexpected.iter();
    for (what, count) in told.filter(|(what, _)| !what.contains("503 overloaded")) {
        eprintln!("unexpected, {count} times: {what}");
    }
    eprintln!("{} of the requests were never answered", open.unanswered);
    Ok(Round {
        capacity,
        peak,
        goodput: outcomes.good(Class::Checkout) / size.open.as_secs_f64(),
        refused: Class::ALL.map(|class| outcomes.refused_share(class)),
        p99_ms: open.answered.quantile(0.99),
    })
}

/// What a load before has left behind is no part of the next figure.
fn until_calm(address: SocketAddr) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut request = Vec::new();
        write_request(&mut request, "GET", "/health/ready", &[], None);
        let end = Instant::now() + CALM_MAX;
        loop {
            let mut connection = Connection::open(address).await?;
            let ready: serde_json::Value =
                serde_json::from_slice(connection.exchange(&request).await?.body)?;
            if ready["shedding"] == serde_json::json!([]) {
                return Ok(());
            }
            ensure!(
                Instant::now() < end,
                "the shop refuses without a reason: {ready}"
            );
            tokio::time::sleep(LOOK).await;
        }
    })
}

fn findings(rounds: &[Round]) -> Vec<Finding> {
    let column = |pick: &dyn Fn(&Round) -> f64| -> Vec<f64> { rounds.iter().map(pick).collect() };
    let middle = |pick: &dyn Fn(&Round) -> f64| median(&column(pick));
    let shares = Class::ALL.map(|class| {
        let share = middle(&|round| round.refused[class as usize]);
        format!("{} {:.0} %", class.name(), share * 100.0)
    });
    let goodput = format!(
        "{:.0} orders/s at {TIMES} × {:.0} requests/s against {:.0}/s at the peak; p99 of all answers {:.0} ms",
        middle(&|round| round.goodput),
        middle(&|round| round.capacity),
        middle(&|round| round.peak),
        middle(&|round| round.p99_ms),
    );
    vec![
        Finding::of(
            "overload: checkout goodput",
            &column(&|round| round.goodput / round.peak),
            Goal::AtLeast(GOODPUT_LEAST),
            goodput,
        ),
        Finding::of(
            "overload: browsing refused",
            &column(&|round| round.refused[Class::Browsing as usize]),
            Goal::AtLeast(BROWSING_REFUSED_LEAST),
            format!("refused of what was answered: {}", shares.join(", ")),
        ),
    ]
}
