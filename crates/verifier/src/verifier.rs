//! One verification, as one process runs it.
//!
//! A pass does a bounded piece of work and may be dropped at any `.await`, or the process killed: what was not saved
//! is done again, and comparing again changes nothing.

mod naming;

mod watching;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use engine_api::{
    Authority, Change, Engine, Freshness, MoverTerm, Outcome, Position, ReadContext, Record,
    RecordKey, Revision, Scan, ScanPage, ScanPosition, Seal, World, WriteContext,
};
use layout::{Collection, Scope};

use crate::difference::{Difference, Discord, discord};
use crate::digest::Sums;
use crate::error::VerifyError;
use crate::limits::Limits;
use crate::progress::{Phase, Progress, Side};
use crate::proof::{Proof, Unproven};
use naming::Names;
use watching::Suspect;

/// What is compared with what.
#[derive(Clone, Debug)]
pub struct Pair {
    pub collection: Collection,
    pub scope: Scope,
    pub source: Arc<dyn Engine>,
    pub target: Arc<dyn Engine>,
}

#[derive(Clone, Debug)]
pub struct VerifierConfig {
    pub pair: Pair,
    pub world: Arc<dyn World>,
    pub limits: Limits,
}

pub struct Verifier {
    pair: Pair,
    world: Arc<dyn World>,
    limits: Limits,
    phase: Phase,
    /// Of the buckets that are being named; begun anew by whoever goes on with the verification.
    names: Option<Names>,
    source_at: Position,
    target_at: Position,
    /// Both, as far as nothing before them is suspect.
    settled: (Position, Position),
    suspects: BTreeMap<RecordKey, Suspect>,
    /// Buckets whose keys are among the suspects: whoever goes on has to name them again.
    unsettled: Vec<usize>,
    /// Suspects after this key come first in the next look.
    looked_at: Option<RecordKey>,
    looked_again: u64,
}

/// What one pass came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// There is more to do at once.
    Behind,
    /// Everything was compared, and what changed since was compared again; these records differ.
    CaughtUp { differences: usize },
}

/// What became of a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    Repaired,
    /// The target holds something under the very revision that the source has: no image is newer than it.
    SameRevision,
    /// It was none any more.
    Agrees,
}

impl Verifier {
    /// Begins: both positions are taken before the first record is read.
    pub async fn begin(config: VerifierConfig) -> Result<Verifier, VerifyError> {
        let VerifierConfig { pair, .. } = &config;
        let source = pair.source.journal_end().await;
        let source_at = source.map_err(VerifyError::of(Side::Source))?;
        let target = pair.target.journal_end().await;
        let target_at = target.map_err(VerifyError::of(Side::Target))?;
        let phase = Phase::Summing {
            side: Side::Source,
            after: None,
            source: Sums::default(),
            target: Sums::default(),
        };
        Verifier::resume(
            config,
            Progress {
                phase,
                source_at,
                target_at,
            },
        )
    }

    /// Goes on where another process saved.
    pub fn resume(config: VerifierConfig, progress: Progress) -> Result<Verifier, VerifyError> {
        config.limits.check()?;
        let (source, target) = progress.phase.sums();
        if !source.is_whole() || !target.is_whole() {
            return Err(VerifyError::Damaged);
        }
        let Progress {
            phase,
            source_at,
            target_at,
        } = progress;
        Ok(Verifier {
            pair: config.pair,
            world: config.world,
            limits: config.limits,
            phase,
            names: None,
            settled: (source_at.clone(), target_at.clone()),
            source_at,
            target_at,
            suspects: BTreeMap::new(),
            unsettled: Vec::new(),
            looked_at: None,
            looked_again: 0,
        })
    }

    /// What to save. Suspects are not saved: whoever goes on meets them again, in the journals or in the buckets.
    pub fn progress(&self) -> Progress {
        let (source_at, target_at) = self.settled.clone();
        let phase = match &self.phase {
            Phase::Watching { source, target } if !self.unsettled.is_empty() => Phase::Naming {
                buckets: self.unsettled.clone(),
                source: source.clone(),
                target: target.clone(),
            },
            phase => phase.clone(),
        };
        Progress {
            phase,
            source_at,
            target_at,
        }
    }

    /// A bounded piece of work.
    pub async fn pass(&mut self) -> Result<Pass, VerifyError> {
        let has_read_all = self.read_journals().await?;
        self.look_again().await?;
        match &self.phase {
            Phase::Summing { side, after, .. } => {
                let (side, after) = (*side, after.clone());
                self.sum(side, after).await?;
                Ok(Pass::Behind)
            }
            Phase::Naming { .. } => {
                self.name().await?;
                Ok(Pass::Behind)
            }
            Phase::Watching { .. } => Ok(match has_read_all && self.nothing_is_open() {
                true => Pass::CaughtUp {
                    differences: self.suspects.len(),
                },
                false => Pass::Behind,
            }),
        }
    }

    /// The records that are different and have been for longer than a copy may lag.
    pub fn differences(&self) -> Vec<Difference> {
        let named = self.suspects.iter().filter_map(|(key, suspect)| {
            Some(Difference {
                key: key.clone(),
                discord: suspect.confirmed()?.clone(),
            })
        });
        named.take(self.limits.named_max).collect()
    }

    /// Whether everything was compared once, and only what changes is compared again.
    pub fn is_watching(&self) -> bool {
        matches!(self.phase, Phase::Watching { .. })
    }

    /// How many records wait to be looked at again: changed or different for less long than a copy may lag.
    pub fn open(&self) -> usize {
        let open = self.suspects.values().filter(|it| !it.is_confirmed);
        open.count()
    }

