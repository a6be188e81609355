//! Texts of the interface as OpenAPI describes them. The model's own types check them;
//! these only say how they look.

use std::collections::BTreeMap;

use utoipa::ToSchema;

/// Opaque text of 1 to 64 bytes without control characters.
#[derive(ToSchema)]
#[schema(
    min_length = 1,
    max_length = 64,
    pattern = r"^[^\x00-\x1f\x7f-\x9f]+$",
    examples("USER-98765")
)]
#[allow(dead_code)]
pub(crate) struct Id(String);

/// An exact amount as text, never a float: at most 4 digits after the point. Answers
/// leave trailing zeros out.
#[derive(ToSchema)]
#[schema(pattern = r"^[0-9]{1,13}(\.[0-9]{1,4})?$", examples("149.9"))]
#[allow(dead_code)]
pub(crate) struct Amount(String);

/// RFC 3339, in UTC with microseconds.
#[derive(ToSchema)]
#[schema(format = "date-time", examples("2026-11-16T02:41:30.123456Z"))]
#[allow(dead_code)]
pub(crate) struct Moment(String);

/// Free keys and values: at most 64, and 16 KiB together.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct Free(BTreeMap<String, String>);

/// RFC 9457. `/problems` explains every type.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct ProblemBody {
    /// `/problems/<code>`
    #[schema(examples("/problems/no-such-cart"))]
    r#type: String,
    title: String,
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What happened and what to do.
    detail: String,
    /// The request's id, as in X-Request-Id.
    instance: String,
    /// `invalid-field`: which field of body, query or path.
    field: Option<String>,
    /// `malformed-header`: which header.
    header: Option<String>,
    /// `malformed-json`: where the body breaks.
    line: Option<u64>,
    column: Option<u64>,
    /// `sold-out`, `price-moved`, `no-stock-in-zone`, `unknown-product`
    product_id: Option<String>,
    /// `sold-out`, `no-stock-in-zone`
    zone: Option<String>,
    /// `sold-out`: what is left.
    available: Option<u64>,
    /// `price-moved`: what the client showed.
    seen: Option<String>,
    /// `price-moved`: what it costs.
    now: Option<String>,
    /// `illegal-status`
    from: Option<String>,
    to: Option<String>,
    /// `category-fixed`: where the product stands.
    category: Option<String>,
    /// `stock-below-sold`: the least that can have arrived.
    bound: Option<u64>,
    /// `body-too-large`: bytes.
    limit: Option<u64>,
}
