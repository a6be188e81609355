//! Writes that rest on what was read after their number was drawn.

#![allow(clippy::unwrap_used)] // a story ends where something unforeseen happens

mod support;

use engine_api::{Change, Outcome, Revision};
use support::*;

/// Somebody looks and finds no cart; before it makes one, another comes and goes.
#[tokio::test(start_paused = true)]
async fn what_came_and_went_since_the_number_was_drawn_refuses() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    let other = shop.second_router(Default::default()).await;
    let number = shop
        .router
        .number([&cart_key("c")], Revision::ZERO)
        .unwrap();

    let made = written(&other, create_cart("c")).await;
    let removal = Change::Remove {
        key: cart_key("c"),
        expected: made.revision,
    };
    let removed = written(&other, removal).await;

    let late = shop.router.write_as_of(vec![create_cart("c")], number);
    let stored = removed.revision;
    assert_eq!(late.await.unwrap().outcome, Outcome::Stale { stored });
    assert_eq!(shop.router.counts().stale_retries.value(), 0);

    let number = shop.router.number([&cart_key("c")], stored).unwrap();
    let again = shop.router.write_as_of(vec![create_cart("c")], number);
    let revision = number;
    assert_eq!(again.await.unwrap().outcome, Outcome::Done { revision });
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_asked_for_under_the_same_number() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    let number = shop
        .router
        .number([&cart_key("c")], Revision::ZERO)
        .unwrap();
    shop.shard("a").fail_next(&[Fault::AppliedButAnswerLost]);
    let written = shop.router.write_as_of(vec![create_cart("c")], number);
    let revision = number;
    assert_eq!(written.await.unwrap().outcome, Outcome::Done { revision });
    let sent: Vec<Revision> = shop.shard("a").sent().iter().map(|it| it.1).collect();
    assert_eq!(sent, [number, number]);
}
