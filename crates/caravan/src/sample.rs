//! The sample: a small shop, the same in every directory and on every day.
//!
//! It is generated, not stored: ids, names, prices and times follow from
//! counters alone. Every record is made by the model's rules and goes through
//! the router's one write path. Each step changes nothing when it is repeated,
//! so that a filling which was interrupted is completed by starting it again; a
//! note in the control store says when there is nothing left to do.

mod catalogue;

mod shoppers;

mod records;

mod placing;

mod read_back;

use std::future::Future;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use engine_api::{Change, ControlStore, Outcome, Revision, SetOutcome};
use router::{Map, Router};
use tokio::task::JoinSet;

use crate::progress::Progress;
use crate::shards::Shards;
use catalogue::SampleProduct;
use shoppers::Shoppers;

/// Raised when the generator makes other records.
const SAMPLE_NUMBER: u32 = 1;

/// The name of the note in the control store.
const NOTE_NAME: &str = "sample";

/// Records and orders that are written at the same time.
const WRITES_AT_ONCE_MAX: usize = 64;

#[derive(Debug)]
pub struct Sample {
    products: Vec<SampleProduct>,
    shoppers: Shoppers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Absent,
    /// By this very call.
    Written,
    Found,
}

/// How far a filling came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Filling,
    Filled,
}

impl Sample {
    pub fn generate() -> Result<Sample> {
        let products = catalogue::generate()?;
        let shoppers = Shoppers::generate(&products)?;
        Ok(Sample { products, shoppers })
    }

    /// Writes the sample unless it is there. May be interrupted anywhere and called again.
    pub async fn fill(&self, shards: &Shards) -> Result<Presence> {
        let control = shards.control.as_ref();
        let note = match read_note(control).await? {
            Some((Stage::Filled, _)) => return Ok(Presence::Found),
            Some((Stage::Filling, number)) => number,
            None => set_note(control, None, Stage::Filling).await?,
        };
        let map = shards.router.map();
        let creations = self.creations(&map)?;
        let total = creations.len() + self.shoppers.orders.len();
        let mut progress = Progress::begin("writing the sample", total);
        let router = &shards.router;
        at_once(creations, &mut progress, |change| {
            create(router.clone(), change)
        })
        .await?;
        at_once(self.shoppers.orders.clone(), &mut progress, |order| {
            placing::place(router.clone(), order)
        })
        .await?;
        progress.finish();
        set_note(control, Some(note), Stage::Filled).await?;
        Ok(Presence::Written)
    }

    /// Whether a complete sample is there; writes nothing.
    pub async fn presence(&self, shards: &Shards) -> Result<Presence> {
        Ok(match read_note(shards.control.as_ref()).await? {
            Some((Stage::Filled, _)) => Presence::Found,
            Some((Stage::Filling, _)) | None => Presence::Absent,
        })
    }

    /// Every record but the orders, which come about in steps.
    fn creations(&self, map: &Map) -> Result<Vec<Change>> {
        let products = self.products.iter();
        let sessions = self.shoppers.sessions.iter();
        let carts = self.shoppers.carts.iter();
        products
            .map(|product| records::product(map, product))
            .chain(sessions.map(|session| records::session(map, session)))
            .chain(carts.map(|cart| records::cart(map, cart)))
            .collect()
    }
}

/// Makes the record; one that an earlier filling made is left as it is.
async fn create(router: Arc<Router>, change: Change) -> Result<()> {
    let key = change.key().clone();
    match router.write(change, Revision::ZERO).await?.outcome {
        Outcome::Done { .. } | Outcome::Exists { .. } => Ok(()),
        refusal => bail!("{key} of the sample was refused ({refusal:?}): use an empty directory"),
    }
}

/// Runs the work on all items, a bounded number at a time; the first error ends it.
async fn at_once<T, W>(items: Vec<T>, progress: &mut Progress, work: impl Fn(T) -> W) -> Result<()>
where
    W: Future<Output = Result<()>> + Send + 'static,
{
    let mut running = JoinSet::new();
    for item in items {
        if running.len() >= WRITES_AT_ONCE_MAX {
            finish_one(&mut running, progress).await?;
        }
        running.spawn(work(item));
    }
    while !running.is_empty() {
        finish_one(&mut running, progress).await?;
    }
    Ok(())
}

