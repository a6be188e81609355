//! The sample: a small shop, the same in every directory.
//!
//! It is generated, not stored, and goes the way of every shopper: each product,
//! session, cart and order is an operation of the shop, done in a world of its own
//! whose clock stands at the moment it happened and whose chance follows from a
//! number. So ids, names, prices and the order of things are always the same, and
//! times are as far apart; only the moment they are counted from is that of the
//! first filling.
//!
//! Every step changes nothing when it is repeated, so that a filling which was
//! interrupted is completed by starting it again. A note in the control store says
//! from which moment, and when there is nothing left to do.

mod catalogue;

mod shoppers;

mod moment;

mod filling;

use anyhow::{Result, bail};
use engine_api::{ControlStore, RealWorld, SetOutcome, Timestamp, World};
use shop_service::Settings;

use crate::shards::Shards;
use catalogue::SampleProduct;
use filling::Filler;
use shoppers::Shoppers;

/// Raised when the generator makes other records.
const SAMPLE_NUMBER: u32 = 2;

/// The name of the note in the control store.
const NOTE_NAME: &str = "sample";

#[derive(Debug)]
pub struct Sample {
    products: Vec<SampleProduct>,
    shoppers: Shoppers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Absent,
    /// A filling did not come to its end.
    Begun,
    /// By this very call.
    Written,
    Found,
}

/// How far a filling came, and the moment its times are counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Note {
    Filling { from: Timestamp },
    Filled,
}

impl Sample {
    pub fn generate() -> Result<Sample> {
        let products = catalogue::generate()?;
        let shoppers = Shoppers::generate(&products)?;
        Ok(Sample { products, shoppers })
    }

    /// Writes the sample unless it is there. May be interrupted anywhere and called again.
    pub async fn fill(&self, shards: &Shards, settings: &Settings) -> Result<Presence> {
        self.fill_from(shards, settings, RealWorld::new().now())
            .await
    }

    /// Whether a sample is there; writes nothing.
    pub async fn presence(&self, shards: &Shards) -> Result<Presence> {
        Ok(match read_note(shards.control.as_ref()).await? {
            Some((Note::Filled, _)) => Presence::Found,
            Some((Note::Filling { .. }, _)) => Presence::Begun,
            None => Presence::Absent,
        })
    }

    async fn fill_from(
        &self,
        shards: &Shards,
        settings: &Settings,
        from: Timestamp,
    ) -> Result<Presence> {
        let control = shards.control.as_ref();
        let (from, number) = match read_note(control).await? {
            Some((Note::Filled, _)) => return Ok(Presence::Found),
            Some((Note::Filling { from }, number)) => (from, number),
            None => (from, set_note(control, None, Note::Filling { from }).await?),
        };
        Filler::new(shards, settings.clone(), from)
            .fill(self)
            .await?;
        set_note(control, Some(number), Note::Filled).await?;
        Ok(Presence::Written)
    }
}

impl Note {
    fn text(self) -> String {
        match self {
            Note::Filling { from } => format!("{SAMPLE_NUMBER} filling {}", from.unix_micros()),
            Note::Filled => format!("{SAMPLE_NUMBER} filled"),
        }
    }

    fn parse(text: &str) -> Option<Note> {
        let (number, stage) = text.split_once(' ')?;
        if number != SAMPLE_NUMBER.to_string() {
            return None;
        }
        match stage.split_once(' ') {
            None => (stage == "filled").then_some(Note::Filled),
            Some(("filling", micros)) => Some(Note::Filling {
                from: Timestamp::from_unix_micros(micros.parse().ok()?),
            }),
            Some(_) => None,
        }
    }
}

/// The note and its number in the control store.
async fn read_note(control: &dyn ControlStore) -> Result<Option<(Note, u64)>> {
    let Some(value) = control.control_get(NOTE_NAME).await? else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&value.bytes);
    match Note::parse(&text) {
        Some(note) => Ok(Some((note, value.number))),
        None => bail!(
            "the directory holds another sample than this program makes ({text}): choose another directory"
        ),
    }
}

