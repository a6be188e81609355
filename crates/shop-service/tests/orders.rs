//! Placing orders: once for each key, with its stock or not at all, whatever
//! stops in between.

#![allow(clippy::unwrap_used)]

mod stage;

use engine_api::{
    Change, Outcome, PartKey, PriceCondition, RecordId, Revision, StockAction, StockRefusal,
};
use futures::future::join_all;
use layout::Collection;
use model::{CartOwner, CartStatus, Money, OrderId, OrderStatus, StockCounts, UserId};
use shop_service::{ItemWish, Made, OrderWish, PageWish, Placed, ShopError};
use stage::{Stage, Stop, order};

const NEVER: Revision = Revision::ZERO;

fn ann() -> UserId {
    "ann".parse().unwrap()
}

fn counted(available: u64, reserved: u64, sold: u64) -> StockCounts {
    StockCounts {
        received: available + reserved + sold,
        available,
        reserved,
        sold,
    }
}

fn page() -> PageWish {
    PageWish {
        after: None,
        limit: 100,
    }
}

async fn place(stage: &Stage, wish: &OrderWish) -> Result<Placed, ShopError> {
    stage.shop.place_order(wish.clone(), NEVER).await
}

/// One shard has all sides, or two have one each.
async fn stages() -> [(Stage, UserId); 2] {
    let (one, two) = (Stage::over(1).await, Stage::over(2).await);
    one.stock("p-1", "10.00", 10).await;
    two.stock("p-1", "10.00", 10).await;
    let away = two.user_away_from("p-1");
    [(one, ann()), (two, away)]
}

