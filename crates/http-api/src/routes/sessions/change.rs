//! Opening, touching and closing sessions.

use std::net::IpAddr;

use axum::http::StatusCode;
use axum::response::Response;
use model::{Attributes, DeviceType, ShopperSessionId, UserAgent, UserId, ZoneName};
use serde::Deserialize;
use shop_service::SessionWish;
use utoipa::ToSchema;

use super::{FOLDER, SessionAnswer};
use crate::answer;
use crate::extract::{Asked, Json, PathId, Seen};
use crate::problem::Problem;
use crate::schema::{Free, Id};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSession {
    /// Left out for a guest.
    #[schema(value_type = Option<Id>)]
    user_id: Option<UserId>,
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

/// Opens a session.
#[utoipa::path(
    post, path = "/v1/sessions", tag = "sessions", request_body = NewSession,
    responses((status = 201, description = "The session", body = SessionAnswer)),
)]
pub(crate) async fn open(
    app: Asked,
    seen: Seen,
    Json(body): Json<NewSession>,
) -> Result<Response, Problem> {
    let wish = SessionWish {
        user: body.user_id,
        ip_address: body.ip_address,
        user_agent: body.user_agent,
        device_type: body.device_type,
        geo_zone: body.geo_zone,
        attributes: body.data.unwrap_or_default(),
    };
    let session = app.shop.open_session(wish).await?;
    let body = SessionAnswer::of(&session.value);
    let mut response = answer::record(StatusCode::CREATED, session.revision, seen, &body)?;
    answer::locate(&mut response, FOLDER, session.value.id().as_str());
    Ok(response)
}

/// Keeps the session alive.
#[utoipa::path(
    post, path = "/v1/sessions/{session_id}/touch", tag = "sessions",
    responses(
        (status = 200, description = "The session", body = SessionAnswer),
        (status = 404, description = "no-such-session"),
        (status = 409, description = "changed-meanwhile"),
        (status = 410, description = "session-ended"),
    ),
)]
pub(crate) async fn touch(
    app: Asked,
    PathId(id): PathId<ShopperSessionId>,
    seen: Seen,
) -> Result<Response, Problem> {
    let session = app.shop.touch_session(&id, seen.0).await?;
    let body = SessionAnswer::of(&session.value);
    answer::record(StatusCode::OK, session.revision, seen, &body)
}

/// Ends the session; also if it is over already.
#[utoipa::path(
    delete, path = "/v1/sessions/{session_id}", tag = "sessions",
    responses(
        (status = 204, description = "It is over"),
        (status = 404, description = "no-such-session"),
        (status = 409, description = "changed-meanwhile"),
    ),
)]
pub(crate) async fn close(
    app: Asked,
    PathId(id): PathId<ShopperSessionId>,
    seen: Seen,
) -> Result<Response, Problem> {
    let closed = app.shop.close_session(&id, seen.0).await?;
    Ok(answer::empty(StatusCode::NO_CONTENT, closed.max(seen.0)))
}
