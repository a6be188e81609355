//! Comparing both sides while the copy goes on, until nothing differs and the way back works.

use std::fmt;
use std::time::Duration;

use engine_api::Position;
use verifier::{Pair, Verifier, VerifierConfig, VerifyError};

use super::copying::Fed;
use super::{Endings, Pass, Runner};
use crate::certificate::Direction;
use crate::error::MoveError;
use crate::phase::{Event, Way};
use crate::wish::Wish;

/// Passes of the verifier in one pass of the mover, while too many records are open: the
/// copy brings more over in one pass than the verifier looks at.
const COMPARE_PASSES_MAX: u32 = 16;

/// A verification in one direction. It is begun anew by whoever takes the move over.
pub(super) struct Comparing {
    direction: Direction,
    pub verifier: Verifier,
    /// Since when everything was compared once, by `World::elapsed`.
    watching_since: Option<Duration>,
}

/// What a pass of the verifier came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compared {
    Open {
        rest: Rest,
    },
    /// Nothing has differed for longer than a copy may lag. A few records that change
    /// all the time may be on their way: the proof looks at them behind the freeze.
    Same,
    Differs {
        count: usize,
    },
}

/// What is still to be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// There is more to read at once.
    Scans,
    /// Records that changed, or look different, and are given time to arrive.
    Suspects,
}

impl Comparing {
    pub fn differing(&self, shown_max: usize) -> (u64, Vec<String>) {
        let (records, rows) = (self.verifier.differences(), self.verifier.strays());
        let records_named = records.iter().map(ToString::to_string);
        let rows_named = rows.iter().map(ToString::to_string);
        let shown = records_named.chain(rows_named).take(shown_max);
        ((records.len() + rows.len()) as u64, shown.collect())
    }

    pub fn findings(&self, shown_max: usize) -> Vec<String> {
        let findings = self.verifier.findings().iter();
        findings.take(shown_max).map(ToString::to_string).collect()
    }

    /// Of records, and of derived rows at the target.
    fn differ_count(&self) -> usize {
        self.verifier.differences().len() + self.verifier.strays().len()
    }

    fn judge(
        &mut self,
        pass: verifier::Pass,
        now: Duration,
        (lag_ms_max, open_records_max): (u64, usize),
    ) -> Compared {
        let count = self.differ_count();
        if count > 0 {
            return Compared::Differs { count };
        }
        if let verifier::Pass::CaughtUp { .. } = pass {
            return Compared::Same;
        }
        if !self.verifier.is_watching() {
            return Compared::Open { rest: Rest::Scans };
        }
        // What differed all that time would have its name by now.
        let since = *self.watching_since.get_or_insert(now);
        let lag_max = Duration::from_millis(lag_ms_max);
        let patience_is_over = now.saturating_sub(since) > lag_max;
        match patience_is_over && self.verifier.open() <= open_records_max {
            true => Compared::Same,
            false => Compared::Open {
                rest: Rest::Suspects,
            },
        }
    }
}

