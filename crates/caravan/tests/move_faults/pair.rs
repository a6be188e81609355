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
    /// A data directory, where the map stays, and a layout on servers; the one process that has the directory moves, too.
    DirectoryAndLayout { file: PathBuf },
}

const EMBEDDED: &str = "embedded to embedded";
const MONGO: &str = "MongoDB to MongoDB";
const CASSANDRA: &str = "Cassandra to Cassandra";
const TO_CASSANDRA: &str = "MongoDB to Cassandra";
const TO_MONGO: &str = "Cassandra to MongoDB";
const EMBEDDED_TO_MONGO: &str = "embedded to MongoDB";
const MONGO_TO_EMBEDDED: &str = "MongoDB to embedded";
const EMBEDDED_TO_CASSANDRA: &str = "embedded to Cassandra";
const CASSANDRA_TO_EMBEDDED: &str = "Cassandra to embedded";

/// The first needs no servers. The last three are two each: between two engines every cell comes from each.
pub const KINDS: [Kind; 6] = [
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
    Kind {
        name: EMBEDDED_TO_MONGO,
        start: || Some(Servers::under_the_second(mongo()?)),
        begin: in_a_directory_and_a_set,
        slice: Slice {
            named: 2,
            random: 1,
        },
    },
    Kind {
        name: EMBEDDED_TO_CASSANDRA,
        start: || Some(Servers::under_the_second(cassandra()?).beside(mongo()?)),
        begin: in_a_directory_and_a_cluster,
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

/// All collections of the directory's shop but the orders stay where they are.
fn in_a_directory_and_a_set(servers: &Servers, number: usize) -> Pair {
    let changes = [&[Change::keyspace("shop", number)][..], &one_set()].concat();
    let address = format!("{MONGO_SHARDED}-shard-1={}", servers.address(1));
    in_a_directory_and(
        [EMBEDDED_TO_MONGO, MONGO_TO_EMBEDDED],
        MONGO_SHARDED,
        &changes,
        vec![address],
        servers,
    )
}

fn in_a_directory_and_a_cluster(servers: &Servers, number: usize) -> Pair {
    let changes = ["orders", "carts", "shop"].map(|name| Change::keyspace(name, number));
    let cluster = servers.address(1);
    let addresses = vec![
        format!("{CASSANDRA_ORDERS}-orders={cluster}"),
        format!("{CASSANDRA_ORDERS}-carts={cluster}"),
        format!("{CASSANDRA_ORDERS}-mongo={}", servers.address_beside()),
    ];
    in_a_directory_and(
        [EMBEDDED_TO_CASSANDRA, CASSANDRA_TO_EMBEDDED],
        CASSANDRA_ORDERS,
        &changes,
        addresses,
        servers,
    )
}

fn in_a_directory_and(
    names: [&'static str; 2],
    layout: &'static str,
    changes: &[Change],
    addresses: Vec<String>,
    servers: &Servers,
) -> Pair {
    let files = tempfile::tempdir().unwrap();
    Pair {
        names,
        sides: ["embedded", layout],
        ground: Ground::DirectoryAndLayout {
            file: changed(files.path(), layout, changes),
        },
        collections: &["orders"],
        // Nobody else could hold it.
        take_over_ms: 2_000,
        addresses,
        servers: servers.clone(),
        _files: files,
    }
}

impl Pair {
    /// Who can be killed in a move from one side or the other.
    pub fn victims(&self) -> &'static [Victim] {
        match self.ground {
            Ground::Directory => &[Victim::Mover],
            Ground::Shards { .. } | Ground::Layouts { .. } => &VICTIMS,
            Ground::DirectoryAndLayout { .. } => {
                &[Victim::Mover, Victim::SourceServer, Victim::TargetServer]
            }
        }
    }

    /// Whether it is there in a move from this side.
    pub fn has(&self, victim: Victim, from: usize) -> bool {
        match victim {
            Victim::Mover => true,
            Victim::Router => !self.is_alone(),
            Victim::SourceServer => self.server(from).is_some(),
            Victim::TargetServer => self.server(1 - from).is_some(),
        }
    }

    pub fn ways(&self) -> Ways {
        match self.ground {
            Ground::Directory | Ground::Shards { .. } => Ways::Either,
            Ground::Layouts { .. } | Ground::DirectoryAndLayout { .. } => Ways::Each,
        }
    }

    /// Whether one process serves, and nobody can be asked anything without it: it has a directory.
    pub fn is_alone(&self) -> bool {
        match self.ground {
            Ground::Directory | Ground::DirectoryAndLayout { .. } => true,
            Ground::Shards { .. } | Ground::Layouts { .. } => false,
        }
    }

    /// Processes that serve.
    pub fn processes(&self) -> usize {
        match self.is_alone() {
            true => 1,
            false => 2,
        }
    }

    pub fn server(&self, side: usize) -> Option<&Arc<Server>> {
        self.servers.sides.get(side)?.as_ref()
    }

    /// What a process that serves is told about where everything is, for moves from this side.
    pub fn serving(&self, from: usize) -> Vec<String> {
        match &self.ground {
            Ground::Layouts { files } => {
                let toward = ["--toward".to_owned(), shown(&files[1])];
                [self.place(), toward.to_vec()].concat()
            }
            Ground::DirectoryAndLayout { file } => self.toward(file, from),
            Ground::Directory | Ground::Shards { .. } => self.place(),
        }
    }

    /// The same for a command.
    pub fn place(&self) -> Vec<String> {
        match &self.ground {
            Ground::Directory | Ground::DirectoryAndLayout { .. } => Vec::new(),
            Ground::Shards { layout } => self.of_layout(layout),
            Ground::Layouts { files } => self.of_layout(&files[0]),
        }
    }

    fn of_layout(&self, file: &Path) -> Vec<String> {
        [vec!["--layout".to_owned(), shown(file)], self.addresses()].concat()
    }

    /// From the directory to the layout, or the other way; the map is in the directory.
    fn toward(&self, file: &Path, from: usize) -> Vec<String> {
        let file = shown(file);
        let words: &[&str] = match from {
            0 => &["--toward", &file],
            _ => &[
                "--layout",
                &file,
                "--toward",
                "embedded",
                "--control",
                "embedded",
            ],
        };
        let words = words.iter().map(|word| (*word).to_owned());
        words.chain(self.addresses()).collect()
    }

    fn addresses(&self) -> Vec<String> {
        let told = self.addresses.iter();
        told.flat_map(|address| ["--address".to_owned(), address.clone()])
            .collect()
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
            Ground::DirectoryAndLayout { file } => {
                let start = words(&format!(
                    "move layout start --name {name} --collection {collection} --freeze-ms-max 8000"
                ));
                let start = [start, self.toward(file, from)].concat();
                (format!("{name}-{collection}"), start)
            }
        }
    }
}

fn shown(file: &Path) -> String {
    file.display().to_string()
}
