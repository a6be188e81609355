//! Readers who may be shown something older: from a copy, within the map, and apart
//! from those who may not.

#![allow(clippy::unwrap_used)] // a story ends where something unforeseen happens

mod support;

use std::sync::Arc;
use std::time::Duration;

use engine_api::{Aged, Because, Freshness, Query, Revision, Served, SharedRecord};
use layout::{AccessPath, Collection, Field, Scope, Value};
use router::{CollectionMap, Cut, Edit, MapView, Router, RouterError};
use support::*;

const CARTS: Collection = Collection::Carts;

/// How old the copies say they are.
const AGE: Duration = Duration::from_secs(2);

fn may_lag(seconds: u32) -> Freshness {
    Freshness::MayLag {
        seconds,
        seen: Revision::ZERO,
    }
}

fn lagging() -> Served {
    Served::Lagging { age_max: Some(AGE) }
}

/// Longer than any lag in these stories.
async fn the_map_is_old() {
    tokio::time::sleep(Duration::from_secs(61)).await;
}

/// A cart whose line the copies of shard a show as 1, and everybody else as 2.
async fn shop_with_a_copy_behind() -> Shop {
    let shop = Shop::open(&["a", "b"], &[carts_on("a")]).await;
    written(&shop.router, create_cart("c")).await;
    written(&shop.router, set_line("c", "P", 1)).await;
    shop.shard("a").memory.stand_still(AGE);
    written(&shop.router, set_line("c", "P", 2)).await;
    shop
}

async fn read(router: &Router, freshness: Freshness) -> (Option<i64>, Served) {
    let Aged { answer, served } = router.get_aged(&cart_key("c"), freshness).await.unwrap();
    (answer.and_then(|cart| quantity(&cart, "P")), served)
}

fn read_later(
    router: &Arc<Router>,
    freshness: Freshness,
) -> tokio::task::JoinHandle<Result<Aged<Option<SharedRecord>>, RouterError>> {
    let router = router.clone();
    tokio::spawn(async move { router.get_aged(&cart_key("c"), freshness).await })
}

#[tokio::test(start_paused = true)]
async fn who_may_lag_is_answered_by_a_copy_and_told_how_old_it_is() {
    let shop = shop_with_a_copy_behind().await;
    the_map_is_old().await;
    assert_eq!(read(&shop.router, may_lag(5)).await, (Some(1), lagging()));
    let latest = |because| (Some(2), Served::Latest(because));
    let asked = read(&shop.router, Freshness::Latest).await;
    assert_eq!(asked, latest(Because::Asked));
    let bound = read(&shop.router, may_lag(1)).await;
    assert_eq!(bound, latest(Because::Behind));
    let cart = shop.router.get(&cart_key("c")).await.unwrap().unwrap();
    assert_eq!(
        quantity(&cart, "P"),
        Some(2),
        "who says nothing may not lag"
    );
}

#[tokio::test(start_paused = true)]
async fn nobody_is_shown_less_than_what_the_token_says() {
    let shop = shop_with_a_copy_behind().await;
    let seen = shop.image(&cart_key("c")).await.newest_revision();
    the_map_is_old().await;
    let own = Freshness::MayLag { seconds: 5, seen };
    let latest = (Some(2), Served::Latest(Because::Token));
    assert_eq!(read(&shop.router, own).await, latest);
    let other = shop.second_router(MapView::ControlStore).await;
    the_map_is_old().await;
    assert_eq!(read(&other, own).await, latest, "at any process");
}

#[tokio::test(start_paused = true)]
async fn who_may_not_lag_does_not_share_with_who_may() {
    let shop = shop_with_a_copy_behind().await;
    the_map_is_old().await;
    let gate = shop.shard("a").gate_answers();
    let may = read_later(&shop.router, may_lag(5));
    gate.someone_arrived().await;
    let also_may = read_later(&shop.router, may_lag(5));
    let may_not = read_later(&shop.router, Freshness::Latest);
    everyone_waits().await;
    assert_eq!(shop.shard("a").gets(), 2, "one for each kind of reader");
    for _ in 0..3 {
        gate.let_one_through();
    }
    let shown = async |reading: tokio::task::JoinHandle<Result<Aged<_>, _>>| {
        let Aged { answer, served } = reading.await.unwrap().unwrap();
        let cart: Option<SharedRecord> = answer;
        (quantity(&cart.unwrap(), "P"), served)
    };
    let latest = (Some(2), Served::Latest(Because::Asked));
    assert_eq!(shown(may_not).await, latest);
    assert_eq!(shown(may).await, (Some(1), lagging()));
    assert_eq!(shown(also_may).await, (Some(1), lagging()));
}

