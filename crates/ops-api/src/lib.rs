//! What operators ask of a process that serves, and how it travels.
//!
//! ```text
//!   caravan move … ──▶ Request ──▶ Client ── HTTP, loopback ──▶ serve ──▶ Request ──▶ Desk ──▶ JSON, or a Refusal
//!                         └──────────── where nobody serves, or a layout is on servers ──▶ Desk
//! ```
//!
//! The same [`Request`] is carried out by the same desk, whether it came over the wire or not. This crate knows no move
//! and no shard: what comes of a request is the desk's matter.

#![forbid(unsafe_code)]

mod request;

mod refusal;

mod guard;
mod server;

mod client;

pub use client::{Client, ClientError};
pub use guard::{OPERATOR_HEADER, Operator, PROCESS_HEADER, ProcessId};
pub use refusal::{Kind, Refusal};
pub use request::{Asked, Request, Which};
pub use server::{BODY_BYTES_MAX, Desk, REQUESTS_AT_ONCE_MAX, serve};
