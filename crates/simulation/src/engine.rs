//! A memory engine behind a link, as if it were a server elsewhere.
//!
//! What reaches the server is recorded with the records before and after. The
//! memory engine never waits, so that looking, applying and looking again is
//! one instant of the simulated world.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use engine_api::memory::MemoryEngine;
use engine_api::{
    Capabilities, Change, Condemned, Engine, EngineError, Fence, FenceKind, Freshness, JournalPage,
    Maintained, Maintenance, MoverTerm, Outcome, Page, Position, Query, ReadContext, Record,
    RecordKey, Scan, ScanPage, Seal, Timestamp, Together, WriteContext,
};
use router::ShardName;

use crate::link::{Call, Link};
use crate::recording::{Applied, Claimed, Raised, Recording, brief};

#[derive(Debug)]
pub struct FaultyEngine {
    capabilities: Capabilities,
    server: Arc<Server>,
    pub link: Link,
}

/// The server's side of the link.
#[derive(Debug)]
pub struct Server {
    pub shard: ShardName,
    pub memory: MemoryEngine,
    fence_kind: FenceKind,
    recording: Recording,
}

impl FaultyEngine {
    /// With [`FenceKind::ByLease`] the server knows no fences, as some do not.
    pub fn new(
        shard: ShardName,
        fence_kind: FenceKind,
        link: Link,
        recording: Recording,
    ) -> FaultyEngine {
        let memory = MemoryEngine::new();
        let mut capabilities = memory.capabilities().clone();
        capabilities.fence = fence_kind;
        if fence_kind == FenceKind::ByLease {
            // A straggler of two collections would land by half where one of
            // them has moved away.
            capabilities.together = Together::Unsupported;
            recording.with(|history| history.by_lease.insert(shard.clone()));
        }
        let server = Arc::new(Server {
            shard,
            memory,
            fence_kind,
            recording,
        });
        FaultyEngine {
            capabilities,
            server,
            link,
        }
    }

    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }
}

impl Server {
    pub fn fence_kind(&self) -> FenceKind {
        self.fence_kind
    }

    /// What stands here, seen by nobody's request.
    pub async fn peek(&self, key: &RecordKey) -> Option<Record> {
        let context = ReadContext {
            now: Timestamp::from_unix_micros(0),
            freshness: Freshness::Latest,
        };
        self.memory
            .get(key, context)
            .await
            .expect("the memory engine answers every read")
    }

    async fn apply(
        &self,
        changes: Vec<Change>,
        context: WriteContext,
    ) -> Result<Outcome, EngineError> {
        let mut before = Vec::with_capacity(changes.len());
        for change in &changes {
            before.push(self.peek(change.key()).await);
        }
        let answer = match changes.as_slice() {
            [change] => self.memory.apply(change.clone(), context.clone()).await,
            _ => {
                self.memory
                    .apply_together(changes.clone(), context.clone())
                    .await
            }
        };
        let mut images = Vec::with_capacity(changes.len());
        for (change, before) in changes.iter().zip(before) {
            images.push((before, self.peek(change.key()).await));
        }
        let what: Vec<String> = changes.iter().map(brief).collect();
        self.recording.with(|history| {
            let moment = history.note(format!(
                "{} meets {} as {}: {}",
                self.shard,
                what.join(" + "),
                context.revision,
                met(&answer)
            ));
            let shard = self.shard.clone();
            let answer = answer.clone();
            history.applied.push(Applied {
                moment,
                shard,
                changes,
                context,
                answer,
                images,
            });
        });
        answer
    }

    async fn raise_fence(
        &self,
        fence: Fence,
        term: MoverTerm,
        now: Timestamp,
    ) -> Result<Seal, EngineError> {
        let seal = match self.fence_kind {
            FenceKind::InStore => {
                self.memory
                    .raise_fence(fence.clone(), term.clone(), now)
                    .await?
            }
            FenceKind::ByLease => {
                self.memory.claim_term(term.clone()).await?;
                Seal {
                    position: self.memory.journal_end().await?,
                }
            }
        };
        self.recording.with(|history| {
            let moment = history.note(format!(
                "{} fenced at {} by {term}",
                self.shard, fence.generation
            ));
            history.fences.push(Raised {
                moment,
                shard: self.shard.clone(),
                fence,
                term,
            });
        });
        Ok(seal)
    }

    async fn forget(
        &self,
        condemned: &[Condemned],
        context: WriteContext,
    ) -> Result<u64, EngineError> {
        let gone = self.memory.forget(condemned, context).await?;
        if gone > 0 {
            self.recording.with(|history| {
                history.note(format!("{} forgets {gone} records", self.shard));
                history.moving.forgotten += gone;
            });
        }
        Ok(gone)
    }

    async fn claim_term(&self, term: MoverTerm) -> Result<(), EngineError> {
        self.memory.claim_term(term.clone()).await?;
        self.recording.with(|history| {
            let moment = history.note(format!("{} is claimed by {term}", self.shard));
            history.terms.push(Claimed {
                moment,
                shard: self.shard.clone(),
                term,
            });
        });
        Ok(())
    }
}

