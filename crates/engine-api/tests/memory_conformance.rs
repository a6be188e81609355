//! The memory engine keeps the whole contract.

mod subjects;

use std::sync::Arc;

use engine_api::conformance::{Report, Verdict, capability_table, run, run_matching};
use engine_api::memory::MemoryEngine;
use engine_api::{Durability, Engine};
use subjects::{Fault, Namespace, TestSubject};

fn ensure_skipped_only_because(report: &Report, expected: &str) {
    for case in report.skipped() {
        let Verdict::Skipped { because } = &case.verdict else {
            unreachable!("it was skipped");
        };
        assert_eq!(because, expected, "{case}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_memory_engine_conforms() {
    let report = run(&TestSubject::new(Fault::None, Namespace::PerCase)).await;
    report.assert_passed();
    ensure_skipped_only_because(&report, "capability durability = Process");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_namespace_serves_all_cases_of_a_run() {
    let report = run(&TestSubject::new(Fault::None, Namespace::Shared)).await;
    report.assert_passed();
}

#[tokio::test]
async fn an_engine_that_survives_its_crashes_skips_nothing() {
    let subject = TestSubject::new(Fault::None, Namespace::PerCase).declaring(Durability::Disk);
    let report = run(&subject).await;
    report.assert_passed();
    assert_eq!(report.skipped().count(), 0, "{report}");
}

#[tokio::test]
async fn a_run_can_be_narrowed_to_a_line_of_the_contract() {
    let subject = TestSubject::new(Fault::None, Namespace::PerCase);
    let report = run_matching(&subject, "E14").await;
    report.assert_passed();
    assert!(
        report.cases.iter().all(|case| case.line == "E14"),
        "{report}"
    );
}

#[tokio::test]
async fn every_line_of_the_contract_has_a_case() {
    let report = run(&TestSubject::new(Fault::None, Namespace::PerCase)).await;
    for number in 1..=25 {
        let line = format!("E{number}");
        assert!(
            report.cases.iter().any(|case| case.line == line),
            "{line} has no case"
        );
    }
    let rules = [
        "W1", "W2", "W3", "W5", "W6", "W7", "W8", "W9", "W12", "W13", "W15", "W20", "W21", "W22",
        "W26", "W28",
    ];
    for rule in rules {
        assert!(
            report.cases.iter().any(|case| case.rules.contains(&rule)),
            "{rule} has no case"
        );
    }
}

#[test]
fn the_table_of_capabilities_is_markdown() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    insta::assert_snapshot!(capability_table(&[engine.capabilities()]), @r"
    | capability | memory |
    | --- | --- |
    | collections | carts, orders, products, sessions |
    | together | Atomic |
    | guard | Atomic |
    | fence | InStore |
    | journal | SameCommit |
    | stock | Conditional |
    | terms | InStore |
    | expiry | Maintained |
    | durability | Process |
    ");
}
