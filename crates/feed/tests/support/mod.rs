//! Two memory engines and a control store that can be stopped at any call.

#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use engine_api::memory::MemoryEngine;
use engine_api::{
    Authority, Capabilities, Change, ControlStore, ControlValue, Engine, EngineError, Fence,
    Freshness, Generation, JournalPage, Maintained, Maintenance, MoverTerm, Outcome, Page,
    PartChange, PartKey, Position, Query, ReadContext, Record, RecordId, RecordKey, Revision, Scan,
    ScanPage, Seal, SetOutcome, Timestamp, World, WriteContext, Writer, expiry_fields,
};
use feed::{Cargo, Feed, FeedConfig, Limits, Pass};
use layout::{Collection, Field, Fields, Scope, Value};

pub const FEED: &str = "copy";

/// Time that passes only when everybody waits.
#[derive(Debug)]
pub struct StillWorld {
    began: tokio::time::Instant,
    drawn: AtomicU64,
}

impl World for StillWorld {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.elapsed().as_micros()).unwrap();
        Timestamp::from_unix_micros(1_700_000_000_000_000 + passed)
    }

    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    fn random(&self) -> u64 {
        self.drawn.fetch_add(7919, Ordering::Relaxed)
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// When a process stops for ever: at the call with this number, before or after
/// it has had its effect.
#[derive(Debug)]
pub struct Life {
    calls_left: AtomicI64,
    stop: Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Before,
    After,
}

impl Life {
    pub fn endless() -> Arc<Life> {
        Life::of(i64::MAX, Stop::Before)
    }

    pub fn of(calls: i64, stop: Stop) -> Arc<Life> {
        Arc::new(Life {
            calls_left: AtomicI64::new(calls),
            stop,
        })
    }

    pub fn is_over(&self) -> bool {
        self.calls_left.load(Ordering::SeqCst) < 0
    }

    async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        let left = self.calls_left.fetch_sub(1, Ordering::SeqCst);
        if left > 0 {
            return call.await;
        }
        if left == 0 && self.stop == Stop::After {
            call.await;
        }
        pending().await
    }
}

/// What a side does besides what it should.
#[derive(Debug, Default)]
pub struct Quirks {
    /// Reads of these keys show what stood there before.
    pub hidden: Mutex<BTreeMap<RecordKey, Option<Record>>>,
    /// Reads that may lag show nothing at all.
    pub lags: Mutex<bool>,
    /// Images that were put.
    pub puts: AtomicU64,
    /// Images that were refused because their term was lost.
    pub refused: AtomicU64,
    /// Answers to writes that get lost.
    pub lose_answers: AtomicI64,
    /// The next image waits here until it is let through.
    pub gate: Mutex<Option<Arc<tokio::sync::Semaphore>>>,
}

#[derive(Debug)]
pub struct Side {
    pub memory: Arc<MemoryEngine>,
    pub quirks: Arc<Quirks>,
    life: Arc<Life>,
}

#[async_trait]
impl Engine for Side {
    fn capabilities(&self) -> &Capabilities {
        self.memory.capabilities()
    }

    async fn apply(&self, change: Change, context: WriteContext) -> Result<Outcome, EngineError> {
        let gate = self.quirks.gate.lock().unwrap().take();
        if let Some(gate) = gate {
            gate.acquire().await.unwrap().forget();
        }
        self.quirks.puts.fetch_add(1, Ordering::SeqCst);
        let answer = self.life.call(self.memory.apply(change, context)).await;
        if matches!(answer, Err(EngineError::TermLost { .. })) {
            self.quirks.refused.fetch_add(1, Ordering::SeqCst);
        }
        if self.quirks.lose_answers.fetch_sub(1, Ordering::SeqCst) > 0 {
            let reason = "the cable".to_owned();
            return Err(EngineError::OutcomeUnknown { reason });
        }
        answer
    }

    async fn apply_together(
        &self,
        changes: Vec<Change>,
        context: WriteContext,
    ) -> Result<Outcome, EngineError> {
        self.memory.apply_together(changes, context).await
    }

