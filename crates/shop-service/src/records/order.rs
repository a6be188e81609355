//! An order: all of it in the header. Lines hold fields by their numbers' names.

use std::collections::BTreeMap;

use engine_api::Record;
use layout::path::SETTLEMENT_OPEN;
use layout::{Field, Fields, Value};
use model::{
    CartId, Money, Order, OrderHeader, OrderId, OrderLine, OrderRequest, OrderStatus, Quantity,
    RequestFields, UserId,
};

use super::{Reader, header, text, with_optional};
use crate::error::ShopError;

/// Whether steps of an order are still to be done, by the request or by a sweeper (W11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settlement {
    Open,
    Settled,
}

/// An order with what the shop keeps beside the model's noun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptOrder {
    pub order: Order,
    pub settlement: Settlement,
    pub cart: Option<CartId>,
}

/// What layouts may route an order by.
pub(crate) fn order_hints(id: &OrderId, user: Option<&UserId>) -> Fields {
    let hints = Fields::new().with(Field::OrderId, text(id));
    with_optional(hints, [(Field::UserId, user.map(text))])
}

/// The most fields that an order's header has.
const HEADER_FIELDS: usize = 14;

pub(crate) fn order_header(kept: &KeptOrder) -> Fields {
    let order = &kept.order;
    let header = order.header();
    let lines = order.lines().iter().map(order_line).collect();
    let fields = Fields::with_capacity(HEADER_FIELDS)
        .with(Field::OrderId, text(&header.id))
        .with(Field::UserId, text(&header.user))
        .with(Field::Status, Value::text(status_text(header.status)))
        .with(Field::CreatedAt, Value::Timestamp(header.created_at))
        .with(Field::UpdatedAt, Value::Timestamp(header.changed_at))
        .with(Field::Total, Value::Decimal(order.total().as_decimal()))
        .with(Field::Lines, Value::List(lines));
    let open = match kept.settlement {
        Settlement::Open => Some(Value::text(SETTLEMENT_OPEN)),
        Settlement::Settled => None,
    };
    let request = order.request();
    with_optional(
        fields,
        [
            (Field::Settlement, open),
            (Field::CartId, kept.cart.as_ref().map(text)),
            (
                Field::GeoZone,
                request.map(|request| text(request.geo_zone())),
            ),
            (
                Field::Address,
                request.map(|request| text(request.address())),
            ),
            (
                Field::PaymentMethod,
                request.map(|request| text(request.payment_method())),
            ),
            (
                Field::IdempotencyKey,
                request.map(|request| text(request.idempotency_key())),
            ),
            (
                Field::Fingerprint,
                request.map(|request| text(&request.fingerprint())),
            ),
        ],
    )
}

pub(crate) fn order_of(record: &Record) -> Result<KeptOrder, ShopError> {
    let header = header(record)?;
    let request = match header.fields.get(Field::IdempotencyKey) {
        None => None,
        Some(_) => Some(request_of(header)?),
    };
    let status = header.text(Field::Status)?;
    let status = OrderStatus::ALL
        .into_iter()
        .find(|known| status_text(*known) == status)
        .ok_or_else(|| header.damaged(format_args!("no order is {status}")))?;
    let stored = OrderHeader {
        id: header.noun(Field::OrderId)?,
        user: header.noun(Field::UserId)?,
        status,
        created_at: header.timestamp(Field::CreatedAt)?,
        changed_at: header.timestamp(Field::UpdatedAt)?,
    };
    let order = Order::restore(stored, request).map_err(|error| header.damaged(error))?;
    let settlement = match header.fields.text(Field::Settlement) {
        Some(_) => Settlement::Open,
        None => Settlement::Settled,
    };
    Ok(KeptOrder {
        order,
        settlement,
        cart: header.optional(Field::CartId)?,
    })
}

fn request_of(header: Reader<'_>) -> Result<OrderRequest, ShopError> {
    let Some(Value::List(lines)) = header.fields.get(Field::Lines) else {
        return Err(header.damaged("an order without lines"));
    };
    let lines: Option<Vec<OrderLine>> = lines.iter().map(line_of).collect();
    let fields = RequestFields {
        idempotency_key: header.noun(Field::IdempotencyKey)?,
        lines: lines.ok_or_else(|| header.damaged("a line cannot be read"))?,
        geo_zone: header.noun(Field::GeoZone)?,
        address: header.noun(Field::Address)?,
        payment_method: header.noun(Field::PaymentMethod)?,
    };
    OrderRequest::new(fields).map_err(|error| header.damaged(error))
}

pub(crate) fn status_text(status: OrderStatus) -> &'static str {
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

fn order_line(line: &OrderLine) -> Value {
    let entries = [
        (Field::ProductId, text(&line.product)),
        (Field::Category, text(&line.category)),
        (Field::Name, text(&line.name)),
        (Field::Quantity, Value::Int(i64::from(line.quantity.get()))),
        (Field::Price, Value::Decimal(line.price.as_decimal())),
    ];
    let named = entries.map(|(field, value)| (field.name().to_owned(), value));
    Value::Map(BTreeMap::from(named))
}

fn line_of(value: &Value) -> Option<OrderLine> {
    let Value::Map(line) = value else { return None };
    let field = |field: Field| line.get(field.name());
    let text = |name: Field| field(name)?.as_text();
    let pieces = u32::try_from(field(Field::Quantity)?.as_int()?).ok()?;
    Some(OrderLine {
        product: text(Field::ProductId)?.parse().ok()?,
        category: text(Field::Category)?.parse().ok()?,
        name: text(Field::Name)?.parse().ok()?,
        quantity: Quantity::new(pieces).ok()?,
        price: Money::from_decimal(field(Field::Price)?.as_decimal()?).ok()?,
    })
}
