//! The engines that records move between, on servers that can be killed.

mod files;
mod servers;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use crate::cell::{VICTIMS, Victim};
use crate::errands::Ways;
use files::{CASSANDRA_ORDERS, Change, MONGO_SHARDED, changed, one_set, two_shards_of_carts};
pub use servers::Server;
use servers::{Servers, cassandra, mongo, none};

/// Engines of the table.
#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    /// Servers, started once; `None`: this machine has none.
    pub start: fn() -> Option<Servers>,
    /// An empty shop on them, the how-many-th.
    pub begin: fn(&Servers, usize) -> Pair,
    pub slice: Slice,
}

/// Cells of a short run: as many as its servers allow in about a minute.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// With a step, others every day.
    pub named: usize,
    pub random: usize,
}

/// Two sides. What is under one can be killed without the other.
pub struct Pair {
    /// By the side that a move starts from.
    pub names: [&'static str; 2],
    /// What each side is called.
    pub sides: [&'static str; 2],
    pub ground: Ground,
    /// Collections that can be moved between them, each on the first side at the start.
    pub collections: &'static [&'static str],
    /// How long nothing is heard of a move before it is taken over.
    pub take_over_ms: u32,
    /// As in `shard-1=mongodb://…`.
    addresses: Vec<String>,
    servers: Servers,
    _files: TempDir,
}

/// What the sides are.
pub enum Ground {
    /// Two shards of a data directory; the one process that serves it moves, too.
    Directory,
    /// Two shards of one layout.
    Shards { layout: PathBuf },
    /// Two layouts; whole collections move, there and back. The map is where the first has it.
    Layouts { files: [PathBuf; 2] },
}

const EMBEDDED: &str = "embedded to embedded";
const MONGO: &str = "MongoDB to MongoDB";
const CASSANDRA: &str = "Cassandra to Cassandra";
const TO_CASSANDRA: &str = "MongoDB to Cassandra";
const TO_MONGO: &str = "Cassandra to MongoDB";

/// The first needs no servers. The last is two: between two engines every cell comes from each.
pub const KINDS: [Kind; 4] = [
    Kind {
        name: EMBEDDED,
        start: none,
        begin: in_a_directory,
        slice: Slice {
            named: 3,
            random: 1,
        },
    },
    Kind {
        name: MONGO,
        start: || Some(Servers::under([mongo()?, mongo()?])),
        begin: on_two_sets,
        slice: Slice {
            named: 3,
            random: 1,
        },
    },
    Kind {
        name: CASSANDRA,
        start: || Some(Servers::under([cassandra()?, cassandra()?]).beside(mongo()?)),
        begin: on_two_clusters,
        slice: Slice {
            named: 2,
            random: 0,
        },
    },
    Kind {
        name: TO_CASSANDRA,
        start: || Some(Servers::under([mongo()?, cassandra()?])),
        begin: on_a_set_and_a_cluster,
        slice: Slice {
            named: 1,
            random: 0,
        },
    },
];

/// Slots of the first shard in every layout here.
const SLOTS: &str = "0-1023";

fn in_a_directory(servers: &Servers, _: usize) -> Pair {
    Pair {
        names: [EMBEDDED; 2],
        sides: ["shard-1", "shard-2"],
        ground: Ground::Directory,
        collections: &["carts", "orders"],
        // Nobody else could hold it.
        take_over_ms: 2_000,
        addresses: Vec::new(),
        servers: servers.clone(),
        _files: tempfile::tempdir().unwrap(),
    }
}

/// Map and leases are on the first of them.
fn on_two_sets(servers: &Servers, number: usize) -> Pair {
    let files = tempfile::tempdir().unwrap();
    let own = Change::keyspace("shop", number);
    Pair {
        names: [MONGO; 2],
        sides: ["shard-1", "shard-2"],
        ground: Ground::Shards {
            layout: changed(files.path(), MONGO_SHARDED, &[own]),
        },
        collections: &["carts", "orders"],
        take_over_ms: 5_000,
        addresses: vec![
            format!("shard-1={}", servers.address(0)),
            format!("shard-2={}", servers.address(1)),
        ],
        servers: servers.clone(),
        _files: files,
    }
}

/// Map and leases are on a MongoDB beside them.
fn on_two_clusters(servers: &Servers, number: usize) -> Pair {
    let files = tempfile::tempdir().unwrap();
    let own = ["orders", "carts", "shop"].map(|name| Change::keyspace(name, number));
    let changes = [&own[..], &two_shards_of_carts()].concat();
    Pair {
        names: [CASSANDRA; 2],
        sides: ["carts", "carts-2"],
        ground: Ground::Shards {
            layout: changed(files.path(), CASSANDRA_ORDERS, &changes),
        },
        collections: &["carts"],
        take_over_ms: 5_000,
        addresses: vec![
            format!("carts={}", servers.address(0)),
            format!("carts-2={}", servers.address(1)),
            format!("orders={}", servers.address(0)),
            format!("mongo={}", servers.address_beside()),
        ],
        servers: servers.clone(),
        _files: files,
    }
}

/// `mongo-sharded` on one replica set. Its products stay there when orders go, and so do map and leases; the other
/// layout has a database of its own for products.
fn on_a_set_and_a_cluster(servers: &Servers, number: usize) -> Pair {
    let files = tempfile::tempdir().unwrap();
    let here = [&[Change::keyspace("shop", number)][..], &one_set()].concat();
    let own = ["orders", "carts", "shop"].map(|name| Change::keyspace(name, 10_000 + number));
    Pair {
        names: [TO_CASSANDRA, TO_MONGO],
        sides: [MONGO_SHARDED, CASSANDRA_ORDERS],
        ground: Ground::Layouts {
            files: [
                changed(files.path(), MONGO_SHARDED, &here),
                changed(files.path(), CASSANDRA_ORDERS, &own),
            ],
        },
        collections: &["orders"],
        take_over_ms: 5_000,
        addresses: vec![
            format!("shard-1={}", servers.address(0)),
            format!("orders={}", servers.address(1)),
            format!("carts={}", servers.address(1)),
            format!("mongo={}", servers.address(0)),
        ],
        servers: servers.clone(),
        _files: files,
    }
}

impl Pair {
    pub fn victims(&self) -> &'static [Victim] {
        match self.ground {
            Ground::Directory => &[Victim::Mover],
            Ground::Shards { .. } | Ground::Layouts { .. } => &VICTIMS,
        }
    }

