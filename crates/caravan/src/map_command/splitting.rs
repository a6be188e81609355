//! `caravan map split`: a range becomes two, which stay where they are.

use std::io::Write;

use anyhow::{Result, bail};
use engine_api::{RealWorld, Remedy, World};
use router::MapKeeper;

use super::standing;
use crate::arguments::SplitArguments;
use crate::config::Config;
use crate::ops::typed;
use crate::shards::{self, Shards};

/// How often the split is made anew because another map was published first.
const ATTEMPTS_MAX: u32 = 8;

pub fn split(config: &Config, wish: &SplitArguments, out: &mut dyn Write) -> Result<()> {
    let collection = typed::collection(&wish.collection)?;
    shards::runtime()?.block_on(async {
        let control = Shards::control(config).await?;
        let keeper = MapKeeper::new(control.clone());
        for _ in 0..ATTEMPTS_MAX {
            let map = standing(&control).await?;
            let at = typed::bound(&wish.at, &map.collection(collection)?.shard_key)?;
            let note = format!("{collection} are split at {at}");
            let next = map.split_range(collection, at.clone())?;
            let next = next.noted(RealWorld::new().now(), &note);
            match keeper.publish(&next).await {
                Ok(()) => {
                    writeln!(
                        out,
                        "generation {}: {note}; nothing has moved",
                        next.generation
                    )?;
                    return Ok(());
                }
                Err(error) if error.remedy() == Remedy::RefreshMap => {}
                Err(error) => return Err(error.into()),
            }
        }
        bail!("others published a map {ATTEMPTS_MAX} times in between: try again")
    })
}
