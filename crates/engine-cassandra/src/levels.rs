//! Consistency levels, from the policies of the layout.
//!
//! The engine is not told which operation asks, only by which access path: of
//! the operations that use a path, the strictest policy is kept. Who asks for
//! the latest gets it whatever the policy (E15): a mover that copied what one
//! server happens to hold would lose the rest.
//!
//! Who may lag and brings a token is shown what it has seen: after the decisions where
//! reads and writes meet, and otherwise from all copies, because the one that took a
//! patch at ONE may be any of them.
//!
//! What decides (create, change, remove, and the rows of derived tables that go
//! with it) is written at a quorum whatever the policy says, because it rests on
//! a lightweight transaction, which takes one anyway. A policy of ONE is for
//! patches: the lines of a cart, the touch of a session.

use std::collections::BTreeMap;
use std::time::Duration;

use engine_api::{Because, Freshness, Revision, Served};
use layout::consistency::Replication;
use layout::{AccessPath, Operation, ReadLevel, Store, WriteLevel};
use scylla::statement::{Consistency, SerialConsistency};

use crate::config::OpenError;

/// Which of the engine's own bookkeeping goes to a quorum of the datacentre.
pub(crate) const BOOKKEEPING: Consistency = Consistency::LocalQuorum;

#[derive(Clone, Debug)]
pub(crate) struct Levels {
    /// One kind for all conditional writes of a collection: rounds of the two
    /// kinds do not see each other.
    pub serial: SerialConsistency,
    /// Commits of conditional writes, and derived rows.
    pub decided: Consistency,
    pub patched: Consistency,
    /// Whether a read meets every acknowledged patch.
    pub overlapping: bool,
    paths: BTreeMap<AccessPath, ReadLevel>,
}

impl Levels {
    pub fn of(store: &Store, replication: &Replication) -> Result<Levels, OpenError> {
        let policies = || store.consistency.policies().map(|(_, policy)| policy);
        for policy in policies() {
            let of_mongo = matches!(policy.read, ReadLevel::Primary | ReadLevel::Secondary);
            if of_mongo || policy.write == WriteLevel::Majority {
                return Err(OpenError::Level {
                    read: policy.read,
                    write: policy.write,
                });
            }
        }
        let default = &store.consistency.default;
        let is_local = default.read == ReadLevel::LocalQuorum
            || (default.read == ReadLevel::One && default.write != WriteLevel::Quorum);
        let write = policies()
            .map(|policy| policy.write)
            .max_by_key(|level| write_strictness(*level))
            .expect("there is always a default policy");
        let quorum = if is_local {
            Consistency::LocalQuorum
        } else {
            Consistency::Quorum
        };
        Ok(Levels {
            serial: if is_local {
                SerialConsistency::LocalSerial
            } else {
                SerialConsistency::Serial
            },
            decided: if write == WriteLevel::All {
                Consistency::All
            } else {
                quorum
            },
            patched: write_level(write),
            overlapping: policies().all(|policy| policy.overlaps(replication)),
            paths: paths(store),
        })
    }

    /// How a path is read by whoever needs it this fresh.
    pub fn read(&self, path: AccessPath, freshness: Freshness) -> Consistency {
        if self.is_own_change_sought(freshness) {
            return match self.overlapping {
                true => self.latest(),
                false => Consistency::All,
            };
        }
        let level = self.paths.get(&path).copied();
        match (level.unwrap_or(ReadLevel::Serial), freshness) {
            (ReadLevel::All, _) => Consistency::All,
            (ReadLevel::One, Freshness::MayLag { .. }) => Consistency::One,
            (ReadLevel::LocalQuorum, Freshness::MayLag { .. }) => Consistency::LocalQuorum,
            (ReadLevel::Quorum, Freshness::MayLag { .. }) => Consistency::Quorum,
            _ => self.latest(),
        }
    }

    /// Whether the reader may lag, but not behind a change that it has seen.
    pub fn is_own_change_sought(&self, freshness: Freshness) -> bool {
        matches!(freshness, Freshness::MayLag { seen, .. } if seen > Revision::ZERO)
    }

