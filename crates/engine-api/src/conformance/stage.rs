//! Where a case plays: an engine, a clock, names of its own, and the usual questions.

use std::sync::{Arc, Mutex};

use layout::{Collection, Fields, ShardKey};
use model::Timestamp;

use crate::capability::{Capabilities, GuardKind};
use crate::change::{Change, Outcome};
use crate::conformance::{Subject, scenery};
use crate::context::{Authority, Freshness, Generation, MoverTerm, ReadContext, WriteContext};
use crate::control::ControlStore;
use crate::engine::Engine;
use crate::error::{EngineError, Remedy};
use crate::journal::{ChangeKind, JournalEntry, JournalEvent, Position};
use crate::record::{PartKey, Record, RecordId, RecordKey};
use crate::revision::{Revision, Writer};
use crate::shared::SharedRecord;
use crate::world::{RealWorld, World};

/// How often a change is sent again when the engine was not available or its
/// answer was lost, as any caller may.
const ATTEMPTS_MAX: usize = 8;

/// More journal pages than any case fills.
const JOURNAL_PAGES_MAX: usize = 10_000;

const JOURNAL_PAGE: usize = 500;

/// Why a case failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure(pub(super) String);

pub(super) type Checked<T = ()> = Result<T, Failure>;

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Failure {
        Failure(format!("the engine answered with an error: {error}"))
    }
}

/// An own entry of the journal, as far as the cases judge it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub key: RecordKey,
    pub kind: ChangeKind,
    pub revision: Revision,
}

pub(super) struct Stage<'a> {
    subject: &'a dyn Subject,
    pub engine: Arc<dyn Engine>,
    prefix: String,
    pub generation: Generation,
    /// Period paths ask across all records: each case has a time of its own there.
    pub case_number: usize,
    now: Timestamp,
    newest: Mutex<Revision>,
}

impl<'a> Stage<'a> {
    pub async fn open(subject: &'a dyn Subject, case_number: usize) -> Stage<'a> {
        let world = RealWorld::new();
        let tag = world.random() % 0x100_0000;
        Stage {
            subject,
            engine: subject.engine().await,
            prefix: format!("x{case_number:03}{tag:06x}-"),
            generation: scenery::first_generation(case_number),
            case_number,
            now: world.now(),
            newest: Mutex::new(Revision::ZERO),
        }
    }

    /// The same stage after a crash of its engine.
    pub async fn crash(self) -> Checked<Stage<'a>> {
        let Stage {
            subject,
            engine,
            prefix,
            generation,
            case_number,
            now,
            newest,
        } = self;
        let Some(engine) = subject.crash_and_reopen(engine).await else {
            return Err(Failure(
                "the engine is declared durable but was not opened again".to_owned(),
            ));
        };
        Ok(Stage {
            subject,
            engine,
            prefix,
            generation,
            case_number,
            now,
            newest,
        })
    }

    pub fn control(&self) -> Checked<Arc<dyn ControlStore>> {
        self.subject
            .control(&self.engine)
            .ok_or_else(|| Failure("the control store is gone".to_owned()))
    }

    pub fn capabilities(&self) -> &Capabilities {
        self.engine.capabilities()
    }

    /// Whether a refused patch leaves nothing behind at all.
    pub fn judges_guards_atomically(&self) -> bool {
        self.capabilities().guard == GuardKind::Atomic
    }

    /// What is tested here of the engine's collections.
    pub fn collections(&self) -> Vec<Collection> {
        let declared = &self.capabilities().collections;
        self.subject
            .collections()
            .into_iter()
            .filter(|offered| declared.contains(offered))
            .collect()
    }

