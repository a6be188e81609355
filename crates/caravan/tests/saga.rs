//! An order on Cassandra, its stock on MongoDB, and a process that ends like under
//! `kill -9` between any two steps of the way from one to the other: by fault points of the
//! real program, judged over HTTP by another process and by a bare connection.

#![allow(clippy::unwrap_used)]

mod support;

use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use support::{Answer, Server, command};
use testbed::{CassandraCluster, Members, MongoSet, Nodes, required_or_skip};

const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

/// Received of each product in the only zone.
const RECEIVED: u64 = 10;

/// What a sweeper needs to take an order for abandoned at once.
const IMPATIENT: (&str, &str) = ("CARAVAN_SHOP_SWEEP_AFTER_S", "1");
/// And to leave it alone while a test looks.
const PATIENT: (&str, &str) = ("CARAVAN_SHOP_SWEEP_AFTER_S", "3600");

/// The steps of an order with two lines and a cart, each with its write.
const STEPS: [&str; 8] = [
    "after:orders:create:1",
    "after:products:take:1",
    "after:products:take:2",
    "after:orders:change:1",
    "after:products:claim:1",
    "after:products:claim:2",
    "after:carts:change:1",
    "after:orders:change:2",
];

/// Of the steps, those after which the order counts.
fn is_decided(step: &str) -> bool {
    let at = STEPS.iter().position(|known| *known == step).unwrap();
    at >= 3
}

