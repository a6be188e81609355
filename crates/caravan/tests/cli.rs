//! The real program in directories of its own: what it prints, and what it refuses.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use engine_embedded::{EmbeddedConfig, EmbeddedEngine};
use tempfile::TempDir;

const LAYOUTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../layouts");

fn caravan(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_caravan"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("CARAVAN_DATA")
        .output()
        .unwrap()
}

fn succeeds(folder: &Path, arguments: &[&str]) -> String {
    let output = caravan(folder, arguments);
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments:?}: {complaint}");
    assert_eq!(complaint, "");
    String::from_utf8(output.stdout).unwrap()
}

/// Exit code 2 and one line that holds both texts.
#[track_caller]
fn is_refused(folder: &Path, arguments: &[&str], what: &str, remedy: &str) {
    let output = caravan(folder, arguments);
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(complaint.starts_with("caravan: "), "{complaint}");
    assert!(!complaint.contains('\x1b'), "{complaint:?}");
    assert!(complaint.contains(what), "{complaint}");
    assert!(complaint.contains(remedy), "{complaint}");
}

/// Every file below the folder with its bytes, every folder without.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.insert(path.clone(), Vec::new());
                open.push(path);
            } else {
                found.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn sample() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    succeeds(folder.path(), &["serve", "--sample"]);
    folder
}

fn without_sample_line(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| !line.starts_with("sample: "))
        .collect()
}

#[test]
fn the_sample_is_written_once_and_shows_the_same_figures_again() {
    let folder = tempfile::tempdir().unwrap();
    let first = succeeds(folder.path(), &["serve", "--sample"]);
    let again = succeeds(folder.path(), &["serve", "--sample"]);
    assert!(first.contains("sample: written now"), "{first}");
    assert!(again.contains("sample: found complete"), "{again}");
    assert_eq!(without_sample_line(&first), without_sample_line(&again));
    assert!(folder.path().join("caravan-data/shard-1").is_dir());
    assert!(!first.contains('\x1b'), "colours belong to terminals");
    assert!(
        !first.contains("://"),
        "nothing is served, so no address is shown"
    );
    let figures = figures(&first);
    assert_eq!(
        figures["product by id"],
        ("300".to_owned(), "300".to_owned())
    );
    assert_eq!(
        figures["products by category"],
        ("6".to_owned(), "300".to_owned())
    );
    assert_eq!(
        figures["orders by period"],
        ("1".to_owned(), "120".to_owned())
    );
    assert_eq!(
        figures["orders by user"],
        ("40".to_owned(), "120".to_owned())
    );
}

#[test]
fn shards_share_the_same_sample_and_the_map_says_how() {
    let folder = tempfile::tempdir().unwrap();
    let one = succeeds(folder.path(), &["serve", "--sample", "--data", "one"]);
    let three = succeeds(
        folder.path(),
        &["serve", "--sample", "--data", "three", "--shards", "3"],
    );
    assert_eq!(figures(&one), figures(&three));
    let map = succeeds(folder.path(), &["map", "show", "--data", "three"]);
    for (slots, shard) in [
        ("0-1365", "shard-1"),
        ("1366-2730", "shard-2"),
        ("2731-4095", "shard-3"),
    ] {
        let lines = map
            .lines()
            .filter(|line| line.contains(slots) && line.ends_with(shard));
        assert_eq!(lines.count(), 4, "{map}");
    }
    let arguments = ["serve", "--data", "three", "--shards", "2"];
    is_refused(
        folder.path(),
        &arguments,
        "has 3 shard(s), not 2",
        "leave --shards out",
    );
    let without_count = succeeds(folder.path(), &["serve", "--data", "three"]);
    assert_eq!(figures(&without_count), figures(&three));
    fs::rename(
        folder.path().join("three/shard-2"),
        folder.path().join("elsewhere"),
    )
    .unwrap();
    is_refused(
        folder.path(),
        &["map", "show", "--data", "three"],
        "shard-2 is missing",
        "restore it",
    );
    assert!(!folder.path().join("three/shard-2").exists());
}

/// What each access path was asked and found.
fn figures(text: &str) -> BTreeMap<String, (String, String)> {
    let rows = text.lines().skip_while(|line| *line != "Records").skip(2);
    rows.take_while(|line| !line.starts_with("stock: "))
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (path, figures) = words[1..].split_at(words.len() - 3);
            (
                path.join(" "),
                (figures[0].to_owned(), figures[1].to_owned()),
            )
        })
        .collect()
}

#[test]
fn a_directory_in_use_is_refused_and_none_the_worse() {
    let folder = sample();
    let before = succeeds(folder.path(), &["serve", "--sample"]);
    let tables = layout::embedded().collections.into_values();
    let holder = EmbeddedEngine::open(EmbeddedConfig {
        path: folder.path().join("caravan-data/shard-1"),
        tables: tables
            .flat_map(|collection| collection.live.tables)
            .collect(),
        cache_bytes: 1024 * 1024,
    })
    .unwrap();
    is_refused(
        folder.path(),
        &["serve", "--sample"],
        "in use by another process",
        "stop it",
    );
    is_refused(
        folder.path(),
        &["map", "show"],
        "in use by another process",
        "stop it",
    );
    drop(holder);
    assert_eq!(succeeds(folder.path(), &["serve", "--sample"]), before);
}

