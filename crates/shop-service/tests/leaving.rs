//! Orders leave a layout that keeps finished ones apart, and come back, while somebody is in the middle of something
//! (W46).

#![allow(clippy::unwrap_used)]

mod stage;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use engine_api::Revision;
use feed::Pass;
use model::{OrderId, OrderStatus, UserId};
use shop_service::{Made, PageWish, Rest, RestError, Shop};
use stage::{Happening, Stage, archive, order};

const NEVER: Revision = Revision::ZERO;
/// Has its orders on the first shard, and a history.
const APART: &str = "apart";
/// Has all orders on the second.
const TOGETHER: &str = "together";

/// Says what the story says.
#[derive(Default)]
struct AtRest {
    is_moving: AtomicBool,
    /// What happens before the next answer arrives.
    meanwhile: Mutex<Option<Happening>>,
}

impl fmt::Debug for AtRest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtRest")
    }
}

#[async_trait]
impl Rest for AtRest {
    async fn are_orders_at_rest(&self) -> Result<bool, RestError> {
        let at_rest = !self.is_moving.load(Ordering::SeqCst);
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile.await;
        }
        Ok(at_rest)
    }
}

fn ann() -> UserId {
    "ann".parse().unwrap()
}

async fn stage() -> (Arc<Stage>, Arc<AtRest>) {
    let at_rest = Arc::new(AtRest::default());
    let rest = at_rest.clone();
    let stage = Stage::over(2).await;
    let stage = stage.with_history_as(|history| history.of_layout(APART).resting(rest));
    stage.place_orders(APART, &["shard-1"]).await;
    stage.stock("p-1", "10.00", 100).await;
    (Arc::new(stage), at_rest)
}

async fn cancelled(shop: &Shop, key: &str) -> OrderId {
    let wish = order(&ann(), key, &[("p-1", 2, "10.00")]);
    let placed = shop.place_order(wish, NEVER).await.unwrap();
    let id = placed.order.header().id.clone();
    let status = OrderStatus::Cancelled;
    let changed = shop.change_order_status(&id, status, None, NEVER).await;
    changed.unwrap();
    id
}

/// An order in the history of the one layout, and among all orders of the other one, which has them now.
async fn archived_and_moved(stage: &Stage) -> OrderId {
    let id = cancelled(&stage.shop, "key").await;
    archive(&mut stage.feeds_of(&["shard-1"])).await;
    assert_eq!(stage.orders_in_each().await, (0, 1));
    stage.copy_history_to("shard-2").await;
    stage.place_orders(TOGETHER, &["shard-2"]).await;
    id
}

#[tokio::test(start_paused = true)]
async fn who_reads_while_orders_come_back_is_shown_those_in_the_history() {
    for way in ["by id", "to change it", "by user"] {
        let (stage, _) = stage().await;
        let id = archived_and_moved(&stage).await;
        let back = stage.clone();
        stage.after_reading_live(Box::pin(async move {
            back.place_orders(APART, &["shard-1"]).await;
        }));
        let shop = &stage.shop;
        match way {
            "by id" => {
                let found = shop.order(&id, None).await.unwrap();
                assert_eq!(found.header().status, OrderStatus::Cancelled);
            }
            "to change it" => {
                let again = OrderStatus::Cancelled;
                let changed = shop.change_order_status(&id, again, None, NEVER).await;
                assert_eq!(changed.unwrap().header().status, OrderStatus::Cancelled);
            }
            _ => {
                let page = PageWish {
                    after: None,
                    limit: 10,
                };
                let listed = shop.orders_of_user(&ann(), None, None, page).await;
                assert_eq!(listed.unwrap().items.len(), 1);
            }
        }
    }
}

/// A repeat begins where there is no history, and is written where there is one that has its order.
#[tokio::test(start_paused = true)]
async fn a_repeat_that_is_under_way_when_orders_come_back_makes_no_second_order() {
    let (stage, _) = stage().await;
    archived_and_moved(&stage).await;
    let back = stage.clone();
    // It looks at the price, and the map changes before it writes.
    stage.after_reading_live(Box::pin(async move {
        back.place_orders(APART, &["shard-1"]).await;
    }));
    let wish = order(&ann(), "key", &[("p-1", 2, "10.00")]);
    let repeated = stage.shop.place_order(wish, NEVER).await.unwrap();
    assert_eq!(repeated.made, Made::Before);
    // In the history, and the copy that the move left.
    assert_eq!(stage.orders_in_each().await, (1, 1));
    assert_eq!(stage.counts("p-1").await.sold, 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_archived_while_orders_are_on_their_way() {
    let (stage, at_rest) = stage().await;
    let mut feeds = stage.feeds_of(&["shard-1"]);
    cancelled(&stage.shop, "before").await;
    archive(&mut feeds).await;
    assert_eq!(stage.orders_in_each().await, (0, 1));
    // A move stands in the list, then the next map comes.
    at_rest.is_moving.store(true, Ordering::SeqCst);
    stage.publish_notice().await;
    cancelled(&stage.shop, "meanwhile").await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    for _ in 0..5 {
        assert_eq!(feeds[0].pass().await.unwrap(), Pass::Resting);
    }
    assert_eq!(stage.orders_in_each().await, (1, 1));
    // It was given up: the next map is of orders that stay.
    at_rest.is_moving.store(false, Ordering::SeqCst);
    archive(&mut feeds).await;
    assert_eq!(stage.orders_in_each().await, (0, 2));
}

/// A process has copied an order. Before it removes the order a move begins, or is over already; it hears of that, or
/// has looked just before.
#[tokio::test(start_paused = true)]
async fn who_slept_before_the_removal_takes_nothing_from_where_orders_are_now() {
    for (cut_over, has_looked) in [(false, false), (true, false), (false, true), (true, true)] {
        let (stage, at_rest) = stage().await;
        let mut feeds = stage.feeds_of(&["shard-1"]);
        archive(&mut feeds).await;
        cancelled(&stage.shop, "key").await;
        let (moving, rest) = (stage.clone(), at_rest.clone());
        let moves: Happening = Box::pin(async move {
            rest.is_moving.store(true, Ordering::SeqCst);
            moving.publish_notice().await;
            if cut_over {
                moving.copy_history_to("shard-2").await;
                moving.place_orders(TOGETHER, &["shard-2"]).await;
            }
        });
        let noticed = stage.clone();
        stage.after_writing_history(match has_looked {
            false => moves,
            // Some other map makes it look once more, and the answer is old when it comes.
            true => Box::pin(async move {
                *at_rest.meanwhile.lock().unwrap() = Some(moves);
                noticed.publish_notice().await;
            }),
        });
        tokio::time::sleep(std::time::Duration::from_secs(60)).await;
        for _ in 0..5 {
            feeds[0].pass().await.unwrap();
        }
        let story = format!("cut over: {cut_over}, has looked: {has_looked}");
        let live = if cut_over { 2 } else { 1 };
        assert_eq!(stage.orders_in_each().await, (live, 1), "{story}");
        let wish = order(&ann(), "key", &[("p-1", 2, "10.00")]);
        let repeated = stage.shop.place_order(wish, NEVER).await.unwrap();
        assert_eq!(repeated.made, Made::Before, "{story}");
    }
}
