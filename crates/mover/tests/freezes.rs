//! What a freeze waits for, when it is not begun, and what it is given up for.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use engine_api::{ChangeKind, FenceKind, JournalEvent, Revision, World, Writer};
use mover::{Direction, FREEZE_MS_MAX, Wish, ask_within, certificate};
use support::{Shop, Wire, cart_key, keep, moving_cart, name, pass_for};

#[tokio::test(start_paused = true)]
async fn a_freeze_past_its_budget_is_given_up_and_writers_go_on() {
    let shop = Shop::open().await;
    shop.start().await;
    let wire = Wire::endless();
    let mut mover = shop.mover_over(&wire);
    shop.drive(&mut mover, "ready").await;
    shop.ask(Wish::Cutover).await;
    shop.drive(&mut mover, "noticed").await;
    let writers = shop.writers();
    wire.before("source.raise_fence", || {
        tokio::time::sleep(Duration::from_secs(30))
    });
    shop.drive(&mut mover, "verifying").await;
    let given_up = shop.state().await.given_up.unwrap();
    assert!(given_up.why.contains("budget of 100 ms"), "{given_up:?}");
    let freeze_ms = given_up.freeze_ms.unwrap();
    assert!((100..110).contains(&freeze_ms), "{freeze_ms}");
    assert_eq!(shop.owner().await, "source");
    shop.write(moving_cart(), 50, 1).await;
    // A second attempt comes through.
    shop.cut_over(&mut mover).await;
    writers.stop().await;
    shop.judge("at the second attempt").await;
}

/// W16: where the store fences nobody writes behind the seal, but who has not heard of the freeze still reads there.
#[tokio::test(start_paused = true)]
async fn keys_are_not_given_away_before_everybody_has_heard_of_the_freeze() {
    let shop = Shop::open().await;
    let reader = shop.second_router("reader").await;
    let keeping = keep(&reader);
    shop.start().await;
    let wire = Wire::endless();
    let mut mover = shop.mover_over(&wire);
    shop.drive(&mut mover, "ready").await;
    shop.ask(Wish::Cutover).await;
    shop.drive(&mut mover, "noticed").await;
    // It was heard of a moment ago, and stands still when the keys are frozen.
    wire.before("source.raise_fence", || async move { keeping.abort() });
    shop.drive(&mut mover, "verifying").await;
    let state = shop.state().await;
    let given_up = state.given_up.unwrap();
    assert!(given_up.why.contains("budget of 100 ms"), "{given_up:?}");
    let parts = state.shown.freeze_parts;
    assert!(parts.proof_us.is_some(), "{parts:?}");
    assert_eq!(parts.leases_us, None);
    assert_eq!(shop.owner().await, "source");
    // Without it the next attempt comes through.
    shop.cut_over(&mut mover).await;
}

/// E18: an entry whose change was never made must not keep a move from its cutover for long.
#[tokio::test(start_paused = true)]
async fn behind_the_seal_an_entry_that_nothing_shows_is_not_waited_for() {
    let shop = Shop::fenced(FenceKind::ByLease).await;
    shop.start().await;
    let wire = Wire::endless();
    let mut mover = shop.mover_over(&wire);
    shop.drive(&mut mover, "ready").await;
    let (seal, never) = (wire.clone(), shop.world.now());
    wire.before("source.journal_end", move || async move {
        seal.announce(JournalEvent::Changed {
            key: cart_key(moving_cart()),
            kind: ChangeKind::Written,
            revision: Revision::at(never, Writer::numbered(9)),
        });
    });
    shop.ask(Wish::Cutover).await;
    shop.drive(&mut mover, "settling").await;
    let state = shop.state().await;
    assert_eq!(state.given_up, None);
    let parts = state.shown.freeze_parts;
    assert!(
        parts.drain_us >= Some(25_000),
        "it was waited for: {parts:?}"
    );
}

/// E18: where an entry comes before its change, one is always under way while shoppers buy, and one that a process died over
/// waits for ten minutes.
#[tokio::test(start_paused = true)]
async fn an_entry_that_nothing_shows_yet_does_not_keep_a_move_from_being_ready() {
    let shop = Shop::fenced(FenceKind::ByLease).await;
    shop.start().await;
    let wire = Wire::endless();
    let mut mover = shop.mover_over(&wire);
    shop.drive(&mut mover, "backfilling").await;
    wire.announce(JournalEvent::Changed {
        key: cart_key(moving_cart()),
        kind: ChangeKind::Written,
        revision: Revision::at(shop.world.now(), Writer::numbered(9)),
    });
    shop.drive(&mut mover, "ready").await;
    assert_eq!(shop.state().await.shown.lag_entries, 1, "it still waits");
    shop.cut_over(&mut mover).await;
    assert!(shop.world.elapsed() < Duration::from_secs(60));
}

