//! Signing in: a new session, and the guest's cart merged into the user's.

use std::net::IpAddr;

use axum::http::StatusCode;
use axum::response::Response;
use model::{Attributes, DeviceType, ShopperSessionId, UserAgent, UserId, ZoneName};
use serde::{Deserialize, Serialize};
use shop_service::{Login, MergeEnd, SessionWish};
use utoipa::ToSchema;

use super::carts::CartAnswer;
use super::sessions::SessionAnswer;
use crate::answer;
use crate::extract::{Asked, Json, Seen};
use crate::problem::Problem;
use crate::schema::{Free, Id};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewLogin {
    #[schema(value_type = Id)]
    user_id: UserId,
    /// The session that the shopper browsed in before.
    #[schema(value_type = Option<Id>)]
    guest_session_id: Option<ShopperSessionId>,
    #[schema(value_type = Option<String>, examples("203.0.113.7"))]
    ip_address: Option<IpAddr>,
    #[schema(value_type = Option<String>, min_length = 1, max_length = 512, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    user_agent: Option<UserAgent>,
    #[schema(value_type = Option<Id>)]
    device_type: Option<DeviceType>,
    #[schema(value_type = Option<Id>)]
    geo_zone: Option<ZoneName>,
    #[schema(value_type = Option<Free>)]
    data: Option<Attributes>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Login)]
pub(crate) struct LoginAnswer<'a> {
    session: SessionAnswer<'a>,
    /// The user's active cart, if there is one.
    #[schema(required)]
    cart: Option<CartAnswer<'a>>,
    merge: MergeAnswer,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Merge)]
struct MergeAnswer {
    outcome: MergeOutcome,
    /// Why it was refused.
    #[schema(required)]
    detail: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum MergeOutcome {
    Merged,
    AlreadyMerged,
    NothingToMerge,
    Refused,
}

/// Signs a user in. May be repeated: each time opens a session, the carts merge once.
#[utoipa::path(
    post, path = "/v1/login", tag = "sessions", request_body = NewLogin,
    responses(
        (status = 200, description = "Session, cart, and what became of the guest's cart", body = LoginAnswer),
        (status = 404, description = "no-such-session"),
        (status = 409, description = "changed-meanwhile"),
        (status = 410, description = "session-ended"),
    ),
)]
pub(crate) async fn login(
    app: Asked,
    seen: Seen,
    Json(body): Json<NewLogin>,
) -> Result<Response, Problem> {
    let wish = SessionWish {
        user: Some(body.user_id.clone()),
        ip_address: body.ip_address,
        user_agent: body.user_agent,
        device_type: body.device_type,
        geo_zone: body.geo_zone,
        attributes: body.data.unwrap_or_default(),
    };
    let guest = body.guest_session_id.as_ref();
    let login = app.shop.login(wish, &body.user_id, guest, seen.0).await?;
    let newest = login.merge.cart.as_ref().map(|cart| cart.revision);
    let newest = login.session.revision.max(newest.unwrap_or_default());
    let mut response = answer::json(StatusCode::OK, &LoginAnswer::of(&login))?;
    answer::set_token(response.headers_mut(), newest.max(seen.0));
    Ok(response)
}

impl<'a> LoginAnswer<'a> {
    fn of(login: &'a Login) -> LoginAnswer<'a> {
        let cart = login.merge.cart.as_ref();
        LoginAnswer {
            session: SessionAnswer::of(&login.session.value),
            cart: cart.map(|cart| CartAnswer::of(&cart.value)),
            merge: MergeAnswer::of(&login.merge.end),
        }
    }
}

impl MergeAnswer {
    fn of(end: &MergeEnd) -> MergeAnswer {
        let (outcome, detail) = match end {
            MergeEnd::Merged => (MergeOutcome::Merged, None),
            MergeEnd::AlreadyMerged => (MergeOutcome::AlreadyMerged, None),
            MergeEnd::NothingToMerge => (MergeOutcome::NothingToMerge, None),
            MergeEnd::Refused { why } => (MergeOutcome::Refused, Some(why.to_string())),
        };
        MergeAnswer { outcome, detail }
    }
}
