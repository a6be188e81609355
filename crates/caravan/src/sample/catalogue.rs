//! The sample's products: phones and what goes with them, with stock in every zone.
//! Most have a Russian name, those of one maker an English one.

use std::collections::BTreeMap;

use anyhow::Result;
use model::{
    AttributeName, AttributeValue, Attributes, CategoryName, Description, Image, Money, ProductId,
    ProductName, ZoneName,
};
use shop_service::ProductWish;

pub const ZONES: [&str; 4] = ["moscow", "petersburg", "kazan", "novosibirsk"];

/// Makers that exist nowhere else.
const BRANDS: [&str; 5] = ["Kestrel", "Nordlys", "Pallas", "Tiber", ENGLISH_BRAND];

const ENGLISH_BRAND: &str = "Umbra";

const COLOURS: [[&str; 2]; 4] = [
    ["графит", "graphite"],
    ["песочный", "sand"],
    ["морская волна", "sea green"],
    ["белый", "white"],
];

/// The least pieces of a product that a zone received, above all that is ordered there.
const PIECES_MIN: u64 = 150;

const PIECES_SPREAD: u64 = 350;

/// One category: each brand makes one product of each series.
#[derive(Debug)]
pub struct Shelf {
    pub category: &'static str,
    id_prefix: &'static str,
    /// What it is, in Russian and in English.
    kind: [&'static str; 2],
    series: [&'static str; 10],
    /// What the variants differ in, and the variants, in both languages.
    attribute: &'static str,
    variants: [[&'static str; 2]; 3],
    roubles_min: u64,
    roubles_spread: u64,
}

const fn phones() -> [[&'static str; 2]; 3] {
    [
        ["для One", "for One"],
        ["для Two", "for Two"],
        ["для Pro", "for Pro"],
    ]
}

pub const SHELVES: [Shelf; 6] = [
    Shelf {
        category: "smartphones",
        id_prefix: "PHONE",
        kind: ["Смартфон", "Smartphone"],
        series: [
            "One", "One Plus", "Two", "Two Mini", "Two Max", "Air", "Pro", "Pro Max", "Fold", "Go",
        ],
        attribute: "storage",
        variants: [
            ["128 ГБ", "128 GB"],
            ["256 ГБ", "256 GB"],
            ["512 ГБ", "512 GB"],
        ],
        roubles_min: 9_990,
        roubles_spread: 110_000,
    },
    Shelf {
        category: "cases",
        id_prefix: "CASE",
        kind: ["Чехол", "Case"],
        series: [
            "Slim", "Clear", "Leather", "Wallet", "Rugged", "Bumper", "Felt", "Cork", "Silicone",
            "Book",
        ],
        attribute: "fits",
        variants: phones(),
        roubles_min: 490,
        roubles_spread: 4_000,
    },
    Shelf {
        category: "chargers",
        id_prefix: "CHARGER",
        kind: ["Зарядное устройство", "Charger"],
        series: [
            "Wall",
            "Wall Mini",
            "Wall Max",
            "Car",
            "Desk",
            "Pad",
            "Stand",
            "Travel",
            "Duo",
            "Bank",
        ],
        attribute: "power",
        variants: [["20 Вт", "20 W"], ["30 Вт", "30 W"], ["65 Вт", "65 W"]],
        roubles_min: 790,
        roubles_spread: 8_000,
    },
    Shelf {
        category: "cables",
        id_prefix: "CABLE",
        kind: ["Кабель", "Cable"],
        series: [
            "Short", "Long", "Braided", "Flat", "Coiled", "Angled", "Magnetic", "Fast", "Data",
            "Travel",
        ],
        attribute: "length",
        variants: [["0,5 м", "0.5 m"], ["1 м", "1 m"], ["2 м", "2 m"]],
        roubles_min: 190,
        roubles_spread: 2_500,
    },
    Shelf {
        category: "headphones",
        id_prefix: "SOUND",
        kind: ["Наушники", "Headphones"],
        series: [
            "Buds", "Buds Pro", "Sport", "Studio", "Quiet", "Neck", "Open", "Kids", "Wire", "Clip",
        ],
        attribute: "battery",
        variants: [["8 ч", "8 h"], ["24 ч", "24 h"], ["40 ч", "40 h"]],
        roubles_min: 1_490,
        roubles_spread: 30_000,
    },
    Shelf {
        category: "screen-protectors",
        id_prefix: "GLASS",
        kind: ["Защитное стекло", "Screen protector"],
        series: [
            "Clear", "Matte", "Privacy", "Edge", "Soft", "Hard", "Camera", "Fold", "Duo", "Night",
        ],
        attribute: "fits",
        variants: phones(),
        roubles_min: 290,
        roubles_spread: 2_000,
    },
];

#[derive(Clone, Debug)]
pub struct SampleProduct {
    pub wish: ProductWish,
    /// How many pieces each zone received.
    pub stock: Vec<(ZoneName, u64)>,
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

fn product(shelf: &Shelf, series: &str, brand: &str, number: u64) -> Result<SampleProduct> {
    let id = format!("{}-{:04}", shelf.id_prefix, number + 1);
    let language = usize::from(brand == ENGLISH_BRAND);
    let colour = pick(&COLOURS, number)[language];
    let variant = pick(&shelf.variants, number * 7)[language];
    let name = format!("{} {brand} {series} {variant}", shelf.kind[language]);
    // Prices end in 90, as they do.
    let roubles = shelf.roubles_min + scattered(number * 11) % shelf.roubles_spread / 100 * 100;
    let mut stock = Vec::new();
    for (zone, step) in ZONES.into_iter().zip(0..) {
        let pieces = PIECES_MIN + scattered(number * 5 + step) % PIECES_SPREAD;
        stock.push((ZoneName::parse(zone)?, pieces));
    }
    let wish = ProductWish {
        category: CategoryName::parse(shelf.category)?,
        price: Money::parse(&roubles.to_string())?,
        image: Some(Image::parse(&format!(
            "/images/{}.webp",
            id.to_lowercase()
        ))?),
        description: Some(Description::parse(&format!("{name}, {colour}."))?),
        attributes: attributes([
            ("brand", brand),
            ("colour", colour),
            (shelf.attribute, variant),
        ])?,
        name: ProductName::parse(&name)?,
        id: ProductId::parse(&id)?,
    };
    Ok(SampleProduct { wish, stock })
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
        let ids: BTreeSet<_> = products.iter().map(|known| &known.wish.id).collect();
        assert_eq!(ids.len(), 300);
        for known in &products {
            assert!(known.wish.price > Money::ZERO);
            assert_eq!(known.stock.len(), ZONES.len());
        }
    }

    #[test]
    fn names_are_in_two_languages() {
        let products = generate().unwrap();
        let russian = |name: &str| name.chars().any(|letter| ('а'..='я').contains(&letter));
        let names = products.iter().map(|known| known.wish.name.as_str());
        assert_eq!(names.filter(|name| russian(name)).count(), 240);
    }
}
