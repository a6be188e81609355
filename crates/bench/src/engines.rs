//! `bench engines`: MongoDB and Cassandra through our engines, against a bare loop over
//! the same driver that sends the same statements.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use engine_api::layout::Layout;
use engine_api::{Engine, Outcome};
use engine_cassandra::{CassandraConfig, CassandraEngine, Keyspace, Recording};
use engine_mongo::{MongoConfig, MongoEngine};
use futures::TryStreamExt;
use futures::future::try_join_all;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{Acknowledgment, ReadConcern, WriteConcern};
use testbed::{Members, Nodes};

use crate::orders::{OrderNumber, read_context};
use crate::report::{Finding, Goal};

const CALLERS: usize = 32;
const ROUNDS: usize = 5;
const RATIO_MIN: f64 = 0.8;

/// Orders that are read again and again; the servers have them in memory.
const READ_ORDERS: u64 = 1000;

pub const CASSANDRA_ORDERS: &str = include_str!("../../../layouts/cassandra-orders.toml");
pub const MONGO_ORDERS: &str = include_str!("../../../layouts/hybrid.toml");

#[derive(Clone, Copy, Debug)]
pub struct Size {
    round: Duration,
    warm_up: Duration,
}

pub const FULL: Size = Size {
    round: Duration::from_secs(3),
    warm_up: Duration::from_secs(20),
};
pub const QUICK: Size = Size {
    round: Duration::from_millis(300),
    warm_up: Duration::from_millis(300),
};

pub fn run(size: Size) -> anyhow::Result<Vec<Finding>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let numbers = Numbers::default();
    runtime.block_on(async {
        let mut findings = mongo(size, &numbers).await?;
        findings.extend(cassandra(size, &numbers).await?);
        Ok(findings)
    })
}

/// Orders that no round has used before.
#[derive(Default)]
struct Numbers(AtomicU64);

