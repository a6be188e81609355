//! The real server: its routes, its end in peace and otherwise, and what it keeps.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use support::{Answer, Server, caravan, is_one_sentence};

const PHONE: &str = "/v1/products/PHONE-0001";

/// An order of one sample phone, with the price that the shop asks now.
fn order(server: &Server, key: &str) -> Answer {
    let phone = server.get(PHONE).json();
    let body = json!({
        "user_id": "USER-1",
        "lines": [{"product_id": "PHONE-0001", "quantity": 1, "price": phone["price"]}],
        "geo_zone": "moscow",
        "address": "ул. Садовая, 1",
        "payment_method": "card",
    });
    server.send(
        "POST",
        "/v1/orders",
        &[("Idempotency-Key", key)],
        &body.to_string(),
    )
}

fn sold(server: &Server) -> Value {
    let stock = server.get(&format!("{PHONE}/stock")).json();
    let zones = stock["zones"].as_array().unwrap();
    zones.iter().find(|zone| zone["zone"] == "moscow").unwrap()["sold"].clone()
}

#[test]
fn the_sample_can_be_browsed_searched_and_measured() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--sample"]);
    assert!(
        server
            .line
            .ends_with("(data: ./caravan-data, shards: 1, sample: written now)\n"),
        "{}",
        server.line
    );
    for path in [
        "/",
        "/health/live",
        "/health/ready",
        "/openapi.json",
        "/docs",
        "/problems",
    ] {
        let answer = server.get(path);
        assert!(
            (200..400).contains(&answer.status),
            "{path}: {}",
            answer.status
        );
    }
    let page = server
        .get("/v1/products?category=smartphones&limit=100")
        .json();
    assert_eq!(page["products"].as_array().unwrap().len(), 50);
    let search = server.wait_for("/v1/products/search?q=kestrel", |answer| {
        answer.status == 200
    });
    let found = search.json();
    assert!(found["products"].as_array().unwrap().len() > 10, "{found}");
    let russian = "/v1/products/search?q=%D1%81%D0%BC%D0%B0%D1%80%D1%82%D1%84%D0%BE%D0%BD%D1%8B";
    assert!(
        !server.get(russian).json()["products"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    assert_eq!(server.get("/v1/nothing").status, 404);
    let metrics = server.get("/metrics").text;
    for name in [
        "caravan_engine_operation_seconds_count{shard=\"shard-1\",operation=\"apply\"}",
        "caravan_engine_operation_seconds_bucket{le=\"+Inf\",shard=\"shard-1\",operation=\"get\"}",
        "caravan_engine_commits_total{shard=\"shard-1\"}",
        "caravan_engine_commit_requests_total",
        "caravan_sweeper_orders_finished_total",
        "caravan_upkeep_journal_entries_total",
        "caravan_search_lag_seconds",
        "caravan_search_products 300",
        "caravan_router_map_generation",
        "caravan_http_requests_total",
    ] {
        assert!(metrics.contains(name), "{name} is missing in\n{metrics}");
    }
    let log = server.stop();
    assert!(log.contains("SIGTERM") && log.contains("closed"), "{log}");
    assert!(!log.contains('\x1b') && !log.contains("ERROR"), "{log}");
}

/// The value of a figure of the first shard.
fn figure(server: &Server, name: &str) -> u64 {
    let metrics = server.get("/metrics").text;
    let wanted = format!("{name}{{shard=\"shard-1\"}} ");
    let mut values = metrics
        .lines()
        .filter_map(|line| line.strip_prefix(&wanted));
    let value = values.next();
    value
        .unwrap_or_else(|| panic!("{name} is missing in\n{metrics}"))
        .parse()
        .unwrap()
}

#[test]
fn commits_and_the_length_of_the_journal_are_told_and_the_latter_outlives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    assert_eq!(figure(&server, "caravan_engine_journal_entries"), 0);
    let commits = figure(&server, "caravan_engine_commits_total");
    let requests = figure(&server, "caravan_engine_commit_requests_total");
    for user in ["USER-1", "USER-2", "USER-3"] {
        let body = json!({ "user_id": user }).to_string();
        assert_eq!(server.send("POST", "/v1/carts", &[], &body).status, 201);
    }
    assert_eq!(figure(&server, "caravan_engine_journal_entries"), 3);
    assert_eq!(figure(&server, "caravan_engine_commits_total"), commits + 3);
    // Upkeep asks too, and commits nothing here.
    assert!(figure(&server, "caravan_engine_commit_requests_total") >= requests + 3);
    server.kill();
    let server = Server::start(folder.path(), &[]);
    assert_eq!(figure(&server, "caravan_engine_journal_entries"), 3);
}

