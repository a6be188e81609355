//! Frozen keys, fences and holds.

#![allow(clippy::unwrap_used)] // a story ends where something unforeseen happens

mod support;

use std::sync::Arc;

use engine_api::{FenceKind, Freshness, Generation, ReadContext, Remedy, Revision, World};
use layout::{Collection, Scope};
use router::{Edit, Limits, Router, RouterError};
use support::*;

const CARTS: Collection = Collection::Carts;

async fn copy_cart(shop: &Shop, id: &str) {
    let context = ReadContext {
        now: shop.world.now(),
        freshness: Freshness::Latest,
    };
    let source = &shop.shard("a").memory;
    let image = engine_api::Engine::get(source, &cart_key(id), context)
        .await
        .unwrap();
    shop.shard("b").put_image(image.unwrap()).await;
}

fn write_later(
    router: &Arc<Router>,
    quantity: i64,
) -> tokio::task::JoinHandle<Result<router::Written, RouterError>> {
    let router = router.clone();
    tokio::spawn(async move {
        router
            .write(set_line("c", "P", quantity), Revision::ZERO)
            .await
    })
}

#[tokio::test(start_paused = true)]
async fn writes_stop_at_the_fence_and_resume_on_the_target() {
    let shop = Shop::open(&["a", "b"], &[carts_on("a")]).await;
    written(&shop.router, create_cart("c")).await;
    written(&shop.router, set_line("c", "P", 1)).await;

    let frozen = shop.router.map().freeze(CARTS, Scope::All).unwrap();
    shop.router.publish(frozen).await.unwrap();
    shop.shard("a")
        .raise_fence(CARTS, Scope::All, Generation(2))
        .await;
    let waiting = write_later(&shop.router, 2);
    everyone_waits().await;
    assert!(!waiting.is_finished());
    copy_cart(&shop, "c").await;
    let edits = [
        (
            CARTS,
            Edit::Move {
                scope: Scope::All,
                to: named("b"),
            },
        ),
        (CARTS, Edit::Thaw { scope: Scope::All }),
    ];
    shop.router
        .publish(shop.router.map().edited(&edits).unwrap())
        .await
        .unwrap();

    let answer = waiting.await.unwrap().unwrap();
    assert!(answer.outcome.is_done());
    assert_eq!(answer.generation, Generation(3));
    assert_eq!(
        shop.shard("a").sent().len(),
        2,
        "nothing reached the source after the freeze"
    );
    let cart = shop.router.get(&cart_key("c")).await.unwrap().unwrap();
    assert_eq!(quantity(&cart, "P"), Some(2));
    assert_eq!(shop.router.counts().held.value(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_paused_router_meets_the_fence_refreshes_and_writes_to_the_target() {
    let shop = Shop::open(&["a", "b"], &[carts_on("a")]).await;
    let paused = shop.second_router(Default::default()).await;
    written(&shop.router, create_cart("c")).await;

    shop.shard("a")
        .raise_fence(CARTS, Scope::All, Generation(2))
        .await;
    copy_cart(&shop, "c").await;
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

    assert_eq!(paused.map().generation, Generation(1));
    let answer = written(&paused, set_line("c", "P", 5)).await;
    assert_eq!(answer.generation, Generation(2));
    assert_eq!(paused.counts().fenced_retries.value(), 1);
    assert_eq!(shop.shard("b").sent().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_fenced_write_waits_until_the_new_map_is_published() {
    let shop = Shop::open(&["a", "b"], &[carts_on("a")]).await;
    let other = shop.second_router(Default::default()).await;
    written(&shop.router, create_cart("c")).await;
    shop.shard("a")
        .raise_fence(CARTS, Scope::All, Generation(2))
        .await;
    copy_cart(&shop, "c").await;

    let waiting = write_later(&shop.router, 3);
    everyone_waits().await;
    assert!(!waiting.is_finished());
    let moved = [(
        CARTS,
        Edit::Move {
            scope: Scope::All,
            to: named("b"),
        },
    )];
    other
        .publish(other.map().edited(&moved).unwrap())
        .await
        .unwrap();

    assert!(waiting.await.unwrap().unwrap().outcome.is_done());
    assert_eq!(
        shop.router.map().generation,
        Generation(2),
        "found by polling the control store"
    );
}

#[tokio::test(start_paused = true)]
async fn a_frozen_key_is_held_and_goes_on_after_thaw() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    written(&shop.router, create_cart("c")).await;
    written(&shop.router, create_cart("other")).await;
    let scope = Scope::Keys(vec![cart_key("c").shard_key]);
    let frozen = shop.router.map().freeze(CARTS, scope.clone()).unwrap();
    shop.router.publish(frozen).await.unwrap();

    let waiting = write_later(&shop.router, 4);
    everyone_waits().await;
    assert!(!waiting.is_finished());
    assert!(
        shop.router.get(&cart_key("c")).await.unwrap().is_some(),
        "frozen keys are read"
    );
    written(&shop.router, set_line("other", "P", 1)).await;

    shop.router
        .publish(shop.router.map().thaw(CARTS, scope).unwrap())
        .await
        .unwrap();
    assert!(waiting.await.unwrap().unwrap().outcome.is_done());
}

#[tokio::test(start_paused = true)]
async fn more_held_requests_than_the_limit_are_refused() {
    let limits = Limits {
        held_requests_max: 1,
        ..Limits::default()
    };
    let shop = Shop::open_with(&["a"], &[carts_on("a")], limits, FenceKind::InStore).await;
    written(&shop.router, create_cart("c")).await;
    shop.router
        .publish(shop.router.map().freeze(CARTS, Scope::All).unwrap())
        .await
        .unwrap();

    let waiting = write_later(&shop.router, 1);
    everyone_waits().await;
    let refused = shop
        .router
        .write(set_line("c", "P", 2), Revision::ZERO)
        .await
        .unwrap_err();
    assert_eq!(
        refused,
        RouterError::HoldFull {
            held_requests_max: 1
        }
    );
    assert_eq!(refused.remedy(), Remedy::Retry);

    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    let place_is_free = write_later(&shop.router, 3);
    everyone_waits().await;
    assert!(!place_is_free.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_hold_ends_with_an_error_when_the_keys_stay_frozen() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    written(&shop.router, create_cart("c")).await;
    shop.router
        .publish(shop.router.map().freeze(CARTS, Scope::All).unwrap())
        .await
        .unwrap();
    let before = shop.control.reads();

    let waiting: Vec<_> = (0..20)
        .map(|quantity| write_later(&shop.router, quantity))
        .collect();
    for write in waiting {
        let error = write.await.unwrap().unwrap_err();
        assert_eq!(error, RouterError::HoldExpired { hold_ms_max: 5_000 });
    }
    let looks = shop.control.reads() - before;
    assert!(
        (50..=100).contains(&looks),
        "twenty held requests look like one: {looks} looks"
    );
}
