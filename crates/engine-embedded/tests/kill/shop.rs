//! The records that writer and judge agree on, by number.

use std::path::Path;

use engine_api::layout::{Collection, Field, Fields, ShardKey, Value};
use engine_api::{
    Authority, Change, Freshness, Generation, Guard, PartChange, PartKey, PriceCondition,
    ReadContext, RecordId, RecordKey, Revision, StockAction, Timestamp, WriteContext, Writer,
    expiry_fields,
};
use engine_embedded::{EmbeddedConfig, EmbeddedEngine, OpenError};
use rust_decimal::Decimal;

pub const PRODUCTS: u64 = 8;
pub const RECEIVED: u64 = 10_000_000;
const FAR_FUTURE_MICROS: i64 = 4_000_000_000_000_000;
const STARTED_MICROS: i64 = 1_790_000_000_000_000;

pub fn open(path: &Path) -> EmbeddedEngine {
    try_open(path).expect("the directory opens after a crash")
}

pub fn try_open(path: &Path) -> Result<EmbeddedEngine, OpenError> {
    let layout = engine_api::layout::embedded();
    let tables = layout
        .collections
        .values()
        .flat_map(|kept| kept.live.tables.clone())
        .collect();
    let config = EmbeddedConfig {
        path: path.to_owned(),
        tables,
        cache_bytes: 8 << 20,
    };
    EmbeddedEngine::open(config)
}

pub fn at(number: u64) -> Timestamp {
    Timestamp::from_unix_micros(STARTED_MICROS + number as i64 * 1000)
}

pub fn write_context(number: u64) -> WriteContext {
    WriteContext {
        authority: Authority::Router {
            generation: Generation(1),
        },
        now: at(number),
        revision: Revision::at(at(number), Writer::numbered(0)),
    }
}

pub fn read_context() -> ReadContext {
    ReadContext {
        now: at(0),
        freshness: Freshness::Latest,
    }
}

pub fn user(number: u64) -> String {
    format!("USER-{}", number % 50)
}

pub fn order_key(number: u64) -> RecordKey {
    RecordKey {
        collection: Collection::Orders,
        id: RecordId::new(format!("order-{number:012}")).expect("short"),
        shard_key: ShardKey::of_text(&user(number)),
    }
}

pub fn product_key(product: u64) -> RecordKey {
    RecordKey::by_id(
        Collection::Products,
        RecordId::new(format!("product-{product}")).expect("short"),
    )
}

pub fn cart_key(cart: u64) -> RecordKey {
    RecordKey::by_id(
        Collection::Carts,
        RecordId::new(format!("cart-{cart}")).expect("short"),
    )
}

pub fn session_key(number: u64) -> RecordKey {
    RecordKey::by_id(
        Collection::Sessions,
        RecordId::new(format!("session-{number}")).expect("short"),
    )
}

pub fn stock_part() -> PartKey {
    PartKey::stock("moscow", 0)
}

/// How much an order weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    Ordinary,
    /// Fills a disk quickly.
    Heavy,
}

/// A text that does not compress.
fn note(number: u64, load: Load) -> String {
    let words = match load {
        Load::Ordinary => 20,
        Load::Heavy => 2000,
    };
    (0..words)
        .map(|word: u64| {
            format!(
                "{:016x}",
                (number << 20 | word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            )
        })
        .collect()
}

/// An order of one piece and the piece itself.
pub fn order(number: u64, load: Load) -> Vec<Change> {
    let key = order_key(number);
    let header = Fields::new()
        .with(Field::OrderId, Value::text(key.id.as_str()))
        .with(Field::UserId, Value::text(user(number)))
        .with(Field::Status, Value::text("created"))
        .with(Field::CreatedAt, Value::Timestamp(at(number)))
        .with(Field::Total, Value::Decimal(Decimal::new(49_990, 2)))
        .with(
            Field::Lines,
            Value::List(vec![Value::text(note(number, load))]),
        );
    let sale = Change::Stock {
        key: product_key(number % PRODUCTS),
        part: stock_part(),
        price: PriceCondition::Any,
        action: StockAction::Sell { quantity: 1 },
    };
    vec![
        Change::CreateIfAbsent {
            key,
            header,
            parts: Vec::new(),
        },
        sale,
    ]
}

pub fn product(product: u64) -> [Change; 2] {
    let key = product_key(product);
    let header = Fields::new()
        .with(Field::ProductId, Value::text(key.id.as_str()))
        .with(Field::Category, Value::text("phones"))
        .with(Field::Name, Value::text("a phone"))
        .with(Field::Price, Value::Decimal(Decimal::new(49_990, 2)));
    let stock = Change::Stock {
        key: key.clone(),
        part: stock_part(),
        price: PriceCondition::Any,
        action: StockAction::Receive { total: RECEIVED },
    };
    [
        Change::CreateIfAbsent {
            key,
            header,
            parts: Vec::new(),
        },
        stock,
    ]
}

pub fn cart(cart: u64) -> Change {
    let key = cart_key(cart);
    let header = Fields::new()
        .with(Field::CartId, Value::text(key.id.as_str()))
        .with(Field::UserId, Value::text(format!("USER-{cart}")))
        .with(Field::Status, Value::text("active"))
        .with(Field::CreatedAt, Value::Timestamp(at(0)))
        .with(Field::Ordinal, Value::Int(1));
    Change::CreateIfAbsent {
        key,
        header,
        parts: Vec::new(),
    }
}

/// The line that every cart here has, with a rising quantity.
pub fn cart_line(cart: u64, quantity: u64) -> Change {
    let fields = Fields::new().with(Field::Quantity, Value::Int(quantity as i64));
    Change::Patch {
        key: cart_key(cart),
        guard: Guard {
            header: vec![(Field::Status, Value::text("active"))],
        },
        parts: vec![(PartKey::line("product-1"), PartChange::Set(fields))],
    }
}

pub fn session(number: u64) -> Change {
    let key = session_key(number);
    let header = Fields::new()
        .with(Field::SessionId, Value::text(key.id.as_str()))
        .with(Field::UserId, Value::text(user(number)))
        .with(Field::Status, Value::text("open"))
        .with(Field::CreatedAt, Value::Timestamp(at(number)));
    let expiry = expiry_fields(Timestamp::from_unix_micros(FAR_FUTURE_MICROS));
    Change::CreateIfAbsent {
        key,
        header,
        parts: vec![(PartKey::expiry(), expiry)],
    }
}
