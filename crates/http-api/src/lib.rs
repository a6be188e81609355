//! The shop over HTTP/1.1.
//!
//! ```text
//!   connection (serve)                     one per client, bounded; drained at the end
//!       │ request head
//!       ▼
//!   route by path and method ───────────── unknown: 404 or 405, observed like the rest
//!       │
//!       ▼
//!   observe ── request id, admission, rate, deadline           ┌─ Problem ──▶ problem+json
//!       │                                                     │  with the request's id
//!       ▼                                                     │
//!   extract ── path, headers, query, body ▶ the model's types ┤ 400 408 413 415 422
//!       │                                                     │
//!       ▼                                                     │
//!   handler ── one call of the shop ──────────────────────────┤ 404 409 410 412 422 500 503
//!       │                                                     │
//!       ▼                                                     ▼
//!   answer ─── JSON straight from the model, ETag, token ──▶ observe ── count, log 5xx and slow
//! ```
//!
//! Handlers know no rule of the shop: they translate. Nothing here is boxed, looked up
//! or logged for a request that goes well, beyond what axum does itself.
//!
//! Only what hyper refuses before there is a request (no HTTP, a head beyond its
//! limits) has no problem body.

#![forbid(unsafe_code)]

mod app;
mod limits;
mod serve;

mod admission;
mod observe;

mod clients;
mod figures;
mod meter;
mod request_id;

mod extract;

mod routes;

mod answer;
mod cursor;
mod pages;
mod problem;
mod schema;
mod token;

pub use admission::{Admission, Class, Refused};
pub use app::{App, AppConfig, BuildInfo, Search, SearchRefusal, Troubles};
pub use limits::{BODY_BYTES_MAX, HttpLimits, HttpLimitsError};
pub use problem::{Code, Problem};
pub use prometheus_client::registry::Registry;
pub use routes::router;
pub use serve::{Drained, serve};
