//! Reading the sample back through every access path of the shop.

use anyhow::Result;
use engine_api::{Query, Record, stock_of};
use layout::{AccessPath, PartKind, Value};
use model::StockCounts;
use router::Router;

use super::Sample;
use super::catalogue::SHELVES;
use crate::text::columns;

/// Small, so that listings have several pages.
const PAGE_RECORDS: usize = 50;

impl Sample {
    /// How many records each path finds, and what the stock adds up to.
    pub async fn read_back(&self, router: &Router) -> Result<String> {
        let mut rows = vec![["collection", "access path", "asked", "found"].map(str::to_owned)];
        let mut stock = StockCounts {
            received: 0,
            available: 0,
            reserved: 0,
            sold: 0,
        };
        for path in AccessPath::ALL {
            let found = self.found(router, path).await?;
            if path == AccessPath::ProductById {
                found
                    .iter()
                    .try_for_each(|record| add_stock(&mut stock, record))?;
            }
            rows.push([
                path.shape().collection.to_string(),
                path.to_string(),
                self.questions(path).len().to_string(),
                found.len().to_string(),
            ]);
        }
        let StockCounts {
            received,
            available,
            reserved,
            sold,
        } = stock;
        Ok(format!(
            "{}stock: {received} received = {available} available + {reserved} reserved + {sold} sold\n",
            columns(&rows)
        ))
    }

    /// What the path finds when it is asked all the sample's questions.
    pub(super) async fn found(&self, router: &Router, path: AccessPath) -> Result<Vec<Record>> {
        let mut found = Vec::new();
        for question in self.questions(path) {
            found.append(&mut all_pages(router, path, &question).await?);
        }
        Ok(found)
    }

    /// Everything of the sample that the path can be asked for.
    fn questions(&self, path: AccessPath) -> Vec<Vec<Value>> {
        fn texts<T: ToString>(nouns: impl Iterator<Item = T>) -> Vec<Vec<Value>> {
            nouns
                .map(|noun| vec![Value::text(noun.to_string())])
                .collect()
        }
        let shoppers = &self.shoppers;
        match path {
            AccessPath::CartById => texts(shoppers.carts.iter().map(|known| known.cart.id())),
            AccessPath::OrderById => texts(
                shoppers
                    .orders
                    .iter()
                    .map(|known| &known.pending.header().id),
            ),
            AccessPath::OrdersByPeriod => vec![Vec::new()],
            AccessPath::ProductById => texts(self.products.iter().map(|known| known.product.id())),
            AccessPath::ProductsByCategory => texts(SHELVES.iter().map(|shelf| shelf.category)),
            AccessPath::SessionById | AccessPath::ActiveCartBySession => {
                texts(shoppers.sessions.iter().map(|session| session.id()))
            }
            AccessPath::ActiveCartByUser
            | AccessPath::OrdersByUser
            | AccessPath::SessionsByUser => texts(shoppers.users.iter()),
        }
    }
}

async fn all_pages(router: &Router, path: AccessPath, equals: &[Value]) -> Result<Vec<Record>> {
    let first = Query::first(path, equals.to_vec(), PAGE_RECORDS);
    let mut page = router.query(&first).await?;
    let mut records = page.records;
    while let Some(cursor) = page.next {
        page = router.query(&first.clone().after(cursor)).await?;
        records.append(&mut page.records);
    }
    Ok(records)
}

fn add_stock(sum: &mut StockCounts, record: &Record) -> Result<()> {
    for (key, fields) in record.live_parts() {
        if key.kind() == PartKind::Stock {
            let counts = stock_of(fields)?.counts();
            sum.received += counts.received;
            sum.available += counts.available;
            sum.reserved += counts.reserved;
            sum.sold += counts.sold;
        }
    }
    Ok(())
}
