//! The map: its text, its rules, its edits.

#![allow(clippy::unwrap_used)] // a story ends where something unforeseen happens

use std::collections::{BTreeMap, BTreeSet};

use engine_api::{Generation, Timestamp};
use layout::{Collection, Field, Scope, ShardKey, Slot, SlotRange, Value};
use proptest::prelude::*;
use router::{CollectionMap, Cut, Edit, Map, MapError, RangeStart, ShardName};
use rust_decimal::Decimal;

const CARTS: Collection = Collection::Carts;

fn named(name: &str) -> ShardName {
    ShardName::new(name).unwrap()
}

fn shard() -> impl Strategy<Value = ShardName> {
    prop::sample::select(vec!["a", "b", "eu-1", "us_2"]).prop_map(named)
}

fn key() -> impl Strategy<Value = ShardKey> {
    let value = prop_oneof![
        any::<i64>().prop_map(Value::Int),
        any::<i64>().prop_map(|micros| Value::Timestamp(Timestamp::from_unix_micros(micros))),
        (any::<i32>(), 0u32..=8).prop_map(|(whole, places)| {
            Value::Decimal(Decimal::new(i64::from(whole), places).normalize())
        }),
        "[a-c\"\u{0}я]{0,5}".prop_map(Value::Text),
    ];
    prop::collection::vec(value, 1..3).prop_map(|values| ShardKey::of(&values).unwrap())
}

fn slots() -> impl Strategy<Value = SlotRange> {
    (0u16..4096, 0u16..4096).prop_map(|(a, b)| slot_range(a.min(b), a.max(b)))
}

fn slot_range(first: u16, last: u16) -> SlotRange {
    SlotRange {
        first: Slot::try_from(first).unwrap(),
        last: Slot::try_from(last).unwrap(),
    }
}

fn scope() -> impl Strategy<Value = Scope> {
    prop_oneof![
        Just(Scope::All),
        prop::collection::vec(slots(), 1..4).prop_map(Scope::Slots),
        (prop::option::of(key()), prop::option::of(key()))
            .prop_map(|(from, to)| Scope::Range { from, to }),
        prop::collection::vec(key(), 1..4).prop_map(Scope::Keys),
    ]
}

fn cut() -> impl Strategy<Value = Cut> {
    let ranges = (shard(), prop::collection::btree_map(key(), shard(), 0..5));
    prop_oneof![
        prop::collection::vec(shard(), 1..9).prop_map(|shards| Cut::even_slots(&shards)),
        ranges.prop_map(|(first, others)| {
            let first = RangeStart {
                from: None,
                shard: first,
            };
            let others = others.into_iter().map(|(from, shard)| RangeStart {
                from: Some(from),
                shard,
            });
            Cut::Ranges(std::iter::once(first).chain(others).collect())
        }),
    ]
}

fn map() -> impl Strategy<Value = Map> {
    let carts = (
        cut(),
        prop::collection::btree_map(key(), shard(), 0..4),
        prop::collection::vec(scope(), 0..4),
        prop::collection::btree_map("[a-z_]{1,9}", 1u32..=4096, 0..3),
    );
    (1u64..1000, carts).prop_map(|(generation, (cut, pinned, frozen, buckets))| {
        let carts = CollectionMap::cut_by("embedded", vec![Field::UserId, Field::CartId], cut);
        let carts = CollectionMap {
            pinned,
            frozen,
            buckets,
            ..carts
        };
        Map {
            generation: Generation(generation),
            note: None,
            followed_soon: generation % 2 == 0,
            collections: BTreeMap::from([(CARTS, carts)]),
        }
    })
}

proptest! {
    #[test]
    fn a_map_comes_back_from_its_text(map in map()) {
        prop_assert_eq!(Map::from_json(&map.to_json()).unwrap(), map);
    }

    #[test]
    fn every_key_has_one_owner_among_the_shards(map in map(), key in key()) {
        let carts = &map.collections[&CARTS];
        let owner = carts.owner(&key);
        prop_assert!(map.shards().contains(owner));
        let expected = match (&carts.cut, carts.pinned.get(&key)) {
            (_, Some(pinned)) => pinned,
            (Cut::Slots(runs), None) => {
                let own: Vec<_> =
                    runs.iter().filter(|run| run.slots.contains(key.slot())).collect();
                prop_assert_eq!(own.len(), 1);
                &own[0].shard
            }
            (Cut::Ranges(ranges), None) => {
                let below = |range: &&RangeStart| range.from.as_ref().is_none_or(|from| from <= &key);
                &ranges.iter().rfind(below).unwrap().shard
            }
        };
        prop_assert_eq!(owner, expected);
    }

    #[test]
    fn a_move_gives_away_its_scope_and_nothing_else(map in map(), scope in scope(), keys in prop::collection::vec(key(), 1..8)) {
        let to = named("target");
        let edit = Edit::Move { scope: scope.clone(), to: to.clone() };
        let Ok(moved) = map.edited(&[(CARTS, edit)]) else { return Ok(()) };
        prop_assert_eq!(moved.generation, map.generation.next());
        let by_cut = matches!(scope, Scope::Slots(_) | Scope::Range { .. });
        let (before, after) = (&map.collections[&CARTS], &moved.collections[&CARTS]);
        for key in &keys {
            let stays = !scope.contains(key) || (by_cut && before.pinned.contains_key(key));
            let expected = if stays { before.owner(key) } else { &to };
            prop_assert_eq!(after.owner(key), expected);
        }
    }
}

