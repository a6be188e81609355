//! Errors as clients see them: RFC 9457, from one table of codes.
//!
//! A handler ends with a [`Problem`]; the middleware, which alone knows the request's
//! id, turns it into bytes. On the way it rides in the answer's extensions.

mod code;
mod from_shop;

pub use code::Code;

use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use serde::ser::{Serialize, SerializeMap, Serializer};

pub(crate) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// How long a client should wait that was refused for a reason which passes.
const RETRY_AFTER_S: u32 = 1;

/// Boxed within, so that the good path carries no more than a pointer for it.
#[derive(Clone, Debug)]
pub struct Problem(Box<Content>);

#[derive(Clone, Debug)]
struct Content {
    code: Code,
    /// What happened and what to do. Nothing of another shopper, nothing of the inside.
    detail: String,
    extra: Vec<(&'static str, Extra)>,
    /// What the log says beyond that.
    cause: Option<String>,
    retry_after_s: u32,
}

/// A member of the problem that programs read.
#[derive(Clone, Debug)]
enum Extra {
    Text(String),
    Number(u64),
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Problem {
        Problem(Box::new(Content {
            code,
            detail: detail.into(),
            extra: Vec::new(),
            cause: None,
            retry_after_s: RETRY_AFTER_S,
        }))
    }

    /// A field of a body, a path or a query that has no legal value.
    pub(crate) fn field(field: impl Into<String>, detail: impl Into<String>) -> Problem {
        Problem::new(Code::InvalidField, detail).with("field", field)
    }

    pub(crate) fn header(name: &'static str, detail: impl Into<String>) -> Problem {
        Problem::new(Code::MalformedHeader, detail).with("header", name)
    }

    /// A fault of ours: the client learns only that, the log learns the cause.
    pub(crate) fn internal(cause: impl Into<String>) -> Problem {
        let detail = "the shop met a fault of its own and logged it under this request's id";
        Problem::new(Code::Internal, detail).caused_by(cause)
    }

    pub(crate) fn with(mut self, member: &'static str, text: impl Into<String>) -> Problem {
        self.0.extra.push((member, Extra::Text(text.into())));
        self
    }

    pub(crate) fn with_number(mut self, member: &'static str, number: u64) -> Problem {
        self.0.extra.push((member, Extra::Number(number)));
        self
    }

    pub(crate) fn caused_by(mut self, cause: impl Into<String>) -> Problem {
        self.0.cause = Some(cause.into());
        self
    }

    pub(crate) fn retry_after_s(mut self, seconds: u32) -> Problem {
        self.0.retry_after_s = seconds;
        self
    }

    pub fn code(&self) -> Code {
        self.0.code
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.0.code.status()
    }

    pub(crate) fn cause(&self) -> &str {
        self.0.cause.as_deref().unwrap_or(&self.0.detail)
    }

    /// Fills the empty answer that carried this problem.
    pub(crate) fn render(&self, instance: &str, response: &mut Response) {
        let body = Rendered {
            problem: &self.0,
            instance,
        };
        let bytes = serde_json::to_vec(&body).expect("texts and numbers always become JSON");
        *response.body_mut() = bytes.into();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, PROBLEM_JSON);
        if self.0.code.is_passing() {
            headers.insert(RETRY_AFTER, HeaderValue::from(self.0.retry_after_s));
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

struct Rendered<'a> {
    problem: &'a Content,
    instance: &'a str,
}

impl Serialize for Rendered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let code = self.problem.code;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", &format_args!("/problems/{}", code.name()))?;
        map.serialize_entry("title", code.title())?;
        map.serialize_entry("status", &code.status().as_u16())?;
        map.serialize_entry("detail", &self.problem.detail)?;
        map.serialize_entry("instance", self.instance)?;
        for (member, value) in &self.problem.extra {
            match value {
                Extra::Text(text) => map.serialize_entry(member, text)?,
                Extra::Number(number) => map.serialize_entry(member, number)?,
            }
        }
        map.end()
    }
}
