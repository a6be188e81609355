//! An order on Cassandra, its stock on MongoDB, and a process that ends like under
//! `kill -9` between any two steps of the way from one to the other: by fault points of the
//! real program, judged over HTTP by another process and by a bare connection.

#![allow(clippy::unwrap_used)]

mod case;
mod place;
#[path = "../support/mod.rs"]
mod support;

use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use case::{Bought, Case, RECEIVED, stock};
use place::{MAY_DIE, PATIENCE, Place, was_killed};
use rustix::process::Signal;
use serde_json::{Value, json};

/// What a sweeper needs to take an order for abandoned at once.
const IMPATIENT: (&str, &str) = ("CARAVAN_SHOP_SWEEP_AFTER_S", "1");
/// And to leave it alone while a test looks.
const PATIENT: (&str, &str) = ("CARAVAN_SHOP_SWEEP_AFTER_S", "3600");

/// The steps of an order with two lines and a cart, each with its write.
const STEPS: [&str; 8] = [
    "after:orders:create:1",
    "after:products:take:1",
    "after:products:take:2",
    "after:orders:change:1",
    "after:products:claim:1",
    "after:products:claim:2",
    "after:carts:change:1",
    "after:orders:change:2",
];

/// Of the steps, those after which the order counts.
fn is_decided(step: &str) -> bool {
    let at = STEPS.iter().position(|known| *known == step).unwrap();
    at >= 3
}