    async fn get(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Option<Record>, EngineError> {
        if let Some(shown) = self.quirks.hidden.lock().unwrap().get(key) {
            return Ok(shown.clone());
        }
        let may_lag = matches!(context.freshness, Freshness::MayLag { .. });
        if *self.quirks.lags.lock().unwrap() && may_lag {
            return Ok(None);
        }
        self.life.call(self.memory.get(key, context)).await
    }

    async fn query(&self, query: &Query, context: ReadContext) -> Result<Page, EngineError> {
        self.memory.query(query, context).await
    }

    async fn scan(&self, scan: &Scan) -> Result<ScanPage, EngineError> {
        self.life.call(self.memory.scan(scan)).await
    }

    async fn journal_end(&self) -> Result<Position, EngineError> {
        self.life.call(self.memory.journal_end()).await
    }

    async fn journal_read(
        &self,
        from: &Position,
        limit: usize,
    ) -> Result<JournalPage, EngineError> {
        self.life.call(self.memory.journal_read(from, limit)).await
    }

    async fn raise_fence(
        &self,
        fence: Fence,
        term: MoverTerm,
        now: Timestamp,
    ) -> Result<Seal, EngineError> {
        self.memory.raise_fence(fence, term, now).await
    }

    async fn claim_term(&self, term: MoverTerm) -> Result<(), EngineError> {
        self.life.call(self.memory.claim_term(term)).await
    }

    async fn maintain(&self, work: Maintenance) -> Result<Maintained, EngineError> {
        self.memory.maintain(work).await
    }
}

/// The control store as one process reaches it.
#[derive(Debug)]
struct Control {
    memory: Arc<MemoryEngine>,
    life: Arc<Life>,
}

#[async_trait]
impl ControlStore for Control {
    async fn control_get(&self, name: &str) -> Result<Option<ControlValue>, EngineError> {
        self.life.call(self.memory.control_get(name)).await
    }

    async fn compare_and_set(
        &self,
        name: &str,
        expected: Option<u64>,
        bytes: Vec<u8>,
    ) -> Result<SetOutcome, EngineError> {
        let setting = self.memory.compare_and_set(name, expected, bytes);
        self.life.call(setting).await
    }
}

/// All of one collection.
#[derive(Debug)]
pub struct AllOf(pub Collection);

#[async_trait]
impl Cargo for AllOf {
    fn collection(&self) -> Collection {
        self.0
    }

    fn load(&self, image: Record) -> Option<Record> {
        Some(image)
    }
}

pub struct Stage {
    pub source: Arc<MemoryEngine>,
    pub target: Arc<MemoryEngine>,
    pub control: Arc<MemoryEngine>,
    pub source_quirks: Arc<Quirks>,
    pub target_quirks: Arc<Quirks>,
    pub world: Arc<StillWorld>,
    pub limits: Limits,
    writes: AtomicU64,
}

impl Stage {
    pub fn new() -> Stage {
        Stage {
            source: Arc::default(),
            target: Arc::default(),
            control: Arc::default(),
            source_quirks: Arc::default(),
            target_quirks: Arc::default(),
            world: Arc::new(StillWorld {
                began: tokio::time::Instant::now(),
                drawn: AtomicU64::new(1),
            }),
            limits: Limits {
                page_entries_max: 4,
                scan_records_max: 2,
                records_at_once_max: 2,
                ..Limits::default()
            },
            writes: AtomicU64::new(0),
        }
    }

    pub fn feed(&self) -> Feed {
        self.feed_living(Life::endless())
    }

    /// A feed whose process stops when its life is over.
    pub fn feed_living(&self, life: Arc<Life>) -> Feed {
        self.feed_of(Arc::new(AllOf(Collection::Carts)), life)
    }

    pub fn feed_of(&self, cargo: Arc<dyn Cargo>, life: Arc<Life>) -> Feed {
        let side = |memory: &Arc<MemoryEngine>, quirks: &Arc<Quirks>| {
            Arc::new(Side {
                memory: memory.clone(),
                quirks: quirks.clone(),
                life: life.clone(),
            })
        };
        Feed::new(FeedConfig {
            name: FEED.to_owned(),
            source: side(&self.source, &self.source_quirks),
            target: side(&self.target, &self.target_quirks),
            cargo,
            control: Arc::new(Control {
                memory: self.control.clone(),
                life: life.clone(),
            }),
            world: self.world.clone(),
            limits: self.limits.clone(),
        })
        .unwrap()
    }

    fn context(&self) -> WriteContext {
        let now = self.world.now();
        // Above everything written before, though time stands still.
        let number = i64::try_from(self.writes.fetch_add(1, Ordering::SeqCst)).unwrap();
        let at = Timestamp::from_unix_micros(now.unix_micros() + 128 * number);
        WriteContext {
            authority: Authority::Router {
                generation: Generation(1),
            },
            now,
            revision: Revision::at(at, Writer::numbered(1)),
        }
    }

    pub async fn change(&self, change: Change) -> Revision {
        match self.source.apply(change, self.context()).await.unwrap() {
            Outcome::Done { revision } => revision,
            outcome => panic!("{outcome:?}"),
        }
    }

