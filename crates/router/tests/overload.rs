//! Too much for a shard, shards that hang or are away, and requests whose time is over.

#![allow(clippy::unwrap_used)] // a story ends where something unforeseen happens

mod support;

use std::sync::Arc;
use std::time::Duration;

use engine_api::{Change, FenceKind, Remedy, Revision, World};
use layout::{Collection, Field, Scope};
use router::{CollectionMap, Edit, Limits, Precedence, Router, RouterError};
use support::*;

const CARTS: Collection = Collection::Carts;

/// Longer than any story.
const LONG: Duration = Duration::from_secs(3_600);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Carts on shard a, sessions on shard b.
async fn two_shards(limits: Limits) -> Shop {
    let sessions = CollectionMap::on_one_shard("embedded", vec![Field::UserId], named("b"));
    let collections = [carts_on("a"), (Collection::Sessions, sessions)];
    Shop::open_with(&["a", "b"], &collections, limits, FenceKind::InStore).await
}

fn open_session(user: &str) -> Change {
    create_session(session_key("s", user), user, 1)
}

/// Time stands still while somebody works, so that who hangs for ever is found at once.
async fn write(router: &Router, change: Change) -> Result<(), RouterError> {
    let written = tokio::time::timeout(2 * LONG, router.write(change, Revision::ZERO));
    written.await.expect("a write hangs").map(drop)
}

async fn get(router: &Router, cart: &str) -> Result<bool, RouterError> {
    let key = cart_key(cart);
    let read = tokio::time::timeout(2 * LONG, router.get(&key));
    read.await
        .expect("a read hangs")
        .map(|found| found.is_some())
}

