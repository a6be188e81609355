//! What the checker has to say about a layout.

use std::fmt;

use crate::path::Operation;

/// What a finding means for whoever wants to use the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The layout is not used until this is mended.
    Refused,
    /// The layout is used; the operator should know.
    Warning,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    /// The rule's name: stable, for tests and for searching the documentation.
    pub rule: &'static str,
    /// The operation that suffers, when it is a certain one.
    pub operation: Option<Operation>,
    pub message: String,
    /// What to change.
    pub fix: String,
}

impl Finding {
    /// The rule's name is filled in by the checker, which knows which rule it ran.
    pub(crate) fn new(
        severity: Severity,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Finding {
        Finding {
            severity,
            rule: "",
            operation: None,
            message: message.into(),
            fix: fix.into(),
        }
    }

    pub(crate) fn refused(message: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding::new(Severity::Refused, message, fix)
    }

    pub(crate) fn warning(message: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding::new(Severity::Warning, message, fix)
    }

    pub(crate) fn about(mut self, operation: Operation) -> Finding {
        self.operation = Some(operation);
        self
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Refused => "refused",
            Severity::Warning => "warning",
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} [{}] {}: {}",
            self.severity, self.rule, self.message, self.fix
        )
    }
}
