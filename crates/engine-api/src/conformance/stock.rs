//! Stock: E9, and the exception of E8.

use std::collections::BTreeMap;

use layout::{Collection, Field, Value};
use model::StockCounts;
use rust_decimal::Decimal;

use crate::change::{Change, Outcome, PriceCondition, StockAction, StockRefusal};
use crate::conformance::scenery::{PRICE, change_if, remove, shelf, stock, take};
use crate::conformance::stage::{Checked, Failure, Stage};
use crate::conformance::{Need, PRODUCTS};
use crate::error::EngineError;
use crate::record::{PartKey, RecordKey};
use crate::revision::Writer;
use crate::stock::{stock_fields, stock_of};

cases! {
    "E9" ["W12"] the_stock_adds_up_after_every_change [PRODUCTS, Need::Stock];
    "E9" ["W12"] fifty_concurrent_takes_of_twenty_pieces_get_twenty [PRODUCTS, Need::Stock];
    "E9" ["W12"] what_is_sold_out_is_refused_and_counts_nothing [PRODUCTS, Need::Stock];
    "E9" ["W12"] an_order_takes_once_however_often_it_asks [PRODUCTS, Need::Stock];
    "E9" ["W12"] an_order_that_asks_for_another_quantity_is_refused [PRODUCTS, Need::Stock];
    "E9" ["W13"] a_take_at_another_price_is_refused [PRODUCTS, Need::Stock];
    "E9" ["W12"] an_order_from_below_the_floor_is_refused [PRODUCTS, Need::Stock];
    "E9" ["W12"] a_claim_needs_a_reservation_that_was_not_given_back [PRODUCTS, Need::Stock];
    "E9" ["W12"] a_sale_whose_reservation_is_forgotten_comes_back_once [PRODUCTS, Need::Stock];
    "E9" ["W12"] no_fewer_pieces_arrived_than_are_reserved_and_sold [PRODUCTS, Need::Stock];
    "E9" [] buckets_of_one_product_do_not_disturb_one_another [PRODUCTS, Need::Stock];
    "E7" ["W2"] stock_of_no_record_and_stock_that_is_not_there_are_refused [PRODUCTS, Need::Stock];
    "E8" ["W5", "W13"] a_take_is_numbered_above_the_stored_stock [PRODUCTS, Need::Stock];
    "E11" [] a_sale_without_a_reservation_is_refused_alone [PRODUCTS, Need::Stock];
}

async fn product_with(stage: &Stage<'_>, pieces: u64) -> Checked<RecordKey> {
    let key = stage.key(Collection::Products, "lamp");
    stage.create(&key, vec![]).await?;
    stage
        .done(stock(&key, StockAction::Receive { total: pieces }))
        .await?;
    Ok(key)
}

pub(super) async fn counts(stage: &Stage<'_>, key: &RecordKey) -> Checked<StockCounts> {
    counts_at(stage, key, &shelf()).await
}

async fn counts_at(stage: &Stage<'_>, key: &RecordKey, part: &PartKey) -> Checked<StockCounts> {
    let record = stage.record(key).await?;
    let fields = record
        .part(part)
        .ok_or_else(|| Failure(format!("{key} has no stock: {record:?}")))?;
    Ok(stock_of(fields)?.counts())
}

pub(super) fn counted(received: u64, available: u64, reserved: u64, sold: u64) -> StockCounts {
    StockCounts {
        received,
        available,
        reserved,
        sold,
    }
}

fn give(stage: &Stage<'_>, order: &str) -> StockAction {
    StockAction::Give {
        order: order.to_owned(),
        quantity: 2,
        at: stage.now(),
    }
}

fn claim(order: &str) -> StockAction {
    StockAction::Claim {
        order: order.to_owned(),
    }
}

async fn refusal(stage: &Stage<'_>, change: Change, expected: StockRefusal) -> Checked {
    let key = change.key().clone();
    let before = stage.image(&key).await?;
    let outcome = stage.apply(change.clone()).await?;
    ensure!(
        outcome == Outcome::Stock(expected.clone()),
        "{change:?} was answered {outcome:?}, not {expected:?}"
    );
    let after = stage.image(&key).await?;
    ensure!(
        after == before,
        "a refused {change:?} made {before:?} into {after:?}"
    );
    Ok(())
}

