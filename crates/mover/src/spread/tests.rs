use engine_api::Generation;
use layout::{Collection, Field};
use proptest::prelude::*;
use router::{Edit, Map};

use super::*;

const CARTS: Collection = Collection::Carts;

fn shard(number: usize) -> ShardName {
    ShardName::new(format!("shard-{number}")).unwrap()
}

fn cut_by(cut: Cut) -> Map {
    let carts = CollectionMap::cut_by("memory", vec![Field::CartId], cut);
    Map::first(BTreeMap::from([(CARTS, carts)]))
}

fn carts(map: &Map) -> &CollectionMap {
    map.collection(CARTS).unwrap()
}

/// The map after every portion has been moved, each as a move would publish it.
fn moved(map: &Map, portions: &[Portion]) -> Map {
    let mut map = map.clone();
    for portion in portions {
        let edit = Edit::Move {
            scope: portion.scope.clone(),
            to: portion.target.clone(),
        };
        map = map.edited(&[(CARTS, edit)]).unwrap();
    }
    map
}

fn counts(map: &Map) -> BTreeMap<ShardName, usize> {
    let slots = slots_by_shard(carts(map)).unwrap();
    let count = |(shard, slots): (ShardName, Vec<Slot>)| (shard, slots.len());
    slots.into_iter().map(count).collect()
}

fn owners(map: &Map) -> Vec<ShardName> {
    let Cut::Slots(runs) = &carts(map).cut else {
        panic!("slots");
    };
    let owner = |slot| runs.iter().find(|run| run.slots.contains(slot));
    Slot::all()
        .map(|slot| owner(slot).unwrap().shard.clone())
        .collect()
}

