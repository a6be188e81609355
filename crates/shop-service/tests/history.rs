//! Finished orders go to a store of their own, and nobody who asks can tell (W33).

#![allow(clippy::unwrap_used)]

mod stage;

use std::sync::Arc;

use engine_api::Revision;
use model::{CartOwner, Order, OrderId, OrderStatus, StockCounts, UserId};
use shop_service::{Listing, Made, OrderWish, PageWish, Placed, Shop, ShopError};
use stage::{Happening, Stage, Stop, archive, order};
use tokio::sync::{Mutex, oneshot};

const NEVER: Revision = Revision::ZERO;

const TO_THE_DOOR: [OrderStatus; 3] = [
    OrderStatus::Paid,
    OrderStatus::Shipped,
    OrderStatus::Delivered,
];

fn ann() -> UserId {
    "ann".parse().unwrap()
}

fn page(limit: usize) -> PageWish {
    PageWish { after: None, limit }
}

fn counted(available: u64, sold: u64) -> StockCounts {
    StockCounts {
        received: available + sold,
        available,
        reserved: 0,
        sold,
    }
}

/// One shard has all sides, or two have one each.
async fn stages() -> [(Stage, UserId); 2] {
    let one = Stage::over(1).await.with_history();
    let two = Stage::over(2).await.with_history();
    one.stock("p-1", "10.00", 100).await;
    two.stock("p-1", "10.00", 100).await;
    let away = two.user_away_from("p-1");
    [(one, ann()), (two, away)]
}

async fn place(shop: &Shop, user: &UserId, key: &str) -> Placed {
    let wish = order(user, key, &[("p-1", 2, "10.00")]);
    shop.place_order(wish, NEVER).await.unwrap()
}

async fn change(shop: &Shop, id: &OrderId, status: OrderStatus) -> Result<Order, ShopError> {
    let changed = shop.change_order_status(id, status, None, NEVER).await;
    changed.map(|order| order.value.clone())
}

async fn deliver(shop: &Shop, user: &UserId, key: &str) -> OrderId {
    let id = place(shop, user, key).await.order.header().id.clone();
    for status in TO_THE_DOOR {
        change(shop, &id, status).await.unwrap();
    }
    id
}

/// The order by id, with and without the user, and once in each listing.
async fn assert_once(shop: &Shop, user: &UserId, id: &OrderId, status: OrderStatus, story: &str) {
    for user in [None, Some(user)] {
        let found = shop.order(id, user).await.unwrap();
        assert_eq!(found.header().status, status, "{story}");
    }
    let of_user = shop.orders_of_user(user, None, None, page(100));
    assert_listed_once(&of_user.await.unwrap(), id, status, story);
    let of_period = shop.orders_of_period(None, None, page(100));
    assert_listed_once(&of_period.await.unwrap(), id, status, story);
}

fn assert_listed_once(list: &Listing<Order>, id: &OrderId, status: OrderStatus, story: &str) {
    let found = list.items.iter().filter(|order| order.header().id == *id);
    let statuses: Vec<OrderStatus> = found.map(|order| order.header().status).collect();
    assert_eq!(statuses, [status], "{story}");
}

