//! What an engine needs to open, and why it may refuse to.

use std::time::Duration;

use engine_api::EngineError;
use engine_api::layout::{Collection, Layout, Table};

use crate::sharding::Sharding;

/// One MongoDB database as a place for records.
#[derive(Clone)]
pub struct MongoConfig {
    /// `mongodb://host:port,…/?replicaSet=name`
    pub uri: String,
    pub database: String,
    /// The tables of the collections that live here. An authority becomes a
    /// MongoDB collection, a derived table an index of it.
    pub tables: Vec<Table>,
    /// How a sharded deployment divides the collections; a replica set does not.
    pub sharding: Vec<Sharding>,
    /// How long to look for a primary before nothing is sent at all.
    pub selection_ms_max: u64,
    /// How long to wait for an answer before its outcome counts as unknown.
    pub answer_ms_max: u64,
    /// How long a read that may lag waits for a secondary to have caught up.
    pub secondary_ms_max: u64,
}

impl MongoConfig {
    pub fn new(
        uri: impl Into<String>,
        database: impl Into<String>,
        tables: Vec<Table>,
    ) -> MongoConfig {
        MongoConfig {
            uri: uri.into(),
            database: database.into(),
            tables,
            sharding: Vec::new(),
            selection_ms_max: 5_000,
            answer_ms_max: 10_000,
            secondary_ms_max: 300,
        }
    }

    /// What a layout keeps on the engine that it declares under this name.
    pub fn of_layout(
        layout: &Layout,
        engine: &str,
        uri: impl Into<String>,
        database: impl Into<String>,
    ) -> MongoConfig {
        let stores = || layout.stores().filter(|(_, store)| store.engine == engine);
        let tables = stores().flat_map(|(_, store)| store.tables.clone());
        MongoConfig {
            sharding: stores().map(|(of, _)| Sharding::of(of)).collect(),
            ..MongoConfig::new(uri, database, tables.collect())
        }
    }

    pub(crate) fn selection_max(&self) -> Duration {
        Duration::from_millis(self.selection_ms_max)
    }

    pub(crate) fn answer_max(&self) -> Duration {
        Duration::from_millis(self.answer_ms_max)
    }

    pub(crate) fn secondary_max(&self) -> Duration {
        Duration::from_millis(self.secondary_ms_max)
    }
}

/// Without the address, which may hold a password.
impl std::fmt::Debug for MongoConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MongoConfig")
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error(
        "the address of the replica set cannot be read ({reason}): write mongodb://host:port/?replicaSet=name"
    )]
    BadUri { reason: String },
    #[error(
        "no server answers at {addresses}: start the replica set, or correct the address; the driver says: {reason}"
    )]
    Unreachable { addresses: String, reason: String },
    #[error(
        "the replica set at {addresses} has no primary: start enough members for a majority, or initiate the set"
    )]
    NoPrimary { addresses: String },
    #[error(
        "the server at {address} is not a member of a replica set: start it with --replSet and initiate the set, because fences and journal need one"
    )]
    NotAReplicaSet { address: String },
    #[error(
        "the server at {address} is a member of the set {found}: write replicaSet={found} into the address, or ask another server"
    )]
    OtherSet { address: String, found: String },
    #[error(
        "the server does not let the user in ({reason}): correct name and password in the address, and authSource where the user was created in another database"
    )]
    WrongCredentials { reason: String },
    #[error(
        "the user may not do what is needed in database {database} ({reason}): grant readWrite and dbAdmin on it"
    )]
    NotAllowed { database: String, reason: String },
    #[error(
        "the server is too old ({found}): upgrade it to MongoDB {oldest} or newer, the oldest that Caravan is tested with",
        oldest = crate::connect::OLDEST_VERSION
    )]
    TooOld { found: String },
    #[error("{collection} have no authority table: mark one table of the layout as the authority")]
    NoAuthority { collection: Collection },
    #[error("{collection} have two authority tables, {first} and {second}: keep one")]
    TwoAuthorities {
        collection: Collection,
        first: String,
        second: String,
    },
    #[error("table {table} cannot be kept on MongoDB: {reason}")]
    TableRefused { table: String, reason: String },
    #[error(transparent)]
    Engine(#[from] EngineError),
}
