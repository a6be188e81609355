//! The memory engine: the contract with nothing in the way of reading it.
//!
//! One lock, ordered maps, no clock of its own. It is the yardstick for the
//! other engines and the store of the simulation.

mod forgetting;
mod standing;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use layout::Collection;
use model::Timestamp;

use crate::capability::{
    Capabilities, Durability, ExpiryKind, FenceKind, GuardKind, JournalKind, Stock, Terms, Together,
};
use crate::change::{Change, Outcome};
use crate::context::{Aged, MoverTerm, ReadContext, WriteContext};
use crate::control::{CONTROL_BYTES_MAX, ControlStore, ControlValue, SetOutcome};
use crate::decide::{GroupDecision, decide_together};
use crate::engine::{Engine, Maintained, Maintenance};
use crate::error::EngineError;
use crate::forgetting::{Condemned, CondemnedRecords, validate_forgetting};
use crate::gate::{Gate, Raised};
use crate::journal::{
    Fence, JOURNAL_ENTRIES_MAX, JournalEntry, JournalEvent, JournalPage, Position, Seal,
};
use crate::query::{Cursor, PAGE_RECORDS_MAX, Page, Query, Scan, ScanPage, ScanPosition, answers};
use crate::record::{Content, Record, RecordId, RecordKey};
use crate::validate::{validate, validate_alone, validate_together};

use standing::Standing;

/// Records in this process, gone with it.
#[derive(Debug)]
pub struct MemoryEngine {
    capabilities: Capabilities,
    state: Mutex<State>,
    standing: Mutex<Option<Arc<Standing>>>,
}

#[derive(Debug, Default)]
struct State {
    records: BTreeMap<(Collection, RecordId), Record>,
    journal: VecDeque<JournalEntry>,
    /// The number of the journal's last entry, trimmed or not.
    journal_last: u64,
    gate: Gate,
    condemned: CondemnedRecords,
    control: BTreeMap<String, ControlValue>,
}

impl MemoryEngine {
    pub fn new() -> MemoryEngine {
        MemoryEngine {
            capabilities: Capabilities {
                engine: "memory",
                collections: Collection::ALL.to_vec(),
                together: Together::Atomic,
                guard: GuardKind::Atomic,
                fence: FenceKind::InStore,
                journal: JournalKind::SameCommit,
                stock: Stock::Conditional,
                terms: Terms::InStore,
                expiry: ExpiryKind::Maintained,
                durability: Durability::Process,
            },
            state: Mutex::default(),
            standing: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no code panics while it holds the lock")
    }
}

impl Default for MemoryEngine {
    fn default() -> MemoryEngine {
        MemoryEngine::new()
    }
}

#[async_trait]
impl Engine for MemoryEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn apply(&self, change: Change, context: WriteContext) -> Result<Outcome, EngineError> {
        validate_alone(&change)?;
        self.lock().commit(&[change], &context)
    }

    async fn apply_together(
        &self,
        changes: Vec<Change>,
        context: WriteContext,
    ) -> Result<Outcome, EngineError> {
        validate_together(&changes)?;
        self.lock().commit(&changes, &context)
    }

    async fn get(&self, key: &RecordKey, _: ReadContext) -> Result<Option<Record>, EngineError> {
        Ok(self.lock().get(key))
    }

