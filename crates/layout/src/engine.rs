//! The engines that a layout declares: places for records, by a name of the
//! layout's own. Two clusters of one kind are two engines with settings of
//! their own, because some settings exist per cluster only.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::consistency::Replication;

/// Copies per datacentre when a layout does not say.
pub const REPLICATION_FACTOR: u32 = 3;

/// The datacentre that Cassandra's simple snitch reports.
pub const DATACENTRE: &str = "datacenter1";

/// What Cassandra uses when a table does not say: ten days.
pub const GC_GRACE_SECONDS: u64 = 864_000;

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
