//! Reading orders that may be live, in the history, or in both.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use engine_api::{
    Aged, Cursor, EngineError, Freshness, PAGE_RECORDS_MAX, Page, Query, ReadContext, Record,
    RecordId, Remedy, SharedRecord,
};
use layout::{AccessPath, Collection, Value};
use model::{OrderId, UserId};
use router::{MapError, RouterError};

use super::OrderHistory;
use crate::error::ShopError;
use crate::records::order_hints;
use crate::shop::Shop;

/// How often the history is asked while it is not available.
const READ_TRIES_MAX: u32 = 5;
const READ_PAUSE_MS: u64 = 10;

impl Shop {
    /// The order as the history has it; without a history, none.
    pub(crate) async fn archived_order(
        &self,
        history: Option<&OrderHistory>,
        id: &OrderId,
        user: Option<&UserId>,
    ) -> Result<Option<SharedRecord>, ShopError> {
        let Some(history) = history else {
            return Ok(None);
        };
        let name =
            RecordId::new(id.as_str()).expect("the model's ids are as short as the engine's");
        let hints = order_hints(id, user);
        let found = match self.router.map().key_for(Collection::Orders, name, &hints) {
            Ok(key) => {
                let get = || history.engine.get(&key, self.latest());
                self.of_history(history, get).await?
            }
            Err(MapError::ShardKeyFieldMissing { .. }) => {
                let path = AccessPath::by_id(Collection::Orders);
                let query = Query::first(path, vec![Value::text(id.as_str())], 1);
                self.archived_page(history, &query).await?.records.pop()
            }
            Err(error) => return Err(ShopError::Store(error.into())),
        };
        let live = found.filter(|record| record.live_at(self.now()).is_some());
        Ok(live.map(SharedRecord::from))
    }

    /// A page over both, each order once. The live ones are asked first: what the
    /// feed moves in between is met twice, and never missed.
    pub(crate) async fn page_with_history(
        &self,
        history: &OrderHistory,
        query: &Query,
        freshness: Freshness,
    ) -> Result<Aged<Page>, ShopError> {
        let live = self.router.query_aged(query, freshness).await?;
        let archived = self.archived_page(history, query).await?;
        Ok(live.map(|live| merged(query, [live, archived])))
    }

    async fn archived_page(
        &self,
        history: &OrderHistory,
        query: &Query,
    ) -> Result<Page, ShopError> {
        let ask = || history.engine.query(query, self.latest());
        self.of_history(history, ask).await
    }

    /// What the feed has put is durable, and the live order is removed after it: a
    /// history that may lag could miss what the live orders gave up.
    fn latest(&self) -> ReadContext {
        ReadContext {
            now: self.now(),
            freshness: Freshness::Latest,
        }
    }

    async fn of_history<T, F>(
        &self,
        history: &OrderHistory,
        ask: impl Fn() -> F,
    ) -> Result<T, ShopError>
    where
        F: Future<Output = Result<T, EngineError>>,
    {
        let shard = &history.shard;
        let mut tries = 1;
        loop {
            self.router.in_time()?;
            let place = self.router.enter(shard)?;
            let answer = ask().await;
            self.router.settle(shard, &answer);
            drop(place);
            match answer {
                Ok(answer) => return Ok(answer),
                Err(error)
                    if may_go_again(&error)
                        && tries < READ_TRIES_MAX
                        && self.router.may_go_again(Some(shard)) =>
                {
                    tries += 1;
                    let pause = Duration::from_millis(READ_PAUSE_MS);
                    self.world.sleep(pause).await;
                }
                Err(source) => {
                    return Err(ShopError::Store(RouterError::Engine {
                        shard: shard.clone(),
                        source,
                    }));
                }
            }
        }
    }
}

fn may_go_again(error: &EngineError) -> bool {
    matches!(error.remedy(), Remedy::Retry | Remedy::ReadBack)
}

/// Both pages in one order, of each order the newest, cut where the first of them
/// was not read further.
fn merged(query: &Query, pages: [Page; 2]) -> Page {
    let path = query.path;
    let read_to = pages
        .iter()
        .filter_map(|page| page.next.clone())
        .min_by(|a, b| a.compare(b, path));
    let mut newest: BTreeMap<RecordId, Record> = BTreeMap::new();
    for record in pages.into_iter().flat_map(|page| page.records) {
        let known = newest.get(&record.key.id);
        if known.is_none_or(|known| known.header.revision < record.header.revision) {
            newest.insert(record.key.id.clone(), record);
        }
    }
    let mut found: Vec<(Cursor, Record)> = newest
        .into_values()
        .map(|record| (Cursor::of(path, &record), record))
        .filter(|(cursor, _)| {
            let within = |read_to| cursor.compare(read_to, path).is_le();
            read_to.as_ref().is_none_or(within)
        })
        .collect();
    found.sort_by(|(a, _), (b, _)| a.compare(b, path));
    let limit = query.limit.clamp(1, PAGE_RECORDS_MAX);
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