    pub async fn create(&self, id: &str, status: &str) -> Revision {
        self.change(Change::CreateIfAbsent {
            key: cart(id),
            header: header(id, status),
            parts: vec![(PartKey::line("p-1"), line(1))],
        })
        .await
    }

    pub async fn set_line(&self, id: &str, product: &str, quantity: i64) -> Revision {
        self.change(Change::Patch {
            key: cart(id),
            guard: Default::default(),
            parts: vec![(PartKey::line(product), PartChange::Set(line(quantity)))],
        })
        .await
    }

    pub async fn remove_line(&self, id: &str, product: &str) -> Revision {
        self.change(Change::Patch {
            key: cart(id),
            guard: Default::default(),
            parts: vec![(PartKey::line(product), PartChange::Remove)],
        })
        .await
    }

    pub async fn expire(&self, id: &str, after: Duration) {
        let micros = self.world.now().unix_micros() + after.as_micros() as i64;
        let expiry = expiry_fields(Timestamp::from_unix_micros(micros));
        self.change(Change::Patch {
            key: cart(id),
            guard: Default::default(),
            parts: vec![(PartKey::expiry(), PartChange::Set(expiry))],
        })
        .await;
    }

    pub async fn remove(&self, id: &str) -> Revision {
        let expected = self.source_image(id).await.unwrap().header.revision;
        self.change(Change::Remove {
            key: cart(id),
            expected,
        })
        .await
    }

    pub async fn source_image(&self, id: &str) -> Option<Record> {
        image(&self.source, id).await
    }

    pub async fn target_image(&self, id: &str) -> Option<Record> {
        image(&self.target, id).await
    }

    /// The target holds exactly what the source holds, marks included.
    pub async fn assert_same(&self, story: &str) {
        let (source, target) = (all(&self.source).await, all(&self.target).await);
        assert_eq!(source, target, "{story}");
    }

    pub fn puts(&self) -> u64 {
        self.target_quirks.puts.load(Ordering::SeqCst)
    }

    /// What `maintain` forgets when nothing is young enough to be kept.
    pub async fn forget(&self, work: impl FnOnce(&mut Maintenance)) {
        let past = Timestamp::from_unix_micros(0);
        let mut maintenance = Maintenance {
            now: self.world.now(),
            marks_before: past,
            journal_before: past,
            items_max: 10_000,
        };
        work(&mut maintenance);
        self.source.maintain(maintenance).await.unwrap();
    }

    pub async fn trim_journal(&self) {
        self.forget(|work| work.journal_before = end_of_time())
            .await;
    }
}

pub fn end_of_time() -> Timestamp {
    Timestamp::from_unix_micros(i64::MAX)
}

/// Passes until everything is done.
pub async fn catch_up(feed: &mut Feed) {
    for _ in 0..1_000 {
        match feed.pass().await.unwrap() {
            Pass::CaughtUp => return,
            Pass::Behind => {}
            Pass::Watching | Pass::Resting => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
    panic!("the feed finds no end");
}

/// Passes until everything is done or the process has stopped for ever.
pub async fn catch_up_or_die(mut feed: Feed) {
    let until_stuck = Duration::from_secs(3_600);
    let _ = tokio::time::timeout(until_stuck, catch_up(&mut feed)).await;
}

pub fn cart(id: &str) -> RecordKey {
    RecordKey::by_id(Collection::Carts, RecordId::new(id).unwrap())
}

pub fn header(id: &str, status: &str) -> Fields {
    Fields::new()
        .with(Field::CartId, Value::text(id))
        .with(Field::Status, Value::text(status))
        .with(
            Field::CreatedAt,
            Value::Timestamp(Timestamp::from_unix_micros(1)),
        )
        .with(Field::Ordinal, Value::Int(1))
}

pub fn line(quantity: i64) -> Fields {
    Fields::new().with(Field::Quantity, Value::Int(quantity))
}

pub async fn image(engine: &MemoryEngine, id: &str) -> Option<Record> {
    let context = ReadContext {
        now: Timestamp::from_unix_micros(0),
        freshness: Freshness::Latest,
    };
    engine.get(&cart(id), context).await.unwrap()
}

async fn all(engine: &MemoryEngine) -> Vec<Record> {
    let scan = Scan {
        collection: Collection::Carts,
        scope: Scope::All,
        after: None,
        until: None,
        limit: engine_api::PAGE_RECORDS_MAX,
    };
    engine.scan(&scan).await.unwrap().images
}
