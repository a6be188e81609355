//! An engine that counts what is asked of it, and how long the answers take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use engine_api::{
    Aged, Capabilities, Change, Condemned, Engine, EngineError, Fence, JournalPage, Look,
    Maintained, Maintenance, MoverTerm, Outcome, Page, Position, Query, ReadContext, Record,
    RecordKey, Scan, ScanPage, ScanPosition, Seal, SharedRecord, Stray, StrayEnd, StrayPage,
    StraySearch, Timestamp, WriteContext,
};
use engine_embedded::EmbeddedEngine;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Apply,
    ApplyTogether,
    Get,
    Query,
    Scan,
    JournalEnd,
    JournalRead,
    RaiseFence,
    ClaimTerm,
    Maintain,
    FindStrays,
    MendStray,
    Forget,
}

/// Upper bounds of the latency's buckets, in microseconds; one more has no bound.
pub const BOUNDS_US: [u32; 14] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 1_000_000, 10_000_000,
];

const BUCKETS: usize = BOUNDS_US.len() + 1;

#[derive(Debug)]
pub struct Metered {
    engine: Arc<dyn Engine>,
    embedded: Option<Arc<EmbeddedEngine>>,
    meters: [Meter; Operation::ALL.len()],
}

/// Errors are counted besides; an outcome that refuses is an answer like any other.
#[derive(Debug, Default)]
pub struct Meter {
    pub failures: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

impl Operation {
    pub const ALL: [Operation; 13] = [
        Operation::Apply,
        Operation::ApplyTogether,
        Operation::Get,
        Operation::Query,
        Operation::Scan,
        Operation::JournalEnd,
        Operation::JournalRead,
        Operation::RaiseFence,
        Operation::ClaimTerm,
        Operation::Maintain,
        Operation::FindStrays,
        Operation::MendStray,
        Operation::Forget,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Operation::Apply => "apply",
            Operation::ApplyTogether => "apply_together",
            Operation::Get => "get",
            Operation::Query => "query",
            Operation::Scan => "scan",
            Operation::JournalEnd => "journal_end",
            Operation::JournalRead => "journal_read",
            Operation::RaiseFence => "raise_fence",
            Operation::ClaimTerm => "claim_term",
            Operation::Maintain => "maintain",
            Operation::FindStrays => "find_strays",
            Operation::MendStray => "mend_stray",
            Operation::Forget => "forget",
        }
    }
}

impl Meter {
    pub fn counts(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|index| self.buckets[index].load(Ordering::Relaxed))
    }

    pub fn sum_s(&self) -> f64 {
        Duration::from_micros(self.sum_us.load(Ordering::Relaxed)).as_secs_f64()
    }

    fn record(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_US.partition_point(|bound| u64::from(*bound) < us);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }
}

impl Metered {
    pub fn new(engine: Arc<dyn Engine>) -> Metered {
        Metered {
            engine,
            embedded: None,
            meters: Default::default(),
        }
    }

    pub fn embedded(engine: Arc<EmbeddedEngine>) -> Metered {
        Metered {
            embedded: Some(engine.clone()),
            ..Metered::new(engine)
        }
    }

    /// Only an engine in this process counts its commits and journal entries.
    pub fn as_embedded(&self) -> Option<&EmbeddedEngine> {
        self.embedded.as_deref()
    }

    pub fn meters(&self) -> impl Iterator<Item = (Operation, &Meter)> {
        Operation::ALL.into_iter().zip(&self.meters)
    }

    async fn timed<T>(
        &self,
        operation: Operation,
        work: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        let began = Instant::now();
        let answer = work.await;
        self.count(operation, began, &answer);
        answer
    }

