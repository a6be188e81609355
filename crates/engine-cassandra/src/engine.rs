//! The engine: opening, and the contract's calls handed to those who do the work.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use engine_api::{
    Capabilities, Change, Engine, EngineError, ExpiryKind, Fence, FenceKind, Freshness, GuardKind,
    JournalKind, JournalPage, Maintained, Maintenance, MoverTerm, Outcome, Page, Position, Query,
    ReadContext, RealWorld, Record, RecordKey, Scan, ScanPage, Seal, Stock, Terms, Timestamp,
    Together, World, WriteContext, validate, validate_alone,
};
use layout::Collection;

use crate::authority::{AuthorityTable, Read};
use crate::config::{CassandraConfig, OpenError, Warning, durability, judge};
use crate::connection::Connection;
use crate::derived::DerivedTable;
use crate::journal::Journal;
use crate::schema::{CollectionTables, by_collection, statements};
use crate::{change, listing, patch, sweep};

/// Carts and shopper sessions in one keyspace of a Cassandra cluster.
#[derive(Debug)]
pub struct CassandraEngine {
    capabilities: Capabilities,
    warnings: Vec<Warning>,
    connection: Connection,
    tables: Vec<Tables>,
    journal: Journal,
    collect_margin_s: u32,
}

/// The tables of one collection, ready for use.
#[derive(Debug)]
pub(crate) struct Tables {
    pub authority: AuthorityTable,
    pub derived: Vec<DerivedTable>,
    /// The token where the next sweep begins.
    swept_to: AtomicI64,
}

impl CassandraEngine {
    /// Connects, makes what is missing of the schema, and opens a journal lane.
    pub async fn open(config: CassandraConfig) -> Result<CassandraEngine, OpenError> {
        config.validate()?;
        let sorted = by_collection(&config.tables)?;
        let connection = Connection::open(&config).await?;
        for statement in statements(&config, &sorted) {
            connection.define(&statement).await?;
        }
        let warnings = judge(
            config.replication_factor,
            connection.setting("commitlog_sync").await?,
            connection.setting("paxos_variant").await?,
        );
        let mut tables = Vec::with_capacity(sorted.len());
        for of_collection in sorted {
            tables.push(Tables::prepare(&connection, &config.keyspace, of_collection).await?);
        }
        let world = RealWorld::new();
        let lane = format!("{:016x}{:016x}", world.random(), world.random());
        let patience = Duration::from_millis(config.unsettled_patience_ms);
        let journal = Journal::open(&connection, &config.keyspace, lane, patience).await?;
        let capabilities = Capabilities {
            engine: "cassandra",
            collections: tables
                .iter()
                .map(|tables| tables.authority.collection)
                .collect(),
            together: Together::Unsupported,
            guard: GuardKind::AfterWrite,
            fence: FenceKind::ByLease,
            journal: JournalKind::Lanes,
            stock: Stock::Unsupported,
            terms: Terms::Unsupported,
            expiry: ExpiryKind::Maintained,
            durability: durability(config.replication_factor, &warnings),
        };
        let collect_margin_s = config.collect_margin_s;
        Ok(CassandraEngine {
            capabilities,
            warnings,
            connection,
            tables,
            journal,
            collect_margin_s,
        })
    }

    /// Settings of the servers that weaken what the layout promises.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    pub(crate) fn all_tables(&self) -> &[Tables] {
        &self.tables
    }

    pub(crate) fn collect_margin_s(&self) -> u32 {
        self.collect_margin_s
    }

    fn tables(&self, collection: Collection) -> Result<&Tables, EngineError> {
        let found = self
            .tables
            .iter()
            .find(|tables| tables.authority.collection == collection);
        found.ok_or(EngineError::NoTable { collection })
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
        let stored = tables
            .authority
            .load(&self.connection, key.id.as_str(), read_of(context))
            .await?;
        Ok(stored.record)
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

    async fn scan(&self, scan: &Scan) -> Result<ScanPage, EngineError> {
        listing::scan(self, self.tables(scan.collection)?, scan).await
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
}

impl Tables {
    async fn prepare(
        connection: &Connection,
        keyspace: &str,
        tables: CollectionTables,
    ) -> Result<Tables, OpenError> {
        let authority = format!("{keyspace}.{}", tables.authority.name);
        let authority = AuthorityTable::prepare(connection, tables.collection, &authority).await?;
        let mut derived = Vec::with_capacity(tables.derived.len());
        for table in tables.derived {
            derived.push(DerivedTable::prepare(connection, keyspace, table).await?);
        }
        Ok(Tables {
            authority,
            derived,
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

/// What may lag need not wait for decisions under way.
pub(crate) fn read_of(context: ReadContext) -> Read {
    match context.freshness {
        Freshness::Latest => Read::Serial,
        Freshness::MayLag { .. } => Read::Quorum,
    }
}

fn unsupported(what: &str) -> EngineError {
    EngineError::Unsupported {
        what: what.to_owned(),
    }
}
