//! The conformance suite: the contract of [`Engine`], tested line by line.
//!
//! An engine's own tests implement [`Subject`] and call [`run`]. A case is
//! skipped only because of a declared capability or a collection that the
//! subject leaves out, and the [`Report`] says which; an error never skips.
//!
//! Cases keep apart: each has ids, moves, users and categories of its own, and
//! generations above those of the cases before it. A subject for which a fresh
//! namespace is dear may therefore hand out one namespace for the whole run,
//! as long as the run began with an empty one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use layout::Collection;

use crate::capability::{
    Capabilities, Durability, ExpiryKind, FenceKind, GuardKind, JournalKind, Stock, Terms, Together,
};
use crate::control::ControlStore;
use crate::engine::Engine;

/// Answers `Err` from a case when the condition does not hold.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::conformance::stage::Failure(format!($($message)+)));
        }
    };
}

/// Lists the cases of a file: contract line, protocol rules, function, needs.
/// The function's name is the case's name.
macro_rules! cases {
    ($($line:literal [$($rule:literal),*] $function:ident [$($need:expr),*];)*) => {
        pub(super) const CASES: &[$crate::conformance::Case] = &[$($crate::conformance::Case {
            line: $line,
            rules: &[$($rule),*],
            function: stringify!($function),
            needs: &[$($need),*],
            run: |stage| Box::pin($function(stage)),
        },)*];
    };
}

mod capabilities;
mod report;

mod scenery;
mod stage;

mod changing;
mod parts;
mod repeats;
mod stock;
mod together;
mod writing;

mod fences;
mod forgetting;
mod images;
mod restoring;
mod terms;

mod derived;
mod listings;
mod scans;
mod values;

mod care;
mod expiry;
mod journal;

mod control;
mod crash;

pub use capabilities::capability_table;
pub use report::{CaseReport, Report, Verdict};

use stage::{Checked, Stage};

/// What the suite needs to know of the engine it tests.
#[async_trait]
pub trait Subject: Send + Sync {
    /// An empty engine; or the same one for all cases of a run, see the module.
    async fn engine(&self) -> Arc<dyn Engine>;

    /// Ends the engine without a farewell (kill -9 where that is possible) and
    /// opens its store again. `None` when nothing is meant to survive.
    async fn crash_and_reopen(&self, engine: Arc<dyn Engine>) -> Option<Arc<dyn Engine>>;

    /// The collections to test.
    fn collections(&self) -> Vec<Collection>;

    /// The control store that lives in the same place as the engine last
    /// opened, if there is one.
    fn control(&self, _engine: &Arc<dyn Engine>) -> Option<Arc<dyn ControlStore>> {
        None
    }
}

/// Tests the subject against every line of the contract.
pub async fn run(subject: &dyn Subject) -> Report {
    run_where(subject, |_| true).await
}

/// Tests only the cases whose name contains `part` or whose contract line is `part`.
pub async fn run_matching(subject: &dyn Subject, part: &str) -> Report {
    run_where(subject, |case| {
        case.line == part || case.name().contains(part)
    })
    .await
}

async fn run_where(subject: &dyn Subject, wanted: impl Fn(&Case) -> bool) -> Report {
    let probe = subject.engine().await;
    let capabilities = probe.capabilities().clone();
    let has_control = subject.control(&probe).is_some();
    drop(probe);
    let offered = subject.collections();
    let mut reports = Vec::new();
    for (number, case) in all_cases().enumerate() {
        if !wanted(case) {
            continue;
        }
        let missing = case
            .needs
            .iter()
            .find_map(|need| need.missing(&capabilities, &offered, has_control));
        let verdict = match missing {
            Some(because) => Verdict::Skipped { because },
            None => match (case.run)(Stage::open(subject, number).await).await {
                Ok(()) => Verdict::Passed,
                Err(failure) => Verdict::Failed { message: failure.0 },
            },
        };
        reports.push(CaseReport {
            line: case.line,
            rules: case.rules,
            name: case.name(),
            verdict,
        });
    }
    Report {
        engine: capabilities.engine,
        cases: reports,
    }
}

