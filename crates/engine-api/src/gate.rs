//! The gate of an engine that judges in its own process: who may write now.
//!
//! Fences stop routers under an older generation (W15), lost terms stop movers
//! (W21). Both only rise. The engine keeps them where it keeps its records.

use std::collections::BTreeMap;

use crate::context::{Authority, MoverTerm};
use crate::error::EngineError;
use crate::journal::Fence;
use crate::record::RecordKey;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    fences: Vec<Fence>,
    terms: BTreeMap<String, u64>,
}

/// Whether a fence was new, and so has to be kept and journalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raised {
    Now,
    Before,
}

impl Gate {
    /// The gate as it was kept.
    pub fn restore(fences: Vec<Fence>, terms: BTreeMap<String, u64>) -> Gate {
        Gate { fences, terms }
    }

    pub fn fences(&self) -> &[Fence] {
        &self.fences
    }

    pub fn admit(&self, key: &RecordKey, authority: &Authority) -> Result<(), EngineError> {
        match authority {
            Authority::Router { generation } => {
                let stopped_by = self
                    .fences
                    .iter()
                    .find(|fence| fence.stops(key, *generation));
                match stopped_by {
                    Some(fence) => Err(EngineError::Fenced {
                        used: *generation,
                        fence: fence.generation,
                    }),
                    None => Ok(()),
                }
            }
            Authority::Mover { term } => self.hold(term),
        }
    }

    /// Raises a fence under a term that is not lost. Fences it covers are dropped.
    pub fn raise(&mut self, fence: &Fence, term: &MoverTerm) -> Result<Raised, EngineError> {
        self.hold(term)?;
        if self.fences.iter().any(|standing| standing.covers(fence)) {
            return Ok(Raised::Before);
        }
        self.fences.retain(|standing| !fence.covers(standing));
        self.fences.push(fence.clone());
        Ok(Raised::Now)
    }

    /// Ends every lower term of the same move.
    pub fn claim(&mut self, term: &MoverTerm) -> Result<(), EngineError> {
        self.hold(term)?;
        self.terms.insert(term.move_name.clone(), term.term);
        Ok(())
    }

    fn hold(&self, term: &MoverTerm) -> Result<(), EngineError> {
        match self.terms.get(&term.move_name) {
            Some(current) if *current > term.term => Err(EngineError::TermLost {
                lost: term.clone(),
                current: *current,
            }),
            _ => Ok(()),
        }
    }
}
