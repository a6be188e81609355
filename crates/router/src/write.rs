//! The one write path.
//!
//! A write ends in one of three ways: `Ok` with a definite outcome, an error
//! that means nothing was changed, or `OutcomeUnknown`. Once an answer was lost
//! the change is only ever sent again as it was, with the same revision, and
//! only `Done` ends the doubt: any other answer may describe the world after
//! the first attempt was applied and superseded, so that reporting it as "not
//! applied" would be a lie.

mod course;

use engine_api::{
    Authority, Change, Decision, EngineError, FenceKind, Generation, Outcome, RecordKey, Revision,
    WriteContext, decide,
};

use crate::error::RouterError;
use crate::map::{Map, ShardName};
use crate::rekey::{Rekeyed, all_fit};
use crate::router::{Router, of_shard};
use crate::serving::{Owner, Passage};
use course::{Course, Step, check_shard_keys, expected_revision, is_frozen, one_owner};

/// What became of a write, and where in time it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub outcome: Outcome,
    /// The change's own number if it is `Done`: the token that puts the
    /// client's next change above this one. Otherwise what was proposed.
    pub revision: Revision,
    /// The map under which the answer was given.
    pub generation: Generation,
}

impl Router {
    /// Writes one change. `floor` is the newest revision the client has seen.
    pub async fn write(&self, change: Change, floor: Revision) -> Result<Written, RouterError> {
        self.write_all(vec![change], floor).await
    }

    /// Writes changes that stand or fall together; one shard must own them all.
    pub async fn write_together(
        &self,
        changes: Vec<Change>,
        floor: Revision,
    ) -> Result<Written, RouterError> {
        self.write_all(changes, floor).await
    }

