//! What a run of the suite found, case by case.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Failed {
        message: String,
    },
    /// The declaration because of which the case was not run.
    Skipped {
        because: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseReport {
    /// The line of the contract, such as `E6`.
    pub line: &'static str,
    /// The rules of the protocol behind it, such as `W1`.
    pub rules: &'static [&'static str],
    pub name: String,
    pub verdict: Verdict,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub engine: &'static str,
    pub cases: Vec<CaseReport>,
}

impl Report {
    pub fn failed(&self) -> impl Iterator<Item = &CaseReport> {
        self.cases
            .iter()
            .filter(|case| matches!(case.verdict, Verdict::Failed { .. }))
    }

    pub fn skipped(&self) -> impl Iterator<Item = &CaseReport> {
        self.cases
            .iter()
            .filter(|case| matches!(case.verdict, Verdict::Skipped { .. }))
    }

    pub fn passed(&self) -> impl Iterator<Item = &CaseReport> {
        self.cases
            .iter()
            .filter(|case| case.verdict == Verdict::Passed)
    }

    /// # Panics
    /// When a case failed, with the whole table; or when no case ran at all.
    #[track_caller]
    pub fn assert_passed(&self) {
        assert!(self.failed().next().is_none(), "\n{self}");
        assert!(self.passed().next().is_some(), "no case ran\n{self}");
    }
}

impl fmt::Display for CaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<4}{} … ", self.line, self.name)?;
        match &self.verdict {
            Verdict::Passed => f.write_str("ok"),
            Verdict::Skipped { because } => write!(f, "skipped: {because}"),
            Verdict::Failed { message } => {
                let rules = self.rules.join(", ");
                let rules = if rules.is_empty() {
                    rules
                } else {
                    format!(" ({rules})")
                };
                write!(f, "FAILED{rules}\n    {}", message.replace('\n', "\n    "))
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "conformance of {}", self.engine)?;
        self.cases
            .iter()
            .try_for_each(|case| writeln!(f, "{case}"))?;
        let (passed, failed) = (self.passed().count(), self.failed().count());
        write!(
            f,
            "{passed} passed, {failed} failed, {} skipped",
            self.skipped().count()
        )
    }
}
