//! What an engine needs to open, and why it may refuse to.

use std::time::Duration;

use engine_api::EngineError;
use engine_api::layout::{Collection, Table};

/// One MongoDB database as a place for records.
#[derive(Clone, Debug)]
pub struct MongoConfig {
    /// `mongodb://host:port,…/?replicaSet=name`
    pub uri: String,
    pub database: String,
    /// The tables of the collections that live here. An authority becomes a
    /// MongoDB collection, a derived table an index of it.
    pub tables: Vec<Table>,
    /// How long to look for a primary before nothing is sent at all.
    pub selection_ms_max: u64,
    /// How long to wait for an answer before its outcome counts as unknown.
    pub answer_ms_max: u64,
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
            selection_ms_max: 5_000,
            answer_ms_max: 10_000,
        }
    }

    pub(crate) fn selection_max(&self) -> Duration {
        Duration::from_millis(self.selection_ms_max)
    }

    pub(crate) fn answer_max(&self) -> Duration {
        Duration::from_millis(self.answer_ms_max)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error(
        "the address of the replica set cannot be read ({reason}): write mongodb://host:port/?replicaSet=name"
    )]
    BadUri { reason: String },
    #[error(
        "the server at {address} is not a member of a replica set: start it with --replSet and initiate the set, because fences and journal need one"
    )]
    NotAReplicaSet { address: String },
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
