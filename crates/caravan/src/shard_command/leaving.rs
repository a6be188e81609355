//! `caravan shard remove`: a shard goes when nothing is left on it.

use std::io::Write;

use anyhow::{Context, Result, bail, ensure};
use router::ShardName;

use super::{Desk, keys_of};
use crate::arguments::NamedShard;
use crate::shards::Roster;

pub async fn remove(wish: &NamedShard, out: &mut dyn Write) -> Result<()> {
    let name = ShardName::new(&wish.name)?;
    let desk = Desk::open(&wish.place).await?;
    ensure!(
        !desk.deployment.names().contains(&name),
        "{name} stands in the layout file: drain it, and it is not used any more"
    );
    let roster = desk.roster().await?;
    let listed = roster.shards().get(&name).cloned();
    let listed = listed.with_context(|| {
        format!("no shard {name} was added: caravan shard list shows which were")
    })?;
    is_left(&desk, &name).await?;
    let control = desk.control.as_ref();
    Roster::change(control, |roster| roster.without(&name)).await?;
    // A move that began in between has made sure of the shard: it stays.
    if let Err(error) = is_left(&desk, &name).await {
        Roster::change(control, |roster| Ok(roster.back(&name, &listed))).await?;
        return Err(error);
    }
    writeln!(
        out,
        "{name}: removed; processes let go of it when they are started anew"
    )?;
    Ok(())
}

/// Whether nothing names it any more.
async fn is_left(desk: &Desk, name: &ShardName) -> Result<()> {
    let keys = keys_of(desk.map().await?.as_deref(), name);
    ensure!(
        keys.is_empty(),
        "{name} has {}: move them away first, as with caravan move start --drain {name}",
        keys.join(", ")
    );
    for (moving, record) in mover::list(desk.control.as_ref()).await? {
        let Some(record) = record else { continue };
        let plan = &record.state.plan;
        let named = plan.all_shards().contains(name);
        if named && !record.state.phase.is_over() {
            bail!(
                "move {moving} has not ended and names {name} ({}): complete, roll back or abort it first",
                record.state.phase.name()
            );
        }
    }
    Ok(())
}
