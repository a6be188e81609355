//! What the judge knows while it works: pending writes over the store.
//!
//! Requests are judged one after the other against the store as the requests
//! before them leave it, whether those are on disk yet or not. Nothing is
//! visible to readers, and nothing is answered, until it is.

mod forgetting;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use engine_api::layout::Collection;
use engine_api::{
    Change, CondemnedRecords, ControlValue, EngineError, Fence, Gate, GroupDecision, JournalEvent,
    Maintained, Maintenance, MoverTerm, Outcome, Position, Raised, Record, RecordId, RecordKey,
    RowFault, Seal, SetOutcome, SharedRecord, Stray, StrayEnd, Timestamp, WriteContext,
    decide_together,
};
use rustc_hash::FxHashMap;

use crate::batch::{Batch, Space};
use crate::cache::RecordCache;
use crate::codec::{
    Damaged, decode_entry, decode_fences, encode_fences, encode_part, encode_record, put_entry,
    split_entries,
};
use crate::desk::{Answer, Group};
use crate::places::Arrival;
use crate::read::{damaged, get, store_failed};
use crate::store::Store;
use crate::stray::{following, row_of};
use crate::tables::{
    Due, Tables, due_bound, due_key, due_record, dues_of, part_row_key, record_key,
};

const META_FENCES: &[u8] = b"fences";
const META_TERM: &[u8] = b"term/";
const META_CONTROL: &[u8] = b"control/";

type CacheKey = (Collection, RecordId);

#[derive(Debug)]
pub(crate) struct State {
    store: Store,
    tables: Arc<Tables>,
    gate: Gate,
    condemned: CondemnedRecords,
    /// The oldest entry that is kept, or the next one if none is. Known here, because
    /// to look for it means to step over everything that was trimmed.
    journal_first: u64,
    journal_last: u64,
    /// Written and not yet on disk, with the group that will bring it there. What
    /// is not here, readers see as it stands.
    pending: FxHashMap<CacheKey, (SharedRecord, GroupNumber)>,
    pending_control: BTreeMap<Vec<u8>, (ControlValue, GroupNumber)>,
    /// The keys of the groups under way, oldest first.
    under_way: VecDeque<(GroupNumber, Vec<CacheKey>)>,
    /// The group that is being put together, and its keys.
    group: GroupNumber,
    keys: Vec<CacheKey>,
    /// Its records that readers will ask for again, as it leaves them.
    changed: Vec<SharedRecord>,
    batch: Batch,
    /// Its journal entries, which become one row: many of them go into one memory table
    /// with every order, and nobody looks for a single one.
    journal: Vec<u8>,
}

/// Groups are committed in the order of their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupNumber(u64);

/// How much of a record is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    /// What has another revision than before: nothing changes without a new one.
    IfRevised,
    /// All of it: what stands there was not written by this engine's rules.
    Whole,
}

impl State {
    pub(crate) fn open(store: Store, tables: Arc<Tables>) -> Result<State, EngineError> {
        let fences = match store.get(Space::Meta, META_FENCES).map_err(store_failed)? {
            Some(bytes) => decode_fences(&bytes).map_err(damaged)?,
            None => Vec::new(),
        };
        let mut terms = BTreeMap::new();
        for row in store.view().range(
            Space::Meta,
            Bound::Included(META_TERM.to_vec()),
            end_of(META_TERM),
        ) {
            let (key, value) = row.map_err(store_failed)?;
            let name = std::str::from_utf8(&key[META_TERM.len()..]).map_err(|error| {
                EngineError::Damaged {
                    reason: error.to_string(),
                }
            })?;
            terms.insert(name.to_owned(), number(&value)?);
        }
        let journal_last = match store.last_key(Space::Journal).map_err(store_failed)? {
            Some(key) => number(&key)?,
            None => 0,
        };
        let whole = (Bound::Unbounded, Bound::Unbounded);
        let journal_first = match store.view().range(Space::Journal, whole.0, whole.1).next() {
            Some(row) => {
                let (key, value) = row.map_err(store_failed)?;
                first_entry(number(&key)?, &split_entries(&value).map_err(damaged)?)?
            }
            None => journal_last + 1,
        };
        Ok(State {
            store,
            tables,
            gate: Gate::restore(fences, terms),
            condemned: CondemnedRecords::default(),
            journal_first,
            journal_last,
            pending: FxHashMap::default(),
            pending_control: BTreeMap::new(),
            under_way: VecDeque::new(),
            group: GroupNumber(1),
            keys: Vec::new(),
            changed: Vec::new(),
            batch: Batch::default(),
            journal: Vec::new(),
        })
    }

