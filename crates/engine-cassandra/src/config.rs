//! What the engine is told when it opens, and what it says about the servers.

use std::net::SocketAddr;
use std::time::Duration;

use engine_api::Durability;
use layout::{Collection, Table};

/// From this factor on a majority survives the loss of one server.
const MAJORITY_FACTOR_MIN: u16 = 3;

#[derive(Clone, Debug)]
pub struct CassandraConfig {
    pub contact_points: Vec<SocketAddr>,
    pub keyspace: String,
    pub replication_factor: u16,
    /// One authority a collection, keyed by the record's id, and derived tables.
    pub tables: Vec<Table>,
    pub request_timeout_ms: u64,
    /// How long a reader of the journal waits for an entry that was begun and
    /// not settled before it takes its writer for dead. Above the request
    /// timeout, and above every timeout of the servers.
    pub unsettled_patience_ms: u64,
    /// How long an expired record is left alone before it is collected: above
    /// the clocks' difference and the longest request, because a touch that is
    /// under way must still find its record.
    pub collect_margin_s: u32,
}

/// A setting of the servers that weakens what the layout promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// A killed server loses writes it has acknowledged.
    CommitLogPeriodic { found: String },
    /// Conditional writes take more rounds and lose ground under contention.
    PaxosVariant { found: String },
    /// One server's loss stops the collection, or loses it.
    FewCopies { replication_factor: u16 },
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("no contact points: name at least one server")]
    NoContactPoints,
    #[error("keyspace {keyspace:?} is not a name: use 1 to 48 of a-z, 0-9 and _, a letter first")]
    KeyspaceName { keyspace: String },
    #[error("table {table:?} is not a name: use 1 to 48 of a-z, 0-9 and _, a letter first")]
    TableName { table: String },
    #[error("{name} is zero: give at least 1")]
    Zero { name: &'static str },
    #[error(
        "unsettled_patience_ms is {patience_ms}: give more than request_timeout_ms, {timeout_ms}"
    )]
    Patience { patience_ms: u64, timeout_ms: u64 },
    #[error("{collection} are not kept on this engine: choose another engine for them")]
    Collection { collection: Collection },
    #[error("{collection} have {count} authority tables: declare exactly one")]
    Authorities {
        collection: Collection,
        count: usize,
    },
    #[error("the authority {table} is not keyed by the record's id alone: this engine needs it so")]
    AuthorityKey { table: String },
    #[error("no server answered at the contact points ({reason}): check addresses and servers")]
    Unreachable { reason: String },
    #[error(
        "the schema could not be made ({reason}): check the servers and the rights of the user"
    )]
    Schema { reason: String },
}

impl Warning {
    /// What to change on the servers.
    pub fn remedy(&self) -> String {
        match self {
            Warning::CommitLogPeriodic { found } => format!(
                "commitlog_sync is {found}: set it to group or batch in cassandra.yaml, a killed server loses acknowledged writes otherwise"
            ),
            Warning::PaxosVariant { found } => {
                format!("paxos_variant is {found}: set it to v2 in cassandra.yaml")
            }
            Warning::FewCopies { replication_factor } => format!(
                "the replication factor is {replication_factor}: use {MAJORITY_FACTOR_MIN} so that the loss of a server loses nothing"
            ),
        }
    }
}

impl CassandraConfig {
    pub(crate) fn validate(&self) -> Result<(), OpenError> {
        if self.contact_points.is_empty() {
            return Err(OpenError::NoContactPoints);
        }
        if !is_name(&self.keyspace) {
            return Err(OpenError::KeyspaceName {
                keyspace: self.keyspace.clone(),
            });
        }
        if let Some(table) = self.tables.iter().find(|table| !is_name(&table.name)) {
            return Err(OpenError::TableName {
                table: table.name.clone(),
            });
        }
        let counted = [
            ("replication_factor", u64::from(self.replication_factor)),
            ("request_timeout_ms", self.request_timeout_ms),
        ];
        if let Some((name, _)) = counted.into_iter().find(|(_, number)| *number == 0) {
            return Err(OpenError::Zero { name });
        }
        let (patience_ms, timeout_ms) = (self.unsettled_patience_ms, self.request_timeout_ms);
        if patience_ms <= timeout_ms {
            return Err(OpenError::Patience {
                patience_ms,
                timeout_ms,
            });
        }
        Ok(())
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        Duration::from_millis(self.request_timeout_ms)
    }
}

/// What an acknowledged write survives under these settings.
pub(crate) fn durability(replication_factor: u16, warnings: &[Warning]) -> Durability {
    let periodic = warnings
        .iter()
        .any(|warning| matches!(warning, Warning::CommitLogPeriodic { .. }));
    match (replication_factor >= MAJORITY_FACTOR_MIN, periodic) {
        (true, _) => Durability::Majority,
        (false, false) => Durability::Disk,
        (false, true) => Durability::Process,
    }
}

/// Judges the settings a server reports.
pub(crate) fn judge(
    replication_factor: u16,
    commit_log: Option<String>,
    paxos: Option<String>,
) -> Vec<Warning> {
    let unknown = || "not reported".to_owned();
    let mut warnings = Vec::new();
    let commit_log = commit_log.unwrap_or_else(unknown);
    if commit_log != "batch" && commit_log != "group" {
        warnings.push(Warning::CommitLogPeriodic { found: commit_log });
    }
    let paxos = paxos.unwrap_or_else(unknown);
    if paxos != "v2" {
        warnings.push(Warning::PaxosVariant { found: paxos });
    }
    if replication_factor < MAJORITY_FACTOR_MIN {
        warnings.push(Warning::FewCopies { replication_factor });
    }
    warnings
}

/// Names go into statements as they are, so nothing but these may pass.
fn is_name(name: &str) -> bool {
    (1..=48).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_server_that_syncs_now_and_then_is_not_durable() {
        let text = |text: &str| Some(text.to_owned());
        let check = |factor, commit_log: &str, expected| {
            let warnings = judge(factor, text(commit_log), text("v2"));
            assert_eq!(durability(factor, &warnings), expected);
        };
        check(1, "periodic", Durability::Process);
        check(1, "batch", Durability::Disk);
        check(3, "periodic", Durability::Majority);
        check(3, "group", Durability::Majority);
        assert!(judge(3, text("group"), text("v2")).is_empty());
        assert!(
            judge(1, None, None)
                .iter()
                .all(|warning| !warning.remedy().is_empty())
        );
    }

    #[test]
    fn only_plain_names_pass() {
        assert!(is_name("shop_1"));
        for name in ["", "1shop", "Shop", "a;drop", &"a".repeat(49)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
