//! Two memory engines with carts, and time that goes on when a test says so.

#![allow(dead_code, clippy::unwrap_used)]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine_api::memory::MemoryEngine;
use engine_api::{
    Authority, Change, Content, Engine, Freshness, Header, MoverTerm, Part, PartKey, ReadContext,
    Record, RecordId, RecordKey, Revision, Seal, Timestamp, World, WriteContext, Writer,
    expiry_fields,
};
use layout::{Collection, Field, Fields, Scope, Value};
use verifier::{Discord, Limits, Pair, Pass, Proof, Unproven, Verifier, VerifierConfig};

pub const CARTS: Collection = Collection::Carts;
pub const START_MICROS: i64 = 1_800_000_000_000_000;
pub const LAG_MS: u64 = 1_000;
const PASSES_MAX: usize = 10_000;

/// Time that goes on when a test says so.
#[derive(Debug, Default)]
pub struct Clock(AtomicU64);

impl Clock {
    pub fn pass_ms(&self, passed_ms: u64) {
        self.0.fetch_add(passed_ms, Ordering::Relaxed);
    }
}

impl World for Clock {
    fn now(&self) -> Timestamp {
        let micros = i64::try_from(self.elapsed().as_micros()).unwrap();
        Timestamp::from_unix_micros(START_MICROS + micros)
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn random(&self) -> u64 {
        7
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.pass_ms(u64::try_from(duration.as_millis()).unwrap());
        Box::pin(std::future::ready(()))
    }
}

/// Two sides with carts on them.
pub struct Sides {
    pub source: Arc<MemoryEngine>,
    pub target: Arc<MemoryEngine>,
    pub clock: Arc<Clock>,
}

impl Sides {
    pub async fn with_carts(count: usize) -> Sides {
        let sides = Sides {
            source: Arc::new(MemoryEngine::new()),
            target: Arc::new(MemoryEngine::new()),
            clock: Arc::new(Clock::default()),
        };
        for number in 0..count {
            put(&sides.source, cart(number)).await;
            put(&sides.target, cart(number)).await;
        }
        sides
    }

    pub fn config(&self) -> VerifierConfig {
        VerifierConfig {
            pair: Pair {
                collection: CARTS,
                scope: Scope::All,
                source: self.source.clone(),
                target: self.target.clone(),
            },
            world: self.clock.clone(),
            limits: Limits {
                scan_records_max: 3,
                scan_pages_max: 2,
                journal_entries_max: 4,
                keys_at_once_max: 2,
                looks_at_once_max: 2,
                lag_ms_max: LAG_MS,
                ..Limits::default()
            },
            invariants: None,
        }
    }

    pub async fn begin(&self) -> Verifier {
        Verifier::begin(self.config()).await.unwrap()
    }

    pub async fn image(&self, key: &RecordKey) -> Option<Record> {
        let context = ReadContext {
            now: self.clock.now(),
            freshness: Freshness::Latest,
        };
        self.source.get(key, context).await.unwrap()
    }

    /// As a feed would, but for one record.
    pub async fn carry(&self, key: &RecordKey) {
        put(&self.target, self.image(key).await.unwrap()).await;
    }

    pub async fn found(&self) -> Vec<(String, Discord)> {
        let mut verifier = self.begin().await;
        let differences = self.run(&mut verifier).await;
        assert_eq!(differences, named(&verifier).len());
        named(&verifier)
    }

    /// Until everything is compared, and what differs has done so for long enough.
    pub async fn run(&self, verifier: &mut Verifier) -> usize {
        for _ in 0..PASSES_MAX {
            match verifier.pass().await.unwrap() {
                Pass::CaughtUp { differences } => return differences,
                Pass::Behind => self.clock.pass_ms(LAG_MS / 10),
            }
        }
        panic!("{verifier:?} comes to no end");
    }

    pub async fn prove(&self, verifier: &mut Verifier) -> Result<Proof, Unproven> {
        verifier.prove(&seal(&self.source).await).await.unwrap()
    }
}

pub async fn seal(engine: &MemoryEngine) -> Seal {
    Seal {
        position: engine.journal_end().await.unwrap(),
    }
}

pub fn named(verifier: &Verifier) -> Vec<(String, Discord)> {
    let name = |it: verifier::Difference| (it.key.id.to_string(), it.discord);
    verifier.differences().into_iter().map(name).collect()
}

pub fn revision(number: i64) -> Revision {
    Revision::at(
        Timestamp::from_unix_micros(START_MICROS + number * 1_000),
        Writer::numbered(1),
    )
}

pub fn key(number: usize) -> RecordKey {
    RecordKey::by_id(CARTS, RecordId::new(format!("cart-{number:03}")).unwrap())
}

pub fn line(number: i64, quantity: i64) -> Part {
    let fields = Fields::new().with(Field::Quantity, Value::Int(quantity));
    Part::live(revision(number), fields)
}

pub fn cart(number: usize) -> Record {
    let header = Fields::new()
        .with(Field::CartId, Value::text(key(number).id.as_str()))
        .with(Field::Status, Value::text("active"));
    let far = Timestamp::from_unix_micros(START_MICROS + 1_000_000_000_000);
    Record {
        key: key(number),
        header: Header {
            revision: revision(1),
            cleared: Revision::ZERO,
            content: Content::Live(header),
        },
        parts: [
            (PartKey::line("phone"), line(2, 1)),
            (
                PartKey::expiry(),
                Part::live(revision(2), expiry_fields(far)),
            ),
        ]
        .into(),
    }
}

pub fn removed(number: usize) -> Record {
    Record {
        key: key(number),
        header: Header {
            revision: revision(5),
            cleared: revision(4),
            content: Content::Removed,
        },
        parts: Default::default(),
    }
}

pub fn term() -> MoverTerm {
    MoverTerm {
        move_name: "carts".to_owned(),
        term: 1,
    }
}

pub async fn put(engine: &MemoryEngine, image: Record) {
    let context = WriteContext {
        authority: Authority::Mover { term: term() },
        now: Timestamp::from_unix_micros(START_MICROS),
        revision: image.newest_revision(),
    };
    let put = engine.apply(Change::PutImage { image }, context).await;
    assert!(put.unwrap().is_done());
}

/// A cart that a user has.
pub fn user_of(mut cart: Record, user: &str) -> Record {
    if let Content::Live(fields) = cart.header.content {
        cart.header.content = Content::Live(fields.with(Field::UserId, Value::text(user)));
    }
    cart
}
