//! Fault points of the shop's writes.

use std::sync::Arc;

use async_trait::async_trait;
use engine_api::{
    Aged, Capabilities, Change, Condemned, Engine, EngineError, Fence, JournalPage, Look,
    Maintained, Maintenance, MoverTerm, Outcome, Page, Position, Query, ReadContext, Record,
    RecordKey, Scan, ScanPage, ScanPosition, Seal, SharedRecord, StockAction, Stray, StrayEnd,
    StrayPage, StraySearch, Timestamp, WriteContext,
};

use super::point::{Kind, Side};
use super::{Fate, Trap};

/// An engine whose process ends at a point.
#[derive(Debug)]
pub struct FaultyEngine {
    pub engine: Arc<dyn Engine>,
    /// Of all shards: it counts the writes of its kind on each.
    pub trap: Arc<Trap>,
}

impl FaultyEngine {
    async fn written(
        &self,
        fate: Fate,
        write: impl Future<Output = Result<Outcome, EngineError>>,
    ) -> Result<Outcome, EngineError> {
        if fate == Fate::Passes {
            return write.await;
        }
        if self.trap.point.side == Side::Before {
            self.trap.spring();
        }
        let outcome = write.await;
        // Whatever it is, nobody hears of it, or later.
        self.trap.spring();
        outcome
    }

    /// Counts the write if it is of the point's kind.
    fn fate_of(&self, changes: &[Change]) -> Fate {
        let is_met = changes.iter().any(|change| match &self.trap.point.kind {
            Kind::Write { collection, write } => {
                change.key().collection == *collection && name(change) == *write
            }
            Kind::Move { .. } | Kind::Map { .. } => false,
        });
        match is_met {
            true => self.trap.met(),
            false => Fate::Passes,
        }
    }
}

fn name(change: &Change) -> &'static str {
    match change {
        Change::CreateIfAbsent { .. } => "create",
        Change::ChangeIf { .. } => "change",
        Change::Patch { .. } => "patch",
        Change::Remove { .. } => "remove",
        Change::PutImage { .. } => "image",
        Change::Stock { action, .. } => match action {
            StockAction::Receive { .. } => "receive",
            StockAction::Take { .. } => "take",
            StockAction::Claim { .. } => "claim",
            StockAction::Give { .. } => "give",
            StockAction::Return { .. } => "return",
            StockAction::Sell { .. } => "sell",
            StockAction::Unsell { .. } => "unsell",
        },
    }
}

#[async_trait]
impl Engine for FaultyEngine {
    fn capabilities(&self) -> &Capabilities {
        self.engine.capabilities()
    }

    async fn apply(&self, change: Change, context: WriteContext) -> Result<Outcome, EngineError> {
        let fate = self.fate_of(std::slice::from_ref(&change));
        self.written(fate, self.engine.apply(change, context)).await
    }

    async fn apply_together(
        &self,
        changes: Vec<Change>,
        context: WriteContext,
    ) -> Result<Outcome, EngineError> {
        let fate = self.fate_of(&changes);
        self.written(fate, self.engine.apply_together(changes, context))
            .await
    }

    async fn get(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Option<Record>, EngineError> {
        self.engine.get(key, context).await
    }

    fn get_at_once(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Option<Result<Option<SharedRecord>, EngineError>> {
        self.engine.get_at_once(key, context)
    }

    async fn get_aged(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Aged<Option<Record>>, EngineError> {
        self.engine.get_aged(key, context).await
    }

    async fn query_aged(
        &self,
        query: &Query,
        context: ReadContext,
    ) -> Result<Aged<Page>, EngineError> {
        self.engine.query_aged(query, context).await
    }

    async fn query(&self, query: &Query, context: ReadContext) -> Result<Page, EngineError> {
        self.engine.query(query, context).await
    }

    async fn scan(&self, scan: &Scan) -> Result<ScanPage, EngineError> {
        self.engine.scan(scan).await
    }

    async fn scan_each(
        &self,
        scan: &Scan,
        look: Look,
    ) -> Result<Option<ScanPosition>, EngineError> {
        self.engine.scan_each(scan, look).await
    }

    async fn journal_end(&self) -> Result<Position, EngineError> {
        self.engine.journal_end().await
    }

    async fn journal_read(
        &self,
        from: &Position,
        limit: usize,
    ) -> Result<JournalPage, EngineError> {
        self.engine.journal_read(from, limit).await
    }

    async fn raise_fence(
        &self,
        fence: Fence,
        term: MoverTerm,
        now: Timestamp,
    ) -> Result<Seal, EngineError> {
        self.engine.raise_fence(fence, term, now).await
    }

    async fn claim_term(&self, term: MoverTerm) -> Result<(), EngineError> {
        self.engine.claim_term(term).await
    }

    fn refuses_writes(&self) -> Option<EngineError> {
        self.engine.refuses_writes()
    }

    async fn maintain(&self, work: Maintenance) -> Result<Maintained, EngineError> {
        self.engine.maintain(work).await
    }

    async fn restore(&self, image: Record, context: WriteContext) -> Result<Outcome, EngineError> {
        self.engine.restore(image, context).await
    }

    async fn condemn(
        &self,
        keys: &[RecordKey],
        context: WriteContext,
    ) -> Result<Vec<Condemned>, EngineError> {
        self.engine.condemn(keys, context).await
    }

    async fn forget(
        &self,
        condemned: &[Condemned],
        context: WriteContext,
    ) -> Result<u64, EngineError> {
        self.engine.forget(condemned, context).await
    }

    async fn is_stray(&self, stray: &Stray, now: Timestamp) -> Result<bool, EngineError> {
        self.engine.is_stray(stray, now).await
    }

    async fn find_strays(&self, search: &StraySearch) -> Result<StrayPage, EngineError> {
        self.engine.find_strays(search).await
    }

    async fn mend_stray(&self, stray: &Stray, now: Timestamp) -> Result<StrayEnd, EngineError> {
        self.engine.mend_stray(stray, now).await
    }
}
