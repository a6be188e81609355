//! A process that the system stops in the middle of its writes, before a real cutover, and lets go on after it: whatever
//! it or others were told meanwhile stays. On MongoDB, where the store fences, and on Cassandra, where leases do.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use layout::{SLOT_COUNT, ShardKey};
use rustix::process::Signal;
use serde_json::{Value, json};
use support::{Server, command};
use testbed::{CassandraCluster, Members, MongoSet, Nodes, required_or_skip};

const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(100);
const LEASE: [&str; 3] = [
    "router.lease_ms=3000",
    "router.lease_renew_ms=300",
    "router.lease_look_ms=50",
];
const CARTS: usize = 4;
/// What the process that sleeps is given to write, and what another one is given while it does.
const BEFORE: &str = "PHONE-1";
const MEANWHILE: &str = "PHONE-2";

#[test]
fn on_mongodb_nothing_acknowledged_disappears() {
    let Some(first) = required_or_skip(testbed::mongo(Members::One), "MongoDB") else {
        return;
    };
    let label = "second".parse().unwrap();
    let second = testbed::mongo_labelled(Members::One, &label);
    let Some(second) = required_or_skip(second, "MongoDB") else {
        return;
    };
    let place = Place::of(
        "mongo-sharded.toml",
        &first.database("sleeping"),
        &[
            format!("shard-1={}", first.uri()),
            format!("shard-2={}", second.uri()),
        ],
    );
    place.sleeps_through_a_move_and_its_rollback("shard-1", "shard-2", || {});
}

/// Its second shard is another keyspace of the same cluster, added while the shop is open.
#[test]
fn on_cassandra_nothing_acknowledged_disappears() {
    let Some(mongo) = required_or_skip(testbed::mongo(Members::One), "MongoDB") else {
        return;
    };
    let cassandra = testbed::cassandra(Nodes::One);
    let Some(cassandra) = required_or_skip(cassandra, "Cassandra") else {
        return;
    };
    let (mongo, cassandra): (MongoSet, CassandraCluster) = (mongo, cassandra);
    let keyspace = cassandra.keyspace("sleeping");
    let point = cassandra.contact_points()[0];
    let place = Place::of(
        "hybrid.toml",
        &keyspace,
        &[
            format!("mongo={}", mongo.uri()),
            format!("cassandra={point}/?replication=datacenter1:1"),
        ],
    );
    let second = cassandra.keyspace("sleeping_too");
    let address = format!("second={point}/?replication=datacenter1:1&keyspace={second}");
    place.sleeps_through_a_move_and_its_rollback("cassandra", "second", || {
        let add = [
            "shard",
            "add",
            "--name",
            "second",
            "--engine",
            "cassandra",
            "--address",
        ];
        let told = place.succeeds(&[&add[..], &[&address]].concat());
        assert!(told.contains("open in 2 processes"), "{told}");
    });
}

struct Place {
    folder: tempfile::TempDir,
    where_it_is: Vec<String>,
}

/// A cart, and how often its line was put and acknowledged.
#[derive(Default)]
struct Ledger {
    tried: AtomicU32,
    acknowledged: AtomicU32,
}

impl Place {
    fn of(layout: &str, database: &str, addresses: &[String]) -> Place {
        let folder = tempfile::tempdir().unwrap();
        let mut where_it_is = vec![
            "--layout".to_owned(),
            own_layout(folder.path(), layout, database),
        ];
        for address in addresses {
            where_it_is.extend(["--address".to_owned(), address.clone()]);
        }
        Place {
            folder,
            where_it_is,
        }
    }

    fn serve(&self, name: &str) -> Server {
        let process = format!("process={name}");
        let mut arguments = vec!["--set", &process];
        for lease in LEASE {
            arguments.extend(["--set", lease]);
        }
        arguments.extend(self.where_it_is.iter().map(String::as_str));
        Server::start(self.folder.path(), &arguments)
    }

