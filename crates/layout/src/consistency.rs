//! Consistency as policy: how many copies answer a read, how many keep a write,
//! and how old an answer may be; per operation, with a default per collection.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::path::Operation;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadLevel {
    One,
    Quorum,
    LocalQuorum,
    All,
    Serial,
    Primary,
    Secondary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteLevel {
    One,
    Quorum,
    LocalQuorum,
    All,
    Majority,
}

/// What one operation is promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub read: ReadLevel,
    pub write: WriteLevel,
    /// How old an answer may be. Zero: as new as the newest acknowledged write.
    pub may_lag_seconds: u64,
    /// An answer with one of these statuses is read again without lag before it
    /// is given, because something may be decided on it.
    pub unless_status: Vec<String>,
    /// What an operator should read beside the figures, such as "eventual".
    pub label: Option<String>,
}

/// How many copies a write and a read reach, of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopySum {
    pub written: u32,
    pub read: u32,
    pub copies: u32,
}

/// The policies of one store of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consistency {
    pub default: Policy,
    pub operations: BTreeMap<Operation, Policy>,
}

/// Copies per datacentre.
pub type Replication = BTreeMap<String, u32>;

impl Policy {
    pub fn new(read: ReadLevel, write: WriteLevel) -> Policy {
        Policy {
            read,
            write,
            may_lag_seconds: 0,
            unless_status: Vec::new(),
            label: None,
        }
    }

    /// Whether the file says that an acknowledged write may be missing from an answer.
    pub fn is_eventual(&self) -> bool {
        let label = self.label.as_deref();
        label.is_some_and(|label| label.starts_with("eventual"))
    }

    /// Whether every read meets at least one copy that has the last acknowledged
    /// write: copies read + copies written > copies, counted among the copies
    /// that both may use. Levels of MongoDB do not count copies.
    pub fn overlaps(&self, replication: &Replication) -> bool {
        match self.sum(replication) {
            Some(sum) => sum.written + sum.read > sum.copies,
            None => self.read != ReadLevel::Secondary,
        }
    }

    /// The copies that a write and a read of this policy touch, where levels
    /// count copies.
    pub fn sum(&self, replication: &Replication) -> Option<CopySum> {
        let all: u32 = replication.values().sum();
        let least_local = replication.values().copied().min().unwrap_or(0);
        // A local quorum of each side meets only within one datacentre, which is
        // where a client stays; any wider level is counted over all copies.
        let both_local =
            self.read == ReadLevel::LocalQuorum && self.write == WriteLevel::LocalQuorum;
        Some(CopySum {
            written: self.write.copies(all, least_local)?,
            read: self.read.copies(all, least_local)?,
            copies: if both_local { least_local } else { all },
        })
    }
}

impl Consistency {
    pub fn policy(&self, operation: Operation) -> &Policy {
        self.operations.get(&operation).unwrap_or(&self.default)
    }

    /// The default first, then what operations have of their own.
    pub fn policies(&self) -> impl Iterator<Item = (Option<Operation>, &Policy)> {
        let own = self
            .operations
            .iter()
            .map(|(operation, policy)| (Some(*operation), policy));
        std::iter::once((None, &self.default)).chain(own)
    }
}

impl ReadLevel {
    pub const fn name(self) -> &'static str {
        match self {
            ReadLevel::One => "one",
            ReadLevel::Quorum => "quorum",
            ReadLevel::LocalQuorum => "local_quorum",
            ReadLevel::All => "all",
            ReadLevel::Serial => "serial",
            ReadLevel::Primary => "primary",
            ReadLevel::Secondary => "secondary",
        }
    }

    fn copies(self, all: u32, least_local: u32) -> Option<u32> {
        match self {
            ReadLevel::One => Some(1),
            ReadLevel::Quorum | ReadLevel::Serial => Some(all / 2 + 1),
            ReadLevel::LocalQuorum => Some(least_local / 2 + 1),
            ReadLevel::All => Some(all),
            ReadLevel::Primary | ReadLevel::Secondary => None,
        }
    }
}

impl WriteLevel {
    pub const fn name(self) -> &'static str {
        match self {
            WriteLevel::One => "one",
            WriteLevel::Quorum => "quorum",
            WriteLevel::LocalQuorum => "local_quorum",
            WriteLevel::All => "all",
            WriteLevel::Majority => "majority",
        }
    }

    fn copies(self, all: u32, least_local: u32) -> Option<u32> {
        match self {
            WriteLevel::One => Some(1),
            WriteLevel::Quorum => Some(all / 2 + 1),
            WriteLevel::LocalQuorum => Some(least_local / 2 + 1),
            WriteLevel::All => Some(all),
            WriteLevel::Majority => None,
        }
    }
}

impl fmt::Display for ReadLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for WriteLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_read_and_written_meet_only_when_they_are_more_than_there_are() {
        fn check(write: WriteLevel, read: ReadLevel, copies: &[u32], expected: bool) {
            let replication = copies
                .iter()
                .enumerate()
                .map(|(at, copies)| (format!("dc{at}"), *copies))
                .collect();
            assert_eq!(
                Policy::new(read, write).overlaps(&replication),
                expected,
                "{write} {read} {copies:?}"
            );
        }
        check(WriteLevel::Quorum, ReadLevel::Quorum, &[3], true);
        check(WriteLevel::One, ReadLevel::LocalQuorum, &[3], false);
        check(WriteLevel::One, ReadLevel::All, &[3], true);
        check(
            WriteLevel::LocalQuorum,
            ReadLevel::LocalQuorum,
            &[3, 3],
            true,
        );
        check(WriteLevel::LocalQuorum, ReadLevel::Quorum, &[3, 3], false);
        check(WriteLevel::Quorum, ReadLevel::Quorum, &[3, 3], true);
        check(WriteLevel::One, ReadLevel::One, &[1], true);
        check(WriteLevel::Majority, ReadLevel::Primary, &[], true);
        check(WriteLevel::Majority, ReadLevel::Secondary, &[], false);
    }
}