#[test]
fn a_newer_format_is_refused_and_nothing_is_touched() {
    let folder = sample();
    fs::write(
        folder.path().join("caravan-data/shard-1/CARAVAN-FORMAT"),
        "99\n",
    )
    .unwrap();
    let before = tree(folder.path());
    is_refused(
        folder.path(),
        &["serve", "--sample"],
        "has format 99",
        "use a newer caravan",
    );
    is_refused(
        folder.path(),
        &["map", "show"],
        "has format 99",
        "use a newer caravan",
    );
    assert!(tree(folder.path()) == before);
}

#[test]
fn a_directory_of_someone_else_is_refused_and_nothing_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("theirs/shard-1")).unwrap();
    fs::write(folder.path().join("theirs/shard-1/notes.txt"), "mine").unwrap();
    fs::create_dir_all(folder.path().join("notes")).unwrap();
    fs::write(folder.path().join("notes/list.txt"), "mine").unwrap();
    let before = tree(folder.path());
    for directory in ["theirs", "notes"] {
        let arguments = ["serve", "--sample", "--data", directory];
        is_refused(
            folder.path(),
            &arguments,
            "holds files but no",
            "choose an empty directory",
        );
    }
    let arguments = ["map", "show", "--data", "notes"];
    is_refused(folder.path(), &arguments, "is no data directory", "--data");
    is_refused(
        folder.path(),
        &["map", "show"],
        "is no data directory",
        "caravan serve --sample",
    );
    let arguments = ["serve", "--data", "notes/list.txt"];
    is_refused(
        folder.path(),
        &arguments,
        "cannot be used",
        "check the path",
    );
    let arguments = ["serve", "--data", "notes/list.txt/below"];
    is_refused(
        folder.path(),
        &arguments,
        "cannot be used",
        "check the path",
    );
    assert!(tree(folder.path()) == before);
}

#[test]
fn bad_layouts_are_refused_with_what_to_change() {
    let folder = tempfile::tempdir().unwrap();
    let good = fs::read_to_string(format!("{LAYOUTS}/embedded.toml")).unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("good.toml", &good);
    write(
        "misspelt.toml",
        &good.replace("[\"user_id\"]", "[\"usr_id\"]"),
    );
    write(
        "lacking.toml",
        &good.replace("partition = [\"category\"]", "partition = [\"name\"]"),
    );
    let verdict = succeeds(folder.path(), &["layout", "check", "good.toml"]);
    assert!(verdict.starts_with("good.toml: usable"), "{verdict}");
    let misspelt = "there is no field \"usr_id\"";
    is_refused(
        folder.path(),
        &["layout", "check", "misspelt.toml"],
        misspelt,
        "misspelt.toml:",
    );
    is_refused(
        folder.path(),
        &["layout", "explain", "lacking.toml"],
        "P2",
        "category",
    );
    let all = [
        "layout",
        "check",
        "good.toml",
        "misspelt.toml",
        "lacking.toml",
    ];
    is_refused(
        folder.path(),
        &all,
        "2 of 3 layouts cannot be used",
        "usr_id",
    );
    is_refused(
        folder.path(),
        &["layout", "check", "absent.toml"],
        "cannot be read",
        "name a text file",
    );
}

#[test]
fn layouts_are_explained_and_listed() {
    let folder = tempfile::tempdir().unwrap();
    let embedded = format!("{LAYOUTS}/embedded.toml");
    let explained = succeeds(folder.path(), &["layout", "explain", &embedded]);
    assert!(explained.contains("orders_by_user"), "{explained}");
    assert_eq!(
        succeeds(folder.path(), &["layout", "list"]).lines().count(),
        2
    );
    fs::create_dir(folder.path().join("layouts")).unwrap();
    fs::copy(&embedded, folder.path().join("layouts/mine.toml")).unwrap();
    fs::write(folder.path().join("layouts/broken.toml"), "name = ").unwrap();
    let listed = succeeds(folder.path(), &["layout", "list"]);
    let line = |name: &str| listed.lines().find(|line| line.contains(name)).unwrap();
    assert!(line("mine.toml").contains("usable"), "{listed}");
    assert!(line("broken.toml").contains("refused"), "{listed}");
}

#[test]
fn arguments_that_make_no_sense_get_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let refused =
        |arguments: &[&str], what: &str| is_refused(folder.path(), arguments, what, "--help");
    refused(&[], "no command is given");
    refused(&["swerve"], "unrecognized subcommand 'swerve'");
    refused(&["layout"], "no command is given");
    refused(&["layout", "check"], "<FILE>");
    refused(&["serve", "--shards", "0"], "'0'");
    refused(&["serve", "--shards", "many"], "'many'");
    refused(&["serve", "--loud"], "unexpected argument '--loud'");
    assert!(tree(folder.path()).is_empty());
    let help = succeeds(folder.path(), &["serve", "--help"]);
    assert!(
        help.contains("CARAVAN_DATA") && help.contains("--sample"),
        "{help}"
    );
    assert!(succeeds(folder.path(), &["--version"]).starts_with("caravan "));
}
