//! Shards that come while the router serves.

#![allow(clippy::unwrap_used)] // a story ends where something unforeseen happens

mod support;

use engine_api::Engine;
use layout::{Collection, Scope};
use router::{Added, Edit, MapError, RouterError, SHARDS_ADDED_MAX};
use support::*;

const CARTS: Collection = Collection::Carts;

fn all_carts_to(shard: &str) -> [(Collection, Edit); 1] {
    let to = named(shard);
    let scope = Scope::All;
    [(CARTS, Edit::Move { scope, to })]
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_was_added_can_be_given_keys_and_has_a_gate() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    let next = shop.router.map().edited(&all_carts_to("b")).unwrap();
    let refused = shop.router.publish(next.clone()).await.unwrap_err();
    let unknown = |error: &RouterError| matches!(error, RouterError::Map(MapError::UnknownShard { shard }) if *shard == named("b"));
    assert!(unknown(&refused), "{refused}");

    let late = Shard::new();
    let added = shop.router.add_shard(named("b"), late.clone());
    assert_eq!(added, Ok(Added::Now));
    shop.router.publish(next).await.unwrap();
    written(&shop.router, create_cart("cart-1")).await;
    assert!(late.holds(&cart_key("cart-1")).await);
    assert!(
        shop.router
            .get(&cart_key("cart-1"))
            .await
            .unwrap()
            .is_some()
    );

    let gates = shop.router.gates();
    let gates: Vec<&str> = gates.map(|(shard, _)| shard.as_str()).collect();
    assert_eq!(gates, ["a", "b"]);
    let place = shop.router.enter(&named("b")).unwrap();
    let under_way = |name: &str| {
        let mut gates = shop.router.gates();
        let gate = gates.find(|(shard, _)| shard.as_str() == name);
        gate.unwrap().1.under_way()
    };
    assert_eq!((under_way("a"), under_way("b")), (0, 1));
    drop(place);
    assert_eq!(under_way("b"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_there_stays() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    let (late, later) = (Shard::new(), Shard::new());
    let offer = |name: &str, shard: &std::sync::Arc<Shard>| {
        let engine = shard.clone() as std::sync::Arc<dyn Engine>;
        shop.router.add_shard(named(name), engine)
    };
    assert_eq!(offer("a", &late), Ok(Added::Before));
    assert_eq!(offer("b", &late), Ok(Added::Now));
    assert_eq!(offer("b", &later), Ok(Added::Before));
    written(&shop.router, create_cart("cart-1")).await;
    let next = shop.router.map().edited(&all_carts_to("b")).unwrap();
    shop.router.publish(next).await.unwrap();
    written(&shop.router, create_cart("cart-2")).await;
    assert!(shop.shard("a").holds(&cart_key("cart-1")).await);
    assert!(late.holds(&cart_key("cart-2")).await);
    assert!(!later.holds(&cart_key("cart-2")).await);
}

#[tokio::test(start_paused = true)]
async fn no_more_are_added_than_the_table_has_places_for() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    let offer = |number: usize| {
        let name = named(&format!("late-{number}"));
        shop.router.add_shard(name, Shard::new())
    };
    for number in 0..SHARDS_ADDED_MAX {
        assert_eq!(offer(number), Ok(Added::Now));
    }
    let refused = offer(SHARDS_ADDED_MAX).unwrap_err().to_string();
    assert!(refused.contains("restart it"), "{refused}");
    assert_eq!(offer(3), Ok(Added::Before));
    assert_eq!(shop.router.shard_names().len(), SHARDS_ADDED_MAX + 1);
}