#[tokio::test(start_paused = true)]
async fn nothing_lags_behind_the_move_that_brought_it_here() {
    let shop = shop_with_a_copy_behind().await;
    the_map_is_old().await;
    // The copies of the target stand where the feed was two seconds before the cutover.
    let image = shop.image(&cart_key("c")).await;
    shop.shard("b").memory.stand_still(AGE);
    shop.shard("b").put_image(image).await;
    let moved = [(
        CARTS,
        Edit::Move {
            scope: Scope::All,
            to: named("b"),
        },
    )];
    let next = shop.router.map().edited(&moved).unwrap();
    shop.router.publish(next).await.unwrap();

    let latest = (Some(2), Served::Latest(Because::Moved));
    assert_eq!(read(&shop.router, may_lag(5)).await, latest);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(read(&shop.router, may_lag(5)).await, latest);
    shop.shard("b").memory.stand_still(AGE);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(read(&shop.router, may_lag(5)).await, (Some(2), lagging()));
    let longer = read(&shop.router, may_lag(10)).await;
    assert_eq!(longer, latest, "ten seconds have not passed");
}

#[tokio::test(start_paused = true)]
async fn a_lagging_read_under_way_at_a_cutover_is_read_again_from_the_target() {
    let shop = shop_with_a_copy_behind().await;
    the_map_is_old().await;
    let image = shop.image(&cart_key("c")).await;
    shop.shard("b").put_image(image).await;
    let gate = shop.shard("a").gate_answers();
    let reading = read_later(&shop.router, may_lag(5));
    gate.someone_arrived().await;
    let moved = [(
        CARTS,
        Edit::Move {
            scope: Scope::All,
            to: named("b"),
        },
    )];
    let next = shop.router.map().edited(&moved).unwrap();
    shop.router.publish(next).await.unwrap();
    written(&shop.router, set_line("c", "P", 3)).await;
    gate.let_one_through();
    let Aged { answer, served } = reading.await.unwrap().unwrap();
    assert_eq!(quantity(&answer.unwrap(), "P"), Some(3));
    assert_eq!(served, Served::Latest(Because::Moved));
    assert_eq!(shop.router.counts().read_restarts.value(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_listing_is_as_old_as_its_oldest_share() {
    let cut = Cut::even_slots(&[named("a"), named("b")]);
    let by_session = CollectionMap::cut_by("embedded", vec![Field::SessionId], cut);
    let shop = Shop::open(&["a", "b"], &[(Collection::Sessions, by_session)]).await;
    let open = async |number: i64| {
        let id = format!("s-{number}");
        let key = session_key(&id, &id);
        written(&shop.router, create_session(key, "ann", number)).await;
    };
    for number in 0..8 {
        open(number).await;
    }
    shop.shard("b").memory.stand_still(AGE);
    for number in 8..16 {
        open(number).await;
    }
    the_map_is_old().await;
    let query = Query::first(AccessPath::SessionsByUser, vec![Value::text("ann")], 100);
    let list = async |freshness| {
        let page = shop.router.query_aged(&query, freshness).await.unwrap();
        (page.answer.records.len(), page.served)
    };
    let (shown, served) = list(may_lag(5)).await;
    assert!((8..16).contains(&shown), "{shown}");
    assert_eq!(served, lagging());
    let all = (16, Served::Latest(Because::Asked));
    assert_eq!(list(Freshness::Latest).await, all);
    assert_eq!(shop.router.query(&query).await.unwrap().records.len(), 16);
    let behind = (16, Served::Latest(Because::Behind));
    assert_eq!(list(may_lag(1)).await, behind);
}
