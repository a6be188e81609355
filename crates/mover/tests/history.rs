//! A collection whose finished records are kept apart goes to another layout, with all of them, and back.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use engine_api::{
    Authority, Change, Content, Engine, FenceKind, Maintenance, MoverTerm, PartsChange, Record,
    Revision, Timestamp, World, WriteContext,
};
use layout::{Collection, Field, ShardKey, Value};
use mover::{Direction, Histories, MoveName, Moved, Plan, Unfit, Wish, certificate};
use router::{CollectionMap, Cut, RangeStart};
use support::{CARTS, Shop, Wire, header, image, key_in, name, new_cart, shard};

const SHARDS: [&str; 4] = ["one", "two", "three", "history"];
const TARGETS: [&str; 3] = ["one", "two", "three"];
/// Finished ones have numbers from here on.
const FINISHED: std::ops::Range<u64> = 1_000..1_010;
/// Of these nothing is left among the live ones, not even a mark.
const FORGOTTEN: std::ops::Range<u64> = 1_000..1_003;

fn by_slots(layout: &str, fields: &[Field], shards: &[&str]) -> CollectionMap {
    let shards: Vec<_> = shards.iter().map(|name| shard(name)).collect();
    CollectionMap::cut_by(layout, fields.to_vec(), Cut::even_slots(&shards))
}

/// With the same shard key on both sides, with keys that only one side can make, and with keys that neither can.
fn placements() -> [(CollectionMap, CollectionMap); 3] {
    use Field::{CartId, SessionId, UserId};
    let from = |key: Option<&str>, name| RangeStart {
        from: key.map(|key| ShardKey::of(&[Value::text(key)]).unwrap()),
        shard: shard(name),
    };
    let ranges = Cut::Ranges(vec![
        from(None, "source"),
        from(Some("session-4"), "target"),
    ]);
    let source = ["source", "target"];
    [
        (
            by_slots("same", &[UserId], &source),
            by_slots("other", &[UserId], &TARGETS),
        ),
        (
            CollectionMap::cut_by("ranges", vec![SessionId, CartId], ranges),
            by_slots("id", &[CartId], &TARGETS),
        ),
        (
            by_slots("user", &[UserId], &source),
            by_slots("session", &[SessionId, UserId], &TARGETS),
        ),
    ]
}

/// `from` keeps finished carts in the history.
fn leaving(from: &CollectionMap, to: &CollectionMap) -> Plan {
    Plan {
        collection: Collection::Carts,
        moved: Moved::Whole {
            source: Box::new(from.clone()),
            target: Box::new(to.clone()),
            histories: Histories {
                source: Some(shard("history")),
                target: None,
            },
        },
        freeze_ms_max: 100,
    }
}

fn entering(from: &CollectionMap, to: &CollectionMap) -> Plan {
    let mut plan = leaving(from, to);
    if let Moved::Whole {
        source,
        target,
        histories,
    } = &mut plan.moved
    {
        std::mem::swap(source, target);
        *histories = std::mem::take(histories).reversed();
    }
    plan
}

/// The stored image, wherever the map has the cart.
async fn live_image(shop: &Shop, cart: u64) -> Option<Record> {
    let map = shop.map().await;
    let key = key_in(&map, cart);
    let owner = map.owner(&key).unwrap().to_string();
    image(&shop.engines[owner.as_str()], &key).await
}

async fn archived_image(shop: &Shop, cart: u64) -> Option<Record> {
    let key = key_in(&shop.map().await.clone(), cart);
    image(&shop.engines["history"], &key).await
}

async fn put_to_history(shop: &Shop, image: Record) {
    let context = WriteContext {
        authority: Authority::Mover {
            term: MoverTerm {
                move_name: "archive".to_owned(),
                term: 1,
            },
        },
        now: shop.world.now(),
        revision: image.newest_revision(),
    };
    let put = shop.engines["history"].apply(Change::PutImage { image }, context);
    assert!(put.await.unwrap().is_done());
}

/// As the feed of the history does it: a copy, then the removal of what was copied.
async fn archive(shop: &Shop, cart: u64) {
    let image = live_image(shop, cart).await.unwrap();
    put_to_history(shop, image.clone()).await;
    let removal = Change::Remove {
        key: image.key.clone(),
        expected: image.header.revision,
    };
    let removed = shop.router.write(removal, Revision::ZERO).await.unwrap();
    assert!(removed.outcome.is_done(), "{removed:?}");
}

async fn make(shop: &Shop, cart: u64) {
    let made = shop
        .router
        .write(new_cart(&shop.router.map(), cart), Revision::ZERO);
    assert!(made.await.unwrap().outcome.is_done());
}

