//! `caravan layout` as a person or a script meets it.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::Path;

use serde_json::Value;
use support::{caravan, is_refused, succeeds};
use tempfile::TempDir;

const LAYOUTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../layouts");

/// A folder with a layout that ships, changed.
fn folder(name: &str, changes: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut text = fs::read_to_string(format!("{LAYOUTS}/{name}.toml")).unwrap();
    for (from, to) in changes {
        assert!(text.contains(from), "{name} has no {from:?}");
        text = text.replace(from, to);
    }
    fs::write(folder.path().join("shop.toml"), text).unwrap();
    folder
}

fn shipped(name: &str) -> String {
    format!("{LAYOUTS}/{name}.toml")
}

#[test]
fn a_finding_points_at_its_line_and_an_error_ends_with_two() {
    let folder = folder(
        "adr-010-1",
        &[(
            "\"day(created_at)\", \"bucket(order_id)\"",
            "\"day(created_at)\"",
        )],
    );
    let output = caravan(folder.path(), &["layout", "check", "shop.toml"]);
    assert_eq!(output.status.code(), Some(2));
    let shown = String::from_utf8(output.stdout).unwrap();
    let text = fs::read_to_string(folder.path().join("shop.toml")).unwrap();
    let line = text
        .lines()
        .position(|line| line == "partition = [\"day(created_at)\"]");
    let line = line.unwrap() + 1;
    assert!(
        shown.contains("error[shared-partitions]: all writers of orders_by_period"),
        "{shown}"
    );
    assert!(
        shown.contains(&format!("--> shop.toml:{line}:13\n")),
        "{shown}"
    );
    assert!(
        shown.contains("   |             ^^^^^^^^^^^^^^^^^^^\n"),
        "{shown}"
    );
    assert!(
        shown.contains("= why: ") && shown.contains("= fix: add \"bucket(order_id)\""),
        "{shown}"
    );
    assert!(
        !shown.contains('\u{1b}'),
        "colours without a terminal: {shown:?}"
    );
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
}

#[test]
fn warnings_alone_are_shown_and_end_with_zero() {
    let shown = succeeds(
        Path::new(LAYOUTS),
        &["layout", "check", "cassandra-orders.toml"],
    );
    assert!(
        shown.contains("warning[copies-meet]: reading carts is eventual"),
        "{shown}"
    );
    assert!(
        shown.ends_with("cassandra-orders.toml: usable, no errors, 4 warnings\n"),
        "{shown}"
    );
}

#[test]
fn programs_get_the_same_as_json() {
    let folder = folder("hybrid", &[("commitlog_sync = \"group\"\n", "")]);
    fs::write(folder.path().join("broken.toml"), "name = ").unwrap();
    let files = [
        "layout",
        "check",
        "--json",
        "shop.toml",
        "broken.toml",
        "absent.toml",
    ];
    let output = caravan(folder.path(), &files);
    assert_eq!(output.status.code(), Some(2));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (shop, broken, absent) = (&report[0], &report[1], &report[2]);
    let refused = shop["findings"].as_array().unwrap();
    let first = &refused[0];
    assert_eq!(
        (shop["file"].as_str(), shop["usable"].as_bool()),
        (Some("shop.toml"), Some(false))
    );
    assert_eq!(first["rule"], "commit-before-answer");
    assert_eq!(first["severity"], "error");
    assert_eq!(first["key"], "engines.cassandra.commitlog_sync");
    assert!(first["line"].as_u64().unwrap() > 1 && first["fix"].is_string());
    assert!(
        refused
            .iter()
            .any(|finding| finding["severity"] == "warning")
    );
    assert_eq!(broken["findings"][0]["rule"], "file");
    assert_eq!(broken["findings"][0]["line"], 1);
    assert!(
        absent["findings"][0]["message"]
            .as_str()
            .unwrap()
            .contains("cannot be read")
    );
}

#[test]
fn a_file_that_is_no_layout_is_shown_where_reading_ended() {
    let folder = folder("hybrid", &[("[\"category\"]", "[\"categry\"]")]);
    let output = caravan(folder.path(), &["layout", "check", "shop.toml"]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        shown.starts_with("error[file]: there is no field \"categry\""),
        "{shown}"
    );
    assert!(shown.contains("| partition = [\"categry\"]\n"), "{shown}");
}

#[test]
fn sizes_are_estimated_for_the_load_that_is_given() {
    let file = shipped("cassandra-orders");
    let explained = |load: &[&str]| {
        let arguments: Vec<&str> = ["layout", "explain", &file]
            .iter()
            .chain(load)
            .copied()
            .collect();
        succeeds(Path::new(LAYOUTS), &arguments)
    };
    let busy = explained(&[]);
    assert!(busy.contains("263 MB: OVER the limit of 100 MB"), "{busy}");
    let quiet = explained(&["--orders-per-day", "100", "--users", "1000", "--skew", "10"]);
    assert!(
        quiet.contains("estimates for 100 orders") && !quiet.contains("OVER"),
        "{quiet}"
    );
    for operation in ["C9", "O7", "P6", "S5"] {
        assert!(quiet.contains(&format!("\n  {operation} ")), "{quiet}");
    }
    is_refused(
        Path::new(LAYOUTS),
        &["layout", "explain", &file, "--users", "0"],
        "--users",
        "--help",
    );
}

#[test]
fn two_layouts_are_compared_with_what_a_move_means() {
    let (from, to) = (shipped("embedded"), shipped("mongo-sharded"));
    let shown = succeeds(Path::new(LAYOUTS), &["layout", "diff", &from, &to]);
    assert!(shown.starts_with("embedded -> mongo-sharded\n"), "{shown}");
    assert!(
        shown.contains("products: every record is copied from local (embedded) to mongo (mongo)"),
        "{shown}"
    );
    assert!(
        shown.contains("an order and its stock are no longer one commit"),
        "{shown}"
    );
    let same = succeeds(Path::new(LAYOUTS), &["layout", "diff", &to, &to]);
    assert!(same.contains("no difference"), "{same}");
}

#[test]
fn servers_are_set_up_from_the_layout_and_not_from_a_refused_one() {
    let file = shipped("cassandra-orders");
    let cron = succeeds(
        Path::new(LAYOUTS),
        &["layout", "schema", &file, "--part", "cron"],
    );
    assert!(
        cron.contains("0 2 * * 0 nodetool repair --full -pr orders orders_by_id"),
        "{cron}"
    );
    assert!(!cron.contains("max_hint_window"), "{cron}");
    let settings = succeeds(
        Path::new(LAYOUTS),
        &["layout", "schema", &file, "--part", "settings"],
    );
    assert!(settings.contains("commitlog_sync: group"), "{settings}");
    let folder = folder("cassandra-orders", &[("commitlog_sync = \"group\"\n", "")]);
    is_refused(
        folder.path(),
        &["layout", "schema", "shop.toml"],
        "commitlog_sync is left at periodic",
        "write commitlog_sync",
    );
}