async fn the_stock_adds_up_after_every_change(stage: Stage<'_>) -> Checked {
    let key = product_with(&stage, 10).await?;
    let now = stage.now();
    let back = StockAction::Return {
        order: "a".to_owned(),
        quantity: 3,
        at: now,
    };
    for (action, expected) in [
        (take("a", 3, now), counted(10, 7, 3, 0)),
        (take("b", 2, now), counted(10, 5, 5, 0)),
        (claim("a"), counted(10, 5, 2, 3)),
        (give(&stage, "b"), counted(10, 7, 0, 3)),
        (StockAction::Receive { total: 12 }, counted(12, 9, 0, 3)),
        (take("c", 9, now), counted(12, 0, 9, 3)),
        (back, counted(12, 3, 9, 0)),
        (StockAction::Receive { total: 9 }, counted(9, 0, 9, 0)),
    ] {
        stage.done(stock(&key, action.clone())).await?;
        let found = counts(&stage, &key).await?;
        ensure!(
            found == expected,
            "after {action:?} the stock is {found:?}, not {expected:?}"
        );
    }
    Ok(())
}

async fn fifty_concurrent_takes_of_twenty_pieces_get_twenty(stage: Stage<'_>) -> Checked {
    let key = product_with(&stage, 20).await?;
    let takes = (0..50u8)
        .map(|number| {
            let context = stage.router(stage.revision_by(Writer::numbered(number)));
            (
                stock(&key, take(format!("order-{number}"), 1, stage.now())),
                context,
            )
        })
        .collect();
    let outcomes = stage.at_once(takes).await?;
    let done = outcomes.iter().filter(|outcome| outcome.is_done()).count();
    ensure!(done == 20, "{done} of 50 orders got one of 20 pieces");
    let sold_out = Outcome::Stock(StockRefusal::SoldOut { available: 0 });
    let others = outcomes
        .iter()
        .filter(|outcome| **outcome == sold_out)
        .count();
    ensure!(others == 30, "the others were answered {outcomes:?}");
    let found = counts(&stage, &key).await?;
    ensure!(found == counted(20, 0, 20, 0), "the stock is {found:?}");
    Ok(())
}

async fn what_is_sold_out_is_refused_and_counts_nothing(stage: Stage<'_>) -> Checked {
    let key = product_with(&stage, 3).await?;
    stage.done(stock(&key, take("a", 2, stage.now()))).await?;
    let refused = stock(&key, take("b", 2, stage.now()));
    refusal(&stage, refused, StockRefusal::SoldOut { available: 1 }).await?;
    stage.done(stock(&key, take("b", 1, stage.now()))).await?;
    refusal(
        &stage,
        stock(&key, take("c", 1, stage.now())),
        StockRefusal::SoldOut { available: 0 },
    )
    .await
}

async fn an_order_takes_once_however_often_it_asks(stage: Stage<'_>) -> Checked {
    let key = product_with(&stage, 10).await?;
    let copies = (0..8u8)
        .map(|number| {
            let context = stage.router(stage.revision_by(Writer::numbered(number)));
            (stock(&key, take("a", 3, stage.now())), context)
        })
        .collect();
    let outcomes = stage.at_once(copies).await?;
    ensure!(
        outcomes.iter().all(Outcome::is_done),
        "copies of one take were answered {outcomes:?}"
    );
    let found = counts(&stage, &key).await?;
    ensure!(
        found == counted(10, 7, 3, 0),
        "after eight copies of one take the stock is {found:?}"
    );
    for (action, expected) in [
        (claim("a"), counted(10, 7, 0, 3)),
        (take("a", 3, stage.now()), counted(10, 7, 0, 3)),
        (claim("a"), counted(10, 7, 0, 3)),
        (give(&stage, "a"), counted(10, 10, 0, 0)),
        (give(&stage, "a"), counted(10, 10, 0, 0)),
    ] {
        stage.done(stock(&key, action.clone())).await?;
        let found = counts(&stage, &key).await?;
        ensure!(
            found == expected,
            "after {action:?} the stock is {found:?}, not {expected:?}"
        );
    }
    refusal(
        &stage,
        stock(&key, take("a", 3, stage.now())),
        StockRefusal::NoReservation,
    )
    .await
}

