//! Layouts, and engines opened with them, for the tests.

#![allow(dead_code, reason = "each test file uses its own part of this one")]

use std::net::SocketAddr;
use std::path::Path;

use engine_cassandra::{CassandraConfig, CassandraEngine, Keyspace};
use layout::{EngineKind, Layout};

/// The layouts that ship, as far as they use Cassandra.
pub const SHIPPED: [&str; 3] = ["cassandra-orders", "hybrid", "adr-010-1"];

pub async fn open(config: CassandraConfig) -> CassandraEngine {
    CassandraEngine::open(config)
        .await
        .expect("the server of the testbed takes the schema")
}

/// A layout of these tests, or one that ships.
pub fn layout(name: &str) -> Layout {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = format!("{name}.toml");
    let folders = ["tests/layouts", "../../layouts", "../../layouts/drafts"];
    let path = folders
        .iter()
        .map(|folder| root.join(folder).join(&file))
        .find(|path| path.exists())
        .expect("a layout of this name is there");
    let text = std::fs::read_to_string(path).expect("the file is readable");
    Layout::parse(&text, &file).expect("the file is a layout")
}

/// The names of a layout's Cassandra engines.
pub fn engines(layout: &Layout) -> Vec<&str> {
    let is_cassandra = |name: &&String| layout.engines[*name].kind == EngineKind::Cassandra;
    let names = layout.engines.keys().filter(is_cassandra);
    names.map(String::as_str).collect()
}

/// The layout's engine, in a keyspace of the test's own, with as many copies as
/// the cluster has nodes.
pub fn config_of(
    layout: &Layout,
    engine: &str,
    contact_points: Vec<SocketAddr>,
    keyspace: String,
) -> CassandraConfig {
    let copies = u32::try_from(contact_points.len()).expect("a small number");
    let keyspace = Keyspace {
        name: keyspace,
        replication: [("datacenter1".to_owned(), copies)].into(),
        ..Keyspace::of(layout, engine).expect("the layout has this engine")
    };
    CassandraConfig {
        request_timeout_ms: 20_000,
        speculative_after_ms: 5_000,
        unsettled_patience_ms: 30_000,
        collect_margin_s: 0,
        clock_off_ms_max: 2_000,
        ..CassandraConfig::new(contact_points, keyspace)
    }
}

/// The small layout of these tests.
pub fn config(contact_points: Vec<SocketAddr>, keyspace: String) -> CassandraConfig {
    config_of(&layout("small"), "cassandra", contact_points, keyspace)
}
