//! Requests that carry a key made under another shard key.
//!
//! A move of a whole collection may change its shard key. Whoever made a key before it, and was held through the
//! freeze or kept a record, asks with values that say nothing about where the record is now. Such a key is told by the
//! number of its values; no move changes the fields and leaves their number as it was (`mover::preflight` sees to it).
//! The record has not changed its id, so that it is looked for by that, and the request goes on with the key it has
//! now. That happens here, under every caller, so that no caller can forget it and tell a shopper that a cart is gone.

use engine_api::{
    Aged, Because, Change, Freshness, Query, Record, RecordId, RecordKey, Served, SharedRecord,
};
use layout::{AccessPath, Collection, Fields, Value};

use crate::error::RouterError;
use crate::map::{Map, MapError};
use crate::router::Router;

/// What became of changes whose keys did not fit the map.
pub(crate) enum Rekeyed {
    Changes(Vec<Change>),
    /// This one changes a record that lives nowhere.
    Nowhere(Change),
}

/// Whether the values of the key are as many as the map routes by.
pub(crate) fn fits(map: &Map, key: &RecordKey) -> Result<bool, MapError> {
    let collection = map.collection(key.collection)?;
    Ok(key.shard_key.width() == collection.shard_key.len())
}

pub(crate) fn all_fit(map: &Map, changes: &[Change]) -> Result<bool, MapError> {
    for change in changes {
        if !fits(map, change.key())? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Router {
    /// The same changes of the same records, under the keys that these have now.
    pub(crate) async fn rekeyed(
        &self,
        map: &Map,
        changes: &[Change],
    ) -> Result<Rekeyed, RouterError> {
        let mut rekeyed = Vec::with_capacity(changes.len());
        for change in changes {
            let mut change = change.clone();
            if !fits(map, change.key())? {
                self.counts.rekeyed.add_one();
                match self.key_now(map, &change).await? {
                    Some(key) => *change.key_mut() = key,
                    None => return Ok(Rekeyed::Nowhere(change)),
                }
            }
            rekeyed.push(change);
        }
        Ok(Rekeyed::Changes(rekeyed))
    }

    async fn key_now(&self, map: &Map, change: &Change) -> Result<Option<RecordKey>, RouterError> {
        let key = change.key();
        let header = match change {
            Change::CreateIfAbsent { header, .. } | Change::ChangeIf { header, .. } => header,
            Change::Patch { .. }
            | Change::Remove { .. }
            | Change::Stock { .. }
            | Change::PutImage { .. } => &Fields::new(),
        };
        match map.key_for(key.collection, key.id.clone(), header) {
            Ok(key) => Ok(Some(key)),
            Err(MapError::ShardKeyFieldMissing { .. }) => {
                let found = self.found(key.collection, &key.id, Freshness::Latest);
                Ok(found.await?.answer.map(|record| record.key))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What is stored under the id, whatever the key says. Where every shard has to be
    /// asked, a mark counts as nothing.
    pub(crate) async fn image_by_id(
        &self,
        key: &RecordKey,
        freshness: Freshness,
    ) -> Result<Aged<Option<SharedRecord>>, RouterError> {
        self.counts.rekeyed.add_one();
        let map = self.map();
        match map.key_by_id(key.collection, key.id.clone()) {
            Ok(key) => Box::pin(self.image_aged(&key, freshness)).await,
            Err(MapError::ShardKeyFieldMissing { .. }) => {
                let found = self.found(key.collection, &key.id, freshness).await?;
                Ok(found.map(|found| found.map(SharedRecord::from)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The live record with this id, on whichever shard of the map it is.
    pub async fn found(
        &self,
        collection: Collection,
        id: &RecordId,
        freshness: Freshness,
    ) -> Result<Aged<Option<Record>>, RouterError> {
        let path = AccessPath::by_id(collection);
        let mut query = Query::first(path, vec![Value::text(id.as_str())], 1);
        let mut served = Served::Latest(Because::Asked);
        loop {
            let page = self.query_aged(&query, freshness).await?;
            served = served.and(page.served);
            let mut page = page.answer;
            let answer = match (page.records.pop(), page.next) {
                (Some(record), _) => Some(record),
                // Copies that are not their shard's own may stand before it.
                (None, Some(next)) => {
                    query = query.after(next);
                    continue;
                }
                (None, None) => None,
            };
            return Ok(Aged { answer, served });
        }
    }
}
