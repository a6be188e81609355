//! The process that is killed: says a line for everything acknowledged.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine_api::{Engine, EngineError, Outcome};
use engine_embedded::EmbeddedEngine;
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::ledger::Line;
use crate::shop::{self, Load};

const TASKS: u64 = 16;

/// Numbers of one round; rounds never share one.
pub const ROUND_NUMBERS: u64 = 1_000_000;

pub fn run(path: &Path, round: u64, load: Load, file_kib_max: Option<u64>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .expect("a runtime starts");
    runtime.block_on(async {
        let engine = match shop::try_open(path) {
            Ok(engine) => Arc::new(engine),
            Err(error) => failed(&error.to_string()),
        };
        prepare(&engine, round).await;
        if let Some(limit) = file_kib_max {
            limit_files(limit);
        }
        let next = Arc::new(AtomicU64::new(round * ROUND_NUMBERS));
        let tasks =
            (0..TASKS).map(|task| tokio::spawn(write(engine.clone(), next.clone(), task, load)));
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("a writer does not panic");
        }
    });
}

async fn prepare(engine: &EmbeddedEngine, round: u64) {
    let products = (0..shop::PRODUCTS).flat_map(shop::product);
    let carts = (0..TASKS).map(shop::cart);
    for change in products.chain(carts) {
        // From the second round on they are there already.
        if let Err(error) = engine
            .apply(change, shop::write_context(round * ROUND_NUMBERS))
            .await
        {
            refused(&error);
        }
    }
}

async fn write(engine: Arc<EmbeddedEngine>, next: Arc<AtomicU64>, task: u64, load: Load) {
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed) + 1;
        let context = shop::write_context(number);
        let (line, answer) = match number % 4 {
            0 => {
                let line = Line::Cart {
                    cart: task,
                    quantity: number,
                };
                (
                    line,
                    engine.apply(shop::cart_line(task, number), context).await,
                )
            }
            1 => (
                Line::Session { number },
                engine.apply(shop::session(number), context).await,
            ),
            _ => (
                Line::Order { number },
                engine
                    .apply_together(shop::order(number, load), context)
                    .await,
            ),
        };
        match answer {
            Ok(Outcome::Done { .. }) => say(&line.to_string()),
            Ok(other) => panic!("{line} was refused: {other:?}"),
            Err(error) => refused(&error),
        }
    }
}

/// From here on no byte of a file can be written behind this many.
fn limit_files(kib: u64) {
    let limit = Rlimit {
        current: Some(kib * 1024),
        maximum: Some(kib * 1024),
    };
    setrlimit(Resource::Fsize, limit).expect("a process may lower its own limit");
}

/// Only a disk without room is expected; the judge reads the last line.
fn refused(error: &EngineError) -> ! {
    failed(&error.to_string())
}

fn failed(error: &str) -> ! {
    let error = error.to_owned();
    say(&Line::Failed { error }.to_string());
    std::process::exit(3);
}

/// One write call a line: a kill leaves no half of one behind another.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let said = out
        .write_all(format!("{line}\n").as_bytes())
        .and_then(|()| out.flush());
    if said.is_err() {
        // The judge has gone; there is nobody to acknowledge to.
        std::process::exit(4);
    }
}
