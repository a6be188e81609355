//! What clients are shown while the copies lag: no older than the layout allows, and
//! never older than what they have seen. What decides is not shown a copy at all.

#![allow(clippy::unwrap_used)]

mod stage;

use std::time::Duration;

use engine_api::Revision;
use layout::{Layout, Operation};
use model::{CartOwner, Money, OrderId, OrderStatus, ProductId, UserId};
use shop_service::{
    ItemWish, PageWish, Policies, ProductWish, SessionWish, Shop, ShopError, Stored,
};
use stage::{Stage, archive, order};

const NEVER: Revision = Revision::ZERO;

/// How old the copies say they are; orders may lag 5 s, their listing 10 s.
const AGE: Duration = Duration::from_secs(3);

fn ann() -> UserId {
    "ann".parse().unwrap()
}

fn page() -> PageWish {
    PageWish {
        after: None,
        limit: 100,
    }
}

/// Policies of a layout that ships, under the name that the stage's map has.
fn policies(layout: &str) -> Policies {
    let file = format!("{}/../../layouts/{layout}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(file).unwrap();
    let mut layout = Layout::parse(&text, layout).unwrap();
    layout.name = layout::embedded().name;
    Policies::of([&layout])
}

/// Two shards with a product, under a map that has stood for longer than any lag.
async fn stage() -> Stage {
    let stage = Stage::over(2)
        .await
        .with_policies(&policies("mongo-sharded"));
    stage.stock("p-1", "10.00", 100).await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    stage
}

async fn place(shop: &Shop, key: &str) -> Stored<model::Order> {
    let wish = order(&ann(), key, &[("p-1", 2, "10.00")]);
    shop.place_order(wish, NEVER).await.unwrap().order
}

async fn change(shop: &Shop, id: &OrderId, status: OrderStatus) -> Revision {
    let changed = shop.change_order_status(id, status, None, NEVER).await;
    changed.unwrap().revision
}

async fn status(shop: &Shop, seen: Revision, id: &OrderId) -> Option<OrderStatus> {
    match shop.shown_to(seen).order(id, None).await {
        Ok(order) => Some(order.header().status),
        Err(ShopError::NotFound { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

async fn listed(shop: &Shop, seen: Revision) -> Vec<OrderStatus> {
    let user = ann();
    let listing = shop
        .shown_to(seen)
        .orders_of_user(&user, None, None, page());
    let items = listing.await.unwrap().items;
    items.iter().map(|order| order.header().status).collect()
}

fn reasons(shop: &Shop, operation: Operation) -> Vec<(&'static str, u64)> {
    shop.read_counts().of(operation).reasons().collect()
}

#[tokio::test(start_paused = true)]
async fn a_status_may_be_old_but_paid_is_told_from_the_latest() {
    let stage = stage().await;
    let id = place(&stage.shop, "k").await.header().id.clone();
    stage.stand_still(AGE);
    change(&stage.shop, &id, OrderStatus::Paid).await;
    let shown = status(&stage.shop, NEVER, &id).await;
    assert_eq!(shown, Some(OrderStatus::Created), "within five seconds");

    stage.stand_still(AGE);
    change(&stage.shop, &id, OrderStatus::Cancelled).await;
    let shown = status(&stage.shop, NEVER, &id).await;
    assert_eq!(
        shown,
        Some(OrderStatus::Cancelled),
        "it is not paid any more"
    );
    // A listing promises less (R3).
    assert_eq!(listed(&stage.shop, NEVER).await, [OrderStatus::Paid]);

    assert_eq!(reasons(&stage.shop, Operation::O3), [("status", 1)]);
    let counts = stage.shop.read_counts();
    let levels: Vec<_> = counts.of(Operation::O3).levels().collect();
    assert_eq!(levels, [("latest", 1), ("secondary", 1)]);
    let levels: Vec<_> = counts.of(Operation::O2).levels().collect();
    assert_eq!(levels, [("secondary", 1)]);
    assert_eq!(counts.of(Operation::O2).age_sum(), AGE);
}

#[tokio::test(start_paused = true)]
async fn whoever_placed_an_order_sees_it_at_every_process() {
    let stage = stage().await;
    stage.stand_still(AGE);
    let placed = place(&stage.shop, "k").await;
    let (id, token) = (&placed.header().id, placed.revision);
    for shop in [&stage.shop, &stage.other] {
        assert_eq!(status(shop, token, id).await, Some(OrderStatus::Created));
        assert_eq!(listed(shop, token).await, [OrderStatus::Created]);
        assert_eq!(status(shop, NEVER, id).await, None, "a stranger may wait");
        assert!(listed(shop, NEVER).await.is_empty());
        assert_eq!(reasons(shop, Operation::O3), [("token", 1)]);
        assert_eq!(reasons(shop, Operation::O2), [("token", 1)]);
    }
}

#[tokio::test(start_paused = true)]
async fn no_client_is_shown_an_older_order_after_a_newer_one() {
    let stage = stage().await;
    stage.stand_still(AGE);
    let placed = place(&stage.shop, "k").await;
    let id = &placed.header().id;
    // Another client, who knows nothing, and asks once where the copy has caught up.
    stage.stand_still(AGE);
    let first = stage.shop.shown_to(NEVER).order(id, None).await.unwrap();
    assert_eq!(first.header().status, OrderStatus::Created);
    change(&stage.shop, id, OrderStatus::Paid).await;
    change(&stage.shop, id, OrderStatus::Shipped).await;
    let latest = stage.shop.order(id, None).await.unwrap();
    for seen in [first.revision, latest.revision] {
        for shop in [&stage.shop, &stage.other] {
            let shown = shop.shown_to(seen).order(id, None).await.unwrap();
            assert!(shown.revision >= seen);
            let user = ann();
            let listing = shop
                .shown_to(seen)
                .orders_of_user(&user, None, None, page());
            let items = listing.await.unwrap().items;
            assert!(items.len() == 1 && items[0].revision >= seen);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn copies_that_are_too_far_behind_are_not_asked() {
    let stage = stage().await;
    let id = place(&stage.shop, "k").await.header().id.clone();
    stage.stand_still(Duration::from_secs(7));
    change(&stage.shop, &id, OrderStatus::Cancelled).await;
    let shown = status(&stage.shop, NEVER, &id).await;
    assert_eq!(
        shown,
        Some(OrderStatus::Cancelled),
        "five seconds at the most"
    );
    assert_eq!(listed(&stage.shop, NEVER).await, [OrderStatus::Created]);
    assert_eq!(reasons(&stage.shop, Operation::O3), [("lag", 1)]);
    let of_period = stage
        .shop
        .shown_to(NEVER)
        .orders_of_period(None, None, page());
    let of_period = of_period.await.unwrap().items;
    assert_eq!(of_period[0].header().status, OrderStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn what_decides_is_never_shown_a_copy() {
    let stage = Stage::over(2)
        .await
        .with_policies(&policies("mongo-sharded"));
    tokio::time::sleep(Duration::from_secs(61)).await;
    // From here on the copies show an empty shop.
    stage.stand_still(AGE);
    stage.stock("p-1", "10.00", 100).await;
    let product: ProductId = "p-1".parse().unwrap();
    for shop in [&stage.shop, &stage.other] {
        let page = shop.shown_to(NEVER).product(&product, None).await;
        assert!(matches!(page, Err(ShopError::NotFound { .. })), "{page:?}");
        let stock = shop.shown_to(NEVER).stock(&product).await.unwrap();
        assert_eq!(stock.stocks().next().unwrap().1.counts().available, 100);
        shop.shown_to(NEVER).found_product(&product).await.unwrap();
    }
    // A new price counts at once, at the checkout and in a cart.
    let wish = ProductWish {
        id: product.clone(),
        category: "phones".parse().unwrap(),
        name: "Phone".parse().unwrap(),
        price: Money::parse("12.00").unwrap(),
        image: None,
        description: None,
        attributes: Default::default(),
    };
    stage.stand_still(AGE);
    stage.other.put_product(wish, None, NEVER).await.unwrap();
    let old_price = order(&ann(), "old", &[("p-1", 1, "10.00")]);
    let refused = stage.shop.place_order(old_price, NEVER).await.unwrap_err();
    assert!(matches!(refused, ShopError::PriceMoved { .. }), "{refused}");
    let owner = CartOwner::User(ann());
    let (_, cart) = stage.shop.open_cart(&owner, NEVER).await.unwrap();
    let item = ItemWish {
        product: product.clone(),
        category: None,
        quantity: model::Quantity::new(1).unwrap(),
    };
    let cart = stage.shop.put_item(cart.id(), item, NEVER).await.unwrap();
    assert_eq!(
        cart.lines().next().unwrap().line.price,
        Money::parse("12.00").unwrap()
    );
    let shown = stage.other.shown_to(NEVER).active_cart(&owner).await;
    assert_eq!(shown.unwrap(), cart);

    // Statuses, and the sessions that a cart hangs on.
    let new_price = order(&ann(), "new", &[("p-1", 1, "12.00")]);
    let placed = stage.shop.place_order(new_price, NEVER).await.unwrap();
    let id = placed.order.header().id.clone();
    change(&stage.other, &id, OrderStatus::Paid).await;
    let again = stage
        .shop
        .change_order_status(&id, OrderStatus::Delivered, None, NEVER);
    assert!(matches!(again.await, Err(ShopError::IllegalStatus(_))));
    change(&stage.shop, &id, OrderStatus::Cancelled).await;
    assert_eq!(stage.counts("p-1").await.available, 100);
    let session = stage
        .shop
        .open_session(SessionWish::default())
        .await
        .unwrap();
    let guest = CartOwner::Guest(session.id().clone());
    stage.other.open_cart(&guest, NEVER).await.unwrap();
    stage
        .other
        .close_session(session.id(), NEVER)
        .await
        .unwrap();
    let refused = stage.shop.open_cart(&guest, NEVER).await.unwrap_err();
    assert!(matches!(refused, ShopError::SessionEnded(_)), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn an_order_that_left_an_older_copy_is_found_in_the_history() {
    let stage = stage().await.with_history();
    let shop = &stage.shop;
    let mut feeds = stage.feeds();
    archive(&mut feeds).await;
    let id = place(shop, "k").await.header().id.clone();
    for status in [
        OrderStatus::Paid,
        OrderStatus::Shipped,
        OrderStatus::Delivered,
    ] {
        change(shop, &id, status).await;
    }
    // The copy still has the order, and the history has it as well: once.
    stage.stand_still(AGE);
    archive(&mut feeds).await;
    assert_eq!(stage.orders_in_each().await, (0, 1));
    assert_eq!(status(shop, NEVER, &id).await, Some(OrderStatus::Delivered));
    assert_eq!(listed(shop, NEVER).await, [OrderStatus::Delivered]);
    // The copy has lost it: the history had it before.
    stage.stand_still(AGE);
    assert_eq!(status(shop, NEVER, &id).await, Some(OrderStatus::Delivered));
    assert_eq!(listed(shop, NEVER).await, [OrderStatus::Delivered]);
    // It is returned, live: the copy does not know, but its client does.
    let returned = change(shop, &id, OrderStatus::Returned).await;
    assert_eq!(status(shop, NEVER, &id).await, Some(OrderStatus::Delivered));
    for shop in [shop, &stage.other] {
        let shown = status(shop, returned, &id).await;
        assert_eq!(shown, Some(OrderStatus::Returned));
        assert_eq!(listed(shop, returned).await, [OrderStatus::Returned]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_closed_stays_so_for_who_closed_it() {
    let stage = Stage::over(2)
        .await
        .with_policies(&policies("cassandra-orders"));
    tokio::time::sleep(Duration::from_secs(61)).await;
    let session = stage
        .shop
        .open_session(SessionWish::default())
        .await
        .unwrap();
    stage.stand_still(Duration::from_secs(3_600));
    let closed = stage.shop.close_session(session.id(), NEVER).await.unwrap();
    assert!(closed > session.revision);
    let stranger = stage.other.shown_to(session.revision);
    let shown = stranger.session(session.id()).await.unwrap();
    assert_eq!(shown.times().closed_at, None);
    let own = stage.other.shown_to(closed).session(session.id()).await;
    let own = own.unwrap();
    assert!(own.times().closed_at.is_some());
    assert_eq!(own.revision, closed);
    assert_eq!(reasons(&stage.other, Operation::S2), [("token", 1)]);
    let again = stage.shop.close_session(session.id(), NEVER).await.unwrap();
    assert_eq!(again, closed);
}
