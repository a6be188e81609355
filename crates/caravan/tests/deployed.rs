//! The shop on real servers: every operation on every layout, by the real program.

#![allow(clippy::unwrap_used)]

mod support;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use serde_json::{Value, json};
use support::{Answer, Server, command, is_one_sentence};
use testbed::{CassandraCluster, Members, MongoSet, Nodes, required_or_skip};

/// What the layouts are run on.
struct Servers {
    mongo: MongoSet,
    second: MongoSet,
    cassandra: CassandraCluster,
    /// Ends the names of databases and keyspaces, so that runs do not meet.
    run: String,
}

/// Where each shard of a layout is.
type Shards<'a> = Vec<(&'a str, &'a str)>;

impl Servers {
    fn start() -> Option<Servers> {
        let label = "second".parse().unwrap();
        let mongo = required_or_skip(testbed::mongo(Members::One), "MongoDB")?;
        let second = required_or_skip(testbed::mongo_labelled(Members::One, &label), "MongoDB")?;
        let cassandra = required_or_skip(testbed::cassandra(Nodes::One), "Cassandra")?;
        let run = cassandra.keyspace("r");
        Some(Servers {
            mongo,
            second,
            cassandra,
            run,
        })
    }

    /// The layout that ships, with names of its own for this run.
    fn layout(&self, name: &str, folder: &Path) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../layouts");
        let text = std::fs::read_to_string(root.join(format!("{name}.toml"))).unwrap();
        let mut own = String::new();
        for line in text.lines() {
            match line.strip_prefix("keyspace = \"") {
                Some(rest) => {
                    let keyspace = rest.trim_end_matches('"');
                    writeln!(own, "keyspace = \"{}\"", self.named(name, keyspace)).unwrap();
                }
                None => writeln!(own, "{line}").unwrap(),
            }
        }
        let file = folder.join(format!("{name}.toml"));
        std::fs::write(&file, own).unwrap();
        file.to_str().unwrap().to_owned()
    }

    fn named(&self, layout: &str, keyspace: &str) -> String {
        let short: String = layout.chars().filter(char::is_ascii_alphanumeric).collect();
        format!("{keyspace}_{short}_{}", self.run)
    }

    /// What the servers themselves say they are: MongoDB alone, and with Cassandra.
    fn versions(&self) -> (String, String) {
        let mongo = self.mongo.version().unwrap();
        assert_eq!(self.second.version().unwrap(), mongo);
        let cassandra = self.cassandra.version().unwrap();
        let mongo = format!("MongoDB {mongo}");
        let both = format!("Cassandra {cassandra}, {mongo}");
        (mongo, both)
    }

    fn cassandra_address(&self) -> String {
        let points = self.cassandra.contact_points();
        format!("{}/?replication=datacenter1:1", points[0])
    }

    fn serve(&self, layout: &str, shards: &[(&str, &str)], folder: &Path) -> Server {
        self.serve_with(layout, shards, &[], folder)
    }

    fn serve_with(
        &self,
        layout: &str,
        shards: &[(&str, &str)],
        more: &[&str],
        folder: &Path,
    ) -> Server {
        let mut arguments = self.arguments(layout, shards, folder);
        arguments.extend(more.iter().map(|&more| more.to_owned()));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Server::start(folder, &arguments)
    }

    fn arguments(&self, layout: &str, shards: &[(&str, &str)], folder: &Path) -> Vec<String> {
        let mut arguments = vec!["--layout".to_owned(), self.layout(layout, folder)];
        for (shard, address) in shards {
            arguments.push("--address".to_owned());
            arguments.push(format!("{shard}={address}"));
        }
        arguments
    }

    /// Every round goes to its end, and what the walk did left nothing.
    fn has_nothing_to_reconcile(&self, layout: &str, shards: &[(&str, &str)], folder: &Path) {
        let arguments = self.arguments(layout, shards, folder);
        let mut reconcile = command(folder);
        reconcile.args(["reconcile", "--dry-run", "--json"]);
        let output = reconcile.args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{layout}: {output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let kind = |name: &str| {
            let mut kinds = report["kinds"].as_array().unwrap().iter();
            let found = kinds.find(|kind| kind["kind"] == name);
            found.unwrap()["looked_at"].as_u64().unwrap()
        };
        assert_eq!(kind("pieces of a shelf"), 2, "{layout}: {report:#}");
        assert!(kind("active carts") > 0, "{layout}: {report:#}");
        assert!(kind("derived rows") > 0, "{layout}: {report:#}");
    }
}

