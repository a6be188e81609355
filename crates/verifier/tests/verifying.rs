//! Two copies, what may be wrong with one of them, and what a verification makes of it.

#![allow(clippy::unwrap_used)]

mod sides;

use engine_api::{
    Content, Engine, Maintenance, Part, PartKey, Position, Record, Timestamp, World, expiry_fields,
};
use layout::{Fields, Scope};
use sides::{START_MICROS, Sides, cart, key, line, named, put, removed, revision, seal, term};
use verifier::{Discord, Pass, Phase, Progress, Repair, Unproven, Verifier, VerifyError};

/// A side that holds the carts as somebody left them who went past the contract.
async fn tampered(count: usize, tamper: impl Fn(usize, &mut Record) -> bool) -> Sides {
    let sides = Sides::with_carts(0).await;
    for number in 0..count {
        put(&sides.source, cart(number)).await;
        let mut image = cart(number);
        if tamper(number, &mut image) {
            put(&sides.target, image).await;
        }
    }
    sides
}

#[tokio::test]
async fn two_copies_that_are_the_same_are_proven_to_be() {
    let sides = Sides::with_carts(20).await;
    let mut verifier = sides.begin().await;
    assert_eq!(
        sides.prove(&mut verifier).await,
        Err(Unproven::NotYet),
        "nothing was read yet"
    );
    assert_eq!(sides.run(&mut verifier).await, 0);
    let proof = sides.prove(&mut verifier).await.unwrap();
    assert_eq!(proof.records(), 20);
    assert_eq!(proof.roots().0, proof.roots().1);
    assert!(proof.is_for(&seal(&sides.source).await.position));
    assert!(!proof.is_for(&Position(vec![9])));
}