#[test]
fn wherever_a_saga_across_engines_is_killed_it_comes_to_one_end() {
    let Some(place) = Place::prepare() else {
        return;
    };
    let witness = place.serve(&[PATIENT]);
    for step in ["before:orders:create:1"].iter().chain(&STEPS) {
        let case = Case::killed(&place, &witness, "retry", step);
        let repeat = case.order(&witness);
        assert!(
            [200, 201].contains(&repeat.status),
            "{step}: {}",
            repeat.text
        );
        case.judge(&place, &witness, Bought::Yes);
    }
    let swept: Vec<(Case, &str)> = STEPS
        .iter()
        .map(|step| (Case::killed(&place, &witness, "sweep", step), *step))
        .collect();
    let sweeper = place.serve(&[IMPATIENT]);
    place.wait_until_nothing_is_open();
    for (case, step) in swept {
        case.judge(&place, &witness, Bought::when(is_decided(step)));
    }
    sweeper.stop();
    let reconciled: Vec<(Case, &str)> = [STEPS[0], STEPS[2], STEPS[4]]
        .into_iter()
        .map(|step| (Case::killed(&place, &witness, "reconcile", step), step))
        .collect();
    let begun = Instant::now();
    while place.open_orders() > 0 {
        assert!(begun.elapsed() < PATIENCE, "orders stay open");
        let output = place.reconcile(&["--json"], &[IMPATIENT]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    for (case, step) in reconciled {
        case.judge(&place, &witness, Bought::when(is_decided(step)));
    }
    nothing_is_left(&place);
    witness.stop();
}

#[test]
fn an_order_that_is_refused_or_cancelled_gives_everything_back_wherever_it_is_killed() {
    let Some(place) = Place::prepare() else {
        return;
    };
    let witness = place.serve(&[PATIENT]);
    for (number, step) in [
        "after:orders:change:1",
        "after:products:give:1",
        "after:products:give:2",
        "after:orders:change:2",
    ]
    .iter()
    .enumerate()
    {
        let case = Case::prepared(&witness, &format!("refused-{number}"));
        // The second line finds nothing, when the first has taken.
        witness.put(
            &format!("{}/stock/moscow", case.products[1]),
            &json!({"received": 0}),
        );
        case.dies_on(&place, step, |server| case.attempt(server));
        let repeat = case.order(&witness);
        assert_eq!(repeat.status, 409, "{step}: {}", repeat.text);
        witness.put(
            &format!("{}/stock/moscow", case.products[1]),
            &json!({"received": RECEIVED}),
        );
        if place.open_orders() > 0 {
            // The repeat is told of the end; what follows is for a sweeper.
            let sweeper = place.serve(&[IMPATIENT]);
            place.wait_until_nothing_is_open();
            sweeper.stop();
        }
        case.judge(&place, &witness, Bought::No);
    }
    for (number, step) in [
        "after:orders:change:1",
        "after:products:return:1",
        "after:products:return:2",
        "after:orders:change:2",
    ]
    .iter()
    .enumerate()
    {
        let case = Case::prepared(&witness, &format!("cancelled-{number}"));
        let order = case.order(&witness).json();
        let path = format!("/v1/orders/{}/status", order["order_id"].as_str().unwrap());
        let cancelled = json!({"status": "cancelled"}).to_string();
        case.dies_on(&place, step, |server| {
            server.attempt("POST", &path, &[], &cancelled).ok()
        });
        let repeat = witness.post(&path, &cancelled);
        assert_eq!(repeat.status, 200, "{step}: {}", repeat.text);
        assert_eq!(repeat.json()["status"], "cancelled");
        for product in &case.products {
            assert_eq!(stock(&witness, product), [RECEIVED, 0, 0], "{step}");
        }
    }
    nothing_is_left(&place);
    witness.stop();
}

#[test]
fn a_sweeper_that_is_killed_between_its_steps_is_followed_by_the_next() {
    let Some(place) = Place::prepare() else {
        return;
    };
    let witness = place.serve(&[PATIENT]);
    // Each begins anew with the lines of the order, so that the counts rise.
    let gives_up = [
        "after:orders:change:1",
        "after:products:give:1",
        "after:products:give:2",
        "after:orders:change:1",
    ];
    let goes_on = [
        "after:products:claim:1",
        "after:products:claim:2",
        "after:carts:change:1",
        "after:orders:change:1",
    ];
    for (name, left_at, steps, end) in [
        ("given-up", "after:products:take:2", gives_up, Bought::No),
        ("gone-on", "after:orders:change:1", goes_on, Bought::Yes),
    ] {
        let case = Case::killed(&place, &witness, name, left_at);
        for step in steps {
            let sweeper = place.serve(&[IMPATIENT, ("CARAVAN_FAULT_POINT", step), MAY_DIE]);
            was_killed(sweeper, step);
        }
        case.judge(&place, &witness, end);
    }
    let case = Case::killed(&place, &witness, "reconciled", "after:products:take:2");
    for step in gives_up {
        let begun = Instant::now();
        // Until the order's last change is as old as its patience.
        loop {
            let point = ("CARAVAN_FAULT_POINT", step);
            let output = place.reconcile(&[], &[IMPATIENT, point, MAY_DIE]);
            if output.status.signal() == Some(Signal::KILL.as_raw()) {
                break;
            }
            assert_eq!(output.status.code(), Some(0), "{step}: {output:?}");
            assert!(begun.elapsed() < PATIENCE, "{step}: {output:?}");
        }
    }
    case.judge(&place, &witness, Bought::No);
    nothing_is_left(&place);
    witness.stop();
}

const MAY_DIE: (&str, &str) = ("CARAVAN_FAULT_ALLOWED", "this-process-may-die");

/// A last look finds nothing that a reconciler would mend or name.
fn nothing_is_left(place: &Place) {
    let output = place.reconcile(&["--dry-run", "--json"], &[IMPATIENT]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = report["kinds"].as_array().unwrap().iter();
    let found: u64 = found.map(|kind| kind["found"].as_u64().unwrap()).sum();
    assert_eq!(found, 0, "{report:#}");
    assert!(report["records"].as_u64() > Some(10), "{report:#}");
}

fn was_killed(server: Server, step: &str) {
    let (status, log) = server.ended();
    assert_eq!(
        status.signal(),
        Some(Signal::KILL.as_raw()),
        "{step}: {log}"
    );
    assert!(log.contains("THIS PROCESS WILL KILL ITSELF"), "{log}");
}

/// Whether the order counts in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bought {
    Yes,
    No,
}

impl Bought {
    fn when(decided: bool) -> Bought {
        match decided {
            true => Bought::Yes,
            false => Bought::No,
        }
    }
}

/// One order of one user, with two products of its own and a cart.
struct Case {
    user: String,
    products: [String; 2],
    cart: String,
}

impl Case {
    fn prepared(witness: &Server, name: &str) -> Case {
        let user = format!("U-{name}");
        let products = [1, 2].map(|number| format!("/v1/products/P-{name}-{number}"));
        for product in &products {
            let page = json!({"category": "phones", "name": name, "price": "100"});
            witness.put(product, &page);
            witness.put(
                &format!("{product}/stock/moscow"),
                &json!({"received": RECEIVED}),
            );
        }
        let cart = witness.post("/v1/carts", &json!({"user_id": user}).to_string());
        let cart = cart.json()["cart_id"].as_str().unwrap().to_owned();
        Case {
            user,
            products,
            cart,
        }
    }

    /// The order was sent to a process that ended at the step.
    fn killed(place: &Place, witness: &Server, group: &str, step: &str) -> Case {
        let name = format!("{group}-{}", step.replace(':', "-"));
        let case = Case::prepared(witness, &name);
        case.dies_on(place, step, |server| case.attempt(server));
        case
    }

    fn dies_on(&self, place: &Place, step: &str, act: impl Fn(&Server) -> Option<Answer>) {
        let server = place.serve(&[PATIENT, ("CARAVAN_FAULT_POINT", step), MAY_DIE]);
        let answer = act(&server);
        assert!(answer.is_none(), "{step}: {}", answer.unwrap().text);
        was_killed(server, step);
    }

    fn attempt(&self, server: &Server) -> Option<Answer> {
        let line = |product: &String, quantity: u32| {
            let id = product.rsplit('/').next().unwrap();
            json!({"product_id": id, "category": "phones", "quantity": quantity, "price": "100"})
        };
        let lines = [line(&self.products[0], 2), line(&self.products[1], 1)];
        let body = json!({"user_id": self.user, "geo_zone": "moscow", "address": "Tverskaya 1",
            "payment_method": "card", "lines": lines, "cart_id": self.cart});
        let key = [("Idempotency-Key", "key")];
        server
            .attempt("POST", "/v1/orders", &key, &body.to_string())
            .ok()
    }

    fn order(&self, server: &Server) -> Answer {
        self.attempt(server).expect("this one stays alive")
    }

    /// Once or not at all, on both engines, and for every reader.
    fn judge(&self, place: &Place, witness: &Server, bought: Bought) {
        let times = u64::from(bought == Bought::Yes);
        let sold = [2 * times, times];
        for (product, sold) in self.products.iter().zip(sold) {
            assert_eq!(
                stock(witness, product),
                [RECEIVED - sold, 0, sold],
                "{}",
                self.user
            );
        }
        let orders = witness
            .get(&format!("/v1/users/{}/orders", self.user))
            .json();
        let orders = orders["orders"].as_array().unwrap();
        let created = orders.iter().filter(|order| order["status"] == "created");
        assert_eq!(created.count() as u64, times, "{orders:?}");
        assert!(orders.len() <= 1, "{orders:?}");
        let rows = place.rows_of(&format!("orders_by_user WHERE user_id = '{}'", self.user));
        assert_eq!(rows, 1, "{}: by a bare connection", self.user);
        let repeat = self.order(witness);
        let expected = if bought == Bought::Yes { 200 } else { 409 };
        assert_eq!(repeat.status, expected, "{}: {}", self.user, repeat.text);
        for (product, sold) in self.products.iter().zip(sold) {
            assert_eq!(
                stock(witness, product),
                [RECEIVED - sold, 0, sold],
                "{}",
                self.user
            );
        }
        let cart = witness.get(&format!("/v1/carts/{}", self.cart)).json();
        let status = if bought == Bought::Yes {
            "ordered"
        } else {
            "active"
        };
        assert_eq!(cart["status"], status, "{}", self.user);
    }
}

/// Available, reserved and sold; together they are what was received.
fn stock(server: &Server, product: &str) -> [u64; 3] {
    let zones = server.get(&format!("{product}/stock")).json();
    let count = |name: &str| zones["zones"][0][name].as_u64().unwrap();
    let counts = ["available", "reserved", "sold"].map(count);
    assert_eq!(counts.iter().sum::<u64>(), count("received"), "{zones}");
    counts
}

/// The layout `cassandra-orders` on servers of the testbed.
struct Place {
    mongo: MongoSet,
    cassandra: CassandraCluster,
    folder: tempfile::TempDir,
    layout: String,
    run: String,
}

impl Place {
    fn prepare() -> Option<Place> {
        let mongo = required_or_skip(testbed::mongo(Members::One), "MongoDB")?;
        let cassandra = required_or_skip(testbed::cassandra(Nodes::One), "Cassandra")?;
        let run = cassandra.keyspace("saga");
        let folder = tempfile::tempdir().unwrap();
        let layout = own_layout(folder.path(), &run);
        Some(Place {
            mongo,
            cassandra,
            folder,
            layout,
            run,
        })
    }

    fn arguments(&self) -> Vec<String> {
        let cassandra = self.cassandra.contact_points()[0];
        let cassandra = format!("{cassandra}/?replication=datacenter1:1");
        let mut arguments = vec!["--layout".to_owned(), self.layout.clone()];
        for (shard, address) in [
            ("orders", &cassandra),
            ("carts", &cassandra),
            ("mongo", &self.mongo.uri()),
        ] {
            arguments.extend(["--address".to_owned(), format!("{shard}={address}")]);
        }
        arguments
    }

    fn serve(&self, variables: &[(&str, &str)]) -> Server {
        let arguments = self.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Server::start_with(self.folder.path(), &arguments, variables)
    }

    fn reconcile(&self, more: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = command(self.folder.path());
        command.arg("reconcile").args(self.arguments()).args(more);
        command.envs(variables.iter().copied()).output().unwrap()
    }

    fn rows_of(&self, rest: &str) -> usize {
        let statement = format!("SELECT * FROM orders_{}.{rest}", self.run);
        self.cassandra.count_rows(&statement).unwrap()
    }

    fn open_orders(&self) -> usize {
        self.rows_of("orders_open")
    }

    fn wait_until_nothing_is_open(&self) {
        let begun = Instant::now();
        while self.open_orders() > 0 {
            assert!(begun.elapsed() < PATIENCE, "orders stay open");
            std::thread::sleep(PAUSE);
        }
    }
}

/// The layout that ships, in keyspaces of its own.
fn own_layout(folder: &Path, run: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../layouts");
    let text = std::fs::read_to_string(root.join("cassandra-orders.toml")).unwrap();
    let mut own = String::new();
    for line in text.lines() {
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