#[tokio::test(start_paused = true)]
async fn an_order_takes_its_stock_once_for_each_key() {
    for (stage, user) in stages().await {
        let wish = order(&user, "key", &[("p-1", 3, "10.00")]);
        let first = place(&stage, &wish).await.unwrap();
        assert_eq!(first.made, Made::Now);
        assert_eq!(first.order.value.header().status, OrderStatus::Created);
        assert_eq!(first.order.value.total(), Money::parse("30").unwrap());
        let again = place(&stage, &wish).await.unwrap();
        assert_eq!(again.made, Made::Before);
        assert_eq!(again.order.value, first.order.value);
        assert_eq!(stage.counts("p-1").await, counted(7, 0, 3));

        let other = order(&user, "key", &[("p-1", 2, "10.00")]);
        assert_eq!(place(&stage, &other).await, Err(ShopError::KeyReused));
        let id = &first.order.value.header().id;
        let read = stage.shop.order(id, None).await.unwrap();
        assert_eq!(read.value, first.order.value);
        let history = stage.shop.orders_of_user(&user, None, None, page());
        assert_eq!(history.await.unwrap().items, vec![read.clone()]);
        let period = stage.shop.orders_of_period(None, None, page());
        assert_eq!(period.await.unwrap().items, vec![read]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_sold_is_refused_with_the_line_it_failed_on() {
    for (stage, user) in stages().await {
        stage.stock("p-2", "5.00", 1).await;
        let both = |first: u32, second: u32| {
            order(
                &user,
                &format!("{first}-{second}"),
                &[("p-1", first, "10.00"), ("p-2", second, "5.00")],
            )
        };
        let sold_out = place(&stage, &both(1, 2)).await.unwrap_err();
        assert!(
            matches!(&sold_out, ShopError::SoldOut { product, available: 1, .. } if product.as_str() == "p-2"),
            "{sold_out:?}"
        );
        let price = order(&user, "price", &[("p-1", 1, "9.99")]);
        let moved = place(&stage, &price).await.unwrap_err();
        assert!(matches!(moved, ShopError::PriceMoved { .. }), "{moved:?}");
        let unknown = order(&user, "unknown", &[("p-9", 1, "1")]);
        let unknown = place(&stage, &unknown).await.unwrap_err();
        assert!(matches!(unknown, ShopError::UnknownProduct { .. }));
        let mut zone = both(1, 1);
        zone.geo_zone = "moon".parse().unwrap();
        let zone = place(&stage, &zone).await.unwrap_err();
        assert!(matches!(zone, ShopError::NoStockInZone { .. }), "{zone:?}");
        assert_eq!(stage.counts("p-1").await, counted(10, 0, 0));
        assert_eq!(stage.counts("p-2").await, counted(1, 0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn of_many_buyers_exactly_as_many_as_there_are_pieces_are_served() {
    for (stage, user) in stages().await {
        stage.stock("flash", "1.00", 50).await;
        let buyers = (0..200).map(|number| {
            let wish = order(&user, &format!("key-{number}"), &[("flash", 1, "1.00")]);
            let stage = &stage;
            async move { place(stage, &wish).await }
        });
        let answers = join_all(buyers).await;
        let placed = answers.iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(placed, 50);
        for refusal in answers.into_iter().filter_map(Result::err) {
            assert!(
                matches!(refusal, ShopError::SoldOut { available: 0, .. }),
                "{refusal:?}"
            );
        }
        assert_eq!(stage.counts("flash").await, counted(0, 0, 50));
    }
}

#[tokio::test(start_paused = true)]
async fn one_key_sent_a_hundred_times_at_once_is_one_order() {
    for (stage, user) in stages().await {
        let wish = order(&user, "key", &[("p-1", 1, "10.00")]);
        let answers = join_all((0..100).map(|_| place(&stage, &wish))).await;
        let orders: Vec<Placed> = answers.into_iter().map(Result::unwrap).collect();
        let id = &orders[0].order.value.header().id;
        assert!(
            orders
                .iter()
                .all(|placed| placed.order.value.header().id == *id)
        );
        assert_eq!(stage.counts("p-1").await, counted(9, 0, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn an_order_goes_its_legal_way_and_gives_its_stock_back_at_the_end() {
    for (stage, user) in stages().await {
        let place_and_go = async |key: &str, course: &[OrderStatus]| {
            let wish = order(&user, key, &[("p-1", 2, "10.00")]);
            let id = place(&stage, &wish)
                .await
                .unwrap()
                .order
                .value
                .header()
                .id
                .clone();
            for status in course {
                for _ in 0..2 {
                    let changed = stage.shop.change_order_status(&id, *status, None, NEVER);
                    assert_eq!(changed.await.unwrap().value.header().status, *status);
                }
            }
            id
        };
        use OrderStatus::*;
        let shipped = place_and_go("a", &[Paid, Shipped]).await;
        assert_eq!(stage.counts("p-1").await, counted(8, 0, 2));
        let cancel = stage
            .shop
            .change_order_status(&shipped, Cancelled, None, NEVER);
        assert!(matches!(cancel.await, Err(ShopError::IllegalStatus(_))));
        place_and_go("b", &[Cancelled]).await;
        place_and_go("c", &[Paid, Cancelled]).await;
        assert_eq!(stage.counts("p-1").await, counted(8, 0, 2));
        place_and_go("d", &[Paid, Shipped, Delivered, Returned]).await;
        assert_eq!(stage.counts("p-1").await, counted(8, 0, 2));
        let aborted = stage
            .shop
            .change_order_status(&shipped, Aborted, None, NEVER);
        assert!(matches!(
            aborted.await,
            Err(ShopError::NotAWishedStatus { .. })
        ));
    }
}

#[tokio::test(start_paused = true)]
async fn ship_and_cancel_at_once_end_in_one_of_both() {
    for (stage, user) in stages().await {
        let wish = order(&user, "key", &[("p-1", 2, "10.00")]);
        let id = place(&stage, &wish)
            .await
            .unwrap()
            .order
            .value
            .header()
            .id
            .clone();
        let change = |status| stage.shop.change_order_status(&id, status, None, NEVER);
        change(OrderStatus::Paid).await.unwrap();
        let (shipped, cancelled) =
            futures::join!(change(OrderStatus::Shipped), change(OrderStatus::Cancelled));
        assert!(shipped.is_ok() != cancelled.is_ok());
        let sold = if shipped.is_ok() { 2 } else { 0 };
        assert_eq!(stage.counts("p-1").await, counted(10 - sold, 0, sold));
    }
}

#[tokio::test(start_paused = true)]
async fn an_order_closes_its_cart_and_a_closed_cart_refuses_a_second_order() {
    for (stage, user) in stages().await {
        let owner = CartOwner::User(user.clone());
        let (_, cart) = stage.shop.open_cart(&owner, NEVER).await.unwrap();
        let item = ItemWish {
            product: "p-1".parse().unwrap(),
            category: None,
            quantity: model::Quantity::new(1).unwrap(),
        };
        let cart_id = cart.value.id().clone();
        stage.shop.put_item(&cart_id, item, NEVER).await.unwrap();
        let mut wish = order(&user, "key", &[("p-1", 1, "10.00")]);
        wish.cart = Some(cart_id.clone());
        place(&stage, &wish).await.unwrap();
        place(&stage, &wish).await.unwrap();
        let closed = stage.shop.cart(&cart_id).await.unwrap();
        assert_eq!(closed.header().status, CartStatus::Ordered);
        wish.key = "another key".parse().unwrap();
        let twice = place(&stage, &wish).await.unwrap_err();
        assert_eq!(twice, ShopError::CartClosed { cart: cart_id });
        assert_eq!(stage.counts("p-1").await, counted(9, 0, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeat_is_not_refused_by_what_its_first_request_or_others_left() {
    for (stage, user) in stages().await {
        let owner = CartOwner::User(user.clone());
        let (_, cart) = stage.shop.open_cart(&owner, NEVER).await.unwrap();
        let mut wish = order(&user, "key", &[("p-1", 10, "10.00")]);
        wish.cart = Some(cart.value.id().clone());
        let first = place(&stage, &wish).await.unwrap();
        // The cart is closed and everything is sold.
        let again = place(&stage, &wish).await.unwrap();
        assert_eq!((again.made, &again.order), (Made::Before, &first.order));
        // And now the price has moved.
        stage.stock("p-1", "12.00", 10).await;
        let late = place(&stage, &wish).await.unwrap();
        assert_eq!((late.made, &late.order), (Made::Before, &first.order));
        // Whoever comes with another key is refused as before.
        wish.key = "another key".parse().unwrap();
        let refused = place(&stage, &wish).await.unwrap_err();
        assert!(matches!(refused, ShopError::PriceMoved { .. }), "{refused}");
        assert_eq!(stage.counts("p-1").await, counted(0, 0, 10));
    }
}

/// The order is stopped after each of its writes in turn; then a sweeper comes,
/// and the client sends it again.
#[tokio::test(start_paused = true)]
async fn an_order_stopped_anywhere_is_whole_or_gone_after_a_sweep() {
    for (shards, stop) in [
        (1, Stop::BeforeTheWrite),
        (1, Stop::AfterTheWrite),
        (2, Stop::BeforeTheWrite),
        (2, Stop::AfterTheWrite),
    ] {
        for writes in 0.. {
            let stage = Stage::stopping(shards, stop).await;
            stage.stock("p-1", "10.00", 10).await;
            stage.stock("p-2", "5.00", 10).await;
            let user = match shards {
                1 => ann(),
                _ => stage.user_away_from("p-1"),
            };
            let lines = [("p-1", 3, "10.00"), ("p-2", 2, "5.00")];
            let wish = order(&user, "key", &lines);
            stage.stop_after(writes);
            let first = place(&stage, &wish).await;
            let stopped = stage.revive();
            tokio::time::advance(std::time::Duration::from_secs(120)).await;
            let swept = stage.shop.sweep().await.unwrap();
            assert_eq!(swept.failed, 0);
            let after = stage.shop.sweep().await.unwrap();
            assert_eq!(after, Default::default(), "after {writes} writes");
            let again = place(&stage, &wish).await;
            match (&first, &again) {
                (Ok(first), Ok(again)) => assert_eq!(first.order.value, again.order.value),
                (Ok(_), Err(error)) => panic!("an acknowledged order is lost: {error}"),
                (Err(_), Ok(_) | Err(ShopError::OrderAborted { .. })) => {}
                (Err(_), Err(error)) => panic!("after {writes} writes: {error}"),
            }
            let bought = u64::from(again.is_ok());
            let counts = (stage.counts("p-1").await, stage.counts("p-2").await);
            let expected = (
                counted(10 - 3 * bought, 0, 3 * bought),
                counted(10 - 2 * bought, 0, 2 * bought),
            );
            assert_eq!(counts, expected, "after {writes} writes on {shards} shards");
            if !stopped {
                break;
            }
        }
    }
}

/// The same for the end of an order.
#[tokio::test(start_paused = true)]
async fn a_cancelled_order_gives_back_its_stock_wherever_it_was_stopped() {
    for stop in [Stop::BeforeTheWrite, Stop::AfterTheWrite] {
        for writes in 0.. {
            let stage = Stage::stopping(2, stop).await;
            stage.stock("p-1", "10.00", 10).await;
            let user = stage.user_away_from("p-1");
            let wish = order(&user, "key", &[("p-1", 3, "10.00")]);
            let id = place(&stage, &wish)
                .await
                .unwrap()
                .order
                .value
                .header()
                .id
                .clone();
            stage.stop_after(writes);
            let cancel = || {
                stage
                    .shop
                    .change_order_status(&id, OrderStatus::Cancelled, None, NEVER)
            };
            let first = cancel().await;
            let stopped = stage.revive();
            tokio::time::advance(std::time::Duration::from_secs(120)).await;
            stage.shop.sweep().await.unwrap();
            let order = stage.shop.order(&id, None).await.unwrap();
            let sold = match order.header().status {
                OrderStatus::Cancelled => 0,
                _ => 3,
            };
            assert!(first.is_err() || sold == 0);
            assert_eq!(stage.counts("p-1").await, counted(10 - sold, 0, sold));
            cancel().await.unwrap();
            assert_eq!(stage.counts("p-1").await, counted(10, 0, 0));
            if !stopped {
                break;
            }
        }
    }
}

/// A process that slept through its order's end wakes up and takes.
#[tokio::test(start_paused = true)]
async fn a_late_request_of_an_aborted_order_holds_nothing() {
    let stage = Stage::over(2).await;
    stage.stock("p-1", "10.00", 10).await;
    let user = stage.user_away_from("p-1");
    let wish = order(&user, "key", &[("p-1", 3, "10.00")]);
    stage.stop_after(1);
    assert!(place(&stage, &wish).await.is_err());
    stage.revive();
    tokio::time::advance(std::time::Duration::from_secs(120)).await;
    assert_eq!(stage.shop.sweep().await.unwrap().aborted, 1);
    let again = place(&stage, &wish).await.unwrap_err();
    assert!(matches!(again, ShopError::OrderAborted { .. }), "{again:?}");
    let id = OrderId::derived(&user, &wish.key);
    let order = stage.shop.order(&id, Some(&user)).await.unwrap();
    let router = stage.shop.router();
    let product = RecordId::new("p-1").unwrap();
    let take = Change::Stock {
        key: router
            .map()
            .key_by_id(Collection::Products, product)
            .unwrap(),
        part: PartKey::stock(stage::ZONE, 0),
        price: PriceCondition::Any,
        action: StockAction::Take {
            order: id.to_string(),
            quantity: 3,
            at: order.header().created_at,
        },
    };
    let late = router.write(take, NEVER).await.unwrap().outcome;
    assert_eq!(late, Outcome::Stock(StockRefusal::NoReservation));
    assert_eq!(stage.counts("p-1").await, counted(10, 0, 0));
}
