//! The table of leases as it stands in the control store. Pure: who changes it
//! compares and sets.
//!
//! A lease brings the writer number that keeps its process's revisions apart
//! (W5), so the table is by writer number, and holds as many leases as there are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine_api::{Generation, WRITERS_MAX, Writer};
use serde::{Deserialize, Serialize};

use super::{LeaseError, ProcessName, Term};
use crate::map::ShardName;
use crate::stalls::HeldFor;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeaseTable {
    last_term: Term,
    leases: BTreeMap<u8, LeaseRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeaseRecord {
    pub(super) process: String,
    /// Drawn by the process when it started: tells two of one name apart.
    stamp: u64,
    pub(super) term: Term,
    /// The newest generation that the process has acknowledged; 0 before the first.
    pub(super) generation: Generation,
    /// Rises with every renewal, so that a judge sees that there was one.
    pub(super) renewal: u64,
    /// How long the lease runs without one. The holder's own setting: a judge
    /// that counted by its own could come too early.
    lease_ms: u64,
    /// The shards that the process has open: under a map with any other it cannot serve (W44).
    #[serde(default)]
    pub(super) shards: BTreeSet<ShardName>,
    pub(super) state: State,
    /// What it has held for the last freezes that are over for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) stalls: Vec<HeldFor>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Held,
    GivenUp,
}

/// Who wants a lease, and for how long.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) process: ProcessName,
    pub(super) stamp: u64,
    pub(super) lease_ms: u64,
    pub(super) shards: BTreeSet<ShardName>,
}

/// What a process tells with a renewal.
#[derive(Clone, Debug, Default)]
pub(crate) struct News {
    /// The newest that it acknowledges.
    pub(crate) generation: Generation,
    /// All that it has open. They only ever become more.
    pub(crate) shards: BTreeSet<ShardName>,
    /// Empty while requests are held: what was told before still stands.
    pub(crate) stalls: Vec<HeldFor>,
}

impl News {
    pub(super) fn of_shards(shards: BTreeSet<ShardName>) -> News {
        News {
            shards,
            ..News::default()
        }
    }

    pub(super) fn adds_to(&self, told: &News) -> bool {
        self.generation > told.generation
            || self.shards.len() > told.shards.len()
            || (!self.stalls.is_empty() && self.stalls != told.stalls)
    }

    pub(super) fn take_in(&mut self, later: News) {
        self.generation = later.generation.max(self.generation);
        self.shards = later.shards;
        if !later.stalls.is_empty() {
            self.stalls = later.stalls;
        }
    }
}

impl LeaseTable {
    pub(super) fn leases(&self) -> impl Iterator<Item = (Writer, &LeaseRecord)> {
        let lease = |(number, record): (&u8, _)| (Writer::numbered(*number), record);
        self.leases.iter().map(lease)
    }

    /// A new term, on the claimant's former writer number if that is still its
    /// own. It has acknowledged nothing yet.
    pub(super) fn take(&mut self, claim: &Claim) -> Result<(Writer, Term), LeaseError> {
        let own = self
            .leases
            .iter()
            .find(|(_, record)| record.stamp == claim.stamp)
            .map(|(number, _)| *number);
        let free = || (0..WRITERS_MAX).find(|number| !self.leases.contains_key(number));
        let number = own.or_else(free).ok_or(LeaseError::NoWriterLeft {
            writers_max: WRITERS_MAX,
        })?;
        self.last_term = Term(self.last_term.0 + 1);
        let record = LeaseRecord {
            process: claim.process.as_str().to_owned(),
            stamp: claim.stamp,
            term: self.last_term,
            generation: Generation(0),
            renewal: 0,
            lease_ms: claim.lease_ms,
            shards: claim.shards.clone(),
            state: State::Held,
            stalls: Vec::new(),
        };
        self.leases.insert(number, record);
        Ok((Writer::numbered(number), self.last_term))
    }

    /// `None`: the term is no longer in the table.
    pub(super) fn renew(&mut self, writer: Writer, term: Term, news: &News) -> Option<()> {
        let record = self.held(writer, term)?;
        record.renewal += 1;
        record.generation = news.generation.max(record.generation);
        record.shards.clone_from(&news.shards);
        if !news.stalls.is_empty() {
            record.stalls.clone_from(&news.stalls);
        }
        Some(())
    }

    pub(super) fn give_up(&mut self, writer: Writer, term: Term) -> Option<()> {
        self.held(writer, term)?.state = State::GivenUp;
        Some(())
    }

    /// Their numbers may be given out again.
    pub(super) fn forget(&mut self, rested: &BTreeSet<Term>) {
        self.leases
            .retain(|_, record| !rested.contains(&record.term));
    }

