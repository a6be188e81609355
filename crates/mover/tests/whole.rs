//! A whole collection goes to another layout, shard key and cut, and back.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine_api::{
    Authority, Change, Content, ControlStore, Engine, FenceKind, Header, MoverTerm, Patience,
    Record, Revision, RowFault, Stray, World, WriteContext,
};
use layout::{Collection, Field, Scope, ShardKey, Value};
use mover::{Direction, End, Histories, MoveName, Moved, Plan, Wish, certificate, start};
use router::{CollectionMap, Cut, RangeStart, Router};
use support::{CARTS, Shop, Stop, Wire, cart_key, key_in, name, new_cart, shard};
use tokio::task::JoinHandle;

const PAUSE: Duration = Duration::from_millis(35);
const MORE: [&str; 3] = ["one", "two", "three"];
/// Carts that come and go have numbers from here on.
const PASSING: u64 = 1_000;

fn by_slots(layout: &str, fields: &[Field], shards: &[&str]) -> CollectionMap {
    let shards: Vec<_> = shards.iter().map(|name| shard(name)).collect();
    CollectionMap::cut_by(layout, fields.to_vec(), Cut::even_slots(&shards))
}

fn by_ranges(layout: &str, fields: &[Field], pieces: &[(Option<&str>, &str)]) -> CollectionMap {
    let range = |(from, name): &(Option<&str>, &str)| RangeStart {
        from: from.map(|from| ShardKey::of(&[Value::text(from)]).unwrap()),
        shard: shard(name),
    };
    let cut = Cut::Ranges(pieces.iter().map(range).collect());
    CollectionMap::cut_by(layout, fields.to_vec(), cut)
}

/// As products go from {category, id} in ranges to {id} in slots, and as orders go from
/// the user to zone and user: the carts' own fields stand for those.
fn placements() -> [(CollectionMap, CollectionMap); 3] {
    use Field::{CartId, SessionId, UserId};
    [
        (
            by_ranges(
                "ranges",
                &[SessionId, CartId],
                &[(None, "source"), (Some("session-4"), "target")],
            ),
            by_slots("slots", &[CartId], &MORE),
        ),
        (
            by_slots("user", &[UserId], &["source", "target"]),
            by_slots("zone", &[SessionId, UserId], &MORE),
        ),
        // The same shard key: another layout, or another engine.
        (
            by_slots("one", &[UserId], &["source", "target"]),
            by_slots("other", &[UserId], &["three"]),
        ),
    ]
}

fn plan(source: &CollectionMap, target: &CollectionMap) -> Plan {
    Plan {
        collection: Collection::Carts,
        moved: Moved::Whole {
            source: Box::new(source.clone()),
            target: Box::new(target.clone()),
            histories: Histories::default(),
        },
        freeze_ms_max: 100,
    }
}

/// Carts that are made and removed all the time, and what became of each.
struct Passing {
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
    lives: Arc<Mutex<BTreeMap<u64, bool>>>,
}

impl Passing {
    fn begin(shop: &Shop) -> Passing {
        let (stop, lives) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let task = tokio::spawn(pass_by(
            shop.router.clone(),
            stop.clone(),
            Arc::clone(&lives),
        ));
        Passing { stop, task, lives }
    }

    /// Every one that was removed is gone, every other there, wherever the map says.
    async fn end(self, shop: &Shop, story: &str) {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.unwrap();
        let lives = self.lives.lock().unwrap().clone();
        assert!(lives.values().any(|lives| *lives) && lives.values().any(|lives| !lives));
        let map = shop.map().await;
        for (cart, lives) in lives {
            let found = shop.router.get(&key_in(&map, cart)).await.unwrap();
            assert_eq!(found.is_some(), lives, "{story}: cart {cart}");
        }
    }
}

