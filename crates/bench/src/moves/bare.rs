//! The bare loaders: as many records under way as the mover has, through the same driver, with nothing around them.

use std::time::Instant;

use anyhow::ensure;
use engine_api::layout::{Collection, Scope};
use engine_api::{Authority, Change, Engine, MoverTerm, Scan, WriteContext};
use engine_cassandra::Recording;
use futures::{StreamExt, TryStreamExt, stream};
use mongodb::bson::{Document, doc};
use mongodb::options::ReadConcern;

use super::loading::Rate;
use crate::orders::OrderNumber;

/// Embedded: scan a page, put its images, scan the next.
pub async fn embedded(
    source: &dyn Engine,
    target: &dyn Engine,
    term: MoverTerm,
) -> anyhow::Result<Rate> {
    let limits = mover::feed_limits();
    let mut scan = Scan {
        collection: Collection::Orders,
        scope: Scope::All,
        after: None,
        until: None,
        limit: limits.scan_records_max,
    };
    target.claim_term(term.clone()).await?;
    let begun = Instant::now();
    let mut records = 0;
    loop {
        let page = source.scan(&scan).await?;
        records += page.images.len() as u64;
        let puts = page.images.into_iter().map(|image| async {
            let context = WriteContext {
                authority: Authority::Mover { term: term.clone() },
                now: OrderNumber(0).at(),
                revision: image.newest_revision(),
            };
            let outcome = target.apply(Change::PutImage { image }, context).await?;
            ensure!(outcome.is_done(), "an image was answered by {outcome:?}");
            Ok(())
        });
        let puts: Vec<_> = puts.collect();
        at_once(puts).await?;
        match page.next {
            Some(next) => scan.after = Some(next),
            None => return Ok(Rate::of(records, begun.elapsed())),
        }
    }
}

/// MongoDB: a look whether the document is there, and the document. They were made before.
pub async fn mongo(
    orders: &mongodb::Collection<Document>,
    documents: &[Document],
) -> anyhow::Result<Rate> {
    let begun = Instant::now();
    let puts = documents.iter().map(|document| async move {
        let named = doc! { "_id": document.get("_id").cloned() };
        let found = orders.find_one(named).read_concern(ReadConcern::local());
        ensure!(found.await?.is_none(), "an order is there before its time");
        orders.insert_one(document).await?;
        Ok(())
    });
    let puts: Vec<_> = puts.collect();
    at_once(puts).await?;
    Ok(Rate::of(documents.len() as u64, begun.elapsed()))
}

/// Cassandra: the statements of one put, for every order.
pub async fn cassandra(put: &Recording, sample: OrderNumber, orders: u64) -> anyhow::Result<Rate> {
    let begun = Instant::now();
    let (sample_id, sample_user) = (sample.id(), sample.user());
    let puts = (0..orders).map(|number| {
        let (id, user) = (OrderNumber(number).id(), OrderNumber(number).user());
        let (sample_id, sample_user) = (sample_id.as_str(), sample_user.as_str());
        async move {
            let renamed = [(sample_id, id.as_str()), (sample_user, user.as_str())];
            Ok(put.replay(&renamed).await?)
        }
    });
    let puts: Vec<_> = puts.collect();
    at_once(puts).await?;
    Ok(Rate::of(orders, begun.elapsed()))
}

async fn at_once(puts: Vec<impl Future<Output = anyhow::Result<()>>>) -> anyhow::Result<()> {
    let window = mover::feed_limits().records_at_once_max;
    stream::iter(puts)
        .buffer_unordered(window)
        .try_collect::<()>()
        .await
}
