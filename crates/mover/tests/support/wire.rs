//! The way from one process to its engines and its control store. It can be cut at any
//! call, before or after the call has had its effect, and things can happen on it.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use engine_api::memory::MemoryEngine;
use engine_api::{
    Capabilities, Change, Condemned, ControlStore, ControlValue, Engine, EngineError, Fence,
    FenceKind, JournalEntry, JournalEvent, JournalPage, Maintained, Maintenance, MoverTerm,
    Outcome, Page, Position, Query, ReadContext, Record, RecordKey, Scan, ScanPage, Seal,
    SetOutcome, Stray, StrayEnd, StrayPage, StraySearch, Terms, Timestamp, Together, WriteContext,
};
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Before,
    After,
}

type Happening = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

pub struct Wire {
    calls_left: AtomicI64,
    stop: Stop,
    /// Every so many calls an answer gets lost, after the call has had its effect; 0: never.
    lose_every: AtomicI64,
    calls: AtomicI64,
    /// Every call takes so long.
    slow_ms: AtomicI64,
    /// Every put takes so long, and whatever is read meanwhile waits as long: there is one connection.
    narrow_ms: AtomicI64,
    puts_under_way: AtomicI64,
    /// What the next read of the source's journal shows at its end, and never happened.
    phantom: Mutex<Option<JournalEvent>>,
    /// What happens before the next call of this name, once.
    happenings: Mutex<BTreeMap<String, Vec<Happening>>>,
    /// Derived rows that do not follow their records, by the shard that they are on.
    strays: Mutex<BTreeMap<&'static str, Stray>>,
    /// Engines that answer nothing any more.
    away: Mutex<BTreeSet<&'static str>>,
    /// Engines whose disk is full.
    full: Mutex<BTreeSet<&'static str>>,
    /// Written while the whole process stands still.
    still: Arc<RwLock<()>>,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

impl Wire {
    pub fn endless() -> Arc<Wire> {
        Wire::of(i64::MAX, Stop::Before)
    }

    pub fn of(calls: i64, stop: Stop) -> Arc<Wire> {
        Arc::new(Wire {
            calls_left: AtomicI64::new(calls),
            stop,
            lose_every: AtomicI64::new(0),
            calls: AtomicI64::new(0),
            slow_ms: AtomicI64::new(0),
            narrow_ms: AtomicI64::new(0),
            puts_under_way: AtomicI64::new(0),
            phantom: Mutex::default(),
            happenings: Mutex::default(),
            strays: Mutex::default(),
            away: Mutex::default(),
            full: Mutex::default(),
            still: Arc::default(),
        })
    }

    /// Until the guard is dropped no call goes through: what SIGSTOP does to a process.
    pub async fn stand_still(&self) -> OwnedRwLockWriteGuard<()> {
        self.still.clone().write_owned().await
    }

    /// From now on its server is gone.
    pub fn lose(&self, shard: &'static str) {
        self.away.lock().unwrap().insert(shard);
    }

    pub fn fill(&self, shard: &'static str) {
        self.full.lock().unwrap().insert(shard);
    }

    pub fn make_room(&self, shard: &'static str) {
        self.full.lock().unwrap().remove(shard);
    }

    /// From now on this row does not follow its record; one on each shard.
    pub fn stray_on(&self, shard: &'static str, stray: Stray) {
        self.strays.lock().unwrap().insert(shard, stray);
    }

    pub fn has_strays(&self) -> bool {
        !self.strays.lock().unwrap().is_empty()
    }

    /// They all follow again.
    pub fn rows_follow(&self) {
        self.strays.lock().unwrap().clear();
    }

    pub fn is_cut(&self) -> bool {
        self.calls_left.load(Ordering::SeqCst) < 0
    }

    /// From now on so many calls go through.
    pub fn cut_after(&self, calls: i64) {
        self.calls_left.store(calls, Ordering::SeqCst);
    }

    pub fn slow_down(&self, ms: i64) {
        self.slow_ms.store(ms, Ordering::SeqCst);
    }

    pub fn narrow(&self, ms: i64) {
        self.narrow_ms.store(ms, Ordering::SeqCst);
    }

