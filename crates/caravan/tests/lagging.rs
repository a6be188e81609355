//! Two real processes over a replica set of which one secondary stands still: strangers
//! are shown old orders within the layout's bounds, nobody is shown less than its token
//! says, and "paid" is never told from a copy.

#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Answer, Server};
use testbed::{ExclusiveMongoSet, Members, MongoSet, required_or_skip};

/// Shorter than five seconds, in which order statuses may lag.
const PAID: Duration = Duration::from_secs(3);
/// Up to ten seconds, in which listings may lag, and beyond.
const PLACING: Duration = Duration::from_secs(9);

/// `mongo-sharded` with everything on one shard.
fn layout_on_one_shard(folder: &Path) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../layouts");
    let text = std::fs::read_to_string(root.join("mongo-sharded.toml")).unwrap();
    let text = text
        .replace(
            "shards = { shard-1 = [], shard-2 = [] }",
            "shards = { shard-1 = [] }",
        )
        .replace("[\"shard-1\", \"shard-2\"]", "[\"shard-1\"]")
        .replace("    { from = [\"m\"], shard = \"shard-2\" },\n", "");
    assert!(
        !text
            .lines()
            .any(|line| !line.starts_with('#') && line.contains("shard-2"))
    );
    let file = folder.join("mongo-sharded.toml");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

fn serve(set: &ExclusiveMongoSet, layout: &str, folder: &Path, name: &str) -> Server {
    let address = format!("shard-1={}", set.uri());
    let process = format!("process={name}");
    let arguments = ["--layout", layout, "--address", &address, "--set", &process];
    Server::start(folder, &arguments)
}

fn place(shop: &Server, key: &str) -> Answer {
    let order = json!({
        "user_id": "ann", "geo_zone": "north", "address": "1 Main Street", "payment_method": "card",
        "lines": [{ "product_id": "p-1", "quantity": 1, "price": "10.00", "category": "phones" }],
    });
    let headers = [("idempotency-key", key)];
    let placed = shop.send("POST", "/v1/orders", &headers, &order.to_string());
    assert_eq!(placed.status, 201, "{}", placed.text);
    placed
}

fn change(shop: &Server, order: &str, status: &str) {
    let body = json!({ "status": status }).to_string();
    let changed = shop.post(&format!("{order}/status"), &body);
    assert_eq!(changed.status, 200, "{}", changed.text);
}

fn token(answer: &Answer) -> String {
    answer.header("caravan-token").unwrap().to_owned()
}

fn lists(answer: &Answer, id: &Value) -> bool {
    assert_eq!(answer.status, 200, "{}", answer.text);
    let body = answer.json();
    let orders = body["orders"].as_array().unwrap();
    orders.iter().any(|order| order["order_id"] == *id)
}

/// The figure of the line that begins so, or 0.
fn figure(shop: &Server, line: &str) -> f64 {
    let metrics = shop.get("/metrics").text;
    let found = metrics.lines().find_map(|found| found.strip_prefix(line));
    found.map_or(0.0, |figure| figure.trim().parse().unwrap())
}

#[test]
fn beside_a_secondary_that_stands_still_nobody_is_shown_less_than_is_promised() {
    let Some(set) = required_or_skip(MongoSet::exclusive(Members::Three), "MongoDB") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let layout = layout_on_one_shard(folder.path());
    let writing = serve(&set, &layout, folder.path(), "writing");
    let reading = serve(&set, &layout, folder.path(), "reading");
    let product = json!({ "category": "phones", "name": "Phone", "price": "10.00" });
    let made = writing.send("PUT", "/v1/products/p-1", &[], &product.to_string());
    assert_eq!(made.status, 201, "{}", made.text);
    let stock = json!({ "received": 10_000 }).to_string();
    let stocked = writing.send("PUT", "/v1/products/p-1/stock/north", &[], &stock);
    assert_eq!(stocked.status, 200, "{}", stocked.text);

    let paid = place(&writing, "paid")
        .header("location")
        .unwrap()
        .to_owned();
    change(&writing, &paid, "paid");
    // Until its map has stood for as long as an answer may lag, nothing does.
    let orders = "/v1/users/ann/orders?limit=100";
    let served = "caravan_reads_total{operation=\"O2\",level=\"secondary\"}";
    reading.wait_for(orders, |_| figure(&reading, served) > 0.0);
    let young = "caravan_reads_fallbacks_total{operation=\"O2\",reason=\"map\"}";
    assert!(figure(&reading, young) > 0.0);
    reading.wait_for(&paid, |answer| answer.json()["status"] == "paid");

    let still = (set.primary().unwrap() + 1) % 3;
    set.hold_still(still).unwrap();
    let stood = Instant::now();
    change(&writing, &paid, "shipped");
    let mut reads = 0;
    while stood.elapsed() < PAID {
        let shown = reading.get(&paid);
        assert_eq!(
            shown.json()["status"],
            "shipped",
            "paid is told from a copy"
        );
        reads += 1;
    }
    let again = "caravan_reads_fallbacks_total{operation=\"O3\",reason=\"status\"}";
    println!(
        "{reads} reads of a paid order, {} told again",
        figure(&reading, again)
    );
    assert!(
        figure(&reading, again) > 0.0,
        "no copy ever said paid: {reads} reads"
    );

    let (mut placed, mut missed) = (0, 0);
    while stood.elapsed() < PLACING {
        let order = place(&writing, &format!("k-{placed}"));
        let (id, token) = (order.json()["order_id"].clone(), token(&order));
        let at = order.header("location").unwrap();
        let own = [("caravan-token", token.as_str())];
        let shown = reading.send("GET", &format!("{at}?user_id=ann"), &own, "");
        assert_eq!(shown.status, 200, "{at} is not shown to its owner");
        let listed = reading.send("GET", orders, &own, "");
        assert!(lists(&listed, &id), "{at} is not listed for its owner");
        // What one process has shown, the other does not take back.
        let seen = writing.get(orders);
        let seen = seen.header("caravan-token").unwrap();
        let listed = reading.send("GET", orders, &[("caravan-token", seen)], "");
        assert!(lists(&listed, &id), "{at} was listed before");
        missed += usize::from(!lists(&reading.get(orders), &id));
        placed += 1;
    }
    println!("{placed} orders placed, {missed} not listed for strangers");
    assert!(
        missed > 0,
        "nothing lagged, so that nothing was shown by this"
    );
    for (operation, reason) in [("O2", "token"), ("O3", "token")] {
        let line = format!(
            "caravan_reads_fallbacks_total{{operation=\"{operation}\",reason=\"{reason}\"}}"
        );
        assert!(figure(&reading, &line) > 0.0, "{line}");
    }
    // What was served kept its bound, and says so.
    for (operation, bound) in [("O2", "10.0"), ("O3", "5.0")] {
        let of = |what: &str| figure(&reading, &format!("caravan_reads_staleness_seconds_{what}"));
        let within = of(&format!(
            "bucket{{le=\"{bound}\",operation=\"{operation}\"}}"
        ));
        let all = of(&format!("count{{operation=\"{operation}\"}}"));
        println!("{operation}: {all} answers from secondaries, {within} within {bound} s");
        assert!(all > 0.0 && within >= all, "{within} of {all}");
    }
    reading.stop();
    writing.stop();
}
