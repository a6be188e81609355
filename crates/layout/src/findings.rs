//! What the checker has to say about a layout.

use std::fmt;

use crate::path::Operation;
use crate::place::Place;

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
    /// Why that is wrong: the rule's own reason.
    pub reason: &'static str,
    /// What to change.
    pub fix: String,
    /// Where in the file it stands.
    pub place: Place,
}

impl Finding {
    /// Name and reason are filled in by the checker, which knows which rule it ran.
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
            reason: "",
            fix: fix.into(),
            place: Place::default(),
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

    /// Points at a key of what is looked at.
    pub(crate) fn at(mut self, key: impl ToString) -> Finding {
        self.place = self.place.then(key);
        self
    }

    /// Counts the place from where `base` begins.
    pub(crate) fn under(mut self, base: &Place) -> Finding {
        self.place = self.place.under(base);
        self
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Refused => "error",
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