async fn an_order_that_asks_for_another_quantity_is_refused(stage: Stage<'_>) -> Checked {
    let key = product_with(&stage, 10).await?;
    stage.done(stock(&key, take("a", 3, stage.now()))).await?;
    let other = stock(&key, take("a", 4, stage.now()));
    refusal(&stage, other, StockRefusal::OtherQuantity { taken: 3 }).await
}

async fn a_take_at_another_price_is_refused(stage: Stage<'_>) -> Checked {
    let key = product_with(&stage, 10).await?;
    let at_price = |order: &str, price: Decimal| Change::Stock {
        key: key.clone(),
        part: shelf(),
        price: PriceCondition::Exactly(price),
        action: take(order, 1, stage.now()),
    };
    stage.done(at_price("a", PRICE)).await?;
    let other = Decimal::new(1991, 2);
    refusal(
        &stage,
        at_price("b", other),
        StockRefusal::PriceMoved { now: Some(PRICE) },
    )
    .await?;
    let created = stage.record(&key).await?.header.revision;
    let dearer = stage.header(&key).with(Field::Price, Value::Decimal(other));
    stage.done(change_if(&key, created, dearer)).await?;
    refusal(
        &stage,
        at_price("c", PRICE),
        StockRefusal::PriceMoved { now: Some(other) },
    )
    .await?;
    stage.done(at_price("a", PRICE)).await?;
    stage.done(at_price("b", other)).await?;
    let found = counts(&stage, &key).await?;
    ensure!(found == counted(10, 8, 2, 0), "the stock is {found:?}");
    Ok(())
}

async fn an_order_from_below_the_floor_is_refused(stage: Stage<'_>) -> Checked {
    let key = stage.key(Collection::Products, "lamp");
    let floor = stage.in_seconds(-60);
    let stored = model::Stock::restore(counted(10, 10, 0, 0), BTreeMap::new(), Some(floor))
        .map_err(|error| Failure(error.to_string()))?;
    stage
        .create(&key, vec![(shelf(), stock_fields(&stored))])
        .await?;
    for at in [stage.in_seconds(-61), floor] {
        let late = stock(&key, take("late", 1, at));
        refusal(&stage, late, StockRefusal::BelowFloor { floor }).await?;
    }
    stage
        .done(stock(&key, take("new", 1, stage.in_seconds(-59))))
        .await?;
    Ok(())
}

async fn a_claim_needs_a_reservation_that_was_not_given_back(stage: Stage<'_>) -> Checked {
    let key = product_with(&stage, 10).await?;
    refusal(
        &stage,
        stock(&key, claim("nobody")),
        StockRefusal::NoReservation,
    )
    .await?;
    stage.done(stock(&key, give(&stage, "nobody"))).await?;
    let late = stock(&key, take("nobody", 2, stage.now()));
    refusal(&stage, late, StockRefusal::NoReservation).await?;
    let found = counts(&stage, &key).await?;
    ensure!(found == counted(10, 10, 0, 0), "the stock is {found:?}");
    stage.done(stock(&key, take("a", 1, stage.now()))).await?;
    stage.done(stock(&key, give(&stage, "a"))).await?;
    refusal(&stage, stock(&key, claim("a")), StockRefusal::NoReservation).await
}

async fn a_sale_whose_reservation_is_forgotten_comes_back_once(stage: Stage<'_>) -> Checked {
    let key = stage.key(Collection::Products, "lamp");
    let stored = model::Stock::restore(counted(10, 5, 0, 5), BTreeMap::new(), None)
        .map_err(|error| Failure(error.to_string()))?;
    stage
        .create(&key, vec![(shelf(), stock_fields(&stored))])
        .await?;
    let back = |order: &str, quantity| {
        stock(
            &key,
            StockAction::Return {
                order: order.to_owned(),
                quantity,
                at: stage.now(),
            },
        )
    };
    for _ in 0..3 {
        stage.done(back("old", 2)).await?;
        let found = counts(&stage, &key).await?;
        ensure!(found == counted(10, 7, 0, 3), "the stock is {found:?}");
    }
    refusal(&stage, back("older", 4), StockRefusal::NoReservation).await
}

