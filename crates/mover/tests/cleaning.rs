//! What a completed move leaves at its source goes, and nothing that lives goes with it (W47).

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use engine_api::{
    Authority, ControlStore, Engine, EngineError, FenceKind, Revision, World, WriteContext, Writer,
};
use layout::{Collection, Scope};
use mover::{Grace, MoveError, MoveName, Moved, Mover, Pass, Plan, Unfit, Wish, start};
use router::{Edit, MapKeeper};
use support::{Shop, Wire, cart_key, keep, line, moving, moving_cart, shard};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

const PAUSE: Duration = Duration::from_millis(35);

async fn complete(shop: &Shop, grace: Grace) {
    let completed = mover::complete(shop.control.as_ref(), &shop.move_name, Some(grace)).await;
    completed.unwrap();
}

/// Those of them that the move has moved.
async fn left_at_source(shop: &Shop) -> usize {
    let held = shop.held_by("source").await;
    let moved = |cart: &u64| {
        let key = cart_key(*cart);
        moving().contains(&key.shard_key) && held.contains(&key.id.to_string())
    };
    (0..support::CARTS).filter(moved).count()
}

fn back(shop: &Shop) -> Plan {
    Plan {
        moved: Moved::Keys {
            scope: moving(),
            source: shard("target"),
            target: shard("source"),
        },
        ..shop.plan()
    }
}

#[tokio::test(start_paused = true)]
async fn after_its_grace_the_source_forgets_what_was_moved_and_nothing_else() {
    let shop = Shop::open().await;
    let writers = shop.writers_every(PAUSE);
    shop.start().await;
    let mut mover = shop.mover();
    let before = shop.map().await.generation;
    shop.cut_over(&mut mover).await;
    complete(&shop, Grace::Ms(60_000)).await;
    shop.drive(&mut mover, "completed").await;
    let held = shop.held_by("source").await.len();
    let moved = left_at_source(&shop).await;
    assert!(moved > 0 && moved < held, "{moved} of {held}");
    let began = shop.world.elapsed();
    shop.drive(&mut mover, "cleaning up").await;
    let waited = shop.world.elapsed() - began;
    assert!(waited >= Duration::from_secs(60), "{waited:?}");
    let journal = shop.source.journal_end().await.unwrap();
    shop.drive(&mut mover, "cleaned up").await;
    writers.stop().await;
    shop.judge("cleaned up").await;
    assert_eq!(left_at_source(&shop).await, 0);
    assert_eq!(shop.held_by("source").await.len(), held - moved);
    let removed = shop.state().await.shown.records_removed;
    assert_eq!(removed, moved as u64);
    // Writers go on with what the source still owns; of what it forgot nothing is told.
    let told = shop.source.journal_read(&journal, 10_000).await.unwrap();
    let named = format!("{:?}", told.entries);
    assert!(!named.contains(&cart_key(moving_cart()).id.to_string()));
    // What set out before the cutover is refused as before.
    let late = WriteContext {
        authority: Authority::Router { generation: before },
        now: shop.world.now(),
        revision: Revision::at(shop.world.now(), Writer::numbered(3)),
    };
    let late = shop.source.apply(line(moving_cart(), 0, 99), late).await;
    assert!(matches!(late, Err(EngineError::Fenced { .. })), "{late:?}");
}

