//! What carries finished orders to the history: the cargo of a feed.

use std::sync::Arc;

use async_trait::async_trait;
use engine_api::{Change, ControlStore, Engine, Record, RecordKey, Revision, Timestamp};
use feed::{Cargo, CargoError, Delivered, Feed, FeedConfig, FeedError, Limits};
use layout::{Collection, Field};
use model::OrderStatus;
use router::{Router, RouterError, ShardName};

use super::OrderHistory;
use super::rest::Permits;
use crate::records::status_text;
use crate::shop::Shop;

/// The feed that carries the finished orders of one shard to a history of the shop. Every process may run one for
/// every shard of live orders that the history's layout has.
pub fn archive_feed(
    shop: &Shop,
    history: &OrderHistory,
    shard: &ShardName,
    source: Arc<dyn Engine>,
    control: Arc<dyn ControlStore>,
    limits: Limits,
) -> Result<Feed, FeedError> {
    let archive_after_ms = shop.settings.archive_after_ms;
    let cargo = FinishedOrders {
        permits: Permits::new(history.clone(), shop.router().clone()),
        router: shop.router().clone(),
        world: shop.world.clone(),
        statuses: history.statuses.clone(),
        archive_after_ms,
    };
    Feed::new(FeedConfig {
        name: archive_feed_name(shard),
        source,
        target: history.engine.clone(),
        cargo: Arc::new(cargo),
        control,
        world: shop.world.clone(),
        limits: Limits {
            delay_ms: archive_after_ms,
            ..limits
        },
    })
}

/// The name of the feed of one shard, by which an operator asks for a rebuild.
pub fn archive_feed_name(shard: &ShardName) -> String {
    format!("order-history-{shard}")
}

/// Orders that are finished, with nothing left to be done.
#[derive(Debug)]
struct FinishedOrders {
    permits: Permits,
    router: Arc<Router>,
    world: Arc<dyn engine_api::World>,
    statuses: Vec<OrderStatus>,
    archive_after_ms: u64,
}

#[async_trait]
impl Cargo for FinishedOrders {
    fn collection(&self) -> Collection {
        Collection::Orders
    }

    /// Not while orders are on their way: the journal waits.
    async fn is_wanted(&self) -> Result<bool, CargoError> {
        let permit = self.permits.permit().await;
        Ok(permit.map_err(CargoError::of)?.is_some())
    }

    /// From the order's owner: a shard may hold orders that have moved away since,
    /// and changes that nobody was told of (W34).
    async fn read(
        &self,
        _source: &dyn Engine,
        key: &RecordKey,
        _now: Timestamp,
    ) -> Result<Option<Record>, CargoError> {
        let image = self.router.image(key).await.map_err(CargoError::of)?;
        Ok(image.map(engine_api::SharedRecord::into_record))
    }

    async fn confirm(&self, scanned: Record) -> Result<Option<Record>, CargoError> {
        let image = self.router.image(&scanned.key).await;
        let image = image.map_err(CargoError::of)?;
        Ok(image.map(engine_api::SharedRecord::into_record))
    }

    /// A mark is no finished order: it is what archiving leaves behind.
    fn load(&self, image: Record) -> Option<Record> {
        let header = image.header.content.live()?;
        let status = header.text(Field::Status)?;
        let finished = self.statuses.iter().any(|one| status_text(*one) == status);
        let settled = header.get(Field::Settlement).is_none();
        (finished && settled).then_some(image)
    }

    /// The history has it: the live order goes, unless it was changed meanwhile.
    async fn delivered(&self, loaded: &Record) -> Result<Delivered, CargoError> {
        if !self.is_ripe(loaded.header.revision) {
            return Ok(Delivered::NotYet);
        }
        let permit = self.permits.permit().await;
        let Some(generation) = permit.map_err(CargoError::of)? else {
            return Ok(Delivered::NotYet);
        };
        let removal = Change::Remove {
            key: loaded.key.clone(),
            expected: loaded.header.revision,
        };
        let removed = self
            .router
            .write_under(vec![removal], Revision::ZERO, generation);
        match removed.await {
            Ok(written) if written.outcome.is_done() => Ok(Delivered::Removed),
            Ok(_) => Ok(Delivered::Kept),
            Err(RouterError::OtherMap { .. }) => Ok(Delivered::NotYet),
            Err(error) => Err(CargoError::of(error)),
        }
    }
}

impl FinishedOrders {
    /// The mark of a removal must lie above every number that was drawn before the
    /// order's last change, on whatever clock: `shop.archive_after_ms` is longer than
    /// clocks may differ.
    fn is_ripe(&self, revision: Revision) -> bool {
        let age_us = self.world.now().unix_micros() - revision.time().unix_micros();
        let ripe_us = i64::try_from(self.archive_after_ms * 1_000).unwrap_or(i64::MAX);
        age_us >= ripe_us
    }
}
