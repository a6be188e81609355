//! The engine: opening, and the contract's calls handed to those who do the work.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use engine_api::{
    Aged, Capabilities, Change, Condemned, Engine, EngineError, ExpiryKind, Fence, FenceKind,
    Freshness, GuardKind, JournalKind, JournalPage, Maintained, Maintenance, MoverTerm, Outcome,
    Page, Position, Query, ReadContext, RealWorld, Record, RecordKey, Scan, ScanPage, Seal, Stock,
    Stray, StrayEnd, StrayPage, StraySearch, Terms, Timestamp, Together, World, WriteContext,
    validate, validate_alone, validate_forgetting,
};
use layout::{AccessPath, Collection, Role};
use scylla::statement::Consistency;

use crate::authority::AuthorityTable;
use crate::calendar::Calendar;
use crate::config::{CassandraConfig, OpenError, SchemaCare};
use crate::connection::{Connection, Recorder, Recording};
use crate::derived::{DerivedTable, PathRead};
use crate::journal::Journal;
use crate::keyspace::{KeptStore, Keyspace};
use crate::levels::Levels;
use crate::sampling::{SampledReads, Sampling};
use crate::schema::{self, is_divided_by_calendar};
use crate::servers::{Warning, durability, judge};
use crate::{change, forgetting, listing, patch, scan, stray, sweep};

/// Carts, orders and shopper sessions in one keyspace of a Cassandra cluster.
#[derive(Debug)]
pub struct CassandraEngine {
    capabilities: Capabilities,
    warnings: Vec<Warning>,
    connection: Arc<Connection>,
    tables: Vec<Arc<Tables>>,
    /// `None` when no table is divided by months or days.
    calendar: Option<Calendar>,
    journal: Journal,
    sampling: Sampling,
    collect_margin_s: u32,
}

/// The tables of one collection, ready for use.
#[derive(Debug)]
pub(crate) struct Tables {
    pub authority: AuthorityTable,
    pub derived: Vec<DerivedTable>,
    pub paths: Vec<PathRead>,
    is_compared: bool,
    /// The token where the next sweep begins.
    swept_to: AtomicI64,
}

impl CassandraEngine {
    /// Connects, looks at the servers, makes what is missing of the schema, and
    /// opens a journal lane.
    pub async fn open(config: CassandraConfig) -> Result<CassandraEngine, OpenError> {
        CassandraEngine::open_in(config, Arc::new(RealWorld::new())).await
    }

    /// The same, and every statement is recorded; for measurements.
    pub async fn open_recording(config: CassandraConfig) -> Result<CassandraEngine, OpenError> {
        let world = Arc::new(RealWorld::new());
        CassandraEngine::open_with(config, world, Recorder::on()).await
    }

    /// The same, with time and chance given.
    pub async fn open_in(
        config: CassandraConfig,
        world: Arc<dyn World>,
    ) -> Result<CassandraEngine, OpenError> {
        CassandraEngine::open_with(config, world, Recorder::default()).await
    }

    async fn open_with(
        config: CassandraConfig,
        world: Arc<dyn World>,
        recorder: Recorder,
    ) -> Result<CassandraEngine, OpenError> {
        config.validate()?;
        let keyspace = &config.keyspace;
        let connection = Arc::new(Connection::open(&config, recorder).await?);
        let (servers, mut warnings) = connection.servers(&*world).await?;
        warnings.extend(judge(keyspace, &servers, config.clock_off_ms_max)?);
        match config.schema {
            SchemaCare::Make => {
                for statement in schema::statements(keyspace) {
                    connection.define(&statement).await?;
                }
            }
            SchemaCare::Expect => connection.expect_keyspace(&keyspace.name).await?,
        }
        let mut tables = Vec::with_capacity(keyspace.stores.len());
        for kept in &keyspace.stores {
            tables.push(Arc::new(
                Tables::prepare(&connection, keyspace, kept).await?,
            ));
        }
        let calendar = match keyspace.tables().any(is_divided_by_calendar) {
            true => Some(Calendar::prepare(&connection, &keyspace.name).await?),
            false => None,
        };
        let lane = format!("{:016x}{:016x}", world.random(), world.random());
        let patience = Duration::from_millis(config.unsettled_patience_ms);
        let journal = Journal::open(&connection, &keyspace.name, lane, patience).await?;
        let percent = keyspace.settings.sampled_repair_percent.unwrap_or(0);
        Ok(CassandraEngine {
            capabilities: capabilities(keyspace, &warnings),
            warnings,
            connection,
            tables,
            calendar,
            journal,
            sampling: Sampling::new(percent, world),
            collect_margin_s: config.collect_margin_s,
        })
    }