fn figures(router: &Router, shard: &str) -> (usize, u64, u64, u64) {
    let (_, gate) = router
        .gates()
        .find(|(name, _)| name.as_str() == shard)
        .unwrap();
    let counts = [&gate.refused, &gate.retries, &gate.retries_refused].map(|it| it.value());
    (gate.under_way(), counts[0], counts[1], counts[2])
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_hangs_refuses_at_once_and_leaves_the_others_alone() {
    let limits = Limits {
        shard_requests_max: 2,
        ..Limits::default()
    };
    let shop = two_shards(limits).await;
    let gate = shop.shard("a").gate_answers();
    let hanging = ["c-1", "c-2"].map(|cart| {
        let router = shop.router.clone();
        tokio::spawn(async move { write(&router, create_cart(cart)).await })
    });
    gate.someone_arrived().await;
    gate.someone_arrived().await;

    let began = shop.world.elapsed();
    let refused = write(&shop.router, create_cart("c-3")).await.unwrap_err();
    let busy = RouterError::ShardBusy {
        shard: named("a"),
        places: 2,
    };
    assert_eq!((&refused, refused.remedy()), (&busy, Remedy::Retry));
    assert_eq!(get(&shop.router, "c-1").await, Err(busy));
    assert_eq!(shop.world.elapsed(), began, "nobody waited for the refusal");
    assert_eq!(shop.shard("a").sent().len(), 2, "nor was the shard asked");
    write(&shop.router, open_session("u")).await.unwrap();
    assert_eq!(figures(&shop.router, "a"), (2, 2, 0, 0));

    gate.let_one_through();
    gate.let_one_through();
    for writing in hanging {
        writing.await.unwrap().unwrap();
    }
    shop.shard("a").ungate();
    write(&shop.router, create_cart("c-3")).await.unwrap();
    assert_eq!(figures(&shop.router, "a").0, 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_gives_its_place_back() {
    let shop = two_shards(Limits::default()).await;
    let gate = shop.shard("a").gate_answers();
    let router = shop.router.clone();
    let hanging = tokio::spawn(async move { write(&router, create_cart("c")).await });
    gate.someone_arrived().await;
    assert_eq!(figures(&shop.router, "a").0, 1);
    hanging.abort();
    assert!(hanging.await.unwrap_err().is_cancelled());
    assert_eq!(figures(&shop.router, "a").0, 0);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_another_reader_of_a_hanging_shard_has_a_place_too() {
    let limits = Limits {
        shard_requests_max: 3,
        ..Limits::default()
    };
    let shop = two_shards(limits).await;
    let gate = shop.shard("a").gate_answers();
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let router = shop.router.clone();
            tokio::spawn(async move { get(&router, "c").await })
        })
        .collect();
    gate.someone_arrived().await;
    everyone_waits().await;
    let refused = get(&shop.router, "c").await.unwrap_err();
    assert!(
        matches!(refused, RouterError::ShardBusy { .. }),
        "{refused}"
    );
    shop.shard("a").ungate();
    gate.let_one_through();
    for reader in readers {
        assert_eq!(reader.await.unwrap(), Ok(false));
    }
    assert_eq!(figures(&shop.router, "a").0, 0);
}

#[tokio::test(start_paused = true)]
async fn the_last_places_of_a_shard_are_kept_for_who_takes_precedence() {
    let limits = Limits {
        shard_requests_max: 3,
        shard_low_percent: 34,
        shard_middle_percent: 67,
        ..Limits::default()
    };
    let shop = two_shards(limits).await;
    let gate = shop.shard("a").gate_answers();
    let order = [Precedence::Low, Precedence::Middle, Precedence::High];
    for (number, let_in) in order.into_iter().enumerate() {
        let router = shop.router.within(LONG, let_in);
        tokio::spawn(async move { write(&router, create_cart(&format!("c-{number}"))).await });
        gate.someone_arrived().await;
        for precedence in &order[..=number] {
            let router = shop.router.within(LONG, *precedence);
            let error = write(&router, create_cart("c")).await.unwrap_err();
            assert!(
                matches!(error, RouterError::ShardBusy { .. }),
                "{precedence:?} after {number}: {error}"
            );
        }
    }
    assert_eq!(figures(&shop.router, "a").0, 3);
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_away_is_not_asked_much_more_often_than_one_that_answers() {
    let limits = Limits {
        retries_saved_max: 6,
        retry_percent: 50,
        ..Limits::default()
    };
    let shop = two_shards(limits).await;
    shop.shard("a").fail_next(&[Fault::Unavailable; 36]);
    for _ in 0..30 {
        write(&shop.router, create_cart("c")).await.unwrap_err();
    }
    assert_eq!(shop.shard("a").sent().len(), 36, "30 requests, 6 retries");
    assert_eq!(figures(&shop.router, "a"), (0, 0, 6, 29));
    assert_eq!(figures(&shop.router, "b"), (0, 0, 0, 0));

    // Back again: two answers earn a retry.
    for cart in ["c-1", "c-2"] {
        write(&shop.router, create_cart(cart)).await.unwrap();
    }
    shop.shard("a").fail_next(&[Fault::Unavailable]);
    write(&shop.router, create_cart("c-3")).await.unwrap();
    assert_eq!(shop.shard("a").sent().len(), 40);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_without_a_budget_to_ask_again_stays_unknown() {
    let faults = [Fault::AppliedButAnswerLost, Fault::Unavailable];
    for retries_saved_max in [0, 1] {
        let limits = Limits {
            retries_saved_max,
            retry_percent: 0,
            ..Limits::default()
        };
        let shop = two_shards(limits).await;
        shop.shard("a").fail_next(&faults);
        let error = write(&shop.router, create_cart("c")).await.unwrap_err();
        assert!(
            matches!(error, RouterError::OutcomeUnknown { .. }),
            "{retries_saved_max}: {error}"
        );
        let sent = u32::try_from(shop.shard("a").sent().len()).unwrap();
        assert_eq!(sent, 1 + retries_saved_max);
        assert!(shop.shard("a").holds(&cart_key("c")).await);
        assert_eq!(shop.router.counts().unknown_outcomes.value(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_for_a_request_whose_time_is_over() {
    let shop = two_shards(Limits::default()).await;
    let late = shop.router.within(Duration::ZERO, Precedence::High);
    let error = write(&late, create_cart("c")).await.unwrap_err();
    assert_eq!(
        (&error, error.remedy()),
        (&RouterError::OutOfTime, Remedy::Retry)
    );
    assert_eq!(get(&late, "c").await, Err(RouterError::OutOfTime));
    assert_eq!(
        (shop.shard("a").sent().len(), shop.shard("a").gets()),
        (0, 0)
    );
    assert_eq!(shop.router.counts().out_of_time.value(), 2);
    write(&shop.router, create_cart("c")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_attempt_is_made_after_the_deadline() {
    let limits = Limits {
        unavailable_retries_max: 1_000,
        retries_saved_max: 1_000,
        ..Limits::default()
    };
    let shop = two_shards(limits).await;
    shop.shard("a").fail_next(&[Fault::Unavailable; 1_000]);
    let began = shop.world.elapsed();
    let error = write(
        &shop.router.within(ms(200), Precedence::High),
        create_cart("c"),
    )
    .await;
    let error = error.unwrap_err();
    assert!(
        matches!(error, RouterError::Engine { .. }),
        "it is told why: {error}"
    );
    assert!(shop.world.elapsed() - began < ms(200));
    let attempts = shop.shard("a").sent().len();
    assert!(
        (5..=20).contains(&attempts),
        "a pause is 10 to 20 ms: {attempts}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_in_doubt_whose_time_is_over_stays_unknown() {
    let shop = two_shards(Limits::default()).await;
    let faults = [
        Fault::AppliedButAnswerLost,
        Fault::Unavailable,
        Fault::Unavailable,
    ];
    shop.shard("a").fail_next(&faults);
    let router = shop.router.within(ms(25), Precedence::High);
    let error = write(&router, create_cart("c")).await.unwrap_err();
    assert!(
        matches!(error, RouterError::OutcomeUnknown { .. }),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_is_not_held_beyond_its_deadline() {
    let shop = two_shards(Limits::default()).await;
    let frozen = [(CARTS, Edit::Freeze { scope: Scope::All })];
    let map = shop.router.map().edited(&frozen).unwrap();
    shop.router.publish(map).await.unwrap();
    let began = shop.world.elapsed();
    let router = shop.router.within(ms(310), Precedence::High);
    let error = write(&router, create_cart("c")).await.unwrap_err();
    assert_eq!(error, RouterError::OutOfTime);
    assert_eq!(shop.world.elapsed() - began, ms(310));
    assert_eq!(shop.shard("a").sent().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reader_whose_time_is_over_does_not_end_those_who_joined_it() {
    let shop = two_shards(Limits::default()).await;
    let gate = shop.shard("a").gate_answers();
    let read = |router: Arc<Router>| tokio::spawn(async move { get(&router, "c").await });
    let first = read(shop.router.clone());
    gate.someone_arrived().await;
    let hurried = read(Arc::new(shop.router.within(ms(50), Precedence::High)));
    everyone_waits().await;
    let patient = read(shop.router.clone());
    everyone_waits().await;
    tokio::time::sleep(ms(100)).await;
    gate.let_one_through();
    assert_eq!(first.await.unwrap(), Ok(false));
    assert_eq!(hurried.await.unwrap(), Err(RouterError::OutOfTime));
    let asks = tokio::time::timeout(LONG, gate.someone_arrived());
    asks.await.expect("the patient one asks for itself");
    gate.let_one_through();
    assert_eq!(patient.await.unwrap(), Ok(false));
    assert_eq!(shop.shard("a").gets(), 2);
}
