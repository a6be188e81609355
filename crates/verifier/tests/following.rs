//! What follows from records: derived rows of the target, rules of the shop, and everything once more until the proof.

#![allow(clippy::unwrap_used)]

mod sides;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use engine_api::memory::MemoryEngine;
use engine_api::{
    Capabilities, Change, Engine, EngineError, Fence, JournalPage, Maintained, Maintenance,
    MoverTerm, Outcome, Page, Patience, Position, Query, ReadContext, Record, RecordId, RecordKey,
    RowFault, Scan, ScanPage, ScanPosition, Seal, Stray, StrayEnd, StrayPage, StraySearch,
    Timestamp, WriteContext,
};
use layout::{AccessPath, Field, Value};
use sides::{LAG_MS, Sides, cart, key, line, named, put, removed, user_of};
use verifier::{Discord, Finding, Invariants, Limits, Pass, Sole, Unproven, Verifier};

/// A side as somebody left it who went past the engine. Derived rows that are named here do not follow.
#[derive(Debug, Default)]
struct Rowed {
    memory: Arc<MemoryEngine>,
    strays: Mutex<BTreeSet<String>>,
    /// Records that somebody took away who writes no journal.
    gone: Mutex<BTreeSet<RecordKey>>,
    /// How many records a listing shows at most.
    listed_max: Option<usize>,
}

impl Rowed {
    fn stray(&self, id: &str) {
        self.strays.lock().unwrap().insert(id.to_owned());
    }
}

#[async_trait]
impl Engine for Rowed {
    fn capabilities(&self) -> &Capabilities {
        self.memory.capabilities()
    }

    async fn apply(&self, change: Change, context: WriteContext) -> Result<Outcome, EngineError> {
        self.memory.apply(change, context).await
    }

    async fn apply_together(
        &self,
        changes: Vec<Change>,
        context: WriteContext,
    ) -> Result<Outcome, EngineError> {
        self.memory.apply_together(changes, context).await
    }

