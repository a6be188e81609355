//! Patching parts: E6, E7, E8.

use crate::change::{Outcome, PartChange};
use crate::conformance::scenery::{
    change_if, changed, create, expiring, line, patch, quantity, remove, remove_line, set_line,
    set_line_while_active, touch,
};
use crate::conformance::stage::{Checked, Failure, Stage};
use crate::conformance::{CARTS, Need, SESSIONS};
use crate::record::{Content, PartKey, RECORD_PARTS_MAX, RecordKey};
use crate::revision::{Revision, Writer};

cases! {
    "E6" ["W1"] concurrent_patches_of_different_parts_both_survive [CARTS];
    "E6" ["W1"] a_patch_touches_the_named_parts_only [CARTS];
    "E6" ["W1"] removing_a_part_leaves_a_mark [CARTS];
    "E6" ["W1"] an_older_patch_of_another_part_is_not_stale [CARTS];
    "E7" ["W2"] a_patch_finds_no_record_where_nothing_lives [CARTS];
    "E7" ["W2"] touching_a_closed_session_makes_no_half_session [SESSIONS];
    "E7" ["W2"] a_patch_of_an_ordered_cart_fails_its_guard [CARTS];
    "E7" ["W2"] a_refused_patch_leaves_nothing_in_the_record [CARTS, Need::AtomicGuard];
    "E7" ["W2"] what_a_refused_patch_left_does_not_come_back_with_a_new_record [CARTS];
    "E8" ["W5"] a_patch_below_the_part_it_replaces_is_stale [CARTS];
    "E8" ["W5"] a_patch_above_the_stale_revision_is_done [CARTS];
    "E6" [] a_record_takes_as_many_parts_as_allowed_and_no_more [CARTS, Need::AtomicGuard];
}

async fn concurrent_patches_of_different_parts_both_survive(stage: Stage<'_>) -> Checked {
    let key = stage.cart("shared");
    stage.create_usual(&key).await?;
    let attempts = (0..16u8)
        .map(|number| {
            let change = set_line(&key, &format!("p{number}"), i64::from(number) + 1);
            (
                change,
                stage.router(stage.revision_by(Writer::numbered(number))),
            )
        })
        .collect();
    let outcomes = stage.at_once(attempts).await?;
    ensure!(
        outcomes.iter().all(Outcome::is_done),
        "patches of sixteen lines were answered {outcomes:?}"
    );
    let record = stage.record(&key).await?;
    for number in 0..16 {
        let found = quantity(&record, &format!("p{number}"));
        ensure!(
            found == Some(number + 1),
            "line p{number} has {found:?} in {record:?}"
        );
    }
    ensure!(
        quantity(&record, "lamp") == Some(1),
        "a line that nobody touched is lost: {record:?}"
    );
    Ok(())
}

async fn a_patch_touches_the_named_parts_only(stage: Stage<'_>) -> Checked {
    let key = stage.cart("patched");
    stage.create_usual(&key).await?;
    let before = stage.record(&key).await?;
    let revision = stage.done(set_line(&key, "lamp", 4)).await?;
    let after = stage.record(&key).await?;
    ensure!(
        after.header == before.header,
        "a patch changed the header to {:?}",
        after.header
    );
    let (rug, lamp) = (PartKey::line("rug"), PartKey::line("lamp"));
    ensure!(
        after.parts.get(&rug) == before.parts.get(&rug),
        "the other line became {:?}",
        after.parts
    );
    ensure!(
        quantity(&after, "lamp") == Some(4),
        "the patched line is {:?}",
        after.parts
    );
    let found = after.parts.get(&lamp).map(|part| part.revision);
    ensure!(
        found == Some(revision),
        "the line patched as {revision} has {found:?}"
    );
    Ok(())
}

async fn removing_a_part_leaves_a_mark(stage: Stage<'_>) -> Checked {
    let key = stage.cart("patched");
    stage.create_usual(&key).await?;
    let revision = stage.done(remove_line(&key, "lamp")).await?;
    let record = stage.record(&key).await?;
    let mark = record.parts.get(&PartKey::line("lamp"));
    ensure!(
        mark.is_some_and(|part| part.content == Content::Removed && part.revision == revision),
        "the removed line should be a mark of {revision}, it is {mark:?}"
    );
    ensure!(
        quantity(&record, "rug") == Some(2),
        "the other line is lost: {record:?}"
    );
    let never = stage.done(remove_line(&key, "never-there")).await?;
    let record = stage.record(&key).await?;
    let mark = record
        .parts
        .get(&PartKey::line("never-there"))
        .map(|part| part.revision);
    ensure!(
        mark == Some(never),
        "removing what is not there yet should leave a mark, found {mark:?}"
    );
    Ok(())
}