async fn finish_one(running: &mut JoinSet<Result<()>>, progress: &mut Progress) -> Result<()> {
    if let Some(finished) = running.join_next().await {
        finished.context("writing the sample was cut short: start it again")??;
        progress.advance();
    }
    Ok(())
}

/// The note and its number in the control store.
async fn read_note(control: &dyn ControlStore) -> Result<Option<(Stage, u64)>> {
    let Some(value) = control.control_get(NOTE_NAME).await? else {
        return Ok(None);
    };
    let stages = [Stage::Filling, Stage::Filled];
    let stage = stages
        .into_iter()
        .find(|stage| note(*stage).as_bytes() == value.bytes);
    match stage {
        Some(stage) => Ok(Some((stage, value.number))),
        None => bail!(
            "the directory holds another sample than this program makes ({}): choose another directory",
            String::from_utf8_lossy(&value.bytes)
        ),
    }
}

async fn set_note(control: &dyn ControlStore, expected: Option<u64>, stage: Stage) -> Result<u64> {
    let bytes = note(stage).into_bytes();
    match control.compare_and_set(NOTE_NAME, expected, bytes).await? {
        SetOutcome::Set { number } => Ok(number),
        SetOutcome::Lost { .. } => bail!("someone else fills the directory: start again"),
    }
}

fn note(stage: Stage) -> String {
    match stage {
        Stage::Filling => format!("{SAMPLE_NUMBER} filling"),
        Stage::Filled => format!("{SAMPLE_NUMBER} filled"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use engine_api::{PartKey, Record, RecordId};
    use layout::{AccessPath, Collection, Fields};

    use super::*;
    use crate::shards;

    /// What the records hold, without the numbers of the changes that led there.
    type Contents = BTreeMap<(Collection, RecordId), (Option<Fields>, Vec<(PartKey, Fields)>)>;

    async fn open(directory: &Path) -> Shards {
        Shards::open_or_make(directory, Some(2)).await.unwrap()
    }

    async fn contents(sample: &Sample, router: &Router) -> Contents {
        let mut contents = Contents::new();
        for collection in Collection::ALL {
            for record in sample
                .found(router, AccessPath::by_id(collection))
                .await
                .unwrap()
            {
                contents.insert((collection, record.key.id.clone()), content(&record));
            }
        }
        contents
    }

    fn content(record: &Record) -> (Option<Fields>, Vec<(PartKey, Fields)>) {
        let parts = record
            .live_parts()
            .map(|(key, fields)| (key.clone(), fields.clone()));
        (record.header.content.live().cloned(), parts.collect())
    }

    #[test]
    fn a_filling_that_stopped_anywhere_is_completed_to_the_same_sample() {
        let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let sample = Sample::generate().unwrap();
        shards::runtime().unwrap().block_on(async {
            let whole = open(whole.path()).await;
            assert_eq!(sample.fill(&whole).await.unwrap(), Presence::Written);
            assert_eq!(sample.fill(&whole).await.unwrap(), Presence::Found);

            let broken = open(broken.path()).await;
            set_note(broken.control.as_ref(), None, Stage::Filling)
                .await
                .unwrap();
            let creations = sample.creations(&broken.router.map()).unwrap();
            let carts = sample.shoppers.carts.len();
            for change in &creations[..creations.len() - carts / 2] {
                create(broken.router.clone(), change.clone()).await.unwrap();
            }
            for (order, number) in sample.shoppers.orders.iter().zip(0..) {
                placing::tests::stop_after(&broken.router, order, number % 7).await;
            }
            assert_eq!(sample.presence(&broken).await.unwrap(), Presence::Absent);
            assert_eq!(sample.fill(&broken).await.unwrap(), Presence::Written);

            let expected = contents(&sample, &whole.router).await;
            assert_eq!(expected.len(), 80 + 120 + 300 + 80);
            assert!(contents(&sample, &broken.router).await == expected);
        });
    }
}
