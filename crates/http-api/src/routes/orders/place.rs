//! Placing orders and moving them on.

use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use model::{
    Address, CartId, CategoryName, Money, OrderId, OrderStatus, PaymentMethod, ProductId, Quantity,
    UserId, ZoneName,
};
use serde::Deserialize;
use shop_service::{LineWish, Made, OrderWish};
use utoipa::ToSchema;

use super::{FOLDER, OrderAnswer};
use crate::answer;
use crate::extract::{Asked, Json, Object, OrderKey, PathId, Precondition, Seen};
use crate::problem::Problem;
use crate::schema::{Amount, Id};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewOrder {
    #[schema(value_type = Id)]
    user_id: UserId,
    /// Each product at most once.
    #[schema(value_type = Vec<NewLine>, min_items = 1, max_items = 100)]
    lines: Vec<Object<NewLine>>,
    #[schema(value_type = Id)]
    geo_zone: ZoneName,
    #[schema(value_type = String, min_length = 1, max_length = 512, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    address: Address,
    #[schema(value_type = Id)]
    payment_method: PaymentMethod,
    /// That cart becomes `ordered`.
    #[schema(value_type = Option<Id>)]
    cart_id: Option<CartId>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewLine {
    #[schema(value_type = Id)]
    product_id: ProductId,
    #[schema(value_type = u32, minimum = 1, maximum = 10000)]
    quantity: Quantity,
    /// What the shopper was shown. If it moved, the order is refused.
    #[schema(value_type = Amount)]
    price: Money,
    #[schema(value_type = Option<Id>)]
    category: Option<CategoryName>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewStatus {
    status: WishedStatus,
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum WishedStatus {
    Paid,
    Shipped,
    Delivered,
    Cancelled,
    Returned,
}

/// Places an order and takes its stock, once for each Idempotency-Key.
#[utoipa::path(
    post, path = "/v1/orders", tag = "orders", request_body = NewOrder,
    params((
        "Idempotency-Key" = String, Header, min_length = 1, max_length = 64,
        description = "Names what the shopper means: new for every order, the same for every repeat"
    )),
    responses(
        (status = 201, description = "Placed now", body = OrderAnswer),
        (
            status = 200, description = "Placed before by the same request", body = OrderAnswer,
            headers(("Idempotent-Replay" = String, description = "true")),
        ),
        (status = 404, description = "no-such-cart"),
        (status = 409, description = "sold-out, price-moved, cart-closed, order-aborted, changed-meanwhile"),
        (
            status = 422,
            description = "invalid-field, idempotency-key-reused, unknown-product, no-stock-in-zone",
        ),
    ),
)]
pub(crate) async fn place(
    app: Asked,
    seen: Seen,
    OrderKey(key): OrderKey,
    Json(body): Json<NewOrder>,
) -> Result<Response, Problem> {
    let line = |Object(line): Object<NewLine>| LineWish {
        product: line.product_id,
        category: line.category,
        quantity: line.quantity,
        price: line.price,
    };
    let wish = OrderWish {
        user: body.user_id,
        key,
        lines: body.lines.into_iter().map(line).collect(),
        geo_zone: body.geo_zone,
        address: body.address,
        payment_method: body.payment_method,
        cart: body.cart_id,
    };
    let placed = app.shop.place_order(wish, seen.0).await?;
    let status = match placed.made {
        Made::Now => StatusCode::CREATED,
        Made::Before => StatusCode::OK,
    };
    let order = &placed.order;
    let body = OrderAnswer::of(&order.value);
    let mut response = answer::record(status, order.revision, seen, &body)?;
    answer::locate(&mut response, FOLDER, order.value.header().id.as_str());
    if placed.made == Made::Before {
        let headers = response.headers_mut();
        headers.insert(answer::IDEMPOTENT_REPLAY, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// Moves an order on. Asking for the status it has changes nothing.
#[utoipa::path(
    post, path = "/v1/orders/{order_id}/status", tag = "orders", request_body = NewStatus,
    params(("If-Match" = Option<String>, Header, description = "Only if the order has this ETag")),
    responses(
        (status = 200, description = "The order", body = OrderAnswer),
        (status = 404, description = "no-such-order"),
        (status = 409, description = "illegal-status, changed-meanwhile"),
        (status = 412, description = "precondition-failed"),
    ),
)]
pub(crate) async fn change_status(
    app: Asked,
    PathId(id): PathId<OrderId>,
    seen: Seen,
    Precondition(expected): Precondition,
    Json(body): Json<NewStatus>,
) -> Result<Response, Problem> {
    let status = match body.status {
        WishedStatus::Paid => OrderStatus::Paid,
        WishedStatus::Shipped => OrderStatus::Shipped,
        WishedStatus::Delivered => OrderStatus::Delivered,
        WishedStatus::Cancelled => OrderStatus::Cancelled,
        WishedStatus::Returned => OrderStatus::Returned,
    };
    let shop = &app.shop;
    let order = shop
        .change_order_status(&id, status, expected, seen.0)
        .await?;
    let body = OrderAnswer::of(&order.value);
    answer::record(StatusCode::OK, order.revision, seen, &body)
}