    fn succeeds(&self, arguments: &[&str]) -> String {
        let mut command = command(self.folder.path());
        let output = command.args(arguments).args(&self.where_it_is).output();
        let output = output.unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {complaint}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn bring(&self, wish: &str, from: &str, to: &str) {
        let began = Instant::now();
        loop {
            let text = self.succeeds(&["move", "status", "--json", "--name", "carts-1"]);
            let status: Value = serde_json::from_str(&text).unwrap();
            if status["phase"] == to {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{to}: {status:#}");
            if !wish.is_empty() && status["phase"] == from && status["wish"].is_null() {
                let mut command = command(self.folder.path());
                command.args(["move", wish, "--name", "carts-1"]);
                // Refused if it is not ready any more since we looked.
                command.args(&self.where_it_is).output().unwrap();
            }
            thread::sleep(PAUSE);
        }
    }

    fn sleeps_through_a_move_and_its_rollback(&self, from: &str, to: &str, prepare: impl Fn()) {
        let (sleeper, other) = (self.serve("sleeper"), self.serve("other"));
        for server in [&sleeper, &other] {
            server.wait_for("/health/ready", |ready| ready.json()["status"] == "ready");
        }
        prepare();
        for product in [BEFORE, MEANWHILE] {
            let page = json!({"category": "phones", "name": product, "price": "100"});
            sleeper.put(&format!("/v1/products/{product}"), &page);
        }
        let carts = moving_carts(&sleeper);
        self.succeeds(&[
            "move",
            "start",
            "--name",
            "carts-1",
            "--collection",
            "carts",
            "--slots",
            "0-2047",
            "--from",
            from,
            "--to",
            to,
            "--freeze-ms-max",
            "20000",
        ]);
        self.bring("", "", "ready");
        let ledgers: BTreeMap<&str, Ledger> = carts
            .iter()
            .map(|cart| (cart.as_str(), Ledger::default()))
            .collect();
        for (wish, before, after) in [
            ("cutover", "ready", "settling"),
            ("rollback", "settling", "rolled back"),
        ] {
            self.sleep_through(&sleeper, &other, &ledgers, || {
                self.bring(wish, before, after)
            });
        }
    }

    /// The sleeper is stopped under its writers, others write meanwhile, and then it goes on.
    fn sleep_through(
        &self,
        sleeper: &Server,
        other: &Server,
        ledgers: &BTreeMap<&str, Ledger>,
        work: impl FnOnce(),
    ) {
        let closing = AtomicBool::new(false);
        let meanwhile = Mutex::new(BTreeMap::new());
        thread::scope(|scope| {
            for (cart, ledger) in ledgers {
                scope.spawn(|| ledger.write_until(&closing, sleeper, cart));
            }
            let under_way = |ledger: &Ledger| ledger.tried.load(Ordering::SeqCst) > 3;
            while !ledgers.values().all(under_way) {
                thread::sleep(Duration::from_millis(5));
            }
            sleeper.signal(Signal::STOP);
            work();
            for cart in ledgers.keys() {
                let quantity = put(other, cart, MEANWHILE, 7);
                meanwhile.lock().unwrap().insert(*cart, quantity);
            }
            sleeper.signal(Signal::CONT);
            let generation = other.get("/health/ready").json()["generation"].clone();
            sleeper.wait_for("/health/ready", |ready| {
                ready.status == 200 && ready.json()["generation"] == generation
            });
            closing.store(true, Ordering::SeqCst);
        });
        for (cart, ledger) in ledgers {
            assert_eq!(meanwhile.lock().unwrap()[cart], Some(7), "{cart}");
            for server in [sleeper, other] {
                let shown = server.get(cart).json();
                let quantity = |product: &str| {
                    let mut items = shown["items"].as_array().unwrap().iter();
                    let item = items.find(|item| item["product_id"] == product);
                    item.and_then(|item| item["quantity"].as_u64())
                };
                let tried = u64::from(ledger.tried.load(Ordering::SeqCst));
                let acknowledged = u64::from(ledger.acknowledged.load(Ordering::SeqCst));
                let found = quantity(BEFORE).unwrap_or(0);
                assert!(
                    (acknowledged..=tried).contains(&found),
                    "{cart}: {acknowledged} was acknowledged, {tried} was tried, {found} is there"
                );
                assert_eq!(quantity(MEANWHILE), Some(7), "{shown}");
            }
        }
    }
}

impl Ledger {
    /// One after the other, each a number higher, so that what is there says which was the last.
    fn write_until(&self, closing: &AtomicBool, server: &Server, cart: &str) {
        while !closing.load(Ordering::SeqCst) {
            let next = self.tried.fetch_add(1, Ordering::SeqCst) + 1;
            if put(server, cart, BEFORE, next) == Some(next) {
                self.acknowledged.store(next, Ordering::SeqCst);
            }
        }
    }
}

/// The quantity that was acknowledged; `None`: nobody knows, or it was refused.
fn put(server: &Server, cart: &str, product: &str, quantity: u32) -> Option<u32> {
    let path = format!("{cart}/items/{product}");
    let body = json!({"quantity": quantity}).to_string();
    let answer = server.attempt("PUT", &path, &[], &body).ok()?;
    assert!(
        answer.status == 200 || answer.status >= 500,
        "{}",
        answer.text
    );
    (answer.status == 200).then_some(quantity)
}

/// Carts that the move takes along.
fn moving_carts(server: &Server) -> Vec<String> {
    let mut carts = Vec::new();
    for user in 0.. {
        let made = server.post(
            "/v1/carts",
            &json!({"user_id": format!("U-{user}")}).to_string(),
        );
        let id = made.json()["cart_id"].as_str().unwrap().to_owned();
        if ShardKey::of_text(&id).slot().number() < SLOT_COUNT / 2 {
            carts.push(format!("/v1/carts/{id}"));
        }
        if carts.len() == CARTS {
            break;
        }
    }
    carts
}

/// The layout that ships, in a database and a keyspace of this run.
fn own_layout(folder: &Path, layout: &str, database: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../layouts");
    let text = std::fs::read_to_string(root.join(layout)).unwrap();
    let mut own = String::new();
    for line in text.lines() {
        match line.strip_prefix("keyspace = ") {
            Some(_) => writeln!(own, "keyspace = \"{database}\"").unwrap(),
            None => writeln!(own, "{line}").unwrap(),
        }
    }
    let file = folder.join(layout);
    std::fs::write(&file, own).unwrap();
    file.to_str().unwrap().to_owned()
}