    pub(crate) fn journal_first(&self) -> u64 {
        self.journal_first
    }

    pub(crate) fn journal_last(&self) -> u64 {
        self.journal_last
    }

    /// Hands over what was decided since the last group. It stays pending here
    /// until [`State::settle`] hears that it is on disk and shown.
    pub(crate) fn take_group(&mut self, answers: Vec<Answer>, rests: bool) -> Group {
        let number = self.group;
        self.group.0 += 1;
        if !self.journal.is_empty() {
            let last = self.journal_last.to_be_bytes();
            self.batch.put(Space::Journal, &last, &self.journal);
            self.journal.clear();
        }
        self.under_way
            .push_back((number, std::mem::take(&mut self.keys)));
        Group {
            number,
            batch: std::mem::take(&mut self.batch),
            changed: std::mem::take(&mut self.changed),
            answers,
            journal_first: self.journal_first,
            journal_last: self.journal_last,
            rests,
        }
    }

    /// Everything up to this group is on disk, and readers see it.
    pub(crate) fn settle(&mut self, shown: GroupNumber) {
        let groups = self
            .under_way
            .partition_point(|(number, _)| *number <= shown);
        for (number, keys) in self.under_way.drain(..groups) {
            for key in keys {
                if let Entry::Occupied(entry) = self.pending.entry(key)
                    && entry.get().1 == number
                {
                    entry.remove();
                }
            }
        }
        self.pending_control
            .retain(|_, (_, number)| *number > shown);
    }

    /// The last group handed over, if it is not settled.
    pub(crate) fn last_under_way(&self) -> Option<GroupNumber> {
        self.under_way.back().map(|(number, _)| *number)
    }

    pub(crate) fn has_writes(&self) -> bool {
        !self.batch.is_empty() || !self.journal.is_empty()
    }

    pub(crate) fn apply(
        &mut self,
        changes: &[Change],
        context: &WriteContext,
    ) -> Result<Outcome, EngineError> {
        for change in changes {
            self.gate.admit(change.key(), &context.authority)?;
            if let Change::PutImage { image } = change {
                self.condemned.spare(&image.key);
            }
        }
        let mut found = Vec::with_capacity(changes.len());
        let decision = decide_together(changes, context, |key| {
            let record = self.lookup(key)?;
            found.extend(record.clone());
            Ok(record)
        })?;
        match decision {
            GroupDecision::Answer(outcome) => Ok(outcome),
            GroupDecision::Write { writes, revision } => {
                for (record, kind, revision) in writes {
                    let key = record.key.clone();
                    let before = found.iter().find(|found| found.key == key);
                    self.write(before.map(|before| &**before), record, Body::IfRevised)?;
                    let event = JournalEvent::Changed {
                        key,
                        kind,
                        revision,
                    };
                    self.append(context.now, &event);
                }
                Ok(Outcome::Done { revision })
            }
        }
    }

    /// The record becomes the image, whatever stands there.
    pub(crate) fn restore(
        &mut self,
        image: Record,
        context: &WriteContext,
    ) -> Result<Outcome, EngineError> {
        self.gate.admit(&image.key, &context.authority)?;
        let before = self.lookup(&image.key)?;
        let revision = image.newest_revision();
        let event = JournalEvent::Changed {
            key: image.key.clone(),
            kind: image.change_kind(),
            revision,
        };
        self.write(before.as_deref(), image, Body::Whole)?;
        self.append(context.now, &event);
        Ok(Outcome::Done { revision })
    }

