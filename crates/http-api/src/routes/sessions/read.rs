//! Reading sessions.

use axum::response::{IntoResponse, Response};
use layout::AccessPath;
use model::{ShopperSession, ShopperSessionId, UserId};
use serde::ser::{Serialize, Serializer};
use shop_service::{ShopError, Stored};
use utoipa::ToSchema;

use super::SessionAnswer;
use crate::answer;
use crate::extract::{Asked, Conditions, PathId, Query, Seen, query_parameters};
use crate::pages::Pages;
use crate::problem::Problem;

query_parameters!(SessionsQuery {
    #[param(value_type = Option<u16>, minimum = 1, maximum = 100, default = 20)]
    limit: usize,
    /// `next_cursor` of the page before.
    cursor: String,
});

/// A page of sessions.
#[derive(serde::Serialize, ToSchema)]
pub(crate) struct SessionPage<'a> {
    #[schema(value_type = Vec<SessionAnswer>)]
    sessions: Sessions<'a>,
    /// Where the next page starts; null at the end.
    #[schema(required)]
    next_cursor: Option<String>,
}

struct Sessions<'a>(&'a [Stored<ShopperSession>]);

/// A session that is not over.
#[utoipa::path(
    get, path = "/v1/sessions/{session_id}", tag = "sessions",
    responses(
        (status = 200, description = "The session", body = SessionAnswer),
        (status = 304, description = "Still what If-None-Match holds"),
        (status = 404, description = "no-such-session"),
        (status = 410, description = "session-ended"),
    ),
)]
pub(crate) async fn by_id(
    app: Asked,
    PathId(id): PathId<ShopperSessionId>,
    seen: Seen,
    held: Conditions,
) -> Result<Response, Problem> {
    let session = app.shop.shown_to(seen.0).session(&id).await?;
    if let Err(ended) = session.check_live(app.world.now()) {
        // Who was told that it is over is not to find it open elsewhere.
        let mut response = Problem::from(ShopError::from(ended)).into_response();
        answer::set_token(response.headers_mut(), session.revision.max(seen.0));
        return Ok(response);
    }
    answer::page_unless_held(&session, seen, &held, |session| {
        answer::written(&SessionAnswer::of(session))
    })
}

/// Sessions of a user, newest first.
#[utoipa::path(
    get, path = "/v1/users/{user_id}/sessions", tag = "sessions", params(SessionsQuery),
    responses((status = 200, description = "A page of sessions", body = SessionPage)),
)]
pub(crate) async fn of_user(
    app: Asked,
    PathId(user): PathId<UserId>,
    seen: Seen,
    Query(query): Query<SessionsQuery>,
) -> Result<Response, Problem> {
    let pages = Pages {
        path: AccessPath::SessionsByUser,
        whose: user.as_str(),
    };
    let page = pages.wish(&app.limits, query.limit, query.cursor.as_deref())?;
    let reader = app.shop.shown_to(seen.0);
    let listing = reader.sessions_of_user(&user, page).await?;
    let body = SessionPage {
        sessions: Sessions(&listing.items),
        next_cursor: pages.next_cursor(&listing)?,
    };
    answer::records(&listing.items, seen, &body)
}

impl Serialize for Sessions<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sessions = self.0.iter().map(|stored| &stored.value);
        serializer.collect_seq(sessions.map(SessionAnswer::of))
    }
}