#[async_trait]
impl Engine for FaultyEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn apply(&self, change: Change, context: WriteContext) -> Result<Outcome, EngineError> {
        self.apply_together(vec![change], context).await
    }

    async fn apply_together(
        &self,
        changes: Vec<Change>,
        context: WriteContext,
    ) -> Result<Outcome, EngineError> {
        if changes.len() > 1 && self.capabilities.together == Together::Unsupported {
            let what = "apply changes together".to_owned();
            return Err(EngineError::Unsupported { what });
        }
        let server = Arc::clone(&self.server);
        // Only what was done comes again: an engine that let a copy of a
        // refused change run on would have answered too early (E2).
        let refused = Arc::new(AtomicBool::new(false));
        let serve = move || {
            let (server, refused) = (Arc::clone(&server), Arc::clone(&refused));
            let (changes, context) = (changes.clone(), context.clone());
            async move {
                if refused.load(Ordering::Relaxed) {
                    let reason = "refused before".to_owned();
                    return Err(EngineError::Unavailable { reason });
                }
                let answer = server.apply(changes, context).await;
                let done = answer.as_ref().is_ok_and(Outcome::is_done);
                refused.store(!done, Ordering::Relaxed);
                answer
            }
        };
        self.link.send(Call::Writes, serve).await
    }

    async fn get(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Option<Record>, EngineError> {
        let (server, key) = (Arc::clone(&self.server), key.clone());
        let serve = move || {
            let (server, key) = (Arc::clone(&server), key.clone());
            async move { server.memory.get(&key, context).await }
        };
        self.link.send(Call::Reads, serve).await
    }

    async fn query(&self, query: &Query, context: ReadContext) -> Result<Page, EngineError> {
        let (server, query) = (Arc::clone(&self.server), query.clone());
        let serve = move || {
            let (server, query) = (Arc::clone(&server), query.clone());
            async move { server.memory.query(&query, context).await }
        };
        self.link.send(Call::Reads, serve).await
    }

    async fn scan(&self, scan: &Scan) -> Result<ScanPage, EngineError> {
        let (server, scan) = (Arc::clone(&self.server), scan.clone());
        let serve = move || {
            let (server, scan) = (Arc::clone(&server), scan.clone());
            async move { server.memory.scan(&scan).await }
        };
        self.link.send(Call::Reads, serve).await
    }

    async fn journal_end(&self) -> Result<Position, EngineError> {
        let server = Arc::clone(&self.server);
        let serve = move || {
            let server = Arc::clone(&server);
            async move { server.memory.journal_end().await }
        };
        self.link.send(Call::Reads, serve).await
    }

    async fn journal_read(
        &self,
        from: &Position,
        limit: usize,
    ) -> Result<JournalPage, EngineError> {
        let (server, from) = (Arc::clone(&self.server), from.clone());
        let serve = move || {
            let (server, from) = (Arc::clone(&server), from.clone());
            async move { server.memory.journal_read(&from, limit).await }
        };
        self.link.send(Call::Reads, serve).await
    }

    async fn raise_fence(
        &self,
        fence: Fence,
        term: MoverTerm,
        now: Timestamp,
    ) -> Result<Seal, EngineError> {
        let server = Arc::clone(&self.server);
        let serve = move || {
            let (server, fence, term) = (Arc::clone(&server), fence.clone(), term.clone());
            async move { server.raise_fence(fence, term, now).await }
        };
        self.link.send(Call::Writes, serve).await
    }

    async fn claim_term(&self, term: MoverTerm) -> Result<(), EngineError> {
        let server = Arc::clone(&self.server);
        let serve = move || {
            let (server, term) = (Arc::clone(&server), term.clone());
            async move { server.claim_term(term).await }
        };
        self.link.send(Call::Writes, serve).await
    }

    async fn condemn(
        &self,
        keys: &[RecordKey],
        context: WriteContext,
    ) -> Result<Vec<Condemned>, EngineError> {
        let (server, keys) = (Arc::clone(&self.server), keys.to_vec());
        let serve = move || {
            let (server, keys, context) = (Arc::clone(&server), keys.clone(), context.clone());
            async move { server.memory.condemn(&keys, context).await }
        };
        self.link.send(Call::Writes, serve).await
    }

    async fn forget(
        &self,
        condemned: &[Condemned],
        context: WriteContext,
    ) -> Result<u64, EngineError> {
        let (server, condemned) = (Arc::clone(&self.server), condemned.to_vec());
        let serve = move || {
            let (server, condemned) = (Arc::clone(&server), condemned.clone());
            let context = context.clone();
            async move { server.forget(&condemned, context).await }
        };
        self.link.send(Call::Writes, serve).await
    }

    async fn maintain(&self, work: Maintenance) -> Result<Maintained, EngineError> {
        self.server.memory.maintain(work).await
    }
}

fn met(answer: &Result<Outcome, EngineError>) -> String {
    match answer {
        Ok(Outcome::Done { revision }) => format!("done {revision}"),
        Ok(Outcome::Exists { .. }) => "exists".to_owned(),
        Ok(Outcome::Conflict { header }) => format!("conflict with {}", header.revision),
        Ok(Outcome::GuardFailed { .. }) => "guard failed".to_owned(),
        Ok(outcome) => format!("{outcome:?}"),
        Err(error) => error.to_string(),
    }
}
