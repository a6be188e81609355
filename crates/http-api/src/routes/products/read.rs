//! Reading products.

use axum::response::Response;
use layout::AccessPath;
use model::{CategoryName, Money, ProductId};
use utoipa::ToSchema;

use super::{ProductAnswer, ProductSummary, Summaries};
use crate::answer;
use crate::extract::{Asked, Conditions, PathId, Query, Seen, query_parameters};
use crate::pages::Pages;
use crate::problem::Problem;
use crate::schema::{Amount, Id};

query_parameters!(ProductQuery {
    /// Finds the product faster where products are cut by category.
    #[param(value_type = Option<Id>)]
    category: CategoryName,
});

query_parameters!(CategoryQuery {
    #[param(value_type = Id, required = true)]
    category: CategoryName,
    #[param(value_type = Option<Amount>)]
    min_price: Money,
    #[param(value_type = Option<Amount>)]
    max_price: Money,
    #[param(value_type = Option<u16>, minimum = 1, maximum = 100, default = 20)]
    limit: usize,
    /// `next_cursor` of the page before.
    cursor: String,
});

/// A page of products.
#[derive(serde::Serialize, ToSchema)]
pub(crate) struct ProductPage<'a> {
    #[schema(value_type = Vec<ProductSummary>)]
    products: Summaries<'a>,
    /// Where the next page starts; null at the end.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// The product page, with its stock by zone.
#[utoipa::path(
    get, path = "/v1/products/{product_id}", tag = "products", params(ProductQuery),
    responses(
        (status = 200, description = "The product", body = ProductAnswer),
        (status = 304, description = "Still what If-None-Match holds"),
        (status = 404, description = "no-such-product"),
    ),
)]
pub(crate) async fn by_id(
    app: Asked,
    PathId(id): PathId<ProductId>,
    seen: Seen,
    held: Conditions,
    Query(query): Query<ProductQuery>,
) -> Result<Response, Problem> {
    let reader = app.shop.shown_to(seen.0);
    let product = reader.product(&id, query.category.as_ref()).await?;
    answer::page_unless_held(&product, seen, &held, |product| {
        answer::written(&ProductAnswer::of(product))
    })
}

/// Products of a category within a price range, the cheapest first.
#[utoipa::path(
    get, path = "/v1/products", tag = "products", params(CategoryQuery),
    responses((status = 200, description = "A page of products", body = ProductPage)),
)]
pub(crate) async fn of_category(
    app: Asked,
    seen: Seen,
    Query(query): Query<CategoryQuery>,
) -> Result<Response, Problem> {
    let category = query
        .category
        .ok_or_else(|| Problem::field("category", "say which category is asked for"))?;
    let pages = Pages {
        path: AccessPath::ProductsByCategory,
        whose: category.as_str(),
    };
    let page = pages.wish(&app.limits, query.limit, query.cursor.as_deref())?;
    let listing = app
        .shop
        .shown_to(seen.0)
        .products_of_category(&category, query.min_price, query.max_price, page)
        .await?;
    let body = ProductPage {
        products: Summaries(&listing.items),
        next_cursor: pages.next_cursor(&listing)?,
    };
    answer::records(&listing.items, seen, &body)
}
