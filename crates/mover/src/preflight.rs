//! What must hold before a move begins, and while the keys are still the source's.

mod whole;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine_api::{Capabilities, Engine, JournalKind, Stock};
use layout::{Collection, Scope, Slot};
use router::{CollectionMap, Cut, Map, MapError, ShardName};

use crate::error::{MoveError, Unfit};
use crate::plan::{End, Moved, Plan, overlap};
use crate::side::{Role, Side};

pub(crate) use whole::PIECES_MAX;

pub type Shards = BTreeMap<ShardName, Arc<dyn Engine>>;

/// Everything but other moves, which the registry knows.
pub async fn preflight(plan: &Plan, map: &Map, shards: &Shards) -> Result<(), MoveError> {
    plan.check_budget()?;
    let sources = plan.shards(End::Source);
    if let Some(shard) = plan.shards(End::Target).intersection(&sources).next() {
        let shard = ShardName::clone(shard);
        return Err(Unfit::SameShard { shard }.into());
    }
    for end in [End::Source, End::Target] {
        for shard in plan.shards(end) {
            let capabilities = engine_of(shards, shard)?.capabilities();
            can_serve(plan.collection, shard, capabilities)?;
        }
    }
    is_all_at(plan, map, End::Source)?;
    if let Moved::Whole { source, target, .. } = &plan.moved {
        whole::check(plan.collection, source, target, shards)?;
        whole::check_histories(plan, shards).await?;
    }
    let collection = map.collection(plan.collection).map_err(Unfit::Map)?;
    let is_frozen = |scope: &Scope| overlap(scope, plan.scope());
    if collection.frozen.iter().any(is_frozen) {
        return Err(Unfit::Frozen.into());
    }
    has_room(plan, shards)?;
    // That both answer, and that their journals can be read from here.
    for end in [End::Source, End::Target] {
        let engine = engine_at(plan, end, Role::Entered, shards)?;
        let read = async { engine.journal_read(&engine.journal_end().await?, 1).await };
        read.await.map_err(|source| MoveError::Engine {
            end: plan.called(end),
            source,
        })?;
    }
    Ok(())
}

/// A copy that cannot be written is not begun. Whoever cannot tell is found out by the copy.
fn has_room(plan: &Plan, shards: &Shards) -> Result<(), MoveError> {
    for shard in plan.shards(End::Target) {
        if let Some(source) = engine_of(shards, shard)?.refuses_writes() {
            let end = shard.to_string();
            return Err(MoveError::Engine { end, source });
        }
    }
    Ok(())
}

fn can_serve(
    collection: Collection,
    shard: &ShardName,
    capabilities: &Capabilities,
) -> Result<(), Unfit> {
    let shard = shard.clone();
    if !capabilities.collections.contains(&collection) {
        return Err(Unfit::NoTable { shard, collection });
    }
    if collection == Collection::Products && capabilities.stock == Stock::Unsupported {
        return Err(Unfit::NoStock { shard });
    }
    if capabilities.journal == JournalKind::Unsupported {
        return Err(Unfit::NoJournal { shard });
    }
    Ok(())
}

pub(crate) fn engine_of<'a>(
    shards: &'a Shards,
    shard: &ShardName,
) -> Result<&'a Arc<dyn Engine>, Unfit> {
    shards.get(shard).ok_or_else(|| Unfit::UnknownShard {
        shard: shard.clone(),
    })
}

/// One end of the plan as one engine.
pub(crate) fn engine_at(
    plan: &Plan,
    end: End,
    role: Role,
    shards: &Shards,
) -> Result<Arc<dyn Engine>, Unfit> {
    let (placement, other) = match (&plan.moved, end) {
        (Moved::Keys { source, .. }, End::Source) => return Ok(engine_of(shards, source)?.clone()),
        (Moved::Keys { target, .. }, End::Target) => return Ok(engine_of(shards, target)?.clone()),
        (Moved::Whole { source, target, .. }, End::Source) => (source, target),
        (Moved::Whole { source, target, .. }, End::Target) => (target, source),
    };
    let side = Side::open(plan.collection, placement, other, role, shards)?;
    let side = match plan.history(end) {
        Some(history) => side.with_history(history, shards)?,
        None => side,
    };
    Ok(Arc::new(side))
}

