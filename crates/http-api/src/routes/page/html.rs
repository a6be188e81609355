//! Pages written by hand: text is escaped, markup is not.

use axum::http::HeaderName;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::Response;

/// Nothing of a page may come from another host.
const OWN_HOST_ONLY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; style-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline'; \
     img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
);

const HEADERS: [(HeaderName, HeaderValue); 4] = [
    (
        CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    ),
    (CONTENT_SECURITY_POLICY, OWN_HOST_ONLY),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

pub(crate) struct Html(String);

impl Html {
    pub(crate) fn new(title: &str) -> Html {
        let mut page = Html(String::with_capacity(16 * 1024));
        page.raw("<!doctype html><html lang=en><head><meta charset=utf-8>");
        page.raw("<meta name=viewport content=\"width=device-width, initial-scale=1\">");
        page.raw(
            "<meta name=color-scheme content=\"light dark\"><link rel=icon href=\"data:,\"><title>",
        );
        page.text(title).raw("</title><style>");
        page.raw(include_str!("style.css"))
            .raw("</style></head><body><main>");
        page
    }

    pub(crate) fn raw(&mut self, markup: &str) -> &mut Html {
        self.0.push_str(markup);
        self
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Html {
        for character in text.chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                other => self.0.push(other),
            }
        }
        self
    }

    pub(crate) fn script(&mut self, script: &str) {
        self.raw("<script>").raw(script).raw("</script>");
    }
}

pub(crate) fn html(mut page: Html) -> Response {
    page.raw("</main></body></html>");
    whole_page(page.0)
}

pub(crate) fn whole_page(text: String) -> Response {
    let mut response = Response::new(text.into());
    response.headers_mut().extend(HEADERS);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        let mut page = Html(String::new());
        page.raw("<b>").text("<i a=\"b\" c='d'>&").raw("</b>");
        assert_eq!(
            page.0,
            "<b>&lt;i a=&quot;b&quot; c=&#39;d&#39;&gt;&amp;</b>"
        );
    }
}