#[test]
fn every_operation_works_on_every_layout() {
    let Some(servers) = Servers::start() else {
        return;
    };
    let (mongo, second) = (servers.mongo.uri(), servers.second.uri());
    let cassandra = servers.cassandra_address();
    let (on_mongo, on_both) = servers.versions();
    let layouts: [(&str, &str, Shards<'_>); 5] = [
        ("embedded", "embedded", Vec::new()),
        (
            "mongo-sharded",
            &on_mongo,
            vec![("shard-1", &mongo), ("shard-2", &second)],
        ),
        (
            "cassandra-orders",
            &on_both,
            vec![
                ("orders", &cassandra),
                ("carts", &cassandra),
                ("mongo", &mongo),
            ],
        ),
        (
            "hybrid",
            &on_both,
            vec![("cassandra", &cassandra), ("mongo", &mongo)],
        ),
        (
            "adr-010-1",
            &on_both,
            vec![("cassandra", &cassandra), ("mongo", &mongo)],
        ),
    ];
    let mut table =
        String::from("| layout | servers | operations that worked |\n| --- | --- | --- |\n");
    for (layout, on, shards) in layouts {
        let folder = tempfile::tempdir().unwrap();
        let server = servers.serve(layout, &shards, folder.path());
        let worked = Walk(&server).all();
        assert_eq!(worked.len(), 27, "{layout}: {worked:?}");
        writeln!(table, "| {layout} | {on} | {} |", worked.join(" ")).unwrap();
        let orders = server.get("/v1/orders").json();
        let month = &orders["orders"][0]["created_at"].as_str().unwrap()[..7];
        look_at_the_tables(&servers, layout, month);
        // Beside the shop that serves, where another process can be.
        if layout != "embedded" {
            servers.has_nothing_to_reconcile(layout, &shards, folder.path());
        }
        server.stop();
        servers.has_nothing_to_reconcile(layout, &shards, folder.path());
    }
    println!("{table}");
}

/// The rows as a bare connection finds them, in the tables of the papers.
fn look_at_the_tables(servers: &Servers, layout: &str, month: &str) {
    let rows = |keyspace: &str, rest: &str, expected: usize| {
        let keyspace = servers.named(layout, keyspace);
        let statement = format!("SELECT * FROM {keyspace}.{rest}");
        let found = servers.cassandra.count_rows(&statement).unwrap();
        assert_eq!(found, expected, "{layout}: {statement}");
    };
    let documents = |set: &MongoSet, collection: &str| {
        let database = servers.named(layout, "shop");
        set.count_documents(&database, collection)
            .unwrap_or_default()
    };
    match layout {
        "embedded" => {}
        "mongo-sharded" => {
            for (collection, expected) in [("orders", 6), ("carts", 5)] {
                let both = [&servers.mongo, &servers.second];
                let found: i32 = both.iter().map(|set| documents(set, collection)).sum();
                assert_eq!(found, expected, "{layout}: {collection}");
            }
        }
        "cassandra-orders" => {
            rows("orders", "orders_by_user WHERE user_id = 'U-1'", 6);
            rows("orders", "orders_by_id", 6);
            rows(
                "carts",
                "carts_by_user WHERE user_id = 'U-2' AND status = 'active'",
                1,
            );
            assert!(documents(&servers.mongo, "products") >= 2);
        }
        "hybrid" => {
            rows("shop", "user_carts WHERE user_id = 'U-2'", 1);
            // Live, or the mark of one that went to the history.
            assert_eq!(documents(&servers.mongo, "orders"), 6);
        }
        "adr-010-1" => {
            let of_user = format!("user_id = 'U-1' AND created_at_month = '{month}'");
            rows("shop", &format!("order_history WHERE {of_user}"), 6);
            // A row for the cart and one for its only product.
            rows("shop", "carts_by_user WHERE user_id = 'U-2'", 2);
        }
        other => panic!("{other} has no expectation"),
    }
}

/// A walk through all operations of a shop that is empty at the start.
struct Walk<'a>(&'a Server);