async fn set_note(control: &dyn ControlStore, expected: Option<u64>, note: Note) -> Result<u64> {
    let bytes = note.text().into_bytes();
    match control.compare_and_set(NOTE_NAME, expected, bytes).await? {
        SetOutcome::Set { number } => Ok(number),
        SetOutcome::Lost { .. } => bail!("someone else fills the directory: start again"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use engine_api::{PAGE_RECORDS_MAX, Scan};
    use layout::{Collection, Scope};
    use model::{CategoryName, OrderStatus};
    use router::Limits;
    use shop_service::{PageWish, Shop, ShopConfig};

    use super::*;

    async fn open(directory: &Path, shards: u16) -> Shards {
        Shards::open_or_make(directory, Some(shards), Limits::default())
            .await
            .unwrap()
    }

    /// Everything the shop shows, as text, without the numbers of the changes that led there.
    async fn contents(shards: &Shards, from: Timestamp) -> Vec<String> {
        let shop = Shop::new(ShopConfig {
            router: shards.router.clone(),
            world: std::sync::Arc::new(moment::Moment::at(from, 0)),
            settings: Settings::default(),
        });
        let page = |after| PageWish {
            after,
            limit: PAGE_RECORDS_MAX,
        };
        let mut texts = Vec::new();
        for shelf in &catalogue::SHELVES {
            let category = CategoryName::parse(shelf.category).unwrap();
            let listing = shop.products_of_category(&category, None, None, page(None));
            for product in listing.await.unwrap().items {
                let product = &product.value;
                let stocks = product
                    .stocks()
                    .map(|(key, stock)| (key.zone.to_string(), stock.counts()));
                let stocks: Vec<_> = stocks.collect();
                texts.push(format!(
                    "{} {} {} {stocks:?}",
                    product.id(),
                    product.name,
                    product.price
                ));
            }
        }
        let orders = shop.orders_of_period(None, None, page(None)).await.unwrap();
        texts.extend(
            orders
                .items
                .iter()
                .map(|order| format!("{:?}", order.value)),
        );
        for collection in [Collection::Carts, Collection::Sessions] {
            let mut found = Vec::new();
            for engine in shards.engines.engines().values() {
                let scan = Scan {
                    collection,
                    scope: Scope::All,
                    after: None,
                    until: None,
                    limit: PAGE_RECORDS_MAX,
                };
                for image in engine.scan(&scan).await.unwrap().images {
                    let parts: Vec<_> = image.live_parts().collect();
                    found.push(format!(
                        "{} {:?} {parts:?}",
                        image.key.id, image.header.content
                    ));
                }
            }
            found.sort();
            texts.append(&mut found);
        }
        texts
    }

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let from = Timestamp::from_unix_micros(1_767_600_000_000_000);
        for note in [Note::Filled, Note::Filling { from }] {
            assert_eq!(Note::parse(&note.text()), Some(note));
        }
        for other in ["1 filled", "2 filling", "2 filled 3", "2"] {
            assert_eq!(Note::parse(other), None);
        }
    }

    #[tokio::test]
    async fn a_filling_that_stopped_anywhere_is_completed_to_the_same_sample() {
        let sample = Sample::generate().unwrap();
        let settings = Settings::default();
        // Not long ago: sessions and guests' carts expire.
        let from = RealWorld::new().now();
        let whole = tempfile::tempdir().unwrap();
        let whole = open(whole.path(), 1).await;
        let first = sample.fill_from(&whole, &settings, from).await.unwrap();
        assert_eq!(first, Presence::Written);
        let expected = contents(&whole, from).await;
        for shards in [1, 3] {
            let folder = tempfile::tempdir().unwrap();
            let broken = open(folder.path(), shards).await;
            let mut patience = Duration::from_millis(5);
            let mut interrupted = false;
            loop {
                let filling = sample.fill_from(&broken, &settings, from);
                match tokio::time::timeout(patience, filling).await {
                    Ok(Ok(filled)) => break assert_eq!(filled, Presence::Written),
                    // The last write of the one before arrived after this one had looked.
                    Ok(Err(error)) => {
                        let told = error.to_string();
                        assert!(told.contains("someone else fills"), "{told}");
                    }
                    Err(_) => {}
                }
                match sample.presence(&broken).await.unwrap() {
                    Presence::Begun => interrupted = true,
                    // On a busy machine it may not have come to its first write.
                    Presence::Absent => assert!(!interrupted, "what was begun is gone"),
                    presence => panic!("{presence:?} without having come to its end"),
                }
                patience = patience * 3 / 2;
            }
            assert!(interrupted, "the filling was never interrupted");
            let found = contents(&broken, from).await;
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found, expected, "with {shards} shards");
            }
            assert_eq!(found.len(), expected.len());
            let again = sample.fill_from(&broken, &settings, from).await.unwrap();
            assert_eq!(again, Presence::Found);
        }
    }

    #[tokio::test]
    async fn orders_stand_in_every_status_a_shopper_sees() {
        let folder = tempfile::tempdir().unwrap();
        let shards = open(folder.path(), 1).await;
        let sample = Sample::generate().unwrap();
        let from = RealWorld::new().now();
        sample.fill(&shards, &Settings::default()).await.unwrap();
        let texts = contents(&shards, from).await;
        use OrderStatus::{Cancelled, Created, Delivered, Paid, Returned, Shipped};
        for status in [Created, Paid, Shipped, Delivered, Cancelled, Returned] {
            let status = format!("status: {status:?}");
            assert!(
                texts.iter().any(|text| text.contains(&status)),
                "no {status}"
            );
        }
    }
}
