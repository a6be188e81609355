//! A shard in a folder of the data directory.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use engine_embedded::{EmbeddedConfig, EmbeddedEngine};
use layout::{EngineKind, Layout};
use router::ShardName;

use super::Opened;
use crate::metered::Metered;

/// Blocks that each shard keeps in memory.
const SHARD_CACHE_BYTES: u64 = 64 * 1024 * 1024;

/// The shard as the layout wants it in a deployment of several engines.
pub fn open(directory: &Path, name: &ShardName, layout: &Layout) -> Result<Opened> {
    let engine = engine(directory, name, layout)?;
    Ok(Opened {
        engine: Arc::new(Metered::embedded(engine.clone())),
        control: Some(engine),
    })
}

pub fn engine(directory: &Path, name: &ShardName, layout: &Layout) -> Result<Arc<EmbeddedEngine>> {
    let here = |engine: &str| layout.engines[engine].kind == EngineKind::Embedded;
    let tables = layout
        .stores()
        .filter(|(_, store)| here(&store.engine))
        .flat_map(|(_, store)| store.tables.clone())
        .collect();
    let engine = EmbeddedEngine::open(EmbeddedConfig {
        path: directory.join(name.as_str()),
        tables,
        cache_bytes: SHARD_CACHE_BYTES,
    })?;
    Ok(Arc::new(engine))
}
