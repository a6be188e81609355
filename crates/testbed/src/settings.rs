//! What clusters may differ in. Hints and the commit log are set per node, so
//! orders and carts that want different ones are two clusters.

use std::time::Duration;

/// Settings of every node of one Cassandra cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CassandraSettings {
    pub commitlog: Commitlog,
    pub hints: Hints,
}

/// When a node answers a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commitlog {
    /// When it is on disk: a killed node keeps what it acknowledged.
    Batch,
    /// The same, for all writes of some milliseconds together.
    Group,
    /// At once. A killed node loses what it acknowledged last; this is the server's default.
    Periodic,
}

/// What a node keeps for another that is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hints {
    /// For writes of this long, counted from when the other was lost.
    Within(Duration),
    Off,
}

/// What a shared cluster is for, which decides its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Anything,
    Orders,
    Carts,
}

const HOUR: Duration = Duration::from_secs(3_600);

impl Default for CassandraSettings {
    fn default() -> CassandraSettings {
        Purpose::Anything.settings()
    }
}

impl Purpose {
    pub fn settings(self) -> CassandraSettings {
        let (commitlog, hints) = match self {
            Purpose::Anything => (Commitlog::Batch, Hints::Within(3 * HOUR)),
            Purpose::Orders => (Commitlog::Group, Hints::Within(3 * HOUR)),
            Purpose::Carts => (Commitlog::Periodic, Hints::Within(HOUR)),
        };
        CassandraSettings { commitlog, hints }
    }

    pub(crate) fn label(self) -> Option<&'static str> {
        match self {
            Purpose::Anything => None,
            Purpose::Orders => Some("orders"),
            Purpose::Carts => Some("carts"),
        }
    }
}

impl CassandraSettings {
    /// Lines of `cassandra.yaml`.
    pub(crate) fn lines(&self) -> String {
        let commitlog = match self.commitlog {
            Commitlog::Batch => "commitlog_sync: batch",
            Commitlog::Group => "commitlog_sync: group\ncommitlog_sync_group_window: 10ms",
            Commitlog::Periodic => "commitlog_sync: periodic\ncommitlog_sync_period: 10s",
        };
        let hints = match self.hints {
            Hints::Within(window) => format!(
                "hinted_handoff_enabled: true\nmax_hint_window: {}s",
                window.as_secs()
            ),
            Hints::Off => "hinted_handoff_enabled: false".to_owned(),
        };
        format!("{commitlog}\n{hints}")
    }
}
