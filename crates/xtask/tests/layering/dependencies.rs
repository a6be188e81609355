//! The rules about dependencies: which crate may use which, and where drivers may stand.

use std::collections::BTreeSet;

use crate::graph::{Graph, Package};
use crate::{Breach, Rule};

/// What a crate may name in `[dependencies]` among the crates of the workspace.
enum May {
    Use(&'static [&'static str]),
    /// The binary puts together all that is shipped.
    UseShipped,
    UseAnything,
}

/// In the order of the layers, lowest first. A new crate gets its line here, with the decision behind it.
const ARROWS: [(&str, May); 22] = [
    ("model", May::Use(&[])),
    ("layout", May::Use(&["model"])),
    ("engine-api", May::Use(&["layout", "model"])),
    ("engine-embedded", May::Use(&["engine-api", "layout"])),
    ("engine-cassandra", May::Use(&["engine-api", "layout"])),
    ("engine-mongo", May::Use(&["engine-api", "layout"])),
    ("router", May::Use(&["engine-api", "layout"])),
    ("feed", May::Use(&["engine-api", "layout"])),
    // The order history is a feed's cargo.
    (
        "shop-service",
        May::Use(&["model", "layout", "engine-api", "router", "feed"]),
    ),
    (
        "search",
        May::Use(&["model", "layout", "engine-api", "router"]),
    ),
    (
        "verifier",
        May::Use(&["engine-api", "layout", "model", "router"]),
    ),
    (
        "mover",
        May::Use(&["engine-api", "layout", "router", "feed", "verifier"]),
    ),
    ("heat", May::Use(&["layout", "engine-api", "router"])),
    (
        "http-api",
        May::Use(&["model", "layout", "engine-api", "shop-service", "router"]),
    ),
    (
        "console",
        May::Use(&["model", "layout", "router", "mover", "heat"]),
    ),
    // What operators ask, and how it travels; what comes of it is the binary's matter.
    ("ops-api", May::Use(&[])),
    ("caravan", May::UseShipped),
    (
        "simulation",
        May::Use(&[
            "model",
            "layout",
            "engine-api",
            "router",
            "shop-service",
            "feed",
            "verifier",
            "mover",
        ]),
    ),
    ("testbed", May::Use(&[])),
    // It knows the shop by its HTTP interface alone.
    ("judge", May::Use(&[])),
    ("bench", May::UseAnything),
    ("xtask", May::Use(&[])),
];

const NOT_SHIPPED: [&str; 5] = ["simulation", "testbed", "judge", "bench", "xtask"];

/// A driver and the crates that may name it, in any kind of dependency: no driver type leaves its engine
/// crate, and nothing but the faces of the shop knows HTTP.
const DRIVERS: [(&str, &[&str]); 6] = [
    ("lsm-tree", &["engine-embedded"]),
    ("tantivy", &["search"]),
    ("scylla", &["engine-cassandra"]),
    ("mongodb", &["engine-mongo", "testbed", "bench"]),
    ("axum", &["http-api", "ops-api", "console", "bench"]),
    ("hyper", &["http-api", "console", "bench", "judge"]),
];

pub fn breaches(graph: &Graph) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for package in &graph.packages {
        breaches.extend(arrows(graph, package));
        breaches.extend(drivers(package));
        breaches.extend(shipped(package));
    }
    breaches.extend(apart(graph, "verifier", "feed"));
    breaches.extend(apart(graph, "feed", "verifier"));
    breaches
}

fn arrows(graph: &Graph, package: &Package) -> Vec<Breach> {
    let Some((_, may)) = ARROWS.iter().find(|(name, _)| *name == package.name) else {
        return vec![Breach {
            rule: Rule::UnknownCrate,
            package: package.name.clone(),
            what: "has no line in the table of arrows".into(),
            remedy: "decide what it may use and add it to ARROWS and to ARCHITECTURE.md".into(),
        }];
    };
    let allowed = |name: &str| match may {
        May::Use(names) => names.contains(&name),
        // What is not shipped is the matter of a rule of its own.
        May::UseShipped | May::UseAnything => true,
    };
    package
        .normal()
        .filter(|name| graph.package(name).is_some() && !allowed(name))
        .map(|name| Breach {
            rule: Rule::Arrow,
            package: package.name.clone(),
            what: format!("uses {name}, which its layer may not"),
            remedy: "move the code to a layer that both may use, or take the need as a parameter"
                .into(),
        })
        .collect()
}

fn drivers(package: &Package) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (driver, homes) in DRIVERS {
        let named = package
            .dependencies
            .iter()
            .any(|dependency| dependency.name == driver);
        if named && !homes.contains(&package.name.as_str()) {
            breaches.push(Breach {
                rule: Rule::Driver,
                package: package.name.clone(),
                what: format!("names the driver {driver}"),
                remedy: format!("speak to it through {}", homes.join(" or ")),
            });
        }
    }
    breaches
}

