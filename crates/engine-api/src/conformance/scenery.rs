//! Records for the cases to play with.

use std::collections::BTreeMap;

use layout::{Collection, Field, Fields, Value};
use model::Timestamp;
use rust_decimal::Decimal;

use crate::change::{Change, Guard, PartChange, PartsChange, PriceCondition, StockAction};
use crate::context::Generation;
use crate::record::{PartKey, Record, RecordKey, expiry_fields};
use crate::revision::Revision;

/// The header every case starts from: what a record must have and no more.
pub(super) fn header(key: &RecordKey, created_at: Timestamp) -> Fields {
    let id = Value::text(key.id.as_str());
    let fields = Fields::new().with(key.collection.id_field(), id);
    match key.collection {
        Collection::Carts => fields
            .with(
                Field::UserId,
                Value::text(format!("u{}", &key.id.as_str()[1..])),
            )
            .with(Field::Status, Value::text("active"))
            .with(Field::CreatedAt, Value::Timestamp(created_at))
            .with(Field::Ordinal, Value::Int(1)),
        Collection::Orders => fields
            .with(
                Field::UserId,
                Value::text(format!("u{}", &key.id.as_str()[1..])),
            )
            .with(Field::Status, Value::text("pending"))
            .with(Field::CreatedAt, Value::Timestamp(created_at))
            .with(Field::Total, Value::Decimal(Decimal::new(1990, 2)))
            .with(Field::Lines, Value::List(vec![order_line("lamp", 1)])),
        Collection::Products => fields
            .with(
                Field::Category,
                Value::text(format!("c{}", &key.id.as_str()[1..])),
            )
            .with(Field::Name, Value::text("lamp"))
            .with(Field::Price, Value::Decimal(PRICE)),
        Collection::Sessions => fields
            .with(Field::Status, Value::text("active"))
            .with(Field::CreatedAt, Value::Timestamp(created_at)),
    }
}

/// The price of a product unless a case says otherwise: 19.90.
pub(super) const PRICE: Decimal = Decimal::from_parts(1990, 0, 0, false, 2);

/// Parts that a record of the collection has in real life.
pub(super) fn usual_parts(collection: Collection, now: Timestamp) -> Vec<(PartKey, Fields)> {
    match collection {
        Collection::Carts => vec![
            (PartKey::line("lamp"), line(1)),
            (PartKey::line("rug"), line(2)),
        ],
        Collection::Orders => Vec::new(),
        Collection::Products => Vec::new(),
        Collection::Sessions => {
            vec![
                (PartKey::activity(), activity(now)),
                expiring(seconds_after(now, HOUR_S)),
            ]
        }
    }
}

pub(super) const HOUR_S: i64 = 3600;

pub(super) fn seconds_after(moment: Timestamp, seconds: i64) -> Timestamp {
    micros_after(moment, seconds * 1_000_000)
}

pub(super) fn micros_after(moment: Timestamp, micros: i64) -> Timestamp {
    Timestamp::from_unix_micros(moment.unix_micros().saturating_add(micros))
}

pub(super) fn line(quantity: i64) -> Fields {
    Fields::new()
        .with(Field::Name, Value::text("lamp"))
        .with(Field::Price, Value::Decimal(PRICE))
        .with(Field::Quantity, Value::Int(quantity))
}

pub(super) fn order_line(product: &str, quantity: i64) -> Value {
    Value::Map(BTreeMap::from([
        ("product_id".to_owned(), Value::text(product)),
        ("price".to_owned(), Value::Decimal(PRICE)),
        ("quantity".to_owned(), Value::Int(quantity)),
    ]))
}

pub(super) fn activity(at: Timestamp) -> Fields {
    Fields::new().with(Field::LastActive, Value::Timestamp(at))
}

pub(super) fn expiring(at: Timestamp) -> (PartKey, Fields) {
    (PartKey::expiry(), expiry_fields(at))
}

/// The same header with another text where records of the collection change:
/// the status, or a product's name.
pub(super) fn changed(header: &Fields, collection: Collection, text: &str) -> Fields {
    header
        .clone()
        .with(changing_field(collection), Value::text(text))
}

pub(super) fn changing_field(collection: Collection) -> Field {
    match collection {
        Collection::Carts | Collection::Orders | Collection::Sessions => Field::Status,
        Collection::Products => Field::Name,
    }
}

pub(super) fn create(key: &RecordKey, header: Fields, parts: Vec<(PartKey, Fields)>) -> Change {
    Change::CreateIfAbsent {
        key: key.clone(),
        header,
        parts,
    }
}

pub(super) fn change_if(key: &RecordKey, expected: Revision, header: Fields) -> Change {
    Change::ChangeIf {
        key: key.clone(),
        expected,
        header,
        parts: PartsChange::Keep,
    }
}

pub(super) fn remove(key: &RecordKey, expected: Revision) -> Change {
    Change::Remove {
        key: key.clone(),
        expected,
    }
}

pub(super) fn patch(key: &RecordKey, parts: Vec<(PartKey, PartChange)>) -> Change {
    Change::Patch {
        key: key.clone(),
        guard: Guard::default(),
        parts,
    }
}

pub(super) fn set_line(key: &RecordKey, product: &str, quantity: i64) -> Change {
    patch(
        key,
        vec![(PartKey::line(product), PartChange::Set(line(quantity)))],
    )
}

pub(super) fn remove_line(key: &RecordKey, product: &str) -> Change {
    patch(key, vec![(PartKey::line(product), PartChange::Remove)])
}

/// A patch that counts only while the cart is active.
pub(super) fn set_line_while_active(key: &RecordKey, product: &str, quantity: i64) -> Change {
    let guard = Guard {
        header: vec![(Field::Status, Value::text("active"))],
    };
    let parts = vec![(PartKey::line(product), PartChange::Set(line(quantity)))];
    Change::Patch {
        key: key.clone(),
        guard,
        parts,
    }
}

/// Puts a session's end off.
pub(super) fn touch(key: &RecordKey, at: Timestamp, expires_at: Timestamp) -> Change {
    let (expiry, until) = expiring(expires_at);
    patch(
        key,
        vec![
            (PartKey::activity(), PartChange::Set(activity(at))),
            (expiry, PartChange::Set(until)),
        ],
    )
}

/// Where the cases keep stock.
pub(super) fn shelf() -> PartKey {
    PartKey::stock("eu", 0)
}

pub(super) fn stock(key: &RecordKey, action: StockAction) -> Change {
    Change::Stock {
        key: key.clone(),
        part: shelf(),
        price: PriceCondition::Any,
        action,
    }
}

pub(super) fn take(order: impl Into<String>, quantity: u32, at: Timestamp) -> StockAction {
    StockAction::Take {
        order: order.into(),
        quantity,
        at,
    }
}

/// The live quantity of a cart's line.
pub(super) fn quantity(record: &Record, product: &str) -> Option<i64> {
    record
        .part(&PartKey::line(product))?
        .get(Field::Quantity)?
        .as_int()
}

/// Each case has generations above those of the cases before it, so that their
/// fences do not stop it.
pub(super) fn first_generation(case_number: usize) -> Generation {
    Generation(100 * (case_number as u64 + 1))
}
