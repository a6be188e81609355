//! Reading orders.

use axum::response::Response;
use layout::AccessPath;
use model::{Order, OrderId, Timestamp, UserId};
use shop_service::Listing;

use super::{OrderAnswer, OrderPage, Orders};
use crate::answer;
use crate::extract::{Asked, Conditions, PathId, Query, Seen, query_parameters};
use crate::pages::Pages;
use crate::problem::Problem;
use crate::schema::{Id, Moment};

query_parameters!(OrderQuery {
    /// Finds the order faster where orders are cut by user.
    #[param(value_type = Option<Id>)]
    user_id: UserId,
});

query_parameters!(OrdersQuery {
    /// Not placed before this.
    #[param(value_type = Option<Moment>)]
    from: Timestamp,
    /// Not placed after this.
    #[param(value_type = Option<Moment>)]
    to: Timestamp,
    #[param(value_type = Option<u16>, minimum = 1, maximum = 100, default = 20)]
    limit: usize,
    /// `next_cursor` of the page before.
    cursor: String,
});

/// One order.
#[utoipa::path(
    get, path = "/v1/orders/{order_id}", tag = "orders", params(OrderQuery),
    responses(
        (status = 200, description = "The order", body = OrderAnswer),
        (status = 304, description = "Still what If-None-Match holds"),
        (status = 404, description = "no-such-order"),
    ),
)]
pub(crate) async fn by_id(
    app: Asked,
    PathId(id): PathId<OrderId>,
    seen: Seen,
    held: Conditions,
    Query(query): Query<OrderQuery>,
) -> Result<Response, Problem> {
    let reader = app.shop.shown_to(seen.0);
    let order = reader.order(&id, query.user_id.as_ref()).await?;
    let body = OrderAnswer::of(&order.value);
    answer::record_unless_held(order.revision, seen, &held, &body)
}

/// Orders of one user, newest first.
#[utoipa::path(
    get, path = "/v1/users/{user_id}/orders", tag = "orders", params(OrdersQuery),
    responses((status = 200, description = "A page of orders", body = OrderPage)),
)]
pub(crate) async fn of_user(
    app: Asked,
    PathId(user): PathId<UserId>,
    seen: Seen,
    Query(query): Query<OrdersQuery>,
) -> Result<Response, Problem> {
    let pages = Pages {
        path: AccessPath::OrdersByUser,
        whose: user.as_str(),
    };
    let page = pages.wish(&app.limits, query.limit, query.cursor.as_deref())?;
    let listing = app
        .shop
        .shown_to(seen.0)
        .orders_of_user(&user, query.from, query.to, page)
        .await?;
    shown(&listing, seen, pages)
}

/// Orders of the whole shop, newest first.
#[utoipa::path(
    get, path = "/v1/orders", tag = "orders", params(OrdersQuery),
    responses((status = 200, description = "A page of orders", body = OrderPage)),
)]
pub(crate) async fn of_period(
    app: Asked,
    seen: Seen,
    Query(query): Query<OrdersQuery>,
) -> Result<Response, Problem> {
    let pages = Pages {
        path: AccessPath::OrdersByPeriod,
        whose: "",
    };
    let page = pages.wish(&app.limits, query.limit, query.cursor.as_deref())?;
    let listing = app
        .shop
        .shown_to(seen.0)
        .orders_of_period(query.from, query.to, page)
        .await?;
    shown(&listing, seen, pages)
}

fn shown(listing: &Listing<Order>, seen: Seen, pages: Pages<'_>) -> Result<Response, Problem> {
    let body = OrderPage {
        orders: Orders(&listing.items),
        next_cursor: pages.next_cursor(listing)?,
    };
    answer::records(&listing.items, seen, &body)
}
