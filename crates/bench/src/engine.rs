//! `bench engine`: the embedded engine alone, against the raw group commit (G7, G10).

use std::future::Future;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use engine_api::layout::{AccessPath, Collection, Field, Value};
use engine_api::{Engine, Outcome, Query, RecordKey};
use engine_embedded::{EmbeddedConfig, EmbeddedEngine};

use crate::orders::{OrderNumber, PRODUCTS, mix, product_changes, product_key, read_context};
use crate::raw::RawLog;
use crate::report::{Finding, Goal, median};

const WRITERS: usize = 64;
const ROUNDS: usize = 5;
const CACHE_BYTES: u64 = 256 * 1024 * 1024;

/// How much is measured, and on how much.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    small_orders: u64,
    large_orders: u64,
    round: Duration,
}

pub const FULL: Size = Size {
    small_orders: 10_000,
    large_orders: 1_000_000,
    round: Duration::from_millis(2500),
};
pub const QUICK: Size = Size {
    small_orders: 500,
    large_orders: 5_000,
    round: Duration::from_millis(200),
};

pub fn run(size: Size) -> anyhow::Result<Vec<Finding>> {
    let folder = tempfile::tempdir_in(".").context("no room for the benchmark's data here")?;
    let path = |name: &str| folder.path().join(name);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;

    eprintln!(
        "filling a directory with {} orders, then kill -9",
        size.large_orders
    );
    fill_and_kill(&path("large"), size.large_orders)?;
    let started = Instant::now();
    let large = open(&path("large"))?;
    let opened = started.elapsed();
    runtime.block_on(check_kept(&large, size.large_orders))?;

    let small = open(&path("small"))?;
    runtime.block_on(fill(&small, 0..size.small_orders))?;
    let raw = RawLog::open(&path("raw"))?;

    let mut findings = runtime.block_on(ceiling(&small, &raw, size))?;
    let disk = disk_bytes(&path("large"))? as f64 / size.large_orders as f64;
    let record = OrderNumber(1).raw_bytes().len() as f64;
    findings.push(Finding::of(
        "G10 open after kill -9, s",
        &[opened.as_secs_f64()],
        Goal::AtMost(3.0),
        format!("{} orders, nothing lost", size.large_orders),
    ));
    findings.push(Finding::of(
        "G10 disk bytes per order",
        &[disk / record],
        Goal::AtMost(2.0),
        format!("{disk:.0} bytes against {record:.0} of a raw append"),
    ));
    // A small directory of its own: the first one has grown by the rounds above.
    let fresh = open(&path("fresh"))?;
    runtime.block_on(fill(&fresh, 0..size.small_orders))?;
    findings.extend(runtime.block_on(cost_by_size(&fresh, &large, size))?);
    Ok(findings)
}

/// The child of `fill_and_kill`: fills, says so, and waits to be killed.
pub fn fill_forever(path: &Path, orders: u64) -> anyhow::Result<()> {
    let engine = open(path)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(fill(&engine, 0..orders))?;
    println!("filled");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn fill_and_kill(path: &Path, orders: u64) -> anyhow::Result<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("fill")
        .arg(path)
        .arg(orders.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let output = child.stdout.take().context("the child has an output")?;
    BufReader::new(output).read_line(&mut line)?;
    child.kill()?;
    child.wait()?;
    ensure!(
        line.trim() == "filled",
        "the child that fills the directory has failed"
    );
    Ok(())
}

pub fn open(path: &Path) -> anyhow::Result<EmbeddedEngine> {
    let layout = engine_api::layout::embedded();
    let tables = layout
        .collections
        .values()
        .flat_map(|kept| kept.live.tables.clone())
        .collect();
    Ok(EmbeddedEngine::open(EmbeddedConfig {
        path: path.to_owned(),
        tables,
        cache_bytes: CACHE_BYTES,
    })?)
}

pub async fn fill(engine: &EmbeddedEngine, orders: std::ops::Range<u64>) -> anyhow::Result<()> {
    let products = (0..=PRODUCTS).map(|product| async move {
        for change in product_changes(product) {
            let outcome = engine.apply(change, OrderNumber(0).context()).await?;
            ensure!(outcome.is_done(), "a product was refused: {outcome:?}");
        }
        anyhow::Ok(())
    });
    futures::future::try_join_all(products).await?;
    let next = AtomicU64::new(orders.start);
    let writers = (0..4 * WRITERS).map(|_| async {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= orders.end {
                return anyhow::Ok(());
            }
            place(engine, OrderNumber(number)).await?;
        }
    });
    futures::future::try_join_all(writers).await?;
    Ok(())
}

async fn place(engine: &EmbeddedEngine, number: OrderNumber) -> anyhow::Result<()> {
    match engine
        .apply_together(number.changes(), number.context())
        .await?
    {
        Outcome::Done { .. } => Ok(()),
        refused => bail!("an order was refused: {refused:?}"),
    }
}

