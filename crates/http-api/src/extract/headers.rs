//! Headers that say what the client has seen, and under which condition it writes.

use axum::extract::FromRequestParts;
use axum::http::header::{IF_MATCH, IF_NONE_MATCH};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};
use engine_api::Revision;
use model::IdempotencyKey;

use crate::app::App;
use crate::problem::{Code, Problem};
use crate::token;

pub(crate) const CARAVAN_TOKEN: HeaderName = HeaderName::from_static("caravan-token");
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// What the client has seen, by its `Caravan-Token`. What it writes stands above that,
/// and what it is shown is not older.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen(pub(crate) Revision);

/// The one revision that the record must be at, by `If-Match`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Precondition(pub(crate) Option<Revision>);

/// The tags that the client holds already, by `If-None-Match`.
#[derive(Debug)]
pub(crate) struct Conditions(Option<String>);

#[derive(Debug)]
pub(crate) struct OrderKey(pub(crate) IdempotencyKey);

impl FromRequestParts<App> for Seen {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Seen, Problem> {
        let Some(text) = single(&parts.headers, &CARAVAN_TOKEN, "Caravan-Token")? else {
            return Ok(Seen(Revision::ZERO));
        };
        let ahead_ms_max = app.limits.token_ahead_ms_max;
        token::parse_token(text, app.world.now(), ahead_ms_max)
            .map(Seen)
            .map_err(|error| Problem::header("Caravan-Token", error.to_string()))
    }
}

impl FromRequestParts<App> for Precondition {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Precondition, Problem> {
        match single(&parts.headers, &IF_MATCH, "If-Match")? {
            None => Ok(Precondition(None)),
            Some(text) => parse_if_match(text).map(|revision| Precondition(Some(revision))),
        }
    }
}

impl FromRequestParts<App> for Conditions {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Conditions, Problem> {
        let text = single(&parts.headers, &IF_NONE_MATCH, "If-None-Match")?;
        Ok(Conditions(text.map(str::to_owned)))
    }
}

impl FromRequestParts<App> for OrderKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<OrderKey, Problem> {
        let Some(text) = single(&parts.headers, &IDEMPOTENCY_KEY, "Idempotency-Key")? else {
            let detail =
                "give every order an Idempotency-Key of its own, and repeat it with the same";
            return Err(Problem::new(Code::MissingIdempotencyKey, detail));
        };
        IdempotencyKey::parse(text)
            .map(OrderKey)
            .map_err(|error| Problem::header("Idempotency-Key", error.to_string()))
    }
}

impl Conditions {
    /// Whether the client holds the record as it is. Compared weakly, as RFC 9110 wants.
    pub(crate) fn hold(&self, revision: Revision) -> bool {
        let Some(text) = &self.0 else {
            return false;
        };
        let tag = token::tag(revision);
        text.split(',').map(str::trim).any(|listed| {
            listed == "*"
                || listed.strip_prefix("W/").unwrap_or(listed).as_bytes() == tag.as_bytes()
        })
    }
}

/// One strong tag. A tag that the shop cannot have given is no revision of the record,
/// so it fails the condition instead of breaking the header.
fn parse_if_match(text: &str) -> Result<Revision, Problem> {
    let tag = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .filter(|tag| !tag.contains('"'))
        .ok_or_else(|| {
            let detail = "give one ETag as you were given it, in its quotes";
            Problem::header("If-Match", detail)
        })?;
    let plain = !tag.is_empty() && tag.bytes().all(|byte| byte.is_ascii_digit());
    let number = tag.parse().ok().filter(|_| plain);
    number.and_then(Revision::from_i64).ok_or_else(|| {
        let detail = "the record never had this ETag, read it again before changing it";
        Problem::new(Code::PreconditionFailed, detail)
    })
}

fn single<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
    shown: &'static str,
) -> Result<Option<&'a str>, Problem> {
    // `get_all` walks a chain that most requests do not even have.
    let Some(first) = headers.get(name) else {
        return Ok(None);
    };
    if headers.get_all(name).iter().nth(1).is_some() {
        return Err(Problem::header(
            shown,
            format!("{shown} is given twice, give it once"),
        ));
    }
    let text = first.to_str().map_err(|_| {
        Problem::header(
            shown,
            format!("{shown} has characters beyond ASCII, send others"),
        )
    })?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_match_takes_one_strong_tag() {
        let revision = |text| parse_if_match(text).map_err(|problem| problem.code());
        assert_eq!(revision("\"128\""), Ok(Revision::from_i64(128).unwrap()));
        for text in ["", "128", "*", "W/\"128\"", "\"", "\"1\", \"2\""] {
            assert_eq!(revision(text), Err(Code::MalformedHeader), "{text}");
        }
        for text in ["\"\"", "\"abc\"", "\"-1\"", "\"99999999999999999999\""] {
            assert_eq!(revision(text), Err(Code::PreconditionFailed), "{text}");
        }
    }

    #[test]
    fn if_none_match_knows_lists_weak_tags_and_the_star() {
        let revision = Revision::from_i64(128).unwrap();
        let holds = |text: &str| Conditions(Some(text.to_owned())).hold(revision);
        for text in ["\"128\"", "W/\"128\"", "\"1\", \"128\"", "*"] {
            assert!(holds(text), "{text}");
        }
        for text in ["", "128", "\"129\"", "\"1\", \"2\""] {
            assert!(!holds(text), "{text}");
        }
        assert!(!Conditions(None).hold(revision));
    }
}
