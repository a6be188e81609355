//! Publishing maps: one compare-and-set, upwards only.

#![allow(clippy::unwrap_used)] // a story ends where something unforeseen happens

mod support;

use std::sync::Arc;

use engine_api::{Generation, Remedy};
use layout::{Collection, Field, Scope};
use router::{
    CollectionMap, KeeperError, Limits, Map, MapError, MapKeeper, Router, RouterConfig, RouterError,
};
use support::*;

const CARTS: Collection = Collection::Carts;

#[tokio::test(start_paused = true)]
async fn of_two_publishers_one_wins() {
    let shop = Shop::open(&["a", "b"], &[carts_on("a")]).await;
    let other = shop.second_router(Default::default()).await;
    let to_b = shop
        .router
        .map()
        .pin(CARTS, cart_key("c").shard_key, &named("b"))
        .unwrap();
    let frozen = other.map().freeze(CARTS, Scope::All).unwrap();
    assert_eq!(to_b.generation, frozen.generation);

    shop.router.publish(to_b.clone()).await.unwrap();
    let error = other.publish(frozen).await.unwrap_err();
    let expected = KeeperError::Lost {
        current: Some(Arc::new(to_b.clone())),
    };
    assert_eq!(error, RouterError::Keeper(expected));
    assert_eq!(error.remedy(), Remedy::RefreshMap);
    assert_eq!(
        *other.map(),
        to_b,
        "the loser serves under what stands there"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_race_says_what_stands_there() {
    lose_a_race(&[]).await;
}

/// W20: what stands there after a lost answer may be somebody else's.
#[tokio::test(start_paused = true)]
async fn another_map_is_not_taken_for_ones_own_after_a_lost_answer() {
    lose_a_race(&[Fault::LostOnTheWay]).await;
}

/// A rival publishes between this publisher's look and its compare-and-set.
async fn lose_a_race(faults: &[Fault]) {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    let keeper = MapKeeper::new(shop.control.clone());
    let next = shop.router.map().freeze(CARTS, Scope::All).unwrap();
    let rival = shop
        .router
        .map()
        .pin(CARTS, cart_key("c").shard_key, &named("a"))
        .unwrap();
    let racing = RacingControl {
        inner: shop.control.clone(),
        rival: rival.to_json(),
    };
    shop.control.fail_next(faults);
    let error = MapKeeper::new(std::sync::Arc::new(racing))
        .publish(&next)
        .await
        .unwrap_err();
    match error {
        KeeperError::Lost {
            current: Some(current),
        } => assert_eq!(*current, rival),
        other => panic!("{other}"),
    }
    assert_eq!(*keeper.load().await.unwrap().unwrap(), rival);
}

#[derive(Debug)]
struct RacingControl {
    inner: std::sync::Arc<Control>,
    rival: Vec<u8>,
}

#[async_trait::async_trait]
impl engine_api::ControlStore for RacingControl {
    async fn control_get(
        &self,
        name: &str,
    ) -> Result<Option<engine_api::ControlValue>, engine_api::EngineError> {
        self.inner.control_get(name).await
    }

    async fn compare_and_set(
        &self,
        name: &str,
        expected: Option<u64>,
        bytes: Vec<u8>,
    ) -> Result<engine_api::SetOutcome, engine_api::EngineError> {
        self.inner
            .memory
            .compare_and_set(name, expected, self.rival.clone())
            .await?;
        self.inner.compare_and_set(name, expected, bytes).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_publisher_recognises_its_own_map_after_a_lost_answer() {
    for fault in [Fault::AppliedButAnswerLost, Fault::LostOnTheWay] {
        let shop = Shop::open(&["a"], &[carts_on("a")]).await;
        shop.control.fail_next(&[fault]);
        let next = shop.router.map().freeze(CARTS, Scope::All).unwrap();
        assert_eq!(
            shop.router.publish(next).await.unwrap(),
            Generation(2),
            "{fault:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_control_store_that_never_answers_leaves_the_outcome_unknown() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    shop.control.fail_next(&[
        Fault::LostOnTheWay,
        Fault::Unavailable,
        Fault::Unavailable,
        Fault::Unavailable,
    ]);
    let next = shop.router.map().freeze(CARTS, Scope::All).unwrap();
    let error = shop.router.publish(next).await.unwrap_err();
    assert!(
        matches!(
            error,
            RouterError::Keeper(KeeperError::OutcomeUnknown { .. })
        ),
        "{error}"
    );
    assert_eq!(error.remedy(), Remedy::ReadBack);
}

#[tokio::test(start_paused = true)]
async fn generations_are_neither_skipped_nor_repeated() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    let mut skipping = shop.router.map().freeze(CARTS, Scope::All).unwrap();
    skipping.generation = Generation(5);
    for offered in [skipping, (*shop.router.map()).clone()] {
        let error = shop.router.publish(offered).await.unwrap_err();
        assert!(
            matches!(error, RouterError::Keeper(KeeperError::NotNext { .. })),
            "{error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_map_that_names_an_unknown_shard_is_refused() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    let strange = shop
        .router
        .map()
        .pin(CARTS, cart_key("c").shard_key, &named("z"))
        .unwrap();
    let error = shop.router.publish(strange).await.unwrap_err();
    assert_eq!(
        error,
        RouterError::Map(MapError::UnknownShard { shard: named("z") })
    );
}

#[tokio::test(start_paused = true)]
async fn a_router_does_not_open_without_a_map_or_on_bad_limits() {
    let config = |limits| RouterConfig {
        shards: Default::default(),
        control: std::sync::Arc::new(Control::default()),
        world: std::sync::Arc::new(StillWorld::new()),
        writer: engine_api::Writer::numbered(1),
        limits,
        map_view: Default::default(),
    };
    assert_eq!(
        Router::open(config(Limits::default())).await.unwrap_err(),
        RouterError::NoMap
    );
    let bad = Limits {
        hold_poll_ms: 0,
        ..Limits::default()
    };
    assert!(matches!(
        Router::open(config(bad)).await.unwrap_err(),
        RouterError::Limits(_)
    ));
    let carts = CollectionMap::on_one_shard("embedded", vec![Field::CartId], named("a"));
    let first = Map::first([(CARTS, carts)].into());
    assert_eq!(first.generation, Generation(1));
}
