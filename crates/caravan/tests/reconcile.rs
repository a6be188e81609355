//! `caravan reconcile` on a data directory: what a killed process left, found and mended
//! by the real program.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use support::{Server, caravan, command, is_refused};

/// So many that they lie on both shards, and no commit can hold them.
const PRODUCTS: usize = 12;

/// Serves two shards until an order's third piece is taken.
fn leave_an_order_half_done(folder: &Path) {
    let server = Server::start(folder, &["--shards", "2"]);
    for number in 0..PRODUCTS {
        let product = format!("/v1/products/P-{number}");
        let page = json!({"category": "phones", "name": "Kestrel", "price": "5"});
        server.put(&product, &page);
        server.put(&format!("{product}/stock/moscow"), &json!({"received": 7}));
    }
    server.stop();
    let fault = [
        ("CARAVAN_FAULT_POINT", "after:products:take:3"),
        ("CARAVAN_FAULT_ALLOWED", "this-process-may-die"),
    ];
    let server = Server::start_with(folder, &[], &fault);
    let line = |number| json!({"product_id": format!("P-{number}"), "quantity": 2, "price": "5"});
    let lines: Vec<Value> = (0..PRODUCTS).map(line).collect();
    let body = json!({"user_id": "U-1", "geo_zone": "moscow", "address": "Tverskaya 1",
        "payment_method": "card", "lines": lines});
    let key = [("Idempotency-Key", "key")];
    assert!(
        server
            .attempt("POST", "/v1/orders", &key, &body.to_string())
            .is_err()
    );
    let (status, log) = server.ended();
    assert_eq!(status.signal(), Some(9), "{log}");
}

fn reserved(server: &Server) -> u64 {
    let zone = |number: usize| server.get(&format!("/v1/products/P-{number}/stock")).json();
    let count = |number| zone(number)["zones"][0]["reserved"].as_u64().unwrap();
    (0..PRODUCTS).map(count).sum()
}

#[test]
fn a_half_done_order_is_found_by_a_dry_run_and_mended_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    leave_an_order_half_done(folder.path());
    let reconcile = |more: &[&str]| {
        let mut command = command(folder.path());
        command.arg("reconcile").args(more);
        let output = command
            .env("CARAVAN_SHOP_SWEEP_AFTER_S", "1")
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        (output.status.code(), text)
    };
    // Until the order is older than the patience.
    let text = loop {
        let (code, text) = reconcile(&["--dry-run"]);
        if code == Some(1) {
            break text;
        }
        assert_eq!(code, Some(0), "{text}");
    };
    assert!(text.contains("the order is Pending"), "{text}");
    assert!(text.contains("nothing was mended"), "{text}");
    let (code, report) = reconcile(&["--dry-run", "--json"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(
        (code, &report["left_count"]),
        (Some(1), &json!(1)),
        "{report:#}"
    );
    assert_eq!(report["left"][0]["kind"], "open orders");

    let (code, text) = reconcile(&[]);
    assert_eq!(code, Some(0), "{text}");
    let row = text.lines().find(|line| line.starts_with("open orders"));
    let numbers: Vec<&str> = row.unwrap().split_whitespace().skip(2).collect();
    assert_eq!(numbers, ["1", "1", "1", "0"], "{text}");
    let (code, text) = reconcile(&["--from", "orders"]);
    assert_eq!(code, Some(0), "{text}");

    let server = Server::start(folder.path(), &[]);
    assert_eq!(reserved(&server), 0);
    let orders = server.get("/v1/users/U-1/orders").json();
    assert_eq!(orders["orders"][0]["status"], "aborted", "{orders}");
    is_refused(folder.path(), &["reconcile"], "caravan-data", "");
    server.stop();
}

#[test]
fn a_sample_shop_has_nothing_to_reconcile() {
    let folder = tempfile::tempdir().unwrap();
    Server::start(folder.path(), &["--sample"]).stop();
    // On a slow machine it tells how far it is meanwhile.
    let output = command(folder.path()).arg("reconcile").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let row = text
        .lines()
        .find(|line| line.starts_with("pieces of a shelf"));
    let numbers: Vec<u64> = row
        .unwrap()
        .split_whitespace()
        .skip(4)
        .map(|n| n.parse().unwrap())
        .collect();
    assert!(numbers[0] > 10, "{text}");
    assert_eq!(numbers[1..], [0, 0, 0], "{text}");
}

#[test]
fn one_that_is_interrupted_says_where_to_go_on() {
    let folder = tempfile::tempdir().unwrap();
    Server::start(folder.path(), &["--sample"]).stop();
    let mut child = command(folder.path())
        .args(["reconcile", "--records-per-s", "10"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut progress = String::new();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    lines.read_line(&mut progress).unwrap();
    assert!(progress.contains("so far"), "{progress}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let place = text.rsplit("stopped: go on with --from ").next().unwrap();
    // On a busy machine it tells how far it is on its way.
    let rest = caravan(folder.path(), &["reconcile", "--from", place.trim()]);
    assert!(rest.status.success(), "{rest:?}");
    let rest = String::from_utf8(rest.stdout).unwrap();
    assert!(!rest.contains("stopped"), "{rest}");
}

#[test]
fn what_cannot_be_reconciled_is_refused_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    is_refused(folder.path(), &["reconcile"], "no data directory", "--data");
    is_refused(
        folder.path(),
        &["reconcile", "--from", "prices"],
        "prices",
        "rows-of-carts",
    );
    Server::start(folder.path(), &[]).stop();
    let slow = ["reconcile", "--records-per-s", "0"];
    is_refused(folder.path(), &slow, "records_per_s is 0", "choose 1 to");
    let half = command(folder.path())
        .env("CARAVAN_FAULT_POINT", "after:orders:create:1")
        .args(["serve", "--listen", "127.0.0.1:0"])
        .output()
        .unwrap();
    let sentence = "ends this process in the middle of a write";
    support::is_one_sentence(&half, sentence, "CARAVAN_FAULT_ALLOWED");
    let help = caravan(folder.path(), &["reconcile", "--help"]);
    assert!(String::from_utf8_lossy(&help.stdout).contains("Exit code 0"));
}
