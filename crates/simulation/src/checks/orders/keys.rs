//! One key, one order: whatever was asked under it, answered and lost.

use std::collections::BTreeMap;

use layout::{Field, Value};
use model::{Order, OrderLine};
use shop_service::{LineWish, OrderWish, ShopError};

use super::{Line, OrderShown, sorted, was_placed};
use crate::ledger::{Deed, Told};

pub(super) fn of_one_key(deeds: &[(&Deed, &OrderWish)], own: &[&OrderShown<'_>]) -> Vec<String> {
    let mut breaches = Vec::new();
    if own.len() > 1 {
        breaches.push(format!("{} orders stand under one key", own.len()));
    }
    let standing = own.first().copied();
    let mut first: Option<&Order> = None;
    for (deed, wish) in deeds {
        match &deed.told {
            Told::Order { order, .. } => {
                breaches.extend(told_otherwise(order, first, wish));
                first = first.or(Some(order));
                match standing {
                    None => breaches.push("an acknowledged order is not there".to_owned()),
                    Some(standing) => breaches.extend(not_as_told(standing, order, wish)),
                }
            }
            Told::Refused {
                why: ShopError::OrderAborted { .. },
            } if standing.is_some_and(|order| was_placed(order.status)) => {
                breaches.push("an order was told to be given up, and stands".to_owned());
            }
            Told::Refused {
                why: ShopError::KeyReused,
            } => {
                let other = |(before, other): &(&Deed, &OrderWish)| {
                    Some(before.invoked) < deed.ended && asked_lines(other) != asked_lines(wish)
                };
                if !deeds.iter().any(other) {
                    breaches.push("a key was called reused that nobody had used".to_owned());
                }
            }
            _ => {}
        }
    }
    let all_refused = deeds.iter().all(|(deed, _)| deed.is_refused());
    if all_refused && standing.is_some_and(|order| was_placed(order.status)) {
        breaches.push("every attempt was refused, and the order stands".to_owned());
    }
    breaches
}

/// Every answer to a key is the same order, and the one that was asked for.
fn told_otherwise(order: &Order, first: Option<&Order>, wish: &OrderWish) -> Option<String> {
    let line = |line: &OrderLine| {
        let pieces = i64::from(line.quantity.get());
        (line.product.to_string(), pieces, line.price.as_decimal())
    };
    if sorted(order.lines().iter().map(line)) != asked_lines(wish) {
        return Some("an order was acknowledged with other lines".to_owned());
    }
    let first = first?;
    let (one, other) = (first.header(), order.header());
    let same = one.id == other.id && one.created_at == other.created_at;
    (!same).then(|| format!("answered with order {} and with {}", one.id, other.id))
}

fn not_as_told(standing: &OrderShown<'_>, order: &Order, wish: &OrderWish) -> Option<String> {
    let created_at = standing.fields.get(Field::CreatedAt);
    let same = standing.record.key.id.as_str() == order.header().id.as_str()
        && standing.lines == asked_lines(wish)
        && created_at.and_then(Value::as_timestamp) == Some(order.header().created_at);
    if !same {
        return Some("the order that stands is not the one acknowledged".to_owned());
    }
    (!was_placed(standing.status)).then(|| format!("an acknowledged order is {}", standing.status))
}

pub(super) fn unasked(
    order: &OrderShown<'_>,
    by_key: &BTreeMap<(&str, &str), Vec<(&Deed, &OrderWish)>>,
) -> Option<String> {
    let asked = by_key.get(&(order.user, order.key)).is_some_and(|deeds| {
        deeds
            .iter()
            .any(|(_, wish)| asked_lines(wish) == order.lines)
    });
    (!asked).then(|| format!("nobody asked for {} as it stands", order.record.key))
}

fn asked_lines(wish: &OrderWish) -> Vec<Line> {
    let line = |line: &LineWish| {
        let pieces = i64::from(line.quantity.get());
        (line.product.to_string(), pieces, line.price.as_decimal())
    };
    sorted(wish.lines.iter().map(line))
}

#[cfg(test)]
mod tests {
    use super::super::stage::{acknowledged, found, order, record, takes_at, wish};
    use super::*;
    use crate::checks::orders::check;
    use crate::checks::story::Story;
    use crate::ledger::Wish;

    #[test]
    fn an_acknowledged_order_stands_once_as_it_was_asked_for() {
        let placed = order(1, 7);
        let told = || acknowledged(&placed);
        assert_eq!(found(told(), vec![record(&placed, "created")]), 0);
        assert_eq!(found(told(), vec![record(&placed, "paid")]), 0);
        assert!(found(told(), vec![]) > 0, "not there");
        assert!(
            found(told(), vec![record(&placed, "created"); 2]) > 0,
            "twice"
        );
        assert!(
            found(told(), vec![record(&order(2, 7), "created")]) > 0,
            "other lines"
        );
        assert!(
            found(told(), vec![record(&order(1, 8), "created")]) > 0,
            "other time"
        );
        assert!(
            found(told(), vec![record(&placed, "aborted")]) > 0,
            "given up"
        );
        assert!(found(acknowledged(&order(2, 7)), vec![record(&placed, "created")]) > 0);
    }

    #[test]
    fn a_refused_order_is_not_there_and_none_stays_open() {
        let placed = order(1, 7);
        let refused = || Told::Refused {
            why: ShopError::OrderAborted {
                order: placed.header().id.clone(),
            },
        };
        let unknown = || Told::Unknown { why: String::new() };
        assert_eq!(found(refused(), vec![record(&placed, "aborted")]), 0);
        assert!(found(refused(), vec![record(&placed, "created")]) > 0);
        assert_eq!(found(unknown(), vec![record(&placed, "created")]), 0);
        assert_eq!(found(unknown(), vec![]), 0);
        assert_eq!(found(unknown(), vec![record(&placed, "pending")]), 1);
        let reused = Told::Refused {
            why: ShopError::KeyReused,
        };
        assert_eq!(found(reused, vec![]), 1, "nobody used the key");
    }

    #[test]
    fn one_key_is_answered_with_one_order() {
        let mut story = Story::begin();
        takes_at(&mut story, &order(1, 7), 500);
        story.visits(Wish::PlaceOrder(wish(1)), acknowledged(&order(1, 7)));
        story.visits(Wish::PlaceOrder(wish(1)), acknowledged(&order(1, 7)));
        story.history.standing = vec![record(&order(1, 7), "created")];
        assert!(check(&story.history).is_empty());
        story.visits(Wish::PlaceOrder(wish(1)), acknowledged(&order(1, 8)));
        assert!(!check(&story.history).is_empty());
    }
}
