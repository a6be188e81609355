//! The runner over a tiny workspace: a product of one function, a simulation that looks at it, a unit test.

use super::*;
use crate::verdict::Verdict;

/// Long for a program that ends at once, short for one that never does.
const LIMIT: Duration = Duration::from_secs(15);

const PRODUCT: &str = "#![forbid(unsafe_code)]
pub fn newest(left: u64, right: u64) -> u64 {
    left.max(right)
}
pub fn unwatched() -> u64 {
    7
}
#[cfg(test)]
mod tests {
    #[test]
    fn the_newer_wins() {
        assert_eq!(super::newest(1, 2), 2);
    }
}
";

/// Keeps the contract of the simulation's command line: seeds, exit code 1 and `failing seed: N`.
const SIMULATION: &str = r#"fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    assert_eq!(arguments, ["run", "--seeds", "300", "--until-failure", "--quiet"]);
    for seed in 0..300 {
        if product::newest(seed, 40) != seed.max(40) {
            println!("failing seed: {seed}");
            std::process::exit(1);
        }
    }
}
"#;

struct Tiny {
    _home: tempfile::TempDir,
    workspace: Workspace,
}

fn tiny(mutations: &[(&str, &str, &str, &str)]) -> Tiny {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().to_path_buf();
    let package = |name: &str, rest: &str| {
        format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{rest}")
    };
    let mut files = vec![
        (".gitignore".to_owned(), "/target\nCargo.lock\n".to_owned()),
        (
            "Cargo.toml".to_owned(),
            "[workspace]\nresolver = \"3\"\nmembers = [\"product\", \"simulation\"]\n".to_owned(),
        ),
        ("product/Cargo.toml".to_owned(), package("product", "")),
        ("product/src/lib.rs".to_owned(), PRODUCT.to_owned()),
        (
            "simulation/Cargo.toml".to_owned(),
            package(
                "simulation",
                "[dependencies]\nproduct = { path = \"../product\" }\n",
            ),
        ),
        ("simulation/src/main.rs".to_owned(), SIMULATION.to_owned()),
    ];
    for (name, find, replace, more) in mutations {
        files.push((
            format!("mutants/{name}.toml"),
            format!(
                "rule = \"W1\"\nfile = \"product/src/lib.rs\"\nfind = '''{find}'''\n\
                 replace = '''{replace}'''\nbreaks = \"the older value stays\"\n{more}\n"
            ),
        ));
    }
    for (file, text) in files {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let status = std::process::Command::new("git")
        .current_dir(&root)
        .args(["init", "--quiet"])
        .status()
        .unwrap();
    assert!(status.success());
    Tiny {
        workspace: Workspace {
            target: root.join("target"),
            root,
        },
        _home: home,
    }
}

const MAX: &str = "left.max(right)";

#[test]
fn each_kind_of_mutation_gets_its_outcome_and_the_sources_stay_untouched() {
    let by_test = "command = { test = \"product\", filter = \"the_newer_wins\" }";
    let tiny = tiny(&[
        ("a-seed", MAX, "left", ""),
        ("b-survivor", "    7\n", "    8\n", ""),
        ("c-test", MAX, "left.min(right)", by_test),
        ("d-broken", MAX, "left.maximum(right)", ""),
        ("e-again", MAX, "right", ""),
    ]);
    let mutations = mutation::load_all(&tiny.workspace.root).unwrap();
    let judged = judge_all(&tiny.workspace, &mutations, LIMIT).unwrap();
    let outcomes: Vec<_> = judged
        .iter()
        .map(|judged| judged.outcome.to_string())
        .collect();
    assert_eq!(
        outcomes,
        [
            "seed 0",
            "survived",
            "test tests::the_newer_wins",
            "does not compile",
            "seed 41"
        ]
    );
    let source = fs::read_to_string(tiny.workspace.root.join("product/src/lib.rs")).unwrap();
    assert_eq!(source, PRODUCT);

    let table = tiny.workspace.target.join("mutants/table.md");
    assert!(
        conclude(&table, &judged).unwrap_err().is::<BadInput>(),
        "what does not compile is an error"
    );
    let written = fs::read_to_string(&table).unwrap();
    assert!(written.contains("| **survived** "), "{written}");
    assert!(written.contains("| seed 41 "), "{written}");
    assert_eq!(conclude(&table, &judged[1..2]).unwrap(), Verdict::Fails);
    assert_eq!(conclude(&table, &judged[2..3]).unwrap(), Verdict::Holds);
}

#[test]
fn hanging_counts_as_caught_only_where_the_mutation_says_so() {
    let hang = "loop { std::thread::park() }";
    let tiny = tiny(&[
        ("hangs", MAX, hang, ""),
        ("may-hang", MAX, hang, "may_hang = true"),
    ]);
    let mutations = mutation::load_all(&tiny.workspace.root).unwrap();
    // The unmutated copy gets the same time and needs none of it.
    let judged = judge_all(&tiny.workspace, &mutations, Duration::from_secs(5)).unwrap();
    let verdicts: Vec<_> = judged
        .iter()
        .map(|judged| verdict(judged.mutation, &judged.outcome))
        .collect();
    assert_eq!(verdicts, [Verdict::Fails, Verdict::Holds]);
    assert!(
        judged
            .iter()
            .all(|judged| judged.outcome == Outcome::Hung { seconds: 5 })
    );
}

#[test]
fn a_copy_that_fails_without_a_mutation_is_refused() {
    let by_test = "command = { test = \"product\", filter = \"no_such_test\" }";
    let tiny = tiny(&[("misnamed", MAX, "left", by_test)]);
    let mutations = mutation::load_all(&tiny.workspace.root).unwrap();
    let error = judge_all(&tiny.workspace, &mutations, LIMIT)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no test named like `no_such_test`"),
        "{error}"
    );

    let simulation = tiny.workspace.root.join("simulation/src/main.rs");
    fs::write(simulation, "fn main() { std::process::exit(1) }").unwrap();
    let mutation = tiny.workspace.root.join("mutants/misnamed.toml");
    let text = fs::read_to_string(&mutation).unwrap().replace(by_test, "");
    fs::write(mutation, text).unwrap();
    let mutations = mutation::load_all(&tiny.workspace.root).unwrap();
    let error = judge_all(&tiny.workspace, &mutations, LIMIT)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the unmutated copy does not pass"),
        "{error}"
    );
}

