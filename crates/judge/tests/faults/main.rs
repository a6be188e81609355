//! Proves that the judge can fail: a shop in memory that keeps the contract, and the same shop with one fault.
//! Every fault has to be found, and by its right name.

#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod fake;
mod state;

use std::net::SocketAddr;
use std::time::Duration;

use judge::server::Host;
use judge::verdict::{Kind, Verdict};
use judge::{carts, flash, keys, shop};

use fake::FakeShop;
use state::Fault;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

fn judge_shop(fault: Option<Fault>) -> Verdict {
    let folder = tempfile::tempdir().unwrap();
    let plan = shop::Plan {
        rounds: 2,
        load: Duration::from_millis(1500),
        shoppers: 12,
        seed: 7,
        ledger: folder.path().join("ledger"),
        settle: Duration::from_secs(1),
    };
    block_on(shop::run(&mut FakeShop::new(fault), &plan)).unwrap()
}

fn judge_running(fault: Option<Fault>, judge: impl AsyncFnOnce(SocketAddr) -> Verdict) -> Verdict {
    let mut host = FakeShop::new(fault);
    let address = host.start().unwrap();
    let verdict = block_on(judge(address));
    host.kill().unwrap();
    verdict
}

fn assert_found(fault: Fault, kind: Kind, verdict: &Verdict) {
    assert!(
        verdict.count(kind) > 0,
        "{fault:?} was not found as {kind}: {verdict}"
    );
}

#[test]
fn a_shop_that_keeps_the_contract_is_found_to_keep_it() {
    let verdict = judge_shop(None);
    assert!(verdict.holds(), "{verdict}");
    let verdict = judge_running(None, async |address| {
        let mut verdict = flash::run(address, flash::Plan::default()).await.unwrap();
        verdict.append(keys::run(address, 50).await.unwrap());
        verdict.append(carts::run(address, carts::Plan::default()).await.unwrap());
        verdict
    });
    assert!(verdict.holds(), "{verdict}");
}

#[test]
fn what_a_kill_loses_or_doubles_is_found() {
    for (fault, kind) in [
        (Fault::LosesAnOrder, Kind::Lost),
        (Fault::ListsAnOrderTwice, Kind::Doubled),
        (Fault::LosesAnOrderInTheHistory, Kind::Lost),
        (Fault::ForgetsAStatus, Kind::Wrong),
        (Fault::ForgetsAnItem, Kind::Lost),
        (Fault::ForgetsASession, Kind::Lost),
        (Fault::LeaksStock, Kind::Wrong),
        (Fault::ForgetsKeys, Kind::Doubled),
    ] {
        assert_found(fault, kind, &judge_shop(Some(fault)));
    }
}

#[test]
fn what_a_shopper_is_shown_too_late_is_found() {
    for (fault, kind) in [
        (Fault::ShowsAnOlderCart, Kind::Lost),
        (Fault::ShowsAnOlderOrder, Kind::Wrong),
        (Fault::ListsTheNewestLate, Kind::Lost),
    ] {
        assert_found(fault, kind, &judge_shop(Some(fault)));
    }
}

#[test]
fn a_merge_that_counts_twice_is_found() {
    let fault = Fault::MergesTwice;
    assert_found(fault, Kind::Wrong, &judge_shop(Some(fault)));
    let verdict = judge_running(Some(fault), async |address| {
        carts::run(address, carts::Plan::default()).await.unwrap()
    });
    assert_found(fault, Kind::Doubled, &verdict);
}

#[test]
fn a_flash_sale_that_sells_too_much_or_too_little_is_found() {
    for (fault, kind) in [
        (Fault::SellsWhatIsNotThere, Kind::Doubled),
        (Fault::SaysSoldOutTooEarly, Kind::Wrong),
    ] {
        let verdict = judge_running(Some(fault), async |address| {
            flash::run(address, flash::Plan::default()).await.unwrap()
        });
        assert_found(fault, kind, &verdict);
    }
}

#[test]
fn a_key_that_makes_two_orders_is_found() {
    let fault = Fault::ForgetsKeys;
    let verdict = judge_running(Some(fault), async |address| {
        keys::run(address, 20).await.unwrap()
    });
    assert_found(fault, Kind::Doubled, &verdict);
}

#[test]
fn carts_that_race_are_found() {
    for (fault, kind) in [
        (Fault::OpensTwoCarts, Kind::Doubled),
        (Fault::OverwritesTheCart, Kind::Lost),
    ] {
        let verdict = judge_running(Some(fault), async |address| {
            carts::run(address, carts::Plan::default()).await.unwrap()
        });
        assert_found(fault, kind, &verdict);
    }
}
