//! Carts and stock are linearizable, key by key: every request took effect at one
//! instant between its question and its answer, refusals and reads included, and one
//! without an answer at any time after its question, or never.
//!
//! The other checks say which rule was broken; this one needs no rule but that.

mod carts;
mod goods;
mod records;
mod stock;

use std::fmt::Display;

use crate::linear::{Call, Specification, Verdict, judge};
use crate::recording::{End, History, Moment, Operation};

/// Far above what a seed needs; a history that is not judged is told like one that breaks.
const TRIES_MAX: usize = 200_000;

pub fn check(history: &History) -> Vec<String> {
    let mut breaches = records::check(history);
    breaches.extend(stock::check(history));
    breaches.extend(carts::check(history));
    breaches.extend(goods::check(history));
    breaches
}

fn told<S: Specification>(
    key: &impl Display,
    specification: &S,
    calls: &[Call<S::Operation>],
) -> Option<String> {
    match judge(specification, calls, TRIES_MAX) {
        Verdict::Linearizable => None,
        Verdict::Broken { stuck } => Some(format!(
            "{key}: no order of its {} requests explains the answers; stuck at {stuck}",
            calls.len()
        )),
        Verdict::TooMuch { why } => Some(format!(
            "{key}: {} requests are not judged: {why}",
            calls.len()
        )),
    }
}

/// When a shopper's request was over, if its answer says what became of it.
fn returned(operation: &Operation) -> Option<Moment> {
    operation.ended.filter(|_| match operation.end {
        End::Done { .. } | End::Refused { .. } | End::Image(_) => true,
        End::Pending | End::Unknown { .. } | End::Pages(_) | End::Failed { .. } => false,
    })
}
