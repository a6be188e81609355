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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::{CassandraCluster, Nodes, cassandra_wire, required_or_skip};

    #[test]
    fn two_clusters_run_at_once_each_with_its_own_settings() {
        let start =
            |purpose: Purpose| CassandraCluster::exclusive_with(Nodes::One, purpose.settings());
        let Some(orders) = required_or_skip(start(Purpose::Orders), "Cassandra") else {
            return;
        };
        let carts = start(Purpose::Carts).unwrap();
        let set_to = |address: SocketAddr, name: &str, value: &str| {
            let text = format!(
                "SELECT name FROM system_views.settings WHERE name = '{name}' AND value = '{value}' ALLOW FILTERING"
            );
            assert_eq!(
                cassandra_wire::count_rows(address, &text).unwrap(),
                1,
                "{name} of {address} is not {value}"
            );
        };
        let (orders_at, carts_at) = (orders.contact_points()[0], carts.contact_points()[0]);
        assert_ne!(orders_at, carts_at);
        set_to(orders_at, "commitlog_sync", "group");
        set_to(orders_at, "max_hint_window", "10800s");
        set_to(carts_at, "commitlog_sync", "periodic");
        set_to(carts_at, "max_hint_window", "3600s");
    }

    #[test]
    fn hints_that_are_off_name_no_window() {
        let settings = CassandraSettings {
            commitlog: Commitlog::Batch,
            hints: Hints::Off,
        };
        assert_eq!(
            settings.lines(),
            "commitlog_sync: batch\nhinted_handoff_enabled: false"
        );
    }
}