    fn count<T>(&self, operation: Operation, began: Instant, answer: &Result<T, EngineError>) {
        let meter = &self.meters[operation as usize];
        meter.record(began.elapsed());
        if answer.is_err() {
            meter.failures.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[async_trait]
impl Engine for Metered {
    fn capabilities(&self) -> &Capabilities {
        self.engine.capabilities()
    }

    async fn apply(&self, change: Change, context: WriteContext) -> Result<Outcome, EngineError> {
        let work = self.engine.apply(change, context);
        self.timed(Operation::Apply, work).await
    }

    async fn apply_together(
        &self,
        changes: Vec<Change>,
        context: WriteContext,
    ) -> Result<Outcome, EngineError> {
        let work = self.engine.apply_together(changes, context);
        self.timed(Operation::ApplyTogether, work).await
    }

    async fn get(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Option<Record>, EngineError> {
        let work = self.engine.get(key, context);
        self.timed(Operation::Get, work).await
    }

    fn get_at_once(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Option<Result<Option<SharedRecord>, EngineError>> {
        let began = Instant::now();
        let answer = self.engine.get_at_once(key, context)?;
        self.count(Operation::Get, began, &answer);
        Some(answer)
    }

    async fn query(&self, query: &Query, context: ReadContext) -> Result<Page, EngineError> {
        let work = self.engine.query(query, context);
        self.timed(Operation::Query, work).await
    }

    async fn get_aged(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Aged<Option<Record>>, EngineError> {
        let work = self.engine.get_aged(key, context);
        self.timed(Operation::Get, work).await
    }

    async fn query_aged(
        &self,
        query: &Query,
        context: ReadContext,
    ) -> Result<Aged<Page>, EngineError> {
        let work = self.engine.query_aged(query, context);
        self.timed(Operation::Query, work).await
    }

    async fn scan(&self, scan: &Scan) -> Result<ScanPage, EngineError> {
        self.timed(Operation::Scan, self.engine.scan(scan)).await
    }

    async fn scan_each(
        &self,
        scan: &Scan,
        look: Look,
    ) -> Result<Option<ScanPosition>, EngineError> {
        let work = self.engine.scan_each(scan, look);
        self.timed(Operation::Scan, work).await
    }

    async fn journal_end(&self) -> Result<Position, EngineError> {
        let work = self.engine.journal_end();
        self.timed(Operation::JournalEnd, work).await
    }

    async fn journal_read(
        &self,
        from: &Position,
        limit: usize,
    ) -> Result<JournalPage, EngineError> {
        let work = self.engine.journal_read(from, limit);
        self.timed(Operation::JournalRead, work).await
    }

    async fn raise_fence(
        &self,
        fence: Fence,
        term: MoverTerm,
        now: Timestamp,
    ) -> Result<Seal, EngineError> {
        let work = self.engine.raise_fence(fence, term, now);
        self.timed(Operation::RaiseFence, work).await
    }

    async fn claim_term(&self, term: MoverTerm) -> Result<(), EngineError> {
        let work = self.engine.claim_term(term);
        self.timed(Operation::ClaimTerm, work).await
    }

    fn refuses_writes(&self) -> Option<EngineError> {
        self.engine.refuses_writes()
    }

    async fn maintain(&self, work: Maintenance) -> Result<Maintained, EngineError> {
        let work = self.engine.maintain(work);
        self.timed(Operation::Maintain, work).await
    }

    async fn restore(&self, image: Record, context: WriteContext) -> Result<Outcome, EngineError> {
        let work = self.engine.restore(image, context);
        self.timed(Operation::Apply, work).await
    }

    async fn condemn(
        &self,
        keys: &[RecordKey],
        context: WriteContext,
    ) -> Result<Vec<Condemned>, EngineError> {
        let work = self.engine.condemn(keys, context);
        self.timed(Operation::Forget, work).await
    }

    async fn forget(
        &self,
        condemned: &[Condemned],
        context: WriteContext,
    ) -> Result<u64, EngineError> {
        let work = self.engine.forget(condemned, context);
        self.timed(Operation::Forget, work).await
    }

    async fn find_strays(&self, search: &StraySearch) -> Result<StrayPage, EngineError> {
        let work = self.engine.find_strays(search);
        self.timed(Operation::FindStrays, work).await
    }

    async fn is_stray(&self, stray: &Stray, now: Timestamp) -> Result<bool, EngineError> {
        let work = self.engine.is_stray(stray, now);
        self.timed(Operation::FindStrays, work).await
    }

    async fn mend_stray(&self, stray: &Stray, now: Timestamp) -> Result<StrayEnd, EngineError> {
        let work = self.engine.mend_stray(stray, now);
        self.timed(Operation::MendStray, work).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_counts_in_the_bucket_that_reaches_up_to_it() {
        let meter = Meter::default();
        for us in [0, 10, 11, 20_000_000] {
            meter.record(Duration::from_micros(us));
        }
        let counts = meter.counts();
        assert_eq!((counts[0], counts[1], counts[BUCKETS - 1]), (2, 1, 1));
        assert_eq!(counts.iter().sum::<u64>(), 4);
        assert!((meter.sum_s() - 20.000_021).abs() < 1e-9);
    }
}
