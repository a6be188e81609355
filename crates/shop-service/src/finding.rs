//! From an id to the record, wherever the layout keeps it.

use engine_api::{Query, RecordId, RecordKey, SharedRecord, Timestamp};
use layout::{AccessPath, Collection, Fields, Value};
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
        match self.router.map().key_for(collection, record_id(id), hints) {
            Ok(key) => Ok(self.router.get(&key).await?),
            Err(MapError::ShardKeyFieldMissing { .. }) => {
                let path = AccessPath::by_id(collection);
                let mut query = Query::first(path, vec![Value::text(id)], 1);
                loop {
                    let mut page = self.router.query(&query).await?;
                    match (page.records.pop(), page.next) {
                        (Some(record), _) => return Ok(Some(record.into())),
                        // Copies that are not their shard's own may stand before it.
                        (None, Some(next)) => query = query.after(next),
                        (None, None) => return Ok(None),
                    }
                }
            }
            Err(error) => Err(ShopError::Store(error.into())),
        }
    }
}

fn record_id(id: &str) -> RecordId {
    RecordId::new(id).expect("the model's ids are as short as the engine's")
}
