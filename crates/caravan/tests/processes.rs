//! Several processes over one set of servers: their leases, one that is stopped by the
//! system and goes on, and what an operator sees of it.

#![allow(clippy::unwrap_used)]

mod support;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use engine_api::{ControlStore, RealWorld, World};
use engine_mongo::{MongoConfig, MongoEngine};
use layout::{Collection, Layout, Scope};
use router::{Edit, LeaseJudge, Limits, MapKeeper};
use rustix::process::Signal;
use serde_json::json;
use support::{Answer, Server, command, is_one_sentence};
use testbed::{CassandraCluster, Members, MongoSet, Nodes, required_or_skip};

const PATIENCE: Duration = Duration::from_secs(60);
const LEASE: [&str; 3] = [
    "router.lease_ms=2000",
    "router.lease_renew_ms=300",
    "router.lease_look_ms=50",
];

/// The layout `hybrid` on servers of the testbed.
struct Place {
    mongo: MongoSet,
    _cassandra: CassandraCluster,
    folder: tempfile::TempDir,
    layout: String,
    database: String,
    addresses: [String; 2],
}

impl Place {
    fn prepare() -> Option<Place> {
        let mongo = required_or_skip(testbed::mongo(Members::One), "MongoDB")?;
        let cassandra = required_or_skip(testbed::cassandra(Nodes::One), "Cassandra")?;
        let database = cassandra.keyspace("processes");
        let folder = tempfile::tempdir().unwrap();
        let layout = own_layout(folder.path(), &database);
        let points = cassandra.contact_points();
        let addresses = [
            format!("mongo={}", mongo.uri()),
            format!("cassandra={}/?replication=datacenter1:1", points[0]),
        ];
        Some(Place {
            mongo,
            _cassandra: cassandra,
            folder,
            layout,
            database,
            addresses,
        })
    }

    fn serve(&self, name: &str) -> Server {
        let process = format!("process={name}");
        let mut arguments = vec!["--layout", &self.layout, "--set", &process];
        for address in &self.addresses {
            arguments.extend(["--address", address]);
        }
        for lease in LEASE {
            arguments.extend(["--set", lease]);
        }
        Server::start(self.folder.path(), &arguments)
    }