#[test]
fn an_operator_can_read_the_map() {
    let cut = Cut::even_slots(&[named("a"), named("b")]);
    let carts = CollectionMap::cut_by("embedded", vec![Field::CartId], cut);
    let map = Map::first(BTreeMap::from([(CARTS, carts)]));
    let map = map
        .pin(CARTS, ShardKey::of_text("CART-1"), &named("b"))
        .unwrap();
    let map = map
        .freeze(CARTS, Scope::Slots(vec![slot_range(0, 9)]))
        .unwrap();
    let expected = serde_json::json!({
        "generation": 3,
        "collections": { "carts": {
            "layout": "embedded",
            "shard_key": ["cart_id"],
            "cut": { "slots": { "0-2047": "a", "2048-4095": "b" } },
            "pinned": [{ "key": ["CART-1"], "shard": "b" }],
            "frozen": [{ "slots": ["0-9"] }],
        }},
    });
    let text: serde_json::Value = serde_json::from_slice(&map.to_json()).unwrap();
    assert_eq!(text, expected);
}

#[test]
fn a_map_that_does_not_hold_together_is_refused() {
    fn check(cut: serde_json::Value, expected: &str) {
        let text = serde_json::json!({
            "generation": 1,
            "collections": { "carts": { "layout": "x", "shard_key": ["cart_id"], "cut": cut } },
        });
        let message = Map::from_json(text.to_string().as_bytes())
            .unwrap_err()
            .to_string();
        assert!(
            message.contains(expected),
            "{message:?} does not contain {expected:?}"
        );
    }
    use serde_json::json;
    check(json!({ "slots": {} }), "slot 0 of carts has 0 owners");
    check(
        json!({ "slots": { "0-4094": "a" } }),
        "slot 4095 of carts has 0 owners",
    );
    check(
        json!({ "slots": { "0-9": "a", "11-4095": "a" } }),
        "slot 10 of carts has 0 owners",
    );
    check(
        json!({ "slots": { "0-9": "a", "9-4095": "b" } }),
        "slot 9 of carts has 2 owners",
    );
    check(
        json!({ "slots": { "0-4096": "a" } }),
        "slot 4096 does not exist",
    );
    check(
        json!({ "slots": { "0-4095": "A shard" } }),
        "is not a shard name",
    );
    check(json!({ "ranges": [] }), "out of order at range 0");
    check(
        json!({ "ranges": [{ "from": ["a"], "shard": "a" }] }),
        "out of order at range 0",
    );
    let unordered = json!({ "ranges": [
        { "shard": "a" }, { "from": ["m"], "shard": "a" }, { "from": ["c"], "shard": "b" },
    ]});
    check(unordered, "out of order at range 2");
    check(json!({ "rings": [] }), "cannot be read");
}

#[test]
fn an_edit_that_makes_no_sense_is_refused() {
    fn check(edit: Edit, expected: MapError) {
        let cut = Cut::even_slots(&[named("a")]);
        let carts = CollectionMap::cut_by("embedded", vec![Field::CartId], cut);
        let map = Map::first(BTreeMap::from([(CARTS, carts)]));
        assert_eq!(map.edited(&[(CARTS, edit)]).unwrap_err(), expected);
    }
    let at = || ShardKey::of_text("m");
    let range = Scope::Range {
        from: Some(at()),
        to: None,
    };
    let carts = CARTS;
    let buckets = Edit::Divide {
        table: "t".to_owned(),
        buckets: 0,
    };
    check(
        Edit::Split { at: at() },
        MapError::OtherCut {
            collection: carts,
            wanted: "ranges",
        },
    );
    check(
        Edit::Move {
            scope: range,
            to: named("b"),
        },
        MapError::OtherCut {
            collection: carts,
            wanted: "ranges",
        },
    );
    check(
        Edit::Move {
            scope: Scope::Slots(Vec::new()),
            to: named("b"),
        },
        MapError::EmptyScope { collection: carts },
    );
    check(
        Edit::Thaw { scope: Scope::All },
        MapError::NotFrozen { collection: carts },
    );
    check(
        Edit::Unpin { key: at() },
        MapError::NotPinned {
            collection: carts,
            key: "\"m\"".to_owned(),
        },
    );
    check(
        buckets,
        MapError::BucketCount {
            collection: carts,
            table: "t".to_owned(),
            count: 0,
            most: 4096,
        },
    );
}

#[test]
fn the_check_knows_the_shards_there_are() {
    let carts = CollectionMap::on_one_shard("embedded", vec![Field::CartId], named("a"));
    let map = Map::first(BTreeMap::from([(CARTS, carts)]));
    map.check(&BTreeSet::from([named("a"), named("b")]))
        .unwrap();
    let unknown = map.check(&BTreeSet::from([named("b")])).unwrap_err();
    assert_eq!(unknown, MapError::UnknownShard { shard: named("a") });
}