impl Walk<'_> {
    fn all(&self) -> Vec<&'static str> {
        let mut worked = Vec::new();
        worked.extend(self.products());
        worked.extend(self.sessions());
        worked.extend(self.carts());
        worked.extend(self.orders());
        worked
    }

    fn products(&self) -> [&'static str; 4] {
        for (id, price) in [("PHONE-1", "100"), ("PHONE-2", "50")] {
            let page = json!({"category": "phones", "name": format!("Kestrel {id}"), "price": price,
                "attributes": {"colour": "black"}});
            let path = format!("/v1/products/{id}");
            self.put(&path, &page, 201);
            let stock = json!({"received": 50});
            let zones = self.put(&format!("{path}/stock/moscow"), &stock, 200);
            assert_eq!(zones["zones"][0]["available"], 50);
        }
        let page = self.found("/v1/products/PHONE-1");
        assert_eq!(page["attributes"]["colour"], "black");
        assert_eq!(page["stock"][0]["available"], 50);
        let dear = self.found("/v1/products?category=phones&min_price=60");
        assert_eq!(dear["products"].as_array().unwrap().len(), 1, "{dear}");
        self.0.wait_for("/v1/products/search?q=kestrel", |answer| {
            let found = || answer.json()["products"].as_array().map_or(0, Vec::len);
            answer.status == 200 && found() == 2
        });
        let stock = self.found("/v1/products/PHONE-1/stock");
        assert_eq!(stock["zones"][0]["received"], 50);
        ["P1", "P2", "P3", "P4"]
    }

    fn sessions(&self) -> [&'static str; 5] {
        let wish = json!({"user_id": "U-2", "ip_address": "203.0.113.7", "device_type": "phone",
            "geo_zone": "moscow", "data": {"theme": "dark"}});
        let session = self.post("/v1/sessions", &wish, 201);
        let id = session["session_id"].as_str().unwrap();
        let path = format!("/v1/sessions/{id}");
        let read = self.found(&path);
        assert_eq!(read["data"]["theme"], "dark");
        assert_eq!(read["ip_address"], "203.0.113.7");
        assert!(read["expires_at"].is_string());
        let touched = self
            .0
            .send("POST", &format!("{path}/touch"), &[], "")
            .json();
        assert!(touched["last_active"].as_str() > session["last_active"].as_str());
        let all = self.found("/v1/users/U-2/sessions");
        assert_eq!(all["sessions"][0]["session_id"], id);
        let closed = self.0.send("DELETE", &path, &[], "");
        assert!(closed.status < 300, "{}", closed.text);
        assert_eq!(self.0.get(&path).status, 410);
        ["S1", "S2", "S3", "S4", "S5"]
    }

    fn carts(&self) -> [&'static str; 9] {
        let wish = json!({"user_id": "U-2"});
        let [one, other] = at_once(|_| self.0.post("/v1/carts", &wish.to_string()).json());
        assert_eq!(one["cart_id"], other["cart_id"], "one active cart an owner");
        let cart = format!("/v1/carts/{}", one["cart_id"].as_str().unwrap());
        let item = |product: &str| format!("{cart}/items/{product}");
        let two = json!({"quantity": 2}).to_string();
        let put = at_once(|index| {
            let product = ["PHONE-1", "PHONE-2"][index];
            self.0.send("PUT", &item(product), &[], &two).status
        });
        assert_eq!(put, [200, 200]);
        let active = self.found("/v1/carts/active?user_id=U-2");
        assert_eq!(active["items"].as_array().unwrap().len(), 2, "{active}");
        assert_eq!(active["total"], "300");
        assert_eq!(active["expires_at"], Value::Null);
        let left = self.0.send("DELETE", &item("PHONE-2"), &[], "").json();
        assert_eq!(left["items"].as_array().unwrap().len(), 1);

        let guest = self.post("/v1/sessions", &json!({}), 201);
        let session = guest["session_id"].as_str().unwrap();
        let of_guest = self.post("/v1/carts", &json!({"session_id": session}), 201);
        assert!(of_guest["expires_at"].is_string());
        let of_guest = format!("/v1/carts/{}", of_guest["cart_id"].as_str().unwrap());
        self.put(
            &format!("{of_guest}/items/PHONE-1"),
            &json!({"quantity": 3}),
            200,
        );
        let login = json!({"user_id": "U-3", "guest_session_id": session});
        for _ in 0..2 {
            assert!(self.0.post("/v1/login", &login.to_string()).status < 300);
        }
        let merged = self.found("/v1/carts/active?user_id=U-3");
        assert_eq!(merged["items"][0]["quantity"], 3, "{merged}");
        assert_eq!(self.found(&of_guest)["status"], "abandoned");
        self.fill_up();
        let own = self.post("/v1/carts", &json!({"user_id": "U-1"}), 201);
        let own = format!("/v1/carts/{}", own["cart_id"].as_str().unwrap());
        self.put(
            &format!("{own}/items/PHONE-1"),
            &json!({"quantity": 1}),
            200,
        );
        let closed = self.post(&format!("{own}/close"), &json!({"status": "ordered"}), 200);
        assert_eq!(closed["status"], "ordered");
        assert_eq!(self.0.get("/v1/carts/active?user_id=U-1").status, 404);
        ["C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9"]
    }

    /// A cart takes no more than its limit (C8).
    fn fill_up(&self) {
        let cart = self.post("/v1/carts", &json!({"user_id": "U-8"}), 201);
        let cart = cart["cart_id"].as_str().unwrap();
        for number in 0..=100 {
            let id = format!("FILLER-{number}");
            let page = json!({"category": "fillers", "name": id, "price": "1",
                "image": format!("https://shop.example/{}", "i".repeat(400))});
            self.put(&format!("/v1/products/{id}"), &page, 201);
            let item = format!("/v1/carts/{cart}/items/{id}");
            let answer = self
                .0
                .send("PUT", &item, &[], &json!({"quantity": 1}).to_string());
            if answer.status != 200 {
                assert_eq!(answer.status, 422, "{}", answer.text);
                assert!(answer.text.contains("cart-full"), "{}", answer.text);
                return;
            }
        }
        panic!("a cart takes anything");
    }

    fn orders(&self) -> [&'static str; 9] {
        let placed = self.order("key-1", "100");
        assert_eq!(placed.status, 201, "{}", placed.text);
        let order = placed.json();
        for field in ["geo_zone", "address", "payment_method", "total"] {
            assert!(order[field].is_string(), "{field}: {order}");
        }
        assert_eq!(order["lines"][0]["name"], "Kestrel PHONE-1");
        let again = self.order("key-1", "100");
        assert_eq!(
            (again.status, &again.json()["order_id"]),
            (200, &order["order_id"])
        );
        let dearer = self.order("key-2", "99");
        assert_eq!(dearer.status, 409, "{}", dearer.text);
        let keys = ["key-3", "key-4", "key-5", "key-6"];
        let sold = at_once(|index| self.order(keys[index], "100").status);
        assert_eq!(sold, [201; 4]);

        let id = order["order_id"].as_str().unwrap();
        assert_eq!(self.found(&format!("/v1/orders/{id}"))["status"], "created");
        let move_on = |status: &str, expected: u16| {
            let path = format!("/v1/orders/{id}/status");
            self.post(&path, &json!({ "status": status }), expected)
        };
        move_on("shipped", 409);
        for status in ["paid", "shipped", "delivered", "returned"] {
            assert_eq!(move_on(status, 200)["status"], status);
        }
        let cancelled = self.order("key-7", "100").json();
        let cancelled = cancelled["order_id"].as_str().unwrap();
        let path = format!("/v1/orders/{cancelled}/status");
        self.post(&path, &json!({"status": "cancelled"}), 200);
        let stock = self.found("/v1/products/PHONE-1/stock");
        assert_eq!(stock["zones"][0]["available"], 46, "{stock}");
        assert_eq!(stock["zones"][0]["reserved"], 0, "{stock}");

        let first = self.found("/v1/users/U-1/orders?limit=4");
        let cursor = first["next_cursor"].as_str().unwrap();
        let rest = self.found(&format!("/v1/users/U-1/orders?limit=4&cursor={cursor}"));
        let pages = [&first, &rest].map(|page| page["orders"].as_array().unwrap().len());
        assert_eq!(pages, [4, 2]);
        let newest = &first["orders"][0]["created_at"];
        assert!(newest.as_str() > order["created_at"].as_str());
        let before = order["created_at"].as_str().unwrap();
        let early = self.found(&format!("/v1/users/U-1/orders?to={before}"));
        assert_eq!(early["orders"].as_array().unwrap().len(), 1);
        let period = self.found(&format!("/v1/orders?from={before}"));
        assert_eq!(period["orders"].as_array().unwrap().len(), 6);
        ["O1", "O2", "O3", "O4", "O5", "O6", "O7", "P5", "P6"]
    }

    fn order(&self, key: &str, price: &str) -> Answer {
        let body = json!({"user_id": "U-1", "geo_zone": "moscow", "address": "Tverskaya 1",
            "payment_method": "card",
            "lines": [{"product_id": "PHONE-1", "category": "phones", "quantity": 1, "price": price}]});
        let key = [("Idempotency-Key", key)];
        self.0.send("POST", "/v1/orders", &key, &body.to_string())
    }

    fn found(&self, path: &str) -> Value {
        let answer = self.0.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.json()
    }

    fn post(&self, path: &str, body: &Value, expected: u16) -> Value {
        let answer = self.0.post(path, &body.to_string());
        assert_eq!(answer.status, expected, "{path}: {}", answer.text);
        answer.json()
    }

    fn put(&self, path: &str, body: &Value, expected: u16) -> Value {
        let answer = self.0.send("PUT", path, &[], &body.to_string());
        assert_eq!(answer.status, expected, "{path}: {}", answer.text);
        answer.json()
    }
}