    /// How an answer to such a reader is come by.
    pub fn served(&self, path: AccessPath, freshness: Freshness) -> Served {
        match freshness {
            Freshness::Latest | Freshness::OfEveryCopy => Served::Latest(Because::Asked),
            _ if self.is_own_change_sought(freshness) => Served::Latest(Because::Token),
            _ if self.read(path, freshness) == self.latest() => Served::Latest(Because::Asked),
            // Copies that meet show all that was acknowledged; of others nobody knows.
            Freshness::MayLag { .. } => Served::Lagging {
                age_max: self.overlapping.then_some(Duration::ZERO),
            },
        }
    }

    /// How a reader of every copy looks a second time: the first one ends whatever decision is under way, and meets
    /// what a quorum has acknowledged. `None`: that is all there is.
    pub fn every_copy(&self) -> Option<Consistency> {
        (!self.overlapping).then_some(Consistency::All)
    }

    /// After whatever decision is under way (W3).
    pub fn latest(&self) -> Consistency {
        match self.serial {
            SerialConsistency::LocalSerial => Consistency::LocalSerial,
            SerialConsistency::Serial => Consistency::Serial,
        }
    }

    /// How the derived rows of a path are read. They are never written at ONE, so that
    /// nobody has to look for them at all copies.
    pub fn rows_of_path(&self, path: AccessPath, freshness: Freshness) -> Consistency {
        self.rows(match self.is_own_change_sought(freshness) {
            true => self.latest(),
            false => self.read(path, freshness),
        })
    }

    /// Rows of derived tables are not written by lightweight transactions, so a
    /// serial read of them would only cost more.
    pub fn rows(&self, level: Consistency) -> Consistency {
        match level {
            Consistency::Serial => Consistency::Quorum,
            Consistency::LocalSerial => Consistency::LocalQuorum,
            other => other,
        }
    }
}

fn paths(store: &Store) -> BTreeMap<AccessPath, ReadLevel> {
    let strictest = |path: &AccessPath| {
        Operation::ALL
            .into_iter()
            .filter(|operation| operation.paths().contains(path))
            .map(|operation| store.consistency.policy(operation).read)
            .max_by_key(|level| read_strictness(*level))
    };
    AccessPath::ALL
        .into_iter()
        .filter_map(|path| Some((path, strictest(&path)?)))
        .collect()
}

fn read_strictness(level: ReadLevel) -> u8 {
    match level {
        ReadLevel::One | ReadLevel::Secondary => 0,
        ReadLevel::LocalQuorum => 1,
        ReadLevel::Quorum | ReadLevel::Primary => 2,
        ReadLevel::Serial => 3,
        ReadLevel::All => 4,
    }
}

fn write_strictness(level: WriteLevel) -> u8 {
    match level {
        WriteLevel::One => 0,
        WriteLevel::LocalQuorum => 1,
        WriteLevel::Quorum | WriteLevel::Majority => 2,
        WriteLevel::All => 3,
    }
}

fn write_level(level: WriteLevel) -> Consistency {
    match level {
        WriteLevel::One => Consistency::One,
        WriteLevel::LocalQuorum => Consistency::LocalQuorum,
        WriteLevel::Quorum | WriteLevel::Majority => Consistency::Quorum,
        WriteLevel::All => Consistency::All,
    }
}

#[cfg(test)]
mod tests {
    use engine_api::{Timestamp, Writer};
    use layout::{BucketCounts, Policy};

    use super::*;

    fn may_lag(seconds: u32) -> Freshness {
        let seen = Revision::ZERO;
        Freshness::MayLag { seconds, seen }
    }

