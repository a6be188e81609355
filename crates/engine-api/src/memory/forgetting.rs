//! Forgetting what this engine does not own any more.

use super::State;
use crate::context::Authority;
use crate::error::EngineError;
use crate::forgetting::Condemned;
use crate::record::RecordKey;

impl State {
    pub(super) fn condemn(
        &mut self,
        keys: &[RecordKey],
        authority: &Authority,
    ) -> Result<Vec<Condemned>, EngineError> {
        let mut marked = Vec::with_capacity(keys.len());
        for key in keys {
            self.gate.admit(key, authority)?;
            if self.records.contains_key(&(key.collection, key.id.clone())) {
                marked.push(self.condemned.condemn(key));
            }
        }
        Ok(marked)
    }

    pub(super) fn forget(
        &mut self,
        condemned: &[Condemned],
        authority: &Authority,
    ) -> Result<u64, EngineError> {
        let mut gone = 0;
        for one in condemned {
            self.gate.admit(&one.key, authority)?;
            if self.condemned.holds(one) {
                let key = (one.key.collection, one.key.id.clone());
                gone += u64::from(self.records.remove(&key).is_some());
                self.condemned.spare(&one.key);
            }
        }
        Ok(gone)
    }
}
