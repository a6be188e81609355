use std::sync::atomic::Ordering;

use engine_api::Generation;
use engine_api::memory::MemoryEngine;
use layout::{Collection, Scope, SlotRange};
use mover::Plan;
use router::{CollectionMap, Cut, Edit, ShardName};

use super::*;

const RECORD: &str = "move-carts-1";

fn shard(name: &str) -> ShardName {
    ShardName::new(name).unwrap()
}

fn half() -> Scope {
    let slots = SlotRange {
        first: 0.try_into().unwrap(),
        last: 2047.try_into().unwrap(),
    };
    Scope::Slots(vec![slots])
}

fn record(phase: Phase) -> Vec<u8> {
    let plan = Plan {
        collection: Collection::Carts,
        moved: mover::Moved::Keys {
            scope: half(),
            source: shard("shard-1"),
            target: shard("shard-2"),
        },
        freeze_ms_max: 100,
    };
    let mut state = MoveState::first(plan);
    state.phase = phase;
    let tenured = Tenured {
        term: 1,
        holder: Some("somebody".to_owned()),
        state,
    };
    serde_json::to_vec(&tenured).unwrap()
}

/// The point is never reached: what it counted on the way is what is looked at.
async fn counted(side: &str, saves: &[(Option<u64>, Phase)]) -> u64 {
    let point = format!("{side}:move:verifying:99").parse().unwrap();
    let trap = Arc::new(Trap::at(point));
    let control = FaultyControl::new(Arc::new(MemoryEngine::new()), trap.clone());
    for (expected, phase) in saves {
        let bytes = record(phase.clone());
        let set = control.compare_and_set(RECORD, *expected, bytes).await;
        set.unwrap();
    }
    trap.met.load(Ordering::SeqCst)
}

#[tokio::test]
async fn a_renewal_enters_no_step_and_coming_back_does() {
    let barrier = Generation(2);
    let verifying = || Phase::Verifying { barrier };
    let catching_up = || Phase::CatchingUp { barrier };
    let saves = [
        (None, verifying()),
        (Some(1), verifying()),
        (Some(2), catching_up()),
        // Somebody else was first: nothing was saved.
        (Some(2), verifying()),
        (Some(3), verifying()),
    ];
    assert_eq!(counted("after", &saves).await, 2);
    assert_eq!(counted("pause", &saves).await, 2);
    assert_eq!(counted("before", &saves).await, 3);
    assert_eq!(counted("after", &[(None, catching_up())]).await, 0);
}

#[test]
fn a_map_is_told_by_what_it_changes() {
    let cut = Cut::even_slots(&[shard("shard-1"), shard("shard-2")]);
    let layout = layout::embedded();
    let of_collection = |collection: Collection| {
        let shard_key = layout.collection(collection).shard_key.clone();
        let map = CollectionMap::cut_by(&layout.name, shard_key, cut.clone());
        (collection, map)
    };
    let first = Map::first(Collection::ALL.into_iter().map(of_collection).collect());
    let edited = |map: &Map, edits: &[Edit]| {
        let edits: Vec<_> = edits
            .iter()
            .map(|edit| (Collection::Carts, edit.clone()))
            .collect();
        map.edited(&edits).unwrap()
    };
    let check = |before: &Map, after: &Map, expected: &str| {
        let standing = ControlValue {
            number: 1,
            bytes: before.to_json(),
        };
        assert_eq!(change_of(Some(&standing), &after.to_json()), Some(expected));
    };
    let scope = half();
    let thaw = Edit::Thaw {
        scope: scope.clone(),
    };
    let moved = Edit::Move {
        scope: scope.clone(),
        to: shard("shard-2"),
    };
    let frozen = edited(&first, &[Edit::Freeze { scope }]);
    check(&first, &edited(&first, &[]), "notice");
    check(&first, &frozen, "freeze");
    check(&frozen, &edited(&frozen, &[]), "notice");
    check(
        &frozen,
        &edited(&frozen, std::slice::from_ref(&thaw)),
        "thaw",
    );
    check(&frozen, &edited(&frozen, &[moved, thaw]), "cutover");
}
