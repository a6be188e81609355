//! Bodies: JSON objects of known fields, bounded in bytes and in time.

use std::fmt;
use std::marker::PhantomData;

use axum::body::{Body, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::error::Category;
use tokio::time::timeout;

use crate::app::App;
use crate::problem::{Code, Problem};

pub(crate) struct Json<T>(pub(crate) T);

/// A value that must be written as an object: derived structs would take an array of
/// their fields' values as well, which nobody means and no schema allows.
#[derive(Debug)]
pub(crate) struct Object<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Json<T>, Problem> {
        check_media_type(request.headers())?;
        let limits = &app.limits;
        let reading = read(request.into_body(), limits.body_bytes_max);
        let bytes = match timeout(limits.body_read(), reading).await {
            Ok(bytes) => bytes?,
            Err(_) => {
                let detail = format!(
                    "the body did not arrive within {} ms, send the request again",
                    limits.body_read_ms_max
                );
                return Err(Problem::new(Code::RequestTimeout, detail));
            }
        };
        parse(&bytes).map(Json)
    }
}

fn check_media_type(headers: &HeaderMap) -> Result<(), Problem> {
    let declared = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let media_type = declared.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let detail = "send the body as application/json, and say so in Content-Type";
    Err(Problem::new(Code::UnsupportedMediaType, detail))
}

async fn read(mut body: Body, bytes_max: usize) -> Result<Bytes, Problem> {
    let too_large = || {
        let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
        let detail = format!("the body has more than {bytes_max} bytes, send less");
        Problem::new(Code::BodyTooLarge, detail).with_number("limit", limit)
    };
    if body.size_hint().lower() > u64::try_from(bytes_max).unwrap_or(u64::MAX) {
        return Err(too_large());
    }
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let detail = "the body broke off, send the request again";
            Problem::new(Code::MalformedJson, detail).caused_by(error.to_string())
        })?;
        let Ok(data) = frame.into_data() else {
            continue; // trailers
        };
        if first.len() + joined.len() + data.len() > bytes_max {
            return Err(too_large());
        }
        // Nearly every body comes in one piece, and that one is not copied.
        if first.is_empty() && joined.is_empty() {
            first = data;
        } else {
            joined.extend_from_slice(&std::mem::take(&mut first));
            joined.extend_from_slice(&data);
        }
    }
    Ok(if joined.is_empty() {
        first
    } else {
        joined.freeze()
    })
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    match serde_json::from_slice::<Object<T>>(bytes) {
        Ok(Object(value)) => Ok(value),
        Err(error) => Err(refusal::<T>(bytes, error)),
    }
}

/// Reads the body a second time to learn where in it the error is: only who sends
/// nonsense pays for that.
fn refusal<T: DeserializeOwned>(bytes: &[u8], error: serde_json::Error) -> Problem {
    if error.classify() != Category::Data {
        let detail = format!("the body is not JSON: {error}");
        return Problem::new(Code::MalformedJson, detail)
            .with_number("line", error.line() as u64)
            .with_number("column", error.column() as u64);
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let Err(error) = serde_path_to_error::deserialize::<_, Object<T>>(&mut json) else {
        return Problem::internal("a body was refused, and accepted when read again");
    };
    let path = error.path().to_string();
    let inner = error.into_inner();
    let place = format!(" at line {} column {}", inner.line(), inner.column());
    let said = inner.to_string();
    let said = said.strip_suffix(&place).unwrap_or(&said);
    Problem::field(field_name(&path, said), said)
}

/// An unknown field is named by its path already, one that is missing or there twice
/// only in the message.
fn field_name(path: &str, said: &str) -> String {
    let parent = if path == "." { "" } else { path };
    let named = ["missing field `", "duplicate field `"]
        .iter()
        .find_map(|start| said.strip_prefix(start));
    match named {
        None if parent.is_empty() => "body".to_owned(),
        None => parent.to_owned(),
        Some(rest) => {
            let name = rest.split('`').next().unwrap_or_default();
            let dot = if parent.is_empty() { "" } else { "." };
            format!("{parent}{dot}{name}")
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<T>, D::Error> {
        deserializer.deserialize_any(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

#[cfg(test)]
mod tests {
    use model::{Quantity, UserId};
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Wish {
        user_id: UserId,
        lines: Vec<Object<Line>>,
        note: Option<String>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Line {
        quantity: Quantity,
    }

    fn refused(body: &str) -> (Code, String) {
        let problem = parse::<Wish>(body.as_bytes()).unwrap_err();
        let mut response = axum::response::Response::default();
        problem.render("r", &mut response);
        let text = format!("{problem:?}");
        (problem.code(), text)
    }

    #[test]
    fn a_wrong_field_is_named_with_its_path() {
        fn check(body: &str, field: &str, said: &str) {
            let (code, text) = refused(body);
            assert_eq!(code, Code::InvalidField, "{body}: {text}");
            assert!(
                text.contains(&format!("Text(\"{field}\")")),
                "{body}: {text}"
            );
            assert!(text.contains(said), "{body}: {text}");
            assert!(!text.contains("column"), "{body}: {text}");
        }
        check(r#"{"lines":[]}"#, "user_id", "missing field");
        check(r#"{"user_id":"","lines":[]}"#, "user_id", "is empty");
        check(r#"{"user_id":7,"lines":[]}"#, "user_id", "invalid type");
        check(
            r#"{"user_id":"u","lines":[{"quantity":1},{"quantity":0}]}"#,
            "lines[1].quantity",
            "choose a whole number from 1 to 10000, not 0",
        );
        check(
            r#"{"user_id":"u","lines":[{}]}"#,
            "lines[0].quantity",
            "missing field",
        );
        check(
            r#"{"user_id":"u","lines":[[1]]}"#,
            "lines[0]",
            "expected an object",
        );
        check(r#"["u",[]]"#, "body", "expected an object");
        check("null", "body", "expected an object");
        check(
            r#"{"user_id":"u","lines":[],"price":1}"#,
            "price",
            "unknown field",
        );
        check(
            r#"{"user_id":"u","user_id":"u","lines":[]}"#,
            "user_id",
            "duplicate field",
        );
    }

    #[test]
    fn what_is_not_json_says_where_it_breaks() {
        for body in ["", "{", "{\"user_id\":\"u\",}", "{}x", "\u{1}"] {
            let (code, text) = refused(body);
            // Trailing characters after a complete object are met after its fields.
            let expected = if body == "{}x" {
                Code::InvalidField
            } else {
                Code::MalformedJson
            };
            assert_eq!(code, expected, "{body}: {text}");
        }
        let (_, text) = refused("{\n  \"user_id\": u\n}");
        assert!(text.contains("(\"line\", Number(2))"), "{text}");
    }
}
