//! Forgetting what this engine does not own any more.

use engine_api::{Condemned, EngineError, RecordKey, WriteContext};

use super::State;

impl State {
    pub(crate) fn condemn(
        &mut self,
        keys: &[RecordKey],
        context: &WriteContext,
    ) -> Result<Vec<Condemned>, EngineError> {
        let mut condemned = Vec::with_capacity(keys.len());
        for key in keys {
            self.gate.admit(key, &context.authority)?;
            if self.lookup(key)?.is_some() {
                condemned.push(self.condemned.condemn(key));
            }
        }
        Ok(condemned)
    }

    /// Called with nothing pending, like `maintain`, because what is erased is nowhere to be looked up.
    pub(crate) fn forget(
        &mut self,
        condemned: &[Condemned],
        context: &WriteContext,
    ) -> Result<u64, EngineError> {
        let mut records = Vec::with_capacity(condemned.len());
        for one in condemned {
            self.gate.admit(&one.key, &context.authority)?;
            if self.condemned.holds(one) {
                records.extend(self.lookup(&one.key)?);
            }
        }
        // Nothing is erased before all of it was read.
        for record in &records {
            self.erase(record)?;
        }
        Ok(records.len() as u64)
    }
}
