//! What each problem means, for people: the targets of every problem's `type`.

use axum::extract::{RawPathParams, State};
use axum::response::Response;

use crate::app::App;
use crate::problem::{Code, Problem};
use crate::routes::page::{Html, html};

/// All problems that an answer can name.
#[utoipa::path(
    get, path = "/problems", tag = "operation",
    responses((status = 200, description = "A page", body = String, content_type = "text/html")),
)]
pub(crate) async fn all(State(_): State<App>) -> Response {
    let mut page = Html::new("Problems");
    page.raw("<p><a href=\"/\">Caravan</a></p><h1>Problems</h1>");
    page.raw("<p>Errors are RFC 9457 problems. Their type is one of these.</p>");
    page.raw(
        "<div class=scroll><table><thead><tr><th>status<th>problem<th>what it says</thead><tbody>",
    );
    for code in Code::ALL {
        page.raw("<tr><td class=number>")
            .text(code.status().as_str());
        page.raw("<td><a href=\"/problems/")
            .text(code.name())
            .raw("\"><code>");
        page.text(code.name())
            .raw("</code></a><td>")
            .text(code.title());
    }
    page.raw("</tbody></table></div>");
    html(page)
}

/// One problem: what it means and what to do.
#[utoipa::path(
    get, path = "/problems/{code}", tag = "operation",
    responses(
        (status = 200, description = "A page", body = String, content_type = "text/html"),
        (status = 404, description = "no-such-route"),
    ),
)]
pub(crate) async fn one(State(_): State<App>, path: RawPathParams) -> Result<Response, Problem> {
    let named = path.iter().next().and_then(|(_, name)| Code::named(name));
    let code = named.ok_or_else(|| {
        let detail = "there is no such problem, /problems lists them all";
        Problem::new(Code::NoSuchRoute, detail)
    })?;
    let mut page = Html::new(code.name());
    page.raw("<p><a href=\"/\">Caravan</a> / <a href=\"/problems\">Problems</a></p><h1><code>");
    page.text(code.name()).raw("</code></h1><p class=lead>");
    page.text(code.status().as_str())
        .raw(", ")
        .text(code.title());
    page.raw("</p><p>").text(code.advice()).raw("</p>");
    Ok(html(page))
}
