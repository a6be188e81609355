//! Movers that die at each of their calls in turn, and movers that wake up too late.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use engine_api::{Engine, FenceKind, JournalEvent, Patience, Position, RowFault, Stray};
use layout::Collection;
use mover::{Mover, Pass, Plan, Wish, certificate, status};
use support::{Shop, Stop, Wire, cart_key, moving_cart, name};
use tokio::sync::Semaphore;

/// Longer than any step of a move takes here: who has not moved on by then is dead.
const UNTIL_STUCK: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(35);

/// How far the first mover got before it died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Died,
    Arrived,
}

/// A move from `from` to `to` by a mover that dies after so many calls, and by another one.
async fn one_dies(
    fence: FenceKind,
    stop: Stop,
    calls: i64,
    story: (&[&str], Wish, &str, &str),
) -> Fate {
    let (before, wish, from, to) = story;
    let shop = Shop::fenced(fence).await;
    let writers = shop.writers_every(PAUSE);
    shop.start().await;
    let wire = Wire::of(i64::MAX, stop);
    let mut first = shop.mover_over(&wire);
    for phase in before {
        match *phase {
            "settling" => shop.cut_over(&mut first).await,
            phase => shop.drive(&mut first, phase).await,
        }
    }
    wire.cut_after(calls);
    let moving = shop.insist(&mut first, wish, from, to);
    let _ = tokio::time::timeout(UNTIL_STUCK, moving).await;
    let fate = match wire.is_cut() {
        true => Fate::Died,
        false => Fate::Arrived,
    };
    drop(first);
    let mut second = shop.mover();
    shop.insist(&mut second, wish, from, to).await;
    tokio::time::sleep(PAUSE * 3).await;
    writers.stop().await;
    shop.judge(&format!("{fence:?}, {stop:?} call {calls} to {to}"))
        .await;
    fate
}

async fn at_each_call(
    fence: FenceKind,
    stride: usize,
    story: (&[&str], Wish, &str, &str),
) -> usize {
    let mut deaths = 0;
    for stop in [Stop::Before, Stop::After] {
        for calls in (0..).step_by(stride) {
            if one_dies(fence, stop, calls, story).await == Fate::Arrived {
                break;
            }
            deaths += 1;
        }
    }
    deaths
}

#[tokio::test(start_paused = true)]
async fn wherever_a_mover_dies_on_the_way_to_ready_another_goes_on() {
    let story = (&[][..], Wish::Cutover, "never", "ready");
    let deaths = at_each_call(FenceKind::InStore, 2, story).await;
    assert!(deaths > 60, "{deaths}");
}

#[tokio::test(start_paused = true)]
async fn wherever_a_mover_dies_in_a_cutover_nothing_is_lost() {
    let story = (&["ready"][..], Wish::Cutover, "ready", "settling");
    let deaths = at_each_call(FenceKind::InStore, 1, story).await;
    assert!(deaths > 60, "{deaths}");
}

#[tokio::test(start_paused = true)]
async fn wherever_a_mover_dies_in_a_cutover_by_lease_nothing_is_lost() {
    let story = (&["ready"][..], Wish::Cutover, "ready", "settling");
    let deaths = at_each_call(FenceKind::ByLease, 1, story).await;
    assert!(deaths > 60, "{deaths}");
}

#[tokio::test(start_paused = true)]
async fn wherever_a_mover_dies_in_a_rollback_nothing_is_lost() {
    let story = (&["settling"][..], Wish::Rollback, "settling", "rolled back");
    let deaths = at_each_call(FenceKind::InStore, 1, story).await;
    assert!(deaths > 60, "{deaths}");
}

/// Between the pages of a cleaning too.
#[tokio::test(start_paused = true)]
async fn wherever_a_mover_dies_while_it_cleans_up_another_goes_on() {
    for fence in [FenceKind::InStore, FenceKind::ByLease] {
        let story = (&["settling"][..], Wish::Complete, "settling", "cleaned up");
        let deaths = at_each_call(fence, 1, story).await;
        assert!(deaths > 30, "{deaths}");
    }
}

