//! The rules about source text: what must be injected, and `unsafe` forbidden at every crate root.
//!
//! Text, not syntax: good enough to stop a habit from creeping in, and readable at a glance.

use crate::graph::{Graph, Package, Source};
use crate::{Breach, Rule};

/// Crates that run unchanged in the seeded simulation.
const INJECTED: [&str; 4] = ["router", "feed", "mover", "shop-service"];

/// What would make a run differ from its seed, and what to use instead.
const NOT_INJECTED: [(&str, &str); 6] = [
    ("SystemTime::now", "ask the clock that is passed in"),
    ("Instant::now", "ask the clock that is passed in"),
    ("rand::", "draw from the random source that is passed in"),
    ("std::fs", "reach files through an engine"),
    ("tokio::fs", "reach files through an engine"),
    ("tokio::net", "reach the network through an engine"),
];

const FORBID_UNSAFE: &str = "#![forbid(unsafe_code)]";

pub fn breaches(graph: &Graph) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for package in &graph.packages {
        if INJECTED.contains(&package.name.as_str()) {
            let test_only = test_only_modules(package);
            let product = package.sources.iter().filter(|source| {
                !test_only
                    .iter()
                    .any(|module| belongs_to(&source.path, module))
            });
            breaches.extend(product.flat_map(|source| not_injected(package, source)));
        }
        breaches.extend(roots_that_allow_unsafe(package));
    }
    breaches
}

fn not_injected(package: &Package, source: &Source) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let code = product_code(&source.text);
    for (path, instead) in NOT_INJECTED {
        if names(&code, path) {
            breaches.push(Breach {
                rule: Rule::Injected,
                package: package.name.clone(),
                what: format!("names {path} in {}", source.path),
                remedy: format!("{instead}, so that a seed replays exactly"),
            });
        }
    }
    let switched = |line: &str| line.contains("cfg") && line.contains("simulation");
    if code.lines().any(switched) {
        breaches.push(Breach {
            rule: Rule::Injected,
            package: package.name.clone(),
            what: format!("is built differently for the simulation in {}", source.path),
            remedy: "pass the difference in: the simulation runs what is shipped".into(),
        });
    }
    breaches
}

fn roots_that_allow_unsafe(package: &Package) -> impl Iterator<Item = Breach> {
    package
        .sources
        .iter()
        .filter(|source| source.is_root)
        .filter(|source| !source.text.lines().any(|line| line.trim() == FORBID_UNSAFE))
        .map(|source| Breach {
            rule: Rule::ForbidUnsafe,
            package: package.name.clone(),
            what: format!("does not forbid unsafe code in {}", source.path),
            remedy: format!("write {FORBID_UNSAFE} at its head"),
        })
}

/// The text without inline test modules and without comments.
fn product_code(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let opens = |next: &&str| next.starts_with("mod ") && next.ends_with('{');
        if line == "#[cfg(test)]" && lines.peek().is_some_and(opens) {
            // The module closes where its brace stands at the margin; code after it is product again.
            lines.by_ref().find(|line| *line == "}");
            continue;
        }
        code.push_str(line.split("//").next().unwrap_or_default());
        code.push('\n');
    }
    code
}

/// Modules in files of their own that are declared under `#[cfg(test)]`, as paths without `.rs`.
fn test_only_modules(package: &Package) -> Vec<String> {
    let mut modules = Vec::new();
    for source in &package.sources {
        let folder = match source.path.rsplit_once('/') {
            Some((folder, "lib.rs" | "main.rs" | "mod.rs")) => folder,
            _ => source.path.trim_end_matches(".rs"),
        };
        let mut lines = source.text.lines().map(str::trim).peekable();
        while let Some(line) = lines.next() {
            let declared = lines
                .peek()
                .and_then(|next| next.strip_prefix("mod ")?.strip_suffix(';'));
            if let ("#[cfg(test)]", Some(name)) = (line, declared) {
                modules.push(format!("{folder}/{name}"));
            }
        }
    }
    modules
}

