//! One order of one mug, for the tests of these checks.

use std::collections::BTreeMap;

use engine_api::{
    Change, Content, Header, Part, PartKey, PriceCondition, Record, RecordId, RecordKey,
    StockAction, Timestamp,
};
use layout::path::SETTLEMENT_OPEN;
use layout::{Collection, Field, Fields, ShardKey, Value};
use model::{Order, OrderLine, OrderRequest, OrderStatus, Quantity, RequestFields};
use rust_decimal::Decimal;
use shop_service::{LineWish, Made, OrderWish};

use super::check;
use crate::checks::story::{Story, revision, router_context};
use crate::ledger::{Told, Wish};
use crate::scenery::{ZONE, money, noun, product};

pub fn wish(pieces: u32) -> OrderWish {
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

pub fn order(pieces: u32, at: i64) -> Order {
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

pub fn record(order: &Order, status: &str) -> Record {
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
pub fn takes_at(story: &mut Story, order: &Order, cents: i64) {
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

pub fn acknowledged(order: &Order) -> Told {
    Told::Order {
        made: Some(Made::Now),
        order: order.clone(),
    }
}

/// One order of one mug, and what else is told in the story.
pub fn found(told: Told, standing: Vec<Record>) -> usize {
    let mut story = Story::begin();
    takes_at(&mut story, &order(1, 7), 500);
    story.visits(Wish::PlaceOrder(wish(1)), told);
    story.history.standing = standing;
    check(&story.history).len()
}
