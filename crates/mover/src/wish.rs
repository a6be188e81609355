//! What an operator may ask of a move while it runs.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    Cutover,
    /// Another cutover, back to the source.
    Rollback,
    /// Before the cutover: nothing has changed for shoppers.
    Abort,
    /// The target keeps the keys; there is no way back any more.
    Complete,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    #[default]
    Running,
    /// Nothing is copied, compared or cut over; the move stays this process's.
    Paused,
}

impl Wish {
    pub fn name(self) -> &'static str {
        match self {
            Wish::Cutover => "cut over",
            Wish::Rollback => "rolled back",
            Wish::Abort => "aborted",
            Wish::Complete => "completed",
        }
    }
}