async fn an_older_patch_of_another_part_is_not_stale(stage: Stage<'_>) -> Checked {
    let key = stage.cart("patched");
    stage.create_usual(&key).await?;
    let slow = stage.revision_by(Writer::numbered(1));
    let fast = stage.revision_by(Writer::numbered(2));
    stage
        .done_in(set_line(&key, "rug", 9), stage.router(fast))
        .await?;
    stage
        .done_in(remove_line(&key, "lamp"), stage.router(slow))
        .await?;
    let record = stage.record(&key).await?;
    ensure!(
        quantity(&record, "rug") == Some(9),
        "the newer line is {record:?}"
    );
    ensure!(
        quantity(&record, "lamp").is_none(),
        "the line removed as {slow} is still there: {record:?}"
    );
    Ok(())
}

async fn expired_cart(stage: &Stage<'_>, name: &str) -> Checked<RecordKey> {
    let key = stage.cart(name);
    let parts = vec![
        (PartKey::line("lamp"), line(1)),
        expiring(stage.in_seconds(-1)),
    ];
    let context = stage.router_at(stage.revision(), stage.in_seconds(-10));
    stage
        .done_in(create(&key, stage.header(&key), parts), context)
        .await?;
    Ok(key)
}

async fn a_patch_finds_no_record_where_nothing_lives(stage: Stage<'_>) -> Checked {
    let (absent, removed) = (stage.cart("absent"), stage.cart("removed"));
    let created = stage.create_usual(&removed).await?;
    stage.done(remove(&removed, created)).await?;
    let expired = expired_cart(&stage, "expired").await?;
    for key in [&absent, &removed, &expired] {
        for change in [
            set_line(key, "lamp", 3),
            remove_line(key, "lamp"),
            set_line_while_active(key, "rug", 1),
        ] {
            let outcome = stage.apply(change.clone()).await?;
            ensure!(
                outcome == Outcome::NoRecord,
                "{change:?} was answered {outcome:?}"
            );
        }
        stage.ensure_not_live(key).await?;
    }
    Ok(())
}

async fn touching_a_closed_session_makes_no_half_session(stage: Stage<'_>) -> Checked {
    let key = stage.key(layout::Collection::Sessions, "closed");
    let opened = stage.create_usual(&key).await?;
    stage.done(remove(&key, opened)).await?;
    let outcome = stage
        .apply(touch(&key, stage.now(), stage.in_seconds(7200)))
        .await?;
    ensure!(
        outcome == Outcome::NoRecord,
        "touching a closed session was answered {outcome:?}"
    );
    stage.ensure_not_live(&key).await
}

async fn a_patch_of_an_ordered_cart_fails_its_guard(stage: Stage<'_>) -> Checked {
    let key = stage.cart("guarded");
    let created = stage.create_usual(&key).await?;
    stage.done(set_line_while_active(&key, "lamp", 3)).await?;
    let ordered = changed(&stage.header(&key), key.collection, "ordered");
    let revision = stage.done(change_if(&key, created, ordered)).await?;
    match stage.apply(set_line_while_active(&key, "late", 1)).await? {
        Outcome::GuardFailed { header } => {
            ensure!(
                header.revision == revision,
                "the failed guard shows {header:?}"
            );
        }
        other => ensure!(false, "a patch of an ordered cart was answered {other:?}"),
    }
    Ok(())
}

async fn a_refused_patch_leaves_nothing_in_the_record(stage: Stage<'_>) -> Checked {
    let (key, removed) = (stage.cart("guarded"), stage.cart("removed"));
    let created = stage.create_usual(&key).await?;
    stage
        .done(change_if(
            &key,
            created,
            changed(&stage.header(&key), key.collection, "ordered"),
        ))
        .await?;
    let gone = stage.create_usual(&removed).await?;
    stage.done(remove(&removed, gone)).await?;
    for key in [&key, &removed] {
        let before = stage.record(key).await?;
        stage.apply(set_line_while_active(key, "late", 1)).await?;
        let after = stage.record(key).await?;
        ensure!(
            after == before,
            "a refused patch made {before:?} into {after:?}"
        );
    }
    Ok(())
}

