//! What a map does, and the record that stood before it.

use engine_api::{Authority, Generation};
use layout::{Collection, Scope};
use mover::Phase;
use router::{CollectionMap, Map};

use super::{Standing, standing};
use crate::recording::{Applied, History};

pub fn check(history: &History) -> Vec<String> {
    let mut breaches = Vec::new();
    for pair in history.maps.windows(2) {
        for collection in Collection::ALL {
            let before = pair[0].map.collections.get(&collection);
            let next = pair[1].map.collections.get(&collection);
            let (Some(before), Some(next)) = (before, next) else {
                continue;
            };
            if before == next {
                continue;
            }
            let records = standing(history, pair[1].moment);
            let about = Step {
                collection,
                generation: pair[1].map.generation,
                before,
                next,
                records,
            };
            let found = about.given_away().into_iter().chain(about.frozen());
            breaches.extend(found.map(|found| {
                let generation = about.generation;
                format!("map {generation} {found}")
            }));
        }
    }
    breaches.extend(history.applied.iter().filter_map(|it| served(history, it)));
    breaches
}

/// One collection, from one map to the next.
struct Step<'a> {
    collection: Collection,
    generation: Generation,
    before: &'a CollectionMap,
    next: &'a CollectionMap,
    records: Standing<'a>,
}

impl Step<'_> {
    fn given_away(&self) -> Option<String> {
        let (before, next) = (self.before, self.next);
        if before.cut == next.cut && before.pinned == next.pinned {
            return None;
        }
        let proven = self.announced(|phase| match phase {
            Phase::Frozen { proven, .. } => proven.as_ref().map(|proven| proven.generation),
            _ => None,
        });
        let Some(scope) = proven else {
            return Some("gives keys away without a proof for it".to_owned());
        };
        if !self.before.frozen.contains(scope) {
            return Some("gives keys away that were not frozen".to_owned());
        }
        let stays = self.next.frozen.contains(scope);
        stays.then(|| "gives keys away and leaves them frozen".to_owned())
    }

    fn frozen(&self) -> Option<String> {
        let new = |scope: &&Scope| !self.before.frozen.contains(scope);
        self.next.frozen.iter().find(new)?;
        let announced = self.announced(|phase| match phase {
            Phase::Frozen { generation, .. } => Some(*generation),
            _ => None,
        });
        let announced = announced.is_some();
        (!announced).then(|| "freezes what nobody has announced".to_owned())
    }

    /// What is moved by whoever has announced this very map.
    fn announced(&self, says: impl Fn(&Phase) -> Option<Generation>) -> Option<&Scope> {
        let states = self.records.values().map(|it| &it.record.state);
        let mut ours = states.filter(|state| state.plan.collection == self.collection);
        let state = ours.find(|state| says(&state.phase) == Some(self.generation))?;
        Some(state.plan.scope())
    }
}

/// A record that a mover changed where shoppers are served. By lease, an image of a straggler that nobody was told
/// of may come late.
fn served(history: &History, applied: &Applied) -> Option<String> {
    let Authority::Mover { term } = &applied.context.authority else {
        return None;
    };
    if history.by_lease.contains(&applied.shard) {
        return None;
    }
    let mut maps = history.maps.iter().rev();
    let map = maps.find(|published| published.moment < applied.moment)?;
    let is_served = |map: &Map, key| map.owner(key).ok() == Some(&applied.shard);
    let mut changed = applied.changes.iter().zip(&applied.images);
    let (change, _) = changed
        .find(|(change, (before, after))| before != after && is_served(&map.map, change.key()))?;
    let key = change.key();
    Some(format!(
        "{term} changed {key} at {}, which serves it",
        applied.shard
    ))
}
