//! Lost answers, refused revisions and shards that are away for a moment.

#![allow(clippy::unwrap_used)] // a story ends where something unforeseen happens

mod support;

use engine_api::{
    Change, EngineError, FenceKind, Generation, Outcome, PartsChange, Remedy, Revision, World,
};
use layout::{Collection, Scope};
use router::{Edit, Limits, RouterError};
use support::*;

const CARTS: Collection = Collection::Carts;

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_resent_once_and_counted_once() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    shop.shard("a").fail_next(&[Fault::AppliedButAnswerLost]);
    let answer = written(&shop.router, create_cart("c")).await;

    let sent = shop.shard("a").sent();
    assert_eq!(sent.len(), 2);
    assert_eq!(
        sent[0].1, sent[1].1,
        "the same change bears the same revision"
    );
    assert_eq!(
        answer.outcome,
        Outcome::Done {
            revision: sent[0].1
        }
    );
    assert_eq!(shop.shard("a").journal_len().await, 1);
    assert_eq!(shop.router.counts().unknown_resends.value(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_change_lost_on_the_way_is_applied_by_its_resend() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    shop.shard("a")
        .fail_next(&[Fault::LostOnTheWay, Fault::Unavailable, Fault::LostOnTheWay]);
    written(&shop.router, create_cart("c")).await;
    assert_eq!(shop.shard("a").journal_len().await, 1);
    assert_eq!(shop.router.counts().unknown_outcomes.value(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_that_was_superseded_stays_unknown() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    let other = shop.second_router(Default::default()).await;
    let created = written(&shop.router, create_cart("c")).await;

    shop.shard("a").fail_next(&[Fault::AppliedButAnswerLost]);
    let change = |status| Change::ChangeIf {
        key: cart_key("c"),
        expected: created.revision,
        header: cart_header("c").with(layout::Field::Status, layout::Value::text(status)),
        parts: PartsChange::Keep,
    };
    let router = shop.router.clone();
    let first = change("ordered");
    let in_doubt = tokio::spawn(async move { router.write(first, Revision::ZERO).await });
    everyone_waits().await;
    let seen = other.get(&cart_key("c")).await.unwrap().unwrap();
    let next = Change::ChangeIf {
        key: cart_key("c"),
        expected: seen.header.revision,
        header: cart_header("c"),
        parts: PartsChange::Keep,
    };
    written(&other, next).await;

    let error = in_doubt.await.unwrap().unwrap_err();
    assert!(
        matches!(error, RouterError::OutcomeUnknown { .. }),
        "{error}"
    );
    assert_eq!(error.remedy(), Remedy::ReadBack);
    assert_eq!(shop.router.counts().unknown_outcomes.value(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_doubt_is_not_forgotten_when_the_shard_goes_away() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    shop.shard("a").fail_next(&[Fault::AppliedButAnswerLost]);
    shop.shard("a").fail_next(&[Fault::Unavailable; 8]);
    let error = shop
        .router
        .write(create_cart("c"), Revision::ZERO)
        .await
        .unwrap_err();
    assert!(
        matches!(error, RouterError::OutcomeUnknown { .. }),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_stays_away_is_an_error_without_doubt() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    shop.shard("a").fail_next(&[Fault::Unavailable; 8]);
    let error = shop
        .router
        .write(create_cart("c"), Revision::ZERO)
        .await
        .unwrap_err();
    let unavailable = matches!(
        &error,
        RouterError::Engine {
            source: EngineError::Unavailable { .. },
            ..
        }
    );
    assert!(unavailable, "{error}");
    assert_eq!(shop.shard("a").sent().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_change_in_doubt_is_recognised_on_the_target_after_a_move() {
    let shop = Shop::open(&["a", "b"], &[carts_on("a")]).await;
    shop.shard("a").fail_next(&[Fault::AppliedButAnswerLost]);
    let router = shop.router.clone();
    let in_doubt =
        tokio::spawn(async move { router.write(create_cart("c"), Revision::ZERO).await });
    everyone_waits().await;

    shop.shard("a")
        .raise_fence(CARTS, Scope::All, Generation(2))
        .await;
    let image = shop.image(&cart_key("c")).await;
    shop.shard("b").put_image(image).await;
    let moved = [(
        CARTS,
        Edit::Move {
            scope: Scope::All,
            to: named("b"),
        },
    )];
    shop.router
        .publish(shop.router.map().edited(&moved).unwrap())
        .await
        .unwrap();

    let answer = in_doubt.await.unwrap().unwrap();
    assert_eq!(
        answer.outcome,
        Outcome::Done {
            revision: shop.shard("a").sent()[0].1
        }
    );
    assert_eq!(shop.shard("b").sent(), [(Generation(2), answer.revision)]);
    assert_eq!(
        shop.shard("b").journal_len().await,
        1,
        "the image, and nothing more"
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_fence_in_the_store_a_late_done_is_not_trusted() {
    let carts = [carts_on("a")];
    let shop = Shop::open_with(&["a", "b"], &carts, Limits::default(), FenceKind::ByLease).await;
    let gate = shop.shard("a").gate_answers();
    let router = shop.router.clone();
    let late = tokio::spawn(async move { router.write(create_cart("c"), Revision::ZERO).await });
    gate.someone_arrived().await;
    let moved = [(
        CARTS,
        Edit::Move {
            scope: Scope::All,
            to: named("b"),
        },
    )];
    shop.router
        .publish(shop.router.map().edited(&moved).unwrap())
        .await
        .unwrap();
    gate.let_one_through();

    let answer = late.await.unwrap().unwrap();
    assert_eq!(answer.generation, Generation(2));
    assert!(
        shop.shard("b").holds(&cart_key("c")).await,
        "what was acknowledged is on the owner"
    );
    assert_eq!(shop.shard("a").sent()[0].1, shop.shard("b").sent()[0].1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_revision_is_proposed_higher() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    let created = written(&shop.router, create_cart("c")).await;
    let ahead_us = shop.world.now().unix_micros() + 300_000;
    let ahead = Revision::at(
        engine_api::Timestamp::from_unix_micros(ahead_us),
        created.revision.writer(),
    );
    let mut image = shop.image(&cart_key("c")).await;
    image.header.cleared = ahead;
    image.header.revision = ahead;
    shop.shard("a").put_image(image).await;

    let answer = written(&shop.router, set_line("c", "P", 1)).await;
    assert!(answer.revision > ahead);
    assert_eq!(shop.router.counts().stale_retries.value(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_record_far_ahead_of_the_clock_is_a_clock_error() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    let created = written(&shop.router, create_cart("c")).await;
    let ahead_us = shop.world.now().unix_micros() + 60_000_000;
    let ahead = Revision::at(
        engine_api::Timestamp::from_unix_micros(ahead_us),
        created.revision.writer(),
    );
    let mut image = shop.image(&cart_key("c")).await;
    image.header.cleared = ahead;
    image.header.revision = ahead;
    shop.shard("a").put_image(image).await;

    let error = shop
        .router
        .write(set_line("c", "P", 1), Revision::ZERO)
        .await
        .unwrap_err();
    assert!(matches!(error, RouterError::Clock(_)), "{error}");
    assert_eq!(error.remedy(), Remedy::GiveUp);
}
