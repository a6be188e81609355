//! `bench moves`: what a live move costs, against bare loops over the same engines and the same shop without a move.
//!
//! Copying and comparing are measured with the shipped mover and verifier in this process, the memory in a process that
//! does nothing but move, and what shoppers feel over HTTP with the real `caravan serve`.

mod alone;
mod bare;
mod copying;
mod loading;

use std::path::Path;

use crate::http::moving;
use crate::report::Finding;

pub use alone::move_alone;

/// How much is measured, and on how much.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    rounds: usize,
    embedded_orders: u64,
    mongo_orders: u64,
    cassandra_orders: u64,
    /// Two moves by a process of their own: its memory must not grow with them.
    alone_orders: [u64; 2],
    shop: moving::Size,
}

pub const FULL: Size = Size {
    rounds: 5,
    embedded_orders: 100_000,
    mongo_orders: 10_000,
    cassandra_orders: 4_000,
    alone_orders: [20_000, 200_000],
    shop: moving::FULL,
};
pub const QUICK: Size = Size {
    rounds: 1,
    embedded_orders: 10_000,
    mongo_orders: 1_000,
    cassandra_orders: 500,
    alone_orders: [1_000, 5_000],
    shop: moving::QUICK,
};

/// One of the parts, to be looked at alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    Copying,
    Memory,
    Shoppers,
}

pub fn run(size: Size, part: Option<Part>, binary: Option<&Path>) -> anyhow::Result<Vec<Finding>> {
    let wanted = |of: Part| part.is_none_or(|part| part == of);
    let mut findings = Vec::new();
    if wanted(Part::Copying) {
        findings.extend(copying::run(size)?);
    }
    if wanted(Part::Memory) {
        findings.push(alone::run(size.alone_orders)?);
    }
    if wanted(Part::Shoppers) {
        findings.extend(moving::run(size.shop, binary)?);
    }
    Ok(findings)
}
