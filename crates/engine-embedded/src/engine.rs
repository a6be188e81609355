//! The embedded engine: the contract on a directory of this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use engine_api::layout::Table;
use engine_api::{
    CONTROL_BYTES_MAX, Capabilities, Change, Condemned, ControlStore, ControlValue, Durability,
    Engine, EngineError, ExpiryKind, Fence, FenceKind, GuardKind, JournalKind, JournalPage, Look,
    Maintained, Maintenance, MoverTerm, Outcome, Page, Position, Query, ReadContext, Record,
    RecordKey, Scan, ScanPage, ScanPosition, Seal, SetOutcome, SharedRecord, Stock, Stray,
    StrayEnd, StrayPage, StraySearch, Terms, Timestamp, Together, WriteContext, validate,
    validate_alone, validate_forgetting, validate_together,
};

use crate::account::Accounts;
use crate::batch::{Batch, Space};
use crate::checkpoint::MEMORY_BYTES;
use crate::committer::{CommitCounts, Committer, Parts};
use crate::desk::{Care, Request};
use crate::directory::{Directory, OpenError};
use crate::log::{Checkpointed, CommitLog, Log, LogError, SEGMENT_BYTES};
use crate::read::{self, apart};
use crate::state::{State, control_get, position};
use crate::store::{Store, StoreError};
use crate::stray;
use crate::tables::Tables;

const META_TABLES: &[u8] = b"tables";

#[derive(Clone, Debug)]
pub struct EmbeddedConfig {
    pub path: PathBuf,
    pub tables: Vec<Table>,
    /// Blocks of the storage library kept in memory.
    pub cache_bytes: u64,
}

/// Sizes that tests make small.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub segment_bytes: u64,
    pub memory_bytes: u64,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            segment_bytes: SEGMENT_BYTES,
            memory_bytes: MEMORY_BYTES,
        }
    }
}

/// Records in a directory that this process has for itself.
#[derive(Debug)]
pub struct EmbeddedEngine {
    capabilities: Capabilities,
    tables: Arc<Tables>,
    committer: Committer,
    accounts: Accounts,
    store: Store,
    /// Let go last: the directory is free when everything else has ended.
    directory: Arc<Directory>,
}

impl EmbeddedEngine {
    /// Opens or makes the directory. After a crash this replays what the
    /// commit log holds and the tables on disk do not.
    pub fn open(config: EmbeddedConfig) -> Result<EmbeddedEngine, OpenError> {
        EmbeddedEngine::open_with(&config, Sizes::default(), |log| Box::new(log))
    }

    pub(crate) fn open_with(
        config: &EmbeddedConfig,
        sizes: Sizes,
        wrap: impl FnOnce(CommitLog) -> Box<dyn Log>,
    ) -> Result<EmbeddedEngine, OpenError> {
        let path = &config.path;
        let tables = Arc::new(Tables::new(&config.tables)?);
        let directory = Arc::new(Directory::open(path)?);
        let failed = |error| open_failed(path, error);
        let open = |path: &Path| Store::open(path, config.cache_bytes).map_err(failed);
        let data = directory.data(|draft| open(draft).map(drop), |error| failed(error.into()))?;
        let store = open(&data)?;
        let checkpointed = Checkpointed::default();
        checkpointed.set(store.checkpoint().map_err(failed)?);
        let mut log = CommitLog::open(
            &directory.log(),
            sizes.segment_bytes,
            checkpointed.clone(),
            |batch| store.replay(batch),
        )
        .map_err(|error| log_failed(path, error))?;
        store.find_bodies().map_err(failed)?;
        check_tables(&store, &mut log, &tables, path)?;
        let committer = Committer::start(Parts {
            state: State::open(store.clone(), tables.clone())?,
            store: store.clone(),
            last: log.last(),
            log: wrap(log),
            checkpointed,
            memory_bytes: sizes.memory_bytes,
            directory: Some(directory.clone()),
        })
        .map_err(|source| OpenError::Io {
            path: path.clone(),
            source,
        })?;
        let capabilities = Capabilities {
            engine: "embedded",
            collections: tables.collections(),
            together: Together::Atomic,
            guard: GuardKind::Atomic,
            fence: FenceKind::InStore,
            journal: JournalKind::SameCommit,
            stock: Stock::Conditional,
            terms: Terms::InStore,
            expiry: ExpiryKind::Maintained,
            durability: Durability::Disk,
        };
        Ok(EmbeddedEngine {
            capabilities,
            tables,
            committer,
            accounts: Accounts::default(),
            store,
            directory,
        })
    }

