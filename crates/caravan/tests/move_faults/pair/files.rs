//! Layout files: the shipped ones, in keyspaces of their own, on more or fewer servers.

use std::fs;
use std::path::{Path, PathBuf};

pub const MONGO_SHARDED: &str = "mongo-sharded";
pub const CASSANDRA_ORDERS: &str = "cassandra-orders";

/// A text that stands so many times in a shipped layout, and what stands there instead.
#[derive(Clone, Debug)]
pub struct Change {
    old: String,
    times: usize,
    new: String,
}

impl Change {
    fn new(old: &str, times: usize, new: &str) -> Change {
        Change {
            old: old.to_owned(),
            times,
            new: new.to_owned(),
        }
    }

    /// Another name for a keyspace: shops one after the other use the same servers.
    pub fn keyspace(name: &str, number: usize) -> Change {
        let line = |name: &str| format!("keyspace = \"{name}\"");
        Change::new(&line(name), 1, &line(&format!("{name}_{number}")))
    }
}

/// Carts over two shards of their engine.
pub fn two_shards_of_carts() -> [Change; 2] {
    [
        Change::new(
            "[engines.carts]\n",
            1,
            "[engines.carts]\nshards = { carts = [], carts-2 = [] }\n",
        ),
        Change::new(
            "[collections.carts]\n",
            1,
            "[collections.carts]\ninitial_shards = [\"carts\", \"carts-2\"]\n",
        ),
    ]
}

/// Everything of `mongo-sharded` on its first shard.
pub fn one_set() -> [Change; 3] {
    [
        Change::new(
            "shards = { shard-1 = [], shard-2 = [] }",
            1,
            "shards = { shard-1 = [] }",
        ),
        Change::new(r#"["shard-1", "shard-2"]"#, 3, r#"["shard-1"]"#),
        Change::new(r#"shard = "shard-2""#, 1, r#"shard = "shard-1""#),
    ]
}

/// The shipped file with other texts.
pub fn changed(folder: &Path, name: &str, changes: &[Change]) -> PathBuf {
    let layouts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../layouts");
    let mut text = fs::read_to_string(layouts.join(format!("{name}.toml"))).unwrap();
    for Change { old, times, new } in changes {
        assert_eq!(text.matches(old).count(), *times, "{name}: {old}");
        text = text.replace(old, new);
    }
    let file = folder.join(format!("{name}.toml"));
    fs::write(&file, text).unwrap();
    file
}
