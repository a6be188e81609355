//! The round of the derived rows (W9), collection by collection, shard by shard.

use engine_api::{
    Engine, EngineError, Patience, ScanPosition, Stray, StrayEnd, StrayPage, StraySearch,
};
use layout::{Collection, Scope};
use router::{RouterError, ShardName, SurveyPlace};

use super::care::Problem;
use super::report::Kind;
use super::{Place, Reconciler};
use crate::error::ShopError;
use crate::shop::Shop;

impl Reconciler<'_> {
    pub(super) async fn rows(
        &mut self,
        collection: Collection,
        place: &Place,
    ) -> Result<Option<Place>, ShopError> {
        let shards = self.shop.shards_with_rows(collection)?;
        let from = place.survey();
        let reached = |shard: &&ShardName| from.as_ref().is_none_or(|from| **shard >= from.shard);
        let Some(shard) = shards.iter().find(reached) else {
            return Ok(None);
        };
        let after = from.filter(|from| from.shard == *shard);
        let search = StraySearch {
            collection,
            scope: Scope::All,
            after: after.and_then(|from| from.after),
            limit: self.limits.page_records,
            patience: Patience::WithChanges,
            now: self.shop.now(),
        };
        let page = self.shop.find_strays(shard, &search).await?;
        self.report.read(page.looked_at);
        self.report.look(Kind::Row, page.looked_at);
        for stray in page.strays {
            let shard = shard.clone();
            self.take_care(Problem::Row { shard, stray }).await;
        }
        let at = |shard: &ShardName, after: Option<ScanPosition>| {
            let shard = shard.clone();
            place.round.at(SurveyPlace { shard, after })
        };
        let following = || shards.iter().find(|other| *other > shard);
        Ok(match page.next {
            Some(after) => Some(at(shard, Some(after))),
            None => following().map(|shard| at(shard, None)),
        })
    }
}

impl Shop {
    /// The owners of the collection, and the history, in the order of their names.
    fn shards_with_rows(&self, collection: Collection) -> Result<Vec<ShardName>, ShopError> {
        let mut shards = self.router.shards_of(collection)?;
        if collection == Collection::Orders
            && let Some(history) = self.history()
        {
            shards.push(history.shard().clone());
        }
        shards.sort();
        shards.dedup();
        Ok(shards)
    }

    async fn find_strays(
        &self,
        shard: &ShardName,
        search: &StraySearch,
    ) -> Result<StrayPage, ShopError> {
        match self.history_at(shard, search.collection) {
            Some(engine) => engine.find_strays(search).await.map_err(of_history(shard)),
            None => Ok(self.router.find_strays(shard, search).await?),
        }
    }

    pub(super) async fn mend_stray(
        &self,
        shard: &ShardName,
        stray: &Stray,
    ) -> Result<StrayEnd, ShopError> {
        match self.history_at(shard, stray.collection) {
            Some(engine) => {
                let mended = engine.mend_stray(stray, self.now()).await;
                mended.map_err(of_history(shard))
            }
            None => Ok(self.router.mend_stray(shard, stray).await?),
        }
    }

    /// The history is no shard of the map, and what its engine keeps of other collections
    /// is the router's.
    fn history_at(&self, shard: &ShardName, collection: Collection) -> Option<&dyn Engine> {
        let history = self.history()?;
        let is_history = history.shard() == shard && collection == Collection::Orders;
        is_history.then(|| history.engine())
    }
}

fn of_history(shard: &ShardName) -> impl FnOnce(EngineError) -> ShopError + '_ {
    move |source| {
        ShopError::Store(RouterError::Engine {
            shard: shard.clone(),
            source,
        })
    }
}
