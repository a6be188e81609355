//! Reads: joined forwards only, and never answered by a shard that has lost the key.

#![allow(clippy::unwrap_used)] // a story ends where something unforeseen happens

mod support;

use std::sync::Arc;
use std::time::Duration;

use engine_api::{Change, PartKey, Revision, SharedRecord, Timestamp, World, expiry_fields};
use layout::{Collection, Scope};
use router::{Edit, MapView, Router, RouterError};
use support::*;

const CARTS: Collection = Collection::Carts;

type Reading = tokio::task::JoinHandle<Result<Option<SharedRecord>, RouterError>>;

fn read_later(router: &Arc<Router>) -> Reading {
    let router = router.clone();
    tokio::spawn(async move { router.get(&cart_key("c")).await })
}

async fn quantity_read(reading: Reading) -> Option<i64> {
    quantity(&reading.await.unwrap().unwrap().unwrap(), "P")
}

#[tokio::test(start_paused = true)]
async fn a_read_joins_only_one_that_was_not_yet_dispatched() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    written(&shop.router, create_cart("c")).await;
    written(&shop.router, set_line("c", "P", 1)).await;
    let gate = shop.shard("a").gate_answers();
    let early = read_later(&shop.router);
    gate.someone_arrived().await;

    shop.shard("a").ungate();
    written(&shop.router, set_line("c", "P", 2)).await;
    let late: Vec<Reading> = (0..5).map(|_| read_later(&shop.router)).collect();
    everyone_waits().await;
    assert_eq!(
        shop.shard("a").gets(),
        1,
        "newcomers gather while the first is under way"
    );
    gate.let_one_through();

    assert_eq!(quantity_read(early).await, Some(1));
    for reading in late {
        assert_eq!(
            quantity_read(reading).await,
            Some(2),
            "the change just acknowledged is seen"
        );
    }
    assert_eq!(shop.shard("a").gets(), 2, "five readers, one read");
    assert_eq!(shop.router.counts().reads_joined.value(), 4);
}

#[tokio::test(start_paused = true)]
async fn readers_do_not_wait_for_one_who_left() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    written(&shop.router, create_cart("c")).await;
    let gate = shop.shard("a").gate_answers();
    let leaving = read_later(&shop.router);
    gate.someone_arrived().await;
    let staying = read_later(&shop.router);
    everyone_waits().await;

    leaving.abort();
    gate.someone_arrived().await;
    gate.let_one_through();
    assert!(staying.await.unwrap().unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_read_under_way_at_a_cutover_is_read_again_from_the_target() {
    let shop = Shop::open(&["a", "b"], &[carts_on("a")]).await;
    written(&shop.router, create_cart("c")).await;
    written(&shop.router, set_line("c", "P", 1)).await;
    let image = shop.image(&cart_key("c")).await;
    shop.shard("b").put_image(image).await;
    let gate = shop.shard("a").gate_answers();
    let reading = read_later(&shop.router);
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
    written(&shop.router, set_line("c", "P", 2)).await;
    gate.let_one_through();

    assert_eq!(quantity_read(reading).await, Some(2));
    assert_eq!(shop.router.counts().read_restarts.value(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_at_once_counts_only_under_the_map_it_was_asked_under() {
    let shop = Shop::open(&["a", "b"], &[carts_on("a")]).await;
    written(&shop.router, create_cart("c")).await;
    written(&shop.router, set_line("c", "P", 1)).await;
    shop.shard("a").answer_at_once_and_then(|| {});
    let image = shop.router.image(&cart_key("c")).await.unwrap().unwrap();
    assert_eq!(shop.shard("a").gets(), 0, "it was asked the long way");
    shop.shard("b").put_image(image.into_record()).await;

    let (router, shard) = (shop.router.clone(), shop.shard("b").clone());
    shop.shard("a").answer_at_once_and_then(move || {
        without_waiting(async {
            let moved = [(
                CARTS,
                Edit::Move {
                    scope: Scope::All,
                    to: named("b"),
                },
            )];
            let next = router.map().edited(&moved).unwrap();
            router.publish(next).await.unwrap();
            written(&router, set_line("c", "P", 2)).await;
            assert!(shard.holds(&cart_key("c")).await);
        });
    });
    let cart = shop.router.get(&cart_key("c")).await.unwrap().unwrap();
    assert_eq!(quantity(&cart, "P"), Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_router_that_asks_the_control_store_notices_a_move_of_another() {
    let shop = Shop::open(&["a", "b"], &[carts_on("a")]).await;
    let careful = shop.second_router(MapView::ControlStore).await;
    written(&shop.router, create_cart("c")).await;
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
    written(&shop.router, set_line("c", "P", 2)).await;

    let cart = careful.get(&cart_key("c")).await.unwrap().unwrap();
    assert_eq!(quantity(&cart, "P"), Some(2));
    assert_eq!(careful.counts().read_restarts.value(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_expired_cart_is_not_live_and_its_image_is() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    let expires_at = Timestamp::from_unix_micros(shop.world.now().unix_micros() + 60_000_000);
    let guest = Change::CreateIfAbsent {
        key: cart_key("c"),
        header: cart_header("c"),
        parts: vec![(PartKey::expiry(), expiry_fields(expires_at))],
    };
    shop.router.write(guest, Revision::ZERO).await.unwrap();
    assert!(shop.router.get(&cart_key("c")).await.unwrap().is_some());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(shop.router.get(&cart_key("c")).await.unwrap().is_none());
    assert!(shop.router.image(&cart_key("c")).await.unwrap().is_some());
    assert!(
        shop.router
            .image(&cart_key("nobody"))
            .await
            .unwrap()
            .is_none()
    );
}