    /// With the source fenced up to `seal` and the target caught up with it: nothing may be different any more, and
    /// nothing excuses what is.
    pub async fn prove(&mut self, seal: &Seal) -> Result<Result<Proof, Unproven>, VerifyError> {
        let Phase::Watching { source, target } = &self.phase else {
            return Ok(Err(Unproven::NotYet));
        };
        let (records, roots) = (source.records(), (source.root(), target.root()));
        // What was let through before the fence stands in the journals by now.
        while !self.read_journals().await? {
            self.look_at_all().await?;
        }
        self.look_at_all().await?;
        if !self.suspects.is_empty() {
            let count = self.suspects.len();
            let named = self.suspects.iter().filter_map(|(key, suspect)| {
                let discord = suspect.discord.clone()?;
                let key = key.clone();
                Some(Difference { key, discord })
            });
            let named = named.take(self.limits.named_max).collect();
            return Ok(Err(Unproven::Unequal { count, named }));
        }
        let what = (self.pair.collection, self.pair.scope.clone());
        let seal = seal.position.clone();
        let proof = Proof::new(what, seal, records, roots, self.looked_again);
        Ok(Ok(proof))
    }

    /// Puts the source's image of one record to the target, under the mover's term.
    pub async fn repair(
        &mut self,
        key: &RecordKey,
        term: &MoverTerm,
    ) -> Result<Repair, VerifyError> {
        let (source, target) = self.read_both(key).await?;
        let now = self.world.now();
        if discord(source.as_ref(), target.as_ref(), now).is_none() {
            self.suspects.remove(key);
            return Ok(Repair::Agrees);
        }
        let image = match (source, target) {
            (Some(source), _) => source,
            (None, Some(target)) => removal_of(target),
            (None, None) => return Ok(Repair::Agrees),
        };
        let context = WriteContext {
            authority: Authority::Mover { term: term.clone() },
            now,
            revision: image.newest_revision(),
        };
        let put = self
            .pair
            .target
            .apply(Change::PutImage { image }, context)
            .await;
        match put.map_err(VerifyError::of(Side::Target))? {
            Outcome::Done { .. } => {}
            refused => tracing::warn!(%key, ?refused, "the target takes no image of the record"),
        }
        match self.look_at(key).await? {
            None => Ok(Repair::Repaired),
            Some(_) => Ok(Repair::SameRevision),
        }
    }

    async fn sum(&mut self, at: Side, after: Option<ScanPosition>) -> Result<(), VerifyError> {
        let page = self.scan(at, after).await?;
        let Phase::Summing {
            side,
            after,
            source,
            target,
        } = &mut self.phase
        else {
            return Ok(());
        };
        let sums = match side {
            Side::Source => &mut *source,
            Side::Target => &mut *target,
        };
        page.images.iter().for_each(|image| sums.add(image));
        match (page.next, *side) {
            (Some(next), _) => *after = Some(next),
            (None, Side::Source) => (*side, *after) = (Side::Target, None),
            (None, Side::Target) => {
                let (source, target) = (std::mem::take(source), std::mem::take(target));
                let unequal = source.unequal(&target);
                let buckets: Vec<usize> = unequal.iter().map(|(bucket, _)| *bucket).collect();
                self.phase = match buckets.is_empty() {
                    true => Phase::Watching { source, target },
                    false => Phase::Naming {
                        buckets,
                        source,
                        target,
                    },
                };
            }
        }
        Ok(())
    }

    async fn scan(&self, side: Side, after: Option<ScanPosition>) -> Result<ScanPage, VerifyError> {
        let scan = Scan {
            collection: self.pair.collection,
            scope: self.pair.scope.clone(),
            after,
            until: None,
            limit: self.limits.scan_records_max,
        };
        let page = self.engine(side).scan(&scan).await;
        page.map_err(VerifyError::of(side))
    }

    fn engine(&self, side: Side) -> &dyn Engine {
        match side {
            Side::Source => self.pair.source.as_ref(),
            Side::Target => self.pair.target.as_ref(),
        }
    }

    async fn read_both(
        &self,
        key: &RecordKey,
    ) -> Result<(Option<Record>, Option<Record>), VerifyError> {
        // The target first: what the source takes meanwhile makes it look behind, and is looked at again. The other
        // way round an image that was carried in between would look like one that nobody sent.
        let target = self.read(Side::Target, key).await?;
        let source = self.read(Side::Source, key).await?;
        Ok((source, target))
    }

    async fn read(&self, side: Side, key: &RecordKey) -> Result<Option<Record>, VerifyError> {
        let context = ReadContext {
            now: self.world.now(),
            freshness: Freshness::Latest,
        };
        let image = self.engine(side).get(key, context).await;
        image.map_err(VerifyError::of(side))
    }
}

/// A removal that is newer than everything the target has of the record.
fn removal_of(target: Record) -> Record {
    let newest = target.newest_revision();
    let revision = Revision::from_i64(newest.to_i64() + 1).unwrap_or(newest);
    Record {
        key: target.key,
        header: engine_api::Header {
            revision,
            cleared: newest,
            content: engine_api::Content::Removed,
        },
        parts: BTreeMap::new(),
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("collection", &self.pair.collection)
            .field("suspects", &self.suspects.len())
            .finish_non_exhaustive()
    }
}

/// How long something has been as it is.
fn since(then: Duration, now: Duration) -> Duration {
    now.saturating_sub(then)
}

impl Suspect {
    fn confirmed(&self) -> Option<&Discord> {
        self.discord.as_ref().filter(|_| self.is_confirmed)
    }
}