#[test]
fn an_order_outlives_the_server_that_was_killed_after_its_answer() {
    let folder = tempfile::tempdir().unwrap();
    for shards in ["1", "3"] {
        let arguments = ["--sample", "--shards", shards, "--data", shards];
        let server = Server::start(folder.path(), &arguments);
        let before = sold(&server);
        let placed = order(&server, "key-1");
        assert_eq!(placed.status, 201, "{}", placed.text);
        let id = placed.json()["order_id"].as_str().unwrap().to_owned();
        server.kill();

        let server = Server::start(folder.path(), &arguments);
        assert!(server.line.contains("sample: there"), "{}", server.line);
        let kept = server.get(&format!("/v1/orders/{id}"));
        assert_eq!(kept.json(), placed.json());
        let again = order(&server, "key-1");
        assert_eq!(
            (again.status, again.header("idempotent-replay")),
            (200, Some("true"))
        );
        assert_eq!(again.json(), placed.json());
        assert_eq!(
            sold(&server).as_u64().unwrap(),
            before.as_u64().unwrap() + 1
        );
        let history = server.get("/v1/users/USER-1/orders").json();
        assert_eq!(history["orders"].as_array().unwrap().len(), 1);
        server.stop();
    }
}

/// A request whose body has not all arrived yet.
fn half_a_request(server: &Server) -> (TcpStream, &'static str) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let body = "{\"user_id\":\"USER-7\"}";
    let (first, rest) = body.split_at(5);
    write!(
        stream,
        "POST /v1/carts HTTP/1.1\r\nhost: shop\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{first}",
        body.len(),
    )
    .unwrap();
    // The head has been read for certain once the server answers another connection.
    assert_eq!(server.get("/health/live").status, 200);
    (stream, rest)
}

#[test]
fn requests_under_way_are_answered_before_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let (mut stream, rest) = half_a_request(&server);
    server.signal(Signal::TERM);
    // Nothing new is accepted once it drains.
    while TcpStream::connect(server.address()).is_ok() {
        std::thread::sleep(Duration::from_millis(5));
    }
    stream.write_all(rest.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    let (status, log) = server.ended();
    assert!(status.success(), "{log}");
    let server = Server::start(folder.path(), &[]);
    assert_eq!(server.get("/v1/carts/active?user_id=USER-7").status, 200);
}

#[test]
fn a_second_signal_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--set",
        "http.drain_ms_max=600000",
        "--set",
        "http.body_read_ms_max=600000",
        "--set",
        "http.request_ms_max=600000",
    ];
    let mut server = Server::start(folder.path(), &arguments);
    let (_stream, _) = half_a_request(&server);
    server.signal(Signal::INT);
    while TcpStream::connect(server.address()).is_ok() {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(server.is_running());
    server.signal(Signal::INT);
    let (status, log) = server.ended();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("stopping at once"), "{log}");
}

#[test]
fn an_address_that_cannot_be_had_costs_one_sentence_and_no_data() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = caravan(folder.path(), &["serve", "--listen", &address]);
    is_one_sentence(&output, "cannot be served at", "--listen");
    let output = caravan(folder.path(), &["serve", "--listen", "somewhere"]);
    is_one_sentence(&output, "--listen", "address");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn logs_are_json_lines_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--log", "json/info"]);
    let log = server.stop();
    assert!(!log.is_empty());
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(
            line["message"].is_string() && line["level"].is_string(),
            "{line}"
        );
    }
}
