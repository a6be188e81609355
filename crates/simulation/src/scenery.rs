//! The shop that is simulated: few shoppers, few keys, so that they meet.
//!
//! Every header and part that is written holds a number of its own, so that
//! what a read shows names the write it came from.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::str::FromStr;
use std::sync::atomic::{AtomicI64, Ordering};

use engine_api::{
    Change, Guard, PartChange, PartKey, PartsChange, PriceCondition, RecordId, RecordKey, Revision,
    StockAction, Timestamp, expiry_fields,
};
use layout::{Collection, Field, Fields, ShardKey, Value};
use model::{CartId, CartOwner, Money};
use router::{CollectionMap, Cut, Map, ShardName};
use rust_decimal::Decimal;

use crate::clock::EPOCH_US;

pub const USERS: [&str; 3] = ["ada", "bob", "cyd"];
pub const SESSIONS: [&str; 3] = ["s-1", "s-2", "s-3"];
pub const PRODUCTS: [&str; 2] = ["lamp", "rug"];
pub const LINES: [&str; 3] = ["lamp", "rug", "sofa"];
pub const PRICES_CENTS: [i64; 3] = [500, 600, 700];
/// Pieces of each product that ever arrive.
pub const PIECES: u64 = 30;
pub const CATEGORY: &str = "home";

/// Shoppers and visitors have users and products of their own: what shoppers
/// write is made up, and no shop would read it.
pub const VISITORS_USERS: [&str; 2] = ["dan", "eve"];
pub const GOODS: [&str; 2] = ["mug", "pen"];
pub const GOODS_CATEGORY: &str = "kitchen";
/// Pieces of each of the goods that are there at first.
pub const GOODS_PIECES: u64 = 9;
/// Where finished orders are kept, in seeds that keep them apart.
pub const ARCHIVE: &str = "archive";
pub const ZONE: &str = "north";
/// Carts of one user that a move may pick by name.
const CARTS_NAMED: u64 = 3;

/// The source of numbers that make written values unique.
#[derive(Debug, Default)]
pub struct Marks(AtomicI64);

impl Marks {
    pub fn next(&self) -> i64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn timestamp(&self) -> Value {
        Value::Timestamp(Timestamp::from_unix_micros(EPOCH_US + self.next()))
    }
}

/// The first map: every collection cut alike, over the shards that serve it.
pub fn first_map<'a>(serving: impl Fn(Collection) -> &'a [ShardName]) -> Map {
    let collections = Collection::ALL.into_iter().map(|collection| {
        let shard_key = vec![routing_field(collection)];
        (
            collection,
            CollectionMap::cut_by("simulated", shard_key, Cut::even_slots(serving(collection))),
        )
    });
    Map::first(collections.collect())
}

/// The header field that routes records of the collection.
pub fn routing_field(collection: Collection) -> Field {
    match collection {
        Collection::Carts => Field::CartId,
        Collection::Orders => Field::UserId,
        Collection::Products => Field::ProductId,
        Collection::Sessions => Field::SessionId,
    }
}

/// Routing texts that records of the collection can have. Those of guests are
/// drawn on the way.
pub fn routing_texts(collection: Collection) -> Vec<String> {
    let texts = |some: &[&str], more: &[&str]| -> Vec<String> {
        let all = some.iter().chain(more);
        all.map(|text| (*text).to_owned()).collect()
    };
    match collection {
        Collection::Carts => {
            let shoppers = USERS.iter().map(|user| cart_id(user));
            let visitors = VISITORS_USERS.iter().flat_map(|user| {
                let owner = CartOwner::User(noun(user));
                (1..=CARTS_NAMED).map(move |ordinal| CartId::of_owner(&owner, ordinal).to_string())
            });
            shoppers.chain(visitors).collect()
        }
        Collection::Orders => texts(&USERS, &VISITORS_USERS),
        Collection::Products => texts(&PRODUCTS, &GOODS),
        Collection::Sessions => texts(&SESSIONS, &[]),
    }
}

/// A name of the scenery as one of the model's nouns.
pub fn noun<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().expect("the scenery's names are in order")
}

pub fn money(cents: i64) -> Money {
    Money::from_decimal(Decimal::new(cents, 2)).expect("the scenery's prices are in order")
}

pub fn cart(user: &str) -> RecordKey {
    key(Collection::Carts, &cart_id(user), &cart_id(user))
}

fn cart_id(user: &str) -> String {
    format!("cart-{user}")
}

pub fn order(id: &str, user: &str) -> RecordKey {
    key(Collection::Orders, id, user)
}

pub fn product(id: &str) -> RecordKey {
    key(Collection::Products, id, id)
}

pub fn session(id: &str) -> RecordKey {
    key(Collection::Sessions, id, id)
}

fn key(collection: Collection, id: &str, routed_by: &str) -> RecordKey {
    let id = RecordId::new(id).expect("the scenery's ids are short");
    RecordKey {
        collection,
        id,
        shard_key: ShardKey::of_text(routed_by),
    }
}

