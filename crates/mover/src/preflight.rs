//! What must hold before a move begins, and while the keys are still the source's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine_api::{Engine, JournalKind, Stock};
use layout::{Collection, Scope, Slot};
use router::{CollectionMap, Cut, Map, MapError, ShardName};

use crate::error::{MoveError, Unfit};
use crate::plan::{FREEZE_MS_MAX, Plan, overlap};

pub type Shards = BTreeMap<ShardName, Arc<dyn Engine>>;

/// Everything but other moves, which the registry knows.
pub async fn preflight(plan: &Plan, map: &Map, shards: &Shards) -> Result<(), MoveError> {
    if !(1..=FREEZE_MS_MAX).contains(&plan.freeze_ms_max) {
        let freeze_ms_max = plan.freeze_ms_max;
        return Err(Unfit::Budget { freeze_ms_max }.into());
    }
    if plan.source == plan.target {
        let shard = plan.source.clone();
        return Err(Unfit::SameShard { shard }.into());
    }
    for shard in [&plan.source, &plan.target] {
        let engine = engine_of(shards, shard)?;
        let capabilities = engine.capabilities();
        let shard = shard.clone();
        if !capabilities.collections.contains(&plan.collection) {
            let collection = plan.collection;
            return Err(Unfit::NoTable { shard, collection }.into());
        }
        if plan.collection == Collection::Products && capabilities.stock == Stock::Unsupported {
            return Err(Unfit::NoStock { shard }.into());
        }
        if capabilities.journal == JournalKind::Unsupported {
            return Err(Unfit::NoJournal { shard }.into());
        }
    }
    is_all_on(plan, map, &plan.source)?;
    let collection = map.collection(plan.collection).map_err(Unfit::Map)?;
    if collection.frozen.iter().any(|it| overlap(it, &plan.scope)) {
        return Err(Unfit::Frozen.into());
    }
    // That both answer, and that their journals can be read from here.
    for shard in [&plan.source, &plan.target] {
        let engine = engine_of(shards, shard)?;
        let read = async { engine.journal_read(&engine.journal_end().await?, 1).await };
        read.await.map_err(|source| MoveError::Engine {
            shard: shard.clone(),
            source,
        })?;
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

/// Whether the map gives every key of the scope to the shard.
pub(crate) fn is_all_on(plan: &Plan, map: &Map, shard: &ShardName) -> Result<(), Unfit> {
    let collection = map.collection(plan.collection)?;
    let owners = match &plan.scope {
        Scope::All => collection.shards(),
        Scope::Keys(keys) => keys.iter().map(|key| collection.owner(key)).collect(),
        Scope::Slots(_) | Scope::Range { .. } => {
            // The cut moves, the pins stay: a pinned key would be copied and not moved.
            let inside = |key: &&layout::ShardKey| plan.scope.contains(key);
            if let Some(key) = collection.pinned.keys().find(inside) {
                let key = key.to_string();
                return Err(Unfit::PinnedInside { key });
            }
            owners_by_cut(plan, collection)?
        }
    };
    if owners.is_empty() {
        let collection = plan.collection;
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
    plan: &Plan,
    collection: &'a CollectionMap,
) -> Result<BTreeSet<&'a ShardName>, Unfit> {
    let other_cut = |wanted| MapError::OtherCut {
        collection: plan.collection,
        wanted,
    };
    match (&plan.scope, &collection.cut) {
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
