//! A memory engine that breaks one promise.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use engine_api::layout::{Field, Value};
use engine_api::memory::MemoryEngine;
use engine_api::{
    Capabilities, Change, ChangeKind, Condemned, Content, ControlStore, Durability, Engine,
    EngineError, Fence, Generation, Guard, JournalEvent, JournalPage, Look, Maintained,
    Maintenance, MoverTerm, Outcome, Page, PartsChange, Position, PriceCondition, Query,
    ReadContext, Record, RecordKey, Revision, RowFault, Scan, ScanPage, ScanPosition, Seal,
    StockAction, Stray, StrayPage, StraySearch, Timestamp, WriteContext,
};

/// The broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    AcknowledgesRemovalsWithoutApplying,
    AppliesHalfOfACommit,
    CallsEveryRowAStray,
    CollectsMoreThanAsked,
    ComparesWholeRecords,
    CountsRepeatedTakes,
    CreatesOverWhatExists,
    CutsMicroseconds,
    DropsEntriesOfRemovals,
    ForgetsInACrash,
    ForgetsWhatWasSaved,
    ForgetsTheGuard,
    ForgetsThePrice,
    HidesMarksFromLooks,
    HidesMarksFromScans,
    IgnoresTheExpectedRevision,
    IgnoresTheFence,
    IgnoresTheTerm,
    JournalsForgetting,
    JournalsUnchangedImages,
    LetsTheExpiredLive,
    OverwritesNewerParts,
    ReordersTheJournal,
    RestartsTheJournalSilently,
    RestoresByMerging,
    SealsTooEarly,
    ShowsStalePaths,
    SkipsTiesBetweenPages,
    StripsMarksFromImages,
    TouchesAllParts,
}

#[derive(Debug)]
pub struct FaultyEngine {
    inner: Arc<MemoryEngine>,
    fault: Fault,
    capabilities: Capabilities,
    counter: AtomicU64,
}

impl FaultyEngine {
    pub fn new(fault: Fault, durability: Durability) -> FaultyEngine {
        let inner = Arc::new(MemoryEngine::new());
        let capabilities = Capabilities {
            durability,
            ..inner.capabilities().clone()
        };
        FaultyEngine {
            inner,
            fault,
            capabilities,
            counter: AtomicU64::new(0),
        }
    }

    pub fn control(&self) -> Arc<dyn ControlStore> {
        Arc::clone(&self.inner) as Arc<dyn ControlStore>
    }

    async fn stored(&self, key: &RecordKey) -> Result<Option<Record>, EngineError> {
        let freshness = engine_api::Freshness::Latest;
        self.inner
            .get(
                key,
                ReadContext {
                    now: Timestamp::from_unix_micros(0),
                    freshness,
                },
            )
            .await
    }

    /// What this engine makes of a change before it judges it.
    async fn distorted(
        &self,
        change: Change,
        context: &WriteContext,
    ) -> Result<Change, EngineError> {
        Ok(match (self.fault, change) {
            (Fault::ForgetsTheGuard, Change::Patch { key, parts, .. }) => Change::Patch {
                key,
                guard: Guard::default(),
                parts,
            },
            (
                Fault::ForgetsThePrice,
                Change::Stock {
                    key, part, action, ..
                },
            ) => Change::Stock {
                key,
                part,
                price: PriceCondition::Any,
                action,
            },
            (
                Fault::CountsRepeatedTakes,
                Change::Stock {
                    key,
                    part,
                    price,
                    action:
                        StockAction::Take {
                            order,
                            quantity,
                            at,
                        },
                },
            ) => {
                let order = format!("{order}#{}", self.counter.fetch_add(1, Ordering::Relaxed));
                Change::Stock {
                    key,
                    part,
                    price,
                    action: StockAction::Take {
                        order,
                        quantity,
                        at,
                    },
                }
            }
            (Fault::CreatesOverWhatExists, Change::CreateIfAbsent { key, header, parts }) => {
                match self.stored(&key).await? {
                    Some(stored) if stored.live_at(context.now).is_some() => Change::ChangeIf {
                        key,
                        expected: stored.header.revision,
                        header,
                        parts: PartsChange::Replace(parts),
                    },
                    _ => Change::CreateIfAbsent { key, header, parts },
                }
            }
            (
                Fault::IgnoresTheExpectedRevision,
                Change::ChangeIf {
                    key,
                    expected,
                    header,
                    parts,
                },
            ) => {
                let stored = self.stored(&key).await?;
                let expected = stored.map_or(expected, |stored| stored.header.revision);
                Change::ChangeIf {
                    key,
                    expected,
                    header,
                    parts,
                }
            }
            (Fault::StripsMarksFromImages, Change::PutImage { mut image }) => {
                image.parts.retain(|_, part| part.content.live().is_some());
                Change::PutImage { image }
            }
            (
                Fault::TouchesAllParts,
                Change::Patch {
                    key,
                    guard,
                    mut parts,
                },
            ) => {
                for (part, fields) in self.stored(&key).await?.iter().flat_map(Record::live_parts) {
                    if parts.iter().all(|(named, _)| named != part) {
                        parts.push((part.clone(), engine_api::PartChange::Set(fields.clone())));
                    }
                }
                Change::Patch { key, guard, parts }
            }
            (_, change) => change,
        })
    }
}