async fn pass_by(
    router: Arc<Router>,
    stop: Arc<AtomicBool>,
    lives: Arc<Mutex<BTreeMap<u64, bool>>>,
) {
    static TURN: AtomicU64 = AtomicU64::new(0);
    for number in PASSING.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let made = router
            .write(new_cart(&router.map(), number), Revision::ZERO)
            .await;
        assert!(made.unwrap().outcome.is_done());
        lives.lock().unwrap().insert(number, true);
        // Some go at once, some later, some stay.
        let gone = match TURN.fetch_add(1, Ordering::Relaxed) % 3 {
            0 => number,
            1 => number.saturating_sub(4),
            _ => PASSING - 1,
        };
        if lives.lock().unwrap().get(&gone) == Some(&true) {
            let key = key_in(&router.map(), gone);
            let expected = router.get(&key).await.unwrap().unwrap().header.revision;
            let removal = Change::Remove { key, expected };
            let removed = router.write(removal, Revision::ZERO).await.unwrap();
            assert!(removed.outcome.is_done(), "{removed:?}");
            lives.lock().unwrap().insert(gone, false);
        }
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_whole_collection_goes_to_another_shard_key_and_back_under_writers() {
    for (from, to) in placements() {
        let story = format!("{} to {}", from.layout, to.layout);
        let shop = Shop::placed(FenceKind::InStore, from.clone(), &MORE).await;
        let writers = shop.writers();
        let passing = Passing::begin(&shop);
        tokio::time::sleep(Duration::from_millis(100)).await;
        shop.start_with(plan(&from, &to)).await;
        let mut mover = shop.mover();
        shop.cut_over(&mut mover).await;
        let map = shop.map().await;
        assert_eq!(*map.collection(Collection::Carts).unwrap(), to, "{story}");
        tokio::time::sleep(Duration::from_millis(300)).await;
        shop.ask(Wish::Rollback).await;
        shop.drive(&mut mover, "rolled back").await;
        let map = shop.map().await;
        assert_eq!(*map.collection(Collection::Carts).unwrap(), from, "{story}");
        tokio::time::sleep(Duration::from_millis(300)).await;
        writers.stop().await;
        shop.judge(&story).await;
        passing.end(&shop, &story).await;
    }
}

/// Where nothing fences in the store and nothing knows terms, as on Cassandra.
#[tokio::test(start_paused = true)]
async fn a_whole_collection_goes_to_another_layout_where_leases_fence() {
    let [.., (from, to)] = placements();
    let shop = Shop::placed(FenceKind::ByLease, from.clone(), &MORE).await;
    let writers = shop.writers();
    let passing = Passing::begin(&shop);
    shop.start_with(plan(&from, &to)).await;
    let mut mover = shop.mover();
    shop.cut_over(&mut mover).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    writers.stop().await;
    shop.ask(Wish::Complete).await;
    shop.drive(&mut mover, "completed").await;
    shop.judge("completed").await;
    shop.drive(&mut mover, "cleaned up").await;
    shop.judge("cleaned up").await;
    passing.end(&shop, "cleaned up").await;
    for left in from.shards() {
        let records = shop.held_by(left.as_str()).await;
        assert!(records.is_empty(), "{left} was left behind");
    }
}

/// What a removal leaves is refused by a mark, wherever the record stood.
#[tokio::test(start_paused = true)]
async fn a_second_move_meets_the_copies_of_the_first_and_ends_with_the_same() {
    for (from, to) in placements() {
        let story = format!("{} to {}", from.layout, to.layout);
        let mut shop = Shop::placed(FenceKind::InStore, from.clone(), &MORE).await;
        let passing = Passing::begin(&shop);
        tokio::time::sleep(Duration::from_millis(200)).await;
        shop.start_with(plan(&from, &to)).await;
        let mut mover = shop.mover();
        shop.cut_over(&mut mover).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        shop.ask(Wish::Rollback).await;
        shop.drive(&mut mover, "rolled back").await;
        // Removed while only the old side serves: the copies over there know nothing of it.
        tokio::time::sleep(Duration::from_millis(200)).await;
        shop.move_name = MoveName::new("again").unwrap();
        shop.start_with(plan(&from, &to)).await;
        let mut mover = shop.mover();
        shop.cut_over(&mut mover).await;
        let map = shop.map().await;
        assert_eq!(*map.collection(Collection::Carts).unwrap(), to, "{story}");
        tokio::time::sleep(Duration::from_millis(100)).await;
        shop.judge(&story).await;
        passing.end(&shop, &story).await;
    }
}

/// A shard may hold what it does not own: carts that an earlier move took elsewhere, and that were removed there since.
#[tokio::test(start_paused = true)]
async fn a_copy_that_an_earlier_move_left_on_a_shard_is_not_carried() {
    let (from, to) = placements()[2].clone();
    let shop = Shop::placed(FenceKind::InStore, from.clone(), &MORE).await;
    let map = shop.map().await;
    let Change::CreateIfAbsent { key, header, .. } = new_cart(&map, PASSING) else {
        panic!("a cart is created");
    };
    let owner = from.owner(&key.shard_key).as_str();
    let stray = shop
        .engines
        .iter()
        .find(|(name, _)| ["source", "target"].contains(*name) && **name != owner);
    let revision = Revision::from_i64(1 << 40).unwrap();
    let image = Record {
        key,
        header: Header {
            revision,
            cleared: Revision::ZERO,
            content: Content::Live(header),
        },
        parts: BTreeMap::new(),
    };
    let context = WriteContext {
        authority: Authority::Mover {
            term: MoverTerm {
                move_name: "earlier".to_owned(),
                term: 1,
            },
        },
        now: shop.world.now(),
        revision,
    };
    let put = stray.unwrap().1.apply(Change::PutImage { image }, context);
    assert!(put.await.unwrap().is_done());
    shop.start_with(plan(&from, &to)).await;
    let mut mover = shop.mover();
    shop.cut_over(&mut mover).await;
    let found = certificate(shop.control.as_ref(), &name(), Direction::Cutover).await;
    assert_eq!(found.unwrap().unwrap().content.records, CARTS);
    let map = shop.map().await;
    let found = shop.router.get(&key_in(&map, PASSING)).await.unwrap();
    assert!(found.is_none(), "nobody has it any more");
}

/// The certificate names both placements, and the seal of every shard.
#[tokio::test(start_paused = true)]
async fn a_certificate_of_a_whole_collection_holds() {
    let [(from, to), ..] = placements();
    let shop = Shop::placed(FenceKind::InStore, from.clone(), &MORE).await;
    shop.start_with(plan(&from, &to)).await;
    let mut mover = shop.mover();
    shop.cut_over(&mut mover).await;
    let found = certificate(shop.control.as_ref(), &name(), Direction::Cutover).await;
    let found = found.unwrap().unwrap();
    assert!(found.verify());
    assert_eq!(found.content.plan, plan(&from, &to));
    assert_eq!(found.content.records, CARTS);
    assert_eq!(
        found.content.plan.called(End::Source),
        "ranges (source, target by session_id + cart_id)"
    );
}

/// How far the first mover got before it died.
async fn one_dies(
    which: usize,
    stop: Stop,
    calls: i64,
    story: (&[&str], Wish, &str, &str),
) -> bool {
    let (before, wish, from, to) = story;
    let (source, target) = placements()[which].clone();
    let shop = Shop::placed(FenceKind::InStore, source.clone(), &MORE).await;
    let writers = shop.writers_every(PAUSE);
    shop.start_with(plan(&source, &target)).await;
    let wire = Wire::of(i64::MAX, stop);
    let mut first = shop.mover_over(&wire);
    for phase in before {
        match *phase {
            "settling" => shop.cut_over(&mut first).await,
            phase => shop.drive(&mut first, phase).await,
        }
    }
    wire.cut_after(calls);
    let moving = shop.insist(&mut first, wish, from, to);
    let _ = tokio::time::timeout(Duration::from_secs(2), moving).await;
    let died = wire.is_cut();
    drop(first);
    let mut second = shop.mover();
    shop.insist(&mut second, wish, from, to).await;
    tokio::time::sleep(PAUSE * 3).await;
    writers.stop().await;
    shop.judge(&format!("{which}, {stop:?} call {calls} to {to}"))
        .await;
    died
}

async fn at_each_call(which: usize, stride: usize, story: (&[&str], Wish, &str, &str)) -> usize {
    let mut deaths = 0;
    for stop in [Stop::Before, Stop::After] {
        for calls in (0..).step_by(stride) {
            if !one_dies(which, stop, calls, story).await {
                break;
            }
            deaths += 1;
        }
    }
    deaths
}

#[tokio::test(start_paused = true)]
async fn wherever_a_mover_dies_on_the_way_to_ready_another_goes_on() {
    for which in 0..2 {
        let story = (&[][..], Wish::Cutover, "never", "ready");
        let deaths = at_each_call(which, 9, story).await;
        assert!(deaths > 20, "{deaths}");
    }
}

#[tokio::test(start_paused = true)]
async fn wherever_a_mover_dies_in_a_cutover_nothing_is_lost() {
    for which in 0..2 {
        let story = (&["ready"][..], Wish::Cutover, "ready", "settling");
        let deaths = at_each_call(which, 4, story).await;
        assert!(deaths > 20, "{deaths}");
    }
}

#[tokio::test(start_paused = true)]
async fn wherever_a_mover_dies_in_a_rollback_nothing_is_lost() {
    for which in 0..2 {
        let story = (&["settling"][..], Wish::Rollback, "settling", "rolled back");
        let deaths = at_each_call(which, 4, story).await;
        assert!(deaths > 20, "{deaths}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_plan_for_a_whole_collection_that_cannot_be_carried_out_is_refused() {
    use Field::{CartId, SessionId, UserId};
    let from = by_slots("user", &[UserId], &["source", "target"]);
    let to = by_slots("other", &[UserId], &MORE);
    let check =
        async |fence: FenceKind, from: &CollectionMap, to: &CollectionMap, expected: &str| {
            let standing = by_slots("user", &[UserId], &["source", "target"]);
            let shop = Shop::placed(fence, standing, &MORE).await;
            let control: Arc<dyn ControlStore> = shop.control.clone();
            let shards = shop.shards(&Wire::endless());
            let generation = shop.map().await.generation;
            let refused = start(&control, &shards, &name(), &plan(from, to)).await;
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
            assert!(mover::list(control.as_ref()).await.unwrap().is_empty());
            assert_eq!(shop.map().await.generation, generation);
        };
    let store = FenceKind::InStore;
    let shared = by_slots("other", &[UserId], &["one", "target"]);
    check(store, &from, &shared, "both have target").await;
    let unknown = by_slots("other", &[UserId], &["moon"]);
    check(store, &from, &unknown, "moon is not configured").await;
    let elsewhere = by_slots("user", &[UserId], &["source"]);
    check(store, &elsewhere, &to, "no longer has the collection").await;
    let same_width = by_slots("other", &[CartId], &MORE);
    check(store, &from, &same_width, "could not tell them apart").await;
    let by_zone = by_slots("other", &[SessionId, UserId], &MORE);
    check(
        FenceKind::ByLease,
        &from,
        &by_zone,
        "refuses no displaced mover",
    )
    .await;
    let mut pieces: Vec<String> = (0..400).map(|it| format!("user-{it}")).collect();
    pieces.sort();
    let pieces = pieces.iter().map(|it| (Some(it.as_str()), "one"));
    let pieces: Vec<_> = [(None, "one")].into_iter().chain(pieces).collect();
    let many = by_ranges("other", &[UserId], &pieces);
    check(store, &from, &many, "401 pieces and pins").await;
}

/// A pin of the source goes with the move, and is there again after the way back.
#[tokio::test(start_paused = true)]
async fn pins_go_and_come_back_with_the_placement() {
    let [(_, _), (_, _), (mut from, to)] = placements();
    let hot = ShardKey::of(&[Value::text("user-1")]).unwrap();
    from.pinned = BTreeMap::from([(hot, shard("one"))]);
    let to = CollectionMap {
        cut: Cut::even_slots(&[shard("two")]),
        ..to
    };
    let shop = Shop::placed(FenceKind::InStore, from.clone(), &MORE).await;
    let writers = shop.writers();
    shop.start_with(plan(&from, &to)).await;
    let mut mover = shop.mover();
    shop.cut_over(&mut mover).await;
    let map = shop.map().await;
    assert!(map.collection(Collection::Carts).unwrap().pinned.is_empty());
    shop.ask(Wish::Rollback).await;
    shop.drive(&mut mover, "rolled back").await;
    let map = shop.map().await;
    assert_eq!(
        map.collection(Collection::Carts).unwrap().pinned,
        from.pinned
    );
    writers.stop().await;
    shop.judge("pinned").await;
}

/// Between the start and the cutover somebody pins a key by hand: the plan no longer says where everything is.
#[tokio::test(start_paused = true)]
async fn a_map_that_is_no_longer_the_plans_is_not_cut_over() {
    let [(_, _), (_, _), (from, to)] = placements();
    let shop = Shop::placed(FenceKind::InStore, from.clone(), &MORE).await;
    shop.start_with(plan(&from, &to)).await;
    let mut mover = shop.mover();
    shop.drive(&mut mover, "ready").await;
    let hot = ShardKey::of(&[Value::text("user-1")]).unwrap();
    let map = shop
        .map()
        .await
        .pin(Collection::Carts, hot, &shard("target"));
    shop.router.publish(map.unwrap()).await.unwrap();
    shop.ask(Wish::Cutover).await;
    shop.drive(&mut mover, "verifying").await;
    let given_up = shop.state().await.given_up.unwrap();
    assert!(
        given_up.why.contains("no longer gives the keys"),
        "{given_up:?}"
    );
    let map = shop.map().await;
    assert_eq!(
        map.collection(Collection::Carts).unwrap().layout,
        from.layout
    );
}

#[test]
fn everything_of_a_whole_collection_is_frozen() {
    let (from, to) = placements()[0].clone();
    assert_eq!(*plan(&from, &to).scope(), Scope::All);
    assert!(plan(&from, &to).overlaps(&plan(&to, &from)));
}

/// A listing there would show what is not, whichever shard it is on.
#[tokio::test(start_paused = true)]
async fn a_row_that_strays_on_any_shard_keeps_a_collection_from_being_ready() {
    let [(source, target), ..] = placements();
    for on in MORE {
        let shop = Shop::placed(FenceKind::InStore, source.clone(), &MORE).await;
        shop.start_with(plan(&source, &target)).await;
        let wire = Wire::endless();
        let stray = Stray {
            collection: Collection::Carts,
            id: cart_key(1).id,
            table: "carts_by_user".to_owned(),
            fault: RowFault::Outgrown,
            patience: Patience::Without,
            row: b"a row".to_vec(),
        };
        let mut mover = shop.mover_over(&wire);
        // What was there before everything was compared once is somebody's leftover.
        shop.drive(&mut mover, "ready").await;
        wire.stray_on(on, stray.clone());
        let mut shown = shop.state().await.shown;
        for _ in 0..1_000 {
            mover.pass().await.unwrap();
            shown = shop.state().await.shown;
            if shown.differences > 0 {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        assert_eq!(shown.differing, [stray.to_string()], "on {on}");
        assert_eq!(shop.phase().await, "verifying", "on {on}");
        wire.rows_follow();
        shop.drive(&mut mover, "ready").await;
    }
}
