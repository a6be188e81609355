//! The engines that a layout declares: places for records, by a name of the
//! layout's own. Two clusters of one kind are two engines with settings of
//! their own, because some settings exist per cluster only.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::consistency::Replication;
use crate::server_version::ServerVersion;

/// Copies per datacentre when a layout does not say.
pub const REPLICATION_FACTOR: u32 = 3;

/// The datacentre that Cassandra's simple snitch reports.
pub const DATACENTRE: &str = "datacenter1";

/// Keyspace or database, when a layout does not say.
pub const KEYSPACE: &str = "shop";

/// What Cassandra uses when a table does not say: ten days.
pub const GC_GRACE_SECONDS: u64 = 864_000;

/// What Cassandra uses when a layout does not say: three hours.
pub const HINT_WINDOW_SECONDS: u64 = 10_800;

/// How long writes wait for each other's sync, when a layout does not say. More
/// than this and an order misses its 20 ms.
pub const COMMITLOG_WINDOW_MS: u64 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineKind {
    Memory,
    Embedded,
    Cassandra,
    Mongo,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineDeclaration {
    pub kind: EngineKind,
    /// Where the cluster is asked; empty when the process's own settings say it.
    pub addresses: Vec<String>,
    /// Keyspace on Cassandra, database on MongoDB.
    pub keyspace: Option<String>,
    pub replication: Replication,
    pub settings: EngineSettings,
    /// Several clusters that serve one collection, each a shard of the map, with
    /// their addresses. Empty: one shard under the engine's own name.
    pub shards: BTreeMap<String, Vec<String>>,
    /// The datacentre this process stands in, for local levels.
    pub local_datacentre: Option<String>,
    /// What the layout is checked against; the server itself is asked at start.
    pub server_version: Option<ServerVersion>,
}

/// What the nodes of a cluster are set to. `None`: the server's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineSettings {
    pub hint_window_seconds: Option<u64>,
    pub commitlog_sync: Option<CommitlogSync>,
    pub repair_interval_seconds: Option<u64>,
    /// Share of reads that the platform repeats at ALL in the background.
    pub sampled_repair_percent: Option<u8>,
    /// How long a write may wait for others to share its sync, with group.
    pub commitlog_window_ms: Option<u64>,
    /// Further settings of the server, by its own names.
    #[serde(default)]
    pub server_settings: BTreeMap<String, String>,
}

/// When Cassandra answers a write: at once (periodic), or when it is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommitlogSync {
    Periodic,
    Batch,
    Group,
}

impl EngineKind {
    pub const fn name(self) -> &'static str {
        match self {
            EngineKind::Memory => "memory",
            EngineKind::Embedded => "embedded",
            EngineKind::Cassandra => "cassandra",
            EngineKind::Mongo => "mongo",
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
