//! Listings: pages of an access path over one shard or all of them (W31).
//!
//! Every record is taken from its owner under one generation; when the
//! generation has changed by the time all shards have answered, the page is
//! read again. During a move a record stands on two shards, so that a page put
//! together under two maps would show both copies or neither.

use engine_api::{
    Aged, Because, Cursor, Freshness, PAGE_RECORDS_MAX, Page, Query, ReadContext, Record, Served,
};
use futures::future::join_all;
use layout::{Field, Value};

use crate::error::RouterError;
use crate::map::{CollectionMap, Map, MapError, ShardName};
use crate::router::{Router, of_shard};
use crate::serving::Owner;

/// What one shard gave for a page.
struct Share {
    records: Vec<(Cursor, Record)>,
    /// How far the shard was read, if there may be more behind it.
    read_to: Option<Cursor>,
    served: Served,
}

impl Router {
    /// One page in the path's order. A page may be short and still have a
    /// `next` when a shard holds many records that are not its own.
    pub async fn query(&self, query: &Query) -> Result<Page, RouterError> {
        Ok(self.query_aged(query, Freshness::Latest).await?.answer)
    }

    /// The same for a reader who may be shown something older, and how it was come by.
    pub async fn query_aged(
        &self,
        query: &Query,
        freshness: Freshness,
    ) -> Result<Aged<Page>, RouterError> {
        let mut retries = 0;
        for _ in 0..=self.limits.listing_restarts_max {
            self.in_time()?;
            match self.query_once(query, freshness).await {
                Ok(Some(page)) => return Ok(page),
                Ok(None) => self.counts.listing_restarts.add_one(),
                Err(error) => self.retry_read(&mut retries, error).await?,
            }
        }
        Err(RouterError::MapUnsteady {
            times: self.limits.listing_restarts_max,
        })
    }

    /// `None`: the map changed under the listing.
    async fn query_once(
        &self,
        query: &Query,
        freshness: Freshness,
    ) -> Result<Option<Aged<Page>>, RouterError> {
        let held = self.current.held();
        let map = held.map;
        let Some(passage) = self.set_out(&map)? else {
            return Ok(None);
        };
        let (freshness, because) = self.within_the_map(freshness, held.since);
        let mut page = self.page(&map, query, freshness).await?;
        page.served = Served::Latest(because).and(page.served);
        let owner = Owner::of_collection(&map, query.path.shape().collection)?;
        let stands = self.still_stands(&passage, owner).await?;
        Ok(stands.then_some(page))
    }

    async fn page(
        &self,
        map: &Map,
        query: &Query,
        freshness: Freshness,
    ) -> Result<Aged<Page>, RouterError> {
        let collection = map.collection(query.path.shape().collection)?;
        let context = ReadContext {
            now: self.world.now(),
            freshness,
        };
        let shards = shards_for(collection, query)?;
        let shares = shards
            .iter()
            .map(|shard| self.share(collection, shard, query, context));
        let shares = join_all(shares)
            .await
            .into_iter()
            .collect::<Result<Vec<Share>, _>>()?;
        let served = shares.iter().map(|share| share.served);
        let served = served.reduce(Served::and);
        Ok(Aged {
            served: served.unwrap_or(Served::Latest(Because::Asked)),
            answer: merge(query, shares),
        })
    }

    /// Reads on until the shard has given a full page of its own records.
    async fn share(
        &self,
        collection: &CollectionMap,
        shard: &ShardName,
        query: &Query,
        context: ReadContext,
    ) -> Result<Share, RouterError> {
        let _place = self.enter(shard)?;
        let limit = page_limit(query);
        let mut share = Share {
            records: Vec::new(),
            read_to: query.after.clone(),
            served: Served::Latest(Because::Asked),
        };
        for _ in 0..self.limits.listing_pages_max {
            let part = Query {
                after: share.read_to.take(),
                limit,
                ..query.clone()
            };
            let page = self.engine(shard).query_aged(&part, context).await;
            self.settle(shard, &page);
            let page = page.map_err(of_shard(shard))?;
            share.served = share.served.and(page.served);
            let page = page.answer;
            let own = |record: &Record| collection.owner(&record.key.shard_key) == shard;
            let own = page.records.into_iter().filter(own);
            share
                .records
                .extend(own.map(|record| (Cursor::of(query.path, &record), record)));
            share.read_to = page.next;
            if share.records.len() >= limit || share.read_to.is_none() {
                break;
            }
        }
        Ok(share)
    }
}

/// The one shard that the question determines, or all of the collection's.
fn shards_for<'a>(
    collection: &'a CollectionMap,
    query: &Query,
) -> Result<Vec<&'a ShardName>, MapError> {
    let shape = query.path.shape();
    let given = |field: Field| -> Option<Value> {
        let equal = shape
            .equals
            .iter()
            .zip(&query.equals)
            .find(|(name, _)| **name == field);
        let only = shape
            .only
            .filter(|(name, _)| *name == field)
            .map(|(_, text)| Value::text(text));
        equal.map(|(_, value)| value.clone()).or(only)
    };
    match collection.shard_key_from(shape.collection, given) {
        Ok(key) => Ok(vec![collection.owner(&key)]),
        Err(MapError::ShardKeyFieldMissing { .. }) => Ok(collection.shards().into_iter().collect()),
        Err(error) => Err(error),
    }
}

/// The shares in one order, cut where the first of them was not read further:
/// behind that place a record of that shard might be missing.
fn merge(query: &Query, shares: Vec<Share>) -> Page {
    let path = query.path;
    let read_to = shares
        .iter()
        .filter_map(|share| share.read_to.clone())
        .min_by(|a, b| a.compare(b, path));
    let mut found: Vec<(Cursor, Record)> =
        shares.into_iter().flat_map(|share| share.records).collect();
    found.sort_by(|(a, _), (b, _)| a.compare(b, path));
    if let Some(read_to) = &read_to {
        found.retain(|(cursor, _)| cursor.compare(read_to, path).is_le());
    }
    let limit = page_limit(query);
    let full = found.len() > limit || (found.len() == limit && read_to.is_some());
    found.truncate(limit);
    let next = if full {
        found.last().map(|(cursor, _)| cursor.clone())
    } else {
        read_to
    };
    Page {
        records: found.into_iter().map(|(_, record)| record).collect(),
        next,
    }
}

fn page_limit(query: &Query) -> usize {
    query.limit.clamp(1, PAGE_RECORDS_MAX)
}
