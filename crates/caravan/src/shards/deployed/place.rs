//! One shard, opened where it is.

use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use engine_api::Engine;
use engine_cassandra::{CassandraConfig, CassandraEngine, Keyspace};
use engine_mongo::{MongoConfig, MongoEngine};
use layout::{EngineDeclaration, EngineKind, Layout};
use router::ShardName;

use super::super::{Opened, embedded};
use super::address::CassandraAddress;
use crate::config::Config;
use crate::metered::Metered;

/// One shard to be opened.
pub(super) struct Place<'a> {
    pub layout: &'a Layout,
    pub engine: &'a str,
    pub name: &'a ShardName,
}

impl Place<'_> {
    pub async fn open(
        &self,
        declared: &EngineDeclaration,
        address: Option<&str>,
        config: &Config,
    ) -> Result<Opened> {
        let opened = match declared.kind {
            EngineKind::Embedded => embedded::open(&config.data, self.name, self.layout),
            EngineKind::Mongo => {
                let uri = address.unwrap_or_default();
                self.open_mongo(declared, uri, patience_ms(config)).await
            }
            EngineKind::Cassandra => self.open_cassandra(address.unwrap_or_default()).await,
            EngineKind::Memory => bail!("shard {}: memory is for tests", self.name),
        };
        opened.map_err(|error| anyhow!("shard {}: {error}", self.name))
    }

    async fn open_mongo(
        &self,
        declared: &EngineDeclaration,
        uri: &str,
        patience_ms: u64,
    ) -> Result<Opened> {
        let database = declared
            .keyspace
            .as_deref()
            .unwrap_or(layout::engine::KEYSPACE);
        let config = MongoConfig {
            selection_ms_max: patience_ms,
            ..MongoConfig::of_layout(self.layout, self.engine, uri, database)
        };
        let engine = Arc::new(MongoEngine::open(config).await?);
        Ok(Opened {
            engine: Arc::new(Metered::new(engine.clone())),
            control: Some(engine),
        })
    }

    async fn open_cassandra(&self, address: &str) -> Result<Opened> {
        let mut keyspace = Keyspace::of(self.layout, self.engine)?;
        let address = CassandraAddress::parse(address)?;
        if let Some(name) = address.keyspace {
            keyspace.name = name;
        }
        if let Some(replication) = address.replication {
            keyspace.replication = replication;
        }
        let config = CassandraConfig {
            credentials: address.credentials,
            local_datacentre: self.layout.engines[self.engine].local_datacentre.clone(),
            ..CassandraConfig::new(address.contact_points, keyspace)
        };
        let engine = CassandraEngine::open(config).await?;
        for warning in engine.warnings() {
            tracing::warn!(shard = %self.name, "{}", warning.remedy());
        }
        Ok(Opened {
            engine: Arc::new(Metered::new(Arc::new(engine) as Arc<dyn Engine>)),
            control: None,
        })
    }
}

/// How long one attempt may look for a server: all attempts of the router together end
/// before the request does, so that a lost server is told as lost and not as slow.
fn patience_ms(config: &Config) -> u64 {
    let attempts = u64::from(config.router.unavailable_retries_max) + 1;
    (config.http.request_ms_max / (attempts + 1)).max(1)
}