/// Whether the map gives every key of the plan to this end.
pub(crate) fn is_all_at(plan: &Plan, map: &Map, end: End) -> Result<(), Unfit> {
    let collection = map.collection(plan.collection)?;
    match (&plan.moved, end) {
        (Moved::Keys { scope, source, .. }, End::Source) => {
            is_all_on(plan.collection, scope, collection, source)
        }
        (Moved::Keys { scope, target, .. }, End::Target) => {
            is_all_on(plan.collection, scope, collection, target)
        }
        (Moved::Whole { source, .. }, End::Source) => is_placed(collection, source),
        (Moved::Whole { target, .. }, End::Target) => is_placed(collection, target),
    }
}

fn is_placed(collection: &CollectionMap, placement: &CollectionMap) -> Result<(), Unfit> {
    match collection.placement() == *placement {
        true => Ok(()),
        false => Err(Unfit::PlacedOtherwise {
            layout: placement.layout.clone(),
        }),
    }
}

fn is_all_on(
    name: Collection,
    scope: &Scope,
    collection: &CollectionMap,
    shard: &ShardName,
) -> Result<(), Unfit> {
    let owners = match scope {
        Scope::All => collection.shards(),
        Scope::Keys(keys) => keys.iter().map(|key| collection.owner(key)).collect(),
        Scope::Slots(_) | Scope::Range { .. } => {
            // The cut moves, the pins stay: a pinned key would be copied and not moved.
            let inside = |key: &&layout::ShardKey| scope.contains(key);
            if let Some(key) = collection.pinned.keys().find(inside) {
                let key = key.to_string();
                return Err(Unfit::PinnedInside { key });
            }
            owners_by_cut(name, scope, collection)?
        }
    };
    if owners.is_empty() {
        let collection = name;
        return Err(MapError::EmptyScope { collection }.into());
    }
    match owners.into_iter().find(|owner| *owner != shard) {
        Some(other) => Err(Unfit::NotAtSource {
            source_shard: shard.clone(),
            other: other.clone(),
        }),
        None => Ok(()),
    }
}

fn owners_by_cut<'a>(
    name: Collection,
    scope: &Scope,
    collection: &'a CollectionMap,
) -> Result<BTreeSet<&'a ShardName>, Unfit> {
    let other_cut = |wanted| MapError::OtherCut {
        collection: name,
        wanted,
    };
    match (scope, &collection.cut) {
        (Scope::Slots(moved), Cut::Slots(runs)) => {
            let is_moved = |slot: &Slot| moved.iter().any(|range| range.contains(*slot));
            let owner = |slot: Slot| runs.iter().find(|run| run.slots.contains(slot));
            let owners = Slot::all().filter(is_moved).filter_map(owner);
            Ok(owners.map(|run| &run.shard).collect())
        }
        (Scope::Range { from, to }, Cut::Ranges(ranges)) => {
            let mut owners = BTreeSet::new();
            for (index, range) in ranges.iter().enumerate() {
                let piece = Scope::Range {
                    from: range.from.clone(),
                    to: ranges.get(index + 1).and_then(|next| next.from.clone()),
                };
                let wanted = Scope::Range {
                    from: from.clone(),
                    to: to.clone(),
                };
                if overlap(&piece, &wanted) {
                    owners.insert(&range.shard);
                }
            }
            Ok(owners)
        }
        (Scope::Range { .. }, Cut::Slots(_)) => Err(other_cut("ranges").into()),
        _ => Err(other_cut("slots").into()),
    }
}

#[cfg(test)]
mod tests {
    use engine_api::memory::MemoryEngine;

    use super::*;

    #[test]
    fn a_shard_that_cannot_keep_a_collection_gets_none_of_it() {
        let whole = MemoryEngine::default().capabilities().clone();
        let check = |collection: Collection, change: fn(&mut Capabilities), said: &str| {
            let mut capabilities = whole.clone();
            change(&mut capabilities);
            let shard = ShardName::new("moon").unwrap();
            let served = can_serve(collection, &shard, &capabilities);
            let told = served.map_or_else(|unfit| unfit.to_string(), |()| "served".to_owned());
            assert!(told.starts_with(said), "{told}");
        };
        let no_orders =
            |it: &mut Capabilities| it.collections.retain(|it| *it != Collection::Orders);
        check(Collection::Orders, no_orders, "moon keeps no orders");
        check(Collection::Carts, no_orders, "served");
        let no_stock = |it: &mut Capabilities| it.stock = Stock::Unsupported;
        check(Collection::Products, no_stock, "moon keeps no stock");
        check(Collection::Carts, no_stock, "served");
        let no_journal = |it: &mut Capabilities| it.journal = JournalKind::Unsupported;
        check(Collection::Carts, no_journal, "moon has no journal");
    }
}