    pub fn ways(&self) -> Ways {
        match self.ground {
            Ground::Directory | Ground::Shards { .. } => Ways::Either,
            Ground::Layouts { .. } => Ways::Each,
        }
    }

    /// Processes that serve.
    pub fn processes(&self) -> usize {
        match self.ground {
            Ground::Directory => 1,
            Ground::Shards { .. } | Ground::Layouts { .. } => 2,
        }
    }

    pub fn server(&self, side: usize) -> Option<&Arc<Server>> {
        self.servers.sides.get(side)
    }

    /// What a process that serves is told about where everything is.
    pub fn serving(&self) -> Vec<String> {
        match &self.ground {
            Ground::Layouts { files } => {
                let toward = ["--toward".to_owned(), shown(&files[1])];
                [self.place(), toward.to_vec()].concat()
            }
            Ground::Directory | Ground::Shards { .. } => self.place(),
        }
    }

    /// The same for a command.
    pub fn place(&self) -> Vec<String> {
        match &self.ground {
            Ground::Directory => Vec::new(),
            Ground::Shards { layout } => self.of_layout(layout),
            Ground::Layouts { files } => self.of_layout(&files[0]),
        }
    }

    fn of_layout(&self, file: &Path) -> Vec<String> {
        let mut arguments = vec!["--layout".to_owned(), shown(file)];
        for address in &self.addresses {
            arguments.extend(["--address".to_owned(), address.clone()]);
        }
        arguments
    }

    /// The command that starts a move of the collection from this side to the other, and the move's
    /// name. Generous with the freeze: what is judged is the outcome, on whatever machine.
    pub fn starting(&self, name: &str, collection: &str, from: usize) -> (String, Vec<String>) {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let (source, target) = (self.sides[from], self.sides[1 - from]);
        match &self.ground {
            Ground::Directory | Ground::Shards { .. } => {
                let start = words(&format!(
                    "move start --name {name} --collection {collection} --slots {SLOTS} \
                     --from {source} --to {target} --freeze-ms-max 8000"
                ));
                (name.to_owned(), [start, self.place()].concat())
            }
            Ground::Layouts { files } => {
                let start = words(&format!(
                    "move layout start --name {name} --collection {collection} --freeze-ms-max 8000"
                ));
                let mut place = self.of_layout(&files[from]);
                place.extend(["--toward".to_owned(), shown(&files[1 - from])]);
                if from == 1 {
                    place.extend(["--control".to_owned(), shown(&files[0])]);
                }
                (format!("{name}-{collection}"), [start, place].concat())
            }
        }
    }
}

fn shown(file: &Path) -> String {
    file.display().to_string()
}
