//! What a cutover waits for, and what is refused.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use engine_api::{ControlStore, Engine, Maintenance, Timestamp};
use layout::{Collection, Scope};
use mover::{
    MoveError, MoveName, Moved, Mover, Pace, Phase, Plan, Unfit, Wish, ask, check, list,
    list_unless, set_pace, start, status,
};
use router::Edit;
use support::{Shop, Wire, cart_key, keep, moving_cart, name, pass_for, shard, slots};

/// W24: a process that has not heard of the move may still write without a journal.
#[tokio::test(start_paused = true)]
async fn no_position_is_taken_before_everybody_has_acknowledged_the_barrier() {
    let shop = Shop::open().await;
    let silent = shop.second_router("silent").await;
    shop.start().await;
    let mut mover = shop.mover();
    pass_for(&mut mover, Duration::from_secs(2), async || {
        let progress = feed::progress(shop.control.as_ref(), &name().forward_feed()).await;
        assert_eq!(progress.unwrap(), None, "a position was taken");
    })
    .await;
    assert!(matches!(
        shop.state().await.phase,
        Phase::Planned { barrier: Some(_) }
    ));
    // It has heard of it now.
    let keeping = keep(&silent);
    shop.drive(&mut mover, "ready").await;
    keeping.abort();
}

/// W44: a process cannot take over a map with a shard that it does not have.
#[tokio::test(start_paused = true)]
async fn nothing_begins_and_nothing_freezes_before_every_process_has_the_target_open() {
    async fn stands(shop: &Shop, mover: &mut Mover, phase: &str, process: &str) {
        let mut refusals = 0;
        for _ in 0..100 {
            match mover.pass().await {
                Ok(_) => {}
                Err(MoveError::NotEverywhere {
                    process: told,
                    shard: lacking,
                }) => {
                    assert_eq!((&*told, lacking), (process, shard("target")));
                    refusals += 1;
                }
                Err(error) => panic!("{error}"),
            }
            assert_eq!(shop.phase().await, phase);
            assert!(!shop.is_frozen().await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(refusals > 0, "nobody said why it stands");
    }
    let shop = Shop::open().await;
    let early = shop.narrow_router("early").await;
    let keeping = keep(&early);
    shop.start().await;
    let mut mover = shop.mover();
    stands(&shop, &mut mover, "planned", "early").await;
    early
        .add_shard(shard("target"), shop.target.clone())
        .unwrap();
    shop.drive(&mut mover, "ready").await;
    // One that comes later holds the cutover up as well.
    let late = shop.narrow_router("late").await;
    let keeping_too = keep(&late);
    shop.ask(Wish::Cutover).await;
    shop.drive(&mut mover, "noticed").await;
    stands(&shop, &mut mover, "noticed", "late").await;
    late.add_shard(shard("target"), shop.target.clone())
        .unwrap();
    shop.drive(&mut mover, "settling").await;
    for router in [&early, &late] {
        router.refresh().await.unwrap();
        assert_eq!(router.map().generation, shop.map().await.generation);
    }
    keeping.abort();
    keeping_too.abort();
}

/// W18: a process that died is waited for while shoppers are served.
#[tokio::test(start_paused = true)]
async fn nothing_is_frozen_before_a_dead_process_has_run_out() {
    let shop = Shop::open().await;
    shop.start().await;
    let mut mover = shop.mover();
    shop.drive(&mut mover, "ready").await;
    let _dead = shop.second_router("dead").await;
    shop.ask(Wish::Cutover).await;
    shop.drive(&mut mover, "noticed").await;
    let writers = shop.writers();
    pass_for(&mut mover, Duration::from_secs(2), async || {
        assert_eq!(shop.phase().await, "noticed");
        assert!(!shop.is_frozen().await);
    })
    .await;
    shop.drive(&mut mover, "settling").await;
    let state = shop.state().await;
    assert_eq!(state.given_up, None);
    assert!(state.shown.freeze_ms.unwrap() <= 100);
    writers.stop().await;
    shop.judge("the dead one was waited for").await;
}

#[tokio::test(start_paused = true)]
async fn a_target_that_is_altered_behind_the_freeze_is_named_and_not_cut_over_to() {
    let shop = Shop::open().await;
    shop.start().await;
    let wire = Wire::endless();
    let mut mover = shop.mover_over(&wire);
    shop.drive(&mut mover, "ready").await;
    shop.ask(Wish::Cutover).await;
    let target = shop.target.clone();
    wire.before("source.raise_fence", || async move {
        Shop::tamper(&target, moving_cart()).await;
    });
    shop.drive(&mut mover, "noticed").await;
    shop.drive(&mut mover, "verifying").await;
    let named = cart_key(moving_cart()).to_string();
    let given_up = shop.state().await.given_up.unwrap();
    assert!(given_up.why.contains(&named), "{given_up:?}");
    assert_eq!(shop.owner().await, "source");
    shop.judge("given up").await;
    // It stays so, and is shown.
    for _ in 0..100 {
        mover.pass().await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let state = shop.state().await;
    assert_eq!(state.phase.name(), "verifying");
    assert_eq!(state.shown.differences, 1);
    assert!(state.shown.differing[0].contains(&named), "{state:?}");
    let refused = ask(shop.control.as_ref(), &name(), Wish::Cutover).await;
    assert!(matches!(refused, Err(MoveError::Refused { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_ready_move_whose_target_is_altered_is_ready_no_more() {
    let shop = Shop::open().await;
    shop.start().await;
    let mut mover = shop.mover();
    shop.drive(&mut mover, "ready").await;
    Shop::tamper(&shop.target, moving_cart()).await;
    // It is newer than anything at the source, and the way back must not carry it there.
    let source = support::image(&shop.source, &cart_key(moving_cart())).await;
    for _ in 0..100 {
        mover.pass().await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let after = support::image(&shop.source, &cart_key(moving_cart())).await;
    assert_eq!(source, after, "what nobody wrote stands at the source");
    assert_eq!(shop.phase().await, "verifying");
}

#[tokio::test(start_paused = true)]
async fn wishes_at_the_wrong_time_are_refused_with_a_sentence() {
    let shop = Shop::open().await;
    shop.start().await;
    let mut mover = shop.mover();
    let refused = async |wish: Wish, expected: &str| {
        let before = shop.state().await;
        let error = ask(shop.control.as_ref(), &name(), wish).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(shop.state().await, before, "nothing was changed");
    };
    refused(Wish::Cutover, "it is not ready").await;
    refused(Wish::Rollback, "it has not cut over yet").await;
    refused(Wish::Complete, "it has not cut over yet").await;
    shop.drive(&mut mover, "ready").await;
    refused(Wish::Rollback, "it has not cut over yet").await;
    shop.cut_over(&mut mover).await;
    refused(Wish::Abort, "it has cut over already").await;
    refused(Wish::Cutover, "it has cut over already").await;
    shop.ask(Wish::Complete).await;
    shop.drive(&mut mover, "completed").await;
    refused(Wish::Rollback, "start a move in the other direction").await;
    let unknown = MoveName::new("nobody").unwrap();
    let error = ask(shop.control.as_ref(), &unknown, Wish::Abort).await;
    assert!(matches!(error, Err(MoveError::NoMove { .. })), "{error:?}");
}

/// W28: what the target has taken since its journal was trimmed is not at the source.
#[tokio::test(start_paused = true)]
async fn a_rollback_is_refused_when_the_way_back_has_lost_its_position() {
    let shop = Shop::open().await;
    shop.start().await;
    let mut mover = shop.mover();
    shop.cut_over(&mut mover).await;
    shop.write(moving_cart(), 40, 1).await;
    let everything = Maintenance {
        now: Timestamp::from_unix_micros(0),
        marks_before: Timestamp::from_unix_micros(0),
        journal_before: Timestamp::from_unix_micros(i64::MAX),
        items_max: 100_000,
    };
    shop.target.maintain(everything).await.unwrap();
    for _ in 0..3 {
        mover.pass().await.unwrap_err();
    }
    let trouble = mover.pass().await.unwrap_err().to_string();
    assert!(trouble.contains("no longer reaches back"), "{trouble}");
    let refused = ask(shop.control.as_ref(), &name(), Wish::Rollback).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("has lost its position"), "{refused}");
    assert_eq!(shop.owner().await, "target");
    shop.ask(Wish::Complete).await;
    shop.drive(&mut mover, "completed").await;
    shop.judge("completed").await;
}

#[tokio::test(start_paused = true)]
async fn two_moves_over_the_same_keys_are_refused_until_the_first_has_ended() {
    let shop = Shop::open().await;
    shop.start().await;
    let control: Arc<dyn ControlStore> = shop.control.clone();
    let shards = shop.shards(&Wire::endless());
    let second = MoveName::new("second").unwrap();
    let overlapping = async |plan: &Plan| {
        let refused = start(&control, &shards, &second, plan).await.unwrap_err();
        // Whoever only asks is told the same.
        let told = check(&control, &shards, &second, plan).await;
        assert_eq!(told, Err(refused.clone()));
        let MoveError::Unfit(Unfit::Overlaps { other, phase }) = refused else {
            panic!("{refused}");
        };
        assert_eq!(other, "half-the-carts");
        assert_eq!(list(control.as_ref()).await.unwrap().len(), 1);
        phase
    };
    // The same again is the same move.
    start(&control, &shards, &name(), &shop.plan())
        .await
        .unwrap();
    let mut same_name = shop.plan();
    same_name.moved = shop.moved(slots(3_000, 3_100));
    let taken = start(&control, &shards, &name(), &same_name).await;
    assert!(
        matches!(taken, Err(MoveError::NameTaken { .. })),
        "{taken:?}"
    );
    let mut some = shop.plan();
    some.moved = shop.moved(slots(2_047, 2_048));
    assert_eq!(overlapping(&some).await, "planned");
    let mut mover = shop.mover();
    shop.cut_over(&mut mover).await;
    // Settling: the keys are the target's by the map, and still have a way back (W30).
    let mut back = shop.plan();
    back.moved = Moved::Keys {
        scope: back.scope().clone(),
        source: shard("target"),
        target: shard("source"),
    };
    assert_eq!(overlapping(&back).await, "settling");
    shop.ask(Wish::Complete).await;
    shop.drive(&mut mover, "cleaned up").await;
    check(&control, &shards, &second, &back).await.unwrap();
    assert_eq!(list(control.as_ref()).await.unwrap().len(), 1);
    start(&control, &shards, &second, &back).await.unwrap();
    assert_eq!(list(control.as_ref()).await.unwrap().len(), 2);
    let rest = list_unless(control.as_ref(), |other| *other == name()).await;
    let rest: Vec<MoveName> = rest.unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(rest, [second]);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_cannot_be_carried_out_is_refused_and_nothing_is_changed() {
    let shop = Shop::open().await;
    let control: Arc<dyn ControlStore> = shop.control.clone();
    let shards = shop.shards(&Wire::endless());
    let map = shop.map().await;
    let refused = async |change: &dyn Fn(&mut Plan), expected: &str| {
        let mut plan = shop.plan();
        change(&mut plan);
        let error = start(&control, &shards, &name(), &plan).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(list(control.as_ref()).await.unwrap().is_empty());
        assert_eq!(shop.map().await.generation, map.generation);
    };
    let between = |source: &str, target: &str, scope: Scope| Moved::Keys {
        scope,
        source: shard(source),
        target: shard(target),
    };
    for (source, target, expected) in [
        ("source", "source", "both have source"),
        ("source", "moon", "moon is not configured"),
        ("target", "source", "not all on target"),
    ] {
        let moved = between(source, target, support::moving());
        refused(&|plan| plan.moved = moved.clone(), expected).await;
    }
    let none = between("source", "target", Scope::Slots(Vec::new()));
    refused(&|plan| plan.moved = none.clone(), "names no keys").await;
    refused(&|plan| plan.freeze_ms_max = 0, "a freeze of 0 ms").await;
    let range = Scope::Range {
        from: None,
        to: None,
    };
    let range = between("source", "target", range);
    refused(&|plan| plan.moved = range.clone(), "not cut by ranges").await;
    refused(
        &|plan| plan.collection = Collection::Orders,
        "has no orders",
    )
    .await;
}

/// Room can be made: a move that was begun waits for it, and one that was not is refused.
#[tokio::test(start_paused = true)]
async fn nothing_begins_onto_a_disk_that_is_full() {
    let shop = Shop::open().await;
    let control: Arc<dyn ControlStore> = shop.control.clone();
    let wire = Wire::endless();
    let (shards, plan) = (shop.shards(&wire), shop.plan());
    let map = shop.map().await;
    wire.fill("target");
    let refused = start(&control, &shards, &name(), &plan).await.unwrap_err();
    let told = check(&control, &shards, &name(), &plan).await;
    assert_eq!(told, Err(refused.clone()));
    let refused = refused.to_string();
    assert!(refused.starts_with("target: no space left"), "{refused}");
    assert!(refused.contains("free space on the disk"), "{refused}");
    assert!(list(control.as_ref()).await.unwrap().is_empty());
    wire.make_room("target");
    start(&control, &shards, &name(), &plan).await.unwrap();
    wire.fill("target");
    let mut mover = shop.mover_over(&wire);
    assert!(mover.pass().await.is_err());
    assert_eq!(shop.phase().await, "planned");
    assert_eq!(shop.map().await, map, "nothing was changed");
    wire.make_room("target");
    shop.drive(&mut mover, "ready").await;
}

/// The map changed between the start and the first pass: the move ends before it began.
#[tokio::test(start_paused = true)]
async fn a_plan_that_fits_no_longer_is_aborted_by_its_mover() {
    let shop = Shop::open().await;
    shop.start().await;
    let key = cart_key(moving_cart()).shard_key;
    let pin = Edit::Pin {
        key,
        shard: shard("target"),
    };
    let map = shop
        .map()
        .await
        .edited(&[(Collection::Carts, pin)])
        .unwrap();
    shop.router.publish(map).await.unwrap();
    let mut mover = shop.mover();
    shop.drive(&mut mover, "aborted").await;
    let Phase::Aborted { why } = shop.state().await.phase else {
        panic!("it is not aborted");
    };
    assert!(why.contains("is pinned inside the scope"), "{why}");
}

/// The keys went elsewhere while the start looked at other moves, such as the one that moved them.
#[tokio::test(start_paused = true)]
async fn a_plan_is_judged_by_the_map_that_stands_after_other_moves_have_ended() {
    let shop = Shop::open().await;
    let wire = Wire::endless();
    let pin = Edit::Pin {
        key: cart_key(moving_cart()).shard_key,
        shard: shard("target"),
    };
    let next = shop.map().await.edited(&[(Collection::Carts, pin)]);
    let (router, next) = (shop.router.clone(), next.unwrap());
    let (control, shards) = (wire.control(&shop.control), shop.shards(&wire));
    let (other, mut elsewhere) = (MoveName::new("other").unwrap(), shop.plan());
    elsewhere.moved = shop.moved(slots(3_000, 3_100));
    start(&control, &shards, &other, &elsewhere).await.unwrap();
    wire.before("control.get.move-other", || async move {
        router.publish(next).await.unwrap();
    });
    let started = start(&control, &shards, &name(), &shop.plan()).await;
    assert!(
        matches!(started, Err(MoveError::Unfit(Unfit::PinnedInside { .. }))),
        "{started:?}"
    );
    assert_eq!(list(control.as_ref()).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_mover_that_ends_lets_go_of_a_record_that_was_changed_since_it_looked() {
    let shop = Shop::open().await;
    shop.start().await;
    let control = shop.control.as_ref();
    let mut mover = shop.mover();
    mover.pass().await.unwrap();
    let taken = status(control, &name()).await.unwrap();
    assert!(taken.holder.is_some(), "{taken:?}");
    set_pace(control, &name(), Pace::Paused).await.unwrap();
    mover.run(std::future::ready(())).await;
    let left = status(control, &name()).await.unwrap();
    assert_eq!((left.holder, left.term), (None, taken.term));
    assert_eq!(left.state.pace, Pace::Paused, "what was asked for stays");
}
