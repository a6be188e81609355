//! Copying everything once, from a position that was taken before (W24).

use engine_api::{Position, Scan, ScanPage, ScanPosition};
use futures::future::join;

use super::{Pass, Route, Tenure, Work, of_side};
use crate::error::{FeedError, Side};
use crate::phase::Event;

/// A page that was read before its turn.
#[derive(Debug)]
pub(super) struct Ahead {
    after: ScanPosition,
    page: ScanPage,
}

impl Route {
    /// The position first, then one page of the scan a pass. How far it came is
    /// saved after each, so that a long scan survives its process.
    pub(super) async fn rebuild(
        &self,
        tenure: &Tenure,
        work: &mut Work,
        from: Option<Position>,
        after: Option<ScanPosition>,
    ) -> Result<Pass, FeedError> {
        if from.is_none() {
            let end = self.source.journal_end().await;
            let at = end.map_err(|source| of_side(tenure, Side::Source, source))?;
            tracing::info!(feed = tenure.name(), "copies everything once");
            self.counts.rebuilds.add(1);
            self.step(tenure, work, Event::PositionTaken { at }).await?;
            return Ok(Pass::Behind);
        }
        let page = match work.ahead.take() {
            Some(ahead) if Some(&ahead.after) == after.as_ref() => ahead.page,
            _ => {
                let page = self.source.scan(&self.scan(after)).await;
                page.map_err(|source| of_side(tenure, Side::Source, source))?
            }
        };
        self.counts.scanned.add(page.images.len() as u64);
        let reading_on = self.read_ahead(page.next.clone());
        let (carried, ahead) =
            join(self.carry_scanned(tenure, work, page.images), reading_on).await;
        carried?;
        let event = match page.next {
            Some(after) => Event::Scanned { after },
            None => Event::ScanEnded,
        };
        self.step(tenure, work, event).await?;
        work.ahead = ahead;
        Ok(Pass::Behind)
    }

    /// The source reads while the target writes: one page ahead, no more. What fails is read
    /// again when it is its turn.
    async fn read_ahead(&self, after: Option<ScanPosition>) -> Option<Ahead> {
        let after = after?;
        let page = self.source.scan(&self.scan(Some(after.clone()))).await;
        let page = page.ok()?;
        Some(Ahead { after, page })
    }

    fn scan(&self, after: Option<ScanPosition>) -> Scan {
        Scan {
            collection: self.cargo.collection(),
            scope: self.cargo.scope(),
            after,
            until: None,
            limit: self.limits.scan_records_max.min(self.piece_max),
        }
    }

    /// If somebody asked for a rebuild meanwhile, that stands instead.
    async fn step(&self, tenure: &Tenure, work: &mut Work, event: Event) -> Result<(), FeedError> {
        match work.held.state.step(event) {
            Some(phase) => self.save(tenure, work, phase).await.map(|_| ()),
            None => Ok(()),
        }
    }
}
