//! How a command ends: what it checked holds, does not hold, or the input was wrong.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Holds,
    Fails,
}

impl Verdict {
    pub fn of(status: std::process::ExitStatus) -> Self {
        if status.success() {
            Self::Holds
        } else {
            Self::Fails
        }
    }
}

/// The input is wrong, be it an argument or a file that a person wrote: exit code 2.
#[derive(Debug)]
pub struct BadInput(pub String);

impl fmt::Display for BadInput {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}
