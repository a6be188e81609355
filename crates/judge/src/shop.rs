//! `judge shop`: shoppers at work, a kill at a random moment, a restart, the judgement. Again and again on the
//! same directory, because what one kill leaves behind the next one may lose.

mod acting;
pub mod disturbed;
mod reading;
mod shopper;
mod verifying;

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::future::{try_join, try_join_all};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::catalogue::{self, Product};
use crate::client::{Client, Reply};
use crate::expected::Expected;
use crate::ledger::{Entry, Ledger};
use crate::server::Host;
use crate::verdict::Verdict;
use acting::Scribe;
use shopper::{Shopper, Surroundings};
use verifying::Judge;

const PRODUCTS: u32 = 40;
/// Every fifth product runs out.
const SCARCE_EVERY: u32 = 5;
const SCARCE_PIECES: u64 = 60;
const PLENTY_PIECES: u64 = 10_000_000;
const READY_SECONDS_MAX: u64 = 60;

#[derive(Clone, Debug)]
pub struct Plan {
    pub rounds: u32,
    /// The longest a round goes on before the kill.
    pub load: Duration,
    pub shoppers: u32,
    pub seed: u64,
    pub ledger: PathBuf,
    /// How long the sweeper may take after a restart.
    pub settle: Duration,
}

/// All rounds, or up to the first one that finds something.
pub async fn run(host: &mut impl Host, plan: &Plan) -> anyhow::Result<Verdict> {
    let scribe = Scribe::new(Ledger::create(&plan.ledger)?);
    let mut reader = scribe.ledger().reader()?;
    let mut expected = Expected::default();
    let mut random = StdRng::seed_from_u64(plan.seed);
    let products: Vec<_> = (0..PRODUCTS).map(product).collect();
    let mut shoppers: Vec<_> = (0..plan.shoppers)
        .map(|number| Shopper::new(number, plan.seed))
        .collect();

    let mut address = host.start()?;
    wait_until_ready(address).await?;
    catalogue::put(&mut Client::new(address), &products).await?;
    for round in 1..=plan.rounds {
        let load = plan.load.mul_f64(random.random_range(0.2..1.0));
        shop_until_killed(host, address, &scribe, &products, &mut shoppers, load).await?;
        scribe.ledger().write_synced(&Entry::Killed).await?;
        let before = expected.counts;
        reader.read_on(|entry| expected.take(entry))?;
        let counts = expected.counts;

        let begun = Instant::now();
        address = host.start()?;
        wait_until_ready(address).await?;
        let opened = begun.elapsed();
        let judge = Judge {
            address,
            scribe: &scribe,
            products: &products,
            settle: plan.settle,
        };
        let verdict = judge.judge(&mut expected, &mut reader).await?;
        println!(
            "round {round} of {}: killed after {:.1} s with {} acknowledged, {} refused, {} unanswered; \
             open again in {:.2} s; {} orders, {} carts and {} sessions judged in {:.1} s: {} breaches",
            plan.rounds,
            load.as_secs_f64(),
            counts.acknowledged - before.acknowledged,
            counts.refused - before.refused,
            counts.unanswered - before.unanswered,
            opened.as_secs_f64(),
            expected.orders.len(),
            expected.carts.len(),
            expected.sessions.len(),
            (begun.elapsed() - opened).as_secs_f64(),
            verdict.breaches.len(),
        );
        if !verdict.holds() {
            return Ok(verdict);
        }
    }
    host.kill().context("the last server")?;
    Ok(Verdict::default())
}

fn product(number: u32) -> Product {
    let scarce = number.is_multiple_of(SCARCE_EVERY);
    let pieces = if scarce { SCARCE_PIECES } else { PLENTY_PIECES };
    Product::numbered("judged", number, pieces)
}

async fn shop_until_killed(
    host: &mut impl Host,
    address: SocketAddr,
    scribe: &Scribe,
    products: &[Product],
    shoppers: &mut [Shopper],
    load: Duration,
) -> anyhow::Result<()> {
    let closing = Cell::new(false);
    let around = Surroundings {
        scribe,
        products,
        closing: &closing,
        rest: Duration::ZERO,
    };
    let shopping = try_join_all(shoppers.iter_mut().map(|shopper| {
        let around = &around;
        async move { shopper.shop(&mut Client::new(address), around).await }
    }));
    let killing = async {
        tokio::time::sleep(load).await;
        // Every shopper has a request under way: that is the moment wanted.
        let killed = host.kill();
        closing.set(true);
        killed
    };
    try_join(shopping, killing).await?;
    Ok(())
}

async fn wait_until_ready(address: SocketAddr) -> anyhow::Result<()> {
    let end = Instant::now() + Duration::from_secs(READY_SECONDS_MAX);
    let mut client = Client::new(address);
    loop {
        match client.get("/health/ready").await {
            Reply::Answered(_) => return Ok(()),
            reply if Instant::now() >= end => bail!("the server is not ready: {reply:?}"),
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}
