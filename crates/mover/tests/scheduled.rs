//! Cutovers that nobody has to stay up for. The shop's clock begins at 22:13 UTC.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use mover::{CutoverTime, Mover, Pace, TimeOfDay, Wish, set_cutover_time, set_pace};
use support::{Shop, name};

async fn set(shop: &Shop, time: Option<CutoverTime>) {
    set_cutover_time(shop.control.as_ref(), &name(), time)
        .await
        .unwrap();
}

fn at(text: &str) -> Option<CutoverTime> {
    Some(CutoverTime::At(TimeOfDay::parse(text).unwrap()))
}

/// Passes for a while; where the move stands then.
async fn after_a_while(shop: &Shop, mover: &mut Mover) -> &'static str {
    for _ in 0..30 {
        mover.pass().await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    shop.phase().await
}

#[tokio::test(start_paused = true)]
async fn a_move_cuts_over_by_itself_when_it_is_ready_and_only_once() {
    let shop = Shop::open().await;
    let writers = shop.writers();
    shop.start().await;
    set(&shop, Some(CutoverTime::WhenReady)).await;
    let mut mover = shop.mover();
    shop.drive(&mut mover, "settling").await;
    assert_eq!(shop.owner().await, "target");
    assert_eq!(shop.state().await.cutover_time, None, "it is spent");
    writers.stop().await;
    shop.judge("cut over by itself").await;

    let name = name();
    let late = set_cutover_time(shop.control.as_ref(), &name, at("03:00"));
    let refused = late.await.unwrap_err().to_string();
    assert!(refused.contains("has cut over already"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_ready_move_waits_for_its_time_of_day() {
    let shop = Shop::open().await;
    shop.start().await;
    set(&shop, at("23:30")).await;
    let mut mover = shop.mover();
    shop.drive(&mut mover, "ready").await;
    assert_eq!(after_a_while(&shop, &mut mover).await, "ready");
    tokio::time::sleep(Duration::from_secs(77 * 60)).await;
    shop.drive(&mut mover, "settling").await;
}

#[tokio::test(start_paused = true)]
async fn a_cutover_time_that_was_withdrawn_or_paused_does_not_count() {
    let shop = Shop::open().await;
    shop.start().await;
    set(&shop, at("22:00")).await;
    set(&shop, None).await;
    let mut mover = shop.mover();
    shop.drive(&mut mover, "ready").await;
    assert_eq!(after_a_while(&shop, &mut mover).await, "ready");

    let control = shop.control.as_ref();
    set_pace(control, &name(), Pace::Paused).await.unwrap();
    set(&shop, Some(CutoverTime::WhenReady)).await;
    assert_eq!(after_a_while(&shop, &mut mover).await, "ready");
    set_pace(control, &name(), Pace::Running).await.unwrap();
    shop.drive(&mut mover, "settling").await;
    shop.ask(Wish::Complete).await;
    shop.drive(&mut mover, "completed").await;
}
