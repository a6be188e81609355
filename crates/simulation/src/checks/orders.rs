//! Orders as visitors know them: one for each key, whatever was asked, answered
//! and lost; moved along their course and never back; whole or not there.

mod course;
mod kept;
mod keys;
mod listed;
mod prices;

#[cfg(test)]
mod stage;

use std::collections::BTreeMap;

use engine_api::Record;
use layout::path::SETTLEMENT_OPEN;
use layout::{Collection, Field, Fields, Value};
use rust_decimal::Decimal;
use shop_service::OrderWish;

use crate::ledger::{Deed, Wish};
use crate::recording::History;
use course::{behind_what_was_told, illegal_courses};
use keys::{of_one_key, unasked};
use listed::missing_in_history;
use prices::at_another_price;

/// Product, pieces and price.
type Line = (String, i64, Decimal);

pub fn check(history: &History) -> Vec<String> {
    let orders: Vec<OrderShown<'_>> = history.standing.iter().filter_map(read).collect();
    let mut breaches = Vec::new();
    let mut by_key: BTreeMap<(&str, &str), Vec<(&Deed, &OrderWish)>> = BTreeMap::new();
    for deed in &history.deeds {
        if let Wish::PlaceOrder(wish) = &deed.wish {
            let key = (wish.user.as_str(), wish.key.as_str());
            by_key.entry(key).or_default().push((deed, wish));
        }
    }
    for ((user, key), deeds) in &by_key {
        let own: Vec<&OrderShown<'_>> = orders
            .iter()
            .filter(|order| order.user == *user && order.key == *key)
            .collect();
        let told = |what: String| format!("{key} of {user}: {what}");
        breaches.extend(of_one_key(deeds, &own).into_iter().map(told));
    }
    for order in &orders {
        breaches.extend(unasked(order, &by_key));
        breaches.extend(unfinished(order));
        breaches.extend(at_another_price(history, order));
    }
    breaches.extend(illegal_courses(history));
    breaches.extend(behind_what_was_told(history, &orders));
    breaches.extend(missing_in_history(history));
    breaches.extend(kept::not_found(history));
    breaches.extend(kept::gone(history));
    breaches
}

/// An order of the shop's own, as a record shows it.
struct OrderShown<'a> {
    record: &'a Record,
    user: &'a str,
    key: &'a str,
    status: &'a str,
    fields: &'a Fields,
    lines: Vec<Line>,
}

fn read(record: &Record) -> Option<OrderShown<'_>> {
    let fields = record.header.content.live()?;
    (record.key.collection == Collection::Orders).then_some(())?;
    Some(OrderShown {
        record,
        user: fields.text(Field::UserId)?,
        key: fields.text(Field::IdempotencyKey)?,
        status: fields.text(Field::Status)?,
        fields,
        lines: lines_of(fields),
    })
}

pub(super) fn lines_of(header: &Fields) -> Vec<Line> {
    let Some(Value::List(lines)) = header.get(Field::Lines) else {
        return Vec::new();
    };
    let line = |value: &Value| {
        let Value::Map(line) = value else { return None };
        Some((
            line.get("product_id")?.as_text()?.to_owned(),
            line.get("quantity")?.as_int()?,
            line.get("price")?.as_decimal()?,
        ))
    };
    sorted(lines.iter().filter_map(line))
}

/// The lines of an order have no order.
fn sorted(lines: impl Iterator<Item = Line>) -> Vec<Line> {
    let mut lines: Vec<Line> = lines.collect();
    lines.sort();
    lines
}

/// Whether an order of this status was ever placed.
fn was_placed(status: &str) -> bool {
    !matches!(status, "pending" | "aborted")
}

/// After the last sweep nothing is left to do.
fn unfinished(order: &OrderShown<'_>) -> Option<String> {
    let open = order.fields.text(Field::Settlement) == Some(SETTLEMENT_OPEN);
    (open || order.status == "pending")
        .then(|| format!("{} is {} and stayed open", order.record.key, order.status))
}
