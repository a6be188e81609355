//! Stock: available + reserved + sold = received in every image, and what was
//! sold is what the orders say.

use engine_api::{Change, Record, StockAction};
use layout::{Collection, Field, Fields, Value};

use crate::recording::{History, Intent};
use crate::scenery::{PIECES, Sale, order_line, shelf};

pub fn check(history: &History) -> Vec<String> {
    let applied = history.applied.iter().flat_map(|applied| &applied.images);
    let applied = applied.filter_map(|(_, after)| after.as_ref());
    let read = history.reads().filter_map(|(_, _, image)| image);
    let mut breaches: Vec<String> = applied.chain(read).filter_map(identity).collect();
    let products = history
        .images
        .iter()
        .filter(|image| image.key.collection == Collection::Products);
    for product in products {
        let Some(fields) = product.part(&shelf()) else {
            continue;
        };
        breaches.extend(sold_at_once(history, product, fields));
        breaches.extend(reservations(history, product, fields));
    }
    breaches
}

fn identity(image: &Record) -> Option<String> {
    let fields = image.part(&shelf())?;
    let count = |field: Field| fields.get(field).and_then(Value::as_int).unwrap_or(-1);
    let (available, reserved, sold) = (
        count(Field::Available),
        count(Field::Reserved),
        count(Field::Sold),
    );
    let received = count(Field::Received);
    let all = i64::try_from(PIECES).unwrap_or(i64::MAX);
    let held = i64::from(
        known(fields)
            .iter()
            .filter(|known| known.state == "held")
            .map(|known| known.pieces)
            .sum::<u32>(),
    );
    let holds = available >= 0
        && reserved == held
        && sold >= 0
        && received == all
        && available + reserved + sold == received;
    (!holds).then(|| {
        format!(
            "{}: {available} available, {reserved} reserved ({held} held) and {sold} sold of {received}",
            image.key
        )
    })
}

/// Pieces sold without a reservation are those of the orders that stand.
fn sold_at_once(history: &History, product: &Record, fields: &Fields) -> Option<String> {
    let sold = fields.get(Field::Sold).and_then(Value::as_int)?;
    let by_reservation: u32 = known(fields)
        .iter()
        .filter(|known| known.state == "sold")
        .map(|known| known.pieces)
        .sum();
    let orders = history
        .images
        .iter()
        .filter(|image| image.key.collection == Collection::Orders);
    let ordered: u32 = orders
        .filter_map(|order| order.header.content.live())
        .filter(|header| header.text(Field::PaymentMethod) == Some(Sale::AtOnce.name()))
        .filter(|header| header.text(Field::Status) != Some("cancelled"))
        .filter_map(order_line)
        .filter(|(name, _)| *name == product.key.id.as_str())
        .map(|(_, pieces)| pieces)
        .sum();
    let at_once = sold - i64::from(by_reservation);
    (at_once != i64::from(ordered)).then(|| {
        format!(
            "{}: {at_once} pieces were sold at once, the orders say {ordered}",
            product.key
        )
    })
}

/// Acknowledged steps are there, and nothing is there that nobody asked for.
fn reservations(history: &History, product: &Record, fields: &Fields) -> Vec<String> {
    let mut breaches = Vec::new();
    let known = known(fields);
    let state = |order: &str| {
        known
            .iter()
            .find(|known| known.order == order)
            .map(|known| known.state.as_str())
    };
    for operation in &history.operations {
        let Intent::Write(changes) = &operation.intent else {
            continue;
        };
        let [Change::Stock { key, action, .. }] = changes.as_slice() else {
            continue;
        };
        if *key != product.key || operation.done().is_none() {
            continue;
        }
        let (order, allowed): (&str, &[&str]) = match action {
            StockAction::Take { order, .. } => (order, &["held", "sold", "returned"]),
            StockAction::Claim { order } => (order, &["sold", "returned"]),
            StockAction::Give { order, .. } => (order, &["returned"]),
            _ => continue,
        };
        if !state(order).is_some_and(|state| allowed.contains(&state)) {
            breaches.push(format!(
                "{key}: {action:?} was acknowledged, the reservation is {:?}",
                state(order)
            ));
        }
    }
    for reservation in &known {
        let asked = history.writes().any(|(operation, changes)| {
            let may_count = operation.done().is_some() || operation.is_open();
            may_count
                && changes.iter().any(|change| {
                    matches!(change, Change::Stock { key, action: StockAction::Take { order, quantity, .. }, .. }
                        if *key == product.key && *order == reservation.order && *quantity == reservation.pieces)
                })
        });
        if !asked {
            breaches.push(format!("{}: nobody reserved {reservation:?}", product.key));
        }
    }
    breaches
}

