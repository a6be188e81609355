//! Judges a running shop from outside, over HTTP, by a ledger of its own.
//!
//! ```text
//!   shoppers ──intent──▶ ledger ◀──acknowledgement── shoppers
//!      │                   │                            ▲
//!      └────── HTTP ──▶ the shop ──── HTTP ─────────────┘
//!                          ▲   kill -9, start again
//!                          └── HTTP ── the judge: is everything in the ledger here, once?
//! ```
//!
//! Nothing of the product is used: a judge that shared its code could be wrong together with it.

#![forbid(unsafe_code)]

pub mod http;

pub mod server;

pub mod wire;

pub mod client;

pub mod verdict;

pub mod catalogue;

pub mod ledger;

pub mod expected;

pub mod shop;

pub mod together;

pub mod flash;

pub mod keys;

pub mod carts;