    async fn pass_narrow(&self) {
        let ms = u64::try_from(self.narrow_ms.load(Ordering::SeqCst)).unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
    }

    pub fn lose_every(&self, calls: i64) {
        self.lose_every.store(calls, Ordering::SeqCst);
    }

    pub fn announce(&self, phantom: JournalEvent) {
        *self.phantom.lock().unwrap() = Some(phantom);
    }

    /// A read whose answer is lost may be asked again; a write may have happened.
    async fn lossy<T>(
        &self,
        name: &str,
        call: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        let slow_ms = u64::try_from(self.slow_ms.load(Ordering::SeqCst)).unwrap();
        if slow_ms > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(slow_ms)).await;
        }
        let answer = self.call(name, call).await;
        let every = self.lose_every.load(Ordering::SeqCst);
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        if every > 0 && number % every == 0 {
            let reason = "the cable".to_owned();
            return Err(EngineError::OutcomeUnknown { reason });
        }
        answer
    }

    /// Before the next call of this name, such as `source.raise_fence` or `control.set.map`.
    pub fn before<F>(&self, call: &str, happening: impl FnOnce() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut happenings = self.happenings.lock().unwrap();
        let happening: Happening = Box::new(move || Box::pin(happening()));
        happenings
            .entry(call.to_owned())
            .or_default()
            .push(happening);
    }

    async fn call<T>(&self, name: &str, call: impl Future<Output = T>) -> T {
        let happening = {
            let mut happenings = self.happenings.lock().unwrap();
            let waiting = happenings.get_mut(name);
            waiting.and_then(|waiting| (!waiting.is_empty()).then(|| waiting.remove(0)))
        };
        if let Some(happening) = happening {
            happening().await;
        }
        drop(self.still.read().await);
        let left = self.calls_left.fetch_sub(1, Ordering::SeqCst);
        if left > 0 {
            return call.await;
        }
        if left == 0 && self.stop == Stop::After {
            call.await;
        }
        pending().await
    }

    pub fn side(
        self: &Arc<Wire>,
        name: &'static str,
        memory: &Arc<MemoryEngine>,
        fence: FenceKind,
    ) -> Arc<dyn Engine> {
        let mut capabilities = memory.capabilities().clone();
        capabilities.fence = fence;
        if fence == FenceKind::ByLease {
            capabilities.together = Together::Unsupported;
            capabilities.terms = Terms::Unsupported;
        }
        Arc::new(Side {
            name,
            memory: memory.clone(),
            capabilities,
            wire: self.clone(),
        })
    }

    pub fn control(self: &Arc<Wire>, memory: &Arc<MemoryEngine>) -> Arc<dyn ControlStore> {
        Arc::new(Control {
            memory: memory.clone(),
            wire: self.clone(),
        })
    }
}

#[derive(Debug)]
struct Side {
    name: &'static str,
    memory: Arc<MemoryEngine>,
    capabilities: Capabilities,
    wire: Arc<Wire>,
}

impl Side {
    async fn call<T>(
        &self,
        call: &str,
        doing: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        if self.wire.away.lock().unwrap().contains(self.name) {
            let reason = "nobody answers".to_owned();
            return Err(EngineError::Unavailable { reason });
        }
        let name = format!("{}.{call}", self.name);
        self.wire.lossy(&name, doing).await
    }
}

#[async_trait]
impl Engine for Side {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn apply(&self, change: Change, context: WriteContext) -> Result<Outcome, EngineError> {
        self.wire.puts_under_way.fetch_add(1, Ordering::SeqCst);
        self.wire.pass_narrow().await;
        self.wire.puts_under_way.fetch_sub(1, Ordering::SeqCst);
        self.call("apply", self.memory.apply(change, context)).await
    }

    async fn apply_together(
        &self,
        changes: Vec<Change>,
        context: WriteContext,
    ) -> Result<Outcome, EngineError> {
        let applying = self.memory.apply_together(changes, context);
        self.call("apply", applying).await
    }

