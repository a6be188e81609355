//! Finding products by words.

use std::future::ready;

use axum::response::Response;
use futures::stream::{self, StreamExt, TryStreamExt};
use model::{Product, ProductId};
use shop_service::{ShopError, ShopReader, Stored};
use utoipa::ToSchema;

use super::{ProductSummary, Summaries};
use crate::answer;
use crate::app::SearchRefusal;
use crate::extract::{Asked, Query, Seen, query_parameters};
use crate::pages::checked_limit;
use crate::problem::{Code, Problem};

/// Products that one search reads from the shop at once.
const READS_AT_ONCE_MAX: usize = 16;

const TEXT_BYTES_MAX: usize = 256;

query_parameters!(SearchQuery {
    /// Words in Russian or English.
    #[param(value_type = String, required = true, min_length = 1, max_length = 256)]
    q: String,
    #[param(value_type = Option<u16>, minimum = 1, maximum = 50, default = 20)]
    limit: usize,
});

/// What was found.
#[derive(serde::Serialize, ToSchema)]
pub(crate) struct FoundProducts<'a> {
    #[schema(value_type = Vec<ProductSummary>)]
    products: Summaries<'a>,
}

/// Products whose names answer the words, the best first.
#[utoipa::path(
    get, path = "/v1/products/search", tag = "products", params(SearchQuery),
    responses((status = 200, description = "What was found", body = FoundProducts)),
)]
pub(crate) async fn search(
    app: Asked,
    seen: Seen,
    Query(query): Query<SearchQuery>,
) -> Result<Response, Problem> {
    let text = query.q.unwrap_or_default();
    if !(1..=TEXT_BYTES_MAX).contains(&text.trim().len()) {
        let detail = format!("give 1 to {TEXT_BYTES_MAX} bytes of words");
        return Err(Problem::field("q", detail));
    }
    let limit = checked_limit(query.limit, app.limits.search_records_max)?;
    let unavailable = |cause: String| {
        let detail = "the search is not to be had at the moment, browse by category instead";
        Problem::new(Code::Unavailable, detail).caused_by(cause)
    };
    let search = app
        .search
        .as_ref()
        .ok_or_else(|| unavailable("this process has no search index".to_owned()))?;
    let found = search
        .search(&text, limit)
        .map_err(|refusal| match refusal {
            SearchRefusal::Text(said) => Problem::field("q", said),
            SearchRefusal::Unavailable(cause) => unavailable(cause),
        })?;
    let products: Vec<Stored<Product>> = stream::iter(found)
        .map(|id| read(app.shop.shown_to(seen.0), id))
        .buffered(READS_AT_ONCE_MAX)
        .try_filter_map(|found| ready(Ok(found)))
        .try_collect()
        .await?;
    let body = FoundProducts {
        products: Summaries(&products),
    };
    answer::records(&products, seen, &body)
}

/// `None`: gone since it was indexed.
async fn read(shop: ShopReader<'_>, id: ProductId) -> Result<Option<Stored<Product>>, Problem> {
    match shop.found_product(&id).await {
        Ok(product) => Ok(Some(product)),
        Err(ShopError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