#[tokio::test]
async fn whatever_is_done_to_one_record_is_found_and_named() {
    type Tamper = fn(&mut Record) -> bool;
    let part = Discord::Part(PartKey::line("phone"));
    let cases: [(Discord, Tamper); 7] = [
        (Discord::Missing, |_| false),
        (Discord::Revision, |it| {
            it.header.revision = revision(2);
            true
        }),
        (Discord::Fields, |it| {
            it.header.content = Content::Live(Fields::new());
            true
        }),
        (part.clone(), |it| {
            it.parts.insert(PartKey::line("phone"), line(2, 9));
            true
        }),
        // The same content under another number.
        (part.clone(), |it| {
            let phone = it.parts.get_mut(&PartKey::line("phone"));
            phone.map(|phone| phone.revision = revision(3)).is_some()
        }),
        (part, |it| {
            it.parts.remove(&PartKey::line("phone")).is_some()
        }),
        (Discord::Expiry, |it| {
            let sooner = expiry_fields(Timestamp::from_unix_micros(START_MICROS + 999_000_000_000));
            let part = Part::live(revision(2), sooner);
            it.parts.insert(PartKey::expiry(), part).is_some()
        }),
    ];
    for (expected, tamper) in cases {
        let sides = tampered(12, |number, image| number != 7 || tamper(image)).await;
        let id = key(7).id.to_string();
        assert_eq!(sides.found().await, [(id.clone(), expected.clone())]);
        let mut verifier = sides.begin().await;
        sides.run(&mut verifier).await;
        match sides.prove(&mut verifier).await {
            Err(Unproven::Unequal { count: 1, named }) => assert_eq!(named[0].discord, expected),
            other => panic!("{expected:?}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn keys_that_only_one_side_has_and_removals_are_found() {
    let sides = Sides::with_carts(9).await;
    put(&sides.target, cart(50)).await;
    put(&sides.source, removed(3)).await;
    put(&sides.source, removed(60)).await;
    let mut found = sides.found().await;
    found.sort_by(|one, other| one.0.cmp(&other.0));
    let id = |number| key(number).id.to_string();
    assert_eq!(
        found,
        [
            (id(3), Discord::LivesOn),
            (id(50), Discord::Extra),
            (id(60), Discord::MarkMissing)
        ]
    );
    // A mark that only the target still has can be seen by nobody.
    let sides = Sides::with_carts(9).await;
    put(&sides.target, removed(60)).await;
    assert_eq!(sides.found().await, []);
}

#[tokio::test]
async fn many_differences_are_found_with_few_keys_held_at_a_time() {
    let sides = tampered(40, |number, _| number.is_multiple_of(2)).await;
    let found = sides.found().await;
    assert_eq!(found.len(), 20);
    assert!(
        found
            .iter()
            .all(|(_, discord)| *discord == Discord::Missing)
    );
}

#[tokio::test]
async fn a_copy_that_lags_is_no_difference_until_it_has_lagged_too_long() {
    let sides = Sides::with_carts(6).await;
    let mut verifier = sides.begin().await;
    assert_eq!(sides.run(&mut verifier).await, 0);
    let mut changed = cart(2);
    changed.parts.insert(PartKey::line("phone"), line(9, 5));
    put(&sides.source, changed).await;
    for _ in 0..5 {
        assert_eq!(verifier.pass().await.unwrap(), Pass::Behind);
        assert_eq!(verifier.differences(), []);
    }
    let open = sides.prove(&mut verifier).await;
    assert!(matches!(open, Err(Unproven::Unequal { count: 1, .. })));
    sides.carry(&key(2)).await;
    assert_eq!(sides.run(&mut verifier).await, 0);
    sides.prove(&mut verifier).await.unwrap();

    let mut changed = cart(2);
    changed.parts.insert(PartKey::line("phone"), line(12, 6));
    put(&sides.source, changed).await;
    assert_eq!(sides.run(&mut verifier).await, 1, "nobody carries it");
    assert_eq!(named(&verifier)[0].1, Discord::Part(PartKey::line("phone")));
}

#[tokio::test]
async fn what_changes_behind_the_scan_is_compared_again() {
    let sides = Sides::with_carts(30).await;
    let mut verifier = sides.begin().await;
    // Each cart in turn changes at the target alone, while the verification goes on.
    for number in 0..30 {
        verifier.pass().await.unwrap();
        let mut changed = cart(number);
        changed.parts.insert(PartKey::line("phone"), line(9, 5));
        put(&sides.target, changed).await;
    }
    assert_eq!(sides.run(&mut verifier).await, 30);
}

#[tokio::test]
async fn whoever_goes_on_after_any_pass_finds_the_same() {
    let sides = tampered(14, |number, _| number != 4 && number != 11).await;
    put(&sides.target, cart(70)).await;
    for passes in 0..40 {
        let mut verifier = sides.begin().await;
        for _ in 0..passes {
            verifier.pass().await.unwrap();
        }
        // While it is saved, something changes.
        let mut changed = cart(1);
        let number = 100 + i64::from(passes);
        changed
            .parts
            .insert(PartKey::line("phone"), line(number, 5));
        put(&sides.source, changed).await;
        let saved = verifier.progress();
        drop(verifier);
        let mut verifier = Verifier::resume(sides.config(), saved).unwrap();
        assert_eq!(sides.run(&mut verifier).await, 4, "after {passes} passes");
        let ids: Vec<String> = named(&verifier).into_iter().map(|(id, _)| id).collect();
        let id = |number| key(number).id.to_string();
        assert_eq!(ids, [id(1), id(4), id(11), id(70)], "after {passes} passes");
    }
}

#[tokio::test]
async fn a_journal_that_was_trimmed_under_a_verification_ends_it() {
    let sides = Sides::with_carts(10).await;
    let mut verifier = sides.begin().await;
    for number in 0..3 {
        let mut changed = cart(number);
        changed.parts.insert(PartKey::line("phone"), line(9, 5));
        put(&sides.source, changed).await;
    }
    let work = Maintenance {
        now: sides.clock.now(),
        marks_before: Timestamp::from_unix_micros(0),
        journal_before: Timestamp::from_unix_micros(i64::MAX),
        items_max: 1_000,
    };
    sides.source.maintain(work).await.unwrap();
    let ended = verifier.pass().await.unwrap_err();
    let lost = VerifyError::PositionLost {
        side: verifier::Side::Source,
    };
    assert_eq!(ended, lost);
}

#[tokio::test]
async fn differences_are_repaired_one_by_one_also_where_no_image_is_newer() {
    let sides = tampered(8, |number, image| {
        if number == 5 {
            image.parts.insert(PartKey::line("phone"), line(2, 9));
        }
        number != 3
    })
    .await;
    put(&sides.target, cart(40)).await;
    let mut verifier = sides.begin().await;
    assert_eq!(sides.run(&mut verifier).await, 3);
    sides.target.claim_term(term()).await.unwrap();
    let mut repaired = Vec::new();
    for difference in verifier.differences() {
        repaired.push(verifier.repair(&difference.key, &term()).await.unwrap());
    }
    // The line of the second has the source's own revision: no image is newer than it.
    assert_eq!(repaired, vec![Repair::Repaired; 3]);
    assert_eq!(sides.run(&mut verifier).await, 0);
    sides.prove(&mut verifier).await.unwrap();
    assert_eq!(
        verifier.repair(&key(0), &term()).await.unwrap(),
        Repair::Agrees
    );
}

#[tokio::test]
async fn a_scope_is_compared_and_nothing_else() {
    let sides = Sides::with_carts(10).await;
    put(&sides.target, cart(44)).await;
    put(&sides.target, cart(55)).await;
    let mut config = sides.config();
    config.pair.scope = Scope::Keys(vec![key(1).shard_key, key(55).shard_key]);
    let mut verifier = Verifier::begin(config).await.unwrap();
    assert_eq!(sides.run(&mut verifier).await, 1);
    assert_eq!(named(&verifier), [(key(55).id.to_string(), Discord::Extra)]);
}

#[tokio::test]
async fn limits_and_damaged_progress_are_refused() {
    let sides = Sides::with_carts(1).await;
    let mut config = sides.config();
    config.limits.scan_records_max = 0;
    let refused = Verifier::begin(config).await.unwrap_err();
    assert!(refused.to_string().contains("choose 1 to"), "{refused}");
    let verifier = sides.begin().await;
    let Progress {
        rows,
        source_at,
        target_at,
        ..
    } = verifier.progress();
    let short: verifier::Sums = serde_json::from_str(r#"{"counts":[],"sums":[]}"#).unwrap();
    let progress = Progress {
        phase: Phase::Watching {
            source: short.clone(),
            target: short,
        },
        rows,
        source_at,
        target_at,
    };
    let refused = Verifier::resume(sides.config(), progress).unwrap_err();
    assert_eq!(refused, VerifyError::Damaged);
}