#[tokio::test(start_paused = true)]
async fn a_finished_order_is_answered_from_the_history() {
    for (stage, user) in stages().await {
        let (shop, mut feeds) = (&stage.shop, stage.feeds());
        archive(&mut feeds).await;
        let delivered = deliver(shop, &user, "delivered").await;
        let cancelled = place(shop, &user, "cancelled").await;
        let cancelled = cancelled.order.header().id.clone();
        change(shop, &cancelled, OrderStatus::Cancelled)
            .await
            .unwrap();
        let paid = place(shop, &user, "paid").await.order.header().id.clone();
        change(shop, &paid, OrderStatus::Paid).await.unwrap();
        let before = shop.order(&delivered, None).await.unwrap();
        // Too young to go.
        for feed in &mut feeds {
            feed.pass().await.unwrap();
        }
        assert_eq!(stage.orders_in_each().await, (3, 0));
        archive(&mut feeds).await;
        assert_eq!(stage.orders_in_each().await, (1, 2));
        for (id, status) in [
            (&delivered, OrderStatus::Delivered),
            (&cancelled, OrderStatus::Cancelled),
            (&paid, OrderStatus::Paid),
        ] {
            assert_once(shop, &user, id, status, "after the archiving").await;
        }
        // The same order at the same revision: tags and tokens stay good.
        assert_eq!(shop.order(&delivered, None).await.unwrap(), before);
        let archived: u64 = feeds.iter().map(|feed| feed.counts().removed.value()).sum();
        assert_eq!(archived, 2);
        let illegal = change(shop, &delivered, OrderStatus::Cancelled).await;
        assert!(matches!(illegal, Err(ShopError::IllegalStatus(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn pages_run_over_both_stores_newest_first_and_by_date() {
    let (stage, user) = stages().await.into_iter().next_back().unwrap();
    let (shop, mut feeds) = (&stage.shop, stage.feeds());
    let mut ids = Vec::new();
    for number in 0..9 {
        let key = format!("key-{number}");
        ids.push(match number % 3 {
            0 => place(shop, &user, &key).await.order.header().id.clone(),
            _ => deliver(shop, &user, &key).await,
        });
        if number % 2 == 0 {
            archive(&mut feeds).await;
        }
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    archive(&mut feeds).await;
    assert_eq!(stage.orders_in_each().await, (3, 6));
    ids.reverse();
    for limit in 1..=10 {
        let mut found = Vec::new();
        let mut wish = page(limit);
        loop {
            let list = shop.orders_of_user(&user, None, None, wish.clone());
            let list = list.await.unwrap();
            assert!(list.items.len() <= limit);
            found.extend(list.items.iter().map(|order| order.header().id.clone()));
            match list.next {
                Some(next) => wish.after = Some(next),
                None => break,
            }
        }
        assert_eq!(found, ids, "pages of {limit}");
    }
    let moment = async |id: &OrderId| shop.order(id, None).await.unwrap().header().created_at;
    let (from, to) = (moment(&ids[6]).await, moment(&ids[2]).await);
    let some = shop.orders_of_period(Some(from), Some(to), page(100));
    let some = some.await.unwrap().items;
    let some: Vec<OrderId> = some.iter().map(|order| order.header().id.clone()).collect();
    assert_eq!(some, ids[2..=6]);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_of_an_archived_order_is_answered_with_it() {
    for (stage, user) in stages().await {
        let (shop, mut feeds) = (&stage.shop, stage.feeds());
        let id = deliver(shop, &user, "key").await;
        archive(&mut feeds).await;
        assert_eq!(stage.orders_in_each().await, (0, 1));
        let again = place(shop, &user, "key").await;
        assert_eq!(again.made, Made::Before);
        assert_eq!(again.order.header().id, id);
        assert_eq!(again.order.header().status, OrderStatus::Delivered);
        let other = order(&user, "key", &[("p-1", 1, "10.00")]);
        let refused = shop.place_order(other, NEVER).await;
        assert_eq!(refused, Err(ShopError::KeyReused));
        assert_eq!(stage.orders_in_each().await, (0, 1));
        assert_eq!(stage.counts("p-1").await, counted(98, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn an_archived_order_is_returned_among_the_live_ones_and_goes_back() {
    for (stage, user) in stages().await {
        let (shop, mut feeds) = (&stage.shop, stage.feeds());
        let id = deliver(shop, &user, "key").await;
        archive(&mut feeds).await;
        let delivered = shop.order(&id, None).await.unwrap();
        let stale = shop
            .change_order_status(&id, OrderStatus::Returned, Some(NEVER), NEVER)
            .await;
        assert!(matches!(stale, Err(ShopError::Precondition { .. })));
        let expected = Some(delivered.revision);
        let returned = shop
            .change_order_status(&id, OrderStatus::Returned, expected, NEVER)
            .await
            .unwrap();
        assert!(returned.revision > delivered.revision);
        assert_eq!(stage.counts("p-1").await, counted(100, 0));
        assert_eq!(stage.orders_in_each().await, (1, 1));
        assert_once(shop, &user, &id, OrderStatus::Returned, "in both").await;
        archive(&mut feeds).await;
        assert_eq!(stage.orders_in_each().await, (0, 1));
        assert_once(shop, &user, &id, OrderStatus::Returned, "archived again").await;
        assert_eq!(shop.order(&id, None).await.unwrap(), returned);
        // Asked again, nothing more comes back.
        change(shop, &id, OrderStatus::Returned).await.unwrap();
        assert_eq!(stage.counts("p-1").await, counted(100, 0));
        assert_eq!(stage.orders_in_each().await, (0, 1));
    }
}

/// The feed moves an order while somebody reads: between the two stores, or after
/// the first answer of either.
#[tokio::test(start_paused = true)]
async fn an_order_that_moves_under_a_reader_is_seen_once() {
    for (stage, user) in stages().await {
        let stage = Arc::new(stage);
        let feeds = Arc::new(Mutex::new(stage.feeds()));
        let archiving = || -> Happening {
            let feeds = feeds.clone();
            Box::pin(async move { archive(&mut feeds.lock().await).await })
        };
        let shop = &stage.shop;
        for round in 0..8 {
            let id = deliver(shop, &user, &format!("key-{round}")).await;
            let story = format!("round {round}");
            if round % 2 == 0 {
                stage.after_reading_history(archiving());
            } else {
                stage.after_reading_live(archiving());
            }
            match round / 2 {
                0 => {
                    let found = shop.order(&id, Some(&user)).await.unwrap();
                    assert_eq!(found.header().status, OrderStatus::Delivered, "{story}");
                }
                1 => {
                    let shown = shop.shown_to(NEVER).order(&id, Some(&user)).await;
                    let shown = shown.unwrap().header().status;
                    assert_eq!(shown, OrderStatus::Delivered, "{story}");
                }
                2 => {
                    let list = shop.orders_of_user(&user, None, None, page(100));
                    let list = list.await.unwrap();
                    assert_listed_once(&list, &id, OrderStatus::Delivered, &story);
                }
                _ => {
                    let list = shop.orders_of_period(None, None, page(100));
                    let list = list.await.unwrap();
                    assert_listed_once(&list, &id, OrderStatus::Delivered, &story);
                }
            }
        }
    }
}

/// Two windows order one cart under two keys, in one tick of the clock: the cart is in
/// both commits, and neither may be taken for a repeat of the other (W5).
#[tokio::test(start_paused = true)]
async fn two_orders_of_one_cart_in_one_tick_are_two() {
    let stage = Stage::over(1).await.with_history();
    stage.stock("p-1", "10.00", 100).await;
    let opened = stage.shop.open_cart(&CartOwner::User(ann()), NEVER).await;
    let cart = opened.unwrap().1.value.id().clone();
    let wish = |key: &str| OrderWish {
        cart: Some(cart.clone()),
        ..order(&ann(), key, &[("p-1", 2, "10.00")])
    };
    let (one, two) = tokio::join!(
        stage.shop.place_order(wish("one"), NEVER),
        stage.shop.place_order(wish("two"), NEVER),
    );
    let placed: Vec<OrderId> = [one, two]
        .into_iter()
        .flatten()
        .map(|placed| placed.order.header().id.clone())
        .collect();
    assert!(!placed.is_empty());
    for id in &placed {
        assert_once(&stage.shop, &ann(), id, OrderStatus::Created, "told of").await;
    }
    let sold = 2 * placed.len() as u64;
    assert_eq!(stage.counts("p-1").await, counted(100 - sold, sold));
}

/// A process looks for an order, finds none, and sleeps through its whole life.
#[tokio::test(start_paused = true)]
async fn an_order_that_came_and_went_while_a_repeat_slept_is_not_made_again() {
    for (stage, user) in stages().await {
        let stage = Arc::new(stage);
        let mut feeds = stage.feeds();
        archive(&mut feeds).await;
        let (shop, other) = (stage.other.clone(), user.clone());
        stage.after_reading_history(Box::pin(async move {
            deliver(&shop, &other, "key").await;
            archive(&mut feeds).await;
        }));
        let slept = place(&stage.shop, &user, "key").await;
        assert_eq!(slept.made, Made::Before);
        assert_eq!(slept.order.header().status, OrderStatus::Delivered);
        assert_eq!(stage.orders_in_each().await, (0, 1));
        assert_eq!(stage.counts("p-1").await, counted(98, 2));
    }
}

/// Likewise one who returns an order that is returned and archived meanwhile.
#[tokio::test(start_paused = true)]
async fn an_order_that_was_returned_while_another_return_slept_is_returned_once() {
    for (stage, user) in stages().await {
        let stage = Arc::new(stage);
        let mut feeds = stage.feeds();
        // After its first look at the history, and right before it writes.
        for reads in [1, 2] {
            let key = format!("key-{reads}");
            let id = deliver(&stage.shop, &user, &key).await;
            archive(&mut feeds).await;
            let feeds_of_another = std::mem::take(&mut feeds);
            let (shop, other) = (stage.other.clone(), id.clone());
            let (back, done) = oneshot::channel();
            let returning: Happening = Box::pin(async move {
                let mut feeds = feeds_of_another;
                change(&shop, &other, OrderStatus::Returned).await.unwrap();
                archive(&mut feeds).await;
                let _ = back.send(feeds);
            });
            stage.after_reading_history(after(&stage, reads, returning));
            let returned = change(&stage.shop, &id, OrderStatus::Returned).await;
            assert_eq!(returned.unwrap().header().status, OrderStatus::Returned);
            feeds = done.await.unwrap();
            archive(&mut feeds).await;
            assert_eq!(stage.orders_in_each().await.0, 0);
            assert_eq!(stage.counts("p-1").await, counted(100, 0), "{key}");
            assert_once(&stage.shop, &user, &id, OrderStatus::Returned, &key).await;
        }
    }
}

/// The happening after so many more reads of the history.
fn after(stage: &Arc<Stage>, reads: u32, happening: Happening) -> Happening {
    if reads <= 1 {
        return happening;
    }
    let stage = stage.clone();
    Box::pin(async move {
        let next = after(&stage, reads - 1, happening);
        stage.after_reading_history(next);
    })
}

/// The order is changed after the history has it and before it is removed.
#[tokio::test(start_paused = true)]
async fn an_order_that_changes_while_it_is_archived_stays_live() {
    for (stage, user) in stages().await {
        let stage = Arc::new(stage);
        let mut feeds = stage.feeds();
        archive(&mut feeds).await;
        let id = deliver(&stage.shop, &user, "key").await;
        let (shop, of_user, returned) = (stage.other.clone(), user.clone(), id.clone());
        stage.after_writing_history(Box::pin(async move {
            change(&shop, &returned, OrderStatus::Returned)
                .await
                .unwrap();
            assert_once(&shop, &of_user, &returned, OrderStatus::Returned, "between").await;
        }));
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        for feed in &mut feeds {
            feed.pass().await.unwrap();
        }
        assert_eq!(stage.orders_in_each().await, (1, 1));
        assert_once(&stage.shop, &user, &id, OrderStatus::Returned, "kept").await;
        archive(&mut feeds).await;
        assert_eq!(stage.orders_in_each().await, (0, 1));
        assert_once(&stage.shop, &user, &id, OrderStatus::Returned, "gone over").await;
        assert_eq!(stage.counts("p-1").await, counted(100, 0));
    }
}

/// Archiving and returning stop after each of their writes in turn.
#[tokio::test(start_paused = true)]
async fn wherever_archiving_or_returning_stops_every_order_is_there_once() {
    for stop in [Stop::BeforeTheWrite, Stop::AfterTheWrite] {
        for writes in 0..12 {
            let stage = Stage::stopping(2, stop).await.with_history();
            stage.stock("p-1", "10.00", 100).await;
            let user = stage.user_away_from("p-1");
            let shop = &stage.shop;
            let mut feeds = stage.feeds();
            archive(&mut feeds).await;
            let first = deliver(shop, &user, "first").await;
            archive(&mut feeds).await;
            let second = deliver(shop, &user, "second").await;
            let story = format!("stopped {stop:?} {writes}");

            tokio::time::sleep(std::time::Duration::from_secs(2)).await;
            stage.stop_after(writes);
            let mut status = OrderStatus::Delivered;
            for feed in &mut feeds {
                let _ = feed.pass().await;
            }
            let asked = change(shop, &first, OrderStatus::Returned).await;
            let stopped = stage.revive();
            let seen = shop.order(&first, None).await.unwrap().header().status;
            assert!(asked.is_err() || seen == OrderStatus::Returned, "{story}");
            if seen == OrderStatus::Returned {
                status = seen;
            }
            assert_once(shop, &user, &first, status, &story).await;
            assert_once(shop, &user, &second, OrderStatus::Delivered, &story).await;

            // A sweeper finishes the return, another process the archiving.
            tokio::time::sleep(std::time::Duration::from_secs(120)).await;
            shop.sweep().await.unwrap();
            archive(&mut stage.feeds()).await;
            assert_eq!(stage.orders_in_each().await, (0, 2), "{story}");
            assert_once(shop, &user, &first, status, &story).await;
            assert_once(shop, &user, &second, OrderStatus::Delivered, &story).await;
            let sold = if status == OrderStatus::Returned {
                2
            } else {
                4
            };
            let counts = stage.counts("p-1").await;
            assert_eq!(counts, counted(100 - sold, sold), "{story}");
            if !stopped {
                return_reached(writes);
                break;
            }
        }
    }
}

/// The loop over the writes ended because nothing was left to stop.
fn return_reached(writes: i64) {
    assert!(writes >= 4, "only {writes} writes to stop at");
}
