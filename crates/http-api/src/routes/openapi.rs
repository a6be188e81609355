//! The description of the interface, made from the code once at the start.
//!
//! Handlers say what is special about them; what every request can meet is added here,
//! so that no answer is undocumented and no handler repeats it.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use axum::routing::{MethodRouter, get};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use utoipa::PartialSchema;

use crate::answer;
use crate::app::App;
use crate::limits::BODY_BYTES_MAX;
use crate::schema::{Id, ProblemBody};

const VERSION: &str = "3.1.0";

/// Records that are answered with a tag of their own.
const TAGGED: [&str; 5] = ["Cart", "Order", "Product", "Session", "StockAnswer"];

/// Folders whose new records are answered with where they are.
const LOCATED: [&str; 3] = ["/v1/carts", "/v1/orders", "/v1/sessions"];

const DESCRIPTION: &str = "The shop's carts, orders, products and sessions. Every change may be \
    sent twice without harm. Errors are RFC 9457 problems, explained at /problems. Send back the \
    last Caravan-Token you were given, and you will see your own writes.";

pub(crate) fn route(document: Bytes) -> MethodRouter<App> {
    get(async move || {
        let mut response = Response::new(Body::from(document.clone()));
        response.headers_mut().insert(CONTENT_TYPE, answer::JSON);
        response
    })
}

/// The document as it is served.
pub(crate) fn finish(openapi: utoipa::openapi::OpenApi, version: &str) -> Bytes {
    let mut document = serde_json::to_value(&openapi).expect("a description is plain JSON");
    document["openapi"] = json!(VERSION);
    document["info"] = json!({
        "title": "Caravan", "version": version, "description": DESCRIPTION,
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    });
    document["servers"] = json!([{"url": "/"}]);
    document["components"]["schemas"]["Problem"] = schema::<ProblemBody>();
    document["components"]["schemas"]["Id"] = schema::<Id>();
    document["paths"]["/openapi.json"] = json!({"get": {
        "tags": ["operation"],
        "summary": "This description.",
        "responses": {"200": {
            "description": "OpenAPI 3.1",
            "content": {"application/json": {"schema": {"type": "object"}}},
        }},
    }});
    for (path, item) in members(&mut document["paths"]) {
        for (method, operation) in members(item) {
            complete(path, method, operation);
        }
    }
    serde_json::to_vec(&document)
        .expect("a description is plain JSON")
        .into()
}

fn schema<T: PartialSchema>() -> Value {
    serde_json::to_value(T::schema()).expect("a schema is plain JSON")
}

fn complete(path: &str, method: &str, operation: &mut Value) {
    // Handlers are called `by_id` in every folder; outside, a name stands alone.
    let place = path.replace('/', "_").replace(['{', '}'], "");
    operation["operationId"] = json!(format!("{method}{}", place.trim_end_matches('_')));
    let is_shop = path.starts_with("/v1/");
    let has_body = operation.get("requestBody").is_some();
    let ids: Vec<&str> = path
        .split('/')
        .filter_map(|piece| piece.strip_prefix('{')?.strip_suffix('}'))
        .collect();
    let has_query = parameters(operation)
        .iter()
        .any(|known| known["in"] == "query");
    for id in &ids {
        parameters(operation).push(json!({
            "name": id, "in": "path", "required": true,
            "schema": {"$ref": "#/components/schemas/Id"},
        }));
    }
    add_header(
        operation,
        "X-Request-Id",
        "Names the request in logs and problems",
    );
    let mut add = |status: u16, codes: &str| add_response(operation, status, codes);
    add(500, "internal");
    add(503, "unavailable, outcome-unknown");
    add(504, "deadline-exceeded");
    if is_shop {
        add(
            400,
            "malformed-header, malformed-query, malformed-json, missing-idempotency-key, unknown-cursor",
        );
        add(429, "too-many-requests");
        if has_body || has_query || !ids.is_empty() {
            add(422, "invalid-field");
        }
    }
    if has_body {
        add(408, "request-timeout");
        add(
            413,
            &format!("body-too-large: more than {BODY_BYTES_MAX} bytes"),
        );
        add(415, "unsupported-media-type");
    }
    if is_shop {
        add_header(
            operation,
            "Caravan-Token",
            "The last one the client was given",
        );
    }
    if operation.pointer("/responses/304").is_some() {
        add_header(operation, "If-None-Match", "An ETag that the client holds");
    }
    let locates = method == "post" && LOCATED.contains(&path);
    for (status, response) in members(&mut operation["responses"]) {
        finish_response(status, response, is_shop);
        if locates && status.starts_with('2') {
            response["headers"]["Location"] = json!({"schema": {"type": "string"}});
        }
    }
}

/// Every answer has its headers, every refusal the body of a problem.
fn finish_response(status: &str, response: &mut Value, is_shop: bool) {
    let text = json!({"schema": {"type": "string"}});
    let name = schema_name(response).map(str::to_owned);
    let has_content = response.get("content").is_some();
    let refused = status >= "400";
    if refused && !has_content {
        let schema = json!({"$ref": "#/components/schemas/Problem"});
        response["content"] = json!({"application/problem+json": {"schema": schema}});
    }
    response["headers"]["X-Request-Id"] = text.clone();
    // That a session is over is told with a token: it is something to have seen.
    if (!refused || status == "410") && is_shop {
        response["headers"]["Caravan-Token"] = text.clone();
    }
    if matches!(status, "429" | "503" | "504") && !has_content {
        response["headers"]["Retry-After"] = json!({"schema": {"type": "integer"}});
    }
    if status == "304" || name.is_some_and(|name| TAGGED.contains(&name.as_str())) {
        response["headers"]["ETag"] = text;
    }
}

/// What the JSON of an answer is called. By pointer, because indexing would put in
/// what it does not find.
fn schema_name(response: &Value) -> Option<&str> {
    let reference = response.pointer("/content/application~1json/schema/$ref")?;
    reference.as_str()?.rsplit('/').next()
}

fn add_response(operation: &mut Value, status: u16, codes: &str) {
    let known = &mut operation["responses"][status.to_string()];
    if known.is_null() {
        *known = json!({"description": codes});
    }
}

fn add_header(operation: &mut Value, name: &str, description: &str) {
    parameters(operation).push(json!({
        "name": name, "in": "header", "required": false, "description": description,
        "schema": {"type": "string"},
    }));
}

fn parameters(operation: &mut Value) -> &mut Vec<Value> {
    let parameters = &mut operation["parameters"];
    if parameters.is_null() {
        *parameters = json!([]);
    }
    parameters.as_array_mut().expect("parameters are a list")
}

fn members(value: &mut Value) -> impl Iterator<Item = (&String, &mut Value)> {
    value.as_object_mut().into_iter().flat_map(Map::iter_mut)
}
