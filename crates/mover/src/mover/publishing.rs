//! Maps of a move: notices, freezes, cutovers and thaws, each one generation (W20), and
//! whoever has not acknowledged them yet.

use std::sync::Arc;
use std::time::Duration;

use engine_api::{Generation, Remedy};
use router::{Edit, HeldFor, KeeperError, LeaseSeen, Map, Standing, Waits};

use super::{Pass, Runner};
use crate::error::MoveError;
use crate::phase::{Event, Way};
use crate::plan::Plan;
use crate::preflight::is_all_at;
use crate::stall::Stall;

/// How often the leases are looked at for what processes tell.
const STALL_POLL: Duration = Duration::from_millis(50);

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

    /// Tells everybody that a cutover is near: they look for the next maps often from
    /// here on, so that the freeze is short.
    pub(super) async fn announce(&mut self, reason: &str) -> Result<Pass, MoveError> {
        for _ in 0..self.config.limits.publish_attempts_max {
            let map = self.load_map().await?;
            let next = self.next_map(&map, &[], reason)?.noticing();
            let generation = next.generation;
            if self.offer_map(next).await? == Offered::Published {
                self.work.noticed = Some((generation, self.config.world.elapsed()));
                self.event(Event::NoticePublished { generation }).await?;
                return Ok(Pass::Behind);
            }
        }
        Err(self.contended())
    }

    /// Whether everybody still looks often because of it. A notice of another process,
    /// or one that waited long for a lease to run out, is too old.
    pub(super) fn is_fresh(&self, notice: Generation) -> bool {
        let notice_ms_max = self.config.router_limits.notice_ms_max;
        let Some((_, at)) = self.work.noticed.filter(|(known, _)| *known == notice) else {
            return notice_ms_max == 0;
        };
        let age = self.config.world.elapsed().saturating_sub(at);
        notice_ms_max == 0 || age < Duration::from_millis(notice_ms_max / 2)
    }

    /// The map that follows `map` by the edits.
    pub(super) fn next_map(
        &self,
        map: &Map,
        edits: &[Edit],
        reason: &str,
    ) -> Result<Map, MoveError> {
        let collection = self.plan().collection;
        let edits: Vec<_> = edits
            .iter()
            .map(|edit| (collection, edit.clone()))
            .collect();
        let next = map.edited(&edits).map_err(KeeperError::Map)?;
        let note = format!("{}: {reason}", self.config.name);
        Ok(next.noted(self.config.world.now(), &note))
    }

    pub(super) async fn offer(
        &self,
        map: &Map,
        edits: &[Edit],
        reason: &str,
    ) -> Result<Offered, MoveError> {
        self.offer_map(self.next_map(map, edits, reason)?).await
    }

    async fn offer_map(&self, next: Map) -> Result<Offered, MoveError> {
        let next = Arc::new(next);
        let offered = self.offer_at_once(&next).await?;
        if offered == Offered::Published {
            self.remember(&next).await;
        }
        Ok(offered)
    }

    /// Nothing but the offer itself: shoppers wait for it.
    pub(super) async fn offer_at_once(&self, next: &Arc<Map>) -> Result<Offered, MoveError> {
        match self.keeper.publish_at_once(next).await {
            Ok(()) => {
                self.tell_router(next);
                Ok(Offered::Published)
            }
            Err(error) if error.remedy() == Remedy::RefreshMap => Ok(Offered::Overtaken),
            Err(error) => Err(error.into()),
        }
    }

    /// Whoever publishes the next map makes up for what fails here.
    pub(super) async fn remember(&self, map: &Map) {
        if let Err(error) = self.keeper.remember(map).await {
            tracing::debug!(%error, "a map is not in the history yet");
        }
    }

    /// The router of this process need not wait until it looks.
    fn tell_router(&self, map: &Arc<Map>) {
        if let Some(router) = &self.config.router
            && let Err(error) = router.install(map.clone())
        {
            tracing::debug!(%error, "this process cannot serve under the new map");
        }
    }

    /// A process that may still answer under an older generation.
    pub(super) async fn behind(&self, generation: Generation) -> Result<Option<String>, MoveError> {
        let seen = self.work.judge.look().await?;
        refuse_without_a_shard(self.plan(), &seen)?;
        let behind = seen.into_iter().find(|lease| lease.is_behind(generation));
        Ok(behind.map(|lease| lease.process))
    }

    /// What every process tells of the requests that it held. The keys are served again, so
    /// there is time to wait for it; who does not tell in time is named.
    pub(super) async fn gather_stalls(&self, frozen: Generation) -> Stall {
        let (limits, world) = (&self.config.limits, &self.config.world);
        let patience_ms = limits.stall_ms_max.min(limits.take_over_ms / 4);
        let until = world.elapsed() + Duration::from_millis(patience_ms);
        let of_freeze = |stalls: Vec<HeldFor>| {
            let own = stalls.into_iter().find(|held| held.frozen == frozen);
            own.map(|held| held.waits)
        };
        loop {
            let told: Vec<(String, Option<Waits>)> = match self.work.judge.look().await {
                // Without leases this process is the only one.
                Ok(leases) if leases.is_empty() => {
                    let own = self.config.router.iter();
                    let own = own.map(|router| of_freeze(router.stalls_by_freeze()));
                    own.map(|waits| ("this process".to_owned(), waits))
                        .collect()
                }
                Ok(leases) => {
                    let live = leases.into_iter();
                    let live = live.filter(|lease| lease.standing == Standing::Live);
                    live.map(|lease| (lease.process, of_freeze(lease.stalls)))
                        .collect()
                }
                Err(error) => {
                    tracing::warn!(%error, "the leases cannot be read: the stall is told without them");
                    Vec::new()
                }
            };
            let is_over = world.elapsed() >= until;
            if is_over || told.iter().all(|(_, waits)| waits.is_some()) {
                return Stall::of(told);
            }
            world.sleep(STALL_POLL).await;
        }
    }

    pub(super) fn is_frozen(&self, map: &Map) -> bool {
        let plan = self.plan();
        let collection = map.collection(plan.collection);
        collection.is_ok_and(|collection| collection.frozen.contains(plan.scope()))
    }

    /// Whether the map gives the keys to where this cutover leads.
    pub(super) fn is_cut_over(&self, map: &Map, way: &Way) -> bool {
        is_all_at(self.plan(), map, way.entered()).is_ok()
    }

    pub(super) fn contended(&self) -> MoveError {
        MoveError::Contended {
            what: "the map",
            times: self.config.limits.publish_attempts_max,
        }
    }
}

/// A process that lacks a shard of either end could not go on when the map names both (W44).
pub(super) fn refuse_without_a_shard(plan: &Plan, seen: &[LeaseSeen]) -> Result<(), MoveError> {
    for shard in plan.all_shards() {
        if let Some(lease) = seen.iter().find(|lease| lease.lacks(shard)) {
            return Err(MoveError::NotEverywhere {
                process: lease.process.clone(),
                shard: shard.clone(),
            });
        }
    }
    Ok(())
}