    async fn get_aged(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Aged<Option<Record>>, EngineError> {
        Ok(self.aged(context, |state| state.get(key)))
    }

    async fn query_aged(
        &self,
        query: &Query,
        context: ReadContext,
    ) -> Result<Aged<Page>, EngineError> {
        Ok(self.aged(context, |state| state.page(query, context)))
    }

    async fn query(&self, query: &Query, context: ReadContext) -> Result<Page, EngineError> {
        Ok(self.lock().page(query, context))
    }

    async fn scan(&self, scan: &Scan) -> Result<ScanPage, EngineError> {
        let state = self.lock();
        let limit = scan.limit.clamp(1, PAGE_RECORDS_MAX);
        let place = |record: &Record| ScanPosition(record.key.id.as_str().as_bytes().to_vec());
        let mut images: Vec<Record> = state
            .of(scan.collection)
            .filter(|record| scan.scope.contains(&record.key.shard_key))
            .filter(|record| {
                scan.after
                    .as_ref()
                    .is_none_or(|after| place(record) > *after)
            })
            .filter(|record| {
                scan.until
                    .as_ref()
                    .is_none_or(|until| place(record) <= *until)
            })
            .take(limit + 1)
            .cloned()
            .collect();
        let more = images.len() > limit;
        images.truncate(limit);
        let next = images.last().filter(|_| more).map(place);
        Ok(ScanPage { images, next })
    }

    async fn journal_end(&self) -> Result<Position, EngineError> {
        Ok(position(self.lock().journal_last))
    }

    async fn journal_read(
        &self,
        from: &Position,
        limit: usize,
    ) -> Result<JournalPage, EngineError> {
        let state = self.lock();
        let from_number = number(from)?;
        let first_kept = state.journal_last + 1 - state.journal.len() as u64;
        if from_number > state.journal_last || from_number + 1 < first_kept {
            return Err(EngineError::PositionLost);
        }
        let skip = (from_number + 1 - first_kept) as usize;
        let limit = limit.clamp(1, JOURNAL_ENTRIES_MAX);
        let entries: Vec<_> = state
            .journal
            .iter()
            .skip(skip)
            .take(limit)
            .cloned()
            .collect();
        let next = entries
            .last()
            .map_or_else(|| from.clone(), |entry| entry.position.clone());
        Ok(JournalPage { entries, next })
    }

    async fn raise_fence(
        &self,
        fence: Fence,
        term: MoverTerm,
        now: Timestamp,
    ) -> Result<Seal, EngineError> {
        let mut state = self.lock();
        if state.gate.raise(&fence, &term)? == Raised::Now {
            state.append(now, JournalEvent::Fenced { fence });
        }
        Ok(Seal {
            position: position(state.journal_last),
        })
    }

    async fn claim_term(&self, term: MoverTerm) -> Result<(), EngineError> {
        self.lock().gate.claim(&term)
    }

    async fn maintain(&self, work: Maintenance) -> Result<Maintained, EngineError> {
        Ok(self.lock().maintain(&work))
    }

    async fn restore(&self, image: Record, context: WriteContext) -> Result<Outcome, EngineError> {
        let put = Change::PutImage {
            image: image.clone(),
        };
        validate(&put, &context)?;
        self.lock().restore(image, &context)
    }

    async fn condemn(
        &self,
        keys: &[RecordKey],
        context: WriteContext,
    ) -> Result<Vec<Condemned>, EngineError> {
        validate_forgetting(keys.len(), &context)?;
        self.lock().condemn(keys, &context.authority)
    }

    async fn forget(
        &self,
        condemned: &[Condemned],
        context: WriteContext,
    ) -> Result<u64, EngineError> {
        validate_forgetting(condemned.len(), &context)?;
        self.lock().forget(condemned, &context.authority)
    }
}

#[async_trait]
impl ControlStore for MemoryEngine {
    async fn control_get(&self, name: &str) -> Result<Option<ControlValue>, EngineError> {
        Ok(self.lock().control.get(name).cloned())
    }

    async fn compare_and_set(
        &self,
        name: &str,
        expected: Option<u64>,
        bytes: Vec<u8>,
    ) -> Result<SetOutcome, EngineError> {
        if bytes.len() > CONTROL_BYTES_MAX {
            return Err(EngineError::Invalid {
                reason: format!("control value {name} is too long"),
            });
        }
        let mut state = self.lock();
        let current = state.control.get(name).cloned();
        if current.as_ref().map(|value| value.number) != expected {
            return Ok(SetOutcome::Lost { current });
        }
        let number = expected.unwrap_or(0) + 1;
        state
            .control
            .insert(name.to_owned(), ControlValue { number, bytes });
        Ok(SetOutcome::Set { number })
    }
}

impl State {
    fn get(&self, key: &RecordKey) -> Option<Record> {
        let id = (key.collection, key.id.clone());
        self.records.get(&id).cloned()
    }