    /// Puts a row right that does not follow its record as it is now.
    pub(crate) fn mend(&mut self, stray: &Stray) -> Result<StrayEnd, EngineError> {
        let tables = self.tables.clone();
        let key = RecordKey::by_id(stray.collection, stray.id.clone());
        let record = self.lookup(&key)?;
        let rows = match record.as_deref() {
            Some(record) => following(&tables, record)?,
            None => Vec::new(),
        };
        if stray.fault == RowFault::Outgrown {
            let (space, row) = row_of(stray)?;
            if rows.iter().any(|it| it.space == space && it.row == row) {
                return Ok(StrayEnd::Follows);
            }
            self.batch.remove(space, row);
            return Ok(StrayEnd::Mended);
        }
        let mut end = StrayEnd::Follows;
        for it in rows.iter().filter(|it| it.table == stray.table) {
            self.batch.put(it.space, &it.row, &it.value);
            end = StrayEnd::Mended;
        }
        Ok(end)
    }

    pub(crate) fn raise_fence(
        &mut self,
        fence: Fence,
        term: &MoverTerm,
        now: Timestamp,
    ) -> Result<Seal, EngineError> {
        if self.gate.raise(&fence, term)? == Raised::Now {
            let fences = encode_fences(self.gate.fences());
            self.batch.put(Space::Meta, META_FENCES, &fences);
            self.append(now, &JournalEvent::Fenced { fence });
        }
        Ok(Seal {
            position: position(self.journal_last),
        })
    }

    pub(crate) fn claim_term(&mut self, term: &MoverTerm) -> Result<(), EngineError> {
        self.gate.claim(term)?;
        let key = [META_TERM, term.move_name.as_bytes()].concat();
        self.batch.put(Space::Meta, &key, &term.term.to_be_bytes());
        Ok(())
    }

    pub(crate) fn compare_and_set(
        &mut self,
        name: &str,
        expected: Option<u64>,
        bytes: Vec<u8>,
    ) -> Result<SetOutcome, EngineError> {
        let key = control_key(name);
        let current = match self.pending_control.get(&key) {
            Some((value, _)) => Some(value.clone()),
            None => control_get(&self.store, name)?,
        };
        if current.as_ref().map(|value| value.number) != expected {
            return Ok(SetOutcome::Lost { current });
        }
        let value = ControlValue {
            number: expected.unwrap_or(0) + 1,
            bytes,
        };
        let stored = [&value.number.to_be_bytes()[..], &value.bytes].concat();
        self.batch.put(Space::Meta, &key, &stored);
        let number = value.number;
        self.pending_control.insert(key, (value, self.group));
        Ok(SetOutcome::Set { number })
    }

    /// Collects what has fallen due, by the index of due times: the cost is
    /// what is collected, not what is stored. Called with nothing pending, and
    /// nothing is judged until it is on disk.
    pub(crate) fn maintain(&mut self, work: &Maintenance) -> Result<Maintained, EngineError> {
        let mut left = work.items_max;
        let expired = self.due_before(Due::Expiry, after(work.now), left)?;
        left -= expired.len();
        let marks = self.due_before(Due::Mark, work.marks_before, left)?;
        left -= marks.len();
        let part_marks = self.due_before(Due::PartMark, work.marks_before, left)?;
        left -= part_marks.len();
        for record in expired.iter().chain(&marks) {
            self.erase(record)?;
        }
        for record in &part_marks {
            // What has just been erased is not to be written again.
            if !expired.iter().any(|erased| erased.key == record.key) {
                let mut without = Record::clone(record);
                without.forget_marks(work.marks_before);
                self.write(Some(record), without, Body::IfRevised)?;
            }
        }
        let journal_entries = self.trim_journal(work.journal_before, left)?;
        Ok(Maintained {
            expired: expired.len(),
            marks: marks.len() + part_marks.len(),
            journal_entries,
        })
    }

