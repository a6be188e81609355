//! An order that somebody was told of is there at every moment after it: live at its
//! owner or in the archive, whoever looks, and found by everybody who asks for it.

use std::collections::{BTreeMap, BTreeSet};

use engine_api::Record;
use layout::Collection;
use router::{Map, ShardName};
use shop_service::{Noun, ShopError};

use crate::ledger::{Told, Wish};
use crate::recording::{History, Moment};
use crate::scenery::ARCHIVE;

/// Asked for after it was told of, and said not to be there.
pub(super) fn not_found(history: &History) -> Vec<String> {
    let told = told_of(history);
    let missed = history.deeds.iter().filter_map(|deed| {
        let (Wish::ReadOrder { order } | Wish::ChangeStatus { order, .. }) = &deed.wish else {
            return None;
        };
        let Told::Refused {
            why: ShopError::NotFound {
                noun: Noun::Order, ..
            },
        } = &deed.told
        else {
            return None;
        };
        let known = told.get(order.as_str())?;
        (*known < deed.invoked).then(|| {
            let at = deed.invoked.0;
            format!("{order} was told of and is not found by who asks at {at}")
        })
    });
    missed.collect()
}

/// Seen by nobody's request: after every change of an order, and under every new map.
pub(super) fn gone(history: &History) -> Vec<String> {
    let told = told_of(history);
    let mut places = Places::default();
    let mut breaches = Vec::new();
    let mut maps = history.maps.iter().peekable();
    for applied in &history.applied {
        while let Some(published) = maps.next_if(|published| published.moment < applied.moment) {
            places.map = Some(&published.map);
            breaches.extend(places.missing(&told, published.moment, |_| true));
        }
        let after = applied
            .images
            .iter()
            .filter_map(|(_, after)| after.as_ref());
        for image in after.filter(|image| image.key.collection == Collection::Orders) {
            places.put(&applied.shard, image);
            let id = image.key.id.as_str();
            breaches.extend(places.missing(&told, applied.moment, |other| other == id));
        }
    }
    breaches
}

/// Since when somebody knows of each order.
fn told_of(history: &History) -> BTreeMap<&str, Moment> {
    let mut told = BTreeMap::new();
    for deed in &history.deeds {
        if let (Told::Order { order, .. }, Some(ended)) = (&deed.told, deed.ended) {
            let since = told.entry(order.header().id.as_str()).or_insert(ended);
            *since = ended.min(*since);
        }
    }
    told
}

/// Where each order lives.
#[derive(Default)]
struct Places<'a> {
    map: Option<&'a Map>,
    /// The newest image of each, and where it is live.
    orders: BTreeMap<&'a str, (&'a Record, BTreeSet<&'a ShardName>)>,
}

impl<'a> Places<'a> {
    fn put(&mut self, shard: &'a ShardName, image: &'a Record) {
        let id = image.key.id.as_str();
        let (newest, live) = self
            .orders
            .entry(id)
            .or_insert_with(|| (image, BTreeSet::new()));
        *newest = image;
        match image.header.content.live() {
            Some(_) => live.insert(shard),
            None => live.remove(shard),
        };
    }

    fn missing(
        &self,
        told: &BTreeMap<&str, Moment>,
        now: Moment,
        looks_at: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let known = told
            .iter()
            .filter(|(id, since)| **since < now && looks_at(id));
        let gone = known.filter(|(id, _)| {
            self.orders
                .get(**id)
                .is_none_or(|(image, live)| !self.is_there(image, live))
        });
        gone.map(|(id, _)| format!("{id} was told of and is nowhere at {}", now.0))
            .collect()
    }

    fn is_there(&self, image: &Record, live: &BTreeSet<&ShardName>) -> bool {
        let Some(map) = self.map else { return true };
        let owner = map.owner(&image.key).ok();
        live.iter()
            .any(|shard| shard.as_str() == ARCHIVE || Some(*shard) == owner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use engine_api::{Change, Content};
    use model::OrderId;

    use super::super::stage::{acknowledged, order, record, wish};
    use super::*;
    use crate::checks::story::{Story, revision, router_context, shard};
    use crate::recording::Published;
    use crate::scenery::{create, first_map};

    fn placed() -> Story {
        let mut story = Story::begin();
        let serving = [shard("a")];
        let map = Arc::new(first_map(|_| &serving));
        let moment = story.history.note("map".to_owned());
        story.history.maps.push(Published { moment, map });
        applies(&mut story, "a", record(&order(1, 7), "created"));
        story.visits(Wish::PlaceOrder(wish(1)), acknowledged(&order(1, 7)));
        story
    }

    fn applies(story: &mut Story, at: &str, image: Record) {
        let change: Change = create(&image.key, Default::default(), vec![]);
        story.applies(change, router_context(revision(4), 1), None, Some(image));
        if let Some(applied) = story.history.applied.last_mut() {
            applied.shard = shard(at);
        }
    }

    fn removed() -> Record {
        let mut image = record(&order(1, 7), "delivered");
        image.header.content = Content::Removed;
        image
    }

    #[test]
    fn an_order_goes_only_when_the_archive_has_it() {
        let mut story = placed();
        applies(&mut story, ARCHIVE, record(&order(1, 7), "delivered"));
        applies(&mut story, "a", removed());
        assert_eq!(gone(&story.history), Vec::<String>::new());
        let mut story = placed();
        applies(&mut story, "a", removed());
        applies(&mut story, ARCHIVE, record(&order(1, 7), "delivered"));
        assert_eq!(gone(&story.history).len(), 1);
    }

    #[test]
    fn a_copy_at_a_shard_that_does_not_own_it_does_not_count() {
        let mut story = placed();
        applies(&mut story, "b", record(&order(1, 7), "delivered"));
        applies(&mut story, "a", removed());
        assert_eq!(gone(&story.history).len(), 1);
    }

    #[test]
    fn who_asks_for_an_order_that_was_told_of_finds_it() {
        let id: OrderId = order(1, 7).header().id.clone();
        let not_there = || Told::Refused {
            why: ShopError::NotFound {
                noun: Noun::Order,
                id: id.to_string(),
            },
        };
        let asks = || Wish::ReadOrder { order: id.clone() };
        let mut story = Story::begin();
        story.visits(asks(), not_there());
        story.visits(Wish::PlaceOrder(wish(1)), acknowledged(&order(1, 7)));
        assert_eq!(not_found(&story.history).len(), 0);
        story.visits(asks(), not_there());
        assert_eq!(not_found(&story.history).len(), 1);
    }
}