impl Runner<'_> {
    pub(super) async fn verify(&mut self) -> Result<Pass, MoveError> {
        let fed = self.feed_forward().await?;
        match self.compare(Direction::Cutover).await? {
            Compared::Open { rest } => {
                return Ok(match (fed, rest) {
                    (Fed::Behind, _) | (_, Rest::Scans) => Pass::Behind,
                    (fed, Rest::Suspects) => self.after(fed),
                });
            }
            Compared::Differs { .. } => return Ok(self.waiting()),
            Compared::Same => {}
        }
        let back = self.pass_back().await?;
        if !self.is_near(fed) || !self.is_near(back) {
            return Ok(match back {
                Fed::Behind => Pass::Behind,
                _ => self.after(fed),
            });
        }
        let back_from = self.back_position()?;
        self.event(Event::Verified { back_from }).await?;
        Ok(Pass::Behind)
    }

    /// The copy follows, the comparison goes on, and so does the way back.
    pub(super) async fn stay_ready(&mut self, way: &Way) -> Result<Pass, MoveError> {
        let fed = self.feed_forward().await?;
        self.pass_back().await?;
        let compared = self.compare(way.direction()).await?;
        if let Compared::Differs { .. } = compared {
            self.event(Event::Differs).await?;
            return Ok(Pass::Behind);
        }
        let wished = self.work.held.state.wish == Some(Wish::Cutover);
        if wished && compared == Compared::Same && self.may_announce() {
            return self.announce("a cutover is near").await;
        }
        Ok(match compared {
            Compared::Open { rest: Rest::Scans } => Pass::Behind,
            Compared::Open { .. } | Compared::Same | Compared::Differs { .. } => self.after(fed),
        })
    }

    /// One pass of the verifier.
    pub(super) async fn compare(&mut self, direction: Direction) -> Result<Compared, MoveError> {
        let mut comparing = match self.work.comparing.take() {
            Some(comparing) if comparing.direction == direction => comparing,
            _ => {
                if direction == Direction::Rollback {
                    // Shoppers wrote there, and any of their processes may have died over it.
                    self.work.endings = Endings::Unknown;
                }
                Comparing {
                    direction,
                    verifier: self.begin_verifier(direction).await?,
                    watching_since: None,
                }
            }
        };
        // Dropped before the last line, the comparison is begun anew.
        let compared = self.compare_and_mend(&mut comparing).await;
        // What changed meanwhile is not known any more (W28).
        if let Err(VerifyError::PositionLost { .. }) = compared {
            return Ok(Compared::Open { rest: Rest::Scans });
        }
        self.work.comparing = Some(comparing);
        compared.map_err(|error| self.of_verifier(direction.entered(), error))
    }

    /// A write that did not come to its end may have left derived rows that no record has, rows that are missing, or rows as
    /// they were before the last change: `caravan reconcile` mends that where records are served, and nobody does elsewhere.
    /// All of it is put right by its record until everything was compared once; what is wrong afterwards is nobody's
    /// leftover, and is named.
    async fn compare_and_mend(
        &mut self,
        comparing: &mut Comparing,
    ) -> Result<Compared, VerifyError> {
        let compared = self.compare_on(comparing).await?;
        match (compared, self.work.endings) {
            (Compared::Same, _) => self.work.endings = Endings::Known,
            (Compared::Differs { .. }, Endings::Unknown) => {
                for stray in comparing.verifier.strays() {
                    comparing.verifier.mend(&stray).await?;
                }
                if comparing.differ_count() == 0 {
                    return Ok(Compared::Open {
                        rest: Rest::Suspects,
                    });
                }
            }
            (Compared::Differs { .. } | Compared::Open { .. }, _) => {}
        }
        Ok(compared)
    }

    /// Goes on while that leaves fewer records open. What is left then has not been copied yet: the longer it were looked at,
    /// the more would have changed before the copy goes on.
    async fn compare_on(&mut self, comparing: &mut Comparing) -> Result<Compared, VerifyError> {
        let open_records_max = self.config.limits.open_records_max;
        let bounds = (self.config.verifier_limits.lag_ms_max, open_records_max);
        let world = self.config.world.clone();
        let (mut passes, mut open_before) = (0, usize::MAX);
        loop {
            let began = world.elapsed();
            let pass = comparing.verifier.pass().await?;
            if comparing.verifier.is_watching() {
                let took = world.elapsed().saturating_sub(began);
                self.work.measured.compare.add(took);
            }
            let compared = comparing.judge(pass, world.elapsed(), bounds);
            passes += 1;
            let is_open = matches!(
                compared,
                Compared::Open {
                    rest: Rest::Suspects
                }
            );
            let open = comparing.verifier.open();
            let goes_on = is_open && open > open_records_max && open < open_before;
            if !goes_on || passes >= COMPARE_PASSES_MAX {
                return Ok(compared);
            }
            open_before = open;
        }
    }

    async fn begin_verifier(&self, direction: Direction) -> Result<Verifier, MoveError> {
        let plan = self.plan();
        let entered = direction.entered();
        let config = VerifierConfig {
            pair: Pair {
                collection: plan.collection,
                scope: plan.scope().clone(),
                source: self.left(entered.other())?,
                target: self.entered(entered)?,
            },
            world: self.config.world.clone(),
            limits: self.config.verifier_limits.clone(),
            invariants: self.config.invariants.clone(),
        };
        let begun = Verifier::begin(config).await;
        begun.map_err(|error| self.of_verifier(entered, error))
    }

    fn back_position(&self) -> Result<Position, MoveError> {
        match self.work.back.as_ref().and_then(feed::Feed::phase) {
            Some(feed::Phase::Following { at }) => Ok(at.clone()),
            _ => Err(MoveError::OutOfStep {
                phase: "verifying",
                event: "a way back that follows no journal".to_owned(),
            }),
        }
    }
}

impl fmt::Debug for Comparing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Comparing")
            .field("direction", &self.direction)
            .finish_non_exhaustive()
    }
}
