//! The engine contract. Each numbered line is a test of the conformance suite.

use async_trait::async_trait;
use model::Timestamp;

use crate::capability::Capabilities;
use crate::change::{Change, Outcome};
use crate::context::{Aged, Because, Freshness, MoverTerm, ReadContext, WriteContext};
use crate::error::EngineError;
use crate::forgetting::Condemned;
use crate::journal::{Fence, JournalPage, Position, Seal};
use crate::query::{Look, Page, Query, Scan, ScanPage, ScanPosition};
use crate::record::{Record, RecordKey};
use crate::shared::SharedRecord;
use crate::stray::{Stray, StrayEnd, StrayPage, StraySearch};

/// A place where records live.
///
/// ```text
///   router ── apply(change, generation, revision) ──▶ ┌─────────────┐
///                                                     │ fence? live?│
///   feed ──── apply(put_image, mover's term) ───────▶ │ newer?      │──▶ records + derived tables
///                                                     └─────────────┘──▶ journal ──▶ feed, verifier
/// ```
///
/// # Promises
///
/// **Writing**
/// - E1 An answer of `Done` is given only when the change is durable as
///   [`Capabilities::durability`] says; it is then readable by id and by every
///   access path.
/// - E2 Any other [`Outcome`] means that nothing was changed (but see
///   [`GuardKind::AfterWrite`](crate::GuardKind)), nor will be: no copy of the
///   change that a driver sent again is still on its way.
/// - E3 The same change sent again, with the same revision, changes nothing
///   more, whatever happened in between, and answers `Done` as long as nothing
///   newer has replaced what it wrote. It is for lost answers only: after a
///   definite refusal a caller proposes a new revision. What `maintain` has
///   forgotten is not recognised: marks are kept longer than requests live.
/// - E4 `CreateIfAbsent` lets one of any number of concurrent creators win; a
///   removed or expired record counts as absent, and its parts do not come back.
/// - E5 `ChangeIf` and `Remove` apply only to the expected header revision; of
///   two with the same expectation at most one is `Done`.
/// - E6 `Patch` touches the named parts only: concurrent patches of different
///   parts both survive. Removing a part leaves a mark. Two concurrent patches
///   of one part may both be `Done`; the newer revision stays.
/// - E7 No live header, no record: patches and stock changes of an absent,
///   removed or expired record answer `NoRecord` (W2); a failed guard answers
///   `GuardFailed`.
/// - E8 A revision at or below what it would replace, written before it began,
///   is refused as `Stale` with the revision to go above. Stock changes (all but
///   `Receive`) are the exception: they are numbered above the stored part by
///   the engine itself, because their idempotency is the reservation's (W5).
/// - E9 Stock: available + reserved + sold = received after every change; a
///   take is refused below zero, at another price, below the floor, and counts
///   once per order (W12, W13).
/// - E10 `PutImage` merges part by part, newest wins, in any order and number
///   to the same record; what is not newer changes nothing and leaves no
///   journal entry (W1, W26). Only a mover may send it.
/// - E11 `apply_together` applies all changes, or none when any is not `Done`.
///   Sales without a reservation need a conditional change beside them.
///
/// **Fences and terms**
/// - E12 After `raise_fence` has answered, no router's write in its scope under
///   an older generation is applied; other keys and newer generations are not
///   touched. A fence only rises; raising it again is harmless (W15, W20).
/// - E13 Everything let through before the fence stands in the journal at or
///   before the seal.
/// - E14 Once a higher term was claimed, images, fences and claims of a lower
///   one are refused as `TermLost` (W21).
///
/// **Reading**
/// - E15 `get` answers the image, marks included; with [`Freshness::Latest`](crate::Freshness)
///   it shows everything acknowledged before, but for what its durability lets one copy
///   alone acknowledge; [`Freshness::OfEveryCopy`](crate::Freshness) shows that, too.
///   `get_at_once` says the same or nothing.
///   What may lag is within its bound, shows all that the caller has seen, and says
///   how old it can be (`get_aged`, `query_aged`); this holds for `query` as well.
/// - E16 `query` answers live records only, in the path's order, ties by id,
///   each once, never one whose header no longer answers the path (W9). A page
///   starts after a cursor; records that stay unchanged while others are
///   written are neither skipped nor repeated.
/// - E17 `scan` reaches every image of the scope, marks included; those not
///   changed meanwhile exactly once. It asks every copy (W25). `scan_each` shows the same.
///
/// **Journal**
/// - E18 Every applied change has an entry, in the order of application per
///   key and writer, at the latest when it is acknowledged; a refused one has
///   none. A change that failed half-way may have an entry without having
///   happened: a reader looks at the source, and goes on whatever it finds.
/// - E19 Reading from a position gives what came after it, again and again. A
///   position that was trimmed away is `PositionLost`, never a silent gap (W28).
///
/// **Expiry and care**
/// - E20 An expired record is not live from its `expires_at` on, before any
///   collection; `maintain` collects it, at once or after the engine's margin,
///   without a journal entry (W7).
/// - E21 A touched record (`Patch` of its expiry) lives on.
/// - E22 `maintain` forgets marks and journal entries older than asked, nothing
///   else, and at most as much as asked.
///
/// - E25 `find_strays` meets every derived row that is missing, that holds something
///   else than its record, or that no record has; with [`Patience::WithChanges`](crate::Patience)
///   unless a change that is under way may be about to put it right. `is_stray` looks at one again,
///   `mend_stray` puts it right and touches no row that follows its record (W9).
/// - E26 `restore` makes a record be the given image, whatever stands there, derived rows
///   included, and leaves a journal entry. Only a mover may ask for it, under its term, to
///   repair a copy that nobody else writes.
/// - E27 `condemn` says which records are about to be forgotten: they are read as before, and
///   nothing is journalled. An image that is put afterwards, also one that changes nothing,
///   takes the record out again. Only a mover may condemn and forget, under its term.
/// - E28 `forget` removes what that very call has condemned and nobody has brought back since, parts,
///   marks and derived rows included, and leaves neither mark nor journal entry. Fences stay.
///
/// **Faults**
/// - E23 An error other than `OutcomeUnknown` means that nothing was changed.
/// - E24 What was acknowledged before a crash is there after it, with its
///   journal entries, fences and terms.
#[async_trait]
pub trait Engine: Send + Sync + std::fmt::Debug {
    fn capabilities(&self) -> &Capabilities;