#[test]
fn a_second_run_at_the_same_time_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let first = lock(home.path()).unwrap();
    assert!(
        lock(home.path())
            .unwrap_err()
            .to_string()
            .contains("wait until it ends")
    );
    drop(first);
    lock(home.path()).unwrap();
}

#[test]
fn successive_days_cover_the_whole_list() {
    for (length, few) in [(1_usize, 3_usize), (3, 3), (7, 3), (10, 3), (12, 5)] {
        let days = length.div_ceil(few) as u64;
        for first in [0, 1, 20_000] {
            let mut seen: Vec<_> = (first..first + days)
                .flat_map(|day| rotating(length, few, day))
                .collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(
                seen,
                (0..length).collect::<Vec<_>>(),
                "{length} by {few} from day {first}"
            );
        }
    }
}

#[test]
fn a_selection_takes_what_it_names_and_refuses_what_is_not_there() {
    let tiny = tiny(&[
        ("one", MAX, "left", ""),
        ("three", "gone", "left", ""),
        ("two", MAX, "right", ""),
    ]);
    let load = || mutation::load_all(&tiny.workspace.root).unwrap();
    let only = select(load(), &Selection::Only(vec!["two".into()]), 0).unwrap();
    assert_eq!(
        only.iter()
            .map(|mutation| mutation.name.as_str())
            .collect::<Vec<_>>(),
        ["two"]
    );
    let missing = select(
        load(),
        &Selection::Only(vec!["two".into(), "four".into()]),
        0,
    )
    .unwrap_err();
    assert!(
        missing.is::<BadInput>() && missing.to_string().contains("mutants/four.toml"),
        "{missing}"
    );
    for selection in [Selection::All, Selection::Few(1)] {
        let stale = select(load(), &selection, 0).unwrap_err().to_string();
        assert!(stale.contains("mutants/three.toml is stale"), "{stale}");
    }
    assert!(select(Vec::new(), &Selection::All, 0).is_err());
}
