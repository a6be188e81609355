//! The real program in directories of its own: what it prints, and what it refuses.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use engine_embedded::{EmbeddedConfig, EmbeddedEngine};
use support::{Server, command, is_one_sentence, is_refused, succeeds};
use tempfile::TempDir;

const LAYOUTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../layouts");

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
    Server::start(folder.path(), &["--sample"]).stop();
    folder
}

/// What the sample's shop shows: all products of a category and all orders.
fn shown(server: &Server) -> Vec<String> {
    let mut pages = vec![server.get("/v1/products?category=cases&limit=100").text];
    let mut cursor = String::new();
    loop {
        let page = server.get(&format!("/v1/orders?limit=100{cursor}"));
        pages.push(page.json()["orders"].to_string());
        match page.json()["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return pages,
        }
    }
}

#[test]
fn the_sample_is_written_once_and_shows_the_same_again() {
    let folder = tempfile::tempdir().unwrap();
    let first = Server::start(folder.path(), &["--sample"]);
    assert!(first.line.contains("sample: written now"), "{}", first.line);
    let before = shown(&first);
    first.stop();
    for arguments in [&["--sample"][..], &[]] {
        let again = Server::start(folder.path(), arguments);
        assert!(again.line.contains("sample: there"), "{}", again.line);
        assert_eq!(shown(&again), before);
        again.stop();
    }
    assert!(folder.path().join("caravan-data/shard-1").is_dir());
}

#[test]
fn shards_share_the_sample_and_the_map_says_how() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--sample", "--data", "three", "--shards", "3"];
    Server::start(folder.path(), &arguments).stop();
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
    let arguments = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        "three",
        "--shards",
        "2",
    ];
    is_refused(
        folder.path(),
        &arguments,
        "has 3 shard(s), not 2",
        "leave --shards out",
    );
    let without_count = Server::start(folder.path(), &["--data", "three"]);
    assert!(
        without_count.line.contains("shards: 3"),
        "{}",
        without_count.line
    );
    without_count.stop();
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

#[test]
fn a_directory_in_use_is_refused_and_none_the_worse() {
    let folder = sample();
    let before = succeeds(folder.path(), &["map", "show"]);
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
        &["serve", "--sample", "--listen", "127.0.0.1:0"],
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
    assert_eq!(succeeds(folder.path(), &["map", "show"]), before);
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
        &["serve", "--sample", "--listen", "127.0.0.1:0"],
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
        let arguments = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--sample",
            "--data",
            directory,
        ];
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
    let arguments = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        "notes/list.txt",
    ];
    is_refused(
        folder.path(),
        &arguments,
        "cannot be used",
        "check the path",
    );
    let arguments = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        "notes/list.txt/below",
    ];
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
    refused(&["serve", "--loud"], "unexpected argument '--loud'");
    is_refused(
        folder.path(),
        &["serve", "--shards", "0"],
        "shards is 0",
        "choose 1 to 16",
    );
    is_refused(
        folder.path(),
        &["serve", "--shards", "many"],
        "--shards: ",
        "many",
    );
    is_refused(
        folder.path(),
        &["serve", "--log", "loud"],
        "--log: ",
        "plain/info",
    );
    assert!(tree(folder.path()).is_empty());
    for command in ["serve", "import"] {
        let help = succeeds(folder.path(), &[command, "--help"]);
        assert!(
            help.contains("--data") && help.contains("Examples:"),
            "{help}"
        );
    }
    assert!(succeeds(folder.path(), &["--version"]).starts_with("caravan "));
}

#[test]
fn settings_come_from_file_environment_and_flags_and_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("shop.toml"),
        "shards = 2\n[http]\nslow_ms = 5\n",
    )
    .unwrap();
    let output = command(folder.path())
        .args([
            "config",
            "--config",
            "shop.toml",
            "--listen",
            "127.0.0.1:81",
        ])
        .env("CARAVAN_HTTP_SLOW_MS", "6")
        .output()
        .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    for line in [
        "shards = 2",
        "listen = \"127.0.0.1:81\"",
        "slow_ms = 6",
        "[router]",
        "[upkeep]",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
    }
    fs::write(folder.path().join("shop.toml"), &shown).unwrap();
    let again = succeeds(folder.path(), &["config", "--config", "shop.toml"]);
    assert_eq!(again, shown);
}

#[test]
fn a_setting_that_nobody_knows_is_refused_by_name_wherever_it_stands() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("shop.toml"), "[http]\nslow = 5\n").unwrap();
    for command in [&["serve"][..], &["config"], &["map", "show"]] {
        let arguments = [command, &["--config", "shop.toml"]].concat();
        is_refused(
            folder.path(),
            &arguments,
            "shop.toml: there is no setting \"http.slow\"",
            "http.slow_ms",
        );
    }
    let output = command(folder.path())
        .arg("serve")
        .env("CARAVAN_LISEN", "127.0.0.1:81")
        .output()
        .unwrap();
    is_one_sentence(&output, "CARAVAN_LISEN sets nothing", "CARAVAN_LISTEN");
    is_refused(
        folder.path(),
        &["serve", "--set", "lisen=1"],
        "\"lisen\"",
        "listen",
    );
    is_refused(
        folder.path(),
        &["serve", "--config", "absent.toml"],
        "cannot be read",
        "name a TOML file",
    );
    let wrong = ["serve", "--set", "http.connections_max=0"];
    is_refused(
        folder.path(),
        &wrong,
        "http.connections_max is 0",
        "choose 1 to",
    );
    assert_eq!(tree(folder.path()).len(), 1);
}
