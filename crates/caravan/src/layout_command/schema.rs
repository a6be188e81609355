//! `caravan layout schema`: what the servers of a layout are set up with.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Result, bail};
use layout::Layout;
use layout::schema::{EngineSchema, Part};

use super::{read, refusal};

/// Refuses a layout that cannot be used: nothing is set up for it.
pub fn schema(file: &Path, parts: &[Part], out: &mut dyn Write) -> Result<()> {
    let layout = read(file)?;
    if let Some(refusal) = refusal(file, &layout::check(&layout)) {
        bail!("{refusal}");
    }
    let parts = if parts.is_empty() { &Part::ALL } else { parts };
    let text = layout::schema::schema(&layout, &engine_schemas(&layout), parts);
    write!(out, "{text}")?;
    Ok(())
}

/// Statements and tables of their own, by the engines that the binary is built with.
fn engine_schemas(_layout: &Layout) -> BTreeMap<String, EngineSchema> {
    BTreeMap::new()
}
