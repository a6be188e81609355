//! The settings of a Cassandra cluster's nodes, as lines of `cassandra.yaml`.

use std::fmt::Write as _;

use super::Cluster;
use crate::engine::{COMMITLOG_WINDOW_MS, CommitlogSync, HINT_WINDOW_SECONDS};

/// Lines that belong on every node of the cluster. Cassandra refuses to start when
/// settings of another sync stand beside the chosen one, so they are named.
pub fn cassandra_yaml(cluster: &Cluster<'_>) -> String {
    let settings = &cluster.engine.settings;
    let mut text = format!(
        "# cluster {}: cassandra.yaml of every node; restart one node at a time\n",
        cluster.name
    );
    let hints = settings.hint_window_seconds.unwrap_or(HINT_WINDOW_SECONDS);
    let _ = writeln!(text, "hinted_handoff_enabled: {}", hints > 0);
    if hints > 0 {
        let _ = writeln!(text, "max_hint_window: {hints}s");
    }
    let sync = settings.commitlog_sync.unwrap_or(CommitlogSync::Periodic);
    text += match sync {
        CommitlogSync::Periodic => "commitlog_sync: periodic\ncommitlog_sync_period: 10000ms\n",
        CommitlogSync::Batch => "# remove commitlog_sync_period\ncommitlog_sync: batch\n",
        CommitlogSync::Group => "# remove commitlog_sync_period\ncommitlog_sync: group\n",
    };
    if sync == CommitlogSync::Group {
        let window = settings.commitlog_window_ms.unwrap_or(COMMITLOG_WINDOW_MS);
        let _ = writeln!(text, "commitlog_sync_group_window: {window}ms");
    }
    // Conditional writes decide on orders and carts (W3).
    text += "paxos_variant: v2\n";
    for (setting, value) in &settings.server_settings {
        let _ = writeln!(text, "{setting}: {value}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Layout;

    fn yaml(engine: &str) -> String {
        let text = include_str!("../../tests/divided.toml").replace("kind = \"embedded\"", engine);
        let layout = Layout::parse(&text, "divided.toml").unwrap();
        let (name, engine) = layout.engines.first_key_value().unwrap();
        cassandra_yaml(&Cluster::new(&layout, name, engine, &[]))
    }

    #[test]
    fn the_commit_log_brings_its_window_and_no_other_syncs() {
        let group =
            yaml("kind = \"cassandra\"\ncommitlog_sync = \"group\"\ncommitlog_window_ms = 5");
        assert!(
            group.contains("commitlog_sync: group\ncommitlog_sync_group_window: 5ms\n"),
            "{group}"
        );
        let batch = yaml("kind = \"cassandra\"\ncommitlog_sync = \"batch\"");
        assert!(
            batch.contains("commitlog_sync: batch\npaxos_variant"),
            "{batch}"
        );
        assert!(yaml("kind = \"cassandra\"").contains("commitlog_sync_period: 10000ms"));
    }

    #[test]
    fn no_hint_window_is_no_hints_and_other_settings_come_along() {
        let text = yaml(
            "kind = \"cassandra\"\nhint_window_seconds = 0\nserver_settings = { concurrent_writes = 64 }",
        );
        assert!(text.contains("hinted_handoff_enabled: false\n"), "{text}");
        assert!(!text.contains("max_hint_window"), "{text}");
        assert!(text.ends_with("concurrent_writes: 64\n"), "{text}");
    }
}
