//! Where finished orders go, which follows the layout that the map has them under.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Result, ensure};
use async_trait::async_trait;
use engine_api::ControlStore;
use layout::Collection;
use mover::{MoveState, Moved};
use router::ShardName;
use shop_service::{OrderHistory, Rest, RestError};

use super::super::deployed::history_of;
use super::super::keeps_orders;
use super::Deployment;
use crate::metered::Metered;

/// The journal has to reach back over it, and marks are kept for longer.
const ARCHIVE_AFTER_MS_MAX: u64 = 600_000;

/// The histories of the layouts, and who feeds them.
#[derive(Default)]
pub struct Archiving {
    /// Each of another layout. Which one counts, if any, is what the map says.
    pub histories: Vec<OrderHistory>,
    /// The shards that finished orders come from, each with the layout whose history they go to.
    pub sources: Vec<(ShardName, String)>,
}

/// Orders are at rest while no move of all of them is under way.
#[derive(Debug)]
struct NoMoveOfOrders {
    control: Arc<dyn ControlStore>,
}

#[async_trait]
impl Rest for NoMoveOfOrders {
    async fn are_orders_at_rest(&self) -> Result<bool, RestError> {
        let listed = mover::list(self.control.as_ref()).await;
        let listed = listed.map_err(|error| RestError {
            reason: error.to_string(),
        })?;
        let moves = |state: &MoveState| {
            state.plan.collection == Collection::Orders
                && matches!(state.plan.moved, Moved::Whole { .. })
                // No way back leads from where they are any more.
                && !(state.phase.is_over() || state.phase.is_tidying())
        };
        let mut begun = listed.iter().filter_map(|(_, record)| record.as_ref());
        Ok(!begun.any(|record| moves(&record.state)))
    }
}

impl Deployment {
    /// The histories of the layout that is served and of the one that is moved to. The shop looks into the one of the
    /// layout that the map names for orders, and archives only while they stay there.
    pub fn archiving(&self, engines: &BTreeMap<ShardName, Arc<Metered>>) -> Result<Archiving> {
        let mut archiving = Archiving::default();
        for plan in &self.plans {
            let Some((declared, name)) = history_of(&plan.layout)? else {
                continue;
            };
            self.check_archive_after()?;
            let (layout, name) = (&plan.layout.name, plan.called(&name));
            let rest = Arc::new(NoMoveOfOrders {
                control: self.control.store.clone(),
            });
            let engine = engines[&name].clone();
            let history = OrderHistory::new(name.clone(), engine, &declared.statuses)?;
            let history = history.of_layout(layout).resting(rest);
            let listed = self.roster.shards().iter();
            let added = listed.filter(|(_, listed)| listed.layout == *layout);
            let shards: BTreeSet<ShardName> = plan
                .shards
                .keys()
                .map(|it| plan.called(it))
                .chain(added.map(|(it, _)| it.clone()))
                .collect();
            let live = |shard: &ShardName| {
                *shard != name && engines.get(shard).is_some_and(|it| keeps_orders(it))
            };
            let sources = shards.into_iter().filter(live);
            archiving
                .sources
                .extend(sources.map(|shard| (shard, layout.clone())));
            archiving.histories.push(history);
        }
        Ok(archiving)
    }

    /// An order goes over when no request can be older than its last change, on whatever clock; two may differ by the
    /// limit either way.
    fn check_archive_after(&self) -> Result<()> {
        let (after, clocks) = (
            self.config.shop.archive_after_ms,
            self.config.router.clock_ahead_ms_max,
        );
        ensure!(
            (2 * clocks..=ARCHIVE_AFTER_MS_MAX).contains(&after),
            "shop.archive_after_ms is {after}: choose {} (twice router.clock_ahead_ms_max) to {ARCHIVE_AFTER_MS_MAX}",
            2 * clocks
        );
        Ok(())
    }
}