#[test]
fn one_shard_after_another_gets_its_share_and_nothing_moves_between_the_old_ones() {
    let mut map = cut_by(Cut::even_slots(&[shard(1)]));
    for number in 2..=4 {
        let portions = onto(carts(&map), &shard(number)).unwrap();
        assert_eq!(portions.len(), number - 1, "from each of the others");
        let next = moved(&map, &portions);
        let changed = owners(&map).into_iter().zip(owners(&next));
        let changed: Vec<_> = changed.filter(|(old, new)| old != new).collect();
        assert!(changed.iter().all(|(_, new)| *new == shard(number)));
        let share = changed.len() as f64 / f64::from(SLOT_COUNT);
        assert!((share - 1.0 / number as f64).abs() < 0.02, "{share}");
        let counts = counts(&next);
        let (least, most) = (counts.values().min(), counts.values().max());
        assert!(most.unwrap() - least.unwrap() <= 2, "{counts:?}");
        map = next;
    }
    assert_eq!(map.generation, Generation(1 + 1 + 2 + 3));
    // Who has its share gets nothing more.
    assert_eq!(onto(carts(&map), &shard(4)), Ok(Vec::new()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the cut was: the new one comes within two points of its share, the others give as much as brings them
    /// level, and who gives is whoever has it.
    #[test]
    fn a_new_shard_gets_its_share_of_any_cut(owned in prop::collection::vec(1usize..6, 1..40)) {
        let names: Vec<ShardName> = owned.iter().map(|number| shard(*number)).collect();
        let map = cut_by(Cut::even_slots(&names));
        let before = counts(&map);
        let new = shard(9);
        let portions = onto(carts(&map), &new).unwrap();
        let from = owners(&map);
        for portion in &portions {
            prop_assert_eq!(&portion.target, &new);
            let Scope::Slots(ranges) = &portion.scope else { panic!("slots") };
            for slot in Slot::all().filter(|slot| ranges.iter().any(|range| range.contains(*slot))) {
                prop_assert_eq!(&from[usize::from(slot.number())], &portion.source);
            }
        }
        let after = counts(&moved(&map, &portions));
        let share = f64::from(u32::try_from(after[&new]).unwrap()) / f64::from(SLOT_COUNT);
        prop_assert!((share - 1.0 / (before.len() + 1) as f64).abs() < 0.02);
        // Nobody who gave has fewer left than somebody who gave less.
        let gave = |shard: &ShardName| before[shard] - after.get(shard).unwrap_or(&0);
        for one in before.keys().filter(|one| gave(one) > 0) {
            for other in before.keys() {
                let (left, others) = (after[one], after.get(other).copied().unwrap_or(0));
                prop_assert!(left + 1 >= others, "{one} has {left}, {other} has {others}");
            }
        }
    }

    #[test]
    fn a_drained_shard_keeps_nothing_and_the_others_come_level(owned in prop::collection::vec(1usize..6, 2..40)) {
        let names: Vec<ShardName> = owned.iter().map(|number| shard(*number)).collect();
        let map = cut_by(Cut::even_slots(&names));
        let drained = names[0].clone();
        let others: BTreeSet<ShardName> = (1..=6).map(shard).filter(|it| *it != drained).collect();
        let portions = away(carts(&map), &drained, &others).unwrap();
        prop_assert!(portions.iter().all(|portion| portion.source == drained));
        let after = moved(&map, &portions);
        prop_assert!(!after.shards().contains(&drained));
        let (before, after) = (counts(&map), counts(&after));
        let count = |of: &BTreeMap<ShardName, usize>, shard| of.get(shard).copied().unwrap_or(0);
        for one in others.iter().filter(|one| count(&after, one) > count(&before, one)) {
            for other in &others {
                prop_assert!(count(&after, one) <= count(&after, other) + 1);
            }
        }
    }
}

#[test]
fn a_slot_with_a_pinned_key_stays_and_a_drain_says_so() {
    let key = ShardKey::of_text("hot");
    let map = cut_by(Cut::even_slots(&[shard(1), shard(2)]));
    let cut_owner = carts(&map).owner_by_cut(&key).clone();
    let map = map.pin(CARTS, key.clone(), &shard(3)).unwrap();
    let portions = onto(carts(&map), &shard(4)).unwrap();
    assert!(portions.iter().all(|portion| !portion.scope.contains(&key)));
    let others = BTreeSet::from([shard(1), shard(2), shard(3)]);
    let refused = away(carts(&map), &cut_owner, &others).unwrap_err();
    assert!(
        matches!(refused, SpreadError::PinnedInside { .. }),
        "{refused}"
    );
    // Of the shard that it is pinned to, it is all that there is.
    let back = Portion {
        scope: Scope::Keys(vec![key]),
        source: shard(3),
        target: cut_owner,
    };
    assert_eq!(away(carts(&map), &shard(3), &others), Ok(vec![back]));
}

#[test]
fn ranges_go_whole_to_whoever_has_the_fewest() {
    let text = |text: &str| Some(ShardKey::of_text(text));
    let start = |from: Option<ShardKey>, number| RangeStart {
        from,
        shard: shard(number),
    };
    let ranges = vec![
        start(None, 1),
        start(text("c"), 2),
        start(text("m"), 1),
        start(text("t"), 3),
    ];
    let map = cut_by(Cut::Ranges(ranges));
    let others = BTreeSet::from([shard(2), shard(3)]);
    let portions = away(carts(&map), &shard(1), &others).unwrap();
    let range = |from, to, target| Portion {
        scope: Scope::Range { from, to },
        source: shard(1),
        target: shard(target),
    };
    assert_eq!(
        portions,
        [range(None, text("c"), 2), range(text("m"), text("t"), 3)]
    );
    assert!(!moved(&map, &portions).shards().contains(&shard(1)));
    assert_eq!(onto(carts(&map), &shard(4)), Err(SpreadError::ByRanges));
    let alone = away(carts(&map), &shard(1), &BTreeSet::from([shard(1)]));
    assert_eq!(alone, Err(SpreadError::NobodyLeft { shard: shard(1) }));
}
