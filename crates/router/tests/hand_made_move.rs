//! One move, by hand: slots go from one embedded shard to another under
//! writers, with the public faces of engine-api and router only.
//!
//! ```text
//! claim the term ─▶ journal position ─▶ backfill ─▶ catch up ─▶ publish frozen ─▶ fence the source
//!        ─▶ drain to the seal ─▶ compare both sides ─▶ publish the new owner
//! ```

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine_api::layout::{Collection, Field, Fields, Scope, Slot, SlotRange, Value};
use engine_api::{
    Authority, Change, ControlStore, Engine, EngineError, Fence, Freshness, Generation, Guard,
    JournalEvent, MoverTerm, Outcome, PartChange, PartKey, Position, ReadContext, RealWorld,
    Record, RecordId, RecordKey, Revision, Scan, Seal, SharedRecord, World, WriteContext, Writer,
};
use engine_embedded::{EmbeddedConfig, EmbeddedEngine};
use router::{
    CollectionMap, Edit, Limits, Map, MapKeeper, MapView, Router, RouterConfig, ShardName,
};

const WRITERS: u64 = 8;
const CARTS: u64 = 64;
const WRITES_BEFORE_THE_MOVE: u64 = 400;
const WRITES_AFTER_THE_MOVE: u64 = 400;

struct Shop {
    source: Arc<EmbeddedEngine>,
    target: Arc<EmbeddedEngine>,
    world: Arc<RealWorld>,
}

impl Shop {
    fn open(folder: &Path) -> Shop {
        let open = |name: &str| {
            let layout = engine_api::layout::embedded();
            let tables = layout
                .collections
                .values()
                .flat_map(|kept| kept.live.tables.clone())
                .collect();
            let config = EmbeddedConfig {
                path: folder.join(name),
                tables,
                cache_bytes: 1 << 20,
            };
            Arc::new(EmbeddedEngine::open(config).unwrap())
        };
        Shop {
            source: open("source"),
            target: open("target"),
            world: Arc::new(RealWorld::new()),
        }
    }

    async fn router(&self, writer: u8) -> Arc<Router> {
        let shards: BTreeMap<ShardName, Arc<dyn Engine>> = BTreeMap::from([
            (name("source"), self.source.clone() as Arc<dyn Engine>),
            (name("target"), self.target.clone() as Arc<dyn Engine>),
        ]);
        let control: Arc<dyn ControlStore> = self.source.clone();
        let config = RouterConfig {
            shards,
            control,
            world: self.world.clone(),
            writer: Writer::numbered(writer),
            // A slow disk may make the drain long; this test is not about budgets.
            limits: Limits {
                hold_ms_max: 60_000,
                ..Limits::default()
            },
            map_view: MapView::ControlStore,
        };
        Router::open(config).await.unwrap()
    }

    fn mover(&self, term: u64) -> WriteContext {
        WriteContext {
            authority: Authority::Mover {
                term: mover_term(term),
            },
            now: self.world.now(),
            revision: Revision::ZERO,
        }
    }
}

/// What the writers were told, kept apart from the engines: the newest
/// acknowledged quantity of each line, one line a writer and cart.
#[derive(Default)]
struct Ledger {
    acknowledged: std::sync::Mutex<BTreeMap<(u64, u64), u64>>,
    count: AtomicU64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_made_move_keeps_every_acknowledged_write() {
    let folder = tempfile::tempdir().unwrap();
    let shop = Shop::open(folder.path());
    let keeper = MapKeeper::new(shop.source.clone());
    keeper.publish(&first_map()).await.unwrap();
    let router = shop.router(1).await;
    for cart in 0..CARTS {
        assert!(
            router
                .write(new_cart(cart), Revision::ZERO)
                .await
                .unwrap()
                .outcome
                .is_done()
        );
    }
    // A second process: it has read the map and sleeps until all is over.
    let paused = shop.router(2).await;

    let ledger = Arc::new(Ledger::default());
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(router.clone(), writer, ledger.clone(), stop.clone())))
        .collect();
    wait_for(&ledger, WRITES_BEFORE_THE_MOVE).await;

    let fenced_generation = move_slots(&shop, &router).await;

    wait_for(
        &ledger,
        ledger.count.load(Ordering::SeqCst) + WRITES_AFTER_THE_MOVE,
    )
    .await;
    stop.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap();
    }
    wake_up(&shop, &paused, fenced_generation, &ledger).await;
    judge(&shop, &router, &ledger).await;
}

