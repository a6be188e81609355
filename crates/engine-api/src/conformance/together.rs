//! Several changes in one commit: E11.

use layout::Collection;

use crate::change::{Change, Outcome, StockAction, StockRefusal};
use crate::conformance::scenery::{
    change_if, changed, create, quantity, set_line, stock, take, usual_parts,
};
use crate::conformance::stage::{Checked, Stage};
use crate::conformance::stock::{counted, counts};
use crate::conformance::{CARTS, Need, ORDERS, PRODUCTS};
use crate::context::WriteContext;
use crate::error::EngineError;
use crate::record::RecordKey;

cases! {
    "E11" [] changes_that_go_together_are_all_done [CARTS, Need::Together];
    "E11" [] one_refusal_refuses_them_all [CARTS, Need::Together];
    "E11" [] a_key_cannot_be_changed_twice_in_one_commit [CARTS, Need::Together];
    "E11" ["W12"] an_order_and_its_sale_are_one_commit [ORDERS, PRODUCTS, Need::Together, Need::Stock];
    "E11" ["W12"] a_repeated_order_sells_once [ORDERS, PRODUCTS, Need::Together, Need::Stock];
    "E11" ["W12"] the_last_pieces_are_sold_once_to_an_order_that_asks_again [ORDERS, PRODUCTS, Need::Together, Need::Stock];
    "E11" ["W12"] what_is_sold_out_creates_no_order [ORDERS, PRODUCTS, Need::Together, Need::Stock];
    "E11" ["W12"] an_order_that_exists_sells_nothing [ORDERS, PRODUCTS, Need::Together, Need::Stock];
    "E11" ["W12"] a_cancelled_order_gives_its_sale_back_once [ORDERS, PRODUCTS, Need::Together, Need::Stock];
    "E11" [] sales_that_nobody_guards_are_refused [PRODUCTS, Need::Together, Need::Stock];
}

async fn changes_that_go_together_are_all_done(stage: Stage<'_>) -> Checked {
    let (old, new) = (stage.cart("old"), stage.cart("new"));
    stage.create_usual(&old).await?;
    let changes = vec![
        create(
            &new,
            stage.header(&new),
            usual_parts(Collection::Carts, stage.now()),
        ),
        set_line(&old, "lamp", 9),
    ];
    let context = stage.router(stage.revision());
    for _ in 0..2 {
        let outcome = stage.together(changes.clone(), context.clone()).await?;
        ensure!(outcome.is_done(), "the changes were answered {outcome:?}");
    }
    let (old, new) = (stage.record(&old).await?, stage.record(&new).await?);
    ensure!(
        quantity(&old, "lamp") == Some(9),
        "the patch is missing: {old:?}"
    );
    ensure!(
        new.header.revision == context.revision,
        "the new cart is {new:?}"
    );
    Ok(())
}

async fn one_refusal_refuses_them_all(stage: Stage<'_>) -> Checked {
    let (first, taken, last) = (stage.cart("a"), stage.cart("b"), stage.cart("c"));
    stage.create_usual(&taken).await?;
    let before = stage.record(&taken).await?;
    let creation = |key: &RecordKey| create(key, stage.header(key), vec![]);
    let changes = vec![creation(&first), creation(&taken), creation(&last)];
    let outcome = stage
        .together(changes, stage.router(stage.revision()))
        .await?;
    ensure!(
        matches!(outcome, Outcome::Exists { .. }),
        "the changes were answered {outcome:?}"
    );
    ensure!(
        stage.image(&first).await?.is_none(),
        "the change before the refused one was applied"
    );
    ensure!(
        stage.image(&last).await?.is_none(),
        "the change after the refused one was applied"
    );
    ensure!(
        stage.record(&taken).await? == before,
        "the refused change was applied"
    );
    let absent = stage.cart("absent");
    let changes = vec![creation(&first), set_line(&absent, "lamp", 1)];
    let outcome = stage
        .together(changes, stage.router(stage.revision()))
        .await?;
    ensure!(
        outcome == Outcome::NoRecord,
        "the changes were answered {outcome:?}"
    );
    ensure!(
        stage.image(&first).await?.is_none(),
        "the change before the refused one was applied"
    );
    Ok(())
}

async fn a_key_cannot_be_changed_twice_in_one_commit(stage: Stage<'_>) -> Checked {
    let key = stage.cart("twice");
    stage.create_usual(&key).await?;
    let before = stage.record(&key).await?;
    let changes = vec![set_line(&key, "lamp", 5), set_line(&key, "lamp", 6)];
    match stage
        .engine
        .apply_together(changes, stage.router(stage.revision()))
        .await
    {
        Err(EngineError::Invalid { .. }) => {}
        other => ensure!(false, "two changes of one key were answered {other:?}"),
    }
    ensure!(
        stage.record(&key).await? == before,
        "a malformed commit was applied"
    );
    Ok(())
}

/// A product with pieces, and the changes by which an order buys some of them.
async fn shop(stage: &Stage<'_>, pieces: u64) -> Checked<(RecordKey, RecordKey)> {
    let (product, order) = (
        stage.key(Collection::Products, "lamp"),
        stage.key(Collection::Orders, "o1"),
    );
    stage.create(&product, vec![]).await?;
    stage
        .done(stock(&product, StockAction::Receive { total: pieces }))
        .await?;
    Ok((product, order))
}

