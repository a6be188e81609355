//! Passes that take longer than others are patient: whose the move is while an engine is slow.

#![allow(clippy::unwrap_used)]

mod support;

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use mover::{Limits, Mover, Pass, Plan, Wish, status};
use support::{Shop, TAKE_OVER_MS, Wire};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

const LONG: Duration = Duration::from_millis(5 * TAKE_OVER_MS);
const POLL: Duration = Duration::from_millis(20);

/// Works on until a pass says that the move is another's.
fn works(mut mover: Mover) -> JoinHandle<String> {
    tokio::spawn(async move {
        loop {
            if let Err(error) = mover.pass().await {
                return error.to_string();
            }
            tokio::time::sleep(POLL).await;
        }
    })
}

/// A holder that is in the middle of a call that nobody answers, and what is told when it gets there.
async fn hanging(shop: &Shop, call: &str) -> (Arc<Wire>, JoinHandle<String>) {
    shop.start().await;
    let wire = Wire::endless();
    let arrived = Arc::new(Semaphore::new(0));
    let tells = arrived.clone();
    wire.before(call, || async move {
        tells.add_permits(1);
        pending().await
    });
    let holder = works(shop.mover_over(&wire));
    arrived.acquire().await.unwrap().forget();
    (wire, holder)
}

/// Watches for so long, and says whether the move is its own then.
async fn takes_it_within(watcher: &mut Mover, time: Duration) -> bool {
    let began = tokio::time::Instant::now();
    while began.elapsed() < time {
        if watcher.pass().await.unwrap() != Pass::Watching {
            return true;
        }
        tokio::time::sleep(POLL).await;
    }
    false
}

async fn term(shop: &Shop) -> u64 {
    let found = status(shop.control.as_ref(), &shop.move_name).await;
    found.unwrap().term
}

/// Scans, copies, comparisons, the drain and the fence: each once takes far longer than others are patient.
#[tokio::test(start_paused = true)]
async fn a_holder_whose_pass_takes_long_is_not_taken_for_dead() {
    let shop = Shop::open().await;
    let plan = Plan {
        freeze_ms_max: 60_000,
        ..shop.plan()
    };
    shop.start_with(plan).await;
    let wire = Wire::endless();
    for call in [
        "source.claim_term",
        "source.scan",
        "source.journal_read",
        "source.raise_fence",
        "target.apply",
        "target.scan",
        "target.journal_read",
        "control.get.leases",
    ] {
        wire.before(call, || tokio::time::sleep(LONG));
    }
    let mut holder = shop.mover_over(&wire);
    holder.pass().await.unwrap();
    let mut watcher = shop.mover();
    let watching = tokio::spawn(async move { takes_it_within(&mut watcher, LONG * 20).await });
    shop.insist(&mut holder, Wish::Cutover, "ready", "settling")
        .await;
    assert_eq!(term(&shop).await, 1, "nobody else has worked for it");
    watching.abort();
    shop.judge("a slow engine").await;
}

/// W21: who was stopped in the middle of a pass, and lost the move, does not go on waiting for its engine.
#[tokio::test(start_paused = true)]
async fn a_displaced_holder_notices_it_in_the_middle_of_a_pass() {
    let shop = Shop::open().await;
    let (wire, holder) = hanging(&shop, "source.scan").await;
    let mut second = shop.mover();
    assert!(!takes_it_within(&mut second, LONG).await, "it is alive");
    let still = wire.stand_still().await;
    assert!(takes_it_within(&mut second, LONG).await, "it stands still");
    drop(still);
    let told = tokio::time::timeout(LONG, holder).await;
    let told = told.expect("it goes on for ever").unwrap();
    assert!(told.contains("another process has taken"), "{told}");
    shop.cut_over(&mut second).await;
    shop.judge("displaced in a pass").await;
}

/// Nobody vouches for ever for an engine that never answers.
#[tokio::test(start_paused = true)]
async fn a_pass_that_never_ends_is_taken_over() {
    let shop = Shop::open().await;
    let (_wire, holder) = hanging(&shop, "source.scan").await;
    let mut second = shop.mover();
    let pass_max = Duration::from_millis(Limits::default().pass_ms_max);
    assert!(!takes_it_within(&mut second, pass_max / 2).await);
    assert!(takes_it_within(&mut second, pass_max).await);
    shop.cut_over(&mut second).await;
    holder.abort();
    shop.judge("hung, and taken over").await;
}
