//! The reconciler: finds what was left half-done or went wrong, mends what the records
//! decide, leaves the rest, and says nothing that traffic alone explains.

#![allow(clippy::unwrap_used)]

mod stage;

use std::time::Duration;

use engine_api::{
    Change, Outcome, PartKey, PartsChange, PriceCondition, RecordId, RecordKey, Revision,
    StockAction,
};
use layout::{Collection, Field, Fields, Value};
use model::{CartId, CartOwner, OrderId, OrderStatus, Quantity, StockCounts, UserId};
use shop_service::{
    ItemWish, Kind, Place, ReconcileLimits, Report, SessionWish, Shop, ShopError, Step, Wish,
};
use stage::{Stage, Stop, archive, order};

const NEVER: Revision = Revision::ZERO;

fn counted(available: u64, reserved: u64, sold: u64) -> StockCounts {
    StockCounts {
        received: available + reserved + sold,
        available,
        reserved,
        sold,
    }
}

async fn reconcile(shop: &Shop, wish: Wish) -> Result<Report, ShopError> {
    let limits = ReconcileLimits::default();
    let mut reconciler = shop.reconciler(wish, limits, None).unwrap();
    while reconciler.step().await? == Step::More {}
    Ok(reconciler.report().clone())
}

/// What was found and what of it was mended, of all kinds.
fn sums(report: &Report) -> (u64, u64) {
    let tallies = Kind::ALL.map(|kind| report.tally(kind));
    let found = tallies.iter().map(|tally| tally.found).sum();
    (found, tallies.iter().map(|tally| tally.mended).sum())
}

async fn patience_passes() {
    tokio::time::advance(Duration::from_secs(120)).await;
}

/// Two shards, so that an order is a saga.
async fn saga(stop: Stop) -> (Stage, UserId) {
    let stage = Stage::stopping(2, stop).await;
    stage.stock("p-1", "10.00", 10).await;
    stage.stock("p-2", "5.00", 10).await;
    let user = stage.user_away_from("p-1");
    (stage, user)
}

fn product(stage: &Stage, id: &str) -> RecordKey {
    let id = RecordId::new(id).unwrap();
    let map = stage.shop.router().map();
    map.key_by_id(Collection::Products, id).unwrap()
}

async fn stock(stage: &Stage, id: &str, action: StockAction) {
    let change = Change::Stock {
        key: product(stage, id),
        part: PartKey::stock(stage::ZONE, 0),
        price: PriceCondition::Any,
        action,
    };
    let written = stage.shop.router().write(change, NEVER).await.unwrap();
    assert!(
        matches!(written.outcome, Outcome::Done { .. }),
        "{written:?}"
    );
}

async fn take(stage: &Stage, id: &str, order: &OrderId, quantity: u32) {
    let action = StockAction::Take {
        order: order.to_string(),
        quantity,
        at: model::Timestamp::from_unix_micros(1_700_000_000_000_001),
    };
    stock(stage, id, action).await;
}

fn two_lines(user: &UserId) -> shop_service::OrderWish {
    order(user, "key", &[("p-1", 3, "10.00"), ("p-2", 2, "5.00")])
}