/// All of them at the same moment, each on a thread of its own.
fn at_once<T: Send + std::fmt::Debug, const N: usize>(act: impl Fn(usize) -> T + Sync) -> [T; N] {
    let (barrier, act) = (Barrier::new(N), &act);
    let barrier = &barrier;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..N)
            .map(|index| {
                scope.spawn(move || {
                    barrier.wait();
                    act(index)
                })
            })
            .collect();
        let done: Vec<T> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        done.try_into().unwrap()
    })
}

/// `hybrid`: finished orders go from MongoDB to Cassandra, are answered from there, and
/// come back when they are returned; whoever asks sees each of them once.
#[test]
fn finished_orders_flow_to_the_history_and_back() {
    let Some(servers) = Servers::start() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (mongo, cassandra) = (servers.mongo.uri(), servers.cassandra_address());
    let shards = [("cassandra", &*cassandra), ("mongo", &*mongo)];
    let soon = ["--set", "shop.archive_after_ms=1000"];
    let server = servers.serve_with("hybrid", &shards, &soon, folder.path());
    let walk = Walk(&server);
    let phone = json!({"category": "phones", "name": "Kestrel", "price": "100"});
    walk.put("/v1/products/PHONE-1", &phone, 201);
    walk.put(
        "/v1/products/PHONE-1/stock/moscow",
        &json!({"received": 50}),
        200,
    );
    let course = |key: &str, statuses: &[&str]| {
        let order = walk.order(key, "100").json();
        let id = order["order_id"].as_str().unwrap().to_owned();
        for status in statuses {
            walk.post(
                &format!("/v1/orders/{id}/status"),
                &json!({ "status": status }),
                200,
            );
        }
        id
    };
    let delivered = course("key-1", &["paid", "shipped", "delivered"]);
    let cancelled = course("key-2", &["cancelled"]);
    let paid = course("key-3", &["paid"]);

    // The rows as a bare connection finds them.
    let keyspace = servers.named("hybrid", "shop");
    let archived = |status: &str| {
        let statement = format!(
            "SELECT * FROM {keyspace}.order_history WHERE user_id = 'U-1' AND status = '{status}' ALLOW FILTERING"
        );
        servers.cassandra.count_rows(&statement).unwrap()
    };
    let figure = |name: &str| {
        let text = server.get("/metrics").text;
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.rsplit(' ').next());
        value.map_or(0.0, |value| value.parse::<f64>().unwrap())
    };
    let moved = |expected: f64| {
        server.wait_for("/metrics", |_| {
            figure("caravan_history_archived_total") >= expected
        });
    };
    moved(2.0);
    assert_eq!((archived("delivered"), archived("cancelled")), (1, 1));
    assert_eq!(archived("paid"), 0);
    assert_eq!(figure("caravan_history_lost"), 0.0);
    assert_eq!(figure("caravan_history_holding"), 1.0);

    let each_once = |expected: &[(&String, &str)]| {
        for path in ["/v1/users/U-1/orders", "/v1/orders"] {
            let list = walk.found(path);
            let list = list["orders"].as_array().unwrap();
            assert_eq!(list.len(), expected.len(), "{path}: {list:?}");
            for (id, status) in expected {
                let mut found = list.iter().filter(|order| order["order_id"] == **id);
                assert_eq!(found.next().unwrap()["status"], *status, "{path}");
                assert!(found.next().is_none(), "{path}: {id} twice");
            }
        }
        for (id, status) in expected {
            assert_eq!(walk.found(&format!("/v1/orders/{id}"))["status"], *status);
        }
    };
    each_once(&[
        (&delivered, "delivered"),
        (&cancelled, "cancelled"),
        (&paid, "paid"),
    ]);
    let again = walk.order("key-1", "100");
    assert_eq!(
        (again.status, &again.json()["order_id"]),
        (200, &json!(delivered))
    );

    walk.post(
        &format!("/v1/orders/{delivered}/status"),
        &json!({"status": "returned"}),
        200,
    );
    let returned = [
        (&delivered, "returned"),
        (&cancelled, "cancelled"),
        (&paid, "paid"),
    ];
    each_once(&returned);
    moved(3.0);
    each_once(&returned);
    assert_eq!((archived("returned"), archived("delivered")), (1, 0));
    let stock = walk.found("/v1/products/PHONE-1/stock");
    assert_eq!(stock["zones"][0]["available"], 49, "{stock}");
    server.stop();
}

