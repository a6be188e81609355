//! Copying everything once, from a position that was taken before (W24).

use engine_api::{Position, Scan, ScanPosition};

use super::{Pass, Route, Tenure, Work, of_side};
use crate::error::FeedError;
use crate::phase::Event;

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
            let at = end.map_err(|source| of_side(tenure, "source", source))?;
            tracing::info!(feed = tenure.name(), "copies everything once");
            self.counts.rebuilds.add(1);
            self.step(tenure, work, Event::PositionTaken { at }).await?;
            return Ok(Pass::Behind);
        }
        let scan = Scan {
            collection: self.cargo.collection(),
            scope: self.cargo.scope(),
            after,
            until: None,
            limit: self.limits.scan_records_max,
        };
        let page = self.source.scan(&scan).await;
        let page = page.map_err(|source| of_side(tenure, "source", source))?;
        self.counts.scanned.add(page.images.len() as u64);
        self.carry_scanned(tenure, work, page.images).await?;
        let event = match page.next {
            Some(after) => Event::Scanned { after },
            None => Event::ScanEnded,
        };
        self.step(tenure, work, event).await?;
        Ok(Pass::Behind)
    }

    /// If somebody asked for a rebuild meanwhile, that stands instead.
    async fn step(&self, tenure: &Tenure, work: &mut Work, event: Event) -> Result<(), FeedError> {
        match work.held.state.step(event) {
            Some(phase) => self.save(tenure, work, phase).await.map(|_| ()),
            None => Ok(()),
        }
    }
}
