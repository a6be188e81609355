//! The servers, and the program over them.

use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testbed::{CassandraCluster, Members, MongoSet, Nodes, required_or_skip};

use crate::support::{Server, command};

pub const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

pub const MAY_DIE: (&str, &str) = ("CARAVAN_FAULT_ALLOWED", "this-process-may-die");

/// The layout `cassandra-orders` on servers of the testbed.
pub struct Place {
    mongo: MongoSet,
    cassandra: CassandraCluster,
    folder: tempfile::TempDir,
    layout: String,
    run: String,
}

impl Place {
    pub fn prepare() -> Option<Place> {
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

    pub fn serve(&self, variables: &[(&str, &str)]) -> Server {
        let arguments = self.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Server::start_with(self.folder.path(), &arguments, variables)
    }

    pub fn reconcile(&self, more: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = command(self.folder.path());
        command.arg("reconcile").args(self.arguments()).args(more);
        command.envs(variables.iter().copied()).output().unwrap()
    }

    pub fn rows_of(&self, rest: &str) -> usize {
        let statement = format!("SELECT * FROM orders_{}.{rest}", self.run);
        self.cassandra.count_rows(&statement).unwrap()
    }

    pub fn open_orders(&self) -> usize {
        self.rows_of("orders_open")
    }

    pub fn wait_until_nothing_is_open(&self) {
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

pub fn was_killed(server: Server, step: &str) {
    let (status, log) = server.ended();
    assert_eq!(
        status.signal(),
        Some(Signal::KILL.as_raw()),
        "{step}: {log}"
    );
    assert!(
        log.contains("THIS PROCESS WILL KILL OR STOP ITSELF"),
        "{log}"
    );
}
