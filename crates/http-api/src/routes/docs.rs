//! The interactive description, served from the binary: no other host is asked.

use std::sync::Arc;

use axum::extract::RawPathParams;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use axum::response::Response;
use utoipa_swagger_ui::Config;

use crate::problem::{Code, Problem};
use crate::routes::page::whole_page;

const PAGE: &str = r##"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Caravan: the interface</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<div id="docs"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script>
SwaggerUIBundle({url: "/openapi.json", dom_id: "#docs", deepLinking: true, validatorUrl: null});
</script>
</body>
</html>
"##;

/// The only files that the page needs, of the many that come along.
const FILES: [&str; 2] = ["swagger-ui.css", "swagger-ui-bundle.js"];

/// The interface, to be tried out.
#[utoipa::path(
    get, path = "/docs", tag = "operation",
    responses((status = 200, description = "A page", body = String, content_type = "text/html")),
)]
pub(crate) async fn page() -> Response {
    whole_page(PAGE.to_owned())
}

/// What that page is made of.
#[utoipa::path(
    get, path = "/docs/{file}", tag = "operation",
    responses(
        (
            status = 200, description = "Style or script",
            content((String = "text/css"), (String = "text/javascript")),
        ),
        (status = 404, description = "no-such-route"),
    ),
)]
pub(crate) async fn file(path: RawPathParams) -> Result<Response, Problem> {
    let wanted = path.iter().next().map_or("", |(_, name)| name);
    let missing = || {
        let detail = "there is no such file, open /docs";
        Problem::new(Code::NoSuchRoute, detail)
    };
    if !FILES.contains(&wanted) {
        return Err(missing());
    }
    let file = utoipa_swagger_ui::serve(wanted, Arc::new(Config::default()))
        .map_err(|error| Problem::internal(error.to_string()))?
        .ok_or_else(missing)?;
    let media_type = HeaderValue::try_from(file.content_type)
        .map_err(|error| Problem::internal(error.to_string()))?;
    let mut response = Response::new(file.bytes.into_owned().into());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, media_type);
    headers.insert(
        CACHE_CONTROL,
        HeaderValue::from_static("public, max-age=3600"),
    );
    Ok(response)
}