    /// Brings everything from memory to tables on disk and merges these as far
    /// as they need it. Nothing more is safe afterwards; the next opening has
    /// nothing to replay.
    pub async fn rest(&self) -> Result<(), EngineError> {
        self.committer.ask(|reply| Request::Rest { reply }).await
    }

    /// The next checkpoint fails after this step, and with it the engine.
    #[cfg(test)]
    pub(crate) fn cut_off(&self, step: crate::store::Step) {
        self.store.cut_off(step);
    }

    /// So much is free from now on, whatever the disk says.
    #[cfg(test)]
    pub(crate) fn pretend_free(&self, bytes: u64) {
        *self.directory.pretended_free.lock().unwrap() = Some(bytes);
    }

    pub fn commit_counts(&self) -> &CommitCounts {
        self.committer.counts()
    }

    /// Entries that the journal keeps: written and not yet trimmed.
    pub fn journal_entries(&self) -> u64 {
        self.committer.journal_entries()
    }

    /// The tables under the engine, for tests that go past it.
    #[cfg(test)]
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    async fn commit(
        &self,
        changes: Vec<Change>,
        context: WriteContext,
    ) -> Result<Outcome, EngineError> {
        for change in &changes {
            self.tables.check(change.key().collection)?;
            validate(change, &context)?;
            self.tables.check_rows(change)?;
        }
        self.committer
            .ask(|reply| Request::Apply {
                changes,
                context,
                reply,
            })
            .await
    }
}

#[async_trait]
impl Engine for EmbeddedEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn apply(&self, change: Change, context: WriteContext) -> Result<Outcome, EngineError> {
        validate_alone(&change)?;
        self.commit(vec![change], context).await
    }

    async fn apply_together(
        &self,
        changes: Vec<Change>,
        context: WriteContext,
    ) -> Result<Outcome, EngineError> {
        validate_together(&changes)?;
        self.commit(changes, context).await
    }

    async fn get(&self, key: &RecordKey, _: ReadContext) -> Result<Option<Record>, EngineError> {
        self.tables.check(key.collection)?;
        let found = read::get(&self.store, &self.tables, key.collection, &key.id)?;
        Ok(found.map(SharedRecord::into_record))
    }

    fn get_at_once(
        &self,
        key: &RecordKey,
        _: ReadContext,
    ) -> Option<Result<Option<SharedRecord>, EngineError>> {
        let found = self.tables.check(key.collection);
        Some(found.and_then(|()| read::get(&self.store, &self.tables, key.collection, &key.id)))
    }

    async fn query(&self, query: &Query, context: ReadContext) -> Result<Page, EngineError> {
        read::query(&self.store.view(), &self.tables, query, context)
    }

    async fn scan(&self, scan: &Scan) -> Result<ScanPage, EngineError> {
        let (view, tables, scan) = (self.store.view(), self.tables.clone(), scan.clone());
        apart(move || read::scan(&view, &tables, &scan)).await
    }

    async fn scan_each(
        &self,
        scan: &Scan,
        look: Look,
    ) -> Result<Option<ScanPosition>, EngineError> {
        let (view, tables, scan) = (self.store.view(), self.tables.clone(), scan.clone());
        apart(move || read::scan_each(&view, &tables, &scan, |image| look(&image))).await
    }

    async fn journal_end(&self) -> Result<Position, EngineError> {
        Ok(position(self.committer.journal_last()))
    }

    async fn journal_read(
        &self,
        from: &Position,
        limit: usize,
    ) -> Result<JournalPage, EngineError> {
        read::journal(&self.store.view(), from, limit)
    }

    async fn raise_fence(
        &self,
        fence: Fence,
        term: MoverTerm,
        now: Timestamp,
    ) -> Result<Seal, EngineError> {
        self.tables.check(fence.collection)?;
        self.committer
            .ask(|reply| Request::RaiseFence {
                fence,
                term,
                now,
                reply,
            })
            .await
    }

    async fn claim_term(&self, term: MoverTerm) -> Result<(), EngineError> {
        self.committer
            .ask(|reply| Request::ClaimTerm { term, reply })
            .await
    }

    fn refuses_writes(&self) -> Option<EngineError> {
        let failure = self.committer.failure();
        failure.or_else(|| self.directory.refuses_writes())
    }

    async fn restore(&self, image: Record, context: WriteContext) -> Result<Outcome, EngineError> {
        let put = Change::PutImage { image };
        self.tables.check(put.key().collection)?;
        validate(&put, &context)?;
        self.tables.check_rows(&put)?;
        let Change::PutImage { image } = put else {
            unreachable!("it was made here")
        };
        self.committer
            .ask(|reply| Request::Restore {
                image: Box::new(image),
                context,
                reply,
            })
            .await
    }

    async fn find_strays(&self, search: &StraySearch) -> Result<StrayPage, EngineError> {
        self.tables.check(search.collection)?;
        stray::find(&self.store, &self.tables, &self.accounts, search).await
    }

    async fn is_stray(&self, stray: &Stray, _: Timestamp) -> Result<bool, EngineError> {
        stray::stands(&self.store.view(), &self.tables, stray)
    }

    async fn mend_stray(&self, stray: &Stray, _: Timestamp) -> Result<StrayEnd, EngineError> {
        let stray = stray.clone();
        self.committer
            .ask(|reply| Request::Mend { stray, reply })
            .await
    }

    async fn maintain(&self, work: Maintenance) -> Result<Maintained, EngineError> {
        self.accounts.let_go_idle();
        self.committer
            .ask(|reply| Request::Care(Care::Maintain { work, reply }))
            .await
    }

    async fn condemn(
        &self,
        keys: &[RecordKey],
        context: WriteContext,
    ) -> Result<Vec<Condemned>, EngineError> {
        validate_forgetting(keys.len(), &context)?;
        for key in keys {
            self.tables.check(key.collection)?;
        }
        let keys = keys.to_vec();
        self.committer
            .ask(|reply| Request::Condemn {
                keys,
                context,
                reply,
            })
            .await
    }

    async fn forget(
        &self,
        condemned: &[Condemned],
        context: WriteContext,
    ) -> Result<u64, EngineError> {
        validate_forgetting(condemned.len(), &context)?;
        let condemned = condemned.to_vec();
        self.committer
            .ask(|reply| {
                Request::Care(Care::Forget {
                    condemned,
                    context,
                    reply,
                })
            })
            .await
    }
}

