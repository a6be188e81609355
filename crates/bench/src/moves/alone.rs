//! The memory of a process that does nothing but move: from one database of MongoDB to another, until the move is ready.

use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, anyhow, ensure};
use engine_api::Engine;
use mongodb::bson::{Document, doc};
use mover::Phase;
use testbed::Members;

use super::copying::open_mongo;
use super::loading::Course;
use crate::engines::{majority, renamed};
use crate::http::disk::resident_most_bytes;
use crate::orders::OrderNumber;
use crate::report::{Finding, Goal};

const MEGABYTES_MOST: f64 = 200.0;
const MEGABYTE: f64 = 1_000_000.0;
/// The test servers keep little of their journal, and a copy of this size outlasts it.
const OPLOG_MEGABYTES: f64 = 4_000.0;
/// Documents in one insertion while the source is filled.
const FILL_AT_ONCE: u64 = 1_000;

pub fn run(sizes: [u64; 2]) -> anyhow::Result<Finding> {
    let mut most = Vec::new();
    for orders in sizes {
        eprintln!("a process that only moves, {orders} records from MongoDB to MongoDB");
        let out = Command::new(std::env::current_exe()?)
            .args(["move-alone", &orders.to_string()])
            .output()?;
        let told = String::from_utf8(out.stdout)?;
        let failed = String::from_utf8_lossy(&out.stderr);
        ensure!(
            out.status.success(),
            "the process that moves has failed: {failed}"
        );
        most.push(told.trim().parse::<u64>().context("it tells its memory")? as f64 / MEGABYTE);
    }
    let notes = format!(
        "peak resident memory with {} records; {:.0} MB with {}",
        sizes[1], most[0], sizes[0]
    );
    let goal = Goal::AtMost(MEGABYTES_MOST);
    Ok(Finding::of("mover's memory, MB", &most[1..], goal, notes))
}

/// The child of `run`: tells the most memory that it had, in bytes.
pub fn move_alone(orders: u64) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let set = testbed::mongo(Members::One).map_err(|error| anyhow!("{error}"))?;
        let client = mongodb::Client::with_uri_str(set.uri()).await?;
        let resize = doc! { "replSetResizeOplog": 1, "size": OPLOG_MEGABYTES };
        client.database("admin").run_command(resize).await?;
        let names = ["source", "target"].map(|side| set.database(&format!("alone-{side}")));
        let [source, target] = [
            Arc::new(open_mongo(&set, &names[0]).await?),
            Arc::new(open_mongo(&set, &names[1]).await?),
        ];
        fill(source.as_ref(), &majority(&client, &names[0]), orders).await?;
        let course = Course {
            source: source.clone(),
            target,
        };
        let mut moving = course.begin(source).await?;
        let ready = |phase: &Phase| matches!(phase, Phase::Ready { .. });
        moving.until(ready).await?;
        println!("{}", resident_most_bytes(std::process::id())?);
        for name in &names {
            client.database(name).drop().await?;
        }
        Ok(())
    })
}

/// One order through the engine, the others as copies of its document.
async fn fill(
    engine: &dyn Engine,
    documents: &mongodb::Collection<Document>,
    orders: u64,
) -> anyhow::Result<()> {
    let sample = OrderNumber(0);
    let outcome = engine.apply(sample.creation(), sample.context()).await?;
    ensure!(outcome.is_done(), "an order was answered by {outcome:?}");
    let id = |number: u64| OrderNumber(number).id().as_str().to_owned();
    let stored = documents.find_one(doc! { "_id": id(0) }).await?;
    let stored = stored.context("the order that was just created is not there")?;
    let mut next = 1;
    while next < orders {
        let end = (next + FILL_AT_ONCE).min(orders);
        let some = (next..end).map(|number| renamed(&stored, &id(0), &id(number)));
        documents.insert_many(some).await?;
        next = end;
    }
    Ok(())
}
