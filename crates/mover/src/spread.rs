//! Which keys go where when a shard comes or goes. Pure: the plans that follow are ordinary moves.

use std::collections::{BTreeMap, BTreeSet};

use layout::{SLOT_COUNT, Scope, ShardKey, Slot, SlotRange};
use router::{CollectionMap, Cut, RangeStart, ShardName};

/// Keys of one collection that go one way, in one move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portion {
    pub scope: Scope,
    pub source: ShardName,
    pub target: ShardName,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpreadError {
    #[error("they are cut by ranges, which have no even share: move a range with --range")]
    ByRanges,
    #[error(
        "{key} is pinned to {pinned} inside of what {shard} would give away: move it with --unpin first"
    )]
    PinnedInside {
        key: String,
        pinned: ShardName,
        shard: ShardName,
    },
    #[error("no other shard is left to take the keys of {shard}: add one first")]
    NobodyLeft { shard: ShardName },
}

/// What the shard gets so that it has its 1/N of the slots: from each of the others as much as brings them level,
/// and nothing goes from one of the others to another. Slots with a pinned key stay where they are.
pub fn onto(map: &CollectionMap, shard: &ShardName) -> Result<Vec<Portion>, SpreadError> {
    let mut slots = slots_by_shard(map)?;
    let owned = slots.remove(shard).map_or(0, |own| own.len());
    let share = usize::from(SLOT_COUNT) / (slots.len() + 1);
    let pinned: BTreeSet<Slot> = map.pinned.keys().map(ShardKey::slot).collect();
    let mut sources: Vec<Source<'_>> = slots
        .iter()
        .map(|(shard, slots)| Source {
            shard,
            keeps: slots.len(),
            free: slots
                .iter()
                .filter(|slot| !pinned.contains(slot))
                .copied()
                .collect(),
            given: Vec::new(),
        })
        .collect();
    for _ in owned..share {
        let able = sources.iter_mut().filter(|source| !source.free.is_empty());
        // Of two that have as much, the first by name.
        let Some(most) = able.rev().max_by_key(|source| source.keeps) else {
            break;
        };
        most.keeps -= 1;
        most.given.extend(most.free.pop());
    }
    let portions = sources
        .into_iter()
        .filter(|source| !source.given.is_empty());
    Ok(portions
        .map(|source| Portion {
            scope: Scope::Slots(ranges_of(source.given)),
            source: source.shard.clone(),
            target: shard.clone(),
        })
        .collect())
}

/// Everything that the shard has, to the others, so that they have as much as each other as far as that goes: slots by
/// number, ranges whole. Keys that are pinned to it go to where the cut has them.
pub fn away(
    map: &CollectionMap,
    shard: &ShardName,
    others: &BTreeSet<ShardName>,
) -> Result<Vec<Portion>, SpreadError> {
    let others: BTreeSet<&ShardName> = others.iter().filter(|other| *other != shard).collect();
    if map.shards().contains(shard) && others.is_empty() {
        let shard = shard.clone();
        return Err(SpreadError::NobodyLeft { shard });
    }
    let mut portions = match &map.cut {
        Cut::Slots(_) => slots_away(map, shard, &others)?,
        Cut::Ranges(ranges) => ranges_away(ranges, shard, &others),
    };
    for (key, pinned) in &map.pinned {
        let inside = portions.iter().any(|portion| portion.scope.contains(key));
        if inside {
            return Err(SpreadError::PinnedInside {
                key: key.to_string(),
                pinned: pinned.clone(),
                shard: shard.clone(),
            });
        }
    }
    let mut pins: BTreeMap<&ShardName, Vec<ShardKey>> = BTreeMap::new();
    for (key, _) in map.pinned.iter().filter(|(_, pinned)| *pinned == shard) {
        pins.entry(map.owner_by_cut(key))
            .or_default()
            .push(key.clone());
    }
    portions.extend(pins.into_iter().map(|(target, keys)| Portion {
        scope: Scope::Keys(keys),
        source: shard.clone(),
        target: target.clone(),
    }));
    Ok(portions)
}

/// A shard that gives slots away.
struct Source<'a> {
    shard: &'a ShardName,
    /// How many it has left, those that stay included.
    keeps: usize,
    free: Vec<Slot>,
    given: Vec<Slot>,
}

fn slots_away(
    map: &CollectionMap,
    shard: &ShardName,
    others: &BTreeSet<&ShardName>,
) -> Result<Vec<Portion>, SpreadError> {
    let mut slots = slots_by_shard(map)?;
    let given = slots.remove(shard).unwrap_or_default();
    let mut has: BTreeMap<&ShardName, usize> = others
        .iter()
        .map(|other| (*other, slots.get(*other).map_or(0, Vec::len)))
        .collect();
    let mut gets: BTreeMap<&ShardName, usize> = BTreeMap::new();
    for _ in &given {
        let least = has.iter_mut().min_by_key(|(_, count)| **count);
        let (other, count) = least.expect("somebody is left to take them");
        *count += 1;
        *gets.entry(other).or_default() += 1;
    }
    let mut rest = given.as_slice();
    let portions = gets.into_iter().map(|(target, count)| {
        let (part, others) = rest.split_at(count);
        rest = others;
        Portion {
            scope: Scope::Slots(ranges_of(part.to_vec())),
            source: shard.clone(),
            target: target.clone(),
        }
    });
    Ok(portions.collect())
}

fn ranges_away(
    ranges: &[RangeStart],
    shard: &ShardName,
    others: &BTreeSet<&ShardName>,
) -> Vec<Portion> {
    let count = |other: &ShardName| ranges.iter().filter(|range| range.shard == *other).count();
    let mut has: BTreeMap<&ShardName, usize> =
        others.iter().map(|other| (*other, count(other))).collect();
    let ends = ranges.iter().skip(1).map(|next| next.from.clone());
    let ends = ends.chain([None]);
    let given = ranges.iter().zip(ends).filter(|(it, _)| it.shard == *shard);
    given
        .map(|(range, to)| {
            let least = has.iter_mut().min_by_key(|(_, count)| **count);
            let (target, count) = least.expect("somebody is left to take them");
            *count += 1;
            Portion {
                scope: Scope::Range {
                    from: range.from.clone(),
                    to,
                },
                source: shard.clone(),
                target: (*target).clone(),
            }
        })
        .collect()
}

fn slots_by_shard(map: &CollectionMap) -> Result<BTreeMap<ShardName, Vec<Slot>>, SpreadError> {
    let Cut::Slots(runs) = &map.cut else {
        return Err(SpreadError::ByRanges);
    };
    let mut slots: BTreeMap<ShardName, Vec<Slot>> = BTreeMap::new();
    for run in runs {
        let own = Slot::all().filter(|slot| run.slots.contains(*slot));
        slots.entry(run.shard.clone()).or_default().extend(own);
    }
    Ok(slots)
}

/// Slots as runs, in order.
fn ranges_of(mut slots: Vec<Slot>) -> Vec<SlotRange> {
    slots.sort_unstable();
    let mut ranges: Vec<SlotRange> = Vec::new();
    for slot in slots {
        match ranges.last_mut() {
            Some(range) if range.last.number() + 1 == slot.number() => range.last = slot,
            _ => ranges.push(SlotRange {
                first: slot,
                last: slot,
            }),
        }
    }
    ranges
}

#[cfg(test)]
mod tests;