#[tokio::test(start_paused = true)]
async fn wherever_an_order_and_its_reconciler_stop_the_next_one_brings_it_to_an_end() {
    let mut stopped_reconcilers = 0;
    for stop in [Stop::BeforeTheWrite, Stop::AfterTheWrite] {
        for writes in 0.. {
            let mut order_stopped = false;
            for writes_of_reconciler in 0.. {
                let (stage, user) = saga(stop).await;
                let wish = two_lines(&user);
                stage.stop_after(writes);
                let first = stage.shop.place_order(wish.clone(), NEVER).await;
                order_stopped = stage.revive();
                patience_passes().await;
                stage.stop_after(writes_of_reconciler);
                let killed = reconcile(&stage.shop, Wish::Mend).await;
                let reconciler_stopped = stage.revive();
                patience_passes().await;
                let report = match killed {
                    Ok(report) if !reconciler_stopped => report,
                    _ => reconcile(&stage.other, Wish::Mend).await.unwrap(),
                };
                stopped_reconcilers += u32::from(reconciler_stopped);
                assert_eq!(report.left_count(), 0, "{report:?}");
                let after = reconcile(&stage.other, Wish::LookOnly).await.unwrap();
                assert_eq!(sums(&after), (0, 0), "{after:?}");
                let again = stage.shop.place_order(wish, NEVER).await;
                match (&first, &again) {
                    (Ok(_), Ok(_)) | (Err(_), Ok(_) | Err(ShopError::OrderAborted { .. })) => {}
                    other => panic!("after {writes} and {writes_of_reconciler}: {other:?}"),
                }
                let bought = u64::from(again.is_ok());
                let counts = (stage.counts("p-1").await, stage.counts("p-2").await);
                let expected = (
                    counted(10 - 3 * bought, 0, 3 * bought),
                    counted(10 - 2 * bought, 0, 2 * bought),
                );
                assert_eq!(
                    counts, expected,
                    "after {writes} and {writes_of_reconciler}"
                );
                if !reconciler_stopped {
                    break;
                }
            }
            if !order_stopped {
                break;
            }
        }
    }
    assert!(stopped_reconcilers > 20, "{stopped_reconcilers}");
}

/// However long ago it began: what was changed a moment ago is somebody's.
#[tokio::test(start_paused = true)]
async fn work_that_is_under_way_is_left_alone() {
    let (stage, user) = saga(Stop::BeforeTheWrite).await;
    let wish = two_lines(&user);
    stage.stop_after(2);
    assert!(stage.shop.place_order(wish.clone(), NEVER).await.is_err());
    stage.revive();
    let report = reconcile(&stage.shop, Wish::Mend).await.unwrap();
    assert_eq!(sums(&report), (0, 0), "{report:?}");
    assert_eq!(report.tally(Kind::OpenOrder).looked_at, 1);
    assert_eq!(report.tally(Kind::Reservation).looked_at, 1);
    let placed = stage.shop.place_order(wish, NEVER).await.unwrap();

    patience_passes().await;
    stage.stop_after(1);
    let id = &placed.order.header().id;
    let cancel = || {
        let shop = &stage.shop;
        shop.change_order_status(id, OrderStatus::Cancelled, None, NEVER)
    };
    assert!(cancel().await.is_err());
    stage.revive();
    let report = reconcile(&stage.shop, Wish::Mend).await.unwrap();
    assert_eq!(sums(&report), (0, 0), "{report:?}");
    patience_passes().await;
    let report = reconcile(&stage.shop, Wish::Mend).await.unwrap();
    assert_eq!(report.tally(Kind::OpenOrder).mended, 1);
    assert_eq!(stage.counts("p-1").await, counted(10, 0, 0));
}

