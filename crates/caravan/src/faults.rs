//! Fault points: a process that ends itself, as `kill -9` would, at a chosen write.
//!
//! ```text
//!   CARAVAN_FAULT_POINT=after:orders:create:1     the first order is pending, and nobody was told
//!   CARAVAN_FAULT_POINT=before:products:claim:2   the second claim is never sent
//!   CARAVAN_FAULT_ALLOWED=this-process-may-die    without it, the point is refused at the start
//! ```
//!
//! For tests that stop a saga between any two of its steps, on the program that ships.
//! Read from the environment alone: no settings file can hold it, and the second variable
//! says in words what is asked for. Without a point no engine is wrapped.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, anyhow, ensure};
use async_trait::async_trait;
use engine_api::{
    Aged, Capabilities, Change, Engine, EngineError, Fence, JournalPage, Maintained, Maintenance,
    MoverTerm, Outcome, Page, Position, Query, ReadContext, Record, RecordKey, Scan, ScanPage,
    Seal, SharedRecord, StockAction, Stray, StrayEnd, StrayPage, StraySearch, Timestamp,
    WriteContext,
};
use layout::Collection;
use router::ShardName;
use rustix::process::{Signal, getpid, kill_process};

const POINT_VARIABLE: &str = "CARAVAN_FAULT_POINT";
const ALLOWED_VARIABLE: &str = "CARAVAN_FAULT_ALLOWED";
const ALLOWED: &str = "this-process-may-die";

/// The engines, wrapped if the environment asks for a fault.
pub fn asked(
    engines: BTreeMap<ShardName, Arc<dyn Engine>>,
) -> Result<BTreeMap<ShardName, Arc<dyn Engine>>> {
    let variable = |name| std::env::var(name).ok();
    let Some(point) = point(variable(POINT_VARIABLE), variable(ALLOWED_VARIABLE))? else {
        return Ok(engines);
    };
    tracing::warn!(%point, "THIS PROCESS WILL KILL ITSELF at the write that {POINT_VARIABLE} names");
    let met = Arc::new(AtomicU64::new(0));
    let faulty = |(name, engine)| {
        let (point, met) = (point.clone(), met.clone());
        let faulty: Arc<dyn Engine> = Arc::new(Faulty { engine, point, met });
        (name, faulty)
    };
    Ok(engines.into_iter().map(faulty).collect())
}

fn point(point: Option<String>, allowed: Option<String>) -> Result<Option<FaultPoint>> {
    let Some(text) = point else {
        return Ok(None);
    };
    ensure!(
        allowed.as_deref() == Some(ALLOWED),
        "{POINT_VARIABLE}={text} ends this process in the middle of a write: unset it, or set {ALLOWED_VARIABLE}={ALLOWED} where that is wanted"
    );
    text.parse()
        .map(Some)
        .map_err(|why| anyhow!("{POINT_VARIABLE}={text} {why}: write it as after:orders:create:1"))
}

/// Before or after which write the process ends.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FaultPoint {
    side: Side,
    collection: Collection,
    write: &'static str,
    /// The how-many-th of its kind.
    nth: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

const WRITES: [&str; 11] = [
    "create", "change", "patch", "remove", "receive", "take", "claim", "give", "return", "sell",
    "unsell",
];

impl FromStr for FaultPoint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<FaultPoint, &'static str> {
        let words: Vec<&str> = text.split(':').collect();
        let [side, collection, write, nth] = words[..] else {
            return Err("has not four words");
        };
        let mut collections = Collection::ALL.into_iter();
        Ok(FaultPoint {
            side: match side {
                "before" => Side::Before,
                "after" => Side::After,
                _ => return Err("begins neither with before nor with after"),
            },
            collection: collections
                .find(|known| known.to_string() == collection)
                .ok_or("names no collection")?,
            write: WRITES
                .into_iter()
                .find(|known| *known == write)
                .ok_or("names no kind of write")?,
            nth: nth.parse().map_err(|_| "does not end with a number")?,
        })
    }
}

impl std::fmt::Display for FaultPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let side = match self.side {
            Side::Before => "before",
            Side::After => "after",
        };
        write!(f, "{side}:{}:{}:{}", self.collection, self.write, self.nth)
    }
}

/// What a write is to its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Passes,
    Ends,
}

/// An engine whose process ends at a point.
#[derive(Debug)]
struct Faulty {
    engine: Arc<dyn Engine>,
    point: FaultPoint,
    /// Writes of the point's kind so far, on all shards.
    met: Arc<AtomicU64>,
}

impl Faulty {
    async fn written(
        &self,
        fate: Fate,
        write: impl Future<Output = Result<Outcome, EngineError>>,
    ) -> Result<Outcome, EngineError> {
        match (fate, self.point.side) {
            (Fate::Passes, _) => write.await,
            (Fate::Ends, Side::Before) => self.end(),
            (Fate::Ends, Side::After) => {
                // Whatever the answer is, nobody hears of it.
                let _ = write.await;
                self.end()
            }
        }
    }

    /// Counts the write if it is of the point's kind.
    fn fate_of(&self, changes: &[Change]) -> Fate {
        let point = &self.point;
        let is_met = changes.iter().any(|change| {
            change.key().collection == point.collection && name(change) == point.write
        });
        match is_met && self.met.fetch_add(1, Ordering::SeqCst) + 1 == point.nth {
            true => Fate::Ends,
            false => Fate::Passes,
        }
    }

    /// As `kill -9` from outside: no destructor, no farewell.
    fn end(&self) -> ! {
        eprintln!("fault point {}: this process kills itself", self.point);
        // Nothing can refuse a process its own end; if something does, abort is next.
        let _ = kill_process(getpid(), Signal::KILL);
        std::process::abort()
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
impl Engine for Faulty {
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

    async fn maintain(&self, work: Maintenance) -> Result<Maintained, EngineError> {
        self.engine.maintain(work).await
    }

    async fn restore(&self, image: Record, context: WriteContext) -> Result<Outcome, EngineError> {
        self.engine.restore(image, context).await
    }

    async fn find_strays(&self, search: &StraySearch) -> Result<StrayPage, EngineError> {
        self.engine.find_strays(search).await
    }

    async fn is_stray(&self, stray: &Stray, now: Timestamp) -> Result<bool, EngineError> {
        self.engine.is_stray(stray, now).await
    }

    async fn mend_stray(&self, stray: &Stray, now: Timestamp) -> Result<StrayEnd, EngineError> {
        self.engine.mend_stray(stray, now).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_needs_a_second_word_and_four_of_its_own() {
        let asked = |text: &str, allowed: Option<&str>| {
            point(Some(text.to_owned()), allowed.map(str::to_owned))
        };
        assert_eq!(point(None, Some(ALLOWED.to_owned())).unwrap(), None);
        for allowed in [None, Some("yes")] {
            let refusal = asked("after:orders:create:1", allowed).unwrap_err();
            assert!(refusal.to_string().contains(ALLOWED), "{refusal}");
        }
        let text = "before:products:claim:2";
        let point = asked(text, Some(ALLOWED)).unwrap().unwrap();
        assert_eq!((point.nth, point.to_string().as_str()), (2, text));
        for wrong in [
            "",
            "after:orders",
            "at:orders:create:1",
            "after:x:create:1",
            "after:orders:x:1",
            "after:orders:create:x",
        ] {
            let refusal = asked(wrong, Some(ALLOWED)).unwrap_err().to_string();
            assert!(refusal.contains("after:orders:create:1"), "{refusal}");
        }
    }
}