/// A grace that is told anew counts from then on; what is kept is kept.
#[tokio::test(start_paused = true)]
async fn an_operator_may_shorten_the_grace_or_keep_the_source() {
    let shop = Shop::open().await;
    shop.start().await;
    let mut mover = shop.mover();
    shop.cut_over(&mut mover).await;
    complete(&shop, Grace::Ms(86_400_000)).await;
    shop.drive(&mut mover, "completed").await;
    let moved = left_at_source(&shop).await;
    complete(&shop, Grace::Keep).await;
    while mover.pass().await.unwrap() != Pass::Ended {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(shop.phase().await, "completed");
    assert_eq!(left_at_source(&shop).await, moved);
    let again = mover::complete(shop.control.as_ref(), &shop.move_name, None).await;
    let again = again.unwrap_err().to_string();
    assert!(again.contains("it is completed"), "{again}");

    let shop = Shop::open().await;
    shop.start().await;
    let mut mover = shop.mover();
    shop.cut_over(&mut mover).await;
    complete(&shop, Grace::Ms(86_400_000)).await;
    shop.drive(&mut mover, "completed").await;
    let began = shop.world.elapsed();
    complete(&shop, Grace::Ms(0)).await;
    shop.drive(&mut mover, "cleaned up").await;
    let waited = shop.world.elapsed() - began;
    assert!(waited < Duration::from_secs(3_600), "{waited:?}");
    assert_eq!(left_at_source(&shop).await, 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_while_a_process_may_still_read_it_there() {
    let shop = Shop::open().await;
    shop.start().await;
    let wire = Wire::endless();
    let mut mover = shop.mover_over(&wire);
    shop.drive(&mut mover, "ready").await;
    let second = shop.second_router("sleeper").await;
    let keeping = keep(&second);
    shop.ask(Wish::Cutover).await;
    shop.drive(&mut mover, "noticed").await;
    // It has heard of the freeze, and falls asleep before it hears of the cutover.
    wire.before("control.set.map", || async {});
    wire.before("control.set.map", move || async move { keeping.abort() });
    shop.drive(&mut mover, "settling").await;
    let moved = left_at_source(&shop).await;
    complete(&shop, Grace::Ms(0)).await;
    shop.drive(&mut mover, "cleaning up").await;
    mover.pass().await.unwrap();
    tokio::time::sleep(Duration::from_millis(250)).await;
    mover.pass().await.unwrap();
    let in_use = shop.state().await.shown.in_use.unwrap();
    assert!(in_use.contains("sleeper"), "{in_use}");
    assert_eq!(left_at_source(&shop).await, moved);
    // Its lease runs out, and with it whatever it might have answered.
    shop.drive(&mut mover, "cleaned up").await;
    assert_eq!(left_at_source(&shop).await, 0);
    assert_eq!(shop.state().await.shown.in_use, None);
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_to_be_cleaned_gets_none_of_the_keys_before_it_is() {
    let shop = Shop::open().await;
    shop.start().await;
    let mut mover = shop.mover();
    shop.cut_over(&mut mover).await;
    complete(&shop, Grace::Ms(86_400_000)).await;
    shop.drive(&mut mover, "completed").await;
    let control: Arc<dyn ControlStore> = shop.control.clone();
    let shards = shop.shards(&Wire::endless());
    let name = MoveName::new("back").unwrap();
    let plan = back(&shop);
    let start_back = || start(&control, &shards, &name, &plan);
    // What is elsewhere is free.
    let elsewhere = Plan {
        moved: shop.moved(support::slots(2_048, 4_095)),
        ..shop.plan()
    };
    let other = MoveName::new("elsewhere").unwrap();
    mover::check(&control, &shards, &other, &elsewhere)
        .await
        .unwrap();
    let refused = start_back().await.unwrap_err();
    let expected = MoveError::Unfit(Unfit::ToBeCleaned {
        other: shop.move_name.to_string(),
        shard: shard("source"),
    });
    assert_eq!(refused, expected);
    shop.ask(Wish::Abort).await;
    while mover.pass().await.unwrap() != Pass::Ended {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    start_back().await.unwrap();
}

/// A map that somebody made by hand counts as well: what it gives the source is the source's.
#[tokio::test(start_paused = true)]
async fn what_the_map_gives_back_meanwhile_stays() {
    let shop = Shop::open().await;
    shop.start().await;
    let mut mover = shop.mover();
    shop.cut_over(&mut mover).await;
    complete(&shop, Grace::Ms(10_000)).await;
    shop.drive(&mut mover, "completed").await;
    let moved = left_at_source(&shop).await;
    let pinned = Edit::Move {
        scope: Scope::Keys(vec![cart_key(moving_cart()).shard_key]),
        to: shard("source"),
    };
    let map = shop.map().await;
    let map = map.edited(&[(Collection::Carts, pinned)]).unwrap();
    let keeper = MapKeeper::new(shop.control.clone());
    keeper.publish(&map).await.unwrap();
    shop.drive(&mut mover, "cleaned up").await;
    assert_eq!(left_at_source(&shop).await, 1, "of {moved}");
    assert!(
        support::image(&shop.source, &cart_key(moving_cart()))
            .await
            .is_some()
    );
}

type Sleeping = JoinHandle<Result<Pass, String>>;

/// A cleaner that stopped before its first call of this name.
async fn asleep_before(shop: &Shop, call: &str) -> (Arc<Semaphore>, Sleeping) {
    shop.start().await;
    let wire = Wire::endless();
    let mut mover = shop.mover_over(&wire);
    shop.cut_over(&mut mover).await;
    let (gate, arrived) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (waits, tells) = (gate.clone(), arrived.clone());
    wire.before(call, || async move {
        tells.add_permits(1);
        waits.acquire().await.unwrap().forget();
    });
    complete(shop, Grace::Ms(0)).await;
    let sleeping = tokio::spawn(async move {
        loop {
            match mover.pass().await {
                Ok(Pass::Behind | Pass::Waiting { .. }) => {}
                ended => return ended.map_err(|error| error.to_string()),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    arrived.acquire().await.unwrap().forget();
    (gate, sleeping)
}

/// Another mover takes over and finishes, or the operator keeps the rest; the keys come back; the cleaner wakes.
async fn wakes(fence: FenceKind, call: &str, wish: Option<Wish>, at: &str) {
    let story =
        format!("{fence:?}, asleep before {call}, {wish:?}, awake when the way back is {at}");
    let mut shop = Shop::fenced(fence).await;
    // So that the records have more than one part, all of the same revision on both sides.
    let writers = shop.writers_every(PAUSE);
    tokio::time::sleep(PAUSE * 20).await;
    // From here on nobody writes: what comes back is what is there, revision by revision.
    writers.stop().await;
    let (gate, sleeping) = asleep_before(&shop, call).await;
    let mut second: Mover = shop.mover();
    if let Some(wish) = wish {
        shop.ask(wish).await;
    }
    let end = match wish {
        Some(_) => "completed",
        None => "cleaned up",
    };
    shop.drive(&mut second, end).await;
    let plan = back(&shop);
    shop.move_name = MoveName::new("back").unwrap();
    shop.start_with(plan).await;
    let mut third = shop.mover();
    shop.drive(&mut third, "ready").await;
    if at == "settling" {
        shop.cut_over(&mut third).await;
        shop.judge(&format!("{story}, back")).await;
    }
    gate.add_permits(1);
    let told = sleeping.await.unwrap();
    if at == "ready" {
        // Copied and compared, and not yet the source's by the map.
        shop.cut_over(&mut third).await;
    }
    assert_eq!(shop.owner().await, "source", "{story}");
    if call != "source.forget" || fence == FenceKind::InStore {
        let told = told.unwrap_err();
        assert!(
            told.contains("another process has taken"),
            "{story}: {told}"
        );
    }
    shop.judge(&format!("{story}, awake")).await;
}

#[tokio::test(start_paused = true)]
async fn a_cleaner_that_slept_takes_nothing_along_that_came_back() {
    for fence in [FenceKind::InStore, FenceKind::ByLease] {
        for call in ["source.scan", "source.condemn", "source.forget"] {
            for wish in [None, Some(Wish::Abort)] {
                for at in ["ready", "settling"] {
                    wakes(fence, call, wish, at).await;
                }
            }
        }
    }
}