/// A freeze that would not fit is not begun; the wish stands until it does.
#[tokio::test(start_paused = true)]
async fn nothing_is_frozen_while_the_stores_are_too_slow_for_the_budget() {
    let shop = Shop::open().await;
    shop.start().await;
    let wire = Wire::endless();
    let mut mover = shop.mover_over(&wire);
    shop.drive(&mut mover, "ready").await;
    wire.slow_down(30);
    shop.ask(Wish::Cutover).await;
    let mut put_off = 0;
    for _ in 0..600 {
        mover.pass().await.unwrap();
        assert!(!shop.is_frozen().await);
        put_off += u32::from(shop.phase().await == "noticed");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(put_off > 0, "it came as far as the notice");
    let state = shop.state().await;
    assert_eq!(state.wish, Some(Wish::Cutover), "it stands");
    let why = state.given_up.unwrap().why;
    assert!(
        why.contains("would take about") && why.contains("budget is 100 ms"),
        "{why}"
    );
    let forecast = state.shown.forecast.unwrap();
    assert!(forecast.total_us > 100_000, "{forecast:?}");
    wire.slow_down(0);
    shop.drive(&mut mover, "settling").await;
    let state = shop.state().await;
    assert!(state.shown.forecast.unwrap().total_us < 100_000);
    assert!(state.shown.freeze_ms.unwrap() <= 100);
}

/// Who leaves a shard because it is slow would never get away within a budget that was made for a fast one.
#[tokio::test(start_paused = true)]
async fn a_rollback_from_stores_that_are_too_slow_for_the_budget_is_given_a_larger_one() {
    let shop = Shop::open().await;
    shop.start().await;
    let wire = Wire::endless();
    let mut mover = shop.mover_over(&wire);
    shop.cut_over(&mut mover).await;
    let control = shop.control.as_ref();
    for budget in [0, FREEZE_MS_MAX + 1] {
        let refused = ask_within(control, &name(), Wish::Rollback, Some(budget)).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("choose 1 to"), "{refused}");
        assert_eq!(shop.state().await.wish, None, "nothing is asked for");
    }
    wire.slow_down(30);
    shop.ask(Wish::Rollback).await;
    pass_for(&mut mover, Duration::from_secs(60), async || {
        assert!(!shop.is_frozen().await);
    })
    .await;
    let why = shop.state().await.given_up.unwrap().why;
    assert!(why.contains("another --freeze-ms-max"), "{why}");
    // Just being announced, it takes no wish.
    shop.drive(&mut mover, "settling").await;
    let asked = ask_within(control, &name(), Wish::Rollback, Some(20_000)).await;
    asked.unwrap();
    shop.drive(&mut mover, "rolled back").await;
    let certificate = certificate(control, &name(), Direction::Rollback).await;
    let content = certificate.unwrap().unwrap().content;
    assert_eq!(content.plan.freeze_ms_max, 20_000);
    assert!(content.freeze_ms > Some(100), "{content:?}");
}

/// A notice that waited long for a process that died is given anew: nobody looks often because of it any more.
#[tokio::test(start_paused = true)]
async fn nothing_is_frozen_on_a_notice_that_everybody_has_forgotten() {
    let shop = Shop::open().await;
    shop.start().await;
    let mut mover = shop.mover();
    shop.drive(&mut mover, "ready").await;
    shop.ask(Wish::Cutover).await;
    shop.drive(&mut mover, "noticed").await;
    let first = shop.map().await.generation;
    assert!(shop.map().await.followed_soon);
    tokio::time::sleep(Duration::from_secs(6)).await;
    shop.drive(&mut mover, "settling").await;
    let control = shop.control.as_ref();
    let certificate = certificate(control, &name(), Direction::Cutover).await;
    let generations = certificate.unwrap().unwrap().content.generations;
    assert!(generations.noticed > first, "{generations:?}");
    assert!(!shop.map().await.followed_soon);
}

/// Where the budget ends while the proof is kept, the map is not published any more.
#[tokio::test(start_paused = true)]
async fn a_proof_that_comes_too_late_is_not_used() {
    let shop = Shop::open().await;
    shop.start().await;
    let wire = Wire::endless();
    let mut mover = shop.mover_over(&wire);
    shop.drive(&mut mover, "ready").await;
    shop.ask(Wish::Cutover).await;
    shop.drive(&mut mover, "noticed").await;
    // The save before the freeze, then the one that keeps the proof.
    wire.before("control.set.move-half-the-carts", || async {});
    wire.before("control.set.move-half-the-carts", || {
        tokio::time::sleep(Duration::from_millis(150))
    });
    shop.drive(&mut mover, "verifying").await;
    let given_up = shop.state().await.given_up.unwrap();
    assert!(given_up.why.contains("budget of 100 ms"), "{given_up:?}");
    assert_eq!(shop.owner().await, "source");
    shop.judge("given up").await;
}
