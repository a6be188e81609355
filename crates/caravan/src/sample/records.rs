//! From the model's nouns to records: which field holds what.

use std::collections::BTreeMap;

use anyhow::Result;
use engine_api::{Change, PartKey, RecordId, RecordKey, expiry_fields, stock_fields};
use layout::path::STATUS_ACTIVE;
use layout::{Collection, Field, Fields, Value};
use model::{
    CartLine, CartOwner, CartPart, CartStatus, Order, OrderLine, OrderStatus, ShopperSession,
};
use router::Map;

use super::catalogue::SampleProduct;
use super::shoppers::SampleCart;

pub fn product(map: &Map, known: &SampleProduct) -> Result<Change> {
    let product = &known.product;
    let attributes = product.attributes.iter();
    let attributes: BTreeMap<String, Value> = attributes
        .map(|(name, value)| (name.to_string(), text(value)))
        .collect();
    let header = Fields::new()
        .with(Field::ProductId, text(product.id()))
        .with(Field::Category, text(product.category()))
        .with(Field::Name, text(&product.name))
        .with(Field::Price, Value::Decimal(product.price.as_decimal()))
        .with(Field::Image, text(&known.image))
        .with(Field::Description, Value::text(&known.description))
        .with(Field::Attributes, Value::Map(attributes));
    let parts = product.stocks().map(|(key, stock)| {
        let part = PartKey::stock(key.zone.as_str(), key.bucket.number());
        (part, stock_fields(stock))
    });
    create(
        map,
        Collection::Products,
        product.id().as_str(),
        header,
        parts.collect(),
    )
}

pub fn session(map: &Map, session: &ShopperSession) -> Result<Change> {
    let (details, times) = (session.details(), session.times());
    let status = if times.closed_at.is_some() {
        "closed"
    } else {
        STATUS_ACTIVE
    };
    let mut header = Fields::new()
        .with(Field::SessionId, text(&details.id))
        .with(Field::Status, Value::text(status))
        .with(Field::CreatedAt, Value::Timestamp(times.opened_at));
    let optional = [
        (Field::UserId, details.user.as_ref().map(text)),
        (Field::IpAddress, details.ip_address.map(Value::Inet)),
        (Field::UserAgent, details.user_agent.as_ref().map(text)),
        (Field::DeviceType, details.device_type.as_ref().map(text)),
        (Field::GeoZone, details.geo_zone.as_ref().map(text)),
    ];
    for (field, value) in optional {
        if let Some(value) = value {
            header.insert(field, value)?;
        }
    }
    let activity = Fields::new().with(Field::LastActive, Value::Timestamp(times.last_active_at));
    let parts = vec![
        (PartKey::activity(), activity),
        (PartKey::expiry(), expiry_fields(times.expires_at)),
    ];
    create(
        map,
        Collection::Sessions,
        details.id.as_str(),
        header,
        parts,
    )
}

pub fn cart(map: &Map, known: &SampleCart) -> Result<Change> {
    let cart = known.cart.header();
    let (owner_field, owner) = match &cart.owner {
        CartOwner::Guest(session) => (Field::SessionId, text(session)),
        CartOwner::User(user) => (Field::UserId, text(user)),
    };
    let status = match cart.status {
        CartStatus::Active => STATUS_ACTIVE,
        CartStatus::Ordered => "ordered",
        CartStatus::Abandoned => "abandoned",
    };
    let changed_at = cart.closed_at.unwrap_or(cart.created_at);
    let header = Fields::new()
        .with(Field::CartId, text(&cart.id))
        .with(owner_field, owner)
        .with(Field::Status, Value::text(status))
        .with(Field::CreatedAt, Value::Timestamp(cart.created_at))
        .with(Field::UpdatedAt, Value::Timestamp(changed_at))
        .with(Field::Ordinal, Value::Int(i64::try_from(known.ordinal)?));
    let mut parts: Vec<(PartKey, Fields)> = known.cart.parts().map(cart_part).collect();
    let expiry = cart.expires_at;
    parts.extend(expiry.map(|at| (PartKey::expiry(), expiry_fields(at))));
    create(map, Collection::Carts, cart.id.as_str(), header, parts)
}

/// The order's header, which holds all of it.
pub fn order_header(order: &Order) -> Fields {
    let header = order.header();
    let fields = Fields::new()
        .with(Field::OrderId, text(&header.id))
        .with(Field::UserId, text(&header.user))
        .with(Field::Status, Value::text(order_status(header.status)))
        .with(Field::CreatedAt, Value::Timestamp(header.created_at))
        .with(Field::UpdatedAt, Value::Timestamp(header.changed_at))
        .with(Field::Total, Value::Decimal(order.total().as_decimal()))
        .with(
            Field::Lines,
            Value::List(order.lines().iter().map(order_line).collect()),
        );
    match order.request() {
        None => fields,
        Some(request) => fields
            .with(Field::GeoZone, text(request.geo_zone()))
            .with(Field::Address, text(request.address()))
            .with(Field::PaymentMethod, text(request.payment_method()))
            .with(Field::Fingerprint, text(request.fingerprint())),
    }
}

pub fn order_status(status: OrderStatus) -> &'static str {
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

/// The full name of a record, routed as the map says.
pub fn key(map: &Map, collection: Collection, id: &str, header: &Fields) -> Result<RecordKey> {
    Ok(map.key_for(collection, RecordId::new(id)?, header)?)
}

fn create(
    map: &Map,
    collection: Collection,
    id: &str,
    header: Fields,
    parts: Vec<(PartKey, Fields)>,
) -> Result<Change> {
    let key = key(map, collection, id, &header)?;
    Ok(Change::CreateIfAbsent { key, header, parts })
}

fn cart_part(part: CartPart) -> (PartKey, Fields) {
    let product = part.line().product.as_str();
    let key = match &part {
        CartPart::Own(_) => PartKey::line(product),
        CartPart::Contribution { guest_cart, .. } => {
            PartKey::contribution(product, guest_cart.as_str())
        }
    };
    (key, cart_line(part.line()))
}

fn cart_line(line: &CartLine) -> Fields {
    let fields = Fields::new()
        .with(Field::Category, text(&line.category))
        .with(Field::Name, text(&line.name))
        .with(Field::Price, Value::Decimal(line.price.as_decimal()))
        .with(Field::Quantity, Value::Int(i64::from(line.quantity.get())))
        .with(Field::UpdatedAt, Value::Timestamp(line.changed_at));
    match &line.image {
        Some(image) => fields.with(Field::Image, text(image)),
        None => fields,
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

fn text(noun: impl ToString) -> Value {
    Value::text(noun.to_string())
}
