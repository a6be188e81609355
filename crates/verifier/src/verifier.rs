//! One verification, as one process runs it.
//!
//! A pass does a bounded piece of work and may be dropped at any `.await`, or the process killed: what was not saved
//! is done again, and comparing again changes nothing.

mod summing;

mod naming;

mod rows;

mod watching;

mod repairing;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use engine_api::{
    Engine, Freshness, Look, Position, ReadContext, Record, RecordKey, Scan, ScanPage,
    ScanPosition, Seal, Timestamp, World,
};
use layout::{Collection, Scope};

use crate::difference::{Difference, Discord};
use crate::error::VerifyError;
use crate::invariants::{Finding, Invariants, Met};
use crate::limits::Limits;
use crate::progress::{Phase, Place, Progress, Round, Side};
use crate::proof::{Proof, Unproven};
use naming::Names;
pub use repairing::Repair;
use rows::Rows;
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
    /// What the shop promises of its records.
    pub invariants: Option<Arc<dyn Invariants>>,
}

pub struct Verifier {
    pair: Pair,
    world: Arc<dyn World>,
    limits: Limits,
    invariants: Option<Arc<dyn Invariants>>,
    phase: Phase,
    /// Everything once more, behind the watch.
    again: Option<Round>,
    /// Since when nothing is scanned, by `World::elapsed`.
    rests_since: Option<Duration>,
    rows: Rows,
    met: Met,
    /// Rules that the source breaks, by the last round, and by the one under way.
    findings: Vec<Finding>,
    judged: Vec<Finding>,
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

impl Verifier {
    /// Begins: both positions are taken before the first record is read.
    pub async fn begin(config: VerifierConfig) -> Result<Verifier, VerifyError> {
        let VerifierConfig { pair, .. } = &config;
        let source = pair.source.journal_end().await;
        let source_at = source.map_err(VerifyError::of(Side::Source))?;
        let target = pair.target.journal_end().await;
        let target_at = target.map_err(VerifyError::of(Side::Target))?;
        Verifier::resume(
            config,
            Progress {
                phase: Phase::Summing(Round::default()),
                rows: Place::Start,
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
            rows,
            source_at,
            target_at,
        } = progress;
        Ok(Verifier {
            pair: config.pair,
            world: config.world,
            limits: config.limits,
            invariants: config.invariants,
            phase,
            again: None,
            rests_since: None,
            rows: Rows::at(rows),
            met: Met::default(),
            findings: Vec::new(),
            judged: Vec::new(),
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
            rows: self.rows.saved(),
            source_at,
            target_at,
        }
    }

    /// A bounded piece of work.
    pub async fn pass(&mut self) -> Result<Pass, VerifyError> {
        let has_read_all = self.read_journals().await?;
        self.look_again().await?;
        self.look_at_rows().await?;
        match &self.phase {
            Phase::Summing(_) => {
                self.sum(self.limits.scan_pages_max).await?;
                Ok(Pass::Behind)
            }
            Phase::Naming { .. } => {
                if self.suspects.len() < self.limits.suspects_max {
                    self.name().await?;
                }
                Ok(Pass::Behind)
            }
            Phase::Watching { .. } => {
                match self.rows.place {
                    Place::Start | Place::After(_) => self.search_rows().await?,
                    Place::End => self.go_round_again().await?,
                }
                // Another round may just have met unequal buckets.
                let is_open =
                    !self.nothing_is_open() || !self.rows.nothing_is_open() || !self.is_watching();
                Ok(match has_read_all && !is_open {
                    true => Pass::CaughtUp {
                        differences: self.suspects.len() + self.strays().len(),
                    },
                    false => Pass::Behind,
                })
            }
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

    /// Rules of the shop that the source itself breaks: told, and no reason to stay.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Whether everything was compared once, and no unequal bucket waits for its names.
    pub fn is_watching(&self) -> bool {
        matches!(self.phase, Phase::Watching { .. }) && self.rows.all_met
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
        if !self.rows.all_met {
            return Ok(Err(Unproven::NotYet));
        }
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
        if let Some(strays) = self.strays_left().await? {
            return Ok(Err(strays));
        }
        let what = (self.pair.collection, self.pair.scope.clone());
        let seal = seal.position.clone();
        let proof = Proof::new(what, seal, records, roots, self.looked_again);
        Ok(Ok(proof))
    }

    fn reader(&self) -> Reader {
        Reader {
            pair: self.pair.clone(),
            records_max: self.limits.scan_records_max,
            invariants: self.invariants.clone(),
            now: self.world.now(),
        }
    }

    fn engine(&self, side: Side) -> &dyn Engine {
        self.pair.engine(side)
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
            freshness: Freshness::OfEveryCopy,
        };
        let image = self.engine(side).get(key, context).await;
        image.map_err(VerifyError::of(side))
    }
}

/// Reads pages while its verifier is busy with others.
struct Reader {
    pair: Pair,
    records_max: usize,
    invariants: Option<Arc<dyn Invariants>>,
    now: Timestamp,
}

impl Reader {
    async fn scan(&self, side: Side, after: Option<ScanPosition>) -> Result<ScanPage, VerifyError> {
        let page = self.pair.engine(side).scan(&self.page(after)).await;
        page.map_err(VerifyError::of(side))
    }

    async fn scan_each(
        &self,
        side: Side,
        after: Option<ScanPosition>,
        look: Look,
    ) -> Result<Option<ScanPosition>, VerifyError> {
        let scan = self.page(after);
        let next = self.pair.engine(side).scan_each(&scan, look).await;
        next.map_err(VerifyError::of(side))
    }

    fn page(&self, after: Option<ScanPosition>) -> Scan {
        Scan {
            collection: self.pair.collection,
            scope: self.pair.scope.clone(),
            after,
            until: None,
            limit: self.records_max,
        }
    }
}

impl Pair {
    fn engine(&self, side: Side) -> &dyn Engine {
        match side {
            Side::Source => self.source.as_ref(),
            Side::Target => self.target.as_ref(),
        }
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
