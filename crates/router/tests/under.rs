//! Writes that rest on one map, and may be sent under no other.

#![allow(clippy::unwrap_used)] // a story ends where something unforeseen happens

mod support;

use engine_api::Revision;
use router::{Edit, MapKeeper, RouterError};
use support::*;

#[tokio::test(start_paused = true)]
async fn what_rests_on_one_map_is_not_written_under_another() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    let decided = shop.router.map().generation;
    let now = shop
        .router
        .write_under(vec![create_cart("c")], Revision::ZERO, decided);
    assert!(now.await.unwrap().outcome.is_done());

    let map = shop.router.map();
    let keeper = MapKeeper::new(shop.control.clone());
    keeper.publish(&map.edited(&[]).unwrap()).await.unwrap();
    shop.router.refresh().await.unwrap();
    let sent = shop.shard("a").sent().len();
    let late = shop
        .router
        .write_under(vec![create_cart("d")], Revision::ZERO, decided);
    let refused = RouterError::OtherMap {
        under: decided,
        standing: decided.next(),
    };
    assert_eq!(late.await, Err(refused));
    assert_eq!(shop.shard("a").sent().len(), sent, "nothing was sent");
}

/// Held while the keys are frozen, it meets the next map, and is not sent under that one.
#[tokio::test(start_paused = true)]
async fn what_was_held_through_a_freeze_is_not_written_under_the_map_behind_it() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    let keeper = MapKeeper::new(shop.control.clone());
    let edit = |edit: Edit| (layout::Collection::Carts, edit);
    let scope = layout::Scope::All;
    let frozen = shop
        .router
        .map()
        .edited(&[edit(Edit::Freeze { scope })])
        .unwrap();
    keeper.publish(&frozen).await.unwrap();
    shop.router.refresh().await.unwrap();
    let decided = shop.router.map().generation;
    let writing = shop
        .router
        .write_under(vec![create_cart("c")], Revision::ZERO, decided);
    let thawing = async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let scope = layout::Scope::All;
        let thawed = frozen.edited(&[edit(Edit::Thaw { scope })]).unwrap();
        keeper.publish(&thawed).await.unwrap();
        shop.router.refresh().await.unwrap();
    };
    let (written, ()) = tokio::join!(writing, thawing);
    assert!(
        matches!(written, Err(RouterError::OtherMap { .. })),
        "{written:?}"
    );
}
