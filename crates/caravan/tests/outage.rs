//! The cluster that keeps carts is lost: the rest of the shop goes on, says what is
//! missing, and has it back when the cluster is.

#![allow(clippy::unwrap_used)]

mod support;

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};
use support::{Answer, Server};
use testbed::{CassandraCluster, Members, Nodes, required_or_skip};

/// The layout `cassandra-orders` as it ships, with names of its own for this run.
fn layout(folder: &Path, run: &str) -> String {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../layouts/cassandra-orders.toml");
    let mut own = String::new();
    for line in std::fs::read_to_string(shipped).unwrap().lines() {
        match line.strip_prefix("keyspace = \"") {
            Some(rest) => {
                let keyspace = rest.trim_end_matches('"');
                writeln!(own, "keyspace = \"{keyspace}_{run}\"").unwrap();
            }
            None => writeln!(own, "{line}").unwrap(),
        }
    }
    let file = folder.join("cassandra-orders.toml");
    std::fs::write(&file, own).unwrap();
    file.to_str().unwrap().to_owned()
}

/// A shop to be walked through.
struct Walk(Server);

impl Walk {
    #[track_caller]
    fn sent(&self, method: &str, path: &str, body: &Value, expected: u16) -> Value {
        let answer = self.0.send(method, path, &[], &body.to_string());
        assert_eq!(answer.status, expected, "{path}: {}", answer.text);
        answer.json()
    }

    #[track_caller]
    fn found(&self, path: &str) -> Value {
        let answer = self.0.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.json()
    }

    /// An order by the API, without a cart.
    fn order(&self, key: &str) -> Answer {
        let body = json!({"user_id": "U-1", "geo_zone": "moscow", "address": "Tverskaya 1",
            "payment_method": "card",
            "lines": [{"product_id": "PHONE-1", "category": "phones", "quantity": 1, "price": "100"}]});
        let key = [("Idempotency-Key", key)];
        self.0.send("POST", "/v1/orders", &key, &body.to_string())
    }

    /// Refused by the shop itself: one that had run out of its time would be 504.
    #[track_caller]
    fn is_down(&self, method: &str, path: &str, body: &str) {
        let answer = self.0.send(method, path, &[], body);
        assert_eq!(answer.status, 503, "{method} {path}: {}", answer.text);
        assert!(answer.header("retry-after").is_some(), "{}", answer.text);
        let problem = answer.json();
        let code = problem["type"].as_str().unwrap().to_owned();
        let known = ["/problems/unavailable", "/problems/outcome-unknown"];
        assert!(known.contains(&&*code), "{problem}");
    }

    /// The shards that each collection misses, as readiness names them.
    fn missing(ready: &Value) -> Vec<(String, Vec<String>)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let checks = ready["checks"].as_array().unwrap().iter();
        let missing = checks.map(|check| {
            let down: Vec<String> = check["down"].as_array().unwrap().iter().map(text).collect();
            assert_eq!(check["answers"], down.is_empty(), "{ready}");
            (text(&check["collection"]), down)
        });
        missing.filter(|(_, down)| !down.is_empty()).collect()
    }
}

#[test]
fn with_the_carts_cluster_down_orders_and_products_go_on() {
    let mongo = required_or_skip(testbed::mongo(Members::One), "MongoDB");
    let orders = required_or_skip(testbed::cassandra(Nodes::One), "Cassandra");
    let carts = required_or_skip(CassandraCluster::exclusive(Nodes::One), "Cassandra");
    let (Some(mongo), Some(orders), Some(carts)) = (mongo, orders, carts) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = layout(folder.path(), &orders.keyspace("o"));
    let on_cassandra = |name: &str, points: Vec<std::net::SocketAddr>| {
        format!("{name}={}/?replication=datacenter1:1", points[0])
    };
    let addresses = [
        on_cassandra("orders", orders.contact_points()),
        on_cassandra("carts", carts.contact_points()),
        format!("mongo={}", mongo.uri()),
    ];
    let mut arguments = vec!["--layout", &*file];
    arguments.extend(
        addresses
            .iter()
            .flat_map(|address| ["--address", &**address]),
    );
    let shop = Walk(Server::start(folder.path(), &arguments));

    let phone = json!({"category": "phones", "name": "Kestrel", "price": "100"});
    shop.sent("PUT", "/v1/products/PHONE-1", &phone, 201);
    let stock = json!({"received": 50});
    shop.sent("PUT", "/v1/products/PHONE-1/stock/moscow", &stock, 200);
    let cart = shop.sent("POST", "/v1/carts", &json!({"user_id": "U-1"}), 201);
    let cart = cart["cart_id"].as_str().unwrap();
    let item = format!("/v1/carts/{cart}/items/PHONE-1");
    shop.sent("PUT", &item, &json!({"quantity": 2}), 200);
    let before = shop.order("before");
    assert_eq!(before.status, 201, "{}", before.text);

    carts.kill9(0).unwrap();
    let degraded = |ready: &Answer| ready.json()["status"] == "degraded";
    let ready = shop.0.wait_for("/health/ready", degraded);
    assert_eq!(
        ready.status, 200,
        "the others are to be asked: {}",
        ready.text
    );
    let down = |collection: &str| (collection.to_owned(), vec!["carts".to_owned()]);
    assert_eq!(
        Walk::missing(&ready.json()),
        [down("carts"), down("sessions")]
    );

    shop.is_down("GET", "/v1/carts/active?user_id=U-1", "");
    shop.is_down("GET", &format!("/v1/carts/{cart}"), "");
    shop.is_down("PUT", &item, r#"{"quantity":3}"#);
    shop.is_down("POST", "/v1/carts", r#"{"user_id":"U-2"}"#);

    let meanwhile = shop.order("meanwhile");
    assert_eq!(meanwhile.status, 201, "{}", meanwhile.text);
    assert_eq!(shop.order("meanwhile").status, 200, "a repeat is known");
    for order in [&before, &meanwhile] {
        let id = order.json()["order_id"].as_str().unwrap().to_owned();
        assert_eq!(shop.found(&format!("/v1/orders/{id}"))["status"], "created");
    }
    let listed = shop.found("/v1/users/U-1/orders");
    assert_eq!(listed["orders"].as_array().unwrap().len(), 2, "{listed}");
    let page = shop.found("/v1/products/PHONE-1");
    assert_eq!(page["stock"][0]["available"], 48, "{page}");

    carts.restart(0).unwrap();
    shop.0
        .wait_for("/health/ready", |ready| ready.json()["status"] == "ready");
    let active = shop.found("/v1/carts/active?user_id=U-1");
    let quantity = active["items"][0]["quantity"].as_u64().unwrap();
    // The change that was refused, or is not known, may have landed.
    assert!([2, 3].contains(&quantity), "{active}");
    shop.sent("PUT", &item, &json!({"quantity": 4}), 200);
    let active = shop.found("/v1/carts/active?user_id=U-1");
    assert_eq!(active["items"][0]["quantity"], 4, "{active}");
    let Walk(server) = shop;
    server.stop();
}