#[test]
fn a_shard_without_an_address_or_a_server_is_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let layouts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../layouts");
    let hybrid = layouts.join("hybrid.toml");
    let refused = |arguments: &[&str], what: &str, remedy: &str| {
        let mut serve = command(folder.path());
        serve.args(["serve", "--listen", "127.0.0.1:0", "--log", "plain/error"]);
        serve.args(arguments);
        is_one_sentence(&serve.output().unwrap(), what, remedy);
    };
    let hybrid = hybrid.to_str().unwrap();
    refused(
        &["--layout", hybrid],
        "nobody says where that is",
        "--address mongo=mongodb://HOST:27017",
    );
    let nobody = ["cassandra=127.0.0.1:1", "mongo=mongodb://127.0.0.1:1"];
    refused(
        &[
            "--layout",
            hybrid,
            "--address",
            nobody[0],
            "--address",
            nobody[1],
        ],
        "shard mongo: no server answers at 127.0.0.1:1",
        "start the replica set, or correct the address",
    );
    refused(
        &["--layout", hybrid, "--address", "mongo"],
        "address 1 has no shard",
        "SHARD=ADDRESS",
    );
    refused(
        &["--address", "mongo=mongodb://127.0.0.1:1"],
        "addresses are of a layout's shards",
        "--layout FILE",
    );
    refused(
        &["--layout", hybrid, "--shards", "2"],
        "shards is for the data directory alone",
        "layout",
    );
}

