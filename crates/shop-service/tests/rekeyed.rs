//! Orders whose collection gets another shard key while requests wait for it: one order for each key, and its stock once.

#![allow(clippy::unwrap_used)]

mod stage;

use std::sync::Arc;

use engine_api::Revision;
use layout::{Collection, Field, Scope};
use model::{OrderStatus, StockCounts, UserId};
use router::{CollectionMap, Cut, Edit, ShardName};
use shop_service::{Made, PageWish};
use stage::{Stage, order};

const ORDERS: Collection = Collection::Orders;
const NEVER: Revision = Revision::ZERO;

fn named(name: &str) -> ShardName {
    ShardName::new(name).unwrap()
}

fn by_user() -> CollectionMap {
    CollectionMap::on_one_shard("one", vec![Field::UserId], named("shard-1"))
}

fn by_zone_and_user() -> CollectionMap {
    let shards = ["shard-2", "shard-3"].map(named);
    let fields = vec![Field::GeoZone, Field::UserId];
    CollectionMap::cut_by("two", fields, Cut::even_slots(&shards))
}

async fn publish(stage: &Stage, edits: Vec<Edit>) {
    let router = stage.shop.router();
    let edits: Vec<(Collection, Edit)> = edits.into_iter().map(|edit| (ORDERS, edit)).collect();
    let map = router.map().edited(&edits).unwrap();
    router.publish(map).await.unwrap();
}

async fn freeze(stage: &Stage) {
    let router = stage.shop.router();
    let map = router.map().freeze(ORDERS, Scope::All).unwrap();
    router.publish(map).await.unwrap();
}

/// Requests get as far as they can without the map.
async fn everyone_waits() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

/// There, where a key can be made from the order, and back, where its user alone has to be found in it.
#[tokio::test(start_paused = true)]
async fn requests_held_through_a_change_of_shard_key_make_and_change_one_order() {
    for (from, to) in [
        (by_user(), by_zone_and_user()),
        (by_zone_and_user(), by_user()),
    ] {
        let stage = Stage::over(3).await;
        let place = |placement: &CollectionMap| Edit::Place {
            placement: placement.clone(),
        };
        publish(&stage, vec![place(&from)]).await;
        stage.stock("p-1", "10.00", 10).await;
        let ann: UserId = "ann".parse().unwrap();
        let before = order(&ann, "before", &[("p-1", 3, "10.00")]);
        let first = stage.shop.place_order(before.clone(), NEVER).await.unwrap();
        let id = first.order.value.header().id.clone();
        freeze(&stage).await;
        let shop = Arc::clone(&stage.shop);
        let repeated = tokio::spawn(async move { shop.place_order(before, NEVER).await });
        let shop = Arc::clone(&stage.shop);
        let fresh = order(&ann, "fresh", &[("p-1", 2, "10.00")]);
        let wish = fresh.clone();
        let placed = tokio::spawn(async move { shop.place_order(wish, NEVER).await });
        let (shop, changed) = (Arc::clone(&stage.shop), id.clone());
        let paid = tokio::spawn(async move {
            let paid = OrderStatus::Paid;
            shop.change_order_status(&changed, paid, None, NEVER).await
        });
        everyone_waits().await;
        assert!(!placed.is_finished() && !paid.is_finished());
        stage.carry(ORDERS, &from, &to).await;
        publish(&stage, vec![place(&to), Edit::Thaw { scope: Scope::All }]).await;
        let repeated = repeated.await.unwrap().unwrap();
        assert_eq!(repeated.made, Made::Before);
        assert_eq!(repeated.order.value.header().id, id);
        assert_eq!(placed.await.unwrap().unwrap().made, Made::Now);
        paid.await.unwrap().unwrap();
        // Sent once more, it is the same order.
        let again = stage.shop.place_order(fresh, NEVER).await.unwrap();
        assert_eq!(again.made, Made::Before);
        let page = PageWish {
            after: None,
            limit: 100,
        };
        let all = stage.shop.orders_of_user(&ann, None, None, page).await;
        let all = all.unwrap().items;
        assert_eq!(all.len(), 2);
        let status = |order: &OrderStatus| {
            all.iter()
                .filter(|it| it.value.header().status == *order)
                .count()
        };
        assert_eq!(status(&OrderStatus::Paid), 1);
        let sold = StockCounts {
            received: 10,
            available: 5,
            reserved: 0,
            sold: 5,
        };
        assert_eq!(stage.counts("p-1").await, sold);
    }
}