/// Answers get lost, of writes that happened: everything a mover does may be done again.
#[tokio::test(start_paused = true)]
async fn a_mover_behind_a_bad_cable_gets_there_and_back() {
    for every in [97, 41, 23] {
        let shop = Shop::open().await;
        let writers = shop.writers_every(PAUSE);
        shop.start().await;
        let wire = Wire::endless();
        wire.lose_every(every);
        let mut mover = shop.mover_over(&wire);
        shop.insist(&mut mover, Wish::Cutover, "ready", "settling")
            .await;
        assert_eq!(shop.owner().await, "target");
        shop.insist(&mut mover, Wish::Rollback, "settling", "rolled back")
            .await;
        writers.stop().await;
        shop.judge(&format!("one answer in {every} was lost")).await;
    }
}

/// A mover stopped before a call of this name, once the cutover was noticed.
async fn stopped_before(shop: &Shop, call: &str, skip: usize) -> (Arc<Semaphore>, Sleeping) {
    let plan = Plan {
        freeze_ms_max: 60_000,
        ..shop.plan()
    };
    shop.start_with(plan).await;
    let wire = Wire::endless();
    let mut mover = shop.mover_over(&wire);
    shop.drive(&mut mover, "ready").await;
    shop.ask(Wish::Cutover).await;
    shop.drive(&mut mover, "noticed").await;
    for _ in 0..skip {
        wire.before(call, || async {});
    }
    let (gate, arrived) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (waits, tells) = (gate.clone(), arrived.clone());
    let process = wire.clone();
    wire.before(call, || async move {
        let _still = process.stand_still().await;
        tells.add_permits(1);
        waits.acquire().await.unwrap().forget();
    });
    let sleeping = tokio::spawn(async move {
        loop {
            match mover.pass().await {
                Ok(Pass::Behind | Pass::Waiting { .. }) => {}
                ended => return (mover, ended.map_err(|error| error.to_string())),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    arrived.acquire().await.unwrap().forget();
    (gate, sleeping)
}

type Sleeping = tokio::task::JoinHandle<(Mover, Result<Pass, String>)>;

/// Another takes over and gives the freeze up; then the sleeper wakes.
async fn the_sleeper_changes_nothing(shop: &Shop, gate: &Semaphore, sleeping: Sleeping) {
    let mut second = shop.mover();
    shop.drive(&mut second, "verifying").await;
    let thawed = shop.map().await.generation;
    gate.add_permits(1);
    let (mut first, ended) = sleeping.await.unwrap();
    let told = ended.unwrap_err();
    assert!(told.contains("another process has taken"), "{told}");
    assert_eq!(shop.map().await.generation, thawed, "it published nothing");
    assert!(!shop.is_frozen().await);
    assert_eq!(first.pass().await.unwrap(), Pass::Watching);
    shop.cut_over(&mut second).await;
    assert_eq!(shop.owner().await, "target");
}

async fn fences(shop: &Shop) -> usize {
    let start = Position(0u64.to_be_bytes().to_vec());
    let page = shop.source.journal_read(&start, 10_000).await.unwrap();
    let fenced = |event: &JournalEvent| matches!(event, JournalEvent::Fenced { .. });
    page.entries.iter().filter(|it| fenced(&it.event)).count()
}

/// W21: the term that the second mover claimed refuses the first one's fence.
#[tokio::test(start_paused = true)]
async fn a_displaced_mover_raises_no_fence() {
    let shop = Shop::open().await;
    let (gate, sleeping) = stopped_before(&shop, "source.raise_fence", 0).await;
    let writers = shop.writers_every(PAUSE);
    the_sleeper_changes_nothing(&shop, &gate, sleeping).await;
    assert_eq!(fences(&shop).await, 1, "that of the second mover alone");
    writers.stop().await;
    shop.judge("displaced at the fence").await;
}

/// W20: a freeze that was offered and not heard of finds another map.
#[tokio::test(start_paused = true)]
async fn a_freeze_that_arrives_after_the_move_was_taken_over_freezes_nothing() {
    let shop = Shop::open().await;
    let (gate, sleeping) = stopped_before(&shop, "control.set.map", 0).await;
    assert_eq!(shop.phase().await, "frozen");
    assert!(!shop.is_frozen().await, "it is on its way");
    let writers = shop.writers_every(PAUSE);
    the_sleeper_changes_nothing(&shop, &gate, sleeping).await;
    writers.stop().await;
    shop.judge("displaced at the freeze").await;
}

/// Shoppers are not to wait for a server that nobody may bring back: the freeze is given up by the source alone, where
/// the one before could still raise its fence (W21).
#[tokio::test(start_paused = true)]
async fn keys_are_thawed_although_their_target_is_gone_too() {
    let shop = Shop::open().await;
    let (gate, sleeping) = stopped_before(&shop, "source.raise_fence", 0).await;
    assert!(shop.is_frozen().await);
    let wire = Wire::endless();
    wire.lose("target");
    let mut second = shop.mover_over(&wire);
    shop.drive(&mut second, "verifying").await;
    assert!(!shop.is_frozen().await);
    assert_eq!(shop.owner().await, "source");
    gate.add_permits(1);
    let (_, ended) = sleeping.await.unwrap();
    let told = ended.unwrap_err();
    assert!(told.contains("another process has taken"), "{told}");
    assert_eq!(fences(&shop).await, 0, "it raised its fence after all");
    shop.write(moving_cart(), 50, 1).await;
    shop.judge("thawed without the target").await;
}

/// Nothing has changed for shoppers yet. What stands in the way is told meanwhile, and whose the move is does not change.
#[tokio::test(start_paused = true)]
async fn a_move_whose_target_is_gone_is_given_up_by_whoever_takes_it_over() {
    let shop = Shop::open().await;
    shop.start().await;
    let mut first = shop.mover();
    shop.drive(&mut first, "catching up").await;
    drop(first);
    let wire = Wire::endless();
    wire.lose("target");
    let mut second = shop.mover_over(&wire);
    let until = tokio::time::Instant::now() + UNTIL_STUCK * 3;
    while tokio::time::Instant::now() < until {
        let _ = second.pass().await;
        tokio::time::sleep(PAUSE).await;
    }
    let stands = status(shop.control.as_ref(), &name()).await.unwrap();
    let trouble = stands.state.shown.trouble.unwrap();
    assert!(trouble.contains("target: the engine is not"), "{trouble}");
    assert_eq!((stands.term, stands.state.phase.name()), (2, "catching up"));
    let mut third = shop.mover_over(&wire);
    assert_eq!(third.pass().await.unwrap(), Pass::Watching);
    let map = shop.map().await;
    shop.ask(Wish::Abort).await;
    shop.drive(&mut second, "aborted").await;
    assert_eq!(shop.map().await, map, "nobody had to hear of it");
    shop.judge("aborted without the target").await;
}

/// Likewise the cutover itself, proven and all.
#[tokio::test(start_paused = true)]
async fn a_cutover_that_arrives_after_the_move_was_taken_over_moves_nothing() {
    let shop = Shop::open().await;
    let (gate, sleeping) = stopped_before(&shop, "control.set.map", 1).await;
    assert!(shop.is_frozen().await);
    let writers = shop.writers_every(PAUSE);
    the_sleeper_changes_nothing(&shop, &gate, sleeping).await;
    writers.stop().await;
    shop.judge("displaced at the cutover").await;
}

/// The map is published, the process dies before it says so: whoever comes finds the map.
#[tokio::test(start_paused = true)]
async fn a_cutover_whose_mover_died_right_after_it_is_recognised() {
    let shop = Shop::open().await;
    let call = "control.set.certificate-half-the-carts-cutover";
    let (_gate, sleeping) = stopped_before(&shop, call, 0).await;
    assert_eq!(shop.owner().await, "target");
    let published = shop.map().await.generation;
    sleeping.abort();
    let mut second = shop.mover();
    shop.drive(&mut second, "settling").await;
    assert_eq!(
        shop.map().await.generation,
        published,
        "nothing more was published"
    );
    let phase = shop.state().await.phase;
    assert_eq!(support::generation_of(&phase), Some(published));
    let control = shop.control.as_ref();
    let found = certificate(control, &name(), mover::Direction::Cutover).await;
    let found = found.unwrap().unwrap();
    assert!(found.verify());
    assert_eq!(found.content.freeze_ms, None, "nobody knows any more");
    shop.ask(Wish::Rollback).await;
    shop.drive(&mut second, "rolled back").await;
    shop.judge("recognised, and rolled back").await;
}

/// An image that a mover died over has left a row, and is another one when the next mover brings it.
#[tokio::test(start_paused = true)]
async fn rows_that_a_dead_mover_left_are_dropped_and_later_ones_are_named() {
    let shop = Shop::open().await;
    shop.start().await;
    let wire = Wire::endless();
    let mut first = shop.mover_over(&wire);
    shop.drive(&mut first, "backfilling").await;
    drop(first);
    let too_many = stray(RowFault::Outgrown);
    wire.stray_on("target", too_many.clone());
    let mut second = shop.mover_over(&wire);
    shop.drive(&mut second, "ready").await;
    assert!(!wire.has_strays(), "the row is still there");
    // Nobody has died since: this one is somebody's doing.
    wire.stray_on("target", too_many.clone());
    shop.drive(&mut second, "verifying").await;
    for _ in 0..100 {
        second.pass().await.unwrap();
        tokio::time::sleep(PAUSE).await;
    }
    assert_eq!(shop.phase().await, "verifying");
    assert_eq!(shop.state().await.shown.differing, [too_many.to_string()]);
}

/// Of a change at the source whose process died before its rows followed. Nothing changes the record afterwards, so that
/// no image brings the row along.
#[tokio::test(start_paused = true)]
async fn rows_that_a_dead_shopper_left_at_the_source_do_not_keep_a_move_from_being_rolled_back() {
    let shop = Shop::open().await;
    shop.start().await;
    let wire = Wire::endless();
    wire.stray_on("source", stray(RowFault::Altered));
    let mut mover = shop.mover_over(&wire);
    shop.cut_over(&mut mover).await;
    assert!(wire.has_strays(), "nobody looks where everything is left");
    shop.ask(Wish::Rollback).await;
    shop.drive(&mut mover, "rolled back").await;
    assert!(!wire.has_strays(), "the row is as it was");
    shop.judge("rolled back").await;
}

/// The target was served before, or an earlier move of the same records was rolled back, and a process died there.
#[tokio::test(start_paused = true)]
async fn rows_that_were_left_at_the_target_before_a_move_do_not_keep_it_from_being_ready() {
    for fault in [RowFault::Outgrown, RowFault::Altered] {
        let shop = Shop::open().await;
        shop.start().await;
        let wire = Wire::endless();
        wire.stray_on("target", stray(fault));
        let mut mover = shop.mover_over(&wire);
        shop.drive(&mut mover, "ready").await;
        assert!(!wire.has_strays(), "the row is still there");
    }
}

fn stray(fault: RowFault) -> Stray {
    Stray {
        collection: Collection::Carts,
        id: cart_key(1).id,
        table: "carts_by_user".to_owned(),
        fault,
        patience: Patience::Without,
        row: b"a row".to_vec(),
    }
}