    async fn get(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Option<Record>, EngineError> {
        let is_gone = self.gone.lock().unwrap().contains(key);
        let found = self.memory.get(key, context).await?;
        Ok(found.filter(|_| !is_gone))
    }

    async fn query(&self, query: &Query, context: ReadContext) -> Result<Page, EngineError> {
        let mut page = self.memory.query(query, context).await?;
        page.records.truncate(self.listed_max.unwrap_or(usize::MAX));
        Ok(page)
    }

    async fn scan(&self, scan: &Scan) -> Result<ScanPage, EngineError> {
        let mut page = self.memory.scan(scan).await?;
        let gone = self.gone.lock().unwrap();
        page.images.retain(|image| !gone.contains(&image.key));
        Ok(page)
    }

    async fn journal_end(&self) -> Result<Position, EngineError> {
        self.memory.journal_end().await
    }

    async fn journal_read(
        &self,
        from: &Position,
        limit: usize,
    ) -> Result<JournalPage, EngineError> {
        self.memory.journal_read(from, limit).await
    }

    async fn raise_fence(
        &self,
        fence: Fence,
        term: MoverTerm,
        now: Timestamp,
    ) -> Result<Seal, EngineError> {
        self.memory.raise_fence(fence, term, now).await
    }

    async fn claim_term(&self, term: MoverTerm) -> Result<(), EngineError> {
        self.memory.claim_term(term).await
    }

    async fn maintain(&self, work: Maintenance) -> Result<Maintained, EngineError> {
        self.memory.maintain(work).await
    }

    /// One a page.
    async fn find_strays(&self, search: &StraySearch) -> Result<StrayPage, EngineError> {
        assert_eq!(search.patience, Patience::Without);
        let after = search.after.as_ref().map(|after| after.0.clone());
        let strays = self.strays.lock().unwrap();
        let later = |id: &&String| {
            after
                .as_ref()
                .is_none_or(|after| id.as_bytes() > &after[..])
        };
        let Some(id) = strays.iter().find(later) else {
            return Ok(StrayPage::default());
        };
        let stray = Stray {
            collection: search.collection,
            id: RecordId::new(id.as_str()).unwrap(),
            table: "by_user".to_owned(),
            fault: RowFault::Missing,
            patience: search.patience,
            row: Vec::new(),
        };
        Ok(StrayPage {
            looked_at: 1,
            strays: vec![stray],
            next: Some(ScanPosition(id.as_bytes().to_vec())),
        })
    }

    async fn is_stray(&self, stray: &Stray, _: Timestamp) -> Result<bool, EngineError> {
        Ok(self.strays.lock().unwrap().contains(stray.id.as_str()))
    }

    async fn mend_stray(&self, stray: &Stray, _: Timestamp) -> Result<StrayEnd, EngineError> {
        match self.strays.lock().unwrap().remove(stray.id.as_str()) {
            true => Ok(StrayEnd::Mended),
            false => Ok(StrayEnd::Follows),
        }
    }
}

async fn with_rows(sides: &Sides) -> (Arc<Rowed>, Verifier) {
    let rowed = Arc::new(Rowed {
        memory: sides.target.clone(),
        ..Rowed::default()
    });
    let mut config = sides.config();
    config.pair.target = rowed.clone();
    config.limits.round_pause_ms = LAG_MS;
    (rowed, Verifier::begin(config).await.unwrap())
}

#[tokio::test]
async fn a_derived_row_that_does_not_follow_is_named_refuses_the_proof_and_is_mended() {
    let sides = Sides::with_carts(9).await;
    let (rowed, mut verifier) = with_rows(&sides).await;
    rowed.stray("cart-003");
    rowed.stray("cart-007");
    assert_eq!(sides.run(&mut verifier).await, 2);
    let strays = verifier.strays();
    assert_eq!(
        strays[0].to_string(),
        "carts/cart-003: has no row in by_user"
    );
    match sides.prove(&mut verifier).await {
        Err(Unproven::Strays { count: 2, named }) => assert_eq!(named, strays),
        other => panic!("{other:?}"),
    }
    assert_eq!(verifier.mend(&strays[0]).await.unwrap(), StrayEnd::Mended);
    assert_eq!(verifier.strays(), strays[1..]);
    // The engine put the other one right by itself.
    rowed.strays.lock().unwrap().clear();
    assert_eq!(sides.run(&mut verifier).await, 0);
    sides.prove(&mut verifier).await.unwrap();
}

#[tokio::test]
async fn a_derived_row_that_is_only_on_its_way_is_no_difference() {
    let sides = Sides::with_carts(3).await;
    let (rowed, mut verifier) = with_rows(&sides).await;
    rowed.stray("cart-001");
    for _ in 0..5 {
        assert_eq!(verifier.pass().await.unwrap(), Pass::Behind);
        assert_eq!(verifier.strays(), []);
    }
    rowed.strays.lock().unwrap().clear();
    assert_eq!(sides.run(&mut verifier).await, 0);
}

#[tokio::test]
async fn whoever_goes_on_finds_the_rows_again() {
    let sides = Sides::with_carts(9).await;
    for passes in 0..20 {
        let (rowed, mut verifier) = with_rows(&sides).await;
        rowed.stray("cart-003");
        rowed.stray("cart-007");
        for _ in 0..passes {
            verifier.pass().await.unwrap();
        }
        let mut config = sides.config();
        config.pair.target = rowed.clone();
        let mut verifier = Verifier::resume(config, verifier.progress()).unwrap();
        assert_eq!(sides.run(&mut verifier).await, 2, "after {passes} passes");
    }
}

/// Nobody writes an entry who goes past the engine: only another look at everything finds it.
#[tokio::test]
async fn what_was_altered_after_it_was_compared_is_found_by_the_next_round() {
    let sides = Sides::with_carts(9).await;
    let (rowed, mut verifier) = with_rows(&sides).await;
    assert_eq!(sides.run(&mut verifier).await, 0);
    rowed.gone.lock().unwrap().insert(key(4));
    rowed.stray("cart-002");
    let mut found = 0;
    for _ in 0..1_000 {
        found = sides.run(&mut verifier).await;
        if found == 2 {
            break;
        }
        sides.clock.pass_ms(LAG_MS / 4);
    }
    assert_eq!(found, 2);
    assert_eq!(
        named(&verifier),
        [(key(4).id.to_string(), Discord::Missing)]
    );
    assert_eq!(verifier.strays().len(), 1);
    let unproven = sides.prove(&mut verifier).await.unwrap_err();
    assert!(matches!(unproven, Unproven::Unequal { count: 1, .. }));
}

/// Lines of more than ninety pieces are forbidden, and a user has one cart.
#[derive(Debug)]
struct HouseRules;

impl Invariants for HouseRules {
    fn broken(&self, image: &Record, now: Timestamp) -> Option<String> {
        image.live_at(now)?;
        let pieces = |fields: &layout::Fields| match fields.get(Field::Quantity) {
            Some(Value::Int(pieces)) => *pieces,
            _ => 0,
        };
        let mut lines = image.live_parts();
        let too_many = lines.any(|(_, fields)| pieces(fields) > 90);
        too_many.then(|| "a line has too many pieces".to_owned())
    }

