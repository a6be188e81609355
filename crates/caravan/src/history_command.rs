//! `caravan history`: the feeds of the order history, as an operator meets them.

use std::io::Write;

use anyhow::{Result, ensure};
use feed::{Phase, Progress};

use crate::config::Config;
use crate::move_command::runtime;
use crate::shards::Shards;
use crate::text::columns;

pub fn show(config: &Config, out: &mut dyn Write) -> Result<()> {
    runtime()?.block_on(async {
        let shards = open(config).await?;
        let mut rows = vec![["shard", "term", "phase"].map(str::to_owned)];
        for (shard, _) in shards.history_sources() {
            let name = shop_service::archive_feed_name(shard);
            let progress = feed::progress(shards.control.as_ref(), &name).await?;
            let (term, phase) = match &progress {
                Some(progress) => (progress.term.to_string(), described(progress)),
                None => (String::new(), "has never run".to_owned()),
            };
            rows.push([shard.to_string(), term, phase]);
        }
        write!(out, "{}", columns(&rows))?;
        Ok(())
    })
}

pub fn rebuild(config: &Config, out: &mut dyn Write) -> Result<()> {
    runtime()?.block_on(async {
        let shards = open(config).await?;
        for (shard, _) in shards.history_sources() {
            let name = shop_service::archive_feed_name(shard);
            // Of the layout that is moved to: it looks at everything by itself when it begins.
            let never_ran = feed::progress(shards.control.as_ref(), &name)
                .await?
                .is_none();
            if never_ran && shards.histories.len() > 1 {
                continue;
            }
            feed::ask_rebuild(shards.control.as_ref(), &name).await?;
            writeln!(
                out,
                "{shard}: whoever feeds the history looks at everything anew"
            )?;
        }
        Ok(())
    })
}

async fn open(config: &Config) -> Result<Shards> {
    let shards = Shards::open(config).await?;
    ensure!(
        !shards.histories.is_empty(),
        "there is no order history: name a layout that has one with --layout"
    );
    Ok(shards)
}

fn described(progress: &Progress) -> String {
    let phase = match &progress.phase {
        Phase::Rebuilding { from: None, .. } => "is about to look at everything",
        Phase::Rebuilding { after: None, .. } => "begins to look at everything",
        Phase::Rebuilding { .. } => "looks at everything",
        Phase::Following { .. } => "follows the journal",
        Phase::Lost { .. } => "has lost its position: run caravan history rebuild",
    };
    match progress.holder {
        Some(_) => phase.to_owned(),
        None => format!("{phase} (no process works for it)"),
    }
}
