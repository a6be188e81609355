//! What the engine is told when it opens, and why it may refuse to.

use std::net::SocketAddr;
use std::time::Duration;

use layout::{Collection, Field, IdEncoding, ReadLevel, WriteLevel};

use crate::keyspace::Keyspace;

#[derive(Clone, Debug)]
pub struct CassandraConfig {
    pub contact_points: Vec<SocketAddr>,
    pub credentials: Option<Credentials>,
    /// Whose servers are asked first. `None`: any.
    pub local_datacentre: Option<String>,
    pub keyspace: Keyspace,
    pub schema: SchemaCare,
    pub request_timeout_ms: u64,
    /// After this a second server is asked, where asking twice does no harm.
    pub speculative_after_ms: u64,
    /// How long a reader of the journal waits for an entry that was begun and
    /// not settled before it takes its writer for dead. Above the request
    /// timeout, and above every timeout of the servers.
    pub unsettled_patience_ms: u64,
    /// How long an expired record is left alone before it is collected: above
    /// the clocks' difference and the longest request, because a touch that is
    /// under way must still find its record.
    pub collect_margin_s: u32,
    /// How far the clock of a server may be from ours (W5).
    pub clock_off_ms_max: u64,
}

#[derive(Clone)]
pub struct Credentials {
    pub user: String,
    pub password: String,
}

/// Who makes keyspace and tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaCare {
    /// The engine makes what is missing.
    Make,
    /// An operator has made them; what is missing is an error.
    Expect,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("layout {layout} has no Cassandra engine {engine:?}: name one that it declares")]
    NoSuchEngine { layout: String, engine: String },
    #[error("no contact points: name at least one server")]
    NoContactPoints,
    #[error("{name:?} is not a name here: use 1 to 48 of a-z, 0-9 and _, a letter first")]
    Name { name: String },
    #[error("keyspace {keyspace} has no copies: give a datacentre and at least one copy in it")]
    Replication { keyspace: String },
    #[error("{name} is zero: give at least 1")]
    Zero { name: &'static str },
    #[error(
        "unsettled_patience_ms is {patience_ms}: give more than request_timeout_ms, {timeout_ms}"
    )]
    Patience { patience_ms: u64, timeout_ms: u64 },
    #[error("{collection} are not kept on this engine: choose another engine for them")]
    Collection { collection: Collection },
    #[error(
        "{collection} have two stores on one engine: give the history a keyspace, and an engine, of its own"
    )]
    Stores { collection: Collection },
    #[error("{collection} have {count} authority tables: declare exactly one")]
    Authorities {
        collection: Collection,
        count: usize,
    },
    #[error("the authority {table} is not keyed by the record's id alone: this engine needs it so")]
    AuthorityKey { table: String },
    #[error("{field} is encoded as {encoding}: this engine keeps ids as text")]
    Encoding { field: Field, encoding: IdEncoding },
    #[error("table {table}: {reason}")]
    Table { table: String, reason: String },
    #[error("levels {read} and {write} are not Cassandra's: use one, local_quorum, quorum or all")]
    Level { read: ReadLevel, write: WriteLevel },
    #[error("no server answered at the contact points ({reason}): check addresses and servers")]
    Unreachable { reason: String },
    #[error("the servers refused the login ({reason}): check user and password")]
    Login { reason: String },
    #[error(
        "keyspace {keyspace} is missing: make it with the statements of `caravan layout schema`, or let the engine make it"
    )]
    MissingKeyspace { keyspace: String },
    #[error(
        "the schema could not be made or does not fit ({reason}): check the servers and the rights of the user"
    )]
    Schema { reason: String },
    #[error(
        "server {server} is Cassandra {found}, which is too old for {need}: upgrade to {least} or newer"
    )]
    TooOld {
        server: String,
        found: String,
        need: String,
        least: &'static str,
    },
    #[error(
        "server {server} has commitlog_sync {found}, and orders must survive its crash: set commitlog_sync to group or batch in its cassandra.yaml (a killed server was seen to lose acknowledged writes with periodic)"
    )]
    CommitLog { server: String, found: String },
    #[error(
        "the clock of server {server} is off by {off_ms} ms, at most {max_ms} ms are allowed: set it by NTP"
    )]
    Clock {
        server: String,
        off_ms: u64,
        max_ms: u64,
    },
}

impl CassandraConfig {
    /// What works on a network of one city.
    pub fn new(contact_points: Vec<SocketAddr>, keyspace: Keyspace) -> CassandraConfig {
        CassandraConfig {
            contact_points,
            credentials: None,
            local_datacentre: None,
            keyspace,
            schema: SchemaCare::Make,
            request_timeout_ms: 10_000,
            speculative_after_ms: 500,
            unsettled_patience_ms: 30_000,
            collect_margin_s: 60,
            clock_off_ms_max: 500,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), OpenError> {
        if self.contact_points.is_empty() {
            return Err(OpenError::NoContactPoints);
        }
        self.keyspace.validate()?;
        let counted = [
            ("request_timeout_ms", self.request_timeout_ms),
            ("speculative_after_ms", self.speculative_after_ms),
            ("clock_off_ms_max", self.clock_off_ms_max),
        ];
        if let Some((name, _)) = counted.into_iter().find(|(_, number)| *number == 0) {
            return Err(OpenError::Zero { name });
        }
        let (patience_ms, timeout_ms) = (self.unsettled_patience_ms, self.request_timeout_ms);
        if patience_ms <= timeout_ms {
            return Err(OpenError::Patience {
                patience_ms,
                timeout_ms,
            });
        }
        Ok(())
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        Duration::from_millis(self.request_timeout_ms)
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}