    fn map_arguments<'a>(&'a self, what: &'a str) -> [&'a str; 6] {
        [
            "map",
            what,
            "--layout",
            &self.layout,
            "--address",
            &self.addresses[0],
        ]
    }

    fn map(&self, what: &str) -> String {
        let output = command(self.folder.path())
            .args(self.map_arguments(what))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn watch(&self) -> Watch {
        let mut child = command(self.folder.path())
            .args(self.map_arguments("watch"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
        Watch { child, lines }
    }

    async fn control(&self) -> Arc<dyn ControlStore> {
        let text = std::fs::read_to_string(&self.layout).unwrap();
        let layout = Layout::parse(&text, "hybrid.toml").unwrap();
        let config = MongoConfig::of_layout(&layout, "mongo", self.mongo.uri(), &*self.database);
        Arc::new(MongoEngine::open(config).await.unwrap())
    }

    /// Publishes the next map, as a mover does.
    async fn publish(&self, edit: Edit, reason: &str) {
        let keeper = MapKeeper::new(self.control().await);
        let map = keeper.load().await.unwrap().unwrap();
        let next = map.edited(&[(Collection::Carts, edit)]).unwrap();
        let next = next.noted(RealWorld::new().now(), reason);
        keeper.publish(&next).await.unwrap();
        let world = Arc::new(RealWorld::new());
        let judge = LeaseJudge::new(self.control().await, world, &Limits::default());
        judge.wait_for(next.generation, PATIENCE).await.unwrap();
    }
}

/// `caravan map watch`; ended with the test.
struct Watch {
    child: Child,
    lines: Receiver<String>,
}

impl Watch {
    /// The lines up to the one with this text.
    fn wait_for(&self, text: &str) {
        let mut seen = Vec::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let Ok(line) = line else {
                panic!("no {text:?} among {seen:?}");
            };
            if line.contains(text) {
                return;
            }
            seen.push(line);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Both fail only for a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The layout that ships, in a database and a keyspace of this run.
fn own_layout(folder: &Path, database: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../layouts");
    let text = std::fs::read_to_string(root.join("hybrid.toml")).unwrap();
    let mut own = String::new();
    for line in text.lines() {
        match line.strip_prefix("keyspace = ") {
            Some(_) => writeln!(own, "keyspace = \"{database}\"").unwrap(),
            None => writeln!(own, "{line}").unwrap(),
        }
    }
    let file = folder.join("hybrid.toml");
    std::fs::write(&file, own).unwrap();
    file.to_str().unwrap().to_owned()
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(work)
}

fn put_item(server: &Server, cart: &str, product: &str) -> Answer {
    let path = format!("{cart}/items/{product}");
    server.send("PUT", &path, &[], &json!({"quantity": 1}).to_string())
}

fn items(server: &Server, cart: &str) -> usize {
    let cart = server.get(cart);
    assert_eq!(cart.status, 200, "{}", cart.text);
    cart.json()["items"].as_array().unwrap().len()
}

#[test]
fn a_process_that_the_system_stopped_comes_back_under_the_new_map() {
    let Some(place) = Place::prepare() else {
        return;
    };
    let (one, two) = (place.serve("one"), place.serve("two"));
    let watch = place.watch();
    for server in [&one, &two] {
        let ready = server.wait_for("/health/ready", |ready| ready.json()["status"] == "ready");
        assert_eq!(ready.json()["lease"], "runs", "{}", ready.text);
    }
    for product in ["PHONE-1", "PHONE-2", "PHONE-3"] {
        let page = json!({"category": "phones", "name": product, "price": "100"});
        let path = format!("/v1/products/{product}");
        let made = one.send("PUT", &path, &[], &page.to_string());
        assert_eq!(made.status, 201, "{}", made.text);
    }
    let cart = one.post("/v1/carts", &json!({"user_id": "U-1"}).to_string());
    let cart = format!("/v1/carts/{}", cart.json()["cart_id"].as_str().unwrap());
    assert_eq!(put_item(&one, &cart, "PHONE-1").status, 200);
    let shown = place.map("show");
    for process in ["one", "two"] {
        let mut lines = shown.lines();
        let line = lines.find(|line| line.starts_with(process)).unwrap();
        assert!(line.contains("generation 1"), "{shown}");
        assert!(line.contains("renewed in the last"), "{shown}");
    }

    one.signal(Signal::STOP);
    let freeze = Edit::Freeze { scope: Scope::All };
    block_on(place.publish(freeze, "carts stand still"));
    block_on(place.publish(Edit::Thaw { scope: Scope::All }, "carts go on"));
    assert_eq!(put_item(&two, &cart, "PHONE-2").status, 200);
    watch.wait_for("generation 2: carts stand still");
    watch.wait_for("generation 3: carts go on");

    one.signal(Signal::CONT);
    let ready = one.wait_for("/health/ready", |ready| {
        ready.status == 200 && ready.json()["generation"] == 3
    });
    assert_eq!(ready.json()["lease"], "runs", "{}", ready.text);
    assert_eq!(items(&one, &cart), 2);
    assert_eq!(put_item(&one, &cart, "PHONE-3").status, 200);
    assert_eq!(items(&two, &cart), 3);

    let history = place.map("history");
    for text in [
        "the first map, of layout hybrid",
        "carts stand still",
        "carts go on",
    ] {
        assert!(history.contains(text), "{history}");
    }
    assert!(one.stop().contains("this process has a lease"));
    watch.wait_for("was given up");
    let shown = place.map("show");
    assert!(shown.lines().any(|line| line.starts_with("two")), "{shown}");
    assert!(
        !shown.lines().any(|line| line.starts_with("one")),
        "{shown}"
    );
    two.stop();
    assert!(!place.map("show").contains("writer"));
}

#[test]
fn a_map_that_cannot_be_looked_at_gets_one_sentence() {
    fn check(arguments: &[&str], what: &str, remedy: &str) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("no.toml"), "name = 7").unwrap();
        let output = command(folder.path()).arg("map").args(arguments).output();
        is_one_sentence(&output.unwrap(), what, remedy);
    }
    let hybrid = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../layouts/hybrid.toml");
    let hybrid = hybrid.to_str().unwrap();
    check(&["show"], "is no data directory", "--data");
    check(&["history"], "is no data directory", "--data");
    check(&["watch"], "lets one process in", "--layout");
    check(&["show", "--layout", "no.toml"], "no.toml", "");
    check(
        &["show", "--layout", hybrid],
        "nobody says where",
        "--address mongo=",
    );
    check(
        &["watch", "--layout", hybrid],
        "nobody says where",
        "--address mongo=",
    );
    let elsewhere = ["history", "--layout", hybrid, "--address", "orders=x"];
    check(&elsewhere, "has no such shard", "it has");
    let silent = [
        "show",
        "--layout",
        hybrid,
        "--address",
        "mongo=mongodb://127.0.0.1:1/?replicaSet=x",
    ];
    check(&silent, "shard mongo", "127.0.0.1:1");
    check(&["list"], "list", "--help");
}
