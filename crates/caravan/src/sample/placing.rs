//! Placing an order step by step: reserve, commit, claim, then on along its course.
//!
//! The order's own record is the commit point (W11); stock follows it by
//! reservations that know their order (W12). What an earlier, interrupted
//! placing did is seen from the order's status, and what it may have left
//! undone right after that status is done again, which changes nothing.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use engine_api::{
    Change, Outcome, PartKey, PartsChange, PriceCondition, Record, RecordKey, Revision, StockAction,
};
use layout::{Collection, Field, Fields};
use model::{Order, OrderLine, OrderStatus, StockEffect, Timestamp};
use router::Router;

use super::records::{key, order_header, order_status};
use super::shoppers::{SampleOrder, hours_after};

pub async fn place(router: Arc<Router>, planned: SampleOrder) -> Result<()> {
    let mut order = planned.pending;
    let header = order_header(&order);
    let id = order.header().id.clone();
    let key = key(&router.map(), Collection::Orders, id.as_str(), &header)?;
    super::create(router.clone(), creation(&key, header)).await?;
    let stored = stored(&router, &key).await?;
    let Some(reached) = position(&stored, planned.course) else {
        // Someone has taken the order elsewhere meanwhile: it is theirs.
        return Ok(());
    };
    let mut revision = stored.header.revision;
    for (step, next) in planned.course.iter().enumerate().skip(1) {
        let at = hours_after(order.header().changed_at, 1)?;
        let before = order.clone();
        let effect = order.change_status(*next, at)?.stock_effect();
        if reached < step {
            if *next == OrderStatus::Created {
                take(&router, &before).await?;
            }
            revision = change(&router, &key, revision, &order).await?;
        }
        if reached <= step {
            follow(&router, &order, effect, at).await?;
        }
    }
    Ok(())
}

fn creation(key: &RecordKey, header: Fields) -> Change {
    Change::CreateIfAbsent {
        key: key.clone(),
        header,
        parts: Vec::new(),
    }
}

async fn stored(router: &Router, key: &RecordKey) -> Result<Record> {
    let record = router.get(key).await?;
    record.with_context(|| format!("{key} was removed while it was written: start again"))
}

/// How far along its course the stored order is.
fn position(stored: &Record, course: &[OrderStatus]) -> Option<usize> {
    let found = stored.header.content.live()?.text(Field::Status)?;
    course
        .iter()
        .position(|status| order_status(*status) == found)
}

async fn change(
    router: &Router,
    key: &RecordKey,
    expected: Revision,
    order: &Order,
) -> Result<Revision> {
    let change = Change::ChangeIf {
        key: key.clone(),
        expected,
        header: order_header(order),
        parts: PartsChange::Keep,
    };
    match router.write(change, expected).await?.outcome {
        Outcome::Done { revision } => Ok(revision),
        refusal => bail!("{key} was changed by someone else ({refusal:?}): start again"),
    }
}

/// Reserves every line at the price the shopper saw.
async fn take(router: &Router, order: &Order) -> Result<()> {
    for line in order.lines() {
        let action = StockAction::Take {
            order: order.header().id.to_string(),
            quantity: line.quantity.get(),
            at: order.header().created_at,
        };
        let price = PriceCondition::Exactly(line.price.as_decimal());
        move_stock(router, order, line, price, action).await?;
    }
    Ok(())
}

/// What the stock does after a change of status.
async fn follow(router: &Router, order: &Order, effect: StockEffect, at: Timestamp) -> Result<()> {
    for line in order.lines() {
        let id = order.header().id.to_string();
        let action = match effect {
            StockEffect::None => return Ok(()),
            StockEffect::Claim => StockAction::Claim { order: id },
            StockEffect::GiveBack => StockAction::Give { order: id, at },
        };
        move_stock(router, order, line, PriceCondition::Any, action).await?;
    }
    Ok(())
}

async fn move_stock(
    router: &Router,
    order: &Order,
    line: &OrderLine,
    price: PriceCondition,
    action: StockAction,
) -> Result<()> {
    let request = order
        .request()
        .context("an order of the sample has its request")?;
    let product = line.product.as_str();
    // Layouts route products by id or by category; the line knows both.
    let header = Fields::new()
        .with(Field::ProductId, layout::Value::text(product))
        .with(Field::Category, layout::Value::text(line.category.as_str()));
    let key = key(&router.map(), Collection::Products, product, &header)?;
    let part = PartKey::stock(request.geo_zone().as_str(), 0);
    let change = Change::Stock {
        key,
        part,
        price,
        action,
    };
    match router.write(change, Revision::ZERO).await?.outcome {
        Outcome::Done { .. } => Ok(()),
        refusal => bail!(
            "the stock of {product} refused order {} ({refusal:?}): use an empty directory",
            order.header().id
        ),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Leaves an order where a crash might: nothing done, the record alone, the
    /// first reservation, all of them, the commit without its claim, or a step on.
    pub async fn stop_after(router: &Arc<Router>, planned: &SampleOrder, steps: usize) {
        let mut order = planned.pending.clone();
        let header = order_header(&order);
        let id = order.header().id.clone();
        let key = key(&router.map(), Collection::Orders, id.as_str(), &header).unwrap();
        if steps >= 1 {
            super::super::create(router.clone(), creation(&key, header))
                .await
                .unwrap();
        }
        if steps == 2 {
            let action = StockAction::Take {
                order: id.to_string(),
                quantity: order.lines()[0].quantity.get(),
                at: order.header().created_at,
            };
            let line = &order.lines()[0];
            move_stock(router, &order, line, PriceCondition::Any, action)
                .await
                .unwrap();
        }
        if steps >= 3 {
            take(router, &order).await.unwrap();
        }
        if steps >= 4 {
            let at = hours_after(order.header().changed_at, 1).unwrap();
            order.change_status(OrderStatus::Created, at).unwrap();
            let revision = stored(router, &key).await.unwrap().header.revision;
            change(router, &key, revision, &order).await.unwrap();
        }
        if steps >= 5 {
            let part_way = (planned.course.len() - 1).max(2);
            let course = &planned.course[..part_way];
            place(
                router.clone(),
                SampleOrder {
                    course,
                    ..planned.clone()
                },
            )
            .await
            .unwrap();
        }
    }
}
