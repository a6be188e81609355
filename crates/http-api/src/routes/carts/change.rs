//! Changing carts. Every change may be sent twice.

use axum::http::StatusCode;
use axum::response::Response;
use model::{
    Cart, CartId, CartStatus, CategoryName, ProductId, Quantity, ShopperSessionId, UserId,
};
use serde::Deserialize;
use shop_service::{ItemWish, Made, Stored};
use utoipa::ToSchema;

use super::{CartAnswer, FOLDER, owner_of};
use crate::answer;
use crate::extract::{Asked, Json, PathId, PathIds, Seen};
use crate::problem::Problem;
use crate::schema::Id;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCart {
    user_id: Option<UserId>,
    session_id: Option<ShopperSessionId>,
}

/// Whose cart it is: a user's or a guest's.
#[derive(ToSchema)]
#[serde(untagged)]
#[schema(as = NewCart)]
#[allow(dead_code)]
enum NewCartShape {
    User(OfUser),
    Guest(OfGuest),
}

#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct OfUser {
    #[schema(value_type = Id)]
    user_id: String,
}

#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct OfGuest {
    #[schema(value_type = Id)]
    session_id: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewItem {
    /// What the whole line shall be, not what is added.
    #[schema(value_type = u32, minimum = 1, maximum = 10000)]
    quantity: Quantity,
    /// Finds the product faster where products are cut by category.
    #[schema(value_type = Option<Id>)]
    category: Option<CategoryName>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Closing {
    status: ClosedStatus,
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ClosedStatus {
    Ordered,
    Abandoned,
}

/// Opens the owner's cart, or finds the active one.
#[utoipa::path(
    post, path = "/v1/carts", tag = "carts", request_body = NewCartShape,
    responses(
        (status = 201, description = "Made now", body = CartAnswer),
        (status = 200, description = "It was there", body = CartAnswer),
        (status = 404, description = "no-such-session"),
        (status = 409, description = "changed-meanwhile"),
        (status = 410, description = "session-ended"),
    ),
)]
pub(crate) async fn open(
    app: Asked,
    seen: Seen,
    Json(body): Json<NewCart>,
) -> Result<Response, Problem> {
    let owner = owner_of(body.user_id, body.session_id)?;
    let (made, cart) = app.shop.open_cart(&owner, seen.0).await?;
    let status = match made {
        Made::Now => StatusCode::CREATED,
        Made::Before => StatusCode::OK,
    };
    let mut response = shown(status, seen, &cart)?;
    answer::locate(&mut response, FOLDER, cart.value.id().as_str());
    Ok(response)
}

/// Puts a product into the cart, or replaces its line. Name, price and image are
/// copied from the product.
#[utoipa::path(
    put, path = "/v1/carts/{cart_id}/items/{product_id}", tag = "carts", request_body = NewItem,
    responses(
        (status = 200, description = "The cart", body = CartAnswer),
        (status = 404, description = "no-such-cart"),
        (status = 409, description = "cart-closed, changed-meanwhile"),
        (status = 422, description = "invalid-field, unknown-product, cart-full"),
    ),
)]
pub(crate) async fn put_item(
    app: Asked,
    PathIds(id, product): PathIds<CartId, ProductId>,
    seen: Seen,
    Json(body): Json<NewItem>,
) -> Result<Response, Problem> {
    let wish = ItemWish {
        product,
        category: body.category,
        quantity: body.quantity,
    };
    let cart = app.shop.put_item(&id, wish, seen.0).await?;
    shown(StatusCode::OK, seen, &cart)
}

/// Takes a product out of the cart; also if it is not in there.
#[utoipa::path(
    delete, path = "/v1/carts/{cart_id}/items/{product_id}", tag = "carts",
    responses(
        (status = 200, description = "The cart", body = CartAnswer),
        (status = 404, description = "no-such-cart"),
        (status = 409, description = "cart-closed, changed-meanwhile"),
    ),
)]
pub(crate) async fn remove_item(
    app: Asked,
    PathIds(id, product): PathIds<CartId, ProductId>,
    seen: Seen,
) -> Result<Response, Problem> {
    let cart = app.shop.remove_item(&id, &product, seen.0).await?;
    shown(StatusCode::OK, seen, &cart)
}

/// Closes the cart. Again with the same status it changes nothing.
#[utoipa::path(
    post, path = "/v1/carts/{cart_id}/close", tag = "carts", request_body = Closing,
    responses(
        (status = 200, description = "The cart", body = CartAnswer),
        (status = 404, description = "no-such-cart"),
        (status = 409, description = "cart-closed, changed-meanwhile"),
    ),
)]
pub(crate) async fn close(
    app: Asked,
    PathId(id): PathId<CartId>,
    seen: Seen,
    Json(body): Json<Closing>,
) -> Result<Response, Problem> {
    let status = match body.status {
        ClosedStatus::Ordered => CartStatus::Ordered,
        ClosedStatus::Abandoned => CartStatus::Abandoned,
    };
    let cart = app.shop.close_cart(&id, status, seen.0).await?;
    shown(StatusCode::OK, seen, &cart)
}

fn shown(status: StatusCode, seen: Seen, cart: &Stored<Cart>) -> Result<Response, Problem> {
    answer::record(status, cart.revision, seen, &CartAnswer::of(&cart.value))
}