fn shipped(package: &Package) -> Vec<Breach> {
    if NOT_SHIPPED.contains(&package.name.as_str()) {
        return Vec::new();
    }
    NOT_SHIPPED
        .iter()
        .filter(|name| package.uses(name))
        .map(|name| Breach {
            rule: Rule::Shipped,
            package: package.name.clone(),
            what: format!("is shipped and uses {name}, which is not"),
            remedy: "make it a dev-dependency, or move what is needed into a shipped crate".into(),
        })
        .collect()
}

/// The verifier judges the feed's work, so that code they share could be wrong on both sides alike.
fn apart(graph: &Graph, from: &str, to: &str) -> Option<Breach> {
    let path = path_between(graph, from, to)?;
    Some(Breach {
        rule: Rule::VerifierApart,
        package: from.to_owned(),
        what: format!("reaches {to} by {}", path.join(" -> ")),
        remedy: "write it a second time: the verifier shares no code with the copier".into(),
    })
}

fn path_between(graph: &Graph, from: &str, to: &str) -> Option<Vec<String>> {
    let mut seen = BTreeSet::new();
    let mut open = vec![vec![from.to_owned()]];
    while let Some(path) = open.pop() {
        let Some(package) = path.last().and_then(|name| graph.package(name)) else {
            continue;
        };
        for name in package.normal() {
            let longer: Vec<_> = path.iter().cloned().chain([name.to_owned()]).collect();
            if name == to {
                return Some(longer);
            }
            if seen.insert(name.to_owned()) {
                open.push(longer);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Dependency, Kind};

    /// `a: b c, d: e` as a graph of normal dependencies; `~b` is a dev-dependency.
    fn graph(written: &str) -> Graph {
        let package = |line: &str| {
            let (name, uses) = line.split_once(':').unwrap();
            let dependencies = uses
                .split_whitespace()
                .map(|name| match name.strip_prefix('~') {
                    Some(name) => Dependency {
                        name: name.to_owned(),
                        kind: Kind::Development,
                    },
                    None => Dependency {
                        name: name.to_owned(),
                        kind: Kind::Normal,
                    },
                });
            Package {
                name: name.trim().to_owned(),
                dependencies: dependencies.collect(),
                ..Package::default()
            }
        };
        Graph {
            packages: written.split(',').map(package).collect(),
        }
    }

    fn check(written: &str, expected: &[(Rule, &str)]) {
        let found = breaches(&graph(written));
        let rules: Vec<_> = found
            .iter()
            .map(|breach| (breach.rule, breach.package.as_str()))
            .collect();
        assert_eq!(rules, expected, "{written}");
        assert!(found.iter().all(|breach| !breach.remedy.is_empty()));
    }

    #[test]
    fn a_graph_in_order_has_no_breach() {
        check("model: serde, layout: model, engine-api: layout model", &[]);
        check(
            "engine-api: , layout: , testbed: , engine-mongo: engine-api layout mongodb ~testbed",
            &[],
        );
        check(
            "model: , caravan: model clap, bench: model caravan axum, xtask: clap",
            &[],
        );
        check(
            "router: , feed: , verifier: router, mover: feed verifier router",
            &[],
        );
    }

    #[test]
    fn an_arrow_that_points_up_or_past_its_layer_is_a_breach() {
        check("layout: , model: layout", &[(Rule::Arrow, "model")]);
        check(
            "model: , engine-embedded: model",
            &[(Rule::Arrow, "engine-embedded")],
        );
        check(
            "engine-embedded: , router: engine-embedded",
            &[(Rule::Arrow, "router")],
        );
        check("engine-embedded: , router: ~engine-embedded", &[]);
        check("model: , xtask: model", &[(Rule::Arrow, "xtask")]);
    }

    #[test]
    fn a_crate_without_a_line_in_the_table_is_a_breach() {
        check(
            "model: , utilities: model",
            &[(Rule::UnknownCrate, "utilities")],
        );
    }

    #[test]
    fn a_driver_outside_its_engine_is_a_breach_in_tests_too() {
        for (name, driver) in [
            ("router", "lsm-tree"),
            ("engine-embedded", "scylla"),
            ("router", "~mongodb"),
            ("shop-service", "axum"),
            ("caravan", "hyper"),
        ] {
            check(&format!("{name}: {driver}"), &[(Rule::Driver, name)]);
        }
    }

    #[test]
    fn a_shipped_crate_that_uses_one_that_is_not_is_a_breach() {
        check("testbed: , caravan: testbed", &[(Rule::Shipped, "caravan")]);
        check(
            "simulation: , router: simulation",
            &[(Rule::Arrow, "router"), (Rule::Shipped, "router")],
        );
    }

    #[test]
    fn verifier_and_feed_may_not_reach_one_another_even_by_a_third() {
        check(
            "verifier: feed, feed: ",
            &[(Rule::Arrow, "verifier"), (Rule::VerifierApart, "verifier")],
        );
        check(
            "verifier: , feed: layout, layout: verifier",
            &[(Rule::Arrow, "layout"), (Rule::VerifierApart, "feed")],
        );
    }

    #[test]
    fn a_circle_among_crates_does_not_hang_the_search() {
        let circle = graph("verifier: router, router: layout, layout: router");
        assert_eq!(path_between(&circle, "verifier", "feed"), None);
    }
}