    fn due_before(
        &self,
        due: Due,
        before: Timestamp,
        items_max: usize,
    ) -> Result<Vec<SharedRecord>, EngineError> {
        let from = Bound::Included(vec![due as u8]);
        let to = Bound::Excluded(due_bound(due, before));
        let mut records = Vec::new();
        for row in self
            .store
            .view()
            .range(Space::Due, from, to)
            .take(items_max)
        {
            let (row, _) = row.map_err(store_failed)?;
            let record = match due_record(&row) {
                Some((collection, id)) => get(&self.store, &self.tables, collection, &id)?,
                None => None,
            };
            let reason = || "a due row speaks of no record".to_owned();
            records.push(record.ok_or_else(|| EngineError::Damaged { reason: reason() })?);
        }
        Ok(records)
    }

    /// Whole groups go, and the last one stays, so that numbers go on after it.
    fn trim_journal(&mut self, before: Timestamp, items_max: usize) -> Result<usize, EngineError> {
        let to = Bound::Excluded(self.journal_last.to_be_bytes().to_vec());
        let rows = self
            .store
            .view()
            .range(Space::Journal, Bound::Unbounded, to);
        let mut trimmed = 0;
        for row in rows {
            if trimmed >= items_max {
                break;
            }
            let (key, value) = row.map_err(store_failed)?;
            let entries = split_entries(&value).map_err(damaged)?;
            for entry in &entries {
                let (written_at, _) = decode_entry(entry).map_err(damaged)?;
                if written_at >= before {
                    return Ok(trimmed);
                }
            }
            self.batch.remove(Space::Journal, &key);
            self.journal_first = number(&key)? + 1;
            trimmed += entries.len();
        }
        Ok(trimmed)
    }

    fn lookup(&self, key: &RecordKey) -> Result<Option<SharedRecord>, EngineError> {
        match self.pending.get(&(key.collection, key.id.clone())) {
            Some((record, _)) => Ok(Some(record.clone())),
            None => get(&self.store, &self.tables, key.collection, &key.id),
        }
    }

    /// Puts the record and everything that follows from it into the batch;
    /// `before` is what stands there now.
    fn write(
        &mut self,
        before: Option<&Record>,
        record: Record,
        body: Body,
    ) -> Result<(), EngineError> {
        self.condemned.spare(&record.key);
        let (collection, id) = (record.key.collection, record.key.id.clone());
        let inside = |record| self.tables.parts_inside(record);
        let body_stands = body == Body::IfRevised
            && before.is_some_and(|before| {
                let revised = |record| inside(record).map(|(key, part)| (key, part.revision));
                before.header == record.header && revised(before).eq(revised(&record))
            });
        if !body_stands {
            let body = encode_record(&record, inside(&record));
            let arrival = match before {
                Some(_) => Arrival::Known,
                None => Arrival::New,
            };
            self.batch
                .put_body(&record_key(collection, &id), &body, arrival);
            self.write_pointers(before, &record)?;
        }
        self.write_dues(before, &record);
        self.write_parts_apart(before, &record, body);
        let key = (collection, id);
        let record = SharedRecord::from(record);
        if RecordCache::keeps(collection) {
            self.changed.push(record.clone());
        }
        self.keys.push(key.clone());
        self.pending.insert(key, (record, self.group));
        Ok(())
    }

    fn write_pointers(
        &mut self,
        before: Option<&Record>,
        record: &Record,
    ) -> Result<(), EngineError> {
        let tables = self.tables.clone();
        for table in tables.pointers(record.key.collection) {
            let row = |record: &Record| match record.header.content.live() {
                Some(header) => table.row(header, &record.key.id),
                None => Ok(None),
            };
            let (old, new) = (before.map(row).transpose()?.flatten(), row(record)?);
            if old == new {
                continue;
            }
            if let Some(old) = old {
                self.batch.remove(Space::Paths, &old);
            }
            if let Some(new) = new {
                self.batch
                    .put(Space::Paths, &new, &[record.key.id.as_str().len() as u8]);
            }
        }
        Ok(())
    }

