//! What collections can be moved between: the data directory, and layouts on real servers, each run's own.

use std::fmt::Write as _;
use std::path::Path;

use testbed::{CassandraCluster, Members, MongoSet, Nodes, required_or_skip};

/// Everything in the data directory.
pub const EMBEDDED: &str = "embedded";
/// Everything on two replica sets, products by category and id, orders by user.
pub const MONGO: &str = "mongo-sharded";
/// Carts, sessions and orders on Cassandra, products on MongoDB.
pub const CASSANDRA: &str = "cassandra-orders";
/// `mongo-sharded` with products by id alone and orders by zone and user.
pub const REKEYED: &str = "mongo-rekeyed";

const LAYOUTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../layouts");

/// One layout, as the command line names it.
pub struct Side {
    pub name: &'static str,
    /// `None`: the data directory.
    file: Option<String>,
    /// As in `mongo-sharded-shard-1=mongodb://…`, the layout before the shard's name: the other may have the same.
    pub addresses: Vec<String>,
}

/// Shared by all runs on this machine.
pub struct Servers {
    sets: [MongoSet; 2],
    cassandra: Option<CassandraCluster>,
}

impl Servers {
    pub fn start(sides: [&str; 2]) -> Option<Servers> {
        let label = "second".parse().unwrap();
        let first = required_or_skip(testbed::mongo(Members::One), "MongoDB")?;
        let second = required_or_skip(testbed::mongo_labelled(Members::One, &label), "MongoDB")?;
        let cassandra = match sides.contains(&CASSANDRA) {
            true => {
                let started = testbed::cassandra(Nodes::One);
                Some(required_or_skip(started, "Cassandra")?)
            }
            false => None,
        };
        Some(Servers {
            sets: [first, second],
            cassandra,
        })
    }

    /// The layout with keyspaces of this run.
    pub fn side(&self, name: &'static str, folder: &Path) -> Side {
        let database = self.sets[0].database("ways");
        let [first, second] = [0, 1].map(|place| self.sets[place].uri());
        let on_two_sets = vec![
            format!("{name}-shard-1={first}"),
            format!("{name}-shard-2={second}"),
        ];
        let (text, keyspaces, addresses) = match name {
            EMBEDDED => {
                return Side {
                    name,
                    file: None,
                    addresses: Vec::new(),
                };
            }
            MONGO => {
                let keyspaces = vec![("shop", format!("{database}_m"))];
                (shipped(MONGO), keyspaces, on_two_sets)
            }
            REKEYED => {
                let keyspaces = vec![("shop", format!("{database}_r"))];
                (rekeyed(&shipped(MONGO)), keyspaces, on_two_sets)
            }
            CASSANDRA => {
                let cluster = self.cassandra.as_ref().unwrap();
                let run = cluster.keyspace("w");
                let keyspaces = vec![
                    ("orders", format!("{run}_orders")),
                    ("carts", format!("{run}_carts")),
                    ("shop", format!("{database}_c")),
                ];
                let point = cluster.contact_points()[0];
                let at = format!("{point}/?replication=datacenter1:1");
                let addresses = vec![
                    format!("{name}-orders={at}"),
                    format!("{name}-carts={at}"),
                    format!("{name}-mongo={second}"),
                ];
                (shipped(CASSANDRA), keyspaces, addresses)
            }
            other => panic!("nobody knows a side {other}"),
        };
        let file = folder.join(format!("{name}.toml"));
        std::fs::write(&file, with_keyspaces(&text, &keyspaces)).unwrap();
        Side {
            name,
            file: Some(file.to_str().unwrap().to_owned()),
            addresses,
        }
    }
}

impl Side {
    pub fn is_directory(&self) -> bool {
        self.file.is_none()
    }

    /// As the layout that is served.
    pub fn as_layout(&self) -> Vec<String> {
        let file = self.file.iter();
        file.flat_map(|file| ["--layout".to_owned(), file.clone()])
            .collect()
    }

    /// As what `--toward` and `--control` take.
    pub fn as_word(&self) -> String {
        self.file.clone().unwrap_or(EMBEDDED.to_owned())
    }
}

fn shipped(name: &str) -> String {
    std::fs::read_to_string(Path::new(LAYOUTS).join(format!("{name}.toml"))).unwrap()
}

fn with_keyspaces(text: &str, keyspaces: &[(&str, String)]) -> String {
    let mut own = String::new();
    for line in text.lines() {
        let renamed = line.strip_prefix("keyspace = ").and_then(|old| {
            let old = old.trim_matches('"');
            keyspaces.iter().find(|(name, _)| *name == old)
        });
        match renamed {
            Some((_, new)) => writeln!(own, "keyspace = \"{new}\"").unwrap(),
            None => writeln!(own, "{line}").unwrap(),
        }
    }
    own
}

/// Products `{category, _id}` become `{_id: hashed}`, orders `user_id` become `geo_zone` + `user_id`.
fn rekeyed(text: &str) -> String {
    let once = |text: &str, from: &str, to: &str| {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        text.replace(from, to)
    };
    let text = once(text, "name = \"mongo-sharded\"", "name = \"mongo-rekeyed\"");
    let by_user = "shard_key = [\"user_id\"]";
    let text = once(&text, by_user, "shard_key = [\"geo_zone\", \"user_id\"]");
    let ranges = text
        .find("shard_key = [\"category\", \"product_id\"]")
        .unwrap();
    let zones = "zones = { high_capacity = [\"shard-1\"] }\n";
    let end = text.find(zones).unwrap() + zones.len();
    let by_id = "shard_key = [\"product_id\"]\ncut = \"slots\"\ninitial_shards = [\"shard-1\", \"shard-2\"]\n";
    format!("{}{by_id}{}", &text[..ranges], &text[end..])
}