fn buy(stage: &Stage<'_>, product: &RecordKey, order: &RecordKey, pieces: u32) -> Vec<Change> {
    vec![
        create(order, stage.header(order), vec![]),
        stock(product, StockAction::Sell { quantity: pieces }),
    ]
}

async fn bought(stage: &Stage<'_>, changes: Vec<Change>, context: WriteContext) -> Checked {
    let outcome = stage.together(changes, context).await?;
    ensure!(outcome.is_done(), "buying was answered {outcome:?}");
    Ok(())
}

async fn an_order_and_its_sale_are_one_commit(stage: Stage<'_>) -> Checked {
    let (product, order) = shop(&stage, 10).await?;
    bought(
        &stage,
        buy(&stage, &product, &order, 4),
        stage.router(stage.revision()),
    )
    .await?;
    let found = counts(&stage, &product).await?;
    ensure!(found == counted(10, 6, 0, 4), "the stock is {found:?}");
    ensure!(stage.image(&order).await?.is_some(), "the order is missing");
    Ok(())
}

async fn a_repeated_order_sells_once(stage: Stage<'_>) -> Checked {
    let (product, order) = shop(&stage, 10).await?;
    let context = stage.router(stage.revision());
    for _ in 0..3 {
        bought(&stage, buy(&stage, &product, &order, 4), context.clone()).await?;
        stage
            .done(stock(&product, take("someone-else", 1, stage.now())))
            .await?;
    }
    let found = counts(&stage, &product).await?;
    ensure!(found == counted(10, 5, 1, 4), "the stock is {found:?}");
    Ok(())
}

async fn the_last_pieces_are_sold_once_to_an_order_that_asks_again(stage: Stage<'_>) -> Checked {
    let (product, order) = shop(&stage, 4).await?;
    let context = stage.router(stage.revision());
    let mut sale_first = buy(&stage, &product, &order, 4);
    sale_first.reverse();
    for changes in [
        sale_first.clone(),
        sale_first,
        buy(&stage, &product, &order, 4),
    ] {
        bought(&stage, changes, context.clone()).await?;
        let found = counts(&stage, &product).await?;
        ensure!(found == counted(4, 0, 0, 4), "the stock is {found:?}");
    }
    Ok(())
}

async fn what_is_sold_out_creates_no_order(stage: Stage<'_>) -> Checked {
    let (product, order) = shop(&stage, 3).await?;
    let outcome = stage
        .together(
            buy(&stage, &product, &order, 4),
            stage.router(stage.revision()),
        )
        .await?;
    let expected = Outcome::Stock(StockRefusal::SoldOut { available: 3 });
    ensure!(
        outcome == expected,
        "buying too many was answered {outcome:?}"
    );
    ensure!(
        stage.image(&order).await?.is_none(),
        "an order without goods was created"
    );
    let found = counts(&stage, &product).await?;
    ensure!(found == counted(3, 3, 0, 0), "the stock is {found:?}");
    Ok(())
}

async fn an_order_that_exists_sells_nothing(stage: Stage<'_>) -> Checked {
    let (product, order) = shop(&stage, 10).await?;
    stage.create(&order, vec![]).await?;
    let mut changes = buy(&stage, &product, &order, 4);
    for _ in 0..2 {
        changes.reverse();
        let outcome = stage
            .together(changes.clone(), stage.router(stage.revision()))
            .await?;
        ensure!(
            matches!(outcome, Outcome::Exists { .. }),
            "an order that exists was answered {outcome:?}"
        );
        let found = counts(&stage, &product).await?;
        ensure!(found == counted(10, 10, 0, 0), "the stock is {found:?}");
    }
    Ok(())
}

async fn a_cancelled_order_gives_its_sale_back_once(stage: Stage<'_>) -> Checked {
    let (product, order) = shop(&stage, 10).await?;
    let created = stage.router(stage.revision());
    bought(&stage, buy(&stage, &product, &order, 4), created.clone()).await?;
    let cancel = vec![
        change_if(
            &order,
            created.revision,
            changed(&stage.header(&order), order.collection, "cancelled"),
        ),
        stock(&product, StockAction::Unsell { quantity: 4 }),
    ];
    let context = stage.router(stage.revision());
    for _ in 0..2 {
        bought(&stage, cancel.clone(), context.clone()).await?;
        let found = counts(&stage, &product).await?;
        ensure!(found == counted(10, 10, 0, 0), "the stock is {found:?}");
    }
    let again = stage
        .together(cancel, stage.router(stage.revision()))
        .await?;
    ensure!(
        matches!(again, Outcome::Conflict { .. }),
        "a second cancelling was answered {again:?}"
    );
    Ok(())
}

async fn sales_that_nobody_guards_are_refused(stage: Stage<'_>) -> Checked {
    let (product, _) = shop(&stage, 10).await?;
    let sale = vec![stock(&product, StockAction::Sell { quantity: 1 })];
    match stage
        .engine
        .apply_together(sale, stage.router(stage.revision()))
        .await
    {
        Err(EngineError::Invalid { .. }) => {}
        other => ensure!(false, "a sale that nobody guards was answered {other:?}"),
    }
    let found = counts(&stage, &product).await?;
    ensure!(found == counted(10, 10, 0, 0), "the stock is {found:?}");
    Ok(())
}