    fn write_dues(&mut self, before: Option<&Record>, record: &Record) {
        let (old, new) = (before.map(dues_of).unwrap_or_default(), dues_of(record));
        for (due, at) in old.iter().filter(|due| !new.contains(due)) {
            self.batch
                .remove(Space::Due, &due_key(*due, *at, &record.key));
        }
        for (due, at) in new.iter().filter(|due| !old.contains(due)) {
            self.batch
                .put(Space::Due, &due_key(*due, *at, &record.key), &[]);
        }
    }

    fn write_parts_apart(&mut self, before: Option<&Record>, record: &Record, body: Body) {
        let collection = record.key.collection;
        let revision_before = |key| Some(before?.parts.get(key)?.revision);
        for (key, part) in &record.parts {
            if self.tables.stands_apart(collection, key.kind())
                && (body == Body::Whole || revision_before(key) != Some(part.revision))
            {
                self.batch.put(
                    Space::Parts,
                    &part_row_key(&record.key, key),
                    &encode_part(part),
                );
            }
        }
        for key in before.iter().flat_map(|before| before.parts.keys()) {
            if self.tables.stands_apart(collection, key.kind()) && !record.parts.contains_key(key) {
                self.batch
                    .remove(Space::Parts, &part_row_key(&record.key, key));
            }
        }
    }

    /// Removes a record with everything that follows from it, without a trace.
    fn erase(&mut self, record: &Record) -> Result<(), EngineError> {
        let key = &record.key;
        self.condemned.spare(key);
        for (due, at) in dues_of(record) {
            self.batch.remove(Space::Due, &due_key(due, at, key));
        }
        self.batch
            .remove(Space::Records, &record_key(key.collection, &key.id));
        for part in record.parts.keys() {
            if self.tables.stands_apart(key.collection, part.kind()) {
                self.batch.remove(Space::Parts, &part_row_key(key, part));
            }
        }
        if let Some(header) = record.header.content.live() {
            for table in self.tables.pointers(key.collection) {
                if let Some(row) = table.row(header, &key.id)? {
                    self.batch.remove(Space::Paths, &row);
                }
            }
        }
        Ok(())
    }

    fn append(&mut self, written_at: Timestamp, event: &JournalEvent) {
        self.journal_last += 1;
        put_entry(&mut self.journal, written_at, event);
    }
}

pub(crate) fn control_get(store: &Store, name: &str) -> Result<Option<ControlValue>, EngineError> {
    let Some(stored) = store
        .get(Space::Meta, &control_key(name))
        .map_err(store_failed)?
    else {
        return Ok(None);
    };
    let (head, bytes) = stored
        .split_at_checked(8)
        .ok_or_else(|| EngineError::Damaged {
            reason: "a control value is cut short".to_owned(),
        })?;
    Ok(Some(ControlValue {
        number: number(head)?,
        bytes: bytes.to_vec(),
    }))
}

pub(crate) fn position(number: u64) -> Position {
    Position(number.to_be_bytes().to_vec())
}

pub(crate) fn number(bytes: &[u8]) -> Result<u64, EngineError> {
    let bytes = <[u8; 8]>::try_from(bytes).map_err(|_| EngineError::Damaged {
        reason: "a number has a wrong length".to_owned(),
    })?;
    Ok(u64::from_be_bytes(bytes))
}

/// The number of a group's first journal entry: its row bears that of the last.
pub(crate) fn first_entry(last: u64, entries: &[&[u8]]) -> Result<u64, EngineError> {
    let first = (last + 1).checked_sub(entries.len() as u64);
    first.ok_or_else(|| damaged(Damaged("a journal row has more entries than there were")))
}

fn control_key(name: &str) -> Vec<u8> {
    [META_CONTROL, name.as_bytes()].concat()
}

/// The end of all keys that start with `prefix`; prefixes here never end in 0xff.
fn end_of(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    Bound::Excluded(end)
}

/// A record that expires at `now` has expired.
fn after(now: Timestamp) -> Timestamp {
    Timestamp::from_unix_micros(now.unix_micros().saturating_add(1))
}