    fn sole(&self, image: &Record, now: Timestamp) -> Option<Sole> {
        let user = image.live_at(now)?.get(Field::UserId)?.clone();
        Some(Sole {
            path: AccessPath::ActiveCartByUser,
            equals: vec![user],
        })
    }
}

async fn judged(sides: &Sides) -> Verifier {
    let mut config = sides.config();
    config.invariants = Some(Arc::new(HouseRules));
    let mut verifier = Verifier::begin(config).await.unwrap();
    sides.run(&mut verifier).await;
    verifier
}

#[tokio::test]
async fn a_rule_that_the_source_breaks_is_told_and_stops_nothing() {
    let sides = Sides::with_carts(6).await;
    let mut broken = cart(20);
    broken
        .parts
        .insert(engine_api::PartKey::line("phone"), line(2, 99));
    put(&sides.source, broken.clone()).await;
    put(&sides.target, broken).await;
    // Two carts of one user, on both sides.
    for side in [&sides.source, &sides.target] {
        for number in [30, 31] {
            put(side, user_of(cart(number), "ann")).await;
        }
    }
    let mut verifier = judged(&sides).await;
    assert_eq!(named(&verifier), []);
    let mut told: Vec<String> = verifier.findings().iter().map(Finding::to_string).collect();
    told.sort();
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told[0], "carts/cart-020: a line has too many pieces");
    assert!(
        told[1].contains("carts/cart-031: it is not the only one"),
        "{told:?}"
    );
    sides.prove(&mut verifier).await.unwrap();
}

/// Both carts are the same on both sides, but the source's listing shows one.
#[tokio::test]
async fn a_rule_that_only_the_target_breaks_is_a_difference() {
    let sides = Sides::with_carts(6).await;
    for number in [30, 31] {
        put(&sides.source, user_of(cart(number), "ann")).await;
        put(&sides.target, user_of(cart(number), "ann")).await;
    }
    let mut config = sides.config();
    config.invariants = Some(Arc::new(HouseRules));
    config.pair.source = Arc::new(Rowed {
        memory: sides.source.clone(),
        listed_max: Some(1),
        ..Rowed::default()
    });
    let mut verifier = Verifier::begin(config).await.unwrap();
    assert_eq!(sides.run(&mut verifier).await, 1);
    let [(id, Discord::Breaks(rule))] = &named(&verifier)[..] else {
        panic!("{:?}", named(&verifier))
    };
    assert_eq!(
        (id.as_str(), rule.contains("not the only one")),
        ("cart-031", true)
    );
    assert!(sides.prove(&mut verifier).await.is_err());
    assert_eq!(verifier.findings(), []);
}

#[tokio::test]
async fn nothing_held_grows_beyond_its_bound_however_much_differs() {
    let sides = Sides::with_carts(0).await;
    for number in 0..60 {
        put(&sides.source, cart(number)).await;
    }
    put(&sides.source, removed(70)).await;
    let mut config = sides.config();
    config.limits = Limits {
        suspects_max: 5,
        keys_at_once_max: 3,
        ..config.limits
    };
    let (suspects_max, keys_max) = (config.limits.suspects_max, config.limits.keys_at_once_max);
    let mut verifier = Verifier::begin(config).await.unwrap();
    for _ in 0..2_000 {
        verifier.pass().await.unwrap();
        sides.clock.pass_ms(LAG_MS / 10);
        let held = verifier.open() + verifier.differences().len();
        assert!(held <= suspects_max + keys_max, "{held} are held");
    }
    assert!(verifier.differences().len() >= suspects_max);
    assert_eq!(sides.prove(&mut verifier).await, Err(Unproven::NotYet));
}
