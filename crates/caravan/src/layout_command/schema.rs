//! `caravan layout schema`: what the servers of a layout are set up with.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Result, bail};
use layout::Layout;
use layout::schema::Part;

use super::{read, refusal};

/// Refuses a layout that cannot be used: nothing is set up for it.
pub fn schema(file: &Path, parts: &[Part], out: &mut dyn Write) -> Result<()> {
    let layout = read(file)?;
    if let Some(refusal) = refusal(file, &layout::check(&layout)) {
        bail!("{refusal}");
    }
    let parts = if parts.is_empty() { &Part::ALL } else { parts };
    let statements = engine_statements(&layout);
    let text = layout::schema::schema(&layout, &statements, parts);
    write!(out, "{text}")?;
    Ok(())
}

/// What the engines make of the layout, by its own names for them. The embedded
/// engine, which is the one this program is built with, needs no statements.
fn engine_statements(_layout: &Layout) -> BTreeMap<String, Vec<String>> {
    BTreeMap::new()
}
