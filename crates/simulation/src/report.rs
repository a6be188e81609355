//! Many seeds, and what happened in them.

mod events;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use events::{cutovers, events};

use crate::recording::{End, Intent};
use crate::seed::{Lived, live};

pub use events::EVENTS;

/// How many threads live through seeds, each with a runtime of its own.
const THREADS: u64 = 2;
/// Breaches that are told of one seed.
pub const BREACHES_TOLD_MAX: usize = 8;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub seeds: u64,
    pub acknowledged: u64,
    pub refused: u64,
    pub unknown: u64,
    pub reads: u64,
    pub listings: u64,
    pub moves_done: u64,
    pub moves_given_up: u64,
    pub crashes: u64,
    /// What happened in the shop, by [`EVENTS`].
    pub events: BTreeMap<&'static str, u64>,
}

/// A seed that does not hold, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    pub seed: u64,
    pub breaches: Vec<String>,
}

/// Whether to go on after a seed that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    GoOn,
    Stop,
}

/// Lives through seeds `0..seeds`. What fails is told in the order of the
/// seeds, whichever thread met it.
pub fn survey(seeds: u64, after: After) -> (Tally, Vec<Failing>) {
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let found = Mutex::new((Tally::default(), Vec::new()));
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                break;
            }
            let lived = live(seed);
            if after == After::Stop && !lived.breaches.is_empty() {
                stop.store(true, Ordering::Relaxed);
            }
            let mut found = found
                .lock()
                .expect("no code panics while it holds the lock");
            found.0.add(&lived);
            if !lived.breaches.is_empty() {
                found.1.push(Failing {
                    seed,
                    breaches: lived.breaches,
                });
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    let (tally, mut failing) = found.into_inner().expect("no thread panicked");
    failing.sort_by_key(|failing: &Failing| failing.seed);
    if after == After::Stop {
        // Every lower seed was begun before it and lived through: this one is
        // the first whatever the threads did.
        failing.truncate(1);
    }
    (tally, failing)
}

impl Tally {
    pub fn add(&mut self, lived: &Lived) {
        self.seeds += 1;
        self.moves_done += lived.history.moves_done + cutovers(&lived.history);
        self.moves_given_up += lived.history.moves_given_up;
        self.crashes += lived.history.crashes;
        for (event, times) in events(&lived.history) {
            *self.events.entry(event).or_default() += times;
        }
        for operation in &lived.history.operations {
            match (&operation.intent, &operation.end) {
                (Intent::Write(_), End::Done { .. }) => self.acknowledged += 1,
                (Intent::Write(_), End::Refused { .. }) => self.refused += 1,
                (Intent::Write(_), _) => self.unknown += 1,
                (Intent::Read(_), _) => self.reads += 1,
                (Intent::List(_), _) => self.listings += 1,
            }
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seeds: {}", self.seeds)?;
        writeln!(f, "writes acknowledged: {}", self.acknowledged)?;
        writeln!(f, "writes refused: {}", self.refused)?;
        writeln!(f, "writes unknown: {}", self.unknown)?;
        writeln!(f, "reads: {}", self.reads)?;
        writeln!(f, "listings: {}", self.listings)?;
        writeln!(f, "moves done: {}", self.moves_done)?;
        writeln!(f, "moves given up: {}", self.moves_given_up)?;
        write!(f, "crashes: {}", self.crashes)?;
        for event in EVENTS {
            let times = self.events.get(event).copied().unwrap_or_default();
            write!(f, "\n{event}: {times}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failing seed: {}", self.seed)?;
        for breach in self.breaches.iter().take(BREACHES_TOLD_MAX) {
            write!(f, "\n  {breach}")?;
        }
        let untold = self.breaches.len().saturating_sub(BREACHES_TOLD_MAX);
        if untold > 0 {
            write!(f, "\n  and {untold} more")?;
        }
        Ok(())
    }
}
