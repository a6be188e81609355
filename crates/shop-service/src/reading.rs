//! What a client is shown: answers that nothing is decided on.
//!
//! ```text
//!   operation + what the client has seen ─▶ policy of the layout ─▶ freshness ─▶ router
//!                                                                                  │
//!   answer ◀── counted ◀── a status that is told from the latest only: again ◀─────┘
//! ```
//!
//! An answer may be as old as the layout's policy allows for the operation, and never
//! older than what the client has seen, at whichever process. Whatever decides (a
//! checkout, a change of status, a merge, the sweeper) does not come this way.

use std::future::Future;

use engine_api::{Aged, Because, Freshness, Page, Revision, Served, SharedRecord, Timestamp};
use layout::{Collection, Field, Fields, Operation};
use model::{
    Cart, CartId, CartOwner, CategoryName, Money, Order, OrderId, Product, ProductId,
    ShopperSession, ShopperSessionId, UserId,
};

use crate::carts::no_cart;
use crate::error::ShopError;
use crate::orders::{self, Current};
use crate::products::{known_product, query_of_category};
use crate::records::{CartRecord, product_of, session_of};
use crate::sessions;
use crate::shop::{Listing, PageWish, Shop, Stored};

/// The shop as one client sees it.
#[derive(Clone, Copy, Debug)]
pub struct ShopReader<'a> {
    shop: &'a Shop,
    /// The newest change that the client has made or was shown.
    seen: Revision,
}

/// What a policy's `unless_status` looks at.
trait Found {
    fn has_status_of(&self, statuses: &[String]) -> bool;
}