async fn no_fewer_pieces_arrived_than_are_reserved_and_sold(stage: Stage<'_>) -> Checked {
    let key = product_with(&stage, 10).await?;
    stage.done(stock(&key, take("a", 3, stage.now()))).await?;
    let too_few = stock(&key, StockAction::Receive { total: 2 });
    refusal(&stage, too_few, StockRefusal::BelowSold { bound: 3 }).await?;
    stage
        .done(stock(&key, StockAction::Receive { total: 3 }))
        .await?;
    let found = counts(&stage, &key).await?;
    ensure!(found == counted(3, 0, 3, 0), "the stock is {found:?}");
    Ok(())
}

async fn buckets_of_one_product_do_not_disturb_one_another(stage: Stage<'_>) -> Checked {
    let key = stage.key(Collection::Products, "lamp");
    stage.create(&key, vec![]).await?;
    let shelves = [
        PartKey::stock("eu", 0),
        PartKey::stock("eu", 1),
        PartKey::stock("us", 0),
    ];
    let at = |part: &PartKey, action| Change::Stock {
        key: key.clone(),
        part: part.clone(),
        price: PriceCondition::Any,
        action,
    };
    for part in &shelves {
        stage
            .done(at(part, StockAction::Receive { total: 5 }))
            .await?;
    }
    let takes = (0..24u8)
        .map(|number| {
            let context = stage.router(stage.revision_by(Writer::numbered(number)));
            let part = &shelves[usize::from(number) % shelves.len()];
            (
                at(part, take(format!("order-{number}"), 1, stage.now())),
                context,
            )
        })
        .collect();
    let outcomes = stage.at_once(takes).await?;
    let done = outcomes.iter().filter(|outcome| outcome.is_done()).count();
    ensure!(done == 15, "{done} of 24 orders got one of 3 × 5 pieces");
    for part in &shelves {
        let found = counts_at(&stage, &key, part).await?;
        ensure!(found == counted(5, 0, 5, 0), "{part} is {found:?}");
    }
    Ok(())
}

async fn stock_of_no_record_and_stock_that_is_not_there_are_refused(stage: Stage<'_>) -> Checked {
    let (absent, removed) = (
        stage.key(Collection::Products, "absent"),
        stage.key(Collection::Products, "gone"),
    );
    let created = stage.create(&removed, vec![]).await?;
    stage
        .done(stock(&removed, StockAction::Receive { total: 5 }))
        .await?;
    stage.done(remove(&removed, created)).await?;
    for key in [&absent, &removed] {
        for action in [take("a", 1, stage.now()), StockAction::Receive { total: 5 }] {
            let outcome = stage.apply(stock(key, action.clone())).await?;
            ensure!(
                outcome == Outcome::NoRecord,
                "{action:?} on {key} was answered {outcome:?}"
            );
        }
        stage.ensure_not_live(key).await?;
    }
    let empty = stage.key(Collection::Products, "empty");
    stage.create(&empty, vec![]).await?;
    refusal(
        &stage,
        stock(&empty, take("a", 1, stage.now())),
        StockRefusal::NoSuchStock,
    )
    .await
}

async fn a_take_is_numbered_above_the_stored_stock(stage: Stage<'_>) -> Checked {
    let slow = stage.revision_by(Writer::numbered(9));
    let key = product_with(&stage, 10).await?;
    let before = stage.record(&key).await?.parts[&shelf()].revision;
    let answered = stage
        .done_in(stock(&key, take("a", 1, stage.now())), stage.router(slow))
        .await?;
    let after = stage.record(&key).await?.parts[&shelf()].revision;
    ensure!(
        after > before,
        "a take moved the stock's revision from {before} to {after}"
    );
    ensure!(
        answered == after,
        "a take stored as {after} was answered as {answered}"
    );
    Ok(())
}

async fn a_sale_without_a_reservation_is_refused_alone(stage: Stage<'_>) -> Checked {
    let key = product_with(&stage, 10).await?;
    for action in [
        StockAction::Sell { quantity: 1 },
        StockAction::Unsell { quantity: 1 },
    ] {
        let error = stage
            .error_in(stock(&key, action.clone()), stage.router(stage.revision()))
            .await?;
        ensure!(
            matches!(error, EngineError::Invalid { .. }),
            "{action:?} alone was answered {error}"
        );
    }
    let found = counts(&stage, &key).await?;
    ensure!(found == counted(10, 10, 0, 0), "the stock is {found:?}");
    Ok(())
}
