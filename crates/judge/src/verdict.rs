//! What a judge found, and how it is said.

use std::fmt;

/// Beyond this many, more of the same is only counted.
const LISTED_MAX: usize = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Acknowledged and not there, or only half.
    Lost,
    /// There more often than asked for.
    Doubled,
    /// There, but not as acknowledged; or an answer that the contract does not allow.
    Wrong,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    pub kind: Kind,
    pub what: String,
}

/// All breaches of one judgement.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    pub breaches: Vec<Breach>,
}

impl Verdict {
    pub fn lost(&mut self, what: impl Into<String>) {
        self.push(Kind::Lost, what.into());
    }

    pub fn doubled(&mut self, what: impl Into<String>) {
        self.push(Kind::Doubled, what.into());
    }

    pub fn wrong(&mut self, what: impl Into<String>) {
        self.push(Kind::Wrong, what.into());
    }

    fn push(&mut self, kind: Kind, what: String) {
        self.breaches.push(Breach { kind, what });
    }

    pub fn append(&mut self, mut other: Verdict) {
        self.breaches.append(&mut other.breaches);
    }

    pub fn holds(&self) -> bool {
        self.breaches.is_empty()
    }

    pub fn count(&self, kind: Kind) -> usize {
        self.breaches
            .iter()
            .filter(|breach| breach.kind == kind)
            .count()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for breach in self.breaches.iter().take(LISTED_MAX) {
            writeln!(f, "{}: {}", breach.kind, breach.what)?;
        }
        if let Some(more) = self.breaches.len().checked_sub(LISTED_MAX + 1) {
            writeln!(f, "and {} more", more + 1)?;
        }
        write!(
            f,
            "{} lost, {} doubled, {} wrong",
            self.count(Kind::Lost),
            self.count(Kind::Doubled),
            self.count(Kind::Wrong)
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Lost => "LOST",
            Kind::Doubled => "DOUBLED",
            Kind::Wrong => "WRONG",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_cut_but_counted() {
        let mut verdict = Verdict::default();
        assert_eq!(verdict.to_string(), "0 lost, 0 doubled, 0 wrong");
        (0..LISTED_MAX + 3).for_each(|number| verdict.lost(format!("order {number}")));
        let text = verdict.to_string();
        assert!(text.contains("LOST: order 0\n"), "{text}");
        assert!(text.contains("and 3 more\n53 lost, 0 doubled"), "{text}");
    }
}