#[async_trait]
impl ControlStore for EmbeddedEngine {
    async fn control_get(&self, name: &str) -> Result<Option<ControlValue>, EngineError> {
        control_get(&self.store, name)
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
        let name = name.to_owned();
        self.committer
            .ask(|reply| Request::CompareAndSet {
                name,
                expected,
                bytes,
                reply,
            })
            .await
    }
}

fn check_tables(
    store: &Store,
    log: &mut CommitLog,
    tables: &Tables,
    path: &Path,
) -> Result<(), OpenError> {
    let wanted = tables.describe();
    match store
        .get(Space::Meta, META_TABLES)
        .map_err(|error| open_failed(path, error))?
    {
        None => {
            let mut batch = Batch::default();
            batch.put(Space::Meta, META_TABLES, wanted.as_bytes());
            let batches = [batch];
            log.append(&batches)
                .map_err(|error| log_failed(path, error.into()))?;
            store.apply(&batches);
            Ok(())
        }
        Some(found) if *found == *wanted.as_bytes() => Ok(()),
        Some(found) => {
            let found = String::from_utf8_lossy(&found);
            let (found, wanted) = first_difference(&found, &wanted);
            Err(OpenError::OtherTables {
                path: path.to_owned(),
                found,
                wanted,
            })
        }
    }
}

fn first_difference(found: &str, wanted: &str) -> (String, String) {
    let (mut found, mut wanted) = (found.lines(), wanted.lines());
    loop {
        match (found.next(), wanted.next()) {
            (ours, theirs) if ours == theirs && ours.is_some() => {}
            (ours, theirs) => {
                let text = |line: Option<&str>| line.unwrap_or("nothing more").to_owned();
                return (text(ours), text(theirs));
            }
        }
    }
}

fn open_failed(path: &Path, error: StoreError) -> OpenError {
    let path = path.to_owned();
    match error {
        StoreError::Io(source) => OpenError::Io { path, source },
        StoreError::Library(reason) | StoreError::Damaged(reason) => {
            OpenError::Damaged { path, reason }
        }
    }
}

fn log_failed(path: &Path, error: LogError) -> OpenError {
    let path = path.to_owned();
    match error {
        LogError::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            let reason = error.to_string();
            OpenError::Damaged { path, reason }
        }
        LogError::Io(source) => OpenError::Io { path, source },
        LogError::Lost(reason) => OpenError::Damaged { path, reason },
    }
}
