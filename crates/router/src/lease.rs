//! Leases: a process's right to serve under a generation, for a while (W15–W18).
//!
//! ```text
//!   holder   ──renew──┐            ┌──look──  judge (whoever waits for routers)
//!   runs from *sent*  ▼            ▼          counts from its own look
//!                ┌──────────────────────┐
//!                │ leases, by writer    │     one control value, compare-and-set
//!                └──────────────────────┘
//! ```
//!
//! The holder trusts an answer only while its lease runs and its map is the one
//! it asked under; both are looked up in memory. Whoever publishes a map waits
//! until every lease has acknowledged it or has run out, and may then be sure
//! that nobody answers under an older one.
//!
//! No two clocks are ever compared (W17). The holder counts from before it sent
//! the renewal, the judge from after it first saw it, and the judge counts a
//! margin longer: however the two clocks run, the holder stops first.

mod flights;
mod holding;
mod judging;
mod observing;
mod table;

use std::fmt;

use engine_api::{ControlStore, EngineError, Generation, Remedy};

pub(crate) use flights::Flight;
pub(crate) use holding::{Lease, Renewed, Taken};
pub use judging::{LeaseJudge, LeaseSeen};
pub use observing::Standing;
pub(crate) use table::{LeaseTable, News};

/// The name of the table in the control store.
pub const LEASES_NAME: &str = "leases";

/// The longest name of a process.
pub const PROCESS_NAME_BYTES_MAX: usize = 100;

/// How often one change of the table is decided anew because others were first.
const CHANGE_ATTEMPTS_MAX: u32 = 64;

/// The number of a lease's life. No two leases ever have the same.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct Term(pub u64);

/// What operators call a process. Two may share a name; their terms differ.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct ProcessName(String);

/// What the holder has of its lease now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    Runs { term: Term },
    RanOut,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    #[error(
        "this process has no lease now: it was stopped or cut off from the control store, and \
         serves again by itself as soon as it has a new term; try again"
    )]
    RanOut,
    #[error("all {writers_max} writer numbers are in use: end a process, or wait until one rests")]
    NoWriterLeft { writers_max: u8 },
    #[error(
        "{name:?} is no name of a process: give 1 to {PROCESS_NAME_BYTES_MAX} visible ASCII characters"
    )]
    NotAName { name: String },
    #[error(
        "{behind} did not acknowledge generation {generation} in {patience_ms} ms: end it, or wait longer"
    )]
    Behind {
        behind: String,
        generation: Generation,
        patience_ms: u128,
    },
    #[error("others changed the leases {times} times in between: try again")]
    Contended { times: u32 },
    #[error("the leases cannot be read ({reason}): every process must be of a version that can")]
    Unreadable { reason: String },
    #[error("control store: {0}")]
    Control(#[from] EngineError),
}

impl LeaseError {
    pub fn remedy(&self) -> Remedy {
        match self {
            LeaseError::RanOut | LeaseError::Behind { .. } | LeaseError::Contended { .. } => {
                Remedy::Retry
            }
            LeaseError::Control(error) => error.remedy(),
            LeaseError::NoWriterLeft { .. }
            | LeaseError::NotAName { .. }
            | LeaseError::Unreadable { .. } => Remedy::GiveUp,
        }
    }
}

impl ProcessName {
    pub fn new(name: impl Into<String>) -> Result<ProcessName, LeaseError> {
        let name = name.into();
        let visible = name.bytes().all(|byte| byte.is_ascii_graphic());
        if name.is_empty() || name.len() > PROCESS_NAME_BYTES_MAX || !visible {
            return Err(LeaseError::NotAName { name });
        }
        Ok(ProcessName(name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ProcessName {
    type Error = LeaseError;

    fn try_from(name: String) -> Result<ProcessName, LeaseError> {
        ProcessName::new(name)
    }
}

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The table and its number in the control store; empty before the first lease.
async fn load(control: &dyn ControlStore) -> Result<(LeaseTable, Option<u64>), LeaseError> {
    match control.control_get(LEASES_NAME).await? {
        Some(value) => Ok((LeaseTable::from_json(&value.bytes)?, Some(value.number))),
        None => Ok((LeaseTable::default(), None)),
    }
}
