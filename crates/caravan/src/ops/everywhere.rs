//! Whether every process that serves has both sides of a move open (W44). A mover waits for that as well; here it is
//! said at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use engine_api::{ControlStore, RealWorld, World};
use router::{LeaseJudge, Limits, ShardName};

/// Processes look for new shards every second.
const PATIENCE: Duration = Duration::from_secs(5);
/// One that was killed is known to be gone when its lease has run out under our eyes.
const LEASES_WAITED_FOR: u32 = 2;
const POLL: Duration = Duration::from_millis(200);

/// Of `folders` one process alone can have one open: the others are to end.
pub async fn wait(
    limits: &Limits,
    control: &Arc<dyn ControlStore>,
    shards: &BTreeSet<&ShardName>,
    folders: &BTreeSet<ShardName>,
) -> Result<()> {
    let world = Arc::new(RealWorld::new());
    let judge = LeaseJudge::new(control.clone(), world.clone(), limits);
    let patience = PATIENCE.max(Duration::from_millis(limits.lease_ms) * LEASES_WAITED_FOR);
    loop {
        let leases = judge.look().await?;
        let lacking = leases.iter().find_map(|lease| {
            let shard = shards.iter().find(|shard| lease.lacks(shard))?;
            Some((lease.process.clone(), (*shard).clone()))
        });
        let Some((process, shard)) = lacking else {
            return Ok(());
        };
        if world.elapsed() >= patience {
            if folders.contains(&shard) {
                bail!(
                    "shard {shard} is a folder, which one process alone can have open: end process {process} first; one \
                     that is gone is forgotten when its lease has run out"
                );
            }
            bail!(
                "process {process} does not have shard {shard} open: see its readiness, or end it; one that is gone is \
                 forgotten when its lease has run out"
            );
        }
        world.sleep(POLL).await;
    }
}
