//! Who may use whom: the arrows of ARCHITECTURE.md, held by a test.
//!
//! The rules are pure functions over a [`Graph`] of the workspace. One test reads the real workspace; the
//! others show for each rule that it fires on a made-up breach.

#![forbid(unsafe_code)]

mod dependencies;
mod graph;
mod sources;

use graph::Graph;

/// Something that the layering forbids, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Breach {
    rule: Rule,
    package: String,
    what: String,
    remedy: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    UnknownCrate,
    Arrow,
    Driver,
    VerifierApart,
    Shipped,
    Injected,
    ForbidUnsafe,
}

fn breaches(graph: &Graph) -> Vec<Breach> {
    let mut breaches = dependencies::breaches(graph);
    breaches.extend(sources::breaches(graph));
    breaches
}

#[test]
fn the_workspace_keeps_its_layering() {
    let graph = Graph::of_this_workspace();
    assert!(
        graph.packages.iter().any(|package| package.name == "xtask"),
        "the workspace was not read: this very crate is missing"
    );
    let told: Vec<_> = breaches(&graph)
        .into_iter()
        .map(|breach| {
            format!(
                "{:?}: {} {}; {}",
                breach.rule, breach.package, breach.what, breach.remedy
            )
        })
        .collect();
    assert!(
        told.is_empty(),
        "the layering is broken:\n  {}",
        told.join("\n  ")
    );
}

#[test]
fn the_real_graph_carries_dependencies_roots_and_sources() {
    let graph = Graph::of_this_workspace();
    let own = graph.package("xtask").unwrap();
    assert!(
        own.dependencies
            .iter()
            .any(|dependency| dependency.name == "clap")
    );
    assert!(
        own.sources
            .iter()
            .any(|source| source.path == "src/main.rs" && source.is_root)
    );
    assert!(
        own.sources
            .iter()
            .any(|source| source.path == "src/mutants/tree.rs" && !source.is_root)
    );
    let layout = graph.package("layout").unwrap();
    assert!(
        layout
            .dependencies
            .iter()
            .any(|dependency| dependency.name == "model")
    );
}
