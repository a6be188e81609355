//! Several processes, one shop: shoppers go from one process to the next while somebody kills, stops and restarts
//! processes and servers. Each request meets another process than the last one, so that what a shopper is shown
//! has gone through the stores and not through one process's memory.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures::future::{try_join, try_join_all};

use super::acting::Scribe;
use super::shopper::{Shopper, Surroundings};
use super::verifying::Judge;
use super::{PRODUCTS, product, wait_until_ready};
use crate::catalogue;
use crate::client::Client;
use crate::expected::Expected;
use crate::ledger::{Entry, Ledger, Reader};
use crate::verdict::Verdict;

/// The processes and what they stand on. Its calls take as long as they take: they run on a thread of their own.
pub trait Fleet: Send + 'static {
    /// Where the processes listen, before and after they are restarted.
    fn addresses(&self) -> Vec<SocketAddr>;

    /// Breaks things until then. What is broken at the end may stay so.
    fn disturb(&mut self, until: Instant) -> anyhow::Result<()>;

    /// Mends every server, kills every process and starts it again: nothing sent before is under way any more.
    fn restart(&mut self) -> anyhow::Result<()>;
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub load: Duration,
    pub shoppers: u32,
    /// What a shopper does nothing for between two visits. Records that move from a fast engine to a slow one arrive
    /// only if they change less often than the slow one can follow.
    pub rest: Duration,
    pub seed: u64,
    pub ledger: PathBuf,
    /// How long a shopper waits for an answer. Short: a process that stands still is to be left, not waited for.
    pub patience: Duration,
    /// How long the sweeper may take afterwards.
    pub settle: Duration,
}

impl Plan {
    /// Writes that were acknowledged, by the ledger as it stands on disk.
    pub fn acknowledged(&self) -> anyhow::Result<u64> {
        let mut expected = Expected::default();
        let mut reader = Reader::open(&self.ledger)?;
        reader.read_on(|entry| expected.take(entry))?;
        Ok(expected.counts.acknowledged)
    }
}

pub async fn run(mut fleet: impl Fleet, plan: &Plan) -> anyhow::Result<Verdict> {
    let scribe = Scribe::new(Ledger::create(&plan.ledger)?);
    let mut reader = scribe.ledger().reader()?;
    let products: Vec<_> = (0..PRODUCTS).map(product).collect();
    let mut shoppers: Vec<_> = (0..plan.shoppers)
        .map(|number| Shopper::new(number, plan.seed))
        .collect();
    let addresses = fleet.addresses();
    all_ready(&addresses).await?;
    catalogue::put(&mut Client::new(addresses[0]), &products).await?;

    let closing = Cell::new(false);
    let around = Surroundings {
        scribe: &scribe,
        products: &products,
        closing: &closing,
        rest: plan.rest,
    };
    let shopping = try_join_all(shoppers.iter_mut().map(|shopper| {
        let mut client = Client::among(&addresses, plan.patience);
        let around = &around;
        async move { shopper.shop(&mut client, around).await }
    }));
    let until = Instant::now() + plan.load;
    let disturbing = async {
        let work = tokio::task::spawn_blocking(move || fleet.disturb(until).map(|()| fleet));
        let disturbed = work.await.map_err(anyhow::Error::from).flatten();
        closing.set(true);
        disturbed
    };
    let (_, mut fleet) = try_join(shopping, disturbing).await?;
    let restarting = tokio::task::spawn_blocking(move || fleet.restart().map(|()| fleet));
    // It runs as long as this is held.
    let _fleet = restarting.await??;
    scribe.ledger().write_synced(&Entry::Killed).await?;
    all_ready(&addresses).await?;

    let mut expected = Expected::default();
    reader.read_on(|entry| expected.take(entry))?;
    let counts = expected.counts;
    let judge = Judge {
        address: addresses[0],
        scribe: &scribe,
        products: &products,
        settle: plan.settle,
    };
    let verdict = judge.judge(&mut expected, &mut reader).await?;
    println!(
        "{} processes, {} shoppers, {} s: {} acknowledged, {} refused, {} unanswered; \
         {} orders, {} carts and {} sessions judged: {} breaches",
        addresses.len(),
        plan.shoppers,
        plan.load.as_secs(),
        counts.acknowledged,
        counts.refused,
        counts.unanswered,
        expected.orders.len(),
        expected.carts.len(),
        expected.sessions.len(),
        verdict.breaches.len(),
    );
    Ok(verdict)
}

async fn all_ready(addresses: &[SocketAddr]) -> anyhow::Result<()> {
    try_join_all(addresses.iter().map(|address| wait_until_ready(*address))).await?;
    Ok(())
}