async fn what_a_refused_patch_left_does_not_come_back_with_a_new_record(
    stage: Stage<'_>,
) -> Checked {
    let absent = stage.cart("absent");
    let removed = stage.cart("removed");
    let created = stage.create_usual(&removed).await?;
    stage.done(remove(&removed, created)).await?;
    let expired = expired_cart(&stage, "expired").await?;
    for key in [&absent, &removed, &expired] {
        stage.apply(set_line(key, "late", 3)).await?;
        stage
            .create(key, vec![(PartKey::line("new"), line(5))])
            .await?;
        let record = stage.record(key).await?;
        let lines: Vec<_> = record
            .live_parts()
            .map(|(part, _)| part.to_string())
            .collect();
        ensure!(lines == ["line/new"], "the new {key} has {lines:?}");
    }
    Ok(())
}

async fn a_patch_below_the_part_it_replaces_is_stale(stage: Stage<'_>) -> Checked {
    let key = stage.cart("stale");
    let before_all = stage.revision();
    let created = stage.create_usual(&key).await?;
    let old = stage.revision();
    let new = stage.done(set_line(&key, "lamp", 4)).await?;
    let before = stage.record(&key).await?;
    let both = patch(
        &key,
        vec![
            (PartKey::line("rug"), PartChange::Set(line(7))),
            (PartKey::line("lamp"), PartChange::Set(line(7))),
        ],
    );
    for (change, revision, stored) in [
        (set_line(&key, "lamp", 7), old, new),
        (remove_line(&key, "lamp"), old, new),
        (both, old, new),
        (set_line(&key, "rug", 7), before_all, created),
    ] {
        let outcome = stage
            .apply_in(change.clone(), stage.router(revision))
            .await?;
        ensure!(
            outcome == Outcome::Stale { stored },
            "{change:?} as {revision} was answered {outcome:?}"
        );
    }
    let fresh_part = set_line(&key, "never-there", 7);
    let outcome = stage.apply_in(fresh_part, stage.router(before_all)).await?;
    ensure!(
        matches!(outcome, Outcome::Stale { .. }),
        "a patch older than the record was answered {outcome:?}"
    );
    let after = stage.record(&key).await?;
    ensure!(
        after == before,
        "stale patches made {before:?} into {after:?}"
    );
    Ok(())
}

async fn a_patch_above_the_stale_revision_is_done(stage: Stage<'_>) -> Checked {
    let key = stage.cart("stale");
    stage.create_usual(&key).await?;
    let old = stage.revision();
    stage.done(set_line(&key, "lamp", 4)).await?;
    let outcome = stage
        .apply_in(set_line(&key, "lamp", 7), stage.router(old))
        .await?;
    let Outcome::Stale { stored } = outcome else {
        return Err(Failure(format!("a patch below was answered {outcome:?}")));
    };
    let above = Revision::above(stored, Writer::numbered(5));
    stage
        .done_in(set_line(&key, "lamp", 7), stage.router(above))
        .await?;
    let record = stage.record(&key).await?;
    ensure!(
        quantity(&record, "lamp") == Some(7),
        "the second attempt left {record:?}"
    );
    Ok(())
}

async fn a_record_takes_as_many_parts_as_allowed_and_no_more(stage: Stage<'_>) -> Checked {
    let key = stage.cart("full");
    let parts = (0..RECORD_PARTS_MAX)
        .map(|number| (PartKey::line(&format!("p{number}")), line(1)))
        .collect();
    stage.create(&key, parts).await?;
    stage.done(set_line(&key, "p0", 2)).await?;
    let before = stage.record(&key).await?;
    let outcome = stage.apply(set_line(&key, "one-more", 1)).await?;
    let expected = Outcome::TooManyParts {
        parts_max: RECORD_PARTS_MAX,
    };
    ensure!(
        outcome == expected,
        "one part too many was answered {outcome:?}"
    );
    let after = stage.record(&key).await?;
    ensure!(after == before, "one part too many changed the record");
    Ok(())
}
