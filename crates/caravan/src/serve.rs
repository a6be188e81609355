//! `caravan serve`: opens or makes the data directory, fills it if asked, and
//! shows what is in it. Nothing is served yet, and the last line says so.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::Result;

use crate::map_command;
use crate::sample::{Presence, Sample};
use crate::shards::{self, Shards};
use crate::text::heading;

/// What to do with the records of the directory before showing them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filling {
    Sample,
    AsItIs,
}

pub fn run(
    directory: &Path,
    shards: Option<u16>,
    filling: Filling,
    out: &mut dyn Write,
) -> Result<()> {
    shards::runtime()?.block_on(async {
        let shards = Shards::open_or_make(directory, shards).await?;
        let sample = Sample::generate()?;
        let presence = match filling {
            Filling::Sample => sample.fill(&shards).await?,
            Filling::AsItIs => sample.presence(&shards).await?,
        };
        show(directory, &shards, &sample, presence, out).await
    })
}

async fn show(
    directory: &Path,
    shards: &Shards,
    sample: &Sample,
    presence: Presence,
    out: &mut dyn Write,
) -> Result<()> {
    let map = shards.router.map();
    writeln!(out, "{}", heading("Map"))?;
    writeln!(out, "{}", map_command::describe(&map))?;
    writeln!(out, "{}", heading("Layout"))?;
    writeln!(out, "{}", layout::explain::explain(&shards.layout))?;
    writeln!(out, "{}", heading("Records"))?;
    if presence == Presence::Absent {
        let hint = "no sample here: caravan serve --sample fills the directory with one";
        writeln!(out, "{hint}\n")?;
    } else {
        writeln!(out, "{}", sample.read_back(&shards.router).await?)?;
    }
    let path = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    let count = map.shards().len();
    writeln!(out, "data: {} (shards: {count})", path.display())?;
    match presence {
        Presence::Written => writeln!(out, "sample: written now")?,
        Presence::Found => writeln!(out, "sample: found complete, not written again")?,
        Presence::Absent => {}
    }
    writeln!(
        out,
        "http: not part of this version yet, so nothing is served and caravan ends here"
    )?;
    Ok(())
}