impl<'a> ShopReader<'a> {
    pub(crate) fn new(shop: &'a Shop, seen: Revision) -> ShopReader<'a> {
        ShopReader { shop, seen }
    }

    /// C2.
    pub async fn active_cart(self, owner: &CartOwner) -> Result<Stored<Cart>, ShopError> {
        let ask = |freshness| self.shop.find_active_aged(owner, freshness);
        let found = self.read(Operation::C2, ask).await?;
        found.map(CartRecord::stored).ok_or(ShopError::NoActiveCart)
    }

    /// C2 for who knows the cart by its id, whatever became of it.
    pub async fn cart(self, id: &CartId) -> Result<Stored<Cart>, ShopError> {
        let hints = Fields::new();
        let ask = |freshness| {
            self.shop
                .find_aged(Collection::Carts, id.as_str(), &hints, freshness)
        };
        match self.read(Operation::C2, ask).await? {
            Some(record) => Ok(CartRecord::read(&record)?.stored()),
            None => Err(no_cart(id)),
        }
    }

    /// O3. `user` helps layouts that find orders by user.
    pub async fn order(
        self,
        id: &OrderId,
        user: Option<&UserId>,
    ) -> Result<Stored<Order>, ShopError> {
        let ask = |freshness| self.shop.found_order_aged(id, user, freshness);
        match self.read(Operation::O3, ask).await? {
            Some(record) => Ok(Current::of(&record)?.into_stored()),
            None => Err(orders::no_order(id)),
        }
    }

    /// O2, newest first, both bounds included.
    pub async fn orders_of_user(
        self,
        user: &UserId,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
        page: PageWish,
    ) -> Result<Listing<Order>, ShopError> {
        let query = orders::query_of_user(user, (from, to), page);
        let ask = |freshness| self.shop.order_page(&query, freshness);
        self.shop
            .listed_orders(self.read(Operation::O2, ask).await?)
    }

    /// O5, newest first, both bounds included.
    pub async fn orders_of_period(
        self,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
        page: PageWish,
    ) -> Result<Listing<Order>, ShopError> {
        let query = orders::query_of_period((from, to), page);
        let ask = |freshness| self.shop.order_page(&query, freshness);
        self.shop
            .listed_orders(self.read(Operation::O5, ask).await?)
    }

    /// P1. `category` helps layouts that find products by it.
    pub async fn product(
        self,
        id: &ProductId,
        category: Option<&CategoryName>,
    ) -> Result<Stored<Product>, ShopError> {
        self.product_for(Operation::P1, id, category).await
    }

    /// P3: the page of a product that a search has found.
    pub async fn found_product(self, id: &ProductId) -> Result<Stored<Product>, ShopError> {
        self.product_for(Operation::P3, id, None).await
    }

    /// P4.
    pub async fn stock(self, id: &ProductId) -> Result<Stored<Product>, ShopError> {
        self.product_for(Operation::P4, id, None).await
    }

    /// P2, by price upwards, both bounds included.
    pub async fn products_of_category(
        self,
        category: &CategoryName,
        least: Option<Money>,
        most: Option<Money>,
        page: PageWish,
    ) -> Result<Listing<Product>, ShopError> {
        let query = query_of_category(category, (least, most), page);
        let page = self.page(Operation::P2, &query).await?;
        self.shop.listed(page, product_of)
    }

    /// S2, also when it is over: that is something to have seen, too.
    pub async fn session(self, id: &ShopperSessionId) -> Result<Stored<ShopperSession>, ShopError> {
        let ask = |freshness| self.shop.found_session_aged(id, freshness);
        let found = self.read(Operation::S2, ask).await?;
        Ok(sessions::known(id, found)?.stored())
    }

    /// S3, newest first, closed ones included until they expire.
    pub async fn sessions_of_user(
        self,
        user: &UserId,
        page: PageWish,
    ) -> Result<Listing<ShopperSession>, ShopError> {
        let query = sessions::query_of_user(user, page);
        let page = self.page(Operation::S3, &query).await?;
        self.shop.listed(page, session_of)
    }

    async fn product_for(
        self,
        operation: Operation,
        id: &ProductId,
        category: Option<&CategoryName>,
    ) -> Result<Stored<Product>, ShopError> {
        let ask = |freshness| self.shop.found_product_aged(id, category, freshness);
        known_product(id, self.read(operation, ask).await?)
    }

    async fn page(
        self,
        operation: Operation,
        query: &engine_api::Query,
    ) -> Result<Page, ShopError> {
        let ask = async |freshness| Ok(self.shop.router.query_aged(query, freshness).await?);
        self.read(operation, ask).await
    }

    /// Asks as fresh as the policy wants it, and once more for the latest where the
    /// policy excepts what was found.
    async fn read<T, F>(
        self,
        operation: Operation,
        ask: impl Fn(Freshness) -> F,
    ) -> Result<T, ShopError>
    where
        T: Found,
        F: Future<Output = Result<Aged<T>, ShopError>>,
    {
        let shop = self.shop;
        if shop.policies.is_empty() {
            let found = ask(Freshness::Latest).await?;
            shop.read_counts.count(operation, None, found.served);
            return Ok(found.answer);
        }
        let map = shop.router.map();
        let allowed = shop.policies.allowed(&map, operation, self.seen);
        let mut found = ask(allowed.freshness).await?;
        if let (Served::Lagging { .. }, Some(policy)) = (found.served, allowed.policy)
            && found.answer.has_status_of(&policy.unless_status)
        {
            let again = ask(Freshness::Latest).await?;
            found = Aged::latest(again.answer, Because::Status);
        }
        let level = allowed.policy.map(|policy| policy.read);
        shop.read_counts.count(operation, level, found.served);
        Ok(found.answer)
    }
}

impl Found for Option<SharedRecord> {
    fn has_status_of(&self, statuses: &[String]) -> bool {
        self.as_ref().is_some_and(|record| is_of(record, statuses))
    }
}

impl Found for Page {
    fn has_status_of(&self, statuses: &[String]) -> bool {
        self.records.iter().any(|record| is_of(record, statuses))
    }
}

/// A cart's owner sees it as it is, or as a layout that calls itself eventual has it:
/// no status of a cart is excepted.
impl Found for Option<CartRecord> {
    fn has_status_of(&self, _: &[String]) -> bool {
        false
    }
}

fn is_of(record: &engine_api::Record, statuses: &[String]) -> bool {
    let header = record.header.content.live();
    let status = header.and_then(|header| header.text(Field::Status));
    status.is_some_and(|status| statuses.iter().any(|one| one == status))
}