fn belongs_to(path: &str, module: &str) -> bool {
    path.strip_prefix(module)
        .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// Whether code names a path as such, or picks its last part out of a group: `std::{fs, io}`.
/// A path that ends in `::` stands for everything under it.
fn names(code: &str, path: &str) -> bool {
    if path.ends_with("::") {
        return places(code, path).next().is_some();
    }
    let whole = |rest: &str| !rest.starts_with(is_word);
    let grouped = path.rsplit_once("::").is_some_and(|(parent, last)| {
        places(code, &format!("{parent}::{{")).any(|rest| {
            let group = rest.split(';').next().unwrap_or_default();
            places(group, last).any(whole)
        })
    });
    grouped || places(code, path).any(whole)
}

/// What follows each place where `needle` stands as a word of its own, and not as the end of another.
fn places<'a>(code: &'a str, needle: &'a str) -> impl Iterator<Item = &'a str> {
    code.match_indices(needle).filter_map(move |(at, _)| {
        let apart = !code[..at].ends_with(is_word);
        apart.then(|| &code[at + needle.len()..])
    })
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(name: &str, files: &[(&str, &str)]) -> Graph {
        let sources = files.iter().map(|(path, text)| Source {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
            is_root: *path == "src/lib.rs",
        });
        Graph {
            packages: vec![Package {
                name: name.to_owned(),
                sources: sources.collect(),
                ..Package::default()
            }],
        }
    }

    fn check(name: &str, text: &str, expected: &[&str]) {
        let found = breaches(&graph(name, &[("src/hold.rs", text)]));
        assert_eq!(found.len(), expected.len(), "{text}: {found:?}");
        for (breach, expected) in found.iter().zip(expected) {
            assert_eq!(breach.rule, Rule::Injected);
            assert!(
                breach.what.contains(expected) && breach.what.contains("src/hold.rs"),
                "{breach:?}"
            );
        }
    }

    #[test]
    fn time_randomness_and_files_must_be_passed_in() {
        check(
            "router",
            "let t = std::time::SystemTime::now();",
            &["SystemTime::now"],
        );
        check("feed", "let t = Instant::now();", &["Instant::now"]);
        check("mover", "use rand::Rng;", &["rand"]);
        check("shop-service", "std::fs::read(path)", &["std::fs"]);
        check("router", "use std::{\n    fs,\n    io,\n};", &["std::fs"]);
        check(
            "router",
            "use tokio::{net::TcpStream, sync::Mutex};",
            &["tokio::net"],
        );
        check(
            "feed",
            "#[cfg(feature = \"simulation\")]\nfn f() {}",
            &["built differently"],
        );
    }

    #[test]
    fn words_that_only_look_alike_comments_and_other_crates_are_left_alone() {
        check(
            "router",
            "use operand::X; let fs = 1; use std::{fmt, sync::Arc};",
            &[],
        );
        check(
            "router",
            "// std::fs would block here, and Instant::now() differs",
            &[],
        );
        check(
            "engine-embedded",
            "std::fs::read(path); Instant::now();",
            &[],
        );
        check("router", "tokio::spawn(async {}); clock.now();", &[]);
    }

    #[test]
    fn tests_may_look_at_the_clock_but_what_follows_a_test_only_item_may_not() {
        let tail = "fn f() {}\n#[cfg(test)]\nmod tests {\n    fn g() { Instant::now(); }\n}\n";
        check("router", tail, &[]);
        check(
            "router",
            &format!("{tail}fn h() {{ Instant::now(); }}"),
            &["Instant::now"],
        );
        let item = "#[cfg(test)]\nfn g() {}\nfn f() { Instant::now(); }\n";
        check("router", item, &["Instant::now"]);

        let declared = [
            ("src/hold.rs", "#[cfg(test)]\nmod tests;\nfn f() {}"),
            ("src/hold/tests.rs", "fn g() { Instant::now(); }"),
            ("src/tests.rs", "fn not_a_test() { Instant::now(); }"),
        ];
        let found = breaches(&graph("router", &declared));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].what.contains("src/tests.rs"));
    }

    #[test]
    fn a_crate_root_that_does_not_forbid_unsafe_code_is_a_breach() {
        let found = breaches(&graph(
            "model",
            &[("src/lib.rs", "// #![forbid(unsafe_code)]\n")],
        ));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].rule, Rule::ForbidUnsafe);
        let held = [
            ("src/lib.rs", "//! Rules.\n#![forbid(unsafe_code)]\n"),
            ("src/cart.rs", ""),
        ];
        assert!(breaches(&graph("model", &held)).is_empty());
    }
}
