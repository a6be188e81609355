//! Orders as visitors know them: one for each key, whatever was asked, answered
//! and lost; moved along their course and never back; whole or not there.
//!
//! The course is told again here, without the model's rules.

use std::collections::BTreeMap;

use engine_api::{Authority, Change, Record, StockAction};
use layout::path::SETTLEMENT_OPEN;
use layout::{Collection, Field, Fields, Value};
use model::{Order, OrderLine, OrderStatus};
use rust_decimal::Decimal;
use shop_service::{LineWish, OrderWish, ShopError};

use crate::ledger::{Deed, Told, Wish};
use crate::recording::{Applied, History};

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

fn asked_lines(wish: &OrderWish) -> Vec<Line> {
    let line = |line: &LineWish| {
        let pieces = i64::from(line.quantity.get());
        (line.product.to_string(), pieces, line.price.as_decimal())
    };
    sorted(wish.lines.iter().map(line))
}

/// Whether an order of this status was ever placed.
fn was_placed(status: &str) -> bool {
    !matches!(status, "pending" | "aborted")
}

fn of_one_key(deeds: &[(&Deed, &OrderWish)], own: &[&OrderShown<'_>]) -> Vec<String> {
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

fn unasked(
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

/// After the last sweep nothing is left to do.
fn unfinished(order: &OrderShown<'_>) -> Option<String> {
    let open = order.fields.text(Field::Settlement) == Some(SETTLEMENT_OPEN);
    (open || order.status == "pending")
        .then(|| format!("{} is {} and stayed open", order.record.key, order.status))
}

/// Every piece was taken at a moment when the product had the order's price.
fn at_another_price(history: &History, order: &OrderShown<'_>) -> Vec<String> {
    let mut breaches = Vec::new();
    for (product, _, price) in &order.lines {
        let takes = history
            .applied
            .iter()
            .flat_map(|applied| takes(applied, order.record.key.id.as_str(), product));
        let mut taken = false;
        for now in takes {
            taken = true;
            if now != Some(*price) {
                breaches.push(format!(
                    "{} took {product} for {price} when it cost {now:?}",
                    order.record.key
                ));
            }
        }
        if !taken && was_placed(order.status) {
            breaches.push(format!("{} never took its {product}", order.record.key));
        }
    }
    breaches
}

/// The product's price at each moment when pieces were taken for the order.
fn takes(applied: &Applied, order: &str, product: &str) -> Vec<Option<Decimal>> {
    let creates = applied.changes.iter().any(
        |change| matches!(change, Change::CreateIfAbsent { key, .. } if key.id.as_str() == order),
    );
    let changed = applied.changes.iter().zip(&applied.images);
    let changed = changed.filter(|(_, (before, after))| before != after);
    changed
        .filter(|(change, _)| change.key().id.as_str() == product)
        .filter(|(change, _)| match change {
            Change::Stock {
                action: StockAction::Take { order: of, .. },
                ..
            } => of == order,
            Change::Stock {
                action: StockAction::Sell { .. },
                ..
            } => creates,
            _ => false,
        })
        .map(|(_, (before, _))| {
            let header = before.as_ref()?.header.content.live()?;
            header.get(Field::Price)?.as_decimal()
        })
        .collect()
}

/// Where an order may go in one step.
fn next(status: &str) -> &'static [&'static str] {
    match status {
        "pending" => &["created", "aborted"],
        "created" => &["paid", "cancelled"],
        "paid" => &["shipped", "cancelled"],
        "shipped" => &["delivered"],
        "delivered" => &["returned"],
        _ => &[],
    }
}

fn reaches(from: &str, to: &str) -> bool {
    from == to || next(from).iter().any(|step| reaches(step, to))
}

fn illegal_courses(history: &History) -> Vec<String> {
    let by_routers = history
        .applied
        .iter()
        .filter(|applied| matches!(applied.context.authority, Authority::Router { .. }));
    let images = by_routers.flat_map(|applied| &applied.images);
    let mut breaches = Vec::new();
    for (before, after) in images {
        let before = before.as_ref().and_then(read);
        let after = after.as_ref().and_then(read);
        let (Some(before), Some(after)) = (before, after) else {
            continue;
        };
        let (from, to) = (before.status, after.status);
        let key = &before.record.key;
        if from != to && !next(from).contains(&to) {
            breaches.push(format!("{key} went from {from} to {to}"));
        }
        let created_at = |order: &OrderShown<'_>| order.fields.get(Field::CreatedAt).cloned();
        if created_at(&before) != created_at(&after) || before.lines != after.lines {
            breaches.push(format!("{key} changed what was asked for, or when"));
        }
    }
    breaches
}

/// What was told once holds later: in every answer that was asked for after it,
/// and at the end.
fn behind_what_was_told(history: &History, orders: &[OrderShown<'_>]) -> Vec<String> {
    let mut breaches = Vec::new();
    let told: Vec<(&Deed, &Order)> = history
        .deeds
        .iter()
        .filter_map(|deed| match &deed.told {
            Told::Order { order, .. } => Some((deed, order)),
            _ => None,
        })
        .collect();
    for (index, (earlier, order)) in told.iter().enumerate() {
        let (id, status) = (&order.header().id, name(order.header().status));
        let standing = orders
            .iter()
            .find(|order| order.record.key.id.as_str() == id.as_str());
        match standing {
            Some(standing) if reaches(status, standing.status) => {}
            Some(standing) => breaches.push(format!(
                "{id} was told to be {status} and ends {}",
                standing.status
            )),
            None => breaches.push(format!("{id} was told of and is not there")),
        }
        for (later, other) in &told[index + 1..] {
            let then = name(other.header().status);
            if other.header().id == *id && earlier.is_before(later) && !reaches(status, then) {
                breaches.push(format!("{id} was told to be {status} and later {then}"));
            }
        }
        if let Wish::ChangeStatus { status: wished, .. } = earlier.wish
            && !reaches(name(wished), status)
        {
            breaches.push(format!("{id} was asked to be {wished:?} and told {status}"));
        }
    }
    breaches
}

/// A user's list of orders shows each once, and all that were told of before.
fn missing_in_history(history: &History) -> Vec<String> {
    let mut breaches = Vec::new();
    for listing in &history.deeds {
        let (Wish::ListOrders { user }, Told::Orders { orders }) = (&listing.wish, &listing.told)
        else {
            continue;
        };
        let mut shown = BTreeMap::new();
        for order in orders {
            let header = order.header();
            if header.user != *user || shown.insert(&header.id, header.status).is_some() {
                breaches.push(format!("{} is twice or wrongly among {user}'s", header.id));
            }
        }
        for deed in history.deeds.iter().filter(|deed| deed.is_before(listing)) {
            let Told::Order { order, .. } = &deed.told else {
                continue;
            };
            let (id, status) = (&order.header().id, name(order.header().status));
            if order.header().user != *user {
                continue;
            }
            if !shown
                .get(id)
                .is_some_and(|shown| reaches(status, name(*shown)))
            {
                breaches.push(format!(
                    "{id} was told to be {status} and is missing or older in the list at {}",
                    listing.invoked.0
                ));
            }
        }
    }
    breaches
}

fn name(status: OrderStatus) -> &'static str {
    match status {
        OrderStatus::Pending => "pending",
        OrderStatus::Created => "created",
        OrderStatus::Paid => "paid",
        OrderStatus::Shipped => "shipped",
        OrderStatus::Delivered => "delivered",
        OrderStatus::Cancelled => "cancelled",
        OrderStatus::Returned => "returned",
        OrderStatus::Aborted => "aborted",
    }
}

#[cfg(test)]
mod tests {
    use engine_api::{
        Content, Header, Part, PartKey, PriceCondition, RecordId, RecordKey, Timestamp,
    };
    use layout::ShardKey;
    use model::{OrderLine, OrderRequest, Quantity, RequestFields};
    use shop_service::Made;

    use super::*;
    use crate::checks::story::{Story, revision, router_context};
    use crate::scenery::{ZONE, money, noun, product};

    fn wish(pieces: u32) -> OrderWish {
        OrderWish {
            user: noun("dan"),
            key: noun("key-1"),
            lines: vec![LineWish {
                product: noun("mug"),
                category: None,
                quantity: Quantity::new(pieces).unwrap(),
                price: money(500),
            }],
            geo_zone: noun(ZONE),
            address: noun("1 Main Street"),
            payment_method: noun("card"),
            cart: None,
        }
    }

    fn order(pieces: u32, at: i64) -> Order {
        let wish = wish(pieces);
        let line = OrderLine {
            product: noun("mug"),
            category: noun("kitchen"),
            name: noun("mug"),
            quantity: Quantity::new(pieces).unwrap(),
            price: money(500),
        };
        let request = OrderRequest::new(RequestFields {
            idempotency_key: wish.key.clone(),
            lines: vec![line],
            geo_zone: wish.geo_zone.clone(),
            address: wish.address.clone(),
            payment_method: wish.payment_method.clone(),
        });
        let now = Timestamp::from_unix_micros(at);
        let mut order = Order::pending(&wish.user, request.unwrap(), now);
        order.change_status(OrderStatus::Created, now).unwrap();
        order
    }

    fn record(order: &Order, status: &str) -> Record {
        let header = order.header();
        let line = BTreeMap::from([
            ("product_id".to_owned(), Value::text("mug")),
            (
                "quantity".to_owned(),
                Value::Int(i64::from(order.lines()[0].quantity.get())),
            ),
            ("price".to_owned(), Value::Decimal(Decimal::new(500, 2))),
        ]);
        let fields = Fields::new()
            .with(Field::OrderId, Value::text(header.id.to_string()))
            .with(Field::UserId, Value::text("dan"))
            .with(Field::IdempotencyKey, Value::text("key-1"))
            .with(Field::Status, Value::text(status))
            .with(Field::CreatedAt, Value::Timestamp(header.created_at))
            .with(Field::Lines, Value::List(vec![Value::Map(line)]));
        let fields = match status {
            "pending" => fields.with(Field::Settlement, Value::text(SETTLEMENT_OPEN)),
            _ => fields,
        };
        live(Collection::Orders, header.id.as_str(), "dan", fields)
    }

    fn live(collection: Collection, id: &str, routed_by: &str, fields: Fields) -> Record {
        Record {
            key: RecordKey {
                collection,
                id: RecordId::new(id).unwrap(),
                shard_key: ShardKey::of_text(routed_by),
            },
            header: Header {
                revision: revision(2),
                cleared: revision(1),
                content: Content::Live(fields),
            },
            parts: BTreeMap::new(),
        }
    }

    /// The mug is taken for the order while it costs so much.
    fn takes_at(story: &mut Story, order: &Order, cents: i64) {
        let price = Value::Decimal(Decimal::new(cents, 2));
        let fields = Fields::new().with(Field::Price, price);
        let before = live(Collection::Products, "mug", "mug", fields);
        let mut after = before.clone();
        let shelf = PartKey::stock(ZONE, 0);
        after.parts.insert(shelf.clone(), Part::mark(revision(4)));
        let action = StockAction::Take {
            order: order.header().id.to_string(),
            quantity: 1,
            at: order.header().created_at,
        };
        let change = Change::Stock {
            key: product("mug"),
            part: shelf,
            price: PriceCondition::Any,
            action,
        };
        let context = router_context(revision(4), 1);
        story.applies(change, context, Some(before), Some(after));
    }

    fn acknowledged(order: &Order) -> Told {
        Told::Order {
            made: Some(Made::Now),
            order: order.clone(),
        }
    }

    /// One order of one mug, and what else is told in the story.
    fn found(told: Told, standing: Vec<Record>) -> usize {
        let mut story = Story::begin();
        takes_at(&mut story, &order(1, 7), 500);
        story.visits(Wish::PlaceOrder(wish(1)), told);
        story.history.standing = standing;
        check(&story.history).len()
    }

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

    #[test]
    fn pieces_are_taken_at_the_price_of_the_order() {
        let placed = order(1, 7);
        let mut story = Story::begin();
        story.visits(Wish::PlaceOrder(wish(1)), acknowledged(&placed));
        story.history.standing = vec![record(&placed, "created")];
        assert_eq!(check(&story.history).len(), 1, "nothing was taken");
        takes_at(&mut story, &placed, 500);
        assert!(check(&story.history).is_empty());
        takes_at(&mut story, &placed, 600);
        assert_eq!(check(&story.history).len(), 1);
    }

    #[test]
    fn a_list_of_orders_shows_what_was_told_before() {
        let placed = order(1, 7);
        let found = |orders: Vec<Order>| {
            let mut story = Story::begin();
            takes_at(&mut story, &placed, 500);
            story.visits(Wish::PlaceOrder(wish(1)), acknowledged(&placed));
            let listing = Wish::ListOrders { user: noun("dan") };
            story.visits(listing, Told::Orders { orders });
            story.history.standing = vec![record(&placed, "created")];
            check(&story.history).len()
        };
        assert_eq!(found(vec![placed.clone()]), 0);
        assert_eq!(found(vec![]), 1);
        assert_eq!(found(vec![placed.clone(), placed.clone()]), 1);
    }

    #[test]
    fn a_status_does_not_go_back_and_ends_where_it_was_told() {
        let placed = order(1, 7);
        let id = placed.header().id.clone();
        let told_paid = |ends: &str| {
            let mut paid = placed.clone();
            let now = placed.header().created_at;
            paid.change_status(OrderStatus::Paid, now).unwrap();
            let mut story = Story::begin();
            takes_at(&mut story, &placed, 500);
            story.visits(Wish::PlaceOrder(wish(1)), acknowledged(&placed));
            let wish = Wish::ChangeStatus {
                order: id.clone(),
                status: OrderStatus::Paid,
            };
            story.visits(wish, acknowledged(&paid));
            story.history.standing = vec![record(&placed, ends)];
            story
        };
        assert!(check(&told_paid("paid").history).is_empty());
        assert!(check(&told_paid("shipped").history).is_empty());
        assert_eq!(check(&told_paid("created").history).len(), 1);
        let mut story = told_paid("paid");
        story.visits(Wish::ReadOrder { order: id.clone() }, acknowledged(&placed));
        assert_eq!(check(&story.history).len(), 1, "an older answer");
        let mut story = told_paid("paid");
        let change = Change::Remove {
            key: record(&placed, "paid").key,
            expected: revision(2),
        };
        let (before, after) = (record(&placed, "cancelled"), record(&placed, "shipped"));
        let context = router_context(revision(4), 1);
        story.applies(change, context, Some(before), Some(after));
        assert_eq!(
            check(&story.history).len(),
            1,
            "shipped after it was cancelled"
        );
    }
}