    /// Settings of the servers that weaken what the layout promises.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Reads that were repeated at ALL, as the layout asks.
    pub fn sampled_reads(&self) -> SampledReads {
        self.sampling.counts()
    }

    /// What was sent since this was last asked; `None` unless opened for recording.
    pub fn take_recording(&self) -> Option<Recording> {
        Recording::take(&self.connection)
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    pub(crate) fn calendar(&self) -> Option<&Calendar> {
        self.calendar.as_ref()
    }

    pub(crate) fn all_tables(&self) -> &[Arc<Tables>] {
        &self.tables
    }

    pub(crate) fn collect_margin_s(&self) -> u32 {
        self.collect_margin_s
    }

    /// A record as an operation on `path` is promised to see it. A single copy
    /// is not believed when it says that there is none.
    pub(crate) async fn load(
        &self,
        tables: &Arc<Tables>,
        id: &str,
        path: AccessPath,
        context: ReadContext,
    ) -> Result<Option<Record>, EngineError> {
        let authority = &tables.authority;
        if context.freshness == Freshness::OfEveryCopy {
            let stored = authority.load_from_every_copy(&self.connection, id).await?;
            return Ok(stored.record);
        }
        let level = authority.levels.read(path, context.freshness);
        let loaded = authority.load(&self.connection, id, level).await;
        let mut found = match loaded {
            // A change that only a lost copy has is what such a layout may lose.
            Err(EngineError::Unavailable { .. })
                if level == Consistency::All
                    && authority.levels.is_own_change_sought(context.freshness) =>
            {
                authority.load_latest(&self.connection, id).await?.record
            }
            loaded => loaded?.record,
        };
        if found.is_none() && level == Consistency::One {
            found = authority.load_latest(&self.connection, id).await?.record;
        }
        if tables.is_compared {
            self.sampling.sample(|| {
                let (connection, tables) = (Arc::clone(&self.connection), Arc::clone(tables));
                let id = id.to_owned();
                async move {
                    let again = tables.authority.load(&connection, &id, Consistency::All);
                    again.await.map(|_| ())
                }
            });
        }
        Ok(found)
    }

    pub(crate) fn tables(&self, collection: Collection) -> Result<&Arc<Tables>, EngineError> {
        let found = self
            .tables
            .iter()
            .find(|tables| tables.authority.collection == collection);
        found.ok_or(EngineError::NoTable { collection })
    }
}

fn capabilities(keyspace: &Keyspace, warnings: &[Warning]) -> Capabilities {
    Capabilities {
        engine: "cassandra",
        collections: keyspace.stores.iter().map(KeptStore::collection).collect(),
        together: Together::Unsupported,
        guard: GuardKind::AfterWrite,
        fence: FenceKind::ByLease,
        journal: JournalKind::Lanes,
        stock: Stock::Unsupported,
        terms: Terms::Unsupported,
        expiry: ExpiryKind::Maintained,
        durability: durability(keyspace, warnings),
    }
}

#[async_trait]
impl Engine for CassandraEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn apply(&self, change: Change, context: WriteContext) -> Result<Outcome, EngineError> {
        validate_alone(&change)?;
        validate(&change, &context)?;
        let tables = self.tables(change.key().collection)?;
        match &change {
            Change::Patch { .. } => patch::apply(self, tables, &change, &context).await,
            Change::Stock { .. } => Err(unsupported("keep stock")),
            Change::CreateIfAbsent { .. }
            | Change::ChangeIf { .. }
            | Change::Remove { .. }
            | Change::PutImage { .. } => change::apply(self, tables, &change, &context).await,
        }
    }

    async fn apply_together(
        &self,
        _: Vec<Change>,
        _: WriteContext,
    ) -> Result<Outcome, EngineError> {
        Err(unsupported("apply changes of several records together"))
    }

