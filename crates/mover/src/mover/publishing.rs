//! Maps of a move: notices, freezes, cutovers and thaws, each one generation (W20), and
//! whoever has not acknowledged them yet.

use std::sync::Arc;

use engine_api::{Generation, Remedy};
use router::{Edit, KeeperError, Map};

use super::Runner;
use crate::error::MoveError;
use crate::phase::Way;
use crate::preflight::is_all_on;

/// What became of a map that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offered {
    Published,
    /// Another map came first: this one was not published.
    Overtaken,
}

impl Runner<'_> {
    pub(super) async fn load_map(&self) -> Result<Arc<Map>, MoveError> {
        self.keeper.load().await?.ok_or(MoveError::NoMap)
    }

    /// The next map with nothing changed: for everybody to acknowledge.
    pub(super) async fn publish_notice(&mut self, reason: &str) -> Result<Generation, MoveError> {
        for _ in 0..self.config.limits.publish_attempts_max {
            let map = self.load_map().await?;
            if self.offer(&map, &[], reason).await? == Offered::Published {
                return Ok(map.generation.next());
            }
        }
        Err(self.contended())
    }

    /// Offers the map that follows `map` by the edits.
    pub(super) async fn offer(
        &self,
        map: &Map,
        edits: &[Edit],
        reason: &str,
    ) -> Result<Offered, MoveError> {
        let collection = self.plan().collection;
        let edits: Vec<_> = edits
            .iter()
            .map(|edit| (collection, edit.clone()))
            .collect();
        let next = map.edited(&edits).map_err(KeeperError::Map)?;
        let note = format!("{}: {reason}", self.config.name);
        let next = next.noted(self.config.world.now(), &note);
        match self.keeper.publish(&next).await {
            Ok(()) => {
                self.tell_router().await;
                Ok(Offered::Published)
            }
            Err(error) if error.remedy() == Remedy::RefreshMap => Ok(Offered::Overtaken),
            Err(error) => Err(error.into()),
        }
    }

    /// The router of this process need not wait until it looks.
    async fn tell_router(&self) {
        if let Some(router) = &self.config.router
            && let Err(error) = router.refresh().await
        {
            tracing::debug!(%error, "this process looks for the new map later");
        }
    }

    /// A process that may still answer under an older generation. Fails if one serves that could not go on when the
    /// map names both sides: it would have to take over a map with a shard that it does not have (W44).
    pub(super) async fn behind(
        &mut self,
        generation: Generation,
    ) -> Result<Option<String>, MoveError> {
        let seen = self.work.judge.look().await?;
        let plan = self.plan();
        for shard in [&plan.source, &plan.target] {
            if let Some(lease) = seen.iter().find(|lease| lease.lacks(shard)) {
                return Err(MoveError::NotEverywhere {
                    process: lease.process.clone(),
                    shard: shard.clone(),
                });
            }
        }
        let behind = seen.into_iter().find(|lease| lease.is_behind(generation));
        Ok(behind.map(|lease| lease.process))
    }

    pub(super) fn is_frozen(&self, map: &Map) -> bool {
        let plan = self.plan();
        let collection = map.collection(plan.collection);
        collection.is_ok_and(|collection| collection.frozen.contains(&plan.scope))
    }

    /// Whether the map gives the keys to where this cutover leads.
    pub(super) fn is_cut_over(&self, map: &Map, way: &Way) -> bool {
        let plan = self.plan();
        let (_, entered) = self.sides(way);
        is_all_on(plan, map, entered).is_ok()
    }

    pub(super) fn contended(&self) -> MoveError {
        MoveError::Contended {
            what: "the map",
            times: self.config.limits.publish_attempts_max,
        }
    }
}
