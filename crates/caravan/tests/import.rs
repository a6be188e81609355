//! Catalogues: into a directory, into a running shop, and what is refused.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use support::{Server, caravan, command, is_one_sentence, succeeds};

fn catalogue(count: usize) -> String {
    let line = |number: usize| {
        format!(
            "{{\"product_id\":\"P/{number}\",\"category\":\"чехлы\",\"name\":\"Чехол {number}\",\"price\":\"{number}.50\",\"stock\":{{\"moscow\":{number}}}}}\n"
        )
    };
    (1..=count).map(line).collect()
}

fn write(folder: &Path, text: &str) {
    fs::write(folder.join("catalogue.jsonl"), text).unwrap();
}

/// Products in the shop, and the last one's price and stock.
fn check(server: &Server, count: usize, price: &str) {
    let listed = server
        .get("/v1/products?category=%D1%87%D0%B5%D1%85%D0%BB%D1%8B&limit=100")
        .json();
    assert_eq!(
        listed["products"].as_array().unwrap().len(),
        count,
        "{listed}"
    );
    let last = server.get(&format!("/v1/products/P%2F{count}")).json();
    assert_eq!(last["price"], price, "{last}");
    assert_eq!(last["stock"][0]["available"], count, "{last}");
}

#[test]
fn a_catalogue_goes_into_a_directory_or_a_running_shop_and_again() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &catalogue(90));
    let import = ["import", "catalogue.jsonl"];
    assert_eq!(succeeds(folder.path(), &import), "products imported: 90\n");
    let server = Server::start(folder.path(), &[]);
    check(&server, 90, "90.5");

    write(folder.path(), &catalogue(95).replace(".50", ".75"));
    let import = ["import", "catalogue.jsonl", "--to", &server.url];
    for _ in 0..2 {
        assert_eq!(succeeds(folder.path(), &import), "products imported: 95\n");
        check(&server, 95, "95.75");
    }
    let offline = caravan(folder.path(), &["import", "catalogue.jsonl"]);
    is_one_sentence(&offline, "in use by another process", "stop it");
}

#[test]
fn one_bad_line_and_nothing_is_written_unless_it_may_be_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = catalogue(3);
    text += "{\"product_id\":\"P/4\",\"category\":\"c\",\"name\":\"n\",\"price\":\"cheap\"}\n";
    text += &catalogue(1);
    write(folder.path(), &text);
    let output = caravan(folder.path(), &["import", "catalogue.jsonl"]);
    assert_eq!(output.status.code(), Some(2));
    let complaint = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = complaint.lines().collect();
    assert!(lines[0].starts_with("line 4: price: "), "{complaint}");
    assert!(
        lines[1].starts_with("line 5: product P/1 stands in line 1 already"),
        "{complaint}"
    );
    assert!(
        lines[2].contains("2 of 5 lines") && lines[2].contains("--skip-bad"),
        "{complaint}"
    );
    assert!(!folder.path().join("caravan-data").exists());

    let output = caravan(folder.path(), &["import", "catalogue.jsonl", "--skip-bad"]);
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed, "products imported: 3, lines left out: 2\n");
    check(&Server::start(folder.path(), &[]), 3, "3.5");
}

#[test]
fn what_the_shop_refuses_is_told_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &catalogue(2));
    succeeds(folder.path(), &["import", "catalogue.jsonl"]);
    write(
        folder.path(),
        &catalogue(2).replace("чехлы", "cases").replace("P/1", "P/9"),
    );
    let offline = caravan(folder.path(), &["import", "catalogue.jsonl"]);
    is_one_sentence(
        &offline,
        "line 2 was refused (product P/2 is in category",
        "--skip-bad",
    );
    let server = Server::start(folder.path(), &[]);
    let running = caravan(
        folder.path(),
        &["import", "catalogue.jsonl", "--to", &server.url],
    );
    is_one_sentence(
        &running,
        "line 2 was refused (product P/2 is in category",
        "--skip-bad",
    );
    let skipping = [
        "import",
        "catalogue.jsonl",
        "--skip-bad",
        "--to",
        &server.url,
    ];
    let output = caravan(folder.path(), &skipping);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed, "products imported: 1, lines left out: 1\n");
}

#[test]
fn standard_input_is_a_file_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = command(folder.path())
        .args(["import", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(catalogue(5).as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "products imported: 5\n"
    );
    check(&Server::start(folder.path(), &[]), 5, "5.5");
}

#[test]
fn a_file_or_shop_that_is_not_there_costs_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], what: &str, remedy: &str| {
        is_one_sentence(&caravan(folder.path(), arguments), what, remedy);
    };
    refused(
        &["import", "absent.jsonl"],
        "absent.jsonl cannot be read",
        "name a file",
    );
    refused(&["import", "."], ". cannot be read", "name a file");
    write(folder.path(), &catalogue(1));
    refused(
        &["import", "catalogue.jsonl", "--to", "https://shop"],
        "https://shop",
        "http://",
    );
    let nobody = "http://127.0.0.1:9";
    refused(
        &["import", "catalogue.jsonl", "--to", nobody],
        "does not answer",
        "import again",
    );
    refused(
        &["import", "catalogue.jsonl", "--to", nobody, "--data", "x"],
        "--data",
        "--help",
    );
}
