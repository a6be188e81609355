//! Products: pages, categories, stock.

use engine_api::{
    Aged, Change, Freshness, Outcome, PartsChange, PriceCondition, Query, Revision, SharedRecord,
    SortRange, StockAction, StockRefusal,
};
use layout::{AccessPath, Collection, Value};
use model::{
    Attributes, CategoryName, Description, Image, Money, Product, ProductId, ProductName, ZoneName,
};

use crate::error::{Noun, ShopError};
use crate::records::{product_header, product_hints, product_of, shelf};
use crate::shop::{ATTEMPTS_MAX, Listing, Made, PageWish, Shop, Stored, shared};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProductWish {
    pub id: ProductId,
    pub category: CategoryName,
    pub name: ProductName,
    pub price: Money,
    pub image: Option<Image>,
    pub description: Option<Description>,
    pub attributes: Attributes,
}

impl Shop {
    /// Makes the product, or replaces all of it but its stock. `expected`: only
    /// if that is where it stands.
    pub async fn put_product(
        &self,
        wish: ProductWish,
        expected: Option<Revision>,
        seen: Revision,
    ) -> Result<(Made, Stored<Product>), ShopError> {
        let header = product_header(&wish, self.now());
        let key = self.key(Collection::Products, wish.id.as_str(), &header)?;
        for _ in 0..ATTEMPTS_MAX {
            let found = self.found_product(&wish.id, Some(&wish.category)).await?;
            let Some(record) = found else {
                if expected.is_some() {
                    return Err(ShopError::NotFound {
                        noun: Noun::Product,
                        id: wish.id.to_string(),
                    });
                }
                let change = Change::CreateIfAbsent {
                    key: key.clone(),
                    header: header.clone(),
                    parts: Vec::new(),
                };
                let written = self.router.write(change, seen).await?;
                if let Outcome::Done { revision } = written.outcome {
                    return Ok((Made::Now, self.product_at(&wish, revision).await?));
                }
                continue;
            };
            let current = shared(&record, product_of)?;
            if expected.is_some_and(|expected| expected != current.revision) {
                return Err(ShopError::Precondition {
                    current: current.revision,
                });
            }
            if *current.value.category() != wish.category {
                return Err(ShopError::CategoryFixed {
                    product: wish.id,
                    category: current.value.category().clone(),
                });
            }
            let change = Change::ChangeIf {
                key: key.clone(),
                expected: record.header.revision,
                header: header.clone(),
                parts: PartsChange::Keep,
            };
            let written = self.router.write(change, seen).await?;
            if let Outcome::Done { revision } = written.outcome {
                return Ok((Made::Before, self.product_at(&wish, revision).await?));
            }
        }
        Err(ShopError::Contended)
    }

    /// P1. `category` helps layouts that find products by it.
    pub async fn product(
        &self,
        id: &ProductId,
        category: Option<&CategoryName>,
    ) -> Result<Stored<Product>, ShopError> {
        known_product(id, self.found_product(id, category).await?)
    }

    /// P2, by price upwards, both bounds included.
    pub async fn products_of_category(
        &self,
        category: &CategoryName,
        least: Option<Money>,
        most: Option<Money>,
        page: PageWish,
    ) -> Result<Listing<Product>, ShopError> {
        let query = query_of_category(category, (least, most), page);
        self.listing(&query, product_of).await
    }

    /// Sets how many pieces ever arrived in the zone (P4).
    pub async fn receive_stock(
        &self,
        id: &ProductId,
        zone: &ZoneName,
        total: u64,
        seen: Revision,
    ) -> Result<Stored<Product>, ShopError> {
        let missing = || ShopError::NotFound {
            noun: Noun::Product,
            id: id.to_string(),
        };
        let record = self.found_product(id, None).await?.ok_or_else(missing)?;
        let change = Change::Stock {
            key: record.key.clone(),
            part: shelf(zone),
            price: PriceCondition::Any,
            action: StockAction::Receive { total },
        };
        match self.router.write(change, seen).await?.outcome {
            Outcome::Done { .. } => self.product(id, None).await,
            Outcome::NoRecord => Err(missing()),
            Outcome::Stock(StockRefusal::BelowSold { bound }) => {
                Err(ShopError::StockBelowSold { bound })
            }
            _ => Err(ShopError::Contended),
        }
    }

    pub(crate) async fn found_product(
        &self,
        id: &ProductId,
        category: Option<&CategoryName>,
    ) -> Result<Option<SharedRecord>, ShopError> {
        let found = self.found_product_aged(id, category, Freshness::Latest);
        Ok(found.await?.answer)
    }

    pub(crate) async fn found_product_aged(
        &self,
        id: &ProductId,
        category: Option<&CategoryName>,
        freshness: Freshness,
    ) -> Result<Aged<Option<SharedRecord>>, ShopError> {
        let hints = product_hints(id, category);
        self.find_aged(Collection::Products, id.as_str(), &hints, freshness)
            .await
    }

    /// The product after a write of ours; a newer one if somebody was faster.
    async fn product_at(
        &self,
        wish: &ProductWish,
        revision: Revision,
    ) -> Result<Stored<Product>, ShopError> {
        let product = self.product(&wish.id, Some(&wish.category)).await?;
        let revision = product.revision.max(revision);
        Ok(product.at(revision))
    }
}

pub(crate) fn known_product(
    id: &ProductId,
    found: Option<SharedRecord>,
) -> Result<Stored<Product>, ShopError> {
    match found {
        Some(record) => shared(&record, product_of),
        None => Err(ShopError::NotFound {
            noun: Noun::Product,
            id: id.to_string(),
        }),
    }
}

pub(crate) fn query_of_category(
    category: &CategoryName,
    (least, most): (Option<Money>, Option<Money>),
    page: PageWish,
) -> Query {
    let decimal = |money: Money| Value::Decimal(money.as_decimal());
    Query {
        path: AccessPath::ProductsByCategory,
        equals: vec![Value::text(category.as_str())],
        range: SortRange {
            least: least.map(decimal),
            most: most.map(decimal),
        },
        after: page.after,
        limit: page.limit,
    }
}