    /// A number for a later [`Router::write_as_of`]: above `floor`, and above
    /// everything proposed for any of the keys before. They are all the keys that it
    /// will write: another commit of one of them under the same number would be taken
    /// for a repeat of it (W5).
    pub fn number<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a RecordKey>,
        floor: Revision,
    ) -> Result<Revision, RouterError> {
        Ok(self.clock.propose(keys, self.world.now(), floor)?)
    }

    /// Writes changes that rest on what was read after `number` was drawn, under
    /// that very number: where something newer stands, even a mark, the outcome is
    /// `Stale` and the reader reads again. Of the records that it creates nothing
    /// can have come and gone in between.
    pub async fn write_as_of(
        &self,
        changes: Vec<Change>,
        number: Revision,
    ) -> Result<Written, RouterError> {
        self.check_changes(&changes)?;
        self.finish(Course::numbered(changes, number)).await
    }

    /// Writes changes that rest on what the map of that generation says, and on nothing else: under any other map
    /// nothing is sent, and the error is `OtherMap`.
    pub async fn write_under(
        &self,
        changes: Vec<Change>,
        floor: Revision,
        generation: Generation,
    ) -> Result<Written, RouterError> {
        self.check_changes(&changes)?;
        let floor = raised(floor, &changes);
        self.finish(Course::under(changes, floor, generation)).await
    }

    async fn write_all(
        &self,
        changes: Vec<Change>,
        floor: Revision,
    ) -> Result<Written, RouterError> {
        self.check_changes(&changes)?;
        let floor = raised(floor, &changes);
        self.finish(Course::new(changes, floor)).await
    }

    async fn finish(&self, mut course: Course) -> Result<Written, RouterError> {
        loop {
            match self.attempt(&mut course).await {
                Ok(Step::Again) => {}
                Ok(Step::Finished(written)) => return Ok(written),
                Err(error) => return Err(self.with_doubt(&course, error)),
            }
        }
    }

    async fn attempt(&self, course: &mut Course) -> Result<Step, RouterError> {
        self.in_time()?;
        let map = self.map();
        course.check_map(map.generation)?;
        if !all_fit(&map, &course.changes)? {
            return self.rekey(course, &map).await;
        }
        check_shard_keys(&map, &course.changes)?;
        if is_frozen(&map, &course.changes)? {
            let changes = &course.changes;
            let thawed = |map: &Map| !is_frozen(map, changes).unwrap_or(false);
            self.hold(&mut course.hold, thawed).await?;
            return Ok(Step::Again);
        }
        let shard = one_owner(&map, &course.changes)?;
        let place = self.enter(shard)?;
        let context = self.context(course, &map)?;
        let revision = context.revision;
        // After the revision was proposed: what is sent was numbered while the
        // lease ran, and its writer number was this process's alone (W5).
        let passage = match self.set_out(&map) {
            Ok(Some(passage)) => passage,
            Ok(None) => return course.again_after_fence(self),
            Err(error) => return course.again_when_available(self, error).await,
        };
        let answer = self.send(shard, &course.changes, context).await;
        self.settle(shard, &answer);
        let trusted = self.trusted(shard, &passage, answer).await;
        drop((passage, place));
        match trusted {
            Trusted::Answer(answer) => self.judge(course, &map, shard, revision, answer).await,
            Trusted::UnderAnotherMap => course.again_after_fence(self),
        }
    }

    /// The shard key has changed since the changes were made: they go on under the keys
    /// that their records have now. Of a record that lives nowhere every engine would
    /// say the same.
    async fn rekey(&self, course: &mut Course, map: &Map) -> Result<Step, RouterError> {
        match self.rekeyed(map, &course.changes).await? {
            Rekeyed::Changes(changes) => {
                course.changes = changes;
                course.again_after_fence(self)
            }
            Rekeyed::Nowhere(change) => {
                let context = self.context(course, map)?;
                let revision = context.revision;
                let shard = map.owner(change.key())?;
                let answer = match decide(None, &change, &context).map_err(of_shard(shard))? {
                    Decision::Answer(outcome) => Ok(outcome),
                    Decision::Write { .. } => Err(EngineError::Invalid {
                        reason: format!("{} can be made without its header", change.key()),
                    }),
                };
                self.judge(course, map, shard, revision, answer).await
            }
        }
    }

    /// The same revision again after a lost answer, a new proposal otherwise.
    fn context(&self, course: &Course, map: &Map) -> Result<WriteContext, RouterError> {
        let now = self.world.now();
        let revision = match &course.doubt {
            Some(doubt) => doubt.revision,
            None => match course.number {
                Some(number) => number,
                None => self.clock.propose(course.keys(), now, course.floor)?,
            },
        };
        Ok(WriteContext {
            authority: Authority::Router {
                generation: map.generation,
            },
            now,
            revision,
        })
    }

    async fn send(
        &self,
        shard: &ShardName,
        changes: &[Change],
        context: WriteContext,
    ) -> Result<Outcome, EngineError> {
        let engine = self.engine(shard);
        match changes {
            [change] => engine.apply(change.clone(), context).await,
            _ => engine.apply_together(changes.to_vec(), context).await,
        }
    }

    /// Where no fence stands in the store, an answer counts only if the
    /// generation is still the one it was sent under, and the lease still runs (W16). A late `Done` is in
    /// doubt, since nobody may have carried it over; a late refusal changed
    /// nothing and is asked again of the new owner.
    async fn trusted(
        &self,
        shard: &ShardName,
        passage: &Passage<'_>,
        answer: Result<Outcome, EngineError>,
    ) -> Trusted {
        let Ok(outcome) = &answer else {
            return Trusted::Answer(answer);
        };
        match self.engine(shard).capabilities().fence {
            FenceKind::InStore => return Trusted::Answer(answer),
            FenceKind::ByLease => {}
        }
        match self.still_stands(passage, Owner::Settled).await {
            Ok(true) => Trusted::Answer(answer),
            Ok(false) if !outcome.is_done() => Trusted::UnderAnotherMap,
            Ok(false) => Trusted::Answer(Err(EngineError::OutcomeUnknown {
                reason: format!(
                    "sent under map {}, answered under another",
                    passage.generation
                ),
            })),
            Err(error) => Trusted::Answer(Err(EngineError::OutcomeUnknown {
                reason: format!("the generation could not be checked: {error}"),
            })),
        }
    }

    async fn judge(
        &self,
        course: &mut Course,
        map: &Map,
        shard: &ShardName,
        proposed: Revision,
        answer: Result<Outcome, EngineError>,
    ) -> Result<Step, RouterError> {
        let generation = map.generation;
        match answer {
            Ok(Outcome::Done { revision }) => {
                let now = self.world.now();
                course
                    .keys()
                    .for_each(|key| self.clock.observe(key, revision, now));
                let outcome = Outcome::Done { revision };
                Ok(Step::Finished(Written {
                    outcome,
                    revision,
                    generation,
                }))
            }
            Ok(outcome) if course.doubt.is_some() => Err(RouterError::OutcomeUnknown {
                revision: proposed,
                reason: format!(
                    "an answer was lost, and then the record was found changed: {}",
                    name(&outcome)
                ),
            }),
            Ok(Outcome::Stale { stored }) if course.number.is_none() => {
                course.again_above(self, stored)
            }
            Ok(outcome) => Ok(Step::Finished(Written {
                outcome,
                revision: proposed,
                generation,
            })),
            Err(EngineError::Fenced { fence, .. }) => {
                self.look_for_map().await;
                self.hold(&mut course.hold, |map| map.generation >= fence)
                    .await?;
                course.again_after_fence(self)
            }
            Err(EngineError::OutcomeUnknown { reason }) => {
                course.again_in_doubt(self, shard, proposed, reason).await
            }
            Err(error @ EngineError::Unavailable { .. }) => {
                course
                    .again_when_available(self, of_shard(shard)(error))
                    .await
            }
            Err(error) => Err(of_shard(shard)(error)),
        }
    }

    /// An error that says "nothing was changed" may not be told after a lost answer.
    fn with_doubt(&self, course: &Course, error: RouterError) -> RouterError {
        let error = match (&course.doubt, error) {
            (None, error) | (_, error @ RouterError::OutcomeUnknown { .. }) => error,
            (Some(doubt), error) => RouterError::OutcomeUnknown {
                revision: doubt.revision,
                reason: format!("{}; then: {error}", doubt.reason),
            },
        };
        if matches!(error, RouterError::OutcomeUnknown { .. }) {
            self.counts.unknown_outcomes.add_one();
        }
        error
    }

    fn check_changes(&self, changes: &[Change]) -> Result<(), RouterError> {
        let changes_together_max = self.limits.changes_together_max;
        let refused = |reason| {
            Err(RouterError::NotAWrite {
                reason,
                changes_together_max,
            })
        };
        if changes.is_empty() {
            return refused("nothing is to be written");
        }
        if changes.len() > changes_together_max {
            return refused("too many changes in one commit");
        }
        if changes
            .iter()
            .any(|change| matches!(change, Change::PutImage { .. }))
        {
            return refused("images are a mover's to put");
        }
        Ok(())
    }
}

enum Trusted {
    Answer(Result<Outcome, EngineError>),
    UnderAnotherMap,
}

/// The outcome without what the record holds: errors are logged, records are shoppers' own.
fn name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done { .. } => "done",
        Outcome::Exists { .. } => "another record lives there",
        Outcome::Conflict { .. } => "the header is another one",
        Outcome::NoRecord => "no record lives there",
        Outcome::GuardFailed { .. } => "the guard does not hold",
        Outcome::Stale { .. } => "something newer is stored",
        Outcome::TooManyParts { .. } => "the record has too many parts",
        Outcome::Stock(_) => "the stock refuses it",
    }
}
/// Above whatever the changes expect to find.
fn raised(floor: Revision, changes: &[Change]) -> Revision {
    let expected = changes.iter().filter_map(expected_revision);
    expected.fold(floor, Revision::max)
}
