//! Two copies of a collection on real engines, a move between them that is ready, and somebody who goes past the
//! engines. For the tests of each engine crate, which alone may know its driver.

#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine_api::layout::{Collection, Field, Fields, Scope, Value};
use engine_api::memory::MemoryEngine;
use engine_api::{
    Authority, Change, Content, ControlStore, Engine, Header, MoverTerm, Part, PartKey, RealWorld,
    Record, RecordId, RecordKey, Revision, Seal, StrayEnd, Terms, Timestamp, World, WriteContext,
    Writer, expiry_fields,
};
use mover::{MoveName, MoveState, Moved, Mover, MoverConfig, Pass, Plan, Shards, Wish};
use router::{CollectionMap, Cut, Map, MapKeeper, ShardName};
use rust_decimal::Decimal;
use verifier::{Pair, Repair, Verifier, VerifierConfig};

pub const USER: &str = "ann";
pub const LINE: &str = "lamp";
/// The one of the records that was removed, and left a mark.
pub const REMOVED: usize = 5;
const RECORDS: usize = 6;
const PASSES_MAX: usize = 20_000;
const LIFE_S: i64 = 36_000;

pub struct Copies {
    collection: Collection,
    source: Arc<dyn Engine>,
    target: Arc<dyn Engine>,
    control: Arc<MemoryEngine>,
    world: Arc<RealWorld>,
    mover: Mover,
}

impl Copies {
    /// The source is filled, the move started and driven until it is ready.
    pub async fn make(
        collection: Collection,
        source: Arc<dyn Engine>,
        target: Arc<dyn Engine>,
    ) -> Copies {
        let world = Arc::new(RealWorld::new());
        for number in 0..RECORDS {
            let image = image(collection, number, world.now());
            put(source.as_ref(), image, world.now()).await;
        }
        let control: Arc<MemoryEngine> = Arc::default();
        let cut = Cut::even_slots(&[shard("source")]);
        let map = CollectionMap::cut_by("source", vec![collection.id_field()], cut);
        let map = Map::first(BTreeMap::from([(collection, map)]));
        MapKeeper::new(control.clone()).publish(&map).await.unwrap();
        let shards = Shards::from([
            (shard("source"), source.clone()),
            (shard("target"), target.clone()),
        ]);
        let plan = Plan {
            collection,
            moved: Moved::Keys {
                scope: Scope::All,
                source: shard("source"),
                target: shard("target"),
            },
            freeze_ms_max: 10_000,
        };
        let controlled: Arc<dyn ControlStore> = control.clone();
        mover::start(&controlled, &shards, &name(), &plan)
            .await
            .unwrap();
        let mover = Mover::new(MoverConfig {
            name: name(),
            shards,
            control: controlled,
            world: world.clone(),
            router: None,
            pressure: None,
            limits: mover::Limits {
                poll_ms: 5,
                renew_ms: 20,
                ..mover::Limits::default()
            },
            feed_limits: feed::Limits::default(),
            verifier_limits: limits(),
            router_limits: router::Limits::default(),
            invariants: None,
        });
        let mut copies = Copies {
            collection,
            source,
            target,
            control,
            world,
            mover: mover.unwrap(),
        };
        copies.drive("ready").await;
        copies
    }

    /// What was just done to the target is named in these words, by the move, which is ready no more, and by a
    /// verifier of one's own, which gives no proof. Then it is repaired.
    pub async fn expect(&mut self, what: &str, named: &[&str]) {
        let is_named = |text: &str| named.iter().all(|word| text.contains(word));
        let mut state = self.state().await;
        for _ in 0..PASSES_MAX {
            self.pass().await;
            state = self.state().await;
            if state.shown.differing.iter().any(|text| is_named(text)) {
                break;
            }
        }
        let differing = &state.shown.differing;
        assert!(
            differing.iter().any(|text| is_named(text)),
            "{what}: {named:?} is not among {differing:?}"
        );
        assert_eq!(state.phase.name(), "verifying", "{what}");
        let wished = mover::ask(self.control.as_ref(), &name(), Wish::Cutover).await;
        assert!(wished.is_err(), "{what}: a cutover may be wished for");
        let (mut verifier, differences) = self.verified().await;
        assert!(differences > 0, "{what}");
        let unproven = verifier.prove(&self.seal().await).await.unwrap();
        let unproven = unproven.expect_err(what).to_string();
        assert!(is_named(&unproven), "{what}: {unproven}");
        self.repair(what, &mut verifier).await;
        let (mut verifier, differences) = self.verified().await;
        assert_eq!(differences, 0, "{what}, repaired: {verifier:?}");
        let proof = verifier.prove(&self.seal().await).await.unwrap();
        assert_eq!(proof.expect(what).records(), RECORDS as u64, "{what}");
        self.drive("ready").await;
    }

    pub async fn cut_over(&mut self) {
        mover::ask(self.control.as_ref(), &name(), Wish::Cutover)
            .await
            .unwrap();
        self.drive("settling").await;
    }

    pub fn id(&self, number: usize) -> String {
        id(self.collection, number)
    }

    /// An image as this crate fills the source with, for who makes records by hand.
    pub fn image(&self, number: usize) -> Record {
        image(self.collection, number, self.world.now())
    }