#[test]
fn wherever_a_saga_across_engines_is_killed_it_comes_to_one_end() {
    let Some(place) = Place::prepare() else {
        return;
    };
    let witness = place.serve(&[PATIENT]);
    for step in ["before:orders:create:1"].iter().chain(&STEPS) {
        let case = Case::killed(&place, &witness, "retry", step);
        let repeat = case.order(&witness);
        assert!(
            [200, 201].contains(&repeat.status),
            "{step}: {}",
            repeat.text
        );
        case.judge(&place, &witness, Bought::Yes);
    }
    let swept: Vec<(Case, &str)> = STEPS
        .iter()
        .map(|step| (Case::killed(&place, &witness, "sweep", step), *step))
        .collect();
    let sweeper = place.serve(&[IMPATIENT]);
    place.wait_until_nothing_is_open();
    for (case, step) in swept {
        case.judge(&place, &witness, Bought::when(is_decided(step)));
    }
    sweeper.stop();
    let reconciled: Vec<(Case, &str)> = [STEPS[0], STEPS[2], STEPS[4]]
        .into_iter()
        .map(|step| (Case::killed(&place, &witness, "reconcile", step), step))
        .collect();
    let begun = Instant::now();
    while place.open_orders() > 0 {
        assert!(begun.elapsed() < PATIENCE, "orders stay open");
        let output = place.reconcile(&["--json"], &[IMPATIENT]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    for (case, step) in reconciled {
        case.judge(&place, &witness, Bought::when(is_decided(step)));
    }
    nothing_is_left(&place);
    witness.stop();
}

#[test]
fn an_order_that_is_refused_or_cancelled_gives_everything_back_wherever_it_is_killed() {
    let Some(place) = Place::prepare() else {
        return;
    };
    let witness = place.serve(&[PATIENT]);
    for (number, step) in [
        "after:orders:change:1",
        "after:products:give:1",
        "after:products:give:2",
        "after:orders:change:2",
    ]
    .iter()
    .enumerate()
    {
        let case = Case::prepared(&witness, &format!("refused-{number}"));
        // The second line finds nothing, when the first has taken.
        witness.put(
            &format!("{}/stock/moscow", case.products[1]),
            &json!({"received": 0}),
        );
        case.dies_on(&place, step, |server| case.attempt(server));
        let repeat = case.order(&witness);
        assert_eq!(repeat.status, 409, "{step}: {}", repeat.text);
        witness.put(
            &format!("{}/stock/moscow", case.products[1]),
            &json!({"received": RECEIVED}),
        );
        if place.open_orders() > 0 {
            // The repeat is told of the end; what follows is for a sweeper.
            let sweeper = place.serve(&[IMPATIENT]);
            place.wait_until_nothing_is_open();
            sweeper.stop();
        }
        case.judge(&place, &witness, Bought::No);
    }
    for (number, step) in [
        "after:orders:change:1",
        "after:products:return:1",
        "after:products:return:2",
        "after:orders:change:2",
    ]
    .iter()
    .enumerate()
    {
        let case = Case::prepared(&witness, &format!("cancelled-{number}"));
        let order = case.order(&witness).json();
        let path = format!("/v1/orders/{}/status", order["order_id"].as_str().unwrap());
        let cancelled = json!({"status": "cancelled"}).to_string();
        case.dies_on(&place, step, |server| {
            server.attempt("POST", &path, &[], &cancelled).ok()
        });
        let repeat = witness.post(&path, &cancelled);
        assert_eq!(repeat.status, 200, "{step}: {}", repeat.text);
        assert_eq!(repeat.json()["status"], "cancelled");
        for product in &case.products {
            assert_eq!(stock(&witness, product), [RECEIVED, 0, 0], "{step}");
        }
    }
    nothing_is_left(&place);
    witness.stop();
}

#[test]
fn a_sweeper_that_is_killed_between_its_steps_is_followed_by_the_next() {
    let Some(place) = Place::prepare() else {
        return;
    };
    let witness = place.serve(&[PATIENT]);
    // Each begins anew with the lines of the order, so that the counts rise.
    let gives_up = [
        "after:orders:change:1",
        "after:products:give:1",
        "after:products:give:2",
        "after:orders:change:1",
    ];
    let goes_on = [
        "after:products:claim:1",
        "after:products:claim:2",
        "after:carts:change:1",
        "after:orders:change:1",
    ];
    for (name, left_at, steps, end) in [
        ("given-up", "after:products:take:2", gives_up, Bought::No),
        ("gone-on", "after:orders:change:1", goes_on, Bought::Yes),
    ] {
        let case = Case::killed(&place, &witness, name, left_at);
        for step in steps {
            let sweeper = place.serve(&[IMPATIENT, ("CARAVAN_FAULT_POINT", step), MAY_DIE]);
            was_killed(sweeper, step);
        }
        case.judge(&place, &witness, end);
    }
    let case = Case::killed(&place, &witness, "reconciled", "after:products:take:2");
    for step in gives_up {
        let begun = Instant::now();
        // Until the order's last change is as old as its patience.
        loop {
            let point = ("CARAVAN_FAULT_POINT", step);
            let output = place.reconcile(&[], &[IMPATIENT, point, MAY_DIE]);
            if output.status.signal() == Some(Signal::KILL.as_raw()) {
                break;
            }
            assert_eq!(output.status.code(), Some(0), "{step}: {output:?}");
            assert!(begun.elapsed() < PATIENCE, "{step}: {output:?}");
        }
    }
    case.judge(&place, &witness, Bought::No);
    nothing_is_left(&place);
    witness.stop();
}

/// A last look finds nothing that a reconciler would mend or name.
fn nothing_is_left(place: &Place) {
    let output = place.reconcile(&["--dry-run", "--json"], &[IMPATIENT]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = report["kinds"].as_array().unwrap().iter();
    let found: u64 = found.map(|kind| kind["found"].as_u64().unwrap()).sum();
    assert_eq!(found, 0, "{report:#}");
    assert!(report["records"].as_u64() > Some(10), "{report:#}");
}

/// What buyers do while everything is looked at is nothing to be mended, nor to be told.
#[test]
fn a_reconciler_beside_traffic_says_nothing() {
    let Some(place) = Place::prepare() else {
        return;
    };
    let witness = place.serve(&[PATIENT]);
    let products = [1, 2].map(|number| format!("P-busy-{number}"));
    for product in &products {
        let page = json!({"category": "phones", "name": "Busy", "price": "100"});
        witness.put(&format!("/v1/products/{product}"), &page);
        let stock = format!("/v1/products/{product}/stock/moscow");
        witness.put(&stock, &json!({"received": 1_000_000}));
    }
    let (closed, placed) = (AtomicBool::new(false), AtomicU32::new(0));
    let buy = |buyer: u32| {
        for number in 0.. {
            if closed.load(Ordering::SeqCst) {
                break;
            }
            let lines = products.each_ref().map(|product| {
                json!({"product_id": product, "category": "phones", "quantity": 1, "price": "100"})
            });
            let body = json!({"user_id": format!("U-{buyer}"), "geo_zone": "moscow",
                "address": "Tverskaya 1", "payment_method": "card", "lines": lines});
            let key = format!("{buyer}-{number}");
            let key = [("Idempotency-Key", key.as_str())];
            let order = witness.send("POST", "/v1/orders", &key, &body.to_string());
            assert_eq!(order.status, 201, "{}", order.text);
            placed.fetch_add(1, Ordering::SeqCst);
            if number % 3 == 0 {
                let id = order.json()["order_id"].as_str().unwrap().to_owned();
                let path = format!("/v1/orders/{id}/status");
                let cancelled = witness.post(&path, &json!({"status": "cancelled"}).to_string());
                assert_eq!(cancelled.status, 200, "{}", cancelled.text);
            }
        }
    };
    let looks = thread::scope(|scope| {
        let buy = &buy;
        for buyer in 0..3 {
            scope.spawn(move || buy(buyer));
        }
        let look = |_| {
            let before = placed.load(Ordering::SeqCst);
            let output = place.reconcile(&["--json"], &[]);
            (output, placed.load(Ordering::SeqCst) - before)
        };
        let looks = [0, 1, 2].map(look);
        closed.store(true, Ordering::SeqCst);
        looks
    });
    // On a busy machine one look may be over before the next order is.
    let meanwhile: u32 = looks.iter().map(|(_, placed)| placed).sum();
    assert!(meanwhile > 0, "nobody bought anything meanwhile");
    for (output, _) in looks {
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let kinds = report["kinds"].as_array().unwrap();
        assert!(kinds.iter().all(|kind| kind["found"] == 0), "{report:#}");
    }
    nothing_is_left(&place);
    witness.stop();
}
