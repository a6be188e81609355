//! Both sides from end to end, page by page: sums of digests, and what the caller's rules say of each image.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use engine_api::{Look, RecordKey};
use futures::future::join;

use super::{Phase, Reader, Verifier, since};
use crate::digest::{bucket_of, digest};
use crate::error::VerifyError;
use crate::invariants::{Finding, Sole};
use crate::progress::{Place, Reading, Round, Side};

/// Some pages of one side, as far as anything of them is kept.
struct Read {
    /// Bucket and digest of each image.
    digests: Vec<(usize, u128)>,
    judged: Vec<Judged>,
    place: Place,
}

/// An image of which the caller's rules say something.
struct Judged {
    key: RecordKey,
    broken: Option<String>,
    sole: Option<Sole>,
}

impl Verifier {
    /// Some pages of each side. When both are read to their ends, their sums are compared.
    pub(super) async fn sum(&mut self, pages_max: usize) -> Result<(), VerifyError> {
        let Some(round) = self.round() else {
            return Ok(());
        };
        let places = (round.source.place.clone(), round.target.place.clone());
        let reader = self.reader();
        let source = reader.read(Side::Source, places.0, pages_max);
        let target = reader.read(Side::Target, places.1, pages_max);
        let (source, target) = join(source, target).await;
        let (source, target) = (source?, target?);
        self.add(Side::Source, source);
        self.add(Side::Target, target);
        if self.round().is_some_and(|round| round.is_over()) {
            self.compare_sums();
        }
        Ok(())
    }

    fn add(&mut self, side: Side, read: Read) {
        for judged in read.judged {
            self.judge(side, judged);
        }
        if let Some(round) = self.round() {
            let reading = round.of(side);
            for (bucket, digest) in read.digests {
                reading.sums.add(bucket, digest);
            }
            reading.place = read.place;
        }
    }

    /// Begins to compare everything once more, when it has rested long enough, or goes on with it.
    pub(super) async fn go_round_again(&mut self) -> Result<(), VerifyError> {
        let now = self.world.elapsed();
        let rested = since(*self.rests_since.get_or_insert(now), now);
        if self.again.is_none() {
            if rested < Duration::from_millis(self.limits.round_pause_ms) {
                return Ok(());
            }
            self.again = Some(Round::default());
        }
        self.sum(1).await
    }

    /// The one under way: the first, or another one behind the watch.
    fn round(&mut self) -> Option<&mut Round> {
        match &mut self.phase {
            Phase::Summing(round) => Some(round),
            Phase::Naming { .. } => None,
            Phase::Watching { .. } => self.again.as_mut(),
        }
    }

    fn compare_sums(&mut self) {
        let round = match (self.again.take(), &mut self.phase) {
            (Some(round), _) => round,
            (None, Phase::Summing(round)) => std::mem::take(round),
            (None, Phase::Naming { .. } | Phase::Watching { .. }) => return,
        };
        self.met.forget();
        self.findings = std::mem::take(&mut self.judged);
        self.rows.begin();
        self.rests_since = None;
        let (source, target) = (round.source.sums, round.target.sums);
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

    /// What is wrong at the source is told; what is wrong at the target is looked at on both sides.
    fn judge(&mut self, side: Side, judged: Judged) {
        let Judged { key, broken, sole } = judged;
        let room = self.limits.suspects_max;
        match (side, broken) {
            (Side::Source, Some(rule)) => self.find(&key, rule),
            (Side::Target, Some(_)) if self.suspects.len() < room => self.suspect(key.clone()),
            (_, Some(_) | None) => {}
        }
        if side == Side::Target
            && let Some(sole) = sole
            && self.met.meet(&sole)
            && self.suspects.len() < room
        {
            let suspect = self.suspects.entry(key).or_default();
            suspect.is_crowded = true;
        }
    }

    pub(super) fn find(&mut self, key: &RecordKey, rule: String) {
        let is_known = |finding: &Finding| finding.key == *key && finding.rule == rule;
        let judged = match self.round().is_some() {
            true => &mut self.judged,
            false => &mut self.findings,
        };
        if judged.len() < self.limits.named_max && !judged.iter().any(is_known) {
            let key = key.clone();
            judged.push(Finding { key, rule });
        }
    }

    pub(super) fn suspect(&mut self, key: RecordKey) {
        self.suspects.entry(key).or_default();
    }
}

impl Round {
    fn of(&mut self, side: Side) -> &mut Reading {
        match side {
            Side::Source => &mut self.source,
            Side::Target => &mut self.target,
        }
    }
}

impl Reader {
    /// Each image becomes a number on the thread that reads it, which frees it as well.
    async fn read(&self, side: Side, place: Place, pages_max: usize) -> Result<Read, VerifyError> {
        let read = Arc::new(Mutex::new(Read {
            digests: Vec::new(),
            judged: Vec::new(),
            place,
        }));
        for _ in 0..pages_max {
            let Some(after) = lock(&read).place.next_page() else {
                break;
            };
            let look = self.look(side, read.clone());
            let next = self.scan_each(side, after, look).await?;
            lock(&read).place = next.into();
        }
        let mut read = lock(&read);
        let place = read.place.clone();
        Ok(Read {
            digests: std::mem::take(&mut read.digests),
            judged: std::mem::take(&mut read.judged),
            place,
        })
    }

    fn look(&self, side: Side, read: Arc<Mutex<Read>>) -> Look {
        let (invariants, now) = (self.invariants.clone(), self.now);
        Arc::new(move |image| {
            let judged = invariants.as_ref().and_then(|invariants| {
                let broken = invariants.broken(image, now);
                // What answers twice at the source does so at the target, too.
                let sole = match side {
                    Side::Source => None,
                    Side::Target => invariants.sole(image, now),
                };
                let key = &image.key;
                (broken.is_some() || sole.is_some()).then(|| Judged {
                    key: key.clone(),
                    broken,
                    sole,
                })
            });
            let digest = (bucket_of(&image.key.id), digest(image));
            let mut read = lock(&read);
            read.digests.push(digest);
            read.judged.extend(judged);
        })
    }
}

fn lock(read: &Mutex<Read>) -> MutexGuard<'_, Read> {
    read.lock().expect("nobody panics while it is written down")
}
