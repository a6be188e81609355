//! Browsing: listings over one shard and over all of them, and prices that move.

use engine_api::Query;
use layout::{AccessPath, Value};

use super::Shopper;
use crate::scenery::{CATEGORY, PRODUCTS, USERS, product};

/// Small pages, so that a listing lasts.
const PAGE_RECORDS: usize = 3;

impl Shopper {
    /// Every listing of orders and products, for a last look.
    pub fn all_listings() -> Vec<Query> {
        let mut queries: Vec<Query> = USERS.iter().map(|user| Self::orders_of(user)).collect();
        queries.push(Query::first(
            AccessPath::OrdersByPeriod,
            vec![],
            PAGE_RECORDS,
        ));
        queries.push(Query::first(
            AccessPath::ProductsByCategory,
            vec![Value::text(CATEGORY)],
            1,
        ));
        queries
    }

    pub(super) fn orders_of(user: &str) -> Query {
        let user = vec![Value::text(user)];
        Query::first(AccessPath::OrdersByUser, user, PAGE_RECORDS)
    }

    pub(super) async fn browse(&self) {
        let wish = self.chance().below(100);
        let query = match wish {
            0..=24 => return self.change_price().await,
            25..=39 => {
                let key = product(self.pick(&PRODUCTS));
                self.read(&key).await;
                return;
            }
            40..=64 => Self::orders_of(self.pick(&USERS)),
            65..=84 => Query::first(AccessPath::OrdersByPeriod, vec![], PAGE_RECORDS),
            _ => {
                let category = vec![Value::text(CATEGORY)];
                Query::first(AccessPath::ProductsByCategory, category, 1)
            }
        };
        self.list(query).await;
    }
}