pub fn cart_header(user: &str, status: &str, marks: &Marks) -> Fields {
    Fields::new()
        .with(Field::CartId, Value::text(cart_id(user)))
        .with(Field::UserId, Value::text(user))
        .with(Field::Status, Value::text(status))
        .with(
            Field::CreatedAt,
            Value::Timestamp(Timestamp::from_unix_micros(EPOCH_US)),
        )
        .with(Field::UpdatedAt, marks.timestamp())
        .with(Field::Ordinal, Value::Int(1))
}

/// How an order takes its pieces: in one commit, or by reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sale {
    AtOnce,
    Reserved,
}

impl Sale {
    pub fn name(self) -> &'static str {
        match self {
            Sale::AtOnce => "at once",
            Sale::Reserved => "reserved",
        }
    }
}

pub fn order_header(
    key: &RecordKey,
    user: &str,
    sale: Sale,
    (product, pieces): (&str, u32),
    created_at: Timestamp,
    marks: &Marks,
) -> Fields {
    let line = BTreeMap::from([
        ("product_id".to_owned(), Value::text(product)),
        ("quantity".to_owned(), Value::Int(i64::from(pieces))),
    ]);
    Fields::new()
        .with(Field::OrderId, Value::text(key.id.as_str()))
        .with(Field::UserId, Value::text(user))
        .with(Field::Status, Value::text("created"))
        .with(Field::CreatedAt, Value::Timestamp(created_at))
        .with(Field::UpdatedAt, marks.timestamp())
        .with(Field::PaymentMethod, Value::text(sale.name()))
        .with(Field::Total, Value::Decimal(Decimal::new(500, 2)))
        .with(Field::Lines, Value::List(vec![Value::Map(line)]))
}

/// Product and pieces of an order's only line.
pub fn order_line(header: &Fields) -> Option<(String, u32)> {
    let Some(Value::List(lines)) = header.get(Field::Lines) else {
        return None;
    };
    let Some(Value::Map(line)) = lines.first() else {
        return None;
    };
    let product = line.get("product_id")?.as_text()?.to_owned();
    Some((
        product,
        u32::try_from(line.get("quantity")?.as_int()?).ok()?,
    ))
}

/// The same header with another status, and a number of its own.
pub fn with_status(header: &Fields, status: &str, marks: &Marks) -> Fields {
    header
        .clone()
        .with(Field::Status, Value::text(status))
        .with(Field::UpdatedAt, marks.timestamp())
}

pub fn product_header(id: &str, price_cents: i64, marks: &Marks) -> Fields {
    Fields::new()
        .with(Field::ProductId, Value::text(id))
        .with(Field::Category, Value::text(CATEGORY))
        .with(Field::Name, Value::text(id))
        .with(Field::Price, Value::Decimal(Decimal::new(price_cents, 2)))
        .with(Field::UpdatedAt, marks.timestamp())
}

pub fn session_header(id: &str, user: &str, marks: &Marks) -> Fields {
    Fields::new()
        .with(Field::SessionId, Value::text(id))
        .with(Field::UserId, Value::text(user))
        .with(Field::Status, Value::text("active"))
        .with(
            Field::CreatedAt,
            Value::Timestamp(Timestamp::from_unix_micros(EPOCH_US)),
        )
        .with(
            Field::UserAgent,
            Value::text(format!("agent {}", marks.next())),
        )
}

pub fn line(marks: &Marks) -> Fields {
    Fields::new()
        .with(Field::Name, Value::text("line"))
        .with(Field::Price, Value::Decimal(Decimal::new(500, 2)))
        .with(Field::Quantity, Value::Int(marks.next()))
}

/// Activity now, and an end so many milliseconds later.
pub fn activity(now: Timestamp, lives_ms: u64, marks: &Marks) -> [(PartKey, Fields); 2] {
    let mark = marks.next();
    let lives_us = i64::try_from(lives_ms * 1000).expect("a session lives for seconds");
    let end = Timestamp::from_unix_micros(now.unix_micros() + lives_us + mark % 1000);
    let active = Value::Timestamp(Timestamp::from_unix_micros(EPOCH_US + mark));
    [
        (
            PartKey::activity(),
            Fields::new().with(Field::LastActive, active),
        ),
        (PartKey::expiry(), expiry_fields(end)),
    ]
}

pub fn shelf() -> PartKey {
    PartKey::stock("eu", 0)
}

pub fn create(key: &RecordKey, header: Fields, parts: Vec<(PartKey, Fields)>) -> Change {
    Change::CreateIfAbsent {
        key: key.clone(),
        header,
        parts,
    }
}

pub fn change_if(key: &RecordKey, expected: Revision, header: Fields) -> Change {
    Change::ChangeIf {
        key: key.clone(),
        expected,
        header,
        parts: PartsChange::Keep,
    }
}

pub fn remove(key: &RecordKey, expected: Revision) -> Change {
    Change::Remove {
        key: key.clone(),
        expected,
    }
}

pub fn patch_while_active(key: &RecordKey, parts: Vec<(PartKey, PartChange)>) -> Change {
    let guard = Guard {
        header: vec![(Field::Status, Value::text(layout::path::STATUS_ACTIVE))],
    };
    Change::Patch {
        key: key.clone(),
        guard,
        parts,
    }
}

pub fn stock(product: &RecordKey, price: PriceCondition, action: StockAction) -> Change {
    Change::Stock {
        key: product.clone(),
        part: shelf(),
        price,
        action,
    }
}