/// The move. Answers the generation that the source is fenced at.
async fn move_slots(shop: &Shop, router: &Router) -> Generation {
    shop.source.claim_term(mover_term(1)).await.unwrap();
    shop.target.claim_term(mover_term(1)).await.unwrap();

    // The position is taken before the first record is copied.
    let mut position = shop.source.journal_end().await.unwrap();
    let mut after = None;
    loop {
        let scan = Scan {
            collection: Collection::Carts,
            scope: moving(),
            after,
            until: None,
            limit: 7,
        };
        let page = shop.source.scan(&scan).await.unwrap();
        for image in page.images {
            put(shop, image).await;
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    for _ in 0..20 {
        position = catch_up(shop, position, None).await;
    }

    let frozen = router.map().freeze(Collection::Carts, moving()).unwrap();
    let published = frozen.generation.next();
    router.publish(frozen).await.unwrap();
    let fence = Fence {
        collection: Collection::Carts,
        scope: moving(),
        generation: published,
    };
    let seal = shop
        .source
        .raise_fence(fence, mover_term(1), shop.world.now())
        .await
        .unwrap();
    catch_up(shop, position, Some(&seal)).await;
    compare(shop).await;

    let edits = [
        (
            Collection::Carts,
            Edit::Move {
                scope: moving(),
                to: name("target"),
            },
        ),
        (Collection::Carts, Edit::Thaw { scope: moving() }),
    ];
    let moved = router.map().edited(&edits).unwrap();
    assert_eq!(moved.generation, published);
    router.publish(moved).await.unwrap();
    published
}

/// Re-reads from the source what the journal says has changed: one page while
/// the writers are at work, everything up to the seal once they are stopped.
async fn catch_up(shop: &Shop, mut position: Position, seal: Option<&Seal>) -> Position {
    loop {
        let page = shop.source.journal_read(&position, 500).await.unwrap();
        // A key that changed many times is copied once.
        let changed: BTreeSet<RecordKey> = page
            .entries
            .iter()
            .filter_map(|entry| match &entry.event {
                JournalEvent::Changed { key, .. } => Some(key.clone()),
                JournalEvent::Fenced { .. } => None,
            })
            .filter(|key| key.collection == Collection::Carts)
            .filter(|key| moving().contains(&key.shard_key))
            .collect();
        for key in changed {
            let image = shop.source.get(&key, latest(shop)).await.unwrap();
            put(shop, image.expect("carts are not collected here")).await;
        }
        position = page.next;
        if seal.is_none_or(|seal| position >= seal.position) {
            return position;
        }
    }
}

async fn put(shop: &Shop, image: Record) {
    let outcome = shop
        .target
        .apply(Change::PutImage { image }, shop.mover(1))
        .await
        .unwrap();
    assert!(outcome.is_done(), "{outcome:?}");
}

/// Before the cutover both sides must show the same.
async fn compare(shop: &Shop) {
    let everything = |scope| Scan {
        collection: Collection::Carts,
        scope,
        after: None,
        until: None,
        limit: 1000,
    };
    let source = shop.source.scan(&everything(moving())).await.unwrap();
    let target = shop.target.scan(&everything(Scope::All)).await.unwrap();
    assert!(!source.images.is_empty(), "nothing was there to move");
    assert_eq!(source.images, target.images);
}

/// The sleeper writes with what it knew before the move: straight to the
/// source, which refuses it, and through its router, which finds the target.
async fn wake_up(shop: &Shop, paused: &Router, fence: Generation, ledger: &Ledger) {
    let cart = (0..CARTS)
        .find(|cart| moving().contains(&cart_key(*cart).shard_key))
        .unwrap();
    let old = WriteContext {
        authority: Authority::Router {
            generation: paused.map().generation,
        },
        now: shop.world.now(),
        revision: Revision::at(shop.world.now(), Writer::numbered(3)),
    };
    let refused = shop
        .source
        .apply(line(cart, WRITERS, 1), old)
        .await
        .unwrap_err();
    assert!(
        matches!(refused, EngineError::Fenced { fence: at, .. } if at == fence),
        "{refused}"
    );
    assert!(
        paused.map().generation < fence,
        "the sleeper has not looked at the map yet"
    );
    let written = paused
        .write(line(cart, WRITERS, 2), Revision::ZERO)
        .await
        .unwrap();
    assert!(written.outcome.is_done());
    assert_eq!(written.generation, fence);
    ledger
        .acknowledged
        .lock()
        .unwrap()
        .insert((cart, WRITERS), 2);
}

async fn judge(shop: &Shop, router: &Router, ledger: &Ledger) {
    let acknowledged = ledger.acknowledged.lock().unwrap().clone();
    for ((cart, writer), quantity) in &acknowledged {
        let key = cart_key(*cart);
        let owner: &Arc<EmbeddedEngine> = if moving().contains(&key.shard_key) {
            &shop.target
        } else {
            &shop.source
        };
        for record in [
            router.get(&key).await.unwrap(),
            owner
                .get(&key, latest(shop))
                .await
                .unwrap()
                .map(SharedRecord::from),
        ] {
            let record = record.unwrap_or_else(|| panic!("cart {cart} is lost"));
            let line = record.part(&PartKey::line(&format!("product-{writer}")));
            let found = line
                .and_then(|line| line.get(Field::Quantity))
                .and_then(Value::as_int);
            assert_eq!(
                found,
                Some(*quantity as i64),
                "cart {cart}, writer {writer}"
            );
        }
    }
    println!(
        "{} writes acknowledged, none lost",
        ledger.count.load(Ordering::SeqCst)
    );
}

async fn write(router: Arc<Router>, writer: u64, ledger: Arc<Ledger>, stop: Arc<AtomicBool>) {
    let mut quantity = 0;
    while !stop.load(Ordering::SeqCst) {
        quantity += 1;
        let cart = (writer * 7 + quantity * 5) % CARTS;
        let written = router
            .write(line(cart, writer, quantity), Revision::ZERO)
            .await;
        match written.map(|written| written.outcome) {
            Ok(Outcome::Done { .. }) => {
                ledger
                    .acknowledged
                    .lock()
                    .unwrap()
                    .insert((cart, writer), quantity);
                ledger.count.fetch_add(1, Ordering::SeqCst);
            }
            other => panic!("writer {writer}: {other:?}"),
        }
    }
}

async fn wait_for(ledger: &Ledger, count: u64) {
    while ledger.count.load(Ordering::SeqCst) < count {
        tokio::task::yield_now().await;
    }
}

fn first_map() -> Map {
    let layout = engine_api::layout::embedded();
    let collection = |collection: Collection| {
        let shard_key = layout.collections[&collection].shard_key.clone();
        (
            collection,
            CollectionMap::on_one_shard("embedded", shard_key, name("source")),
        )
    };
    Map::first(Collection::ALL.into_iter().map(collection).collect())
}

fn new_cart(cart: u64) -> Change {
    let key = cart_key(cart);
    let header = Fields::new()
        .with(Field::CartId, Value::text(key.id.as_str()))
        .with(Field::UserId, Value::text(format!("USER-{cart}")))
        .with(Field::Status, Value::text("active"))
        .with(
            Field::CreatedAt,
            Value::Timestamp(engine_api::Timestamp::from_unix_micros(1)),
        )
        .with(Field::Ordinal, Value::Int(1));
    Change::CreateIfAbsent {
        key,
        header,
        parts: Vec::new(),
    }
}

fn line(cart: u64, writer: u64, quantity: u64) -> Change {
    let fields = Fields::new().with(Field::Quantity, Value::Int(quantity as i64));
    Change::Patch {
        key: cart_key(cart),
        guard: Guard {
            header: vec![(Field::Status, Value::text("active"))],
        },
        parts: vec![(
            PartKey::line(&format!("product-{writer}")),
            PartChange::Set(fields),
        )],
    }
}

fn cart_key(cart: u64) -> RecordKey {
    RecordKey::by_id(
        Collection::Carts,
        RecordId::new(format!("cart-{cart}")).unwrap(),
    )
}

/// The lower half of the slots.
fn moving() -> Scope {
    let slot = |number| Slot::try_from(number).unwrap();
    Scope::Slots(vec![SlotRange {
        first: slot(0),
        last: slot(2047),
    }])
}

fn mover_term(term: u64) -> MoverTerm {
    MoverTerm {
        move_name: "half the carts".to_owned(),
        term,
    }
}

fn latest(shop: &Shop) -> ReadContext {
    ReadContext {
        now: shop.world.now(),
        freshness: Freshness::Latest,
    }
}

fn name(text: &str) -> ShardName {
    ShardName::new(text).unwrap()
}
