//! Figures for Prometheus.

use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::Response;
use prometheus_client::encoding::text::encode;

use crate::app::App;
use crate::problem::Problem;

const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// What is counted, in the text format of OpenMetrics.
#[utoipa::path(
    get, path = "/metrics", tag = "operation",
    responses((
        status = 200, description = "OpenMetrics text", body = String,
        content_type = "application/openmetrics-text",
    )),
)]
pub(crate) async fn metrics(State(app): State<App>) -> Result<Response, Problem> {
    let mut text = String::new();
    encode(&mut text, &app.registry)
        .map_err(|error| Problem::internal(format!("metrics cannot be written: {error}")))?;
    let mut response = Response::new(text.into());
    response.headers_mut().insert(CONTENT_TYPE, OPEN_METRICS);
    Ok(response)
}
