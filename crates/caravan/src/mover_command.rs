//! `caravan mover`: a process that works for moves and serves nobody.
//!
//! It is a process like those that serve, with a lease of its own, so that it hears of every map and of every shard that is
//! added. What it copies is throttled by how busy the engines are: it sees no shopper.

use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use engine_api::{RealWorld, World};

use crate::config::Config;
use crate::logging;
use crate::metrics::MoveFigures;
use crate::serve::signals::{self, Stop};
use crate::serve::{Moves, Needs};
use crate::shards::{LATE_LOOK_EVERY, LateShards, Shards, uses_directory};

pub fn run(config: &Config, out: &mut dyn Write) -> Result<()> {
    ensure!(
        !config.is_directory_alone() && !uses_directory(config)?,
        "a data directory lets one process in, and that serves it: caravan serve works for its moves, too"
    );
    logging::start(&config.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the program cannot start its threads: check the limits of this user")?;
    runtime.block_on(work(config, out))
}

/// Until a signal; then every move is let go, so that another process goes on at once.
async fn work(config: &Config, out: &mut dyn Write) -> Result<()> {
    let stop = signals::listen()?;
    let mut shards = Shards::open(config).await?;
    let world: Arc<dyn World> = Arc::new(RealWorld::new());
    let moves = Moves::new(
        config,
        &shards,
        world.clone(),
        Arc::new(MoveFigures::default()),
        Arc::new(Needs::default()),
        None,
    )?;
    writeln!(
        out,
        "caravan works for moves as {} (shards: {})",
        config.process().as_str(),
        shards.engines.all().len()
    )?;
    out.flush()?;
    let mut asked = stop.clone();
    let moving = moves.run(async move { asked.asked().await });
    match shards.late.clone() {
        None => moving.await,
        Some(late) => {
            tokio::join!(moving, follow(late, world, stop));
        }
    }
    shards.leave().await;
    Ok(())
}

/// Opens shards that are added meanwhile.
async fn follow(late: LateShards, world: Arc<dyn World>, mut stop: Stop) {
    loop {
        if let Err(error) = late.look().await {
            tracing::warn!(%error, "the list of shards cannot be followed now");
        }
        tokio::select! {
            () = stop.asked() => return,
            () = world.sleep(LATE_LOOK_EVERY) => {}
        }
    }
}
