//! The workload: orders of two lines, and the products they take stock from.

use std::collections::BTreeMap;

use engine_api::layout::{Collection, Field, Fields, ShardKey, Value};
use engine_api::{
    Authority, Change, Freshness, Generation, PartKey, PriceCondition, ReadContext, RecordId,
    RecordKey, Revision, StockAction, Timestamp, WriteContext, Writer,
};
use rust_decimal::Decimal;

/// How many products the orders are spread over.
pub const PRODUCTS: u64 = 512;
pub const ZONE: &str = "moscow";

/// Of every ten thousand orders, twenty each are of the same user: a history is
/// as long among few orders as among many.
const BLOCK_ORDERS: u64 = 10_000;
const BLOCK_USERS: u64 = 500;
const STARTED_MICROS: i64 = 1_790_000_000_000_000;

/// The n-th order of the run: its records are the same in every run.
#[derive(Clone, Copy, Debug)]
pub struct OrderNumber(pub u64);

impl OrderNumber {
    pub fn id(self) -> RecordId {
        let mixed = u128::from(mix(self.0)) << 64 | u128::from(mix(self.0 ^ 0x5bd1_e995));
        RecordId::new(format!("o-{mixed:032x}")).expect("34 characters fit")
    }

    pub fn user(self) -> String {
        let (block, place) = (self.0 / BLOCK_ORDERS, self.0 % BLOCK_ORDERS);
        format!("USER-{:07}", block * BLOCK_USERS + place % BLOCK_USERS)
    }

    pub fn at(self) -> Timestamp {
        Timestamp::from_unix_micros(STARTED_MICROS + self.0 as i64 * 200)
    }

    pub fn key(self) -> RecordKey {
        RecordKey {
            collection: Collection::Orders,
            id: self.id(),
            shard_key: ShardKey::of_text(&self.user()),
        }
    }

    /// The order and its stock: what one commit holds.
    pub fn changes(self) -> Vec<Change> {
        let product = self.product();
        vec![
            self.creation(),
            Change::Stock {
                key: product_key(product),
                part: PartKey::stock(ZONE, 0),
                price: PriceCondition::Exactly(price(product)),
                action: StockAction::Sell { quantity: 1 },
            },
        ]
    }

    /// The order alone.
    pub fn creation(self) -> Change {
        Change::CreateIfAbsent {
            key: self.key(),
            header: self.header(self.product()),
            parts: Vec::new(),
        }
    }

    fn product(self) -> u64 {
        mix(self.0 ^ 77) % PRODUCTS
    }

    pub fn context(self) -> WriteContext {
        WriteContext {
            authority: Authority::Router {
                generation: Generation(1),
            },
            now: self.at(),
            revision: Revision::at(self.at(), Writer::numbered(1)),
        }
    }

    fn header(self, product: u64) -> Fields {
        let line = |product: u64| {
            Value::Map(BTreeMap::from([
                (
                    "product_id".to_owned(),
                    Value::text(format!("PROD-{product:05}")),
                ),
                ("category".to_owned(), Value::text("phones")),
                ("name".to_owned(), Value::text("Galaxy S25 Ultra 512 GB")),
                ("quantity".to_owned(), Value::Int(1)),
                ("price".to_owned(), Value::Decimal(price(product))),
            ]))
        };
        Fields::new()
            .with(Field::OrderId, Value::text(self.id().as_str()))
            .with(Field::UserId, Value::text(self.user()))
            .with(Field::Status, Value::text("created"))
            .with(Field::CreatedAt, Value::Timestamp(self.at()))
            .with(Field::GeoZone, Value::text(ZONE))
            .with(
                Field::Address,
                Value::text("Moscow, Tverskaya street 12, building 3, apartment 45"),
            )
            .with(Field::PaymentMethod, Value::text("card"))
            .with(
                Field::Total,
                Value::Decimal(price(product) + price(product + 1)),
            )
            .with(
                Field::Lines,
                Value::List(vec![line(product), line(product + 1)]),
            )
            .with(
                Field::Fingerprint,
                Value::text(format!("{:032x}", mix(self.0 ^ 3))),
            )
    }

    /// What the engine has to write for the order, as one record and nothing
    /// else: its values with their key, the keys of its two listings, its journal
    /// entry and the stock. The raw group commit appends it; it is also the
    /// measure of disk bytes.
    pub fn raw_bytes(self) -> Vec<u8> {
        let product = mix(self.0 ^ 77) % PRODUCTS;
        let mut out = Vec::with_capacity(1024);
        let id = Value::text(self.id().as_str());
        let (user, at) = (Value::text(self.user()), Value::Timestamp(self.at()));
        put_raw(&mut out, &id);
        for (_, value) in self.header(product).iter() {
            put_raw(&mut out, value);
        }
        let revision = Value::Int(self.context().revision.to_i64());
        let by_user = [&user, &at, &id];
        let by_period = [&at, &id];
        let journal = [&revision, &at, &id, &user];
        for value in by_user.into_iter().chain(by_period).chain(journal) {
            put_raw(&mut out, value);
        }
        put_raw(&mut out, &Value::text(product_key(product).id.as_str()));
        put_raw(&mut out, &Value::text(ZONE));
        for _received_available_reserved_sold in 0..4 {
            put_raw(&mut out, &revision);
        }
        out
    }
}

pub fn product_key(product: u64) -> RecordKey {
    let id = RecordId::new(format!("PROD-{product:05}")).expect("10 characters fit");
    RecordKey::by_id(Collection::Products, id)
}

/// A product and its stock, to be applied one after the other.
pub fn product_changes(product: u64) -> [Change; 2] {
    let key = product_key(product);
    let header = Fields::new()
        .with(Field::ProductId, Value::text(key.id.as_str()))
        .with(Field::Category, Value::text("phones"))
        .with(Field::Name, Value::text("Galaxy S25 Ultra 512 GB"))
        .with(Field::Price, Value::Decimal(price(product)))
        .with(Field::Description, Value::text("A phone. ".repeat(40)));
    let stock = Change::Stock {
        key: key.clone(),
        part: PartKey::stock(ZONE, 0),
        price: PriceCondition::Any,
        action: StockAction::Receive {
            total: 1_000_000_000,
        },
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

pub fn read_context() -> ReadContext {
    ReadContext {
        now: Timestamp::from_unix_micros(STARTED_MICROS),
        freshness: Freshness::Latest,
    }
}

/// A well-spread 64-bit number for each number.
pub fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn price(product: u64) -> Decimal {
    Decimal::new(49_990 + (product % 97) as i64 * 100, 2)
}

fn put_raw(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Text(text) => {
            out.push(text.len() as u8);
            out.extend_from_slice(text.as_bytes());
        }
        Value::Int(int) => out.extend_from_slice(&int.to_le_bytes()),
        Value::Decimal(decimal) => out.extend_from_slice(&decimal.serialize()),
        Value::Timestamp(at) => out.extend_from_slice(&at.unix_micros().to_le_bytes()),
        Value::Inet(address) => out.extend_from_slice(address.to_string().as_bytes()),
        Value::Blob(blob) => out.extend_from_slice(blob),
        Value::List(list) => list.iter().for_each(|value| put_raw(out, value)),
        Value::Map(map) => map.values().for_each(|value| put_raw(out, value)),
    }
}
