//! The listener: bytes to requests, answers to bytes.

use std::future::Future;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use axum::body::{Body as AxumBody, to_bytes};
use axum::extract::{Request as HttpRequest, State};
use axum::http::{HeaderMap, Method as HttpMethod, StatusCode, header};
use axum::response::Response;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::guard::{Body, Head, OPERATOR_HEADER, Operator, PROCESS_HEADER, ProcessId, admit};
use crate::refusal::{Kind, Refusal};
use crate::request::{Method, Request, Wire};

/// The longest body: a plan with a thousand keys has a tenth of it.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Requests that are carried out at once; operators are few.
pub const REQUESTS_AT_ONCE_MAX: usize = 32;

/// Carries requests out.
#[async_trait]
pub trait Desk: Send + Sync + 'static {
    async fn carry_out(&self, request: Request, operator: &Operator) -> Result<Value, Refusal>;
}

struct Counter {
    desk: Arc<dyn Desk>,
    own: ProcessId,
    places: Semaphore,
}

/// Serves until `stop`, then answers what is under way.
pub async fn serve(
    listener: TcpListener,
    desk: Arc<dyn Desk>,
    own: ProcessId,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let counter = Arc::new(Counter {
        desk,
        own,
        places: Semaphore::new(REQUESTS_AT_ONCE_MAX),
    });
    let router = axum::Router::new().fallback(handle).with_state(counter);
    axum::serve(listener, router)
        .with_graceful_shutdown(stop)
        .await
}

async fn handle(State(counter): State<Arc<Counter>>, request: HttpRequest) -> Response {
    match answer(&counter, request).await {
        Ok(value) => response(StatusCode::OK, "application/json", value.to_string().into()),
        Err(refusal) => {
            let status = StatusCode::from_u16(refusal.kind.status());
            let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            response(status, "application/problem+json", refusal.to_json())
        }
    }
}

async fn answer(counter: &Counter, request: HttpRequest) -> Result<Value, Refusal> {
    let Ok(_place) = counter.places.try_acquire() else {
        let detail = "too many operators ask at once: ask again in a moment";
        return Err(Refusal::new(Kind::Unavailable, detail));
    };
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, BODY_BYTES_MAX).await.map_err(|_| {
        let detail = format!("the body is longer than {BODY_BYTES_MAX} bytes, or was cut off");
        Refusal::new(Kind::Invalid, &detail)
    })?;
    let text = |name: &str| text_of(&parts.headers, name);
    let head = Head {
        origin: text(header::ORIGIN.as_str()),
        content_type: text(header::CONTENT_TYPE.as_str()),
        process: text(PROCESS_HEADER),
        host: text(header::HOST.as_str()),
        body: match bytes.is_empty() {
            true => Body::Absent,
            false => Body::Present,
        },
    };
    admit(head, &counter.own)?;
    let method = match parts.method {
        HttpMethod::GET => Method::Get,
        HttpMethod::POST => Method::Post,
        _ => {
            return Err(Refusal::new(
                Kind::Invalid,
                "ask with GET, change with POST",
            ));
        }
    };
    let path = parts.uri.path().to_owned();
    let body = body_of(&bytes)?;
    let request = Request::of_wire(Wire { method, path, body })?;
    let operator = Operator::new(text(OPERATOR_HEADER).unwrap_or_default());
    counter.desk.carry_out(request, &operator).await
}

fn body_of(bytes: &[u8]) -> Result<Option<Value>, Refusal> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let value = serde_json::from_slice(bytes);
    value
        .map(Some)
        .map_err(|error| Refusal::new(Kind::Invalid, &format!("the body is no JSON: {error}")))
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn response(status: StatusCode, kind: &'static str, bytes: Vec<u8>) -> Response {
    let mut response = Response::new(AxumBody::from(bytes));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
