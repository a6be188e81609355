//! What is said about servers that are used all the same.

use super::COPIES_MIN;

/// A setting of the servers that weakens what the layout promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// A killed server loses writes it has acknowledged.
    CommitLogPeriodic { server: String, found: String },
    /// Conditional writes take more rounds and lose ground under contention.
    PaxosVariant { server: String, found: String },
    /// What a server missed while it was away stays missing until a repair.
    HintsOff { server: String },
    /// Hints are kept for another time than the layout says.
    HintWindow {
        server: String,
        found_seconds: u64,
        declared_seconds: u64,
    },
    /// A deleted row could come back from a server that missed the deletion.
    Grace {
        table: String,
        grace_seconds: u64,
        other: &'static str,
        other_seconds: u64,
    },
    /// One server's loss stops the collection, or loses it.
    FewCopies { copies: u32 },
    /// The server could not be asked.
    NotAsked { server: String, reason: String },
}

impl Warning {
    /// What to change on the servers or in the layout.
    pub fn remedy(&self) -> String {
        match self {
            Warning::CommitLogPeriodic { server, found } => format!(
                "commitlog_sync of {server} is {found}: set it to group or batch in cassandra.yaml, a killed server loses acknowledged writes otherwise"
            ),
            Warning::PaxosVariant { server, found } => {
                format!("paxos_variant of {server} is {found}: set it to v2 in cassandra.yaml")
            }
            Warning::HintsOff { server } => format!(
                "hinted_handoff_enabled of {server} is false: set it to true in cassandra.yaml, or run repair after every outage"
            ),
            Warning::HintWindow {
                server,
                found_seconds,
                declared_seconds,
            } => format!(
                "max_hint_window of {server} is {found_seconds} s and the layout says {declared_seconds} s: set it in cassandra.yaml"
            ),
            Warning::Grace {
                table,
                grace_seconds,
                other,
                other_seconds,
            } => format!(
                "gc_grace_seconds of {table} is {grace_seconds}, not above {other} of {other_seconds} s: raise it in the layout, deleted rows could come back"
            ),
            Warning::FewCopies { copies } => format!(
                "there are {copies} copies: use {COPIES_MIN} so that the loss of a server loses nothing"
            ),
            Warning::NotAsked { server, reason } => {
                format!(
                    "settings of {server} are not known ({reason}): start it, then this process again"
                )
            }
        }
    }
}
