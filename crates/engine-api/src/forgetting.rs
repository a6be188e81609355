//! Records that a shard holds and does not own any more: how they go without taking anything along that lives.
//!
//! A mover that slept between its decision and its deletion would delete from the new owner of the keys, and no
//! revision would tell: an image that is brought back unchanged changes nothing. So a record is condemned first. Then the
//! mover makes sure that the move is still its own, and only then it asks for what it condemned to be forgotten. Whoever
//! brings the record back in between puts an image, and that takes it out of the condemned.

use std::collections::BTreeMap;

use layout::Collection;

use crate::context::{Authority, WriteContext};
use crate::error::EngineError;
use crate::record::{RecordId, RecordKey};

/// The most records that one call condemns or forgets.
pub const CONDEMNED_RECORDS_MAX: usize = 1_000;

/// Marks that are remembered; past it all are dropped, and their records stay until they are condemned again.
const MARKS_MAX: usize = 100_000;

/// A record as one call has condemned it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condemned {
    pub key: RecordKey,
    /// By which the engine knows that very call again. Opaque to everyone else.
    pub mark: Vec<u8>,
}

/// What an engine that judges in its own process remembers. It need not outlive it: what is not condemned any more stays.
#[derive(Debug, Default)]
pub struct CondemnedRecords {
    last: u64,
    marks: BTreeMap<(Collection, RecordId), u64>,
}

impl CondemnedRecords {
    pub fn condemn(&mut self, key: &RecordKey) -> Condemned {
        if self.marks.len() >= MARKS_MAX {
            self.marks.clear();
        }
        self.last += 1;
        self.marks
            .insert((key.collection, key.id.clone()), self.last);
        Condemned {
            key: key.clone(),
            mark: self.last.to_be_bytes().to_vec(),
        }
    }

    /// Somebody wrote the record, or brought it once more.
    pub fn spare(&mut self, key: &RecordKey) {
        if !self.marks.is_empty() {
            self.marks.remove(&(key.collection, key.id.clone()));
        }
    }

    pub fn holds(&self, condemned: &Condemned) -> bool {
        let key = (condemned.key.collection, condemned.key.id.clone());
        let mark = self.marks.get(&key);
        mark.is_some_and(|mark| mark.to_be_bytes()[..] == condemned.mark[..])
    }
}

/// Refuses a call that is too large, or that is nobody's who may ask.
pub fn validate_forgetting(records: usize, context: &WriteContext) -> Result<(), EngineError> {
    let Authority::Mover { .. } = context.authority else {
        return Err(EngineError::Invalid {
            reason: "only a mover may forget records".to_owned(),
        });
    };
    if records > CONDEMNED_RECORDS_MAX {
        return Err(EngineError::Invalid {
            reason: format!("{records} records at once: forget at most {CONDEMNED_RECORDS_MAX}"),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_have_a_bound_and_what_is_dropped_stays() {
        let key = |id: usize| {
            let id = RecordId::new(format!("c{id}")).unwrap();
            RecordKey::by_id(Collection::Carts, id)
        };
        let mut records = CondemnedRecords::default();
        let first = records.condemn(&key(0));
        assert!(records.holds(&first));
        for id in 1..=MARKS_MAX {
            records.condemn(&key(id));
        }
        assert!(!records.holds(&first), "it was dropped with the others");
        let last = records.condemn(&key(0));
        assert!(records.holds(&last) && !records.holds(&first));
        records.spare(&key(0));
        assert!(!records.holds(&last));
    }
}
