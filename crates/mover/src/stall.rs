//! What clients saw of a cutover: how long their requests were held, as every process counted it.

use router::Waits;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    pub all: Held,
    pub processes: Vec<ProcessStall>,
    /// Processes that had not told in time, or died.
    pub silent: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessStall {
    pub process: String,
    pub held: Held,
}

/// Requests that were held, and how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    pub requests: u64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
    pub max_us: u64,
}

impl From<&Waits> for Held {
    fn from(waits: &Waits) -> Held {
        Held {
            requests: waits.count(),
            p50_us: waits.per_mille_us(500),
            p99_us: waits.per_mille_us(990),
            p999_us: waits.per_mille_us(999),
            max_us: waits.max_us(),
        }
    }
}

impl Stall {
    /// From what each process tells; `None`: it has not told.
    pub(crate) fn of(told: Vec<(String, Option<Waits>)>) -> Stall {
        let (mut all, mut stall) = (Waits::default(), Stall::default());
        for (process, waits) in told {
            match waits {
                Some(waits) => {
                    all.merge(&waits);
                    let held = Held::from(&waits);
                    stall.processes.push(ProcessStall { process, held });
                }
                None => stall.silent.push(process),
            }
        }
        stall.all = Held::from(&all);
        stall
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn all_processes_count_together_and_the_silent_ones_are_named() {
        let waits = |all_ms: &[u64]| {
            let mut waits = Waits::default();
            let all = all_ms.iter().map(|ms| Duration::from_millis(*ms));
            all.for_each(|wait| waits.add(wait));
            Some(waits)
        };
        let stall = Stall::of(vec![
            ("one".to_owned(), waits(&[1, 2, 40])),
            ("two".to_owned(), waits(&[])),
            ("three".to_owned(), None),
        ]);
        assert_eq!((stall.all.requests, stall.all.max_us), (3, 40_000));
        assert!((2_000..2_300).contains(&stall.all.p50_us), "{stall:?}");
        assert_eq!(stall.all.p999_us, 40_000);
        assert_eq!(stall.processes.len(), 2);
        assert_eq!(stall.processes[1].held, Held::default());
        assert_eq!(stall.silent, ["three"]);
    }
}