    fn page(&self, query: &Query, context: ReadContext) -> Page {
        let mut found: Vec<(Cursor, &Record)> = self
            .of(query.path.shape().collection)
            .filter(|record| {
                record
                    .live_at(context.now)
                    .is_some_and(|header| answers(query, header))
            })
            .map(|record| (Cursor::of(query.path, record), record))
            .filter(|(cursor, _)| {
                query
                    .after
                    .as_ref()
                    .is_none_or(|after| cursor.compare(after, query.path).is_gt())
            })
            .collect();
        found.sort_by(|(a, _), (b, _)| a.compare(b, query.path));
        let limit = query.limit.clamp(1, PAGE_RECORDS_MAX);
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found
            .last()
            .filter(|_| more)
            .map(|(cursor, _)| cursor.clone());
        Page {
            records: found
                .into_iter()
                .map(|(_, record)| record.clone())
                .collect(),
            next,
        }
    }

    fn commit(
        &mut self,
        changes: &[Change],
        context: &WriteContext,
    ) -> Result<Outcome, EngineError> {
        for change in changes {
            validate(change, context)?;
            self.gate.admit(change.key(), &context.authority)?;
            if let Change::PutImage { image } = change {
                self.condemned.spare(&image.key);
            }
        }
        let records = &self.records;
        let stored = |key: &RecordKey| Ok(records.get(&(key.collection, key.id.clone())).cloned());
        match decide_together(changes, context, stored)? {
            GroupDecision::Answer(outcome) => Ok(outcome),
            GroupDecision::Write { writes, revision } => {
                for (record, kind, revision) in writes {
                    let key = record.key.clone();
                    self.append(
                        context.now,
                        JournalEvent::Changed {
                            key: key.clone(),
                            kind,
                            revision,
                        },
                    );
                    self.condemned.spare(&key);
                    self.records.insert((key.collection, key.id), record);
                }
                Ok(Outcome::Done { revision })
            }
        }
    }

    fn restore(&mut self, image: Record, context: &WriteContext) -> Result<Outcome, EngineError> {
        self.gate.admit(&image.key, &context.authority)?;
        let (key, revision) = (image.key.clone(), image.newest_revision());
        let event = JournalEvent::Changed {
            key: key.clone(),
            kind: image.change_kind(),
            revision,
        };
        self.append(context.now, event);
        self.condemned.spare(&key);
        self.records.insert((key.collection, key.id), image);
        Ok(Outcome::Done { revision })
    }

    fn append(&mut self, written_at: Timestamp, event: JournalEvent) {
        self.journal_last += 1;
        self.journal.push_back(JournalEntry {
            position: position(self.journal_last),
            written_at,
            event,
        });
    }

    fn of(&self, collection: Collection) -> impl Iterator<Item = &Record> {
        self.records
            .iter()
            .filter(move |((of, _), _)| *of == collection)
            .map(|(_, record)| record)
    }

    fn maintain(&mut self, work: &Maintenance) -> Maintained {
        let mut done = Maintained::default();
        let mut left = work.items_max;
        self.records.retain(|_, record| {
            let expired = record.expires_at().is_some_and(|at| at <= work.now);
            let old_mark = record.header.content == Content::Removed
                && record.header.revision.time() < work.marks_before;
            if left == 0 {
                return true;
            }
            if !(expired || old_mark) {
                let parts = record.parts.len();
                record.forget_marks(work.marks_before);
                if record.parts.len() < parts {
                    left -= 1;
                    done.marks += 1;
                }
                return true;
            }
            left -= 1;
            if expired {
                done.expired += 1
            } else {
                done.marks += 1
            }
            false
        });
        while left > 0
            && self
                .journal
                .front()
                .is_some_and(|entry| entry.written_at < work.journal_before)
        {
            self.journal.pop_front();
            done.journal_entries += 1;
            left -= 1;
        }
        done
    }
}

fn position(number: u64) -> Position {
    Position(number.to_be_bytes().to_vec())
}

fn number(position: &Position) -> Result<u64, EngineError> {
    let bytes: [u8; 8] = position
        .0
        .as_slice()
        .try_into()
        .map_err(|_| EngineError::PositionLost)?;
    Ok(u64::from_be_bytes(bytes))
}