#[async_trait]
impl Engine for FaultyEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn apply(&self, change: Change, context: WriteContext) -> Result<Outcome, EngineError> {
        let done = Ok(Outcome::Done {
            revision: context.revision,
        });
        let change = self.distorted(change, &context).await?;
        match (self.fault, &change) {
            (Fault::AcknowledgesRemovalsWithoutApplying, Change::Remove { .. }) => return done,
            (Fault::ComparesWholeRecords, Change::PutImage { image }) => {
                let stored = self.stored(&image.key).await?;
                if stored.is_some_and(|stored| stored.newest_revision() >= image.newest_revision())
                {
                    return done;
                }
            }
            (Fault::JournalsUnchangedImages, Change::PutImage { image }) => {
                let before = self.stored(&image.key).await?;
                let answer = self.inner.apply(change.clone(), context.clone()).await?;
                let mut touched = self
                    .stored(&image.key)
                    .await?
                    .expect("an image was just put");
                if before.as_ref() == Some(&touched) {
                    let above = Revision::above(touched.header.revision, context.revision.writer());
                    touched.header.revision = above;
                    self.inner
                        .apply(Change::PutImage { image: touched }, context)
                        .await?;
                }
                return Ok(answer);
            }
            _ => {}
        }
        let answer = self.inner.apply(change.clone(), context.clone()).await?;
        match (self.fault, answer) {
            (Fault::OverwritesNewerParts, Outcome::Stale { stored }) => {
                let revision = Revision::above(stored, context.revision.writer());
                self.inner
                    .apply(
                        change,
                        WriteContext {
                            revision,
                            ..context
                        },
                    )
                    .await
            }
            (_, answer) => Ok(answer),
        }
    }

    async fn apply_together(
        &self,
        changes: Vec<Change>,
        context: WriteContext,
    ) -> Result<Outcome, EngineError> {
        if self.fault == Fault::AppliesHalfOfACommit && changes.iter().all(Change::is_conditional) {
            for change in &changes {
                let outcome = self.inner.apply(change.clone(), context.clone()).await?;
                if !outcome.is_done() {
                    return Ok(outcome);
                }
            }
        }
        self.inner.apply_together(changes, context).await
    }

    async fn get(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Option<Record>, EngineError> {
        let mut record = self.inner.get(key, context).await?;
        if self.fault == Fault::CutsMicroseconds
            && let Some(record) = &mut record
            && let Content::Live(header) = &mut record.header.content
            && let Some(at) = header.get(Field::CreatedAt).and_then(Value::as_timestamp)
        {
            let cut = Timestamp::from_unix_micros(at.unix_micros() / 1000 * 1000);
            header
                .insert(Field::CreatedAt, Value::Timestamp(cut))
                .expect("the kind is the same");
        }
        Ok(record)
    }

    async fn query(&self, query: &Query, context: ReadContext) -> Result<Page, EngineError> {
        let mut context = context;
        if self.fault == Fault::LetsTheExpiredLive {
            context.now = Timestamp::from_unix_micros(0);
        }
        let mut page = self.inner.query(query, context).await?;
        if self.fault == Fault::SkipsTiesBetweenPages
            && let Some(after) = query.after.as_ref().filter(|after| after.sort.is_some())
        {
            page.records
                .retain(|record| engine_api::Cursor::of(query.path, record).sort != after.sort);
        }
        if self.fault == Fault::ShowsStalePaths
            && query.path.shape().only.is_some()
            && page.records.is_empty()
        {
            return self.stale_rows(query).await;
        }
        Ok(page)
    }

    async fn scan(&self, scan: &Scan) -> Result<ScanPage, EngineError> {
        let mut page = self.inner.scan(scan).await?;
        if self.fault == Fault::HidesMarksFromScans {
            page.images
                .retain(|image| image.header.content.live().is_some());
        }
        Ok(page)
    }

    async fn scan_each(
        &self,
        scan: &Scan,
        look: Look,
    ) -> Result<Option<ScanPosition>, EngineError> {
        let page = self.scan(scan).await?;
        let hides_marks = self.fault == Fault::HidesMarksFromLooks;
        for image in page.images {
            if !hides_marks || image.header.content.live().is_some() {
                look(&image);
            }
        }
        Ok(page.next)
    }

    async fn journal_end(&self) -> Result<Position, EngineError> {
        self.inner.journal_end().await
    }

    async fn journal_read(
        &self,
        from: &Position,
        limit: usize,
    ) -> Result<JournalPage, EngineError> {
        let read = self.inner.journal_read(from, limit).await;
        match (self.fault, read) {
            (Fault::RestartsTheJournalSilently, Err(EngineError::PositionLost)) => {
                Ok(JournalPage {
                    entries: Vec::new(),
                    next: self.inner.journal_end().await?,
                })
            }
            (Fault::DropsEntriesOfRemovals, Ok(mut page)) => {
                page.entries.retain(|entry| {
                    !matches!(
                        entry.event,
                        JournalEvent::Changed {
                            kind: ChangeKind::Removed,
                            ..
                        }
                    )
                });
                Ok(page)
            }
            (Fault::ReordersTheJournal, Ok(mut page)) => {
                page.entries.reverse();
                Ok(page)
            }
            (_, read) => read,
        }
    }

    async fn raise_fence(
        &self,
        fence: Fence,
        term: MoverTerm,
        now: Timestamp,
    ) -> Result<Seal, EngineError> {
        let begin = Seal {
            position: Position(0u64.to_be_bytes().to_vec()),
        };
        match self.fault {
            Fault::IgnoresTheFence => {
                let open = Fence {
                    generation: Generation(0),
                    ..fence
                };
                self.inner.raise_fence(open, term, now).await
            }
            Fault::SealsTooEarly => self
                .inner
                .raise_fence(fence, term, now)
                .await
                .map(|_| begin),
            _ => self.inner.raise_fence(fence, term, now).await,
        }
    }

    async fn claim_term(&self, term: MoverTerm) -> Result<(), EngineError> {
        match self.fault {
            Fault::IgnoresTheTerm => Ok(()),
            _ => self.inner.claim_term(term).await,
        }
    }

    async fn maintain(&self, work: Maintenance) -> Result<Maintained, EngineError> {
        match self.fault {
            Fault::CollectsMoreThanAsked => {
                let more = Maintenance {
                    items_max: work.items_max * 10,
                    ..work
                };
                let done = self.inner.maintain(more).await?;
                Ok(Maintained {
                    expired: done.expired.min(work.items_max),
                    ..Maintained::default()
                })
            }
            _ => self.inner.maintain(work).await,
        }
    }

    async fn restore(&self, image: Record, context: WriteContext) -> Result<Outcome, EngineError> {
        match self.fault {
            Fault::RestoresByMerging => self.apply(Change::PutImage { image }, context).await,
            _ => self.inner.restore(image, context).await,
        }
    }

    async fn condemn(
        &self,
        keys: &[RecordKey],
        context: WriteContext,
    ) -> Result<Vec<Condemned>, EngineError> {
        self.inner.condemn(keys, context).await
    }

    async fn forget(
        &self,
        condemned: &[Condemned],
        context: WriteContext,
    ) -> Result<u64, EngineError> {
        match self.fault {
            Fault::ForgetsWhatWasSaved => {
                let keys: Vec<RecordKey> = condemned.iter().map(|one| one.key.clone()).collect();
                let condemned = self.inner.condemn(&keys, context.clone()).await?;
                self.inner.forget(&condemned, context).await
            }
            Fault::JournalsForgetting => {
                for one in condemned {
                    let reading = ReadContext {
                        now: context.now,
                        freshness: engine_api::Freshness::Latest,
                    };
                    if let Some(image) = self.inner.get(&one.key, reading).await? {
                        self.inner.restore(image, context.clone()).await?;
                    }
                }
                let keys: Vec<RecordKey> = condemned.iter().map(|one| one.key.clone()).collect();
                let condemned = self.inner.condemn(&keys, context.clone()).await?;
                self.inner.forget(&condemned, context).await
            }
            _ => self.inner.forget(condemned, context).await,
        }
    }

    async fn find_strays(&self, search: &StraySearch) -> Result<StrayPage, EngineError> {
        if self.fault != Fault::CallsEveryRowAStray {
            return self.inner.find_strays(search).await;
        }
        let scan = Scan {
            collection: search.collection,
            scope: engine_api::layout::Scope::All,
            after: None,
            until: None,
            limit: 1000,
        };
        let images = self.inner.scan(&scan).await?.images;
        let stray = |image: Record| Stray {
            collection: search.collection,
            id: image.key.id,
            table: "every".to_owned(),
            fault: RowFault::Missing,
            patience: search.patience,
            row: Vec::new(),
        };
        Ok(StrayPage {
            looked_at: images.len(),
            strays: images.into_iter().map(stray).collect(),
            next: None,
        })
    }
}

impl FaultyEngine {
    /// Rows of a derived table that nobody checked against the authority.
    async fn stale_rows(&self, query: &Query) -> Result<Page, EngineError> {
        let shape = query.path.shape();
        let scan = Scan {
            collection: shape.collection,
            scope: engine_api::layout::Scope::All,
            after: None,
            until: None,
            limit: 1000,
        };
        let mut records = self.inner.scan(&scan).await?.images;
        records.retain(|record| {
            let header = record.header.content.live();
            match shape.equals.first() {
                Some(field) => header.and_then(|header| header.get(*field)) == query.equals.first(),
                None => header.is_some(),
            }
        });
        Ok(Page {
            records,
            next: None,
        })
    }
}
