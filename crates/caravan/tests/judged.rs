//! The real binary, judged over HTTP by a ledger that is not its own: killed
//! under load, and besieged by many requests at once. A short form of what
//! `judge` does for as long as one likes.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use judge::server::{Caravan, Host};
use judge::shop::Plan;
use judge::verdict::Verdict;
use judge::{carts, flash, keys, shop};

fn caravan(folder: &Path) -> Caravan {
    Caravan::new(
        Path::new(env!("CARGO_BIN_EXE_caravan")),
        &folder.join("data"),
    )
    // A build for tests is slow: nobody is to be refused for that.
    .set("http.queue_ms_max=5000")
}

fn assert_clean(verdict: &Verdict) {
    assert!(verdict.holds(), "{verdict}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_or_doubled_when_the_shop_is_killed_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan {
        rounds: 3,
        load: Duration::from_secs(4),
        shoppers: 32,
        seed: 7,
        ledger: folder.path().join("ledger"),
        settle: Duration::from_secs(90),
    };
    let verdict = shop::run(&mut caravan(folder.path()), &plan).await.unwrap();
    assert_clean(&verdict);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_get_what_there_is_and_each_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = caravan(folder.path());
    let address = host.start().unwrap();
    assert_clean(&flash::run(address, flash::Plan::default()).await.unwrap());
    assert_clean(&keys::run(address, 100).await.unwrap());
    assert_clean(&carts::run(address, carts::Plan::default()).await.unwrap());
}
