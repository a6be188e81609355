//! `caravan layout schema`: what the servers of a layout are set up with.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Result, bail};
use engine_cassandra::Keyspace;
use layout::engine::KEYSPACE;
use layout::schema::Part;
use layout::{EngineKind, Layout};

use super::{read, refusal};
use crate::secrets::masked;

/// Refuses a layout that cannot be used: nothing is set up for it.
pub fn schema(file: &Path, parts: &[Part], out: &mut dyn Write) -> Result<()> {
    let layout = read(file)?;
    if let Some(refusal) = refusal(file, &layout::check(&layout)) {
        bail!("{refusal}");
    }
    let parts = if parts.is_empty() { &Part::ALL } else { parts };
    let statements = engine_statements(&layout)?;
    let text = layout::schema::schema(&layout, &statements, parts);
    // Nodes are named by their addresses.
    write!(out, "{}", masked(&text))?;
    Ok(())
}

/// What the engines make of the layout, by its own names for them.
fn engine_statements(layout: &Layout) -> Result<BTreeMap<String, Vec<String>>> {
    let mut statements = BTreeMap::new();
    for (name, engine) in &layout.engines {
        let made = match engine.kind {
            EngineKind::Cassandra => {
                engine_cassandra::schema::statements(&Keyspace::of(layout, name)?)
            }
            EngineKind::Mongo => {
                let database = engine.keyspace.as_deref().unwrap_or(KEYSPACE);
                let commands = engine_mongo::commands(layout, name, database)?;
                commands.iter().map(ToString::to_string).collect()
            }
            EngineKind::Embedded | EngineKind::Memory => continue,
        };
        statements.insert(name.clone(), made);
    }
    Ok(statements)
}
