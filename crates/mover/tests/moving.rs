//! A move under writers, to its end and back.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine_api::{
    Authority, ControlStore, Engine, EngineError, FenceKind, Revision, World, WriteContext, Writer,
};
use layout::{Collection, Scope};
use mover::{
    Direction, Latencies, Mover, MoverConfig, Pace, Pass, Plan, Pressure, Throttle, Wish,
    certificate, feed_limits, set_pace, set_throttle, start_with, steps,
};
use router::{Cut, RangeStart};
use support::{
    CARTS, Shop, Wire, cart_key, keep, line, moving_cart, name, new_cart, shard, write_one,
};

#[tokio::test(start_paused = true)]
async fn a_move_under_writers_keeps_every_acknowledged_write() {
    for fence in [FenceKind::InStore, FenceKind::ByLease] {
        let shop = Shop::fenced(fence).await;
        let other = shop.second_router("other").await;
        let keeping = keep(&other);
        let writers = shop.writers();
        shop.start().await;
        let mut mover = shop.mover();
        shop.cut_over(&mut mover).await;
        assert_eq!(shop.owner().await, "target");
        let after = shop.ledger.count.load(Ordering::SeqCst);
        // The other process serves the target as well.
        write_one(&other, &shop.ledger, moving_cart(), 90, 1).await;
        shop.write(moving_cart(), 91, 1).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        writers.stop().await;
        assert!(shop.ledger.count.load(Ordering::SeqCst) > after + 50);
        shop.judge("after the cutover").await;
        shop.ask(Wish::Complete).await;
        shop.drive(&mut mover, "completed").await;
        shop.judge("completed").await;
        shop.drive(&mut mover, "cleaned up").await;
        shop.judge("cleaned up").await;
        assert_eq!(mover.pass().await.unwrap(), Pass::Ended);
        keeping.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_rollback_under_writers_keeps_every_acknowledged_write() {
    for fence in [FenceKind::InStore, FenceKind::ByLease] {
        let shop = Shop::fenced(fence).await;
        let writers = shop.writers();
        shop.start().await;
        let mut mover = shop.mover();
        shop.cut_over(&mut mover).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        shop.ask(Wish::Rollback).await;
        shop.drive(&mut mover, "rolled back").await;
        assert_eq!(shop.owner().await, "source");
        tokio::time::sleep(Duration::from_millis(300)).await;
        writers.stop().await;
        shop.judge("rolled back").await;
    }
}

/// All of a collection, a range of it, single keys: there and back.
#[tokio::test(start_paused = true)]
async fn every_kind_of_scope_is_moved_and_brought_back() {
    let key = |cart: u64| cart_key(cart).shard_key;
    let ranges = || {
        let range = |from: Option<u64>| RangeStart {
            from: from.map(key),
            shard: shard("source"),
        };
        Cut::Ranges(vec![range(None), range(Some(5))])
    };
    let slots = || Cut::even_slots(&[shard("source")]);
    // By text: cart-10, cart-11, cart-2, … cart-6.
    let (low, high) = (Some(key(10)), Some(key(7)));
    let range = Scope::Range {
        from: low,
        to: high,
    };
    for (cut, scope, moved, stays) in [
        (slots(), Scope::All, vec![0, 5, 11], vec![]),
        (ranges(), Scope::All, vec![0, 5, 11], vec![]),
        (
            slots(),
            Scope::Keys(vec![key(3), key(4)]),
            vec![3, 4],
            vec![2, 5],
        ),
        (ranges(), Scope::Keys(vec![key(3)]), vec![3], vec![4]),
        (ranges(), range, vec![10, 2, 6], vec![0, 1, 7, 9]),
    ] {
        let shop = Shop::with(FenceKind::InStore, cut).await;
        let writers = shop.writers();
        let story = format!("{scope:?}");
        shop.start_with(Plan {
            moved: shop.moved(scope),
            ..shop.plan()
        })
        .await;
        let mut mover = shop.mover();
        shop.cut_over(&mut mover).await;
        let map = shop.map().await;
        let owner = |cart: &u64| map.owner(&cart_key(*cart)).unwrap().to_string();
        assert!(moved.iter().all(|it| owner(it) == "target"), "{story}");
        assert!(stays.iter().all(|it| owner(it) == "source"), "{story}");
        tokio::time::sleep(Duration::from_millis(100)).await;
        shop.ask(Wish::Rollback).await;
        shop.drive(&mut mover, "rolled back").await;
        let map = shop.map().await;
        let all_back = (0..CARTS).all(|it| map.owner(&cart_key(it)).unwrap().as_str() == "source");
        assert!(all_back, "{story}");
        let carts = map.collection(Collection::Carts).unwrap();
        assert!(carts.pinned.is_empty(), "{story}: {:?}", carts.pinned);
        writers.stop().await;
        shop.judge(&story).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cutover_and_a_rollback_leave_certificates_that_hold() {
    let shop = Shop::open().await;
    let writers = shop.writers();
    shop.start().await;
    let mut mover = shop.mover();
    shop.cut_over(&mut mover).await;
    let control = shop.control.as_ref();
    let cutover = certificate(control, &name(), Direction::Cutover).await;
    let cutover = cutover.unwrap().unwrap();
    assert!(cutover.verify());
    let generations = &cutover.content.generations;
    assert!(generations.barrier < generations.noticed);
    assert!(generations.noticed < generations.frozen);
    assert!(generations.frozen < generations.published);
    assert_eq!(shop.map().await.generation, generations.published);
    let freeze_ms = cutover.content.freeze_ms.unwrap();
    assert!(freeze_ms <= 100, "{freeze_ms}");
    assert_eq!(shop.state().await.shown.freeze_ms, Some(freeze_ms));
    assert!(cutover.content.records > 0);
    shop.ask(Wish::Rollback).await;
    shop.drive(&mut mover, "rolled back").await;
    let rollback = certificate(control, &name(), Direction::Rollback).await;
    let rollback = rollback.unwrap().unwrap();
    assert!(rollback.verify());
    assert!(rollback.content.generations.published > generations.published);
    writers.stop().await;
}

/// What clients saw is told by every process, by its own count.
#[tokio::test(start_paused = true)]
async fn the_certificate_tells_how_long_every_process_held_requests() {
    let shop = Shop::open().await;
    let (second, idle) = (
        shop.second_router("second").await,
        shop.second_router("idle").await,
    );
    let keeping = [keep(&second), keep(&idle)];
    let writers = shop.writers_every(Duration::from_millis(1));
    shop.start().await;
    let wire = Wire::endless();
    let mut mover = shop.mover_over(&wire);
    // Behind the freeze there is time for some to come.
    let (router, ledger) = (second.clone(), shop.ledger.clone());
    wire.before("source.raise_fence", || async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let writing = async move { write_one(&router, &ledger, moving_cart(), 60, 1).await };
        tokio::spawn(writing);
        tokio::time::sleep(Duration::from_millis(20)).await;
    });
    shop.cut_over(&mut mover).await;
    writers.stop().await;
    let control = shop.control.as_ref();
    let kept = certificate(control, &name(), Direction::Cutover).await;
    let content = kept.unwrap().unwrap().content;
    let stall = content.stall.unwrap();
    assert_eq!(stall.silent, Vec::<String>::new());
    let held = |process: &str| {
        let mut all = stall.processes.iter();
        all.find(|it| it.process == process).unwrap().held
    };
    assert!(held("first").requests > 0, "{stall:?}");
    assert_eq!(held("second").requests, 1, "{stall:?}");
    assert_eq!(held("idle").requests, 0, "{stall:?}");
    assert!(held("second").max_us >= 20_000, "{stall:?}");
    assert!(stall.all.max_us <= 1_000 * (content.freeze_ms.unwrap() + 10));
    assert_eq!(second.stalls().count(), 1);
    shop.judge("held and told").await;
    keeping.iter().for_each(|keeping| keeping.abort());
}

/// W15: the fence in the store stands between a sleeper and the source.
#[tokio::test(start_paused = true)]
async fn a_process_that_slept_through_the_cutover_cannot_write_to_the_source() {
    let shop = Shop::open().await;
    let sleeper = shop.second_router("sleeper").await;
    let before = shop.map().await.generation;
    shop.start().await;
    let mut mover = shop.mover();
    shop.cut_over(&mut mover).await;
    // Its last change was under way all the time, and arrives now.
    let late = WriteContext {
        authority: Authority::Router { generation: before },
        now: shop.world.now(),
        revision: Revision::at(shop.world.now(), Writer::numbered(9)),
    };
    let refused = shop.source.apply(line(moving_cart(), 80, 1), late).await;
    assert!(
        matches!(refused, Err(EngineError::Fenced { .. })),
        "{refused:?}"
    );
    // It has no lease any more; with a new one it writes to the target.
    let keeping = keep(&sleeper);
    tokio::time::sleep(Duration::from_millis(100)).await;
    write_one(&sleeper, &shop.ledger, moving_cart(), 80, 2).await;
    shop.judge("the sleeper woke up").await;
    keeping.abort();
}

/// W15, on the way back: the fence stands on the shard that is left, which is the target now.
#[tokio::test(start_paused = true)]
async fn a_process_that_slept_through_the_rollback_cannot_write_to_the_target() {
    let shop = Shop::open().await;
    shop.start().await;
    let mut mover = shop.mover();
    shop.cut_over(&mut mover).await;
    let before = shop.map().await.generation;
    shop.ask(Wish::Rollback).await;
    shop.drive(&mut mover, "rolled back").await;
    let late = WriteContext {
        authority: Authority::Router { generation: before },
        now: shop.world.now(),
        revision: Revision::at(shop.world.now(), Writer::numbered(9)),
    };
    let refused = shop.target.apply(line(moving_cart(), 80, 1), late).await;
    assert!(
        matches!(refused, Err(EngineError::Fenced { .. })),
        "{refused:?}"
    );
    shop.judge("the target takes nothing any more").await;
}

/// W30: the position of the way back was taken before the first write to the target.
#[tokio::test(start_paused = true)]
async fn a_write_right_behind_the_cutover_is_carried_back() {
    let shop = Shop::open().await;
    shop.start().await;
    let wire = Wire::endless();
    let mut mover = shop.mover_over(&wire);
    shop.drive(&mut mover, "ready").await;
    let at = match feed::progress(shop.control.as_ref(), &name().back_feed()).await {
        Ok(Some(progress)) => progress.phase,
        other => panic!("there is no way back: {other:?}"),
    };
    assert!(matches!(at, feed::Phase::Following { .. }), "{at:?}");
    shop.ask(Wish::Cutover).await;
    // The keys are the target's, and the mover has not said so yet.
    let (router, ledger) = (shop.router.clone(), shop.ledger.clone());
    wire.before(
        "control.set.certificate-half-the-carts-cutover",
        || async move {
            tokio::time::sleep(Duration::from_millis(40)).await;
            write_one(&router, &ledger, moving_cart(), 70, 5).await;
        },
    );
    shop.drive(&mut mover, "settling").await;
    shop.ask(Wish::Rollback).await;
    shop.drive(&mut mover, "rolled back").await;
    shop.judge("it came back").await;
}

/// W30, the other way round: the drain waits for what was written just before the freeze.
#[tokio::test(start_paused = true)]
async fn what_was_written_just_before_the_freeze_arrives_before_the_cutover() {
    let shop = Shop::open().await;
    shop.start().await;
    let wire = Wire::endless();
    let mut mover = shop.mover_over(&wire);
    shop.drive(&mut mover, "ready").await;
    shop.ask(Wish::Cutover).await;
    shop.drive(&mut mover, "noticed").await;
    let (router, ledger) = (shop.router.clone(), shop.ledger.clone());
    // Between the last pass of the copy and the freeze.
    wire.before("control.set.move-half-the-carts", || async move {
        for cart in 0..support::CARTS {
            write_one(&router, &ledger, cart, 60, 6).await;
        }
    });
    shop.drive(&mut mover, "settling").await;
    assert_eq!(shop.state().await.given_up, None, "at the first attempt");
    shop.judge("drained").await;
}

#[tokio::test(start_paused = true)]
async fn a_throttle_holds_and_may_be_changed_while_the_copy_runs() {
    let shop = Shop::open().await;
    shop.start().await;
    let throttle = Throttle {
        records_per_second_max: Some(1),
        reason: "the sale begins at nine".to_owned(),
        ..Throttle::default()
    };
    let control = shop.control.as_ref();
    set_throttle(control, &name(), throttle).await.unwrap();
    let mut mover = shop.mover();
    let began = tokio::time::Instant::now();
    shop.drive(&mut mover, "catching up").await;
    let records = shop.state().await.shown.records_copied;
    assert!(records >= 3, "{records}");
    let least = Duration::from_millis(1_000 * (records - 1));
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
    set_throttle(control, &name(), Throttle::default())
        .await
        .unwrap();
    let began = tokio::time::Instant::now();
    shop.drive(&mut mover, "ready").await;
    assert!(began.elapsed() < Duration::from_secs(5));
}

/// From the first record on, and by weight as well.
#[tokio::test(start_paused = true)]
async fn a_move_may_be_throttled_by_bytes_from_its_beginning() {
    let shop = Shop::open().await;
    let throttle = Throttle {
        bytes_per_second_max: Some(10),
        reason: "a thin line".to_owned(),
        ..Throttle::default()
    };
    let control: Arc<dyn ControlStore> = shop.control.clone();
    let shards = shop.shards(&Wire::endless());
    let started = start_with(&control, &shards, &name(), &shop.plan(), &throttle).await;
    started.unwrap();
    assert_eq!(shop.state().await.throttle, throttle);
    let mut mover = shop.mover();
    let began = tokio::time::Instant::now();
    shop.drive(&mut mover, "catching up").await;
    // A cart weighs more than ten bytes.
    let records = shop.state().await.shown.records_copied;
    let least = Duration::from_secs(records - 1);
    assert!(
        began.elapsed() >= least,
        "{records} in {:?}",
        began.elapsed()
    );
    assert_eq!(shop.state().await.shown.pacing.why, "a thin line");
}

/// Requests whose length the story sets.
#[derive(Debug)]
struct Shoppers {
    world: Arc<support::StillWorld>,
    counts: Mutex<(Duration, [u64; 2])>,
    slow: AtomicBool,
}

impl Pressure for Shoppers {
    fn requests(&self) -> Latencies {
        let mut counts = self.counts.lock().unwrap();
        let now = self.world.elapsed();
        let came = u64::try_from((now - counts.0).as_millis()).unwrap();
        counts.0 = now;
        counts.1[usize::from(self.slow.load(Ordering::SeqCst))] += came;
        Latencies(vec![(1_000, counts.1[0]), (9_000, counts.1[1])])
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_shoppers_feel_slows_down_and_says_why_until_they_do_not() {
    let shop = Shop::open().await;
    shop.start().await;
    let shoppers = Arc::new(Shoppers {
        world: shop.world.clone(),
        counts: Mutex::default(),
        slow: AtomicBool::new(false),
    });
    let mut mover = shop.mover_beside(&Wire::endless(), Some(shoppers.clone()));
    shop.drive(&mut mover, "ready").await;
    let state = shop.state().await;
    let before = state.felt_before.unwrap().p99_us.unwrap();
    assert!((900..=1_000).contains(&before), "{before}");
    assert_eq!(state.shown.pacing.records_per_second, None);
    assert_eq!(state.shown.pacing.p99_us_max, Some(before * 3 / 2));
    shoppers.slow.store(true, Ordering::SeqCst);
    let writers = shop.writers();
    for _ in 0..300 {
        mover.pass().await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let pacing = shop.state().await.shown.pacing;
    assert!(pacing.records_per_second.is_some(), "{pacing:?}");
    assert!(
        pacing.why.contains("shoppers' requests took more than"),
        "{pacing:?}"
    );
    // What changes is followed all the same: shoppers change more than a slow copy takes.
    let lag_ms = shop.state().await.shown.lag_ms.unwrap();
    assert!(lag_ms < 1_000, "{lag_ms}");
    shoppers.slow.store(false, Ordering::SeqCst);
    for _ in 0..1_200 {
        mover.pass().await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let pacing = shop.state().await.shown.pacing;
    assert_eq!((pacing.records_per_second, pacing.why.as_str()), (None, ""));
    shop.cut_over(&mut mover).await;
    writers.stop().await;
    shop.judge("throttled").await;
}

/// Nobody else waits for the connections of this process.
#[tokio::test(start_paused = true)]
async fn a_copy_does_not_slow_down_for_reads_that_wait_for_its_own_puts() {
    let shop = Shop::open().await;
    shop.start().await;
    let wire = Wire::endless();
    let mut mover = shop.mover_over(&wire);
    shop.drive(&mut mover, "ready").await;
    wire.narrow(20);
    let writers = shop.writers();
    let copied = shop.state().await.shown.records_copied;
    for _ in 0..100 {
        mover.pass().await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let shown = shop.state().await.shown;
    assert!(shown.records_copied > copied, "{shown:?}");
    assert!(shown.pacing.engine_us.is_some(), "{shown:?}");
    assert_eq!(shown.pacing.records_per_second, None, "{shown:?}");
    wire.narrow(0);
    shop.cut_over(&mut mover).await;
    writers.stop().await;
    shop.judge("a narrow way").await;
}

/// Eight new carts a millisecond, half of them moved: as many are on their way as come while one pass copies and compares, and never few.
#[tokio::test(start_paused = true)]
async fn a_shop_in_which_much_changes_all_the_time_is_cut_over_and_rolled_back() {
    let shop = Shop::open().await;
    shop.start().await;
    let (stop, router) = (Arc::new(AtomicBool::new(false)), shop.router.clone());
    let comers = tokio::spawn({
        let stop = stop.clone();
        async move {
            let mut next = CARTS;
            while !stop.load(Ordering::SeqCst) {
                for _ in 0..8 {
                    let created = router.write(new_cart(&router.map(), next), Revision::ZERO);
                    assert!(created.await.unwrap().outcome.is_done());
                    next += 1;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            CARTS..next
        }
    });
    let wire = Wire::endless();
    wire.slow_down(1);
    let config = shop.mover_config(&wire);
    let mut mover = Mover::new(MoverConfig {
        feed_limits: feed_limits(),
        verifier_limits: verifier::Limits {
            lag_ms_max: 200,
            // Once is enough here: while it is told by name what another round met unequal, nothing is cut over.
            round_pause_ms: 60_000,
            ..verifier::Limits::default()
        },
        ..config
    })
    .unwrap();
    for (wish, from, end) in [
        (Wish::Cutover, "ready", "settling"),
        (Wish::Rollback, "settling", "rolled back"),
    ] {
        let coming = shop.insist(&mut mover, wish, from, end);
        let came = tokio::time::timeout(Duration::from_secs(15), coming).await;
        assert!(
            came.is_ok(),
            "{end} is not reached: {:?}",
            shop.state().await
        );
    }
    stop.store(true, Ordering::SeqCst);
    for cart in comers.await.unwrap() {
        let shown = shop.router.get(&cart_key(cart)).await.unwrap();
        assert!(shown.is_some(), "cart {cart} is gone");
    }
}

/// A process that serves nobody sees how busy the engines are.
#[tokio::test(start_paused = true)]
async fn a_copy_that_makes_the_engines_slow_slows_down_and_says_why_until_they_are_not() {
    let shop = Shop::open().await;
    shop.start().await;
    let wire = Wire::endless();
    let mut mover = shop.mover_over(&wire);
    shop.drive(&mut mover, "ready").await;
    let pacing = shop.state().await.shown.pacing;
    assert_eq!(pacing.records_per_second, None);
    assert_eq!(pacing.engine_us_max, Some(5_000), "they answer at once");
    wire.slow_down(20);
    let writers = shop.writers();
    for _ in 0..100 {
        mover.pass().await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let pacing = shop.state().await.shown.pacing;
    assert!(pacing.records_per_second.is_some(), "{pacing:?}");
    assert!(
        pacing.why.contains("reads of the engines took more than"),
        "{pacing:?}"
    );
    wire.slow_down(0);
    for _ in 0..1_200 {
        mover.pass().await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let pacing = shop.state().await.shown.pacing;
    assert_eq!((pacing.records_per_second, pacing.why.as_str()), (None, ""));
    shop.cut_over(&mut mover).await;
    writers.stop().await;
    shop.judge("throttled by the engines").await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_move_copies_nothing_and_goes_on_when_it_is_told_to() {
    let shop = Shop::open().await;
    shop.start().await;
    let control = shop.control.as_ref();
    set_pace(control, &name(), Pace::Paused).await.unwrap();
    let mut mover = shop.mover();
    for _ in 0..200 {
        assert!(matches!(mover.pass().await, Ok(Pass::Waiting { .. })));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(shop.phase().await, "planned");
    set_pace(control, &name(), Pace::Running).await.unwrap();
    shop.drive(&mut mover, "ready").await;
}

#[tokio::test(start_paused = true)]
async fn an_aborted_move_changes_nothing_for_shoppers() {
    let shop = Shop::open().await;
    let writers = shop.writers();
    shop.start().await;
    let mut mover = shop.mover();
    shop.drive(&mut mover, "ready").await;
    shop.ask(Wish::Abort).await;
    shop.drive(&mut mover, "aborted").await;
    assert_eq!(shop.owner().await, "source");
    tokio::time::sleep(Duration::from_millis(100)).await;
    writers.stop().await;
    shop.judge("aborted").await;
}

#[tokio::test(start_paused = true)]
async fn a_move_goes_through_the_steps_that_are_shown_before_it_begins() {
    let shop = Shop::open().await;
    shop.start().await;
    let mut mover = shop.mover();
    // Inside of one pass it is frozen and cut over.
    let shown = steps(&shop.plan());
    let shown = shown.iter().map(|step| step.phase);
    let shown: Vec<&str> = shown.filter(|phase| *phase != "frozen").collect();
    let mut seen = vec!["planned"];
    while seen.last() != shown.last() {
        mover.pass().await.unwrap();
        let phase = shop.phase().await;
        if seen.last() != Some(&phase) {
            seen.push(phase);
        }
        match phase {
            "ready" => shop.ask(Wish::Cutover).await,
            "settling" => shop.ask(Wish::Complete).await,
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(seen.len() <= shown.len(), "{seen:?}");
    }
    assert_eq!(seen, shown);
}