/// An order that the reconciler would give up is completed by its client meanwhile.
#[tokio::test(start_paused = true)]
async fn an_order_that_goes_on_while_it_is_looked_at_is_not_given_up() {
    let (stage, user) = saga(Stop::BeforeTheWrite).await;
    let wish = two_lines(&user);
    stage.stop_after(2);
    assert!(stage.shop.place_order(wish.clone(), NEVER).await.is_err());
    stage.revive();
    patience_passes().await;
    let (other, repeat) = (stage.other.clone(), wish.clone());
    let goes_on = async move {
        other.place_order(repeat, NEVER).await.unwrap();
    };
    stage.after_scanning_live(2, Box::pin(goes_on));
    let report = reconcile(&stage.shop, Wish::Mend).await.unwrap();
    assert_eq!(report.left_count(), 0, "{report:?}");
    let placed = stage.shop.place_order(wish, NEVER).await.unwrap();
    assert_eq!(placed.order.header().status, OrderStatus::Created);
    assert_eq!(stage.counts("p-1").await, counted(7, 0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_reservation_of_a_decided_order_is_resolved_by_its_record() {
    let (stage, user) = saga(Stop::BeforeTheWrite).await;
    let aborted = {
        stage.stop_after(1);
        let wish = two_lines(&user);
        assert!(stage.shop.place_order(wish.clone(), NEVER).await.is_err());
        stage.revive();
        patience_passes().await;
        assert_eq!(stage.shop.sweep().await.unwrap().aborted, 1);
        OrderId::derived(&user, &wish.key)
    };
    // A take that the aborted order never asked for, and a claim that was lost.
    stage.stock("p-3", "1.00", 5).await;
    take(&stage, "p-3", &aborted, 4).await;
    let bought = order(&user, "other", &[("p-1", 1, "10.00")]);
    stage.stop_after(3);
    assert!(stage.shop.place_order(bought.clone(), NEVER).await.is_err());
    stage.revive();
    let bought = OrderId::derived(&user, &bought.key);
    forget_the_mark(&stage, &bought).await;
    assert_eq!(stage.counts("p-1").await, counted(9, 1, 0));
    assert_eq!(stage.shop.sweep().await.unwrap(), Default::default());

    let report = reconcile(&stage.shop, Wish::Mend).await.unwrap();
    assert_eq!(sums(&report), (2, 2), "{report:?}");
    assert_eq!(stage.counts("p-3").await, counted(5, 0, 0));
    assert_eq!(stage.counts("p-1").await, counted(9, 0, 1));
    let after = reconcile(&stage.shop, Wish::Mend).await.unwrap();
    assert_eq!(sums(&after), (0, 0), "{after:?}");
}

/// As if the order had been settled without its claims.
async fn forget_the_mark(stage: &Stage, id: &OrderId) {
    let found = stage.shop.order(id, None).await.unwrap();
    assert_eq!(found.header().status, OrderStatus::Created);
    let user = Value::text(found.header().user.as_str());
    let hints = Fields::new().with(Field::UserId, user);
    let record_id = RecordId::new(id.as_str()).unwrap();
    let router = stage.shop.router();
    let key = router.map().key_for(Collection::Orders, record_id, &hints);
    let record = router.get(&key.unwrap()).await.unwrap().unwrap();
    let mut header = record.header.content.live().unwrap().clone();
    assert!(header.remove(Field::Settlement).is_some());
    let change = Change::ChangeIf {
        key: record.key.clone(),
        expected: record.header.revision,
        header,
        parts: PartsChange::Keep,
    };
    assert!(router.write(change, NEVER).await.unwrap().outcome.is_done());
}

/// The order is settled between the look at the stock and the look at the order.
#[tokio::test(start_paused = true)]
async fn a_claim_that_comes_meanwhile_is_no_problem() {
    let (stage, user) = saga(Stop::BeforeTheWrite).await;
    let wish = order(&user, "key", &[("p-1", 3, "10.00")]);
    stage.stop_after(2);
    assert!(stage.shop.place_order(wish.clone(), NEVER).await.is_err());
    stage.revive();
    let (other, repeat) = (stage.other.clone(), wish.clone());
    let goes_on = async move {
        other.place_order(repeat, NEVER).await.unwrap();
    };
    // The products of both shards are scanned before the order goes on.
    let shard = stage.shop.router().map();
    let of_product = shard.owner(&product(&stage, "p-1")).unwrap().to_string();
    let scans_before = usize::from(of_product == "shard-2");
    stage.after_scanning_live(scans_before, Box::pin(goes_on));
    let report = reconcile(&stage.shop, Wish::Mend).await.unwrap();
    assert_eq!(sums(&report), (0, 0), "{report:?}");
    assert_eq!(report.tally(Kind::Reservation).looked_at, 1);
    assert_eq!(stage.counts("p-1").await, counted(7, 0, 3));
}

#[tokio::test(start_paused = true)]
async fn what_would_be_guessing_is_named_and_left() {
    let (stage, user) = saga(Stop::BeforeTheWrite).await;
    let placed = stage.shop.place_order(two_lines(&user), NEVER).await;
    let placed = placed.unwrap().order.header().id.clone();
    let nobody: OrderId = OrderId::derived(&user, &"nobody".parse().unwrap());
    stage.stock("p-3", "1.00", 5).await;
    take(&stage, "p-3", &nobody, 2).await;
    take(&stage, "p-3", &placed, 1).await;
    let before = stage.counts("p-3").await;
    patience_passes().await;
    let report = reconcile(&stage.shop, Wish::Mend).await.unwrap();
    assert_eq!(report.tally(Kind::Reservation).left, 2, "{report:?}");
    // Three pieces that no order has.
    assert_eq!(report.tally(Kind::Shelf).left, 1, "{report:?}");
    assert_eq!(sums(&report), (3, 0));
    let said = |key: String, part: &str| {
        let mut left = report.left_named().iter();
        let left = left.find(|left| left.key == key).unwrap();
        assert!(left.what.contains(part), "{left:?}");
    };
    said(format!("p-3/stock/north/0/{nobody}"), "does not exist");
    said(format!("p-3/stock/north/0/{placed}"), "does not name");
    said(
        "p-3/north".to_owned(),
        "3 sold or reserved, and the orders have 0",
    );
    assert_eq!(stage.counts("p-3").await, before);
}

#[tokio::test(start_paused = true)]
async fn looking_finds_the_same_and_writes_nothing() {
    let (stage, user) = saga(Stop::BeforeTheWrite).await;
    stage.stop_after(2);
    assert!(
        stage
            .shop
            .place_order(two_lines(&user), NEVER)
            .await
            .is_err()
    );
    stage.revive();
    closed_and_not_merged(&stage).await;
    patience_passes().await;
    stage.stop_after(0);
    let looked = reconcile(&stage.shop, Wish::LookOnly).await.unwrap();
    assert!(!stage.revive(), "something was written");
    assert_eq!(sums(&looked), (2, 0), "{looked:?}");
    assert_eq!(looked.left_count(), 2);
    let mended = reconcile(&stage.shop, Wish::Mend).await.unwrap();
    assert_eq!(sums(&mended), (2, 2), "{mended:?}");
}

/// A guest with one piece signs in, and the shop stops between the two halves.
async fn closed_and_not_merged(stage: &Stage) -> (CartId, UserId) {
    let session = stage
        .shop
        .open_session(SessionWish::default())
        .await
        .unwrap();
    let guest = CartOwner::Guest(session.id().clone());
    let (_, cart) = stage.shop.open_cart(&guest, NEVER).await.unwrap();
    let wish = ItemWish {
        product: "p-1".parse().unwrap(),
        category: None,
        quantity: Quantity::new(4).unwrap(),
    };
    stage.shop.put_item(cart.id(), wish, NEVER).await.unwrap();
    let user: UserId = "bea".parse().unwrap();
    // The user's cart is opened, and the guest's closed.
    stage.stop_after(2);
    let merged = stage
        .shop
        .merge_guest_cart(session.id(), &user, NEVER)
        .await;
    assert!(merged.is_err() && stage.revive());
    (cart.id().clone(), user)
}

#[tokio::test(start_paused = true)]
async fn a_guest_cart_that_never_arrived_is_brought_over_or_sent_on() {
    for target_closes in [false, true] {
        let (stage, _) = saga(Stop::BeforeTheWrite).await;
        let (guest, user) = closed_and_not_merged(&stage).await;
        let owner = CartOwner::User(user);
        let early = reconcile(&stage.shop, Wish::Mend).await.unwrap();
        assert_eq!(sums(&early), (0, 0), "{early:?}");
        if target_closes {
            let target = stage.shop.active_cart(&owner).await.unwrap();
            let closed = model::CartStatus::Abandoned;
            stage
                .shop
                .close_cart(target.id(), closed, NEVER)
                .await
                .unwrap();
        }
        patience_passes().await;
        let report = reconcile(&stage.shop, Wish::Mend).await.unwrap();
        assert_eq!(report.tally(Kind::UnmergedCart).mended, 1, "{report:?}");
        let cart = stage.shop.active_cart(&owner).await.unwrap();
        assert_eq!(cart.lines().count(), 1);
        assert!(cart.header().merged.contains_key(&guest));
        patience_passes().await;
        let after = reconcile(&stage.shop, Wish::Mend).await.unwrap();
        assert_eq!(sums(&after), (0, 0), "{after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_active_cart_is_named() {
    let (stage, _) = saga(Stop::BeforeTheWrite).await;
    let user: UserId = "bea".parse().unwrap();
    let owner = CartOwner::User(user);
    let (_, first) = stage.shop.open_cart(&owner, NEVER).await.unwrap();
    let second = CartId::of_owner(&owner, 2);
    let router = stage.shop.router();
    let key = |id: &CartId| {
        let id = RecordId::new(id.as_str()).unwrap();
        router.map().key_by_id(Collection::Carts, id).unwrap()
    };
    let record = router.get(&key(first.id())).await.unwrap().unwrap();
    let header = record.header.content.live().unwrap().clone();
    let change = Change::CreateIfAbsent {
        key: key(&second),
        header: header
            .with(Field::CartId, Value::text(second.as_str()))
            .with(Field::Ordinal, Value::Int(2)),
        parts: Vec::new(),
    };
    assert!(router.write(change, NEVER).await.unwrap().outcome.is_done());
    let report = reconcile(&stage.shop, Wish::Mend).await.unwrap();
    assert_eq!(sums(&report), (1, 0), "{report:?}");
    let left = &report.left_named()[0];
    assert_eq!(
        (left.kind, left.key.as_str()),
        (Kind::SecondCart, first.id().as_str())
    );
    assert!(left.what.contains(second.as_str()), "{left:?}");
}

/// The stock of both shards is read before the order comes, and the orders after it.
#[tokio::test(start_paused = true)]
async fn pieces_that_are_sold_while_they_are_counted_are_counted_again() {
    let (stage, user) = saga(Stop::BeforeTheWrite).await;
    let other = stage.other.clone();
    let sale = async move {
        let placed = other.place_order(two_lines(&user), NEVER).await;
        placed.unwrap();
    };
    // Products and orders of two shards have been scanned, then the stock of both.
    stage.after_scanning_live(5, Box::pin(sale));
    let report = reconcile(&stage.shop, Wish::Mend).await.unwrap();
    assert_eq!(stage.counts("p-1").await, counted(7, 0, 3));
    assert_eq!(sums(&report), (0, 0), "{report:?}");
    assert_eq!(report.tally(Kind::Shelf).looked_at, 2);
}

/// A piece that is missing makes a recount; while that runs, another order goes to the
/// history between the two places where it is counted.
#[tokio::test(start_paused = true)]
async fn an_order_that_is_archived_while_it_is_counted_counts_once() {
    let stage = Stage::over(2).await.with_history();
    stage.stock("p-1", "10.00", 10).await;
    let user = stage.user_away_from("p-1");
    let wish = order(&user, "key", &[("p-1", 3, "10.00")]);
    let placed = stage.shop.place_order(wish, NEVER).await.unwrap();
    let id = placed.order.header().id.clone();
    for status in [
        OrderStatus::Paid,
        OrderStatus::Shipped,
        OrderStatus::Delivered,
    ] {
        let changed = stage.shop.change_order_status(&id, status, None, NEVER);
        changed.await.unwrap();
    }
    let nobody: OrderId = OrderId::derived(&user, &"nobody".parse().unwrap());
    take(&stage, "p-1", &nobody, 2).await;
    let mut feeds = stage.feeds();
    let archiving = async move { archive(&mut feeds).await };
    // First: products, orders, stock, orders, two each; then both shards of the recount.
    stage.after_scanning_live(9, Box::pin(archiving));
    let report = reconcile(&stage.shop, Wish::Mend).await.unwrap();
    assert_eq!(stage.orders_in_each().await, (0, 1));
    let left = report
        .left_named()
        .iter()
        .find(|left| left.kind == Kind::Shelf);
    let said = &left.unwrap().what;
    assert_eq!(said, "5 sold or reserved, and the orders have 3");
}

/// On every shard of every collection, and in the history.
#[tokio::test(start_paused = true)]
async fn rows_that_do_not_follow_are_found_wherever_they_are() {
    let stage = Stage::over(2).await.with_history();
    for collection in Collection::ALL {
        stage.stray(Some("shard-1"), collection, "one");
        stage.stray(Some("shard-2"), collection, "two");
    }
    stage.stray(None, Collection::Orders, "old");
    let looked = reconcile(&stage.shop, Wish::LookOnly).await.unwrap();
    assert_eq!(looked.tally(Kind::Row).left, 9, "{looked:?}");
    let keys: Vec<&str> = looked
        .left_named()
        .iter()
        .map(|left| left.key.as_str())
        .collect();
    assert!(keys.contains(&"history/by_user/old"), "{keys:?}");
    let mended = reconcile(&stage.shop, Wish::Mend).await.unwrap();
    assert_eq!(sums(&mended), (9, 9), "{mended:?}");
    let after = reconcile(&stage.shop, Wish::Mend).await.unwrap();
    assert_eq!(sums(&after), (0, 0), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reconciler_goes_on_where_another_was_stopped() {
    let (stage, user) = saga(Stop::BeforeTheWrite).await;
    for number in 0..5 {
        let wish = order(&user, &format!("key-{number}"), &[("p-1", 1, "10.00")]);
        stage.stop_after(2);
        assert!(stage.shop.place_order(wish, NEVER).await.is_err());
        stage.revive();
    }
    patience_passes().await;
    let limits = ReconcileLimits {
        page_records: 1,
        ..ReconcileLimits::default()
    };
    let mut mended = 0;
    let mut place: Option<Place> = None;
    loop {
        let mut reconciler = stage
            .shop
            .reconciler(Wish::Mend, limits.clone(), place.clone())
            .unwrap();
        // A round of shelves is begun anew by whoever goes on with it.
        let shelves = place
            .as_ref()
            .is_some_and(|place| place.to_string().contains("shelves"));
        let mut step = reconciler.step().await.unwrap();
        while shelves && step == Step::More {
            step = reconciler.step().await.unwrap();
        }
        mended += reconciler.report().tally(Kind::OpenOrder).mended;
        if step == Step::Ended {
            break;
        }
        let text = reconciler.place().unwrap().to_string();
        place = Some(text.parse().unwrap());
    }
    assert_eq!(mended, 5);
    assert_eq!(stage.counts("p-1").await, counted(10, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn it_goes_no_faster_than_it_is_told() {
    let (stage, _) = saga(Stop::BeforeTheWrite).await;
    let limits = ReconcileLimits {
        records_per_s: 1,
        page_records: 1,
        ..ReconcileLimits::default()
    };
    let began = tokio::time::Instant::now();
    let mut reconciler = stage.shop.reconciler(Wish::Mend, limits, None).unwrap();
    while reconciler.step().await.unwrap() == Step::More {}
    let looked_at = reconciler.report().looked_at();
    assert!(looked_at >= 4, "{looked_at}");
    assert!(began.elapsed() >= Duration::from_secs(looked_at));
    let never = ReconcileLimits {
        records_per_s: 0,
        ..ReconcileLimits::default()
    };
    let refusal = stage.shop.reconciler(Wish::Mend, never, None).unwrap_err();
    assert!(
        refusal.to_string().contains("records_per_s is 0"),
        "{refusal}"
    );
}
