//! What must hold before a whole collection goes to another placement.

use engine_api::{Scan, Terms};
use layout::{Collection, Scope};
use router::{CollectionMap, Cut};

use super::{Shards, engine_of};
use crate::error::{MoveError, Unfit};
use crate::plan::{End, Plan};
use crate::side::Common;

/// Pieces and pins of one placement: the plan stands in the list of moves, which everybody reads every second.
pub(crate) const PIECES_MAX: usize = 256;

pub(super) fn check(
    collection: Collection,
    source: &CollectionMap,
    target: &CollectionMap,
    shards: &Shards,
) -> Result<(), Unfit> {
    for placement in [source, target] {
        let cut = match &placement.cut {
            Cut::Slots(runs) => runs.len(),
            Cut::Ranges(ranges) => ranges.len(),
        };
        let pieces = cut + placement.pinned.len();
        if pieces > PIECES_MAX {
            let layout = placement.layout.clone();
            return Err(Unfit::TooManyPieces { layout, pieces });
        }
    }
    // Keys that requests carry over the cutover are told by their width (`router::rekey`).
    let (one, other) = (&source.shard_key, &target.shard_key);
    if one != other && one.len() == other.len() {
        return Err(Unfit::SameWidth {
            fields: one.len(),
            collection,
        });
    }
    // A displaced mover's image is refused by its term, or by a mark (W21, W26).
    let common = Common::of(collection, [source, target]);
    for placement in [source, target] {
        if common.makes_keys_of(placement) {
            continue;
        }
        for shard in placement.shards() {
            if engine_of(shards, shard)?.capabilities().terms == Terms::Unsupported {
                return Err(Unfit::NoTerms {
                    shard: shard.clone(),
                    collection,
                });
            }
        }
    }
    Ok(())
}

/// A history is a store of its own: what is read there shows through where the live shards have nothing.
pub(super) async fn check_histories(plan: &Plan, shards: &Shards) -> Result<(), MoveError> {
    for end in [End::Source, End::Target] {
        let Some(history) = plan.history(end) else {
            continue;
        };
        let shard = history.clone();
        if plan.shards(end).contains(history) || plan.stores(end.other()).contains(history) {
            return Err(Unfit::SameShard { shard }.into());
        }
        let (engine, collection) = (engine_of(shards, history)?, plan.collection);
        if !engine.capabilities().collections.contains(&collection) {
            return Err(Unfit::NoTable { shard, collection }.into());
        }
        // That it answers.
        let scan = Scan {
            collection,
            scope: Scope::All,
            after: None,
            until: None,
            limit: 1,
        };
        engine
            .scan(&scan)
            .await
            .map_err(|source| MoveError::Engine {
                end: history.to_string(),
                source,
            })?;
    }
    Ok(())
}
