//! The lease as its holder has it.
//!
//! A term is over for good the moment its time is up on the holder's clock. A
//! renewal counts only if its answer came before that: a late one may have
//! reached the table after a judge had already gone on without this process.
//! From then on only a new term helps, and with it the map is read anew.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use engine_api::{ControlStore, SetOutcome, World, Writer};

use super::flights::Flights;
use super::observing::Observations;
use super::table::{Claim, News};
use super::{
    CHANGE_ATTEMPTS_MAX, LEASES_NAME, LeaseError, LeaseState, LeaseTable, ProcessName, Term, load,
};
use crate::limits::Limits;
use crate::map::ShardName;

#[derive(Debug)]
pub(crate) struct Lease {
    control: Arc<dyn ControlStore>,
    world: Arc<dyn World>,
    limits: Limits,
    process: ProcessName,
    /// Drawn once, so that the table knows this process again.
    stamp: u64,
    held: Mutex<Option<Held>>,
    /// Of the others' leases: whose number may be given out again.
    observations: Mutex<Observations>,
    /// What the table knows under this term.
    told: Mutex<News>,
    pub(crate) flights: Flights,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    term: Term,
    writer: Writer,
    runs_until: Duration,
    renewed_at: Duration,
}

/// A new term that nothing is served under yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    term: Term,
    pub(crate) writer: Writer,
    sent: Duration,
}

/// What became of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    Kept,
    TermOver,
}

impl Lease {
    pub(crate) fn new(
        process: ProcessName,
        control: Arc<dyn ControlStore>,
        world: Arc<dyn World>,
        limits: Limits,
    ) -> Lease {
        Lease {
            control,
            stamp: world.random(),
            world,
            limits,
            process,
            held: Mutex::default(),
            observations: Mutex::default(),
            told: Mutex::default(),
            flights: Flights::default(),
        }
    }

    fn told(&self) -> MutexGuard<'_, News> {
        self.told
            .lock()
            .expect("no code panics while it holds the lock")
    }

    /// Takes a new term. Whoever publishes a map from now on waits for it, so
    /// that a map read after this is never too old to serve under.
    pub(crate) async fn take(&self, shards: BTreeSet<ShardName>) -> Result<Taken, LeaseError> {
        self.end();
        let claim = Claim {
            process: self.process.clone(),
            stamp: self.stamp,
            lease_ms: self.limits.lease_ms,
            shards,
        };
        let ((writer, term), sent) = self.change(|table| table.take(&claim)).await?;
        *self.told() = News::of_shards(claim.shards);
        Ok(Taken { term, writer, sent })
    }

    /// From here on requests are served under the term: the map was read after it was taken.
    pub(crate) fn serve(&self, taken: Taken) {
        let runs_until = taken.sent + self.limits.lease();
        *self.lock() = Some(Held {
            term: taken.term,
            writer: taken.writer,
            runs_until,
            renewed_at: taken.sent,
        });
    }

    pub(crate) fn state(&self) -> LeaseState {
        match self.in_force() {
            Ok(held) => LeaseState::Runs { term: held.term },
            Err(_) => LeaseState::RanOut,
        }
    }

    /// The term to send under.
    pub(crate) fn term(&self) -> Result<Term, LeaseError> {
        Ok(self.in_force()?.term)
    }

    /// Whether what was sent under the term may be answered now (W16).
    pub(crate) fn covers(&self, term: Term) -> Result<(), LeaseError> {
        match self.in_force()?.term == term {
            true => Ok(()),
            false => Err(LeaseError::RanOut),
        }
    }

    pub(crate) fn renewal_is_due(&self, news: &News) -> bool {
        news.adds_to(&self.told())
            || self.lock().is_none_or(|held| {
                self.world.elapsed().saturating_sub(held.renewed_at) >= self.limits.lease_renewal()
            })
    }

    /// Renews, and tells the news.
    pub(crate) async fn renew(&self, news: News) -> Result<Renewed, LeaseError> {
        let Ok(Held { term, writer, .. }) = self.in_force() else {
            return Ok(Renewed::TermOver);
        };
        let renew =
            |table: &mut LeaseTable| table.renew(writer, term, &news).ok_or(LeaseError::RanOut);
        match self.change(renew).await {
            Ok(((), sent)) => Ok(self.extend(term, news, sent)),
            Err(LeaseError::RanOut) => {
                self.end();
                Ok(Renewed::TermOver)
            }
            Err(error) => Err(error),
        }
    }

    /// Nothing is served from here on; others need not wait until the time is up.
    pub(crate) async fn give_up(&self) -> Result<(), LeaseError> {
        let Some(held) = self.lock().take() else {
            return Ok(());
        };
        let give_up = |table: &mut LeaseTable| {
            table
                .give_up(held.writer, held.term)
                .ok_or(LeaseError::RanOut)
        };
        match self.change(give_up).await {
            Ok(_) | Err(LeaseError::RanOut) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn extend(&self, term: Term, news: News, sent: Duration) -> Renewed {
        let mut held = self.lock();
        let answered = self.world.elapsed();
        match held.as_mut() {
            Some(held) if held.term == term && answered < held.runs_until => {
                held.runs_until = sent + self.limits.lease();
                held.renewed_at = sent;
                self.told().take_in(news);
                Renewed::Kept
            }
            _ => Renewed::TermOver,
        }
    }

    fn in_force(&self) -> Result<Held, LeaseError> {
        let held = *self.lock();
        held.filter(|held| self.world.elapsed() < held.runs_until)
            .ok_or(LeaseError::RanOut)
    }

    fn end(&self) {
        *self.lock() = None;
    }

    /// Changes the table, and says when what changed it was sent. Numbers that
    /// have rested become free on the way.
    async fn change<T>(
        &self,
        decide: impl Fn(&mut LeaseTable) -> Result<T, LeaseError>,
    ) -> Result<(T, Duration), LeaseError> {
        let looked = self.world.elapsed();
        let (mut table, mut number) = load(&*self.control).await?;
        let rested = {
            let mut observations = self
                .observations
                .lock()
                .expect("no code panics while it holds the lock");
            observations.look(&table, looked, self.world.elapsed());
            let rest = self.limits.writer_rest();
            observations.rested(&table, self.limits.lease_margin_percent, rest)
        };
        for _ in 0..CHANGE_ATTEMPTS_MAX {
            table.forget(&rested);
            let decided = decide(&mut table)?;
            let sent = self.world.elapsed();
            let setting = self
                .control
                .compare_and_set(LEASES_NAME, number, table.to_json());
            match setting.await? {
                SetOutcome::Set { .. } => return Ok((decided, sent)),
                SetOutcome::Lost { current } => {
                    number = current.as_ref().map(|value| value.number);
                    table = match current {
                        Some(value) => LeaseTable::from_json(&value.bytes)?,
                        None => LeaseTable::default(),
                    };
                }
            }
        }
        Err(LeaseError::Contended {
            times: CHANGE_ATTEMPTS_MAX,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Held>> {
        self.held
            .lock()
            .expect("no code panics while it holds the lock")
    }
}
