//! Both sides from end to end, page by page: sums of digests, and what the caller's rules say of each image.

use std::time::Duration;

use engine_api::{Record, RecordKey, ScanPage};
use futures::future::join;

use super::{Phase, Reader, Verifier, since};
use crate::error::VerifyError;
use crate::invariants::Finding;
use crate::progress::{Place, Reading, Round, Side};

/// The next page of each side; `None` of one that was read to its end.
struct Pages {
    source: Option<ScanPage>,
    target: Option<ScanPage>,
}

impl Pages {
    async fn read(reader: &Reader, [source, target]: [Place; 2]) -> Result<Pages, VerifyError> {
        let page = async |side: Side, place: Place| match place.next_page() {
            Some(after) => reader.scan(side, after).await.map(Some),
            None => Ok(None),
        };
        let (source, target) = join(page(Side::Source, source), page(Side::Target, target)).await;
        Ok(Pages {
            source: source?,
            target: target?,
        })
    }

    /// Where those after them begin.
    fn next(&self) -> [Place; 2] {
        [&self.source, &self.target].map(|page| match page {
            Some(page) => page.next.clone().into(),
            None => Place::End,
        })
    }
}

impl Verifier {
    /// Some pages of each side. When both are read to their ends, their sums are compared.
    pub(super) async fn sum(&mut self, pages_max: usize) -> Result<(), VerifyError> {
        let Some(round) = self.round() else {
            return Ok(());
        };
        let places = [round.source.place.clone(), round.target.place.clone()];
        let reader = self.reader();
        let mut pages = Pages::read(&reader, places).await?;
        for _ in 1..pages_max {
            // Each is read while the one before it is summed up.
            let next = Pages::read(&reader, pages.next());
            let (next, ()) = join(next, async { self.add(pages) }).await;
            pages = next?;
        }
        self.add(pages);
        if self.round().is_some_and(|round| round.is_over()) {
            self.compare_sums();
        }
        Ok(())
    }

    fn add(&mut self, pages: Pages) {
        for (side, page) in [(Side::Source, pages.source), (Side::Target, pages.target)] {
            let Some(page) = page else { continue };
            page.images.iter().for_each(|image| self.judge(side, image));
            if let Some(round) = self.round() {
                round.of(side).add(page);
            }
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
    fn judge(&mut self, side: Side, image: &Record) {
        let Some(invariants) = self.invariants.clone() else {
            return;
        };
        let (now, room) = (self.world.now(), self.limits.suspects_max);
        match (side, invariants.broken(image, now)) {
            (Side::Source, Some(rule)) => self.find(&image.key, rule),
            (Side::Target, Some(_)) if self.suspects.len() < room => {
                self.suspect(image.key.clone())
            }
            (_, Some(_) | None) => {}
        }
        if side == Side::Target
            && let Some(sole) = invariants.sole(image, now)
            && self.met.meet(&sole)
            && self.suspects.len() < room
        {
            let suspect = self.suspects.entry(image.key.clone()).or_default();
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

impl Reading {
    fn add(&mut self, page: ScanPage) {
        page.images.iter().for_each(|image| self.sums.add(image));
        self.place = page.next.into();
    }
}
