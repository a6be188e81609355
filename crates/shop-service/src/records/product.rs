//! A product: its description in the header, its stock in parts.

use std::collections::BTreeMap;

use engine_api::{PartKey, Record, stock_of};
use layout::{Field, Fields, PartKind, Value};
use model::{
    Attributes, Bucket, CategoryName, Product, ProductId, ProductName, StockKey, Timestamp,
    ZoneName,
};

use super::{header, text, with_optional};
use crate::error::ShopError;
use crate::products::ProductWish;

/// Stock lies in one bucket for each zone, until a layout divides it.
pub(crate) fn shelf(zone: &ZoneName) -> PartKey {
    PartKey::stock(zone.as_str(), 0)
}

/// What layouts may route a product by.
pub(crate) fn product_hints(id: &ProductId, category: Option<&CategoryName>) -> Fields {
    let hints = Fields::new().with(Field::ProductId, text(id));
    with_optional(hints, [(Field::Category, category.map(text))])
}

pub(crate) fn product_header(wish: &ProductWish, now: Timestamp) -> Fields {
    let fields = Fields::new()
        .with(Field::ProductId, text(&wish.id))
        .with(Field::Category, text(&wish.category))
        .with(Field::Name, text(&wish.name))
        .with(Field::Price, Value::Decimal(wish.price.as_decimal()))
        .with(Field::Attributes, attributes_value(&wish.attributes))
        .with(Field::UpdatedAt, Value::Timestamp(now));
    with_optional(
        fields,
        [
            (Field::Image, wish.image.as_ref().map(text)),
            (Field::Description, wish.description.as_ref().map(text)),
        ],
    )
}

pub(crate) fn product_of(record: &Record) -> Result<Product, ShopError> {
    let header = header(record)?;
    let mut product = Product::new(
        header.noun::<ProductId>(Field::ProductId)?,
        header.noun::<CategoryName>(Field::Category)?,
        header.noun::<ProductName>(Field::Name)?,
        header.money(Field::Price)?,
        attributes_of(header.fields.get(Field::Attributes))
            .map_err(|reason| header.damaged(reason))?,
    );
    product.image = header.optional(Field::Image)?;
    product.description = header.optional(Field::Description)?;
    for (part, fields) in record.live_parts() {
        if let (PartKind::Stock, [zone, bucket]) = (part.kind(), part.path()) {
            let zone = zone.parse().map_err(|error| header.damaged(error))?;
            let bucket = bucket.parse().map_err(|error| header.damaged(error))?;
            let stock = stock_of(fields).map_err(|error| header.damaged(error))?;
            let key = StockKey {
                zone,
                bucket: Bucket::new(bucket),
            };
            product
                .put_stock(key, stock)
                .map_err(|error| header.damaged(error))?;
        }
    }
    Ok(product)
}

pub(crate) fn attributes_value(attributes: &Attributes) -> Value {
    let entries = attributes.iter();
    let entries = entries.map(|(name, value)| (name.to_string(), text(value)));
    Value::Map(entries.collect())
}

/// What is wrong with a stored map is said as text.
pub(crate) fn attributes_of(value: Option<&Value>) -> Result<Attributes, String> {
    let entries = match value {
        None => return Ok(Attributes::default()),
        Some(Value::Map(entries)) => entries,
        Some(_) => return Err("the attributes are no map".to_owned()),
    };
    let mut attributes = BTreeMap::new();
    for (name, value) in entries {
        let name = name.parse().map_err(|error| format!("{error}"))?;
        let value = value.as_text().unwrap_or_default();
        let value = value.parse().map_err(|error| format!("{error}"))?;
        attributes.insert(name, value);
    }
    Attributes::new(attributes).map_err(|error| error.to_string())
}