#[derive(Debug)]
pub(super) struct Known {
    pub order: String,
    pub pieces: u32,
    pub state: String,
}

pub(super) fn known(fields: &Fields) -> Vec<Known> {
    let Some(Value::Map(reservations)) = fields.get(Field::Reservations) else {
        return Vec::new();
    };
    let read = |(order, value): (&String, &Value)| {
        let Value::Map(map) = value else { return None };
        let pieces = u32::try_from(map.get("quantity")?.as_int()?).ok()?;
        let state = map.get("state")?.as_text()?.to_owned();
        Some(Known {
            order: order.clone(),
            pieces,
            state,
        })
    };
    reservations.iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use engine_api::{Content, Header, Part, PriceCondition, Timestamp};

    use super::*;
    use crate::checks::story::{Story, revision};
    use crate::scenery::{Marks, order, order_header, product, product_header, stock};

    fn lamp(available: i64, reserved: i64, sold: i64, reservation: Option<&str>) -> Record {
        let all = i64::try_from(PIECES).unwrap();
        let mut fields = Fields::new()
            .with(Field::Received, Value::Int(all))
            .with(Field::Available, Value::Int(available))
            .with(Field::Reserved, Value::Int(reserved))
            .with(Field::Sold, Value::Int(sold));
        if let Some(state) = reservation {
            let known = BTreeMap::from([
                ("quantity".to_owned(), Value::Int(2)),
                ("state".to_owned(), Value::text(state)),
            ]);
            let known = BTreeMap::from([("order-1".to_owned(), Value::Map(known))]);
            fields = fields.with(Field::Reservations, Value::Map(known));
        }
        let content = Content::Live(product_header("lamp", 500, &Marks::default()));
        let header = Header {
            revision: revision(2),
            cleared: revision(1),
            content,
        };
        let parts = BTreeMap::from([(shelf(), Part::live(revision(4), fields))]);
        Record {
            key: product("lamp"),
            header,
            parts,
        }
    }

    fn take() -> Change {
        let at = Timestamp::from_unix_micros(0);
        let take = StockAction::Take {
            order: "order-1".to_owned(),
            quantity: 2,
            at,
        };
        stock(&product("lamp"), PriceCondition::Any, take)
    }

    #[test]
    fn sums_that_do_not_add_up_are_found() {
        let check = |image: Record| {
            let mut story = Story::begin();
            story.reads(&product("lamp"), Some(image));
            check(&story.history).len()
        };
        assert_eq!(check(lamp(30, 0, 0, None)), 0);
        assert_eq!(check(lamp(28, 2, 0, Some("held"))), 0);
        assert_eq!(check(lamp(28, 2, 0, None)), 1);
        assert_eq!(check(lamp(29, 0, 0, None)), 1);
        assert_eq!(check(lamp(-2, 0, 32, None)), 1);
    }

    #[test]
    fn a_lost_and_an_invented_reservation_are_found() {
        let mut story = Story::begin();
        story.writes(take(), 4);
        story.history.images = vec![lamp(28, 2, 0, Some("held"))];
        assert!(check(&story.history).is_empty());
        story.history.images = vec![lamp(30, 0, 0, None)];
        assert_eq!(check(&story.history).len(), 1);
        let mut story = Story::begin();
        story.is_refused(take());
        story.history.images = vec![lamp(28, 2, 0, Some("held"))];
        assert_eq!(check(&story.history).len(), 1);
    }

    #[test]
    fn what_is_sold_at_once_is_what_the_orders_say() {
        let key = order("order-1", "ada");
        let at = Timestamp::from_unix_micros(0);
        let fields = order_header(
            &key,
            "ada",
            Sale::AtOnce,
            ("lamp", 2),
            at,
            &Marks::default(),
        );
        let content = Content::Live(fields);
        let header = Header {
            revision: revision(2),
            cleared: revision(1),
            content,
        };
        let placed = Record {
            key,
            header,
            parts: BTreeMap::new(),
        };
        let mut story = Story::begin();
        story.history.images = vec![placed.clone(), lamp(28, 0, 2, None)];
        assert!(check(&story.history).is_empty());
        story.history.images = vec![placed, lamp(26, 0, 4, None)];
        assert_eq!(check(&story.history).len(), 1);
    }
}
