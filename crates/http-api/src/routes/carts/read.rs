//! Reading carts.

use axum::response::Response;
use model::{CartId, ShopperSessionId, UserId};

use super::{CartAnswer, owner_of};
use crate::answer;
use crate::extract::{Asked, Conditions, PathId, Query, Seen, query_parameters};
use crate::problem::Problem;
use crate::schema::Id;

query_parameters!(
    /// Exactly one of them.
    OwnerQuery {
        #[param(value_type = Option<Id>)]
        user_id: UserId,
        #[param(value_type = Option<Id>)]
        session_id: ShopperSessionId,
    }
);

/// The active cart of a user or a guest.
#[utoipa::path(
    get, path = "/v1/carts/active", tag = "carts", params(OwnerQuery),
    responses(
        (status = 200, description = "The cart", body = CartAnswer),
        (status = 304, description = "Still what If-None-Match holds"),
        (status = 404, description = "no-active-cart"),
    ),
)]
pub(crate) async fn active(
    app: Asked,
    seen: Seen,
    held: Conditions,
    Query(query): Query<OwnerQuery>,
) -> Result<Response, Problem> {
    let owner = owner_of(query.user_id, query.session_id)?;
    let cart = app.shop.shown_to(seen.0).active_cart(&owner).await?;
    answer::page_unless_held(&cart, seen, &held, |cart| {
        answer::written(&CartAnswer::of(cart))
    })
}

/// A cart by its id, whatever became of it.
#[utoipa::path(
    get, path = "/v1/carts/{cart_id}", tag = "carts",
    responses(
        (status = 200, description = "The cart", body = CartAnswer),
        (status = 304, description = "Still what If-None-Match holds"),
        (status = 404, description = "no-such-cart"),
    ),
)]
pub(crate) async fn by_id(
    app: Asked,
    PathId(id): PathId<CartId>,
    seen: Seen,
    held: Conditions,
) -> Result<Response, Problem> {
    let cart = app.shop.shown_to(seen.0).cart(&id).await?;
    answer::page_unless_held(&cart, seen, &held, |cart| {
        answer::written(&CartAnswer::of(cart))
    })
}
