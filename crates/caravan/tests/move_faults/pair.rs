//! The engines that keys move between, on servers that can be killed.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use testbed::{
    CassandraCluster, ExclusiveCassandraCluster, ExclusiveMongoSet, Members, MongoSet, Nodes,
    Unavailable, required_or_skip,
};

/// Two shards of one layout. What is under one can be killed without the other.
pub struct Pair {
    pub name: &'static str,
    pub shards: [&'static str; 2],
    pub servers: [Server; 2],
    /// Collections that can be moved between them, each with its first keys on the first shard.
    pub collections: &'static [&'static str],
    /// How long nothing is heard of a move before it is taken over. A debug build reads
    /// Cassandra slowly: who takes over too soon compares anew, and never comes to an end.
    pub take_over_ms: u32,
    layout: PathBuf,
    /// As in `shard-1=mongodb://…`.
    addresses: Vec<String>,
    /// Servers and files that the rest stands on, and nobody kills.
    _under: (Option<ExclusiveMongoSet>, Option<TempDir>),
}

pub enum Server {
    Mongo(ExclusiveMongoSet),
    Cassandra(ExclusiveCassandraCluster),
}

pub type Start = fn() -> Option<Pair>;

const MONGO: &str = "MongoDB to MongoDB";
const CASSANDRA: &str = "Cassandra to Cassandra";

/// Those of the table. The first is what a short run takes: its servers are up in seconds.
pub const PAIRS: [(&str, Start); 2] =
    [(MONGO, mongo_to_mongo), (CASSANDRA, cassandra_to_cassandra)];

/// Slots of the first shard in every layout here.
const SLOTS: &str = "0-1023";

/// Map and leases are on the first of them.
fn mongo_to_mongo() -> Option<Pair> {
    let shards = ["shard-1", "shard-2"];
    let sets = [mongo()?, mongo()?];
    let addresses = shards.iter().zip(&sets);
    Some(Pair {
        name: MONGO,
        shards,
        addresses: addresses
            .map(|(shard, set)| format!("{shard}={}", set.uri()))
            .collect(),
        servers: sets.map(Server::Mongo),
        collections: &["carts", "orders"],
        take_over_ms: 5_000,
        layout: layouts().join("mongo-sharded.toml"),
        _under: (None, None),
    })
}

/// Map and leases are on a MongoDB beside them.
fn cassandra_to_cassandra() -> Option<Pair> {
    let shards = ["carts", "carts-2"];
    let clusters = [cassandra()?, cassandra()?];
    let control = mongo()?;
    let at = |cluster: &ExclusiveCassandraCluster| {
        let point = cluster.contact_points()[0];
        format!("{point}/?replication=datacenter1:1")
    };
    let folder = tempfile::tempdir().unwrap();
    Some(Pair {
        name: CASSANDRA,
        shards,
        addresses: vec![
            format!("carts={}", at(&clusters[0])),
            format!("carts-2={}", at(&clusters[1])),
            format!("orders={}", at(&clusters[0])),
            format!("mongo={}", control.uri()),
        ],
        servers: clusters.map(Server::Cassandra),
        collections: &["carts"],
        take_over_ms: 20_000,
        layout: carts_on_two_clusters(folder.path()),
        _under: (Some(control), Some(folder)),
    })
}

fn mongo() -> Option<ExclusiveMongoSet> {
    required_or_skip(MongoSet::exclusive(Members::One), "MongoDB")
}

fn cassandra() -> Option<ExclusiveCassandraCluster> {
    required_or_skip(CassandraCluster::exclusive(Nodes::One), "Cassandra")
}

/// `cassandra-orders`, with carts over two shards of their engine.
fn carts_on_two_clusters(folder: &Path) -> PathBuf {
    let text = fs::read_to_string(layouts().join("cassandra-orders.toml")).unwrap();
    let after = |text: &str, heading: &str, line: &str| {
        let heading = format!("{heading}\n");
        assert_eq!(text.matches(&heading).count(), 1, "{heading}");
        text.replace(&heading, &format!("{heading}{line}\n"))
    };
    let shards = "shards = { carts = [], carts-2 = [] }";
    let text = after(&text, "[engines.carts]", shards);
    let cut = r#"initial_shards = ["carts", "carts-2"]"#;
    let text = after(&text, "[collections.carts]", cut);
    let file = folder.join("cassandra-orders.toml");
    fs::write(&file, text).unwrap();
    file
}

impl Pair {
    /// What the program is told about where everything is.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--layout".to_owned(), self.layout.display().to_string()];
        for address in &self.addresses {
            arguments.extend(["--address".to_owned(), address.clone()]);
        }
        arguments
    }

    /// `move start` for the collection, from one shard (0 or 1) to the other. Generous
    /// with the freeze: what is judged is the outcome, on whatever machine.
    pub fn starting(&self, name: &str, collection: &str, from: usize) -> Vec<String> {
        let (source, target) = (self.shards[from], self.shards[1 - from]);
        let text = format!(
            "move start --name {name} --collection {collection} --slots {SLOTS} \
             --from {source} --to {target} --freeze-ms-max 4000"
        );
        text.split(' ').map(str::to_owned).collect()
    }
}

impl Server {
    pub fn kill(&self) -> Result<(), Unavailable> {
        match self {
            Server::Mongo(set) => set.kill9(0),
            Server::Cassandra(cluster) => cluster.kill9(0),
        }
    }

    /// On the records that it had.
    pub fn restart(&self) -> Result<(), Unavailable> {
        match self {
            Server::Mongo(set) => set.restart(0),
            Server::Cassandra(cluster) => cluster.restart(0),
        }
    }
}

fn layouts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../layouts")
}