#[test]
fn a_lost_server_takes_its_collections_down_and_no_others() {
    let Some(servers) = Servers::start() else {
        return;
    };
    let own = MongoSet::exclusive(Members::One);
    let Some(own) = required_or_skip(own, "MongoDB") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (mongo, cassandra) = (own.uri(), servers.cassandra_address());
    let shards = [("cassandra", &*cassandra), ("mongo", &*mongo)];
    let server = servers.serve("hybrid", &shards, folder.path());
    let walk = Walk(&server);
    let phone = json!({"category": "phones", "name": "Kestrel", "price": "100"});
    walk.put("/v1/products/PHONE-1", &phone, 201);
    walk.post("/v1/carts", &json!({"user_id": "U-1"}), 201);

    own.kill9(0).unwrap();
    let answers = |checks: &Value, collection: &str| {
        let checks = checks["checks"].as_array().unwrap().clone();
        let check = checks
            .iter()
            .find(|check| check["collection"] == collection);
        check.unwrap()["answers"] == true
    };
    let degraded = server.wait_for("/health/ready", |ready| {
        ready.json()["status"] == "degraded"
    });
    let degraded = degraded.json();
    for (collection, expected) in [
        ("carts", true),
        ("sessions", true),
        ("orders", false),
        ("products", false),
    ] {
        assert_eq!(answers(&degraded, collection), expected, "{degraded}");
    }
    let lost = server.get("/v1/products/PHONE-1");
    assert_eq!(lost.status, 503, "{}", lost.text);
    assert!(lost.header("retry-after").is_some(), "{}", lost.text);
    walk.found("/v1/carts/active?user_id=U-1");
    walk.post("/v1/sessions", &json!({}), 201);

    own.restart(0).unwrap();
    server.wait_for("/health/ready", |ready| ready.json()["status"] == "ready");
    walk.found("/v1/products/PHONE-1");
    server.stop();
}