    async fn apply(&self, change: Change, context: WriteContext) -> Result<Outcome, EngineError>;

    /// Applies all, or answers the first outcome that is not `Done` and applies
    /// none. All changes share the context's revision, so their keys must differ.
    async fn apply_together(
        &self,
        changes: Vec<Change>,
        context: WriteContext,
    ) -> Result<Outcome, EngineError>;

    async fn get(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Option<Record>, EngineError>;

    /// What `get` would answer, shared instead of copied, from an engine that lives
    /// in this process and answers on the caller's thread. `None` says nothing.
    fn get_at_once(
        &self,
        _key: &RecordKey,
        _context: ReadContext,
    ) -> Option<Result<Option<SharedRecord>, EngineError>> {
        None
    }

    async fn query(&self, query: &Query, context: ReadContext) -> Result<Page, EngineError>;

    /// What `get` answers, and how it was come by. Who has no copies that lag, and
    /// who passes questions on without knowing, answers the latest.
    async fn get_aged(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Aged<Option<Record>>, EngineError> {
        let answer = self.get(key, latest(context)).await?;
        Ok(Aged::latest(answer, Because::Asked))
    }

    /// The same for a page.
    async fn query_aged(
        &self,
        query: &Query,
        context: ReadContext,
    ) -> Result<Aged<Page>, EngineError> {
        let answer = self.query(query, latest(context)).await?;
        Ok(Aged::latest(answer, Because::Asked))
    }

    async fn scan(&self, scan: &Scan) -> Result<ScanPage, EngineError>;

    /// The page that `scan` would answer, each image shown to `look` in its turn instead of being handed over: who
    /// wants only little of each spares its way between threads. Answers where the next page begins. After an error
    /// some may have been shown.
    async fn scan_each(
        &self,
        scan: &Scan,
        look: Look,
    ) -> Result<Option<ScanPosition>, EngineError> {
        let page = self.scan(scan).await?;
        page.images.iter().for_each(|image| look(image));
        Ok(page.next)
    }

    /// The place after everything applied so far.
    async fn journal_end(&self) -> Result<Position, EngineError>;

    async fn journal_read(&self, from: &Position, limit: usize)
    -> Result<JournalPage, EngineError>;

    async fn raise_fence(
        &self,
        fence: Fence,
        term: MoverTerm,
        now: Timestamp,
    ) -> Result<Seal, EngineError>;

    /// Ends every lower term of the same move.
    async fn claim_term(&self, term: MoverTerm) -> Result<(), EngineError>;

    /// Why a write would be refused now, as far as that is known without one: for those who ask before
    /// they begin. An engine that cannot tell says nothing, and promises nothing by it.
    fn refuses_writes(&self) -> Option<EngineError> {
        None
    }

    /// Collects garbage, a bounded piece at a time.
    async fn maintain(&self, work: Maintenance) -> Result<Maintained, EngineError>;

    /// What an image cannot mend that is merged: a damaged part of the very same revision.
    async fn restore(&self, _image: Record, _: WriteContext) -> Result<Outcome, EngineError> {
        Err(EngineError::Unsupported {
            what: "restore a record".to_owned(),
        })
    }

    /// Answers those that are there. What lies between this and [`Engine::forget`] is the caller's to make sure of:
    /// that the records are still nobody's.
    async fn condemn(
        &self,
        _keys: &[RecordKey],
        _: WriteContext,
    ) -> Result<Vec<Condemned>, EngineError> {
        Err(EngineError::Unsupported {
            what: "condemn records".to_owned(),
        })
    }

    /// Answers how many are gone by it.
    async fn forget(&self, _condemned: &[Condemned], _: WriteContext) -> Result<u64, EngineError> {
        Err(EngineError::Unsupported {
            what: "forget records".to_owned(),
        })
    }

    /// None where one commit holds all tables of a record.
    async fn find_strays(&self, _search: &StraySearch) -> Result<StrayPage, EngineError> {
        Ok(StrayPage::default())
    }

    async fn is_stray(&self, _stray: &Stray, _now: Timestamp) -> Result<bool, EngineError> {
        Ok(false)
    }

    async fn mend_stray(&self, _stray: &Stray, _now: Timestamp) -> Result<StrayEnd, EngineError> {
        Ok(StrayEnd::Follows)
    }
}

fn latest(context: ReadContext) -> ReadContext {
    ReadContext {
        freshness: Freshness::Latest,
        ..context
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maintenance {
    /// Records that expired before this moment are collected.
    pub now: Timestamp,
    /// Marks older than this are forgotten. Set it before the start of any move under way.
    pub marks_before: Timestamp,
    /// Journal entries older than this are trimmed.
    pub journal_before: Timestamp,
    /// At most this many records and entries in one call.
    pub items_max: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maintained {
    pub expired: usize,
    pub marks: usize,
    pub journal_entries: usize,
}

impl Maintained {
    /// Whether the call stopped at its bound, so that another one finds more.
    pub fn reached(&self, items_max: usize) -> bool {
        self.expired + self.marks + self.journal_entries >= items_max
    }
}
