//! Making and changing products.

use axum::http::StatusCode;
use axum::response::Response;
use model::{Attributes, CategoryName, Description, Image, Money, ProductId, ProductName};
use serde::Deserialize;
use shop_service::{Made, ProductWish};
use utoipa::ToSchema;

use super::ProductAnswer;
use crate::answer;
use crate::extract::{Asked, Json, PathId, Precondition, Seen};
use crate::problem::Problem;
use crate::schema::{Amount, Free, Id};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewProduct {
    /// Stays what it is: layouts cut products by it.
    #[schema(value_type = Id)]
    category: CategoryName,
    #[schema(value_type = String, min_length = 1, max_length = 256, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    name: ProductName,
    #[schema(value_type = Amount)]
    price: Money,
    #[schema(value_type = Option<String>, min_length = 1, max_length = 512, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    image: Option<Image>,
    #[schema(value_type = Option<String>, min_length = 1, max_length = 4096, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    description: Option<Description>,
    #[serde(default)]
    #[schema(value_type = Option<Free>)]
    attributes: Option<Attributes>,
}

/// Makes the product, or replaces all of it but its stock.
#[utoipa::path(
    put, path = "/v1/products/{product_id}", tag = "products", request_body = NewProduct,
    params(("If-Match" = Option<String>, Header, description = "Only if the product has this ETag")),
    responses(
        (status = 201, description = "Made now", body = ProductAnswer),
        (status = 200, description = "Replaced", body = ProductAnswer),
        (status = 409, description = "category-fixed, changed-meanwhile"),
        (status = 412, description = "precondition-failed"),
    ),
)]
pub(crate) async fn put(
    app: Asked,
    PathId(id): PathId<ProductId>,
    seen: Seen,
    Precondition(expected): Precondition,
    Json(body): Json<NewProduct>,
) -> Result<Response, Problem> {
    let wish = ProductWish {
        id,
        category: body.category,
        name: body.name,
        price: body.price,
        image: body.image,
        description: body.description,
        attributes: body.attributes.unwrap_or_default(),
    };
    let (made, product) = app.shop.put_product(wish, expected, seen.0).await?;
    let status = match made {
        Made::Now => StatusCode::CREATED,
        Made::Before => StatusCode::OK,
    };
    let body = ProductAnswer::of(&product.value);
    answer::record(status, product.revision, seen, &body)
}