    async fn get(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Option<Record>, EngineError> {
        let tables = self.tables(key.collection)?;
        let path = AccessPath::by_id(key.collection);
        self.load(tables, key.id.as_str(), path, context).await
    }

    async fn query(&self, query: &Query, context: ReadContext) -> Result<Page, EngineError> {
        listing::query(
            self,
            self.tables(query.path.shape().collection)?,
            query,
            context,
        )
        .await
    }

    async fn get_aged(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Aged<Option<Record>>, EngineError> {
        let path = AccessPath::by_id(key.collection);
        let levels = &self.tables(key.collection)?.authority.levels;
        let served = levels.served(path, context.freshness);
        let answer = self.get(key, context).await?;
        Ok(Aged { answer, served })
    }

    async fn query_aged(
        &self,
        query: &Query,
        context: ReadContext,
    ) -> Result<Aged<Page>, EngineError> {
        let levels = &self.tables(query.path.shape().collection)?.authority.levels;
        let served = levels.served(query.path, context.freshness);
        let answer = self.query(query, context).await?;
        Ok(Aged { answer, served })
    }

    async fn scan(&self, scan: &Scan) -> Result<ScanPage, EngineError> {
        scan::page(self, self.tables(scan.collection)?, scan).await
    }

    async fn journal_end(&self) -> Result<Position, EngineError> {
        self.journal.end(&self.connection).await
    }

    async fn journal_read(
        &self,
        from: &Position,
        limit: usize,
    ) -> Result<JournalPage, EngineError> {
        self.journal.read(&self.connection, from, limit).await
    }

    async fn raise_fence(&self, _: Fence, _: MoverTerm, _: Timestamp) -> Result<Seal, EngineError> {
        Err(unsupported("raise a fence, the routers' leases do"))
    }

    async fn claim_term(&self, _: MoverTerm) -> Result<(), EngineError> {
        Err(unsupported("hold a mover to its term"))
    }

    async fn maintain(&self, work: Maintenance) -> Result<Maintained, EngineError> {
        sweep::maintain(self, work).await
    }

    async fn restore(&self, image: Record, context: WriteContext) -> Result<Outcome, EngineError> {
        let put = Change::PutImage { image };
        validate(&put, &context)?;
        change::restore(self, self.tables(put.key().collection)?, &put, &context).await
    }

    async fn condemn(
        &self,
        keys: &[RecordKey],
        context: WriteContext,
    ) -> Result<Vec<Condemned>, EngineError> {
        validate_forgetting(keys.len(), &context)?;
        forgetting::condemn(self, keys).await
    }

    async fn forget(
        &self,
        condemned: &[Condemned],
        context: WriteContext,
    ) -> Result<u64, EngineError> {
        validate_forgetting(condemned.len(), &context)?;
        forgetting::forget(self, condemned).await
    }

    async fn find_strays(&self, search: &StraySearch) -> Result<StrayPage, EngineError> {
        stray::find(self, self.tables(search.collection)?, search).await
    }

    async fn is_stray(&self, stray: &Stray, now: Timestamp) -> Result<bool, EngineError> {
        stray::stands(self, self.tables(stray.collection)?, stray, now).await
    }

    async fn mend_stray(&self, stray: &Stray, now: Timestamp) -> Result<StrayEnd, EngineError> {
        stray::mend(self, self.tables(stray.collection)?, stray, now).await
    }
}

impl Tables {
    async fn prepare(
        connection: &Connection,
        keyspace: &Keyspace,
        kept: &KeptStore,
    ) -> Result<Tables, OpenError> {
        let (name, store) = (&keyspace.name, &kept.store);
        let levels = Levels::of(store, &keyspace.replication)?;
        let buckets = |table: &layout::Table| store.initial_buckets.of(&table.name);
        let authority = store.authority().ok_or(OpenError::Authorities {
            collection: kept.collection(),
            count: 0,
        })?;
        let is_compared = authority.options.read_repair.as_deref() != Some("NONE");
        let mut derived = Vec::new();
        for table in store
            .tables
            .iter()
            .filter(|table| table.role == Role::Derived)
        {
            let count = buckets(table);
            derived.push(DerivedTable::prepare(connection, name, table.clone(), count).await?);
        }
        let mut paths = Vec::new();
        for path in AccessPath::of(kept.collection()) {
            paths.extend(PathRead::prepare(connection, name, kept, &derived, path).await?);
        }
        Ok(Tables {
            authority: AuthorityTable::prepare(
                connection,
                name,
                authority,
                buckets(authority),
                levels,
            )
            .await?,
            derived,
            paths,
            is_compared,
            swept_to: AtomicI64::new(i64::MIN),
        })
    }

    pub fn swept_to(&self) -> i64 {
        self.swept_to.load(Ordering::Relaxed)
    }

    pub fn set_swept_to(&self, token: i64) {
        self.swept_to.store(token, Ordering::Relaxed);
    }
}

fn unsupported(what: &str) -> EngineError {
    EngineError::Unsupported {
        what: what.to_owned(),
    }
}