    /// The moment at which the case began, by the real clock.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    pub fn in_seconds(&self, seconds: i64) -> Timestamp {
        scenery::seconds_after(self.now, seconds)
    }

    /// A name that no other case has.
    pub fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub fn key(&self, collection: Collection, name: &str) -> RecordKey {
        let id = RecordId::new(self.name(name)).expect("cases use short names");
        RecordKey::by_id(collection, id)
    }

    pub fn cart(&self, name: &str) -> RecordKey {
        self.key(Collection::Carts, name)
    }

    /// A cart that is routed by its owner.
    pub fn cart_of(&self, name: &str, owner: &str) -> RecordKey {
        RecordKey {
            shard_key: ShardKey::of_text(&self.name(owner)),
            ..self.cart(name)
        }
    }

    pub fn header(&self, key: &RecordKey) -> Fields {
        scenery::header(key, self.now)
    }

    /// A revision above all that the case has used.
    pub fn revision(&self) -> Revision {
        self.revision_by(Writer::numbered(0))
    }

    pub fn revision_by(&self, writer: Writer) -> Revision {
        let mut newest = self
            .newest
            .lock()
            .expect("nothing panics while it holds the lock");
        let clock = Revision::at(self.now, writer);
        *newest = if clock > *newest {
            clock
        } else {
            Revision::above(*newest, writer)
        };
        *newest
    }

    pub fn router(&self, revision: Revision) -> WriteContext {
        self.router_at(revision, self.now)
    }

    pub fn router_at(&self, revision: Revision, now: Timestamp) -> WriteContext {
        WriteContext {
            authority: Authority::Router {
                generation: self.generation,
            },
            now,
            revision,
        }
    }

    pub fn router_under(&self, generation: Generation) -> WriteContext {
        let authority = Authority::Router { generation };
        WriteContext {
            authority,
            now: self.now,
            revision: self.revision(),
        }
    }

    pub fn term(&self, term: u64) -> MoverTerm {
        MoverTerm {
            move_name: self.name("move"),
            term,
        }
    }

    pub fn mover(&self, term: u64) -> WriteContext {
        let authority = Authority::Mover {
            term: self.term(term),
        };
        WriteContext {
            authority,
            now: self.now,
            revision: self.revision(),
        }
    }

    pub fn mover_at(&self, term: u64, revision: Revision) -> WriteContext {
        WriteContext {
            revision,
            ..self.mover(term)
        }
    }

    pub fn reading(&self) -> ReadContext {
        self.reading_at(self.now)
    }

    pub fn reading_at(&self, now: Timestamp) -> ReadContext {
        ReadContext {
            now,
            freshness: Freshness::Latest,
        }
    }

    /// Sends a change as a router does, numbered above everything before it.
    pub async fn apply(&self, change: Change) -> Checked<Outcome> {
        self.apply_in(change, self.router(self.revision())).await
    }

    pub async fn apply_in(&self, change: Change, context: WriteContext) -> Checked<Outcome> {
        Ok(send(&self.engine, change, context).await?)
    }

    pub async fn done(&self, change: Change) -> Checked<Revision> {
        self.done_in(change, self.router(self.revision())).await
    }

    pub async fn done_in(&self, change: Change, context: WriteContext) -> Checked<Revision> {
        let asked = format!("{change:?}");
        match self.apply_in(change, context).await? {
            Outcome::Done { revision } => Ok(revision),
            other => Err(Failure(format!(
                "{asked} should be done, the answer was {other:?}"
            ))),
        }
    }

    /// Expects an error, and answers it.
    pub async fn error_in(&self, change: Change, context: WriteContext) -> Checked<EngineError> {
        let asked = format!("{change:?}");
        match send(&self.engine, change, context).await {
            Ok(outcome) => Err(Failure(format!(
                "{asked} should be an error, the answer was {outcome:?}"
            ))),
            Err(error) => Ok(error),
        }
    }

    /// Creates the record with its usual header and these parts.
    pub async fn create(
        &self,
        key: &RecordKey,
        parts: Vec<(PartKey, Fields)>,
    ) -> Checked<Revision> {
        self.done(scenery::create(key, self.header(key), parts))
            .await
    }

    /// Creates the record as records of its collection usually are.
    pub async fn create_usual(&self, key: &RecordKey) -> Checked<Revision> {
        self.create(key, scenery::usual_parts(key.collection, self.now))
            .await
    }

    pub async fn put_image(&self, image: &Record) -> Checked<Outcome> {
        self.apply_in(
            Change::PutImage {
                image: image.clone(),
            },
            self.mover(1),
        )
        .await
    }

    pub async fn restore(&self, image: &Record, context: WriteContext) -> Checked {
        let outcome = self.engine.restore(image.clone(), context).await?;
        ensure!(outcome.is_done(), "a restore was answered {outcome:?}");
        Ok(())
    }

    pub async fn together(&self, changes: Vec<Change>, context: WriteContext) -> Checked<Outcome> {
        Ok(send_together(&self.engine, changes, context).await?)
    }

    /// Sends all at once and answers in the order given.
    pub async fn at_once(&self, changes: Vec<(Change, WriteContext)>) -> Checked<Vec<Outcome>> {
        let answers = self.try_at_once(changes).await?;
        answers
            .into_iter()
            .map(|answer| answer.map_err(Failure::from))
            .collect()
    }

    pub async fn try_at_once(
        &self,
        changes: Vec<(Change, WriteContext)>,
    ) -> Checked<Vec<Result<Outcome, EngineError>>> {
        let senders: Vec<_> = changes
            .into_iter()
            .map(|(change, context)| {
                let engine = Arc::clone(&self.engine);
                tokio::spawn(async move { send(&engine, change, context).await })
            })
            .collect();
        let mut answers = Vec::with_capacity(senders.len());
        for sender in senders {
            answers.push(
                sender
                    .await
                    .map_err(|error| Failure(format!("a writer broke off: {error}")))?,
            );
        }
        Ok(answers)
    }

    pub async fn image(&self, key: &RecordKey) -> Checked<Option<Record>> {
        let image = self.engine.get(key, self.reading()).await?;
        if let Some(at_once) = self.engine.get_at_once(key, self.reading()) {
            let at_once = at_once?.map(SharedRecord::into_record);
            ensure!(
                at_once == image,
                "{key} is {image:?}, and at once it is {at_once:?}"
            );
        }
        Ok(image)
    }

    /// The image of a record that must be there, as a mark or alive.
    pub async fn record(&self, key: &RecordKey) -> Checked<Record> {
        let image = self.image(key).await?;
        image.ok_or_else(|| Failure(format!("{key} should be stored, nothing is")))
    }

    pub async fn ensure_not_live(&self, key: &RecordKey) -> Checked {
        let image = self.image(key).await?;
        let live = image.as_ref().and_then(|image| image.live_at(self.now));
        ensure!(live.is_none(), "{key} should not be live, it is {image:?}");
        Ok(())
    }

    pub async fn position(&self) -> Checked<Position> {
        Ok(self.engine.journal_end().await?)
    }

    /// The case's own entries after a position.
    pub async fn entries_after(&self, from: &Position) -> Checked<Vec<Entry>> {
        let all = self.journal_after(from, JOURNAL_PAGE).await?;
        let own = all.into_iter().filter_map(|entry| match entry.event {
            JournalEvent::Changed {
                key,
                kind,
                revision,
            } if key.id.as_str().starts_with(&self.prefix) => Some(Entry {
                key,
                kind,
                revision,
            }),
            JournalEvent::Changed { .. } | JournalEvent::Fenced { .. } => None,
        });
        Ok(own.collect())
    }

    /// Everything after a position, read in pages.
    pub async fn journal_after(&self, from: &Position, page: usize) -> Checked<Vec<JournalEntry>> {
        let mut entries = Vec::new();
        let mut from = from.clone();
        for _ in 0..JOURNAL_PAGES_MAX {
            let read = self.engine.journal_read(&from, page).await?;
            ensure!(
                read.entries.len() <= page,
                "a page of {page} has {} entries",
                read.entries.len()
            );
            if read.entries.is_empty() {
                ensure!(
                    read.next == from
                        || self
                            .engine
                            .journal_read(&read.next, page)
                            .await?
                            .entries
                            .is_empty(),
                    "an empty page led on to entries"
                );
                return Ok(entries);
            }
            entries.extend(read.entries);
            from = read.next;
        }
        Err(Failure(format!(
            "the journal had no end after {JOURNAL_PAGES_MAX} pages"
        )))
    }
}

/// Sends a change as a caller does who follows the error's remedy.
async fn send(
    engine: &Arc<dyn Engine>,
    change: Change,
    context: WriteContext,
) -> Result<Outcome, EngineError> {
    let mut attempts = 1;
    loop {
        let answer = engine.apply(change.clone(), context.clone()).await;
        if !may_send_again(&answer) || attempts == ATTEMPTS_MAX {
            return answer;
        }
        attempts += 1;
    }
}

async fn send_together(
    engine: &Arc<dyn Engine>,
    changes: Vec<Change>,
    context: WriteContext,
) -> Result<Outcome, EngineError> {
    let mut attempts = 1;
    loop {
        let answer = engine
            .apply_together(changes.clone(), context.clone())
            .await;
        if !may_send_again(&answer) || attempts == ATTEMPTS_MAX {
            return answer;
        }
        attempts += 1;
    }
}

fn may_send_again(answer: &Result<Outcome, EngineError>) -> bool {
    match answer {
        Ok(_) => false,
        Err(error) => match error.remedy() {
            Remedy::Retry | Remedy::ReadBack => true,
            Remedy::RefreshMap | Remedy::GiveUp => false,
        },
    }
}
