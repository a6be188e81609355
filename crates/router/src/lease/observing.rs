//! What someone has seen of other processes' leases, by its own clock alone (W17).
//!
//! A lease that did not change between two looks was not renewed between them.
//! How long it has not been is counted from the *answer* of the look that first
//! showed it to the *sending* of the last one: what the table said in between
//! is certain, the rest is not.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Term;
use super::table::{LeaseRecord, LeaseTable, State};

#[derive(Debug, Default)]
pub(super) struct Observations(BTreeMap<Term, Seen>);

#[derive(Clone, Copy, Debug)]
struct Seen {
    renewal: u64,
    state: State,
    since: Duration,
    age: Duration,
}

/// What an observer may be sure of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its holder may serve.
    Live,
    /// Its holder knows that it may not.
    RunOut,
    GivenUp,
}

impl Observations {
    /// Takes in one look at the table, by the observer's clock.
    pub(super) fn look(&mut self, table: &LeaseTable, sent: Duration, answered: Duration) {
        let before = std::mem::take(&mut self.0);
        for (_, record) in table.leases() {
            let unchanged = before
                .get(&record.term)
                .filter(|seen| seen.renewal == record.renewal && seen.state == record.state);
            let seen = match unchanged {
                Some(seen) => Seen {
                    age: sent.saturating_sub(seen.since),
                    ..*seen
                },
                None => Seen {
                    renewal: record.renewal,
                    state: record.state,
                    since: answered,
                    age: Duration::ZERO,
                },
            };
            self.0.insert(record.term, seen);
        }
    }

    /// For how long the lease was surely not renewed.
    pub(super) fn age(&self, record: &LeaseRecord) -> Duration {
        self.0
            .get(&record.term)
            .map_or(Duration::ZERO, |seen| seen.age)
    }

    pub(super) fn standing(&self, record: &LeaseRecord, margin_percent: u32) -> Standing {
        match record.state {
            State::GivenUp => Standing::GivenUp,
            State::Held if self.age(record) >= with_margin(record.lease(), margin_percent) => {
                Standing::RunOut
            }
            State::Held => Standing::Live,
        }
    }

    /// Leases that ended so long ago that no change of their holder is still under way.
    pub(super) fn rested(
        &self,
        table: &LeaseTable,
        margin_percent: u32,
        rest: Duration,
    ) -> BTreeSet<Term> {
        let rested = |record: &LeaseRecord| {
            let ran = match record.state {
                State::Held => with_margin(record.lease(), margin_percent),
                State::GivenUp => Duration::ZERO,
            };
            self.age(record) >= ran + rest
        };
        let records = table.leases().map(|(_, record)| record);
        let rested = records.filter(|record| rested(record));
        rested.map(|record| record.term).collect()
    }
}

/// What the clocks of holder and judge may drift apart while the lease runs.
fn with_margin(lease: Duration, margin_percent: u32) -> Duration {
    lease + lease * margin_percent / 100
}

#[cfg(test)]
mod tests {

    use super::super::ProcessName;
    use super::super::table::Claim;
    use super::*;

    const PERCENT: u32 = 5;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn one_lease() -> LeaseTable {
        let mut table = LeaseTable::default();
        let claim = Claim {
            shards: std::collections::BTreeSet::new(),
            process: ProcessName::new("p").unwrap(),
            stamp: 1,
            lease_ms: 1_000,
        };
        table.take(&claim).unwrap();
        table
    }

    fn standing(observations: &Observations, table: &LeaseTable) -> Standing {
        observations.standing(table.leases().next().unwrap().1, PERCENT)
    }

    #[test]
    fn a_lease_has_run_out_when_two_looks_a_lease_and_a_margin_apart_show_the_same() {
        let table = one_lease();
        let mut observations = Observations::default();
        observations.look(&table, ms(0), ms(100));
        observations.look(&table, ms(1_149), ms(9_000));
        assert_eq!(
            standing(&observations, &table),
            Standing::Live,
            "what was renewed after the look was sent is not known"
        );
        observations.look(&table, ms(1_150), ms(1_151));
        assert_eq!(standing(&observations, &table), Standing::RunOut);
    }

    #[test]
    fn a_renewal_begins_the_count_anew() {
        let mut table = one_lease();
        let mut observations = Observations::default();
        observations.look(&table, ms(0), ms(0));
        let (writer, term) = {
            let (writer, record) = table.leases().next().unwrap();
            (writer, record.term)
        };
        table
            .renew(writer, term, &super::super::News::default())
            .unwrap();
        observations.look(&table, ms(5_000), ms(5_000));
        assert_eq!(standing(&observations, &table), Standing::Live);
        observations.look(&table, ms(6_050), ms(6_050));
        assert_eq!(standing(&observations, &table), Standing::RunOut);
        assert_eq!(observations.rested(&table, PERCENT, ms(100)).len(), 0);
        observations.look(&table, ms(6_150), ms(6_150));
        assert_eq!(observations.rested(&table, PERCENT, ms(100)).len(), 1);
        table.give_up(writer, term).unwrap();
        observations.look(&table, ms(6_200), ms(6_200));
        assert_eq!(standing(&observations, &table), Standing::GivenUp);
        assert_eq!(observations.rested(&table, PERCENT, ms(100)).len(), 0);
        observations.look(&table, ms(6_300), ms(6_300));
        assert_eq!(observations.rested(&table, PERCENT, ms(100)).len(), 1);
    }
}