fn products(ranges: &[(Option<&str>, &str)]) -> Map {
    let start = |(from, shard): &(Option<&str>, &str)| RangeStart {
        from: from.map(ShardKey::of_text),
        shard: named(shard),
    };
    let cut = Cut::Ranges(ranges.iter().map(start).collect());
    let fields = vec![Field::Category, Field::ProductId];
    let map = CollectionMap::cut_by("mongo-sharded", fields, cut);
    Map::first(BTreeMap::from([(Collection::Products, map)]))
}

#[test]
fn a_range_that_goes_there_and_back_leaves_the_cut_as_it_was() {
    fn check(
        before: &[(Option<&str>, &str)],
        moved: (&str, &str),
        to: &str,
        after: &[(Option<&str>, &str)],
    ) {
        let give = |map: &Map, to: &str| {
            let scope = Scope::Range {
                from: (!moved.0.is_empty()).then(|| ShardKey::of_text(moved.0)),
                to: (!moved.1.is_empty()).then(|| ShardKey::of_text(moved.1)),
            };
            let edit = Edit::Move {
                scope,
                to: named(to),
            };
            map.edited(&[(Collection::Products, edit)]).unwrap()
        };
        let there = give(&products(before), to);
        let cut = |map: &Map| map.collection(Collection::Products).unwrap().cut.clone();
        assert_eq!(cut(&there), cut(&products(after)));
        assert_eq!(cut(&give(&there, "a")), cut(&products(before)));
    }
    let halves = [(None, "a"), (Some("m"), "b")];
    // The end of one goes to its neighbour: the bound between them shifts.
    check(&halves, ("g", "m"), "b", &[(None, "a"), (Some("g"), "b")]);
    // A piece in the middle goes to a third.
    let pieces = [
        (None, "a"),
        (Some("c"), "c"),
        (Some("e"), "a"),
        (Some("m"), "b"),
    ];
    check(&halves, ("c", "e"), "c", &pieces);
    check(
        &halves,
        ("", "c"),
        "b",
        &[(None, "b"), (Some("c"), "a"), (Some("m"), "b")],
    );
    // What somebody split inside of it stays split.
    let split = [(None, "a"), (Some("d"), "a"), (Some("m"), "b")];
    check(
        &split,
        ("", "m"),
        "c",
        &[(None, "c"), (Some("d"), "c"), (Some("m"), "b")],
    );
}

#[test]
fn a_key_that_goes_where_the_cut_has_it_is_not_pinned_any_more() {
    let carts = CollectionMap::on_one_shard("embedded", vec![Field::CartId], named("a"));
    let first = Map::first(BTreeMap::from([(CARTS, carts)]));
    let give = |map: &Map, to: &str| {
        let scope = Scope::Keys(vec![ShardKey::of_text("CART-1")]);
        let edit = Edit::Move {
            scope,
            to: named(to),
        };
        map.edited(&[(CARTS, edit)]).unwrap()
    };
    let pins = |map: &Map| map.collection(CARTS).unwrap().pinned.clone();
    let pinned = give(&first, "b");
    assert_eq!(
        pins(&pinned),
        BTreeMap::from([(ShardKey::of_text("CART-1"), named("b"))])
    );
    let elsewhere = give(&pinned, "c");
    assert_eq!(
        pins(&elsewhere),
        BTreeMap::from([(ShardKey::of_text("CART-1"), named("c"))])
    );
    assert_eq!(pins(&give(&elsewhere, "a")), BTreeMap::new());
}

#[test]
fn another_placement_takes_everything_along_but_what_is_frozen() {
    let old = CollectionMap::on_one_shard("one", vec![Field::CartId], named("a"));
    let map = Map::first(BTreeMap::from([(CARTS, old)]));
    let map = map
        .pin(CARTS, ShardKey::of_text("hot"), &named("b"))
        .unwrap();
    let map = map.freeze(CARTS, Scope::All).unwrap();
    let fields = vec![Field::UserId, Field::CartId];
    let mut new = CollectionMap::cut_by("two", fields, Cut::even_slots(&[named("c"), named("d")]));
    new.buckets = BTreeMap::from([("carts_by_user".to_owned(), 4)]);
    let place = Edit::Place {
        placement: new.clone(),
    };
    let next = map.edited(&[(CARTS, place)]).unwrap();
    assert_eq!(next.generation, map.generation.next());
    let placed = next.collection(CARTS).unwrap();
    assert_eq!(placed.placement(), new, "no pin is left over");
    assert_eq!(placed.frozen, [Scope::All]);
    let empty = CollectionMap {
        shard_key: Vec::new(),
        ..new
    };
    let place = Edit::Place { placement: empty };
    let refused = map.edited(&[(CARTS, place)]).unwrap_err();
    assert_eq!(refused, MapError::NoShardKey { collection: CARTS });
}
