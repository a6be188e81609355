//! Leases: who may answer, under which map, and who waits for whom (W15–W18).

#![allow(clippy::unwrap_used)] // a story ends where something unforeseen happens

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use engine_api::{FenceKind, Generation, Remedy, Revision};
use layout::{Collection, Scope};
use router::{
    Edit, LeaseError, LeaseJudge, LeaseSeen, LeaseState, Limits, MapView, ProcessName, Router,
    RouterError, Standing, Term, Written,
};
use support::*;
use tokio::task::JoinHandle;

const CARTS: Collection = Collection::Carts;
const LEASE: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(600);

/// Carts on shard a, an empty shard b, no fence in either.
async fn shop_by_lease() -> Shop {
    let carts = [carts_on("a")];
    let shop = Shop::open_with(&["a", "b"], &carts, Limits::default(), FenceKind::ByLease).await;
    written(&shop.router, create_cart("c")).await;
    shop
}

fn keep(router: &Arc<Router>) -> JoinHandle<()> {
    let router = router.clone();
    tokio::spawn(async move { router.keep_lease().await })
}

fn write_later(router: &Arc<Router>, quantity: i64) -> JoinHandle<Result<Written, RouterError>> {
    let router = router.clone();
    let change = set_line("c", "P", quantity);
    tokio::spawn(async move { router.write(change, Revision::ZERO).await })
}

async fn publish(shop: &Shop, edits: &[Edit]) -> Generation {
    let edits: Vec<_> = edits.iter().map(|edit| (CARTS, edit.clone())).collect();
    let next = shop.router.map().edited(&edits).unwrap();
    shop.router.publish(next).await.unwrap()
}

fn freeze() -> [Edit; 1] {
    [Edit::Freeze { scope: Scope::All }]
}

fn cut_over() -> [Edit; 2] {
    let (scope, to) = (Scope::All, named("b"));
    [Edit::Move { scope, to }, Edit::Thaw { scope: Scope::All }]
}

async fn carry_cart(shop: &Shop) {
    let image = shop.image(&cart_key("c")).await;
    shop.shard("b").put_image(image).await;
}

fn judge(shop: &Shop) -> LeaseJudge {
    LeaseJudge::new(shop.control.clone(), shop.world.clone(), &Limits::default())
}

async fn the_lease(shop: &Shop) -> LeaseSeen {
    judge(shop).look().await.unwrap().remove(0)
}

fn wait_later(shop: &Shop, generation: Generation) -> JoinHandle<Result<(), LeaseError>> {
    let judge = judge(shop);
    tokio::spawn(async move { judge.wait_for(generation, PATIENCE).await })
}

async fn quantity_at(router: &Router) -> Option<i64> {
    let cart = router.get(&cart_key("c")).await.unwrap().unwrap();
    quantity(&cart, "P")
}

async fn passes(time: Duration) {
    tokio::time::sleep(time).await;
}

#[tokio::test(start_paused = true)]
async fn two_processes_write_under_numbers_of_their_own_and_ask_no_control_store() {
    let shop = shop_by_lease().await;
    let (one, other) = (
        shop.leased_router("one").await,
        shop.leased_router("other").await,
    );
    let reads = shop.control.reads();
    let first = written(&one, set_line("c", "P", 1)).await;
    let second = written(&other, set_line("c", "P", 2)).await;
    assert_ne!(first.revision.writer(), second.revision.writer());
    assert_eq!(quantity_at(&one).await, Some(2));
    assert_eq!(shop.control.reads(), reads, "the check is local");
}