/// A shop of live carts and finished ones. Of some the marks are forgotten, and one live cart has an older copy.
async fn shop_with_history(from: &CollectionMap) -> Shop {
    let shop = Shop::placed(FenceKind::InStore, from.clone(), &SHARDS).await;
    for cart in FINISHED {
        make(&shop, cart).await;
    }
    for cart in FORGOTTEN {
        archive(&shop, cart).await;
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    let begun = Timestamp::from_unix_micros(0);
    for name in ["source", "target"] {
        let forget = Maintenance {
            now: begun,
            marks_before: shop.world.now(),
            journal_before: begun,
            items_max: 1_000,
        };
        shop.engines[name].maintain(forget).await.unwrap();
    }
    for cart in FORGOTTEN.end..FINISHED.end {
        archive(&shop, cart).await;
    }
    assert!(live_image(&shop, FORGOTTEN.start).await.is_none());
    assert_eq!(
        live_image(&shop, FORGOTTEN.end)
            .await
            .unwrap()
            .header
            .content,
        Content::Removed
    );
    put_to_history(&shop, live_image(&shop, 0).await.unwrap()).await;
    shop.write(0, 1, 77).await;
    shop
}

/// As orders change: by their header.
async fn change(shop: &Shop, cart: u64, ordinal: i64) {
    let key = key_in(&shop.router.map(), cart);
    let found = shop.router.get(&key).await.unwrap().unwrap();
    let change = Change::ChangeIf {
        key,
        expected: found.header.revision,
        header: header(cart).with(Field::Ordinal, Value::Int(ordinal)),
        parts: PartsChange::Keep,
    };
    let changed = shop.router.write(change, Revision::ZERO).await.unwrap();
    assert!(changed.outcome.is_done(), "{changed:?}");
}

async fn ordinal_of(shop: &Shop, cart: u64) -> Option<i64> {
    let key = key_in(&shop.router.map(), cart);
    let found = shop.router.get(&key).await.unwrap()?;
    ordinal_in(&found)
}

fn ordinal_in(image: &Record) -> Option<i64> {
    image.header.content.live()?.get(Field::Ordinal)?.as_int()
}

/// Whatever of a finished cart the map's shards and the history have together, as readers put it together.
async fn shown(shop: &Shop, cart: u64) -> Option<Record> {
    let live = live_image(shop, cart).await;
    match live.filter(|image| image.header.content != Content::Removed) {
        Some(image) => Some(image),
        None => archived_image(shop, cart).await,
    }
}

#[tokio::test(start_paused = true)]
async fn a_layout_with_a_history_is_left_with_everything_and_entered_again() {
    for (from, to) in placements() {
        let story = format!("{} to {}", from.layout, to.layout);
        let mut shop = shop_with_history(&from).await;
        let writers = shop.writers();
        shop.start_with(leaving(&from, &to)).await;
        let mut mover = shop.mover();
        shop.cut_over(&mut mover).await;
        // Everything lives over there, as it was.
        for cart in FINISHED {
            assert_eq!(
                ordinal_of(&shop, cart).await,
                Some(1),
                "{story}: cart {cart}"
            );
        }
        let found = certificate(shop.control.as_ref(), &name(), Direction::Cutover).await;
        let records = found.unwrap().unwrap().content.records;
        assert_eq!(records, CARTS + (FINISHED.end - FINISHED.start), "{story}");
        // One of those with a mark at the source, one without, are changed there.
        let changed = [FORGOTTEN.start, FORGOTTEN.end];
        for cart in changed {
            change(&shop, cart, 5).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        shop.ask(Wish::Rollback).await;
        shop.drive(&mut mover, "rolled back").await;
        for cart in FINISHED {
            let live = live_image(&shop, cart).await;
            let lives = live.is_some_and(|live| live.header.content != Content::Removed);
            assert_eq!(lives, changed.contains(&cart), "{story}: cart {cart}");
            assert!(shown(&shop, cart).await.is_some(), "{story}: cart {cart}");
        }
        writers.stop().await;
        shop.judge(&story).await;
        // There again, for good, and from there back into the layout with the history.
        shop.move_name = MoveName::new("again").unwrap();
        shop.start_with(leaving(&from, &to)).await;
        let mut mover = shop.mover();
        shop.cut_over(&mut mover).await;
        shop.ask(Wish::Complete).await;
        shop.drive(&mut mover, "cleaned up").await;
        for cart in FINISHED {
            let expected = if changed.contains(&cart) { 5 } else { 1 };
            assert_eq!(ordinal_of(&shop, cart).await, Some(expected), "{story}");
        }
        shop.move_name = MoveName::new("home").unwrap();
        shop.start_with(entering(&from, &to)).await;
        let mut mover = shop.mover();
        shop.cut_over(&mut mover).await;
        for cart in FINISHED {
            let shown = shown(&shop, cart).await.unwrap();
            let expected = if changed.contains(&cart) { 5 } else { 1 };
            assert_eq!(ordinal_in(&shown), Some(expected), "{story}: cart {cart}");
            let live = live_image(&shop, cart).await;
            let lives = live.is_some_and(|live| live.header.content != Content::Removed);
            assert_eq!(
                lives,
                changed.contains(&cart),
                "{story}: what is archived stays so"
            );
        }
        shop.judge(&story).await;
    }
}

/// A process that slept removes what it had copied long before, while the move runs: what the side has stays the same.
#[tokio::test(start_paused = true)]
async fn a_removal_that_slept_takes_nothing_from_the_move() {
    for phase in ["backfilling", "verifying", "ready"] {
        let (from, to) = placements()[0].clone();
        let shop = shop_with_history(&from).await;
        let late = 7;
        shop.start_with(leaving(&from, &to)).await;
        let mut mover = shop.mover();
        shop.drive(&mut mover, phase).await;
        archive(&shop, late).await;
        shop.cut_over(&mut mover).await;
        assert_eq!(ordinal_of(&shop, late).await, Some(1), "{phase}");
        // What is numbered after it comes home.
        tokio::time::sleep(Duration::from_millis(20)).await;
        change(&shop, late, 3).await;
        shop.ask(Wish::Rollback).await;
        shop.drive(&mut mover, "rolled back").await;
        assert_eq!(ordinal_of(&shop, late).await, Some(3), "{phase}");
    }
}

/// The marks of what was archived last lie below every number that the target gives, on whatever clock.
#[tokio::test(start_paused = true)]
async fn nothing_is_copied_before_the_last_archiving_lies_behind_every_clock() {
    let (from, to) = placements()[0].clone();
    let shop = shop_with_history(&from).await;
    let clocks = Duration::from_millis(router::Limits::default().clock_ahead_ms_max);
    shop.start_with(leaving(&from, &to)).await;
    let mut mover = shop.mover();
    let began = shop.world.elapsed();
    shop.drive(&mut mover, "backfilling").await;
    let rested = shop.world.elapsed().saturating_sub(began);
    assert!(rested >= clocks * 2, "{rested:?}");
}

/// A copy in the history that a bare hand has altered is what readers see: it is carried, and at the other side an
/// alteration is named.
#[tokio::test(start_paused = true)]
async fn a_finished_record_that_is_altered_at_the_target_is_a_difference() {
    let (from, to) = placements()[0].clone();
    let shop = shop_with_history(&from).await;
    shop.start_with(leaving(&from, &to)).await;
    let mut mover = shop.mover();
    shop.drive(&mut mover, "ready").await;
    let map = shop.map().await;
    let key = key_in(&map, FINISHED.start);
    let owner = to.owner(&key.shard_key).to_string();
    let target = &shop.engines[owner.as_str()];
    let mut altered = image(target, &key).await.unwrap();
    let newest = altered.newest_revision().to_i64();
    altered.header.revision = Revision::from_i64(newest + 1).unwrap();
    let context = WriteContext {
        authority: Authority::Mover {
            term: MoverTerm {
                move_name: "bare-hand".to_owned(),
                term: 1,
            },
        },
        now: shop.world.now(),
        revision: altered.newest_revision(),
    };
    let put = target.apply(Change::PutImage { image: altered }, context);
    assert!(put.await.unwrap().is_done());
    shop.ask(Wish::Cutover).await;
    shop.drive(&mut mover, "verifying").await;
    let map = shop.map().await;
    assert_eq!(*map.collection(Collection::Carts).unwrap(), from);
}

#[tokio::test(start_paused = true)]
async fn a_history_that_is_no_store_of_its_own_is_refused() {
    let (from, to) = placements()[0].clone();
    let shop = Shop::placed(FenceKind::InStore, from.clone(), &SHARDS).await;
    let map = shop.map().await;
    let shards = shop.shards(&Wire::endless());
    for (history, refused) in [
        (
            "source",
            Unfit::SameShard {
                shard: shard("source"),
            },
        ),
        (
            "one",
            Unfit::SameShard {
                shard: shard("one"),
            },
        ),
        (
            "nowhere",
            Unfit::UnknownShard {
                shard: shard("nowhere"),
            },
        ),
    ] {
        let mut plan = leaving(&from, &to);
        if let Moved::Whole { histories, .. } = &mut plan.moved {
            histories.source = Some(shard(history));
        }
        let found = mover::preflight(&plan, &map, &shards).await;
        assert_eq!(found, Err(refused.into()), "{history}");
    }
    assert!(
        mover::preflight(&leaving(&from, &to), &map, &shards)
            .await
            .is_ok()
    );
}
