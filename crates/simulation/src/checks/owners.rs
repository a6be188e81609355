//! One key, one write owner: every router's write is applied where its map
//! says, and not after a newer map has given the key to another. Generations
//! only rise.

use engine_api::Authority;

use crate::recording::{Applied, History};

pub fn check(history: &History) -> Vec<String> {
    let mut breaches = generations(history);
    for applied in &history.applied {
        let changed = applied.images.iter().any(|(before, after)| before != after);
        if changed {
            breaches.extend(misplaced(history, applied));
        }
    }
    breaches
}

fn generations(history: &History) -> Vec<String> {
    let mut breaches = Vec::new();
    for pair in history.maps.windows(2) {
        let (from, to) = (pair[0].map.generation, pair[1].map.generation);
        if to != from.next() {
            breaches.push(format!("map {to} was published after map {from}"));
        }
    }
    if let Some(last) = history.maps.last() {
        for (collection, map) in &last.map.collections {
            if !map.frozen.is_empty() {
                breaches.push(format!("{collection} stayed frozen"));
            }
        }
    }
    breaches
}

fn misplaced(history: &History, applied: &Applied) -> Option<String> {
    let Authority::Router { generation } = applied.context.authority else {
        return None;
    };
    let published = |published: &&crate::recording::Published| published.moment < applied.moment;
    let known = history.maps.iter().filter(published);
    let under = known
        .clone()
        .find(|published| published.map.generation == generation);
    let Some(under) = under else {
        return Some(format!(
            "a write came under map {generation}, which nobody published"
        ));
    };
    applied.changes.iter().find_map(|change| {
        let key = change.key();
        if under.map.owner(key).ok() != Some(&applied.shard) {
            return Some(format!(
                "{key} was written at {}, not at its owner",
                applied.shard
            ));
        }
        if under.map.is_frozen(key) != Ok(false) {
            return Some(format!(
                "{key} was written under map {generation}, which froze it"
            ));
        }
        // Without a fence in the store stragglers land; they must not be acknowledged.
        if history.by_lease.contains(&applied.shard) {
            return None;
        }
        let other_owner = known.clone().find(|published| {
            published.map.generation > generation
                && published.map.owner(key).ok() != Some(&applied.shard)
        })?;
        Some(format!(
            "{key} was written at {} under map {generation} after map {}",
            applied.shard, other_owner.map.generation
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use layout::{Collection, Scope};
    use router::Edit;

    use super::*;
    use crate::checks::story::{Story, revision, router_context, shard};
    use crate::recording::Published;
    use crate::scenery::{Marks, cart, cart_header, create, first_map};

    /// Carts move from a to b: map 1, frozen in map 2, moved in map 3.
    fn moved() -> Story {
        let mut story = Story::begin();
        let serving = [shard("a")];
        let first = first_map(|_| &serving);
        let freeze = Edit::Freeze { scope: Scope::All };
        let frozen = first.edited(&[(Collection::Carts, freeze)]).unwrap();
        let give = Edit::Move {
            scope: Scope::All,
            to: shard("b"),
        };
        let thaw = Edit::Thaw { scope: Scope::All };
        let moved = frozen
            .edited(&[(Collection::Carts, give), (Collection::Carts, thaw)])
            .unwrap();
        for map in [first, frozen, moved] {
            let moment = story.history.note("map".to_owned());
            story.history.maps.push(Published {
                moment,
                map: Arc::new(map),
            });
        }
        story
    }

    fn writes_at_a(story: &mut Story, generation: u64) {
        let header = cart_header("ada", "active", &Marks::default());
        let change = create(&cart("ada"), header.clone(), vec![]);
        let record = engine_api::Record {
            key: cart("ada"),
            header: engine_api::Header {
                revision: revision(2),
                cleared: revision(1),
                content: engine_api::Content::Live(header),
            },
            parts: Default::default(),
        };
        story.applies(
            change,
            router_context(revision(2), generation),
            None,
            Some(record),
        );
    }

    #[test]
    fn the_former_owner_takes_no_more_writes() {
        for generation in 1..=4 {
            let mut story = moved();
            assert!(check(&story.history).is_empty());
            writes_at_a(&mut story, generation);
            assert_eq!(check(&story.history).len(), 1, "under map {generation}");
        }
    }

    #[test]
    fn a_reused_generation_and_a_lasting_freeze_are_found() {
        let mut story = moved();
        story.history.maps.remove(1);
        assert_eq!(check(&story.history).len(), 1);
        let mut story = moved();
        story.history.maps.remove(2);
        assert_eq!(check(&story.history).len(), 1);
    }
}
