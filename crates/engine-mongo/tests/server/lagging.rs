//! A counter ticks while one secondary stands still. Readers with different
//! bounds tell how old the oldest answer was that they got; a ledger of what was
//! acknowledged when is the judge.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Instant;

use engine_api::PartsChange;

use super::*;

const TICK: Duration = Duration::from_millis(50);
const READ_EVERY: Duration = Duration::from_millis(20);
/// Longer than the longest bound, so that whoever keeps to no bound is found out.
const STANDSTILL: Duration = Duration::from_secs(14);

/// When each tick was acknowledged.
#[derive(Default)]
struct Ledger(Mutex<Vec<Instant>>);

impl Ledger {
    /// How old an answer is that shows `tick`: since when a newer one was there.
    fn age(&self, tick: usize, answered: Instant) -> Duration {
        let acknowledged = self.0.lock().unwrap();
        acknowledged.get(tick + 1).map_or(Duration::ZERO, |newer| {
            answered.saturating_duration_since(*newer)
        })
    }
}

fn ticked(tick: usize) -> Fields {
    session_header("S-1").with(Field::GeoZone, Value::text(tick.to_string()))
}

async fn tick_until(engine: &MongoEngine, ledger: &Ledger, end: Instant) {
    let first = create("S-1", ticked(0), vec![]);
    let Outcome::Done { mut revision } = engine.apply(first, router(1)).await.unwrap() else {
        panic!("the counter begins");
    };
    ledger.0.lock().unwrap().push(Instant::now());
    while Instant::now() < end {
        let tick = ledger.0.lock().unwrap().len();
        let change = Change::ChangeIf {
            key: session_key("S-1"),
            expected: revision,
            header: ticked(tick),
            parts: PartsChange::Keep,
        };
        match engine.apply(change, router(1)).await.unwrap() {
            Outcome::Done { revision: new } => revision = new,
            other => panic!("nobody else writes: {other:?}"),
        }
        ledger.0.lock().unwrap().push(Instant::now());
        tokio::time::sleep(TICK).await;
    }
}

/// The age of the oldest answer to somebody who allows this lag.
async fn oldest_answer(
    engine: &MongoEngine,
    ledger: &Ledger,
    seconds: u32,
    end: Instant,
) -> Duration {
    let mut oldest = Duration::ZERO;
    while Instant::now() < end {
        let context = ReadContext {
            now: now(),
            freshness: Freshness::MayLag {
                seconds,
                seen: Revision::ZERO,
            },
        };
        let record = engine.get(&session_key("S-1"), context).await.unwrap();
        let answered = Instant::now();
        let header = record.unwrap().header;
        let tick = header.content.live().unwrap().text(Field::GeoZone).unwrap();
        oldest = oldest.max(ledger.age(tick.parse().unwrap(), answered));
        tokio::time::sleep(READ_EVERY).await;
    }
    oldest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounded_reads_are_never_older_than_their_bound_beside_a_secondary_that_stands_still() {
    let Some(set) = own_set(Members::Three) else {
        return;
    };
    let uri = set.uri();
    let [ticking, five, ten, boundless] = [(); 4].map(|()| open(&uri, "lagging"));
    let ticking = ticking.await;
    let (five, ten, boundless) = (five.await, ten.await, boundless.await);
    let ledger = Ledger::default();
    let warm = Duration::from_secs(3);
    let end = Instant::now() + warm + STANDSTILL;
    let still = (set.primary().unwrap() + 1) % 3;
    let standing_still = async {
        tokio::time::sleep(warm).await;
        tokio::task::block_in_place(|| set.hold_still(still)).unwrap();
    };
    let begun = async {
        while ledger.0.lock().unwrap().is_empty() {
            tokio::time::sleep(TICK).await;
        }
    };
    let reading = async {
        begun.await;
        tokio::join!(
            oldest_answer(&five, &ledger, 5, end),
            oldest_answer(&ten, &ledger, 10, end),
            // More than the standstill lasts: as if there were no bound.
            oldest_answer(&boundless, &ledger, 3_600, end),
        )
    };
    let ((), (), (of_five, of_ten, of_boundless)) =
        tokio::join!(tick_until(&ticking, &ledger, end), standing_still, reading);

    println!("oldest answers: bound 5 s {of_five:?}, 10 s {of_ten:?}, none {of_boundless:?}");
    for engine in [&five, &ten, &boundless] {
        println!("{:?}", engine.lag_counts());
        assert!(engine.lag_counts().served_in_all() > 0);
    }
    assert!(of_five <= Duration::from_secs(5), "{of_five:?}");
    assert!(of_ten <= Duration::from_secs(10), "{of_ten:?}");
    assert!(
        of_boundless > Duration::from_secs(5),
        "the judge would not notice a broken bound: {of_boundless:?}"
    );
    for (engine, bound_ms) in [(&five, 5_000), (&ten, 10_000)] {
        let counts = engine.lag_counts();
        assert!(counts.behind.load(Ordering::Relaxed) > 0, "{counts:?}");
        assert!(
            counts.served_ms_max.load(Ordering::Relaxed) <= bound_ms,
            "{counts:?}"
        );
    }
}

#[tokio::test]
async fn one_member_alone_answers_lagging_reads_itself() {
    let Some(set) = set() else { return };
    let engine = open(&set.uri(), &set.database("alone")).await;
    let change = create("S-1", session_header("S-1"), vec![]);
    assert!(engine.apply(change, router(1)).await.unwrap().is_done());
    let context = ReadContext {
        now: now(),
        freshness: Freshness::MayLag {
            seconds: 5,
            seen: Revision::ZERO,
        },
    };
    let record = engine.get(&session_key("S-1"), context).await.unwrap();
    assert!(record.is_some());
    let counts = engine.lag_counts();
    assert_eq!((counts.served_in_all(), counts.fallbacks()), (0, 0));
}
