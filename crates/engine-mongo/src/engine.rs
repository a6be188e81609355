//! The engine itself: what it holds, what it declares, and the contract's face.

use std::time::Duration;

use async_trait::async_trait;
use engine_api::layout::Collection;
use engine_api::{
    Aged, Capabilities, Change, Condemned, Durability, Engine, EngineError, ExpiryKind, Fence,
    FenceKind, GuardKind, JournalKind, JournalPage, Maintained, Maintenance, MoverTerm, Outcome,
    Page, Position, Query, ReadContext, Record, RecordKey, Scan, ScanPage, Seal, Stock, Stray,
    StrayEnd, StrayPage, StraySearch, Terms, Timestamp, Together, WriteContext, validate,
    validate_alone, validate_forgetting, validate_together,
};
use mongodb::Database;
use mongodb::bson::{Document, doc};
use tokio::sync::MutexGuard;

use crate::config::{MongoConfig, OpenError};
use crate::connect::{Deployment, connect, prepare};
use crate::document::hex;
use crate::guard::Guards;
use crate::lag::Lag;
use crate::lag_counts::LagCounts;
use crate::schema::{self, Place};
use crate::turns::Turns;

/// Records in one database of a MongoDB replica set.
#[derive(Debug)]
pub struct MongoEngine {
    capabilities: Capabilities,
    database: Database,
    deployment: Deployment,
    places: Vec<Place>,
    limit: Duration,
    secondary_max: Duration,
    lag: Lag,
    turns: Turns,
}

impl MongoEngine {
    /// Opens the database and makes what it lacks. Any number of processes may
    /// do so at once.
    pub async fn open(config: MongoConfig) -> Result<MongoEngine, OpenError> {
        let places = schema::places(&config.tables)?;
        let connected = connect(&config).await?;
        prepare(&connected, &config, &places).await?;
        let engine = MongoEngine {
            capabilities: capabilities(&places),
            database: connected.database,
            deployment: connected.deployment,
            places,
            limit: config.answer_max(),
            secondary_max: config.secondary_max(),
            lag: Lag::new(),
            turns: Turns::new(),
        };
        engine.guards().ensure().await?;
        Ok(engine)
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    pub(crate) fn places(&self) -> &[Place] {
        &self.places
    }

    pub(crate) fn place(&self, collection: Collection) -> Result<&Place, EngineError> {
        schema::place_of(&self.places, collection)
    }

    pub(crate) fn documents(
        &self,
        collection: Collection,
    ) -> Result<mongodb::Collection<Document>, EngineError> {
        Ok(self.database.collection(&self.place(collection)?.name))
    }

    pub(crate) fn guards(&self) -> Guards<'_> {
        Guards {
            database: &self.database,
            places: &self.places,
            limit: self.limit,
        }
    }

    /// Reads that were allowed to lag, and who answered them.
    pub fn lag_counts(&self) -> &LagCounts {
        self.lag.counts()
    }

    pub(crate) fn lag(&self) -> &Lag {
        &self.lag
    }

    pub(crate) fn deployment(&self) -> Deployment {
        self.deployment
    }

    pub(crate) fn secondary_max(&self) -> Duration {
        self.secondary_max
    }

    /// The right to swap a record, as far as this process goes.
    pub(crate) async fn turn(&self, key: &RecordKey) -> Result<MutexGuard<'_, ()>, EngineError> {
        let waiting = tokio::time::timeout(self.limit, self.turns.take(key));
        waiting.await.map_err(|_| EngineError::Unavailable {
            reason: format!("too many others want to change {key}"),
        })
    }

    /// The filter for one record. Shards are found by their key; a replica set
    /// needs the id only.
    pub(crate) fn named(&self, key: &RecordKey) -> Document {
        match self.deployment {
            Deployment::ReplicaSet { .. } => doc! { "_id": key.id.as_str() },
            Deployment::Sharded => {
                doc! { "_id": key.id.as_str(), "shard_key": hex(&key.shard_key) }
            }
        }
    }

    /// How long an answer is waited for.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }
}