impl Numbers {
    fn next(&self) -> OrderNumber {
        OrderNumber(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

async fn mongo(size: Size, numbers: &Numbers) -> anyhow::Result<Vec<Finding>> {
    let set = testbed::mongo(Members::One).map_err(|error| anyhow!("{error}"))?;
    let database = set.database("bench");
    let layout = Layout::parse(MONGO_ORDERS, "hybrid.toml")?;
    let config = MongoConfig::of_layout(&layout, "mongo", set.uri(), &database);
    let engine = MongoEngine::open(config).await?;
    let client = mongodb::Client::with_uri_str(set.uri()).await?;
    let orders = majority(&client, &database);

    let sample = numbers.next();
    create(&engine, sample).await?;
    let id = |number: OrderNumber| number.id().as_str().to_owned();
    let stored = orders.find_one(doc! { "_id": id(sample) }).await?;
    let stored = stored.context("the order that was just created is not there")?;
    let bare_create = async |number: OrderNumber| {
        let new = id(number);
        let found = orders
            .find_one(doc! { "_id": &new })
            .read_concern(ReadConcern::local());
        ensure!(found.await?.is_none(), "an order is there before its time");
        orders
            .insert_one(renamed(&stored, &id(sample), &new))
            .await?;
        Ok(())
    };
    let bare_read = async |number: OrderNumber| {
        let found = orders
            .find(doc! { "_id": id(number) })
            .sort(doc! {})
            .limit(1);
        let found: Vec<Document> = found.await?.try_collect().await?;
        ensure!(found.len() == 1, "a known order is not found");
        Ok(())
    };
    let (created, read) = measure(size, numbers, &engine, bare_create, bare_read).await?;
    Ok(vec![
        created.finding("MongoDB, create an order"),
        read.finding("MongoDB, order by id"),
    ])
}

/// The orders of a database, read and written as the engine does.
pub fn majority(client: &mongodb::Client, database: &str) -> mongodb::Collection<Document> {
    let written_by_majority = WriteConcern::builder()
        .w(Acknowledgment::Majority)
        .journal(true)
        .build();
    let options = mongodb::options::CollectionOptions::builder()
        .write_concern(written_by_majority)
        .read_concern(ReadConcern::majority())
        .build();
    client
        .database(database)
        .collection_with_options("orders", options)
}

async fn cassandra(size: Size, numbers: &Numbers) -> anyhow::Result<Vec<Finding>> {
    let cluster = testbed::cassandra(Nodes::One).map_err(|error| anyhow!("{error}"))?;
    let layout = Layout::parse(CASSANDRA_ORDERS, "cassandra-orders.toml")?;
    let mut keyspace = Keyspace::of(&layout, "orders")?;
    keyspace.name = cluster.keyspace("bench");
    keyspace
        .replication
        .values_mut()
        .for_each(|copies| *copies = 1);
    // Re-reads in the background are no statements of the call that is measured.
    keyspace.settings.sampled_repair_percent = None;
    let config = CassandraConfig::new(cluster.contact_points(), keyspace);
    let engine = CassandraEngine::open(config.clone()).await?;
    let recorder = CassandraEngine::open_recording(config).await?;

    // The first order of a day is also entered into the calendar: it is not the usual one.
    create(&recorder, numbers.next()).await?;
    take(&recorder)?;
    let sample = numbers.next();
    create(&recorder, sample).await?;
    let creation = take(&recorder)?;
    read(&recorder, sample).await?;
    let reading = take(&recorder)?;

    let id = |number: OrderNumber| number.id().as_str().to_owned();
    let bare_create =
        async |number: OrderNumber| Ok(creation.replay(&[(&id(sample), &id(number))]).await?);
    let bare_read =
        async |number: OrderNumber| Ok(reading.replay(&[(&id(sample), &id(number))]).await?);
    let (created, read) = measure(size, numbers, &engine, bare_create, bare_read).await?;
    let statements = |what: &str, recording: &Recording| {
        format!("{what}: {} requests each", recording.requests())
    };
    Ok(vec![
        created
            .noted(statements("conditional", &creation))
            .finding("Cassandra, create an order"),
        read.noted(statements("serial", &reading))
            .finding("Cassandra, order by id"),
    ])
}

/// Creating orders, then reading those that are there: the engine against the bare driver.
async fn measure(
    size: Size,
    numbers: &Numbers,
    engine: &dyn Engine,
    bare_create: impl AsyncFn(OrderNumber) -> anyhow::Result<()>,
    bare_read: impl AsyncFn(OrderNumber) -> anyhow::Result<()>,
) -> anyhow::Result<(Compared, Compared)> {
    let created = compare(
        size,
        async || create(engine, numbers.next()).await,
        async || bare_create(numbers.next()).await,
    )
    .await?;
    let known = known(engine, numbers).await?;
    let picks = AtomicU64::new(0);
    let pick = || known[picks.fetch_add(1, Ordering::Relaxed) as usize % known.len()];
    let read = compare(
        size,
        async || read(engine, pick()).await,
        async || bare_read(pick()).await,
    )
    .await?;
    Ok((created, read))
}

fn take(recorder: &CassandraEngine) -> anyhow::Result<Recording> {
    let recording = recorder.take_recording().context("this engine records")?;
    ensure!(recording.requests() > 0, "nothing was recorded");
    Ok(recording)
}

async fn create(engine: &dyn Engine, number: OrderNumber) -> anyhow::Result<()> {
    match engine.apply(number.creation(), number.context()).await? {
        Outcome::Done { .. } => Ok(()),
        other => Err(anyhow!("an order was answered by {other:?}")),
    }
}

async fn read(engine: &dyn Engine, number: OrderNumber) -> anyhow::Result<()> {
    let found = engine.get(&number.key(), read_context()).await?;
    ensure!(found.is_some(), "a known order is not found");
    Ok(())
}

/// Orders to be read.
async fn known(engine: &dyn Engine, numbers: &Numbers) -> anyhow::Result<Vec<OrderNumber>> {
    let mut known = Vec::new();
    for _ in 0..READ_ORDERS {
        let number = numbers.next();
        create(engine, number).await?;
        known.push(number);
    }
    Ok(known)
}

/// The document as another order: every text that is the old id becomes the new one.
pub fn renamed(document: &Document, old: &str, new: &str) -> Document {
    let value = |value: &Bson| match value {
        Bson::String(text) if text == old => Bson::String(new.to_owned()),
        Bson::Document(inner) => Bson::Document(renamed(inner, old, new)),
        other => other.clone(),
    };
    document
        .iter()
        .map(|(name, inner)| (name.clone(), value(inner)))
        .collect()
}

/// Rates of both sides, round by round.
struct Compared {
    ours: Vec<f64>,
    bare: Vec<f64>,
    note: String,
}

impl Compared {
    fn noted(self, note: String) -> Compared {
        Compared { note, ..self }
    }

    fn finding(&self, id: &str) -> Finding {
        let ratios: Vec<f64> = self
            .ours
            .iter()
            .zip(&self.bare)
            .map(|(ours, bare)| ours / bare)
            .collect();
        let (ours, bare) = (
            crate::report::median(&self.ours),
            crate::report::median(&self.bare),
        );
        let note = format!(
            "{ours:.0}/s against {bare:.0}/s of the bare driver {}",
            self.note
        );
        Finding::of(id, &ratios, Goal::AtLeast(RATIO_MIN), note)
    }
}

/// Both in turn, after both have run for a while: the first seconds of a server are slow.
async fn compare(
    size: Size,
    ours: impl AsyncFn() -> anyhow::Result<()>,
    bare: impl AsyncFn() -> anyhow::Result<()>,
) -> anyhow::Result<Compared> {
    rate(size.warm_up / 2, &ours).await?;
    rate(size.warm_up / 2, &bare).await?;
    let mut compared = Compared {
        ours: Vec::new(),
        bare: Vec::new(),
        note: String::new(),
    };
    for round in 0..ROUNDS {
        // Who goes first changes: the second finds the servers warmer, or busier with what the first left.
        if round % 2 == 0 {
            compared.ours.push(rate(size.round, &ours).await?);
            compared.bare.push(rate(size.round, &bare).await?);
        } else {
            compared.bare.push(rate(size.round, &bare).await?);
            compared.ours.push(rate(size.round, &ours).await?);
        }
    }
    Ok(compared)
}

/// Calls a second, by callers that each wait for their answer.
async fn rate(
    length: Duration,
    call: &impl AsyncFn() -> anyhow::Result<()>,
) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let callers = (0..CALLERS).map(|_| caller(begun + length, call));
    let counts: Vec<u64> = try_join_all(callers).await?;
    Ok(counts.iter().sum::<u64>() as f64 / begun.elapsed().as_secs_f64())
}

async fn caller(end: Instant, call: &impl AsyncFn() -> anyhow::Result<()>) -> anyhow::Result<u64> {
    let mut count = 0;
    while Instant::now() < end {
        call().await?;
        count += 1;
    }
    Ok(count)
}
