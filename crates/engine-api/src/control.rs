//! The control store: small named values changed by compare-and-set. The map lives here.

use async_trait::async_trait;

use crate::error::EngineError;

/// The longest control value.
pub const CONTROL_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A value and the number of changes that led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlValue {
    pub number: u64,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetOutcome {
    /// The value now has this number.
    Set { number: u64 },
    /// Someone else was first; this is what stands there.
    Lost { current: Option<ControlValue> },
}

/// `compare_and_set` sets the value only if its number is still `expected`
/// (`None`: there is no value yet). Numbers start at 1 and only rise. A `Set`
/// is durable like a record; a lost answer is `OutcomeUnknown`: read again.
#[async_trait]
pub trait ControlStore: Send + Sync + std::fmt::Debug {
    async fn control_get(&self, name: &str) -> Result<Option<ControlValue>, EngineError>;

    async fn compare_and_set(
        &self,
        name: &str,
        expected: Option<u64>,
        bytes: Vec<u8>,
    ) -> Result<SetOutcome, EngineError>;
}
