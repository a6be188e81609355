//! The sample's products: phones and what goes with them, with stock in every zone.

use std::collections::BTreeMap;

use anyhow::Result;
use model::{
    AttributeName, AttributeValue, Attributes, Bucket, CategoryName, Image, Money, Product,
    ProductId, ProductName, Stock, StockKey, ZoneName,
};

pub const ZONES: [&str; 3] = ["centre", "north", "south"];

/// Makers that exist nowhere else.
const BRANDS: [&str; 5] = ["Kestrel", "Nordlys", "Pallas", "Tiber", "Umbra"];

const COLOURS: [&str; 4] = ["graphite", "sand", "sea green", "white"];

/// The least pieces of a product that a zone received, above all that is ordered there.
const PIECES_MIN: u64 = 150;

const PIECES_SPREAD: u64 = 350;

/// One category: each brand makes one product of each series.
#[derive(Debug)]
pub struct Shelf {
    pub category: &'static str,
    id_prefix: &'static str,
    series: [&'static str; 10],
    attribute: &'static str,
    attribute_values: [&'static str; 3],
    cents_min: u64,
    cents_spread: u64,
}

pub const SHELVES: [Shelf; 6] = [
    Shelf {
        category: "smartphones",
        id_prefix: "PHONE",
        series: [
            "One", "One Plus", "Two", "Two Mini", "Two Max", "Air", "Pro", "Pro Max", "Fold", "Go",
        ],
        attribute: "storage",
        attribute_values: ["128 GB", "256 GB", "512 GB"],
        cents_min: 14_900,
        cents_spread: 110_000,
    },
    Shelf {
        category: "cases",
        id_prefix: "CASE",
        series: [
            "Slim", "Clear", "Leather", "Wallet", "Rugged", "Bumper", "Felt", "Cork", "Silicone",
            "Book",
        ],
        attribute: "fits",
        attribute_values: ["One", "Two", "Pro"],
        cents_min: 990,
        cents_spread: 4_000,
    },
    Shelf {
        category: "chargers",
        id_prefix: "CHARGER",
        series: [
            "Wall 20", "Wall 30", "Wall 65", "Car", "Desk", "Pad", "Stand", "Travel", "Duo", "Bank",
        ],
        attribute: "power",
        attribute_values: ["20 W", "30 W", "65 W"],
        cents_min: 1_490,
        cents_spread: 8_000,
    },
    Shelf {
        category: "cables",
        id_prefix: "CABLE",
        series: [
            "Short", "Long", "Braided", "Flat", "Coiled", "Angled", "Magnetic", "Fast", "Data",
            "Travel",
        ],
        attribute: "length",
        attribute_values: ["0.5 m", "1 m", "2 m"],
        cents_min: 490,
        cents_spread: 2_500,
    },
    Shelf {
        category: "headphones",
        id_prefix: "SOUND",
        series: [
            "Buds", "Buds Pro", "Sport", "Studio", "Quiet", "Neck", "Open", "Kids", "Wire", "Clip",
        ],
        attribute: "battery",
        attribute_values: ["8 h", "24 h", "40 h"],
        cents_min: 1_990,
        cents_spread: 30_000,
    },
    Shelf {
        category: "screen protectors",
        id_prefix: "GLASS",
        series: [
            "Film", "Glass", "Matte", "Privacy", "Edge", "Soft", "Hard", "Camera", "Fold", "Duo",
        ],
        attribute: "fits",
        attribute_values: ["One", "Two", "Pro"],
        cents_min: 590,
        cents_spread: 2_000,
    },
];

#[derive(Clone, Debug)]
pub struct SampleProduct {
    pub product: Product,
    pub image: Image,
    pub description: String,
}

pub fn generate() -> Result<Vec<SampleProduct>> {
    let mut products = Vec::new();
    for shelf in &SHELVES {
        for series in shelf.series {
            for brand in BRANDS {
                let number = u64::try_from(products.len())?;
                products.push(product(shelf, series, brand, number)?);
            }
        }
    }
    Ok(products)
}

/// A number that looks like chance and is the same for ever (splitmix64).
pub fn scattered(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// One of the items, by a number that looks like chance.
pub fn pick<T>(items: &[T], seed: u64) -> &T {
    let count = u64::try_from(items.len()).expect("a length in memory fits 64 bits");
    let index = usize::try_from(scattered(seed) % count).expect("it is below a length");
    &items[index]
}

pub fn pick_text(texts: &[&'static str], seed: u64) -> &'static str {
    let text: &&'static str = pick(texts, seed);
    text
}

pub fn stock_key(zone: &str) -> Result<StockKey> {
    Ok(StockKey {
        zone: ZoneName::parse(zone)?,
        bucket: Bucket::new(0),
    })
}

fn product(shelf: &Shelf, series: &str, brand: &str, number: u64) -> Result<SampleProduct> {
    let id = format!("{}-{:04}", shelf.id_prefix, number + 1);
    let name = format!("{brand} {series}");
    let colour = pick_text(&COLOURS, number);
    let own = pick_text(&shelf.attribute_values, number * 7);
    let cents = shelf.cents_min + scattered(number * 11) % shelf.cents_spread;
    let attributes = attributes([("brand", brand), ("colour", colour), (shelf.attribute, own)])?;
    let mut product = Product::new(
        ProductId::parse(&id)?,
        CategoryName::parse(shelf.category)?,
        ProductName::parse(&name)?,
        Money::parse(&format!("{}.{:02}", cents / 100, cents % 100))?,
        attributes,
    );
    for (zone, step) in ZONES.into_iter().zip(0..) {
        let mut stock = Stock::default();
        stock.receive(PIECES_MIN + scattered(number * 3 + step) % PIECES_SPREAD)?;
        product.put_stock(stock_key(zone)?, stock)?;
    }
    Ok(SampleProduct {
        product,
        image: Image::parse(&format!("/images/{}.webp", id.to_lowercase()))?,
        description: format!("{name} in {colour}, {}: {own}.", shelf.attribute),
    })
}

fn attributes<const N: usize>(pairs: [(&str, &str); N]) -> Result<Attributes> {
    let mut entries = BTreeMap::new();
    for (name, value) in pairs {
        entries.insert(AttributeName::parse(name)?, AttributeValue::parse(value)?);
    }
    Ok(Attributes::new(entries)?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_product_has_its_own_id_a_price_and_stock_in_every_zone() {
        let products = generate().unwrap();
        let ids: BTreeSet<_> = products.iter().map(|known| known.product.id()).collect();
        assert_eq!(ids.len(), 300);
        for known in &products {
            assert!(known.product.price > Money::ZERO);
            assert_eq!(known.product.stocks().count(), ZONES.len());
        }
    }
}