fn capabilities(places: &[Place]) -> Capabilities {
    let by_server = places.iter().any(|place| place.collected_by_server);
    Capabilities {
        engine: "mongo",
        collections: places.iter().map(|place| place.collection).collect(),
        together: Together::Unsupported,
        guard: GuardKind::Atomic,
        fence: FenceKind::InStore,
        journal: JournalKind::ChangeStream,
        stock: Stock::Conditional,
        terms: Terms::InStore,
        expiry: if by_server {
            ExpiryKind::ByServer
        } else {
            ExpiryKind::Maintained
        },
        durability: Durability::Majority,
    }
}

#[async_trait]
impl Engine for MongoEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn apply(&self, change: Change, context: WriteContext) -> Result<Outcome, EngineError> {
        validate_alone(&change)?;
        validate(&change, &context)?;
        self.apply_alone(&change, &context).await
    }

    /// A single change is its own group; more would need a transaction, and an
    /// open transaction holds up fences (W19).
    async fn apply_together(
        &self,
        changes: Vec<Change>,
        context: WriteContext,
    ) -> Result<Outcome, EngineError> {
        validate_together(&changes)?;
        match changes.as_slice() {
            [change] => {
                validate(change, &context)?;
                self.apply_alone(change, &context).await
            }
            _ => Err(EngineError::Unsupported {
                what: "apply several changes in one commit".to_owned(),
            }),
        }
    }

    async fn get(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Option<Record>, EngineError> {
        Ok(self.read_one(key, context).await?.answer)
    }

    async fn query(&self, query: &Query, context: ReadContext) -> Result<Page, EngineError> {
        Ok(self.read_path(query, context).await?.answer)
    }

    async fn get_aged(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Aged<Option<Record>>, EngineError> {
        self.read_one(key, context).await
    }

    async fn query_aged(
        &self,
        query: &Query,
        context: ReadContext,
    ) -> Result<Aged<Page>, EngineError> {
        self.read_path(query, context).await
    }

    async fn scan(&self, scan: &Scan) -> Result<ScanPage, EngineError> {
        self.read_scope(scan).await
    }

    async fn journal_end(&self) -> Result<Position, EngineError> {
        self.end_of_journal().await
    }

    async fn journal_read(
        &self,
        from: &Position,
        limit: usize,
    ) -> Result<JournalPage, EngineError> {
        self.read_journal(from, limit).await
    }

    async fn raise_fence(
        &self,
        fence: Fence,
        term: MoverTerm,
        now: Timestamp,
    ) -> Result<Seal, EngineError> {
        self.place(fence.collection)?;
        self.guards().raise(fence, &term, now).await?;
        let sealed = self.end_of_journal().await;
        let position = sealed.map_err(|error| EngineError::OutcomeUnknown {
            reason: format!("the fence stands, but its seal could not be read: {error}"),
        })?;
        Ok(Seal { position })
    }

    async fn claim_term(&self, term: MoverTerm) -> Result<(), EngineError> {
        self.guards().claim(&term).await
    }

    async fn restore(&self, image: Record, context: WriteContext) -> Result<Outcome, EngineError> {
        let put = Change::PutImage {
            image: image.clone(),
        };
        validate(&put, &context)?;
        self.restore_alone(&image, &context).await
    }

    async fn condemn(
        &self,
        keys: &[RecordKey],
        context: WriteContext,
    ) -> Result<Vec<Condemned>, EngineError> {
        validate_forgetting(keys.len(), &context)?;
        self.condemn_some(keys, &context).await
    }

    async fn forget(
        &self,
        condemned: &[Condemned],
        context: WriteContext,
    ) -> Result<u64, EngineError> {
        validate_forgetting(condemned.len(), &context)?;
        self.forget_some(condemned, &context).await
    }

    async fn find_strays(&self, search: &StraySearch) -> Result<StrayPage, EngineError> {
        self.find_fields(search).await
    }

    async fn is_stray(&self, stray: &Stray, _now: Timestamp) -> Result<bool, EngineError> {
        self.is_field_altered(stray).await
    }

    async fn mend_stray(&self, stray: &Stray, _now: Timestamp) -> Result<StrayEnd, EngineError> {
        self.mend_field(stray).await
    }

    async fn maintain(&self, work: Maintenance) -> Result<Maintained, EngineError> {
        self.collect(work).await
    }
}
