//! Answers: JSON written straight from the model's types, with tag and token.

use axum::body::Bytes;
use axum::http::header::{CONTENT_TYPE, ETAG, HeaderValue, LOCATION};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::Response;
use engine_api::{Revision, Timestamp};
use model::Money;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Serialize, Serializer};
use shop_service::Stored;

use crate::extract::{CARAVAN_TOKEN, Conditions, Seen};
use crate::problem::Problem;
use crate::token;

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(crate) const IDEMPOTENT_REPLAY: HeaderName = HeaderName::from_static("idempotent-replay");

/// Room for content type, tag, token and the request's id.
const HEADERS: usize = 4;

/// What most answers fit in without growing.
const BODY_BYTES_EXPECTED: usize = 1024;

/// All that a path's piece may not hold as it is.
const PIECE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A noun's own page as it is sent. It follows from the noun and its revision alone,
/// and is kept beside them for the next reader.
struct Page {
    json: Bytes,
    tag: HeaderValue,
    token: HeaderValue,
}

pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Result<Response, Problem> {
    Ok(sent(status, written(body)?))
}

/// The text of an answer.
pub(crate) fn written(body: &impl Serialize) -> Result<Bytes, Problem> {
    let mut bytes = Vec::with_capacity(BODY_BYTES_EXPECTED);
    serde_json::to_writer(&mut bytes, body)
        .map_err(|error| Problem::internal(format!("an answer cannot be written: {error}")))?;
    Ok(bytes.into())
}

fn sent(status: StatusCode, json: Bytes) -> Response {
    let mut response = Response::new(json.into());
    *response.status_mut() = status;
    *response.headers_mut() = HeaderMap::with_capacity(HEADERS);
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// The page of a noun that is read again and again, or only that it is still what the
/// client holds.
pub(crate) fn page_unless_held<T>(
    stored: &Stored<T>,
    seen: Seen,
    held: &Conditions,
    write: impl FnOnce(&T) -> Result<Bytes, Problem>,
) -> Result<Response, Problem> {
    let revision = stored.revision;
    if held.hold(revision) {
        return Ok(not_modified(revision, seen));
    }
    let page = stored.made(|noun| {
        Ok::<Page, Problem>(Page {
            json: write(noun)?,
            tag: value(token::tag(revision).as_bytes()),
            token: value(token::token(revision).as_bytes()),
        })
    })?;
    let mut response = sent(StatusCode::OK, page.json.clone());
    let headers = response.headers_mut();
    headers.insert(ETAG, page.tag.clone());
    if seen.0 > revision {
        set_token(headers, seen.0);
    } else {
        headers.insert(CARAVAN_TOKEN, page.token.clone());
    }
    Ok(response)
}

/// One record, with its tag and the token of who saw it.
pub(crate) fn record(
    status: StatusCode,
    revision: Revision,
    seen: Seen,
    body: &impl Serialize,
) -> Result<Response, Problem> {
    let mut response = json(status, body)?;
    let headers = response.headers_mut();
    headers.insert(ETAG, value(token::tag(revision).as_bytes()));
    set_token(headers, revision.max(seen.0));
    Ok(response)
}

/// The record, or only that it is still what the client holds.
pub(crate) fn record_unless_held(
    revision: Revision,
    seen: Seen,
    held: &Conditions,
    body: &impl Serialize,
) -> Result<Response, Problem> {
    if held.hold(revision) {
        return Ok(not_modified(revision, seen));
    }
    record(StatusCode::OK, revision, seen, body)
}

fn not_modified(revision: Revision, seen: Seen) -> Response {
    let mut response = empty(StatusCode::NOT_MODIFIED, revision.max(seen.0));
    let tag = value(token::tag(revision).as_bytes());
    response.headers_mut().insert(ETAG, tag);
    response
}

pub(crate) fn empty(status: StatusCode, token: Revision) -> Response {
    let mut response = Response::default();
    *response.status_mut() = status;
    set_token(response.headers_mut(), token);
    response
}

/// Several records, with the token of who saw the newest.
pub(crate) fn records<T>(
    items: &[Stored<T>],
    seen: Seen,
    body: &impl Serialize,
) -> Result<Response, Problem> {
    let newest = items.iter().map(|item| item.revision).max();
    let mut response = json(StatusCode::OK, body)?;
    set_token(
        response.headers_mut(),
        newest.unwrap_or_default().max(seen.0),
    );
    Ok(response)
}

pub(crate) fn locate(response: &mut Response, folder: &str, id: &str) {
    let path = format!("{folder}/{}", utf8_percent_encode(id, PIECE));
    let path = HeaderValue::try_from(path).expect("what is encoded is ASCII");
    response.headers_mut().insert(LOCATION, path);
}

pub(crate) fn set_token(headers: &mut HeaderMap, revision: Revision) {
    headers.insert(CARAVAN_TOKEN, value(token::token(revision).as_bytes()));
}

fn value(ascii: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(ascii).expect("letters, digits and quotes are a header's value")
}

/// RFC 3339 with microseconds, written by hand: every answer has several.
pub(crate) fn time<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    let (year, month, day) = time.year_month_day();
    let Ok(year) = u16::try_from(year) else {
        return serializer.collect_str(time);
    };
    if year > 9999 {
        return serializer.collect_str(time);
    }
    let micros = time.unix_micros().rem_euclid(86_400_000_000);
    let seconds = micros / 1_000_000;
    let mut text = *b"0000-00-00T00:00:00.000000Z";
    let mut put = |last: usize, digits: usize, mut number: i64| {
        for place in (last + 1 - digits..=last).rev() {
            text[place] = b'0' + u8::try_from(number % 10).unwrap_or_default();
            number /= 10;
        }
    };
    put(3, 4, i64::from(year));
    put(6, 2, i64::from(month));
    put(9, 2, i64::from(day));
    put(12, 2, seconds / 3600);
    put(15, 2, seconds / 60 % 60);
    put(18, 2, seconds % 60);
    put(25, 6, micros % 1_000_000);
    let text = std::str::from_utf8(&text).expect("digits and signs are ASCII");
    serializer.serialize_str(text)
}

pub(crate) fn optional_time<S: Serializer>(
    optional: &Option<Timestamp>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match optional {
        Some(known) => time(known, serializer),
        None => serializer.serialize_none(),
    }
}

/// As text, because a JSON number is a float to most readers.
pub(crate) fn money<S: Serializer>(money: &Money, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(money)
}

pub(crate) fn optional_money<S: Serializer>(
    optional: &Option<Money>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match optional {
        Some(known) => money(known, serializer),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Serialize)]
    struct Moment(#[serde(serialize_with = "time")] Timestamp);

    proptest! {
        #[test]
        fn times_read_as_the_model_writes_them(micros in any::<i64>(), near in 0..4_000_000_000_000_000_i64) {
            for micros in [micros, near] {
                let moment = Timestamp::from_unix_micros(micros);
                let json = serde_json::to_string(&Moment(moment)).unwrap();
                prop_assert_eq!(json, format!("\"{moment}\""));
            }
        }
    }

    #[test]
    fn an_id_of_any_characters_makes_one_piece_of_a_path() {
        let mut response = Response::default();
        locate(&mut response, "/v1/sessions", "a/b?ю");
        let location = &response.headers()[LOCATION];
        assert_eq!(location, "/v1/sessions/a%2Fb%3F%D1%8E");
    }
}