    fn levels(read: ReadLevel, write: WriteLevel, own: &[(Operation, ReadLevel)]) -> Levels {
        let own = own
            .iter()
            .map(|(operation, read)| (*operation, Policy::new(*read, write)));
        let store = Store {
            engine: "cassandra".to_owned(),
            tables: Vec::new(),
            initial_buckets: BucketCounts::default(),
            consistency: layout::Consistency {
                default: Policy::new(read, write),
                operations: own.collect(),
            },
        };
        let replication = Replication::from([("datacenter1".to_owned(), 3)]);
        Levels::of(&store, &replication).unwrap()
    }

    #[test]
    fn a_path_is_read_as_its_strictest_operation_wants_it() {
        let levels = levels(
            ReadLevel::LocalQuorum,
            WriteLevel::LocalQuorum,
            &[(Operation::O2, ReadLevel::One)],
        );
        // O7 uses the same path as O2 and has no policy of its own.
        let lagging = may_lag(5);
        let read = |freshness| levels.read(AccessPath::OrdersByUser, freshness);
        assert_eq!(read(lagging), Consistency::LocalQuorum);
        assert_eq!(read(Freshness::Latest), Consistency::LocalSerial);
        assert!(!levels.overlapping);
    }

    #[test]
    fn every_copy_is_asked_where_one_alone_may_have_acknowledged() {
        let apart = levels(ReadLevel::LocalQuorum, WriteLevel::One, &[]);
        assert_eq!(apart.every_copy(), Some(Consistency::All));
        let meeting = levels(ReadLevel::Quorum, WriteLevel::Quorum, &[]);
        assert_eq!(meeting.every_copy(), None);
    }

    #[test]
    fn one_answers_those_who_may_lag() {
        let levels = levels(ReadLevel::One, WriteLevel::One, &[]);
        let read = |freshness| levels.read(AccessPath::SessionById, freshness);
        assert_eq!(read(may_lag(1)), Consistency::One);
        assert_eq!(read(Freshness::Latest), Consistency::LocalSerial);
    }

    #[test]
    fn a_change_of_ones_own_is_looked_for_where_it_can_be() {
        let path = AccessPath::CartById;
        let moment = Timestamp::from_unix_micros(1_700_000_000_000_000);
        let own = Freshness::MayLag {
            seconds: Freshness::UNBOUNDED,
            seen: Revision::at(moment, Writer::numbered(1)),
        };
        let apart = levels(ReadLevel::LocalQuorum, WriteLevel::One, &[]);
        assert_eq!(apart.read(path, own), Consistency::All);
        assert_eq!(apart.rows_of_path(path, own), Consistency::LocalQuorum);
        assert_eq!(apart.served(path, own), Served::Latest(Because::Token));
        assert_eq!(apart.read(path, may_lag(1)), Consistency::LocalQuorum);
        let unbounded = Served::Lagging { age_max: None };
        assert_eq!(apart.served(path, may_lag(1)), unbounded);
        let meeting = levels(ReadLevel::Quorum, WriteLevel::Quorum, &[]);
        assert_eq!(meeting.read(path, own), Consistency::Serial);
        assert_eq!(meeting.served(path, own), Served::Latest(Because::Token));
        let asked = Served::Latest(Because::Asked);
        assert_eq!(meeting.served(path, Freshness::Latest), asked);
    }

    #[test]
    fn one_is_for_patches_and_decisions_keep_their_quorum() {
        let levels = levels(ReadLevel::LocalQuorum, WriteLevel::One, &[]);
        assert_eq!(levels.patched, Consistency::One);
        assert_eq!(
            levels.read(AccessPath::CartById, Freshness::Latest),
            Consistency::LocalSerial
        );
        assert_eq!(levels.decided, Consistency::LocalQuorum);
        assert!(!levels.overlapping);
    }

    #[test]
    fn a_quorum_over_all_datacentres_decides_over_all_of_them() {
        let levels = levels(ReadLevel::Quorum, WriteLevel::Quorum, &[]);
        assert_eq!(levels.serial, SerialConsistency::Serial);
        assert_eq!(levels.decided, Consistency::Quorum);
        assert_eq!(
            levels.read(AccessPath::OrderById, Freshness::Latest),
            Consistency::Serial
        );
        assert!(levels.overlapping);
    }
}
