//! From an id to the record, wherever the layout keeps it.

use engine_api::{Aged, Freshness, RecordId, RecordKey, SharedRecord, Timestamp};
use layout::{Collection, Fields};
use router::MapError;

use crate::error::ShopError;
use crate::shop::Shop;

impl Shop {
    pub(crate) fn now(&self) -> Timestamp {
        self.world.now()
    }

    /// The full name of a record, routed as the map says. `header` holds what
    /// the layout may route by beside the id.
    pub(crate) fn key(
        &self,
        collection: Collection,
        id: &str,
        header: &Fields,
    ) -> Result<RecordKey, ShopError> {
        let key = self
            .router
            .map()
            .key_for(collection, record_id(id), header)
            .map_err(router::RouterError::from)?;
        Ok(key)
    }

    /// The live record. Where the id and `hints` do not say on which shard it
    /// is, every shard is asked.
    pub(crate) async fn find(
        &self,
        collection: Collection,
        id: &str,
        hints: &Fields,
    ) -> Result<Option<SharedRecord>, ShopError> {
        let found = self.find_aged(collection, id, hints, Freshness::Latest);
        Ok(found.await?.answer)
    }

    /// The same for who may be shown something older.
    pub(crate) async fn find_aged(
        &self,
        collection: Collection,
        id: &str,
        hints: &Fields,
        freshness: Freshness,
    ) -> Result<Aged<Option<SharedRecord>>, ShopError> {
        match self.router.map().key_for(collection, record_id(id), hints) {
            Ok(key) => Ok(self.router.get_aged(&key, freshness).await?),
            Err(MapError::ShardKeyFieldMissing { .. }) => {
                let id = record_id(id);
                let found = self.router.found(collection, &id, freshness);
                Ok(found.await?.map(|found| found.map(SharedRecord::from)))
            }
            Err(error) => Err(ShopError::Store(error.into())),
        }
    }
}

fn record_id(id: &str) -> RecordId {
    RecordId::new(id).expect("the model's ids are as short as the engine's")
}