fn all_cases() -> impl Iterator<Item = &'static Case> {
    [
        writing::CASES,
        changing::CASES,
        repeats::CASES,
        parts::CASES,
        stock::CASES,
        together::CASES,
        images::CASES,
        restoring::CASES,
        forgetting::CASES,
        fences::CASES,
        terms::CASES,
        values::CASES,
        listings::CASES,
        derived::CASES,
        scans::CASES,
        journal::CASES,
        care::CASES,
        expiry::CASES,
        crash::CASES,
        control::CASES,
    ]
    .into_iter()
    .flatten()
}

type CaseFuture<'a> = Pin<Box<dyn Future<Output = Checked> + Send + 'a>>;

struct Case {
    /// The contract's line: E1 to E28, or CS for the control store.
    line: &'static str,
    /// The protocol's rules that the case holds an engine to.
    rules: &'static [&'static str],
    function: &'static str,
    needs: &'static [Need],
    run: for<'a> fn(Stage<'a>) -> CaseFuture<'a>,
}

impl Case {
    fn name(&self) -> String {
        self.function.replace('_', " ")
    }
}

/// What a case cannot do without.
#[derive(Clone, Copy, Debug)]
enum Need {
    Collection(Collection),
    Together,
    AtomicGuard,
    FenceInStore,
    Journal,
    /// A journal that `maintain` trims; a change stream is trimmed by its server.
    TrimmedJournal,
    Stock,
    TermsInStore,
    MaintainedExpiry,
    Durable,
    Control,
}

const CARTS: Need = Need::Collection(Collection::Carts);
const ORDERS: Need = Need::Collection(Collection::Orders);
const PRODUCTS: Need = Need::Collection(Collection::Products);
const SESSIONS: Need = Need::Collection(Collection::Sessions);

impl Need {
    /// The declaration because of which the case is skipped.
    fn missing(
        self,
        capabilities: &Capabilities,
        offered: &[Collection],
        has_control: bool,
    ) -> Option<String> {
        let unless = |given: bool, because: String| (!given).then_some(because);
        match self {
            Need::Collection(collection) if !capabilities.collections.contains(&collection) => {
                Some(format!("capability collections lacks {collection}"))
            }
            Need::Collection(collection) => unless(
                offered.contains(&collection),
                format!("the subject leaves out {collection}"),
            ),
            Need::Together => unless(
                capabilities.together == Together::Atomic,
                format!("capability together = {:?}", capabilities.together),
            ),
            Need::AtomicGuard => unless(
                capabilities.guard == GuardKind::Atomic,
                format!("capability guard = {:?}", capabilities.guard),
            ),
            Need::FenceInStore => unless(
                capabilities.fence == FenceKind::InStore,
                format!("capability fence = {:?}", capabilities.fence),
            ),
            Need::Journal => unless(
                capabilities.journal != JournalKind::Unsupported,
                format!("capability journal = {:?}", capabilities.journal),
            ),
            Need::TrimmedJournal => unless(
                matches!(
                    capabilities.journal,
                    JournalKind::SameCommit | JournalKind::Lanes
                ),
                format!("capability journal = {:?}", capabilities.journal),
            ),
            Need::Stock => unless(
                capabilities.stock == Stock::Conditional,
                format!("capability stock = {:?}", capabilities.stock),
            ),
            Need::TermsInStore => unless(
                capabilities.terms == Terms::InStore,
                format!("capability terms = {:?}", capabilities.terms),
            ),
            Need::MaintainedExpiry => unless(
                capabilities.expiry == ExpiryKind::Maintained,
                format!("capability expiry = {:?}", capabilities.expiry),
            ),
            Need::Durable => unless(
                capabilities.durability != Durability::Process,
                format!("capability durability = {:?}", capabilities.durability),
            ),
            Need::Control => unless(has_control, "the subject has no control store".to_owned()),
        }
    }
}