    async fn repair(&self, what: &str, verifier: &mut Verifier) {
        let term = term("repair");
        if self.target.capabilities().terms != Terms::Unsupported {
            self.target.claim_term(term.clone()).await.unwrap();
        }
        for difference in verifier.differences() {
            let repaired = verifier.repair(&difference.key, &term).await.unwrap();
            assert_eq!(repaired, Repair::Repaired, "{what}: {difference}");
        }
        for stray in verifier.strays() {
            let mended = verifier.mend(&stray).await.unwrap();
            // The row of a record that was just repaired may follow it by now.
            let is_repaired = !verifier.strays().contains(&stray);
            assert!(mended == StrayEnd::Mended || is_repaired, "{what}: {stray}");
        }
    }

    async fn verified(&self) -> (Verifier, usize) {
        let config = VerifierConfig {
            pair: Pair {
                collection: self.collection,
                scope: Scope::All,
                source: self.source.clone(),
                target: self.target.clone(),
            },
            world: self.world.clone(),
            limits: verifier::Limits {
                round_pause_ms: 60_000,
                ..limits()
            },
            invariants: None,
        };
        let mut verifier = Verifier::begin(config).await.unwrap();
        for _ in 0..PASSES_MAX {
            match verifier.pass().await.unwrap() {
                verifier::Pass::CaughtUp { differences } => return (verifier, differences),
                verifier::Pass::Behind => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
        panic!("{verifier:?} comes to no end")
    }

    async fn seal(&self) -> Seal {
        let position = self.source.journal_end().await.unwrap();
        Seal { position }
    }

    async fn drive(&mut self, phase: &str) {
        for _ in 0..PASSES_MAX {
            if self.state().await.phase.name() == phase {
                return;
            }
            self.pass().await;
        }
        panic!("{phase} is not reached: {:?}", self.state().await);
    }

    async fn pass(&mut self) {
        match self.mover.pass().await {
            Ok(Pass::Behind) => {}
            Ok(_) => tokio::time::sleep(Duration::from_millis(2)).await,
            Err(error) => panic!("{error}"),
        }
    }

    async fn state(&self) -> MoveState {
        let record = mover::status(self.control.as_ref(), &name()).await;
        record.unwrap().state
    }
}

fn limits() -> verifier::Limits {
    verifier::Limits {
        scan_records_max: 4,
        scan_pages_max: 2,
        lag_ms_max: 100,
        round_pause_ms: 0,
        ..verifier::Limits::default()
    }
}

fn shard(name: &str) -> ShardName {
    ShardName::new(name).unwrap()
}

fn name() -> MoveName {
    MoveName::new("tampered").unwrap()
}

fn term(name: &str) -> MoverTerm {
    MoverTerm {
        move_name: name.to_owned(),
        term: 1,
    }
}

async fn put(engine: &dyn Engine, image: Record, now: Timestamp) {
    let context = WriteContext {
        authority: Authority::Mover { term: term("fill") },
        now,
        revision: image.newest_revision(),
    };
    let put = engine.apply(Change::PutImage { image }, context).await;
    assert!(put.unwrap().is_done());
}

fn id(collection: Collection, number: usize) -> String {
    format!("{}-{number}", collection.name())
}

fn image(collection: Collection, number: usize, now: Timestamp) -> Record {
    let revision = Revision::at(now, Writer::numbered(0));
    let id = id(collection, number);
    let content = match number {
        REMOVED => Content::Removed,
        _ => Content::Live(fields(collection, &id, now)),
    };
    let parts = match content {
        Content::Removed => BTreeMap::new(),
        Content::Live(_) => parts(collection, revision, now),
    };
    Record {
        key: RecordKey::by_id(collection, RecordId::new(id).unwrap()),
        header: Header {
            revision,
            cleared: revision.just_before(),
            content,
        },
        parts,
    }
}

fn fields(collection: Collection, id: &str, now: Timestamp) -> Fields {
    let known = Fields::new().with(collection.id_field(), Value::text(id));
    let owned = |status: &str| {
        known
            .clone()
            .with(Field::UserId, Value::text(USER))
            .with(Field::Status, Value::text(status))
            .with(Field::CreatedAt, Value::Timestamp(now))
    };
    let price = Value::Decimal(Decimal::new(1990, 2));
    match collection {
        Collection::Carts => owned("active").with(Field::Ordinal, Value::Int(1)),
        Collection::Orders => owned("created")
            .with(Field::GeoZone, Value::text("eu"))
            .with(Field::Total, price),
        Collection::Sessions => owned("open"),
        Collection::Products => known
            .with(Field::Category, Value::text("light"))
            .with(Field::Name, Value::text("Lamp"))
            .with(Field::Price, price),
    }
}

fn parts(collection: Collection, revision: Revision, now: Timestamp) -> BTreeMap<PartKey, Part> {
    let ends = now.checked_add_seconds(LIFE_S).unwrap();
    let expiry = (PartKey::expiry(), Part::live(revision, expiry_fields(ends)));
    let item = Fields::new()
        .with(Field::Name, Value::text("Lamp"))
        .with(Field::Quantity, Value::Int(2));
    match collection {
        Collection::Carts => BTreeMap::from([
            (PartKey::line(LINE), Part::live(revision, item)),
            (PartKey::line("gone"), Part::mark(revision)),
            expiry,
        ]),
        Collection::Sessions => BTreeMap::from([expiry]),
        Collection::Products => {
            let count = |field, pieces| (field, Value::Int(pieces));
            let counts = [
                count(Field::Received, 10),
                count(Field::Available, 7),
                count(Field::Reserved, 0),
                count(Field::Sold, 3),
            ];
            let stock = counts
                .into_iter()
                .fold(Fields::new(), |stock, (field, value)| {
                    stock.with(field, value)
                });
            BTreeMap::from([(PartKey::stock("eu", 0), Part::live(revision, stock))])
        }
        Collection::Orders => BTreeMap::new(),
    }
}