async fn check_kept(engine: &EmbeddedEngine, orders: u64) -> anyhow::Result<()> {
    let step = (orders / 1000).max(1) as usize;
    for number in (0..orders).step_by(step) {
        read_by_id(engine, number).await?;
    }
    let mut sold = 0;
    for product in 0..PRODUCTS {
        let record = engine.get(&product_key(product), read_context()).await?;
        let record = record.context("a product was acknowledged and is lost")?;
        let counts = record
            .live_parts()
            .filter_map(|(_, stock)| stock.get(Field::Sold)?.as_int());
        sold += counts.sum::<i64>();
    }
    ensure!(
        sold == orders as i64,
        "{orders} orders were acknowledged, {sold} pieces are sold"
    );
    Ok(())
}

/// G7: engine and raw log in turn, so that both meet the same noise.
async fn ceiling(
    engine: &EmbeddedEngine,
    raw: &RawLog,
    size: Size,
) -> anyhow::Result<Vec<Finding>> {
    let numbers = AtomicU64::new(1 << 40);
    let next = || OrderNumber(numbers.fetch_add(1, Ordering::Relaxed));
    let (mut ratios, mut raws, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        eprintln!("round {} of {ROUNDS}: raw, then engine", round + 1);
        let ceiling = rate(size.round, || raw.append(next())).await?;
        let durable = rate(size.round, || place(engine, next())).await?;
        ratios.push(durable / ceiling);
        raws.push(ceiling);
        ours.push(durable);
    }
    ensure!(raw.bytes() > 0, "the raw log wrote nothing");
    let notes = format!(
        "{:.0} orders/s against {:.0} appends/s",
        median(&ours),
        median(&raws)
    );
    Ok(vec![Finding::of(
        "G7 durable order, 64 writers",
        &ratios,
        Goal::AtLeast(0.45),
        notes,
    )])
}

/// The same work on few and on many orders, in turn.
async fn cost_by_size(
    small: &EmbeddedEngine,
    large: &EmbeddedEngine,
    size: Size,
) -> anyhow::Result<Vec<Finding>> {
    let numbers = AtomicU64::new(1 << 41);
    let next = || OrderNumber(numbers.fetch_add(1, Ordering::Relaxed));
    let draws = AtomicU64::new(0);
    let draw = |orders: u64| mix(draws.fetch_add(1, Ordering::Relaxed)) % orders;
    let mut rounds = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        eprintln!("round {} of {ROUNDS}: few orders, then many", round + 1);
        // Both at rest: reads meet tables on disk, not what the rounds left in memory.
        small.rest().await?;
        large.rest().await?;
        let half = size.round / 2;
        let (few, many) = (size.small_orders, size.large_orders);
        let measured = [
            (
                rate(half, || read_by_id(small, draw(few))).await?,
                rate(half, || read_by_id(large, draw(many))).await?,
            ),
            (
                rate(half, || read_history(small, draw(few))).await?,
                rate(half, || read_history(large, draw(many))).await?,
            ),
            (
                rate(half, || place(small, next())).await?,
                rate(half, || place(large, next())).await?,
            ),
        ];
        for (rounds, (few, many)) in rounds.iter_mut().zip(measured) {
            rounds.push(many / few);
        }
    }
    let names = [
        "size: order by id",
        "size: history page",
        "size: durable order",
    ];
    let notes = format!(
        "rate at {} orders over rate at {}",
        size.large_orders, size.small_orders
    );
    Ok(names
        .iter()
        .zip(&rounds)
        .map(|(name, rounds)| Finding::of(name, rounds, Goal::AtLeast(0.8), notes.clone()))
        .collect())
}

async fn read_by_id(engine: &EmbeddedEngine, number: u64) -> anyhow::Result<()> {
    let number = OrderNumber(number);
    let shard_key = engine_api::layout::ShardKey::of_text(&number.user());
    let key = RecordKey {
        collection: Collection::Orders,
        id: number.id(),
        shard_key,
    };
    let found = engine.get(&key, read_context()).await?;
    ensure!(
        found.is_some(),
        "order {} was acknowledged and is lost",
        number.0
    );
    Ok(())
}

async fn read_history(engine: &EmbeddedEngine, number: u64) -> anyhow::Result<()> {
    let user = Value::text(OrderNumber(number).user());
    let query = Query::first(AccessPath::OrdersByUser, vec![user], 10);
    ensure!(
        !engine
            .query(&query, read_context())
            .await?
            .records
            .is_empty(),
        "a history is empty"
    );
    Ok(())
}

/// Completed calls a second, 64 callers at once.
async fn rate<F>(length: Duration, call: impl Fn() -> F) -> anyhow::Result<f64>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let started = Instant::now();
    let callers = (0..WRITERS).map(|_| async {
        while !stop.load(Ordering::Relaxed) {
            call().await?;
            if done.fetch_add(1, Ordering::Relaxed) % 32 == 0 {
                stop.fetch_or(started.elapsed() >= length, Ordering::Relaxed);
                // Reads never wait: without this one caller would keep the thread.
                tokio::task::yield_now().await;
            }
        }
        anyhow::Ok(())
    });
    futures::future::try_join_all(callers).await?;
    Ok(done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64())
}

fn disk_bytes(path: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        bytes += if kind.is_dir() {
            disk_bytes(&entry.path())?
        } else {
            allocated(&entry.path())?
        };
    }
    Ok(bytes)
}

/// What the file takes on the disk, which is less than its length where it has holes.
fn allocated(path: &Path) -> anyhow::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata(path)?.blocks() * 512)
}