#[tokio::test(start_paused = true)]
async fn a_process_without_a_lease_refuses_and_serves_again_under_a_new_term() {
    let shop = shop_by_lease().await;
    let process = shop.leased_router("one").await;
    assert_eq!(process.lease(), Some(LeaseState::Runs { term: Term(1) }));
    passes(LEASE).await;

    assert_eq!(process.lease(), Some(LeaseState::RanOut));
    let read = process.get(&cart_key("c")).await.unwrap_err();
    let write = process.write(set_line("c", "P", 1), Revision::ZERO).await;
    let write = write.unwrap_err();
    for refusal in [read, write] {
        assert_eq!(refusal, RouterError::Lease(LeaseError::RanOut));
        assert_eq!(refusal.remedy(), Remedy::Retry);
    }
    assert_eq!(shop.shard("a").sent().len(), 1, "only the cart was created");

    keep(&process);
    everyone_waits().await;
    assert_eq!(process.lease(), Some(LeaseState::Runs { term: Term(2) }));
    written(&process, set_line("c", "P", 1)).await;
    passes(LEASE * 5).await;
    assert_eq!(process.lease(), Some(LeaseState::Runs { term: Term(2) }));
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_counts_only_while_the_lease_runs() {
    let shop = shop_by_lease().await;
    let process = shop.leased_router("one").await;
    let gate = shop.shard("a").gate_answers();
    let writing = write_later(&process, 7);
    gate.someone_arrived().await;
    passes(LEASE).await;
    shop.shard("a").ungate();
    gate.let_one_through();
    let error = writing.await.unwrap().unwrap_err();
    assert!(
        matches!(error, RouterError::OutcomeUnknown { .. }),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_late_read_counts_only_while_the_lease_runs() {
    let shop = shop_by_lease().await;
    let process = shop.leased_router("one").await;
    let gate = shop.shard("a").gate_answers();
    let reader = process.clone();
    let reading = tokio::spawn(async move { reader.get(&cart_key("c")).await });
    gate.someone_arrived().await;
    passes(LEASE).await;
    shop.shard("a").ungate();
    gate.let_one_through();
    let error = reading.await.unwrap().unwrap_err();
    assert_eq!(error, RouterError::Lease(LeaseError::RanOut));
}

#[tokio::test(start_paused = true)]
async fn a_new_generation_is_acknowledged_only_when_nothing_older_is_under_way() {
    let shop = shop_by_lease().await;
    let process = shop.leased_router("one").await;
    keep(&process);
    let gate = shop.shard("a").gate_answers();
    let writing = write_later(&process, 1);
    gate.someone_arrived().await;
    let frozen = publish(&shop, &freeze()).await;
    let waiting = wait_later(&shop, frozen);
    passes(Duration::from_secs(3)).await;

    assert_eq!(process.map().generation, frozen, "it has seen the new map");
    let lease = the_lease(&shop).await;
    assert_eq!(lease.generation, Generation(1), "and does not say so yet");
    assert!(!waiting.is_finished());

    shop.shard("a").ungate();
    gate.let_one_through();
    everyone_waits().await;
    assert_eq!(the_lease(&shop).await.generation, frozen);
    waiting.await.unwrap().unwrap();
    assert!(!writing.is_finished(), "its keys are frozen: it is held");
    writing.abort();
}

#[tokio::test(start_paused = true)]
async fn a_lease_runs_from_the_moment_its_renewal_was_sent() {
    let shop = shop_by_lease().await;
    let process = shop.leased_router("one").await;
    let gate = shop.control.gate_answers();
    keep(&process);
    gate.someone_arrived().await;
    passes(LEASE - Duration::from_secs(1)).await;
    gate.let_one_through();
    everyone_waits().await;
    assert_eq!(process.lease(), Some(LeaseState::Runs { term: Term(1) }));
    passes(Duration::from_secs(1)).await;
    assert_eq!(process.lease(), Some(LeaseState::RanOut));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_answered_too_late_brings_no_term_back() {
    let shop = shop_by_lease().await;
    let process = shop.leased_router("one").await;
    keep(&process);
    passes(Duration::from_secs(10)).await;
    let gate = shop.control.gate_answers();
    gate.someone_arrived().await;
    // The renewal stands in the table, its own 30 seconds are not over, but the
    // former ones are: a judge may have gone on before it got there.
    passes(Duration::from_millis(29_500)).await;
    assert_eq!(process.lease(), Some(LeaseState::RanOut));
    shop.control.ungate();
    gate.let_one_through();
    everyone_waits().await;
    assert_eq!(process.lease(), Some(LeaseState::Runs { term: Term(2) }));
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_goes_on_when_a_silent_process_has_run_out_by_the_waiters_clock() {
    let shop = shop_by_lease().await;
    let (silent, talking) = (
        shop.leased_router("silent").await,
        shop.leased_router("talking").await,
    );
    keep(&talking);
    let frozen = publish(&shop, &freeze()).await;
    let waiting = wait_later(&shop, frozen);
    passes(LEASE).await;
    assert_eq!(silent.lease(), Some(LeaseState::RanOut), "it knows first");
    passes(LEASE / 20 - Duration::from_millis(100)).await;
    assert!(!waiting.is_finished(), "the margin is not over");
    passes(Duration::from_millis(200)).await;
    assert!(waiting.is_finished());
    waiting.await.unwrap().unwrap();
    assert_eq!(talking.lease(), Some(LeaseState::Runs { term: Term(2) }));
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_in_vain_is_told_for_whom() {
    let shop = shop_by_lease().await;
    let process = shop.leased_router("behind").await;
    keep(&process);
    let gate = shop.shard("a").gate_answers();
    let writing = write_later(&process, 1);
    gate.someone_arrived().await;
    let frozen = publish(&shop, &freeze()).await;
    let patience = Duration::from_secs(2);
    let error = judge(&shop).wait_for(frozen, patience).await.unwrap_err();
    let expected = LeaseError::Behind {
        behind: "behind".to_owned(),
        generation: frozen,
        patience_ms: 2_000,
    };
    assert_eq!(error, expected);
    writing.abort();
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_lease_that_was_given_up() {
    let shop = shop_by_lease().await;
    let process = shop.leased_router("one").await;
    process.give_up_lease().await.unwrap();
    assert_eq!(process.lease(), Some(LeaseState::RanOut));
    assert_eq!(the_lease(&shop).await.standing, Standing::GivenUp);
    let frozen = publish(&shop, &freeze()).await;
    judge(&shop).wait_for(frozen, Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn frozen_keys_are_read_where_the_newest_map_says() {
    let shop = shop_by_lease().await;
    written(&shop.router, set_line("c", "P", 1)).await;
    let process = shop.leased_router("one").await;
    let kept = keep(&process);
    let frozen = publish(&shop, &freeze()).await;
    judge(&shop).wait_for(frozen, PATIENCE).await.unwrap();
    kept.abort();
    carry_cart(&shop).await;
    publish(&shop, &cut_over()).await;
    written(&shop.router, set_line("c", "P", 2)).await;

    assert_eq!(process.map().generation, frozen, "it has not heard of it");
    assert_eq!(quantity_at(&process).await, Some(2));
}

/// The whole of it: a process stands still in the middle of a write, the keys
/// are moved without it, and it goes on.
#[tokio::test(start_paused = true)]
async fn a_process_that_stood_still_during_a_move_makes_no_acknowledged_write_disappear() {
    let shop = shop_by_lease().await;
    let process = shop.leased_router("sleeper").await;
    let kept = keep(&process);
    written(&process, set_line("c", "P", 1)).await;
    everyone_waits().await;
    let gate = shop.shard("a").gate_answers();
    let writing = write_later(&process, 2);
    gate.someone_arrived().await;
    kept.abort();
    shop.shard("a").ungate();

    let frozen = publish(&shop, &freeze()).await;
    judge(&shop).wait_for(frozen, PATIENCE).await.unwrap();
    carry_cart(&shop).await;
    publish(&shop, &cut_over()).await;
    let newest = written(&shop.router, set_line("c", "P", 3)).await;

    // Awake again, with an answer from before in its hands.
    gate.let_one_through();
    keep(&process);
    let late = writing.await.unwrap();
    match late {
        Ok(late) => assert_eq!(late.generation, Generation(3), "sent again, to the target"),
        Err(error) => assert_eq!(error.remedy(), Remedy::ReadBack, "{error}"),
    }
    let cart = shop.router.get(&cart_key("c")).await.unwrap().unwrap();
    assert_eq!(quantity(&cart, "P"), Some(3));
    assert_eq!(cart.newest_revision(), newest.revision);
    assert_eq!(quantity_at(&process).await, Some(3));
}

/// Nobody waits for a process whose lease has run out: the map it slept with may be any.
#[tokio::test(start_paused = true)]
async fn a_new_term_begins_under_the_map_that_stands_then() {
    let shop = shop_by_lease().await;
    written(&shop.router, set_line("c", "P", 1)).await;
    let process = shop.leased_router("sleeper").await;
    let frozen = publish(&shop, &freeze()).await;
    judge(&shop).wait_for(frozen, PATIENCE).await.unwrap();
    carry_cart(&shop).await;
    let moved = publish(&shop, &cut_over()).await;
    written(&shop.router, set_line("c", "P", 2)).await;
    assert_eq!(process.lease(), Some(LeaseState::RanOut));
    assert_eq!(process.map().generation, Generation(1));

    keep(&process);
    everyone_waits().await;
    assert_eq!(process.lease(), Some(LeaseState::Runs { term: Term(2) }));
    assert_eq!(process.map().generation, moved);
    assert_eq!(quantity_at(&process).await, Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_number_is_given_out_again_only_when_it_has_rested() {
    let shop = shop_by_lease().await;
    let keeper = shop.leased_router("keeper").await;
    keep(&keeper);
    let mut numbers = BTreeSet::new();
    for process in 1..64 {
        let router = shop.leased_router(&format!("p{process}")).await;
        let written = written(&router, set_line("c", "P", process)).await;
        numbers.insert(written.revision.writer());
    }
    assert_eq!(numbers.len(), 63);
    let open_one_more = || async {
        let process = ProcessName::new("one-more").unwrap();
        let view = MapView::Lease { process };
        Router::open(shop.second_config(view)).await
    };
    let ends = LEASE + LEASE / 20;
    passes(ends + Duration::from_secs(58)).await;
    let refused = open_one_more().await.unwrap_err();
    assert_eq!(
        refused,
        RouterError::Lease(LeaseError::NoWriterLeft { writers_max: 64 })
    );
    passes(Duration::from_secs(4)).await;
    let late = open_one_more().await.unwrap();
    let late = written(&late, set_line("c", "P", 100)).await;
    assert!(numbers.contains(&late.revision.writer()));
}

/// A cutover waits for acknowledgements behind its freeze: who has its notice looks often, but not for ever.
#[tokio::test(start_paused = true)]
async fn after_a_notice_the_next_map_is_looked_for_often_for_a_while() {
    let shop = shop_by_lease().await;
    let process = shop.leased_router("one").await;
    keep(&process);
    everyone_waits().await;
    let notice = shop.router.map().edited(&[]).unwrap().noticing();
    let notice = shop.router.publish(notice).await.unwrap();
    passes(Duration::from_millis(300)).await;
    assert_eq!(the_lease(&shop).await.generation, notice);

    let frozen = publish(&shop, &freeze()).await;
    passes(Duration::from_millis(6)).await;
    assert_eq!(the_lease(&shop).await.generation, frozen);
    let given = publish(&shop, &cut_over()).await;
    passes(Duration::from_millis(6)).await;
    assert_eq!(
        process.map().generation,
        given,
        "its shoppers waited for it"
    );

    let notice = shop.router.map().edited(&[]).unwrap().noticing();
    shop.router.publish(notice).await.unwrap();
    passes(Duration::from_secs(20)).await;
    let reads = shop.control.reads();
    passes(Duration::from_secs(1)).await;
    let looks = shop.control.reads() - reads;
    assert!(
        looks <= 8,
        "a notice that was forgotten costs {looks} looks a second"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_says_which_shards_its_process_has_and_soon_which_came_later() {
    let shop = shop_by_lease().await;
    let process = shop.leased_router("one").await;
    let late = named("late");
    let before = the_lease(&shop).await;
    assert!(before.shards.contains(&named("a")) && before.lacks(&late));
    let keeping = keep(&process);
    passes(Duration::from_millis(1)).await;
    process.add_shard(late.clone(), Shard::new()).unwrap();
    // Long before the lease would be renewed anyway.
    passes(Duration::from_millis(Limits::default().lease_look_ms * 2)).await;
    assert!(!the_lease(&shop).await.lacks(&late));
    keeping.abort();
}