    fn held(&mut self, writer: Writer, term: Term) -> Option<&mut LeaseRecord> {
        self.leases
            .get_mut(&writer.number())
            .filter(|record| record.term == term && record.state == State::Held)
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a table has text keys and plain values only")
    }

    /// Checks what a store gives: it is not trusted.
    pub(super) fn from_json(bytes: &[u8]) -> Result<LeaseTable, LeaseError> {
        let unreadable = |reason: String| LeaseError::Unreadable { reason };
        let table: LeaseTable =
            serde_json::from_slice(bytes).map_err(|error| unreadable(error.to_string()))?;
        let terms: BTreeSet<Term> = table.leases.values().map(|record| record.term).collect();
        if terms.len() != table.leases.len() {
            return Err(unreadable("two leases have one term".to_owned()));
        }
        if terms.last().is_some_and(|term| *term > table.last_term) {
            return Err(unreadable("a lease has a term to come".to_owned()));
        }
        if table.leases.keys().any(|number| *number >= WRITERS_MAX) {
            return Err(unreadable("a writer number is too high".to_owned()));
        }
        Ok(table)
    }
}

impl LeaseRecord {
    pub(super) fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(stamp: u64) -> Claim {
        Claim {
            process: ProcessName::new("shop-1").unwrap(),
            stamp,
            lease_ms: 1_000,
            shards: shards(&["a"]),
        }
    }

    fn news(generation: u64, names: &[&str]) -> News {
        News {
            generation: Generation(generation),
            ..News::of_shards(shards(names))
        }
    }

    fn shards(names: &[&str]) -> BTreeSet<ShardName> {
        names
            .iter()
            .map(|name| ShardName::new(*name).unwrap())
            .collect()
    }

    #[test]
    fn every_lease_has_a_term_and_a_writer_number_of_its_own() {
        let mut table = LeaseTable::default();
        for stamp in 0..u64::from(WRITERS_MAX) {
            let (writer, term) = table.take(&claim(stamp)).unwrap();
            assert_eq!(u64::from(writer.number()), stamp);
            assert_eq!(term, Term(stamp + 1));
        }
        let refused = table.take(&claim(64)).unwrap_err();
        assert!(
            matches!(refused, LeaseError::NoWriterLeft { .. }),
            "{refused}"
        );
        let (again, term) = table.take(&claim(7)).unwrap();
        assert_eq!((again, term), (Writer::numbered(7), Term(65)));
        table.forget(&BTreeSet::from([Term(4)]));
        let (rested, _) = table.take(&claim(64)).unwrap();
        assert_eq!(rested, Writer::numbered(3));
        assert_eq!(LeaseTable::from_json(&table.to_json()).unwrap(), table);
    }

    #[test]
    fn a_term_that_is_over_is_neither_renewed_nor_given_up() {
        let mut table = LeaseTable::default();
        let (writer, first) = table.take(&claim(1)).unwrap();
        let grown = news(3, &["a", "b"]);
        table.renew(writer, first, &grown).unwrap();
        assert_eq!(table.leases().next().unwrap().1.shards, grown.shards);
        let (_, second) = table.take(&claim(1)).unwrap();
        let renew = |table: &mut LeaseTable, term, generation| {
            table.renew(writer, term, &news(generation, &["a"]))
        };
        assert_eq!(renew(&mut table, first, 4), None);
        assert_eq!(table.give_up(writer, first), None);
        let acknowledged = |table: &LeaseTable| {
            let (_, record) = table.leases().next().unwrap();
            record.generation
        };
        assert_eq!(
            acknowledged(&table),
            Generation(0),
            "a new term starts anew"
        );
        renew(&mut table, second, 5).unwrap();
        renew(&mut table, second, 4).unwrap();
        assert_eq!(acknowledged(&table), Generation(5), "it never falls");
        table.give_up(writer, second).unwrap();
        assert_eq!(renew(&mut table, second, 6), None);
    }

    #[test]
    fn a_table_that_cannot_be_is_refused() {
        fn check(text: &str) {
            let refused = LeaseTable::from_json(text.as_bytes()).unwrap_err();
            assert!(
                matches!(refused, LeaseError::Unreadable { .. }),
                "{refused}"
            );
        }
        let record = |term: u64| {
            format!(
                r#"{{"process":"p","stamp":1,"term":{term},"generation":0,"renewal":0,"lease_ms":1,"state":"held"}}"#
            )
        };
        let table = |leases: &str| format!(r#"{{"last_term":2,"leases":{{{leases}}}}}"#);
        LeaseTable::from_json(table(&format!(r#""0":{}"#, record(2))).as_bytes()).unwrap();
        check("no json");
        check(&table(&format!(r#""0":{},"1":{}"#, record(2), record(2))));
        check(&table(&format!(r#""0":{}"#, record(3))));
        check(&table(&format!(r#""64":{}"#, record(1))));
    }
}
