//! The judge's own products: known prices, known pieces.

use std::collections::BTreeMap;

use anyhow::ensure;
use rust_decimal::Decimal;
use serde_json::json;

use crate::client::Client;
use crate::verdict::Verdict;
use crate::wire::{Stock, ZoneStock};

pub const ZONES: [&str; 2] = ["moscow", "novosibirsk"];
const CATEGORY: &str = "judged";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Product {
    pub id: String,
    pub price: Decimal,
    /// In each zone.
    pub received: u64,
}

impl Product {
    pub fn numbered(prefix: &str, number: u32, received: u64) -> Product {
        Product {
            id: format!("{prefix}-{number:03}"),
            price: Decimal::new(9_990 + i64::from(number) * 105, 2),
            received,
        }
    }
}

/// Puts products and pieces there; the same again changes nothing.
pub async fn put(client: &mut Client, products: &[Product]) -> anyhow::Result<()> {
    for product in products {
        let path = format!("/v1/products/{}", product.id);
        let name = format!("Judged thing {}", product.id);
        let body = json!({"category": CATEGORY, "name": name, "price": product.price});
        client.put(&path, &body).await.done("putting a product")?;
        for zone in ZONES {
            let path = format!("{path}/stock/{zone}");
            let body = json!({"received": product.received});
            client.put(&path, &body).await.done("putting stock")?;
        }
    }
    Ok(())
}

/// The stock by zone.
pub async fn stock(
    client: &mut Client,
    product: &str,
) -> anyhow::Result<BTreeMap<String, ZoneStock>> {
    let path = format!("/v1/products/{product}/stock");
    let stock: Stock = client.get(&path).await.done("reading stock")?.parse()?;
    let zones = stock.zones.len();
    let by_zone: BTreeMap<_, _> = stock
        .zones
        .into_iter()
        .map(|stock| (stock.zone.clone(), stock))
        .collect();
    ensure!(
        by_zone.len() == zones,
        "the stock of {product} names a zone twice"
    );
    Ok(by_zone)
}

/// Available + reserved + sold = received, and received is what was put there.
pub fn judge_identity(
    product: &Product,
    stock: &BTreeMap<String, ZoneStock>,
    verdict: &mut Verdict,
) {
    for zone in ZONES {
        let id = &product.id;
        let Some(found) = stock.get(zone) else {
            verdict.lost(format!("the stock of product {id} in {zone}"));
            continue;
        };
        let ZoneStock {
            available,
            reserved,
            sold,
            received,
            ..
        } = *found;
        if available + reserved + sold != received || received != product.received {
            verdict.wrong(format!(
                "product {id} in {zone}: {available} available + {reserved} reserved + {sold} sold \
                 is not {received} received, of {} put there",
                product.received
            ));
        }
    }
}
