//! Every record of a collection, a page at a time, each as its owner holds it.
//!
//! For those who look after records without having been asked for one (W34). A record
//! that changes its owner meanwhile may be met twice or not at all: whoever acts on what
//! was met here reads it again, and whoever looks again meets the others.

use std::sync::Arc;

use engine_api::{
    Engine, PAGE_RECORDS_MAX, Record, Scan, ScanPosition, Stray, StrayEnd, StrayPage, StraySearch,
};
use layout::{Collection, Scope};

use crate::error::RouterError;
use crate::map::{MapError, ShardName};
use crate::router::{Router, of_shard};
use crate::serving::Owner;

/// How far a survey is: the shards follow one another in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurveyPlace {
    pub shard: ShardName,
    pub after: Option<ScanPosition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurveyPage {
    /// Marks and expired ones included.
    pub images: Vec<Record>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<SurveyPlace>,
}

impl Router {
    /// The page that begins at `from`. It may be empty and still have a `next`, where a
    /// shard holds records that are not its own.
    pub async fn survey(
        &self,
        collection: Collection,
        from: Option<&SurveyPlace>,
        limit: usize,
    ) -> Result<SurveyPage, RouterError> {
        let mut retries = 0;
        for _ in 0..=self.limits.listing_restarts_max {
            match self.survey_once(collection, from, limit).await {
                Ok(Some(page)) => return Ok(page),
                Ok(None) => self.counts.listing_restarts.add_one(),
                Err(error) => self.retry_read(&mut retries, error).await?,
            }
        }
        Err(RouterError::MapUnsteady {
            times: self.limits.listing_restarts_max,
        })
    }

    /// `None`: the map changed under the page.
    async fn survey_once(
        &self,
        collection: Collection,
        from: Option<&SurveyPlace>,
        limit: usize,
    ) -> Result<Option<SurveyPage>, RouterError> {
        let map = self.map();
        let Some(passage) = self.set_out(&map)? else {
            return Ok(None);
        };
        let owners = map.collection(collection)?;
        let shards = owners.shards();
        let place = |shard: &ShardName| SurveyPlace {
            shard: shard.clone(),
            after: None,
        };
        let reached = |shard: &&&ShardName| from.is_none_or(|from| **shard >= &from.shard);
        let Some(shard) = shards.iter().find(reached) else {
            return Ok(Some(SurveyPage {
                images: Vec::new(),
                next: None,
            }));
        };
        let scan = Scan {
            collection,
            scope: Scope::All,
            // A shard that went out of the map meanwhile leaves its place to the next.
            after: from
                .filter(|from| from.shard == **shard)
                .and_then(|from| from.after.clone()),
            until: None,
            limit: limit.clamp(1, PAGE_RECORDS_MAX),
        };
        let page = self.engine(shard).scan(&scan).await;
        let page = page.map_err(of_shard(shard))?;
        let owner = Owner::of_collection(&map, collection)?;
        if !self.still_stands(&passage, owner).await? {
            return Ok(None);
        }
        let next = match page.next {
            Some(after) => Some(SurveyPlace {
                shard: (*shard).clone(),
                after: Some(after),
            }),
            None => shards
                .iter()
                .find(|other| *other > shard)
                .map(|shard| place(shard)),
        };
        let own = |image: &Record| owners.owner(&image.key.shard_key) == *shard;
        Ok(Some(SurveyPage {
            images: page.images.into_iter().filter(own).collect(),
            next,
        }))
    }
}

impl Router {
    /// The shards that keep records of the collection.
    pub fn shards_of(&self, collection: Collection) -> Result<Vec<ShardName>, RouterError> {
        let map = self.map();
        let shards = map.collection(collection)?.shards();
        Ok(shards.into_iter().cloned().collect())
    }

    /// Rows on one shard that do not follow their records (W9), whoever owns these now.
    pub async fn find_strays(
        &self,
        shard: &ShardName,
        search: &StraySearch,
    ) -> Result<StrayPage, RouterError> {
        let engine = self.known_engine(shard)?;
        let mut retries = 0;
        loop {
            match engine.find_strays(search).await {
                Ok(page) => return Ok(page),
                Err(error) => {
                    self.retry_read(&mut retries, of_shard(shard)(error))
                        .await?
                }
            }
        }
    }

    /// Under the lease, so that nobody mends who sleeps through a move.
    pub async fn mend_stray(
        &self,
        shard: &ShardName,
        stray: &Stray,
    ) -> Result<StrayEnd, RouterError> {
        let engine = self.known_engine(shard)?;
        let mut retries = 0;
        for _ in 0..=self.limits.read_restarts_max {
            let map = self.map();
            let Some(_passage) = self.set_out(&map)? else {
                continue;
            };
            match engine.mend_stray(stray, self.world.now()).await {
                Ok(end) => return Ok(end),
                Err(error) => {
                    self.retry_read(&mut retries, of_shard(shard)(error))
                        .await?
                }
            }
        }
        Err(RouterError::MapUnsteady {
            times: self.limits.read_restarts_max,
        })
    }

    fn known_engine(&self, shard: &ShardName) -> Result<&Arc<dyn Engine>, RouterError> {
        let unknown = || MapError::UnknownShard {
            shard: shard.clone(),
        };
        Ok(&self.shards.get(shard).ok_or_else(unknown)?.engine)
    }
}
