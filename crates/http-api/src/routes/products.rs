//! Products and their stock: `/v1/products`.

pub(crate) mod change;
pub(crate) mod read;
pub(crate) mod search;
pub(crate) mod stock;

use model::{Attributes, Money, Product, StockCounts};
use serde::ser::{Serialize, SerializeSeq, Serializer};
use shop_service::Stored;
use utoipa::ToSchema;

use crate::answer;
use crate::schema::{Amount, Free, Id};

#[derive(serde::Serialize, ToSchema)]
#[schema(as = Product)]
pub(crate) struct ProductAnswer<'a> {
    #[schema(value_type = Id)]
    product_id: &'a str,
    #[schema(value_type = Id)]
    category: &'a str,
    name: &'a str,
    #[serde(serialize_with = "answer::money")]
    #[schema(value_type = Amount)]
    price: Money,
    #[schema(required)]
    image: Option<&'a str>,
    #[schema(required)]
    description: Option<&'a str>,
    #[schema(value_type = Free)]
    attributes: &'a Attributes,
    #[schema(value_type = Vec<ZoneAvailable>)]
    stock: AvailableByZone<'a>,
}

/// A product in a listing.
#[derive(serde::Serialize, ToSchema)]
pub(crate) struct ProductSummary<'a> {
    #[schema(value_type = Id)]
    product_id: &'a str,
    #[schema(value_type = Id)]
    category: &'a str,
    name: &'a str,
    #[serde(serialize_with = "answer::money")]
    #[schema(value_type = Amount)]
    price: Money,
    #[schema(required)]
    image: Option<&'a str>,
}

#[derive(serde::Serialize, ToSchema)]
struct ZoneAvailable<'a> {
    #[schema(value_type = Id)]
    zone: &'a str,
    available: u64,
}

struct AvailableByZone<'a>(&'a Product);

/// Products of a listing, written one by one.
pub(crate) struct Summaries<'a>(&'a [Stored<Product>]);

impl<'a> ProductAnswer<'a> {
    fn of(product: &'a Product) -> ProductAnswer<'a> {
        ProductAnswer {
            product_id: product.id().as_str(),
            category: product.category().as_str(),
            name: product.name.as_str(),
            price: product.price,
            image: product.image.as_ref().map(|image| image.as_str()),
            description: product.description.as_ref().map(|text| text.as_str()),
            attributes: &product.attributes,
            stock: AvailableByZone(product),
        }
    }
}

impl<'a> ProductSummary<'a> {
    fn of(product: &'a Product) -> ProductSummary<'a> {
        ProductSummary {
            product_id: product.id().as_str(),
            category: product.category().as_str(),
            name: product.name.as_str(),
            price: product.price,
            image: product.image.as_ref().map(|image| image.as_str()),
        }
    }
}

impl Serialize for Summaries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let products = self.0.iter().map(|stored| &stored.value);
        serializer.collect_seq(products.map(ProductSummary::of))
    }
}

impl Serialize for AvailableByZone<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut zones = serializer.serialize_seq(None)?;
        each_zone(self.0, |zone, counts| {
            zones.serialize_element(&ZoneAvailable {
                zone,
                available: counts.available,
            })
        })?;
        zones.end()
    }
}

/// Zones in their order, each with the sums over its buckets.
fn each_zone<'a, E>(
    product: &'a Product,
    mut take: impl FnMut(&'a str, StockCounts) -> Result<(), E>,
) -> Result<(), E> {
    let mut current: Option<(&str, StockCounts)> = None;
    for (key, stock) in product.stocks() {
        let (zone, counts) = (key.zone.as_str(), stock.counts());
        match &mut current {
            Some((same, sum)) if *same == zone => {
                sum.received += counts.received;
                sum.available += counts.available;
                sum.reserved += counts.reserved;
                sum.sold += counts.sold;
            }
            _ => {
                if let Some((done, sum)) = current.replace((zone, counts)) {
                    take(done, sum)?;
                }
            }
        }
    }
    match current {
        Some((last, sum)) => take(last, sum),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use model::{Bucket, CategoryName, ProductId, ProductName, Stock, StockKey, ZoneName};

    use super::*;

    #[test]
    fn a_zone_is_the_sum_of_its_buckets() {
        let mut phone = Product::new(
            ProductId::parse("p").unwrap(),
            CategoryName::parse("phones").unwrap(),
            ProductName::parse("Phone").unwrap(),
            Money::parse("149.90").unwrap(),
            Attributes::default(),
        );
        for (zone, bucket, pieces) in [("north", 0, 5), ("north", 1, 7), ("south", 0, 1)] {
            let key = StockKey {
                zone: ZoneName::parse(zone).unwrap(),
                bucket: Bucket::new(bucket),
            };
            let mut stock = Stock::default();
            stock.receive_total(pieces).unwrap();
            phone.put_stock(key, stock).unwrap();
        }
        let json = serde_json::to_value(ProductAnswer::of(&phone)).unwrap();
        let expected = serde_json::json!([
            {"zone": "north", "available": 12}, {"zone": "south", "available": 1},
        ]);
        assert_eq!(json["stock"], expected);
        assert_eq!(json["price"], "149.9");
        assert_eq!(json["image"], serde_json::Value::Null);
    }
}