    async fn get(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Option<Record>, EngineError> {
        if self.wire.puts_under_way.load(Ordering::SeqCst) > 0 {
            self.wire.pass_narrow().await;
        }
        self.call("get", self.memory.get(key, context)).await
    }

    async fn query(&self, query: &Query, context: ReadContext) -> Result<Page, EngineError> {
        self.memory.query(query, context).await
    }

    async fn scan(&self, scan: &Scan) -> Result<ScanPage, EngineError> {
        self.call("scan", self.memory.scan(scan)).await
    }

    async fn journal_end(&self) -> Result<Position, EngineError> {
        self.call("journal_end", self.memory.journal_end()).await
    }

    async fn journal_read(
        &self,
        from: &Position,
        limit: usize,
    ) -> Result<JournalPage, EngineError> {
        let reading = self.memory.journal_read(from, limit);
        let mut page = self.call("journal_read", reading).await?;
        if self.name == "source"
            && let Some(event) = self.wire.phantom.lock().unwrap().take()
        {
            page.entries.push(JournalEntry {
                position: page.next.clone(),
                written_at: Timestamp::from_unix_micros(0),
                event,
            });
        }
        Ok(page)
    }

    async fn raise_fence(
        &self,
        fence: Fence,
        term: MoverTerm,
        now: Timestamp,
    ) -> Result<Seal, EngineError> {
        assert_eq!(self.capabilities.fence, FenceKind::InStore);
        let raising = self.memory.raise_fence(fence, term, now);
        self.call("raise_fence", raising).await
    }

    async fn claim_term(&self, term: MoverTerm) -> Result<(), EngineError> {
        assert_eq!(self.capabilities.terms, Terms::InStore);
        self.call("claim_term", self.memory.claim_term(term)).await
    }

    fn refuses_writes(&self) -> Option<EngineError> {
        let full = self.wire.full.lock().unwrap().contains(self.name);
        full.then(|| EngineError::StorageFull {
            reason: "0 bytes free".to_owned(),
        })
    }

    async fn maintain(&self, work: Maintenance) -> Result<Maintained, EngineError> {
        self.memory.maintain(work).await
    }

    async fn restore(&self, image: Record, context: WriteContext) -> Result<Outcome, EngineError> {
        self.call("restore", self.memory.restore(image, context))
            .await
    }

    async fn condemn(
        &self,
        keys: &[RecordKey],
        context: WriteContext,
    ) -> Result<Vec<Condemned>, EngineError> {
        self.call("condemn", self.memory.condemn(keys, context))
            .await
    }

    async fn forget(
        &self,
        condemned: &[Condemned],
        context: WriteContext,
    ) -> Result<u64, EngineError> {
        self.call("forget", self.memory.forget(condemned, context))
            .await
    }

    async fn find_strays(&self, _: &StraySearch) -> Result<StrayPage, EngineError> {
        let strays = self.wire.strays.lock().unwrap();
        Ok(StrayPage {
            looked_at: 1,
            strays: strays.get(self.name).cloned().into_iter().collect(),
            next: None,
        })
    }

    async fn is_stray(&self, stray: &Stray, _: Timestamp) -> Result<bool, EngineError> {
        let strays = self.wire.strays.lock().unwrap();
        Ok(strays.get(self.name) == Some(stray))
    }

    async fn mend_stray(&self, stray: &Stray, _: Timestamp) -> Result<StrayEnd, EngineError> {
        let mut strays = self.wire.strays.lock().unwrap();
        if strays.get(self.name) != Some(stray) {
            return Ok(StrayEnd::Follows);
        }
        strays.remove(self.name);
        Ok(StrayEnd::Mended)
    }
}

#[derive(Debug)]
struct Control {
    memory: Arc<MemoryEngine>,
    wire: Arc<Wire>,
}

#[async_trait]
impl ControlStore for Control {
    async fn control_get(&self, name: &str) -> Result<Option<ControlValue>, EngineError> {
        let call = format!("control.get.{name}");
        self.wire.lossy(&call, self.memory.control_get(name)).await
    }

    async fn compare_and_set(
        &self,
        name: &str,
        expected: Option<u64>,
        bytes: Vec<u8>,
    ) -> Result<SetOutcome, EngineError> {
        let call = format!("control.set.{name}");
        let setting = self.memory.compare_and_set(name, expected, bytes);
        self.wire.lossy(&call, setting).await
    }
}
