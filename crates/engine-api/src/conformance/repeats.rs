//! The same change sent again: E3.

use layout::Collection;

use crate::change::{Outcome, PartChange};
use crate::conformance::CARTS;
use crate::conformance::scenery::{
    change_if, changed, create, line, patch, quantity, remove, remove_line, set_line, usual_parts,
};
use crate::conformance::stage::{Checked, Stage};
use crate::record::{Content, PartKey, Record, RecordKey};

cases! {
    "E3" [] a_repeated_creation_is_done_and_creates_nothing_more [];
    "E3" [] a_creation_repeated_after_the_removal_brings_nothing_back [];
    "E3" [] a_repeated_change_is_done_until_something_newer_replaced_it [];
    "E3" [] a_repeated_removal_is_done_and_spares_what_came_after [];
    "E3" ["W1"] a_repeated_patch_is_done_and_sets_nothing_again [CARTS];
    "E3" ["W1"] a_patch_repeated_after_a_newer_one_changes_nothing [CARTS];
    "E3" ["W1"] a_patch_repeated_into_a_new_record_changes_nothing [CARTS];
    "E3" [] eight_concurrent_copies_of_one_change_apply_once [];
}

async fn ensure_unchanged(
    stage: &Stage<'_>,
    key: &RecordKey,
    before: &Record,
    what: &str,
) -> Checked {
    let after = stage.record(key).await?;
    ensure!(after == *before, "{what} made\n{before:?} into\n{after:?}");
    Ok(())
}

async fn a_repeated_creation_is_done_and_creates_nothing_more(stage: Stage<'_>) -> Checked {
    for collection in stage.collections() {
        let key = stage.key(collection, "created");
        let context = stage.router(stage.revision());
        let creation = create(
            &key,
            stage.header(&key),
            usual_parts(collection, stage.now()),
        );
        stage.done_in(creation.clone(), context.clone()).await?;
        let before = stage.record(&key).await?;
        stage.done_in(creation.clone(), context.clone()).await?;
        ensure_unchanged(&stage, &key, &before, "a repeated creation").await?;
        if collection == Collection::Carts {
            stage.done(set_line(&key, "lamp", 9)).await?;
            let before = stage.record(&key).await?;
            stage.done_in(creation, context).await?;
            ensure_unchanged(&stage, &key, &before, "a creation repeated after a patch").await?;
        }
    }
    Ok(())
}

async fn a_creation_repeated_after_the_removal_brings_nothing_back(stage: Stage<'_>) -> Checked {
    for collection in stage.collections() {
        let key = stage.key(collection, "created");
        let context = stage.router(stage.revision());
        let creation = create(
            &key,
            stage.header(&key),
            usual_parts(collection, stage.now()),
        );
        let created = stage.done_in(creation.clone(), context.clone()).await?;
        stage.done(remove(&key, created)).await?;
        let outcome = stage.apply_in(creation, context).await?;
        ensure!(
            !outcome.is_done(),
            "a creation repeated after the removal of {key} was done"
        );
        stage.ensure_not_live(&key).await?;
    }
    Ok(())
}

async fn a_repeated_change_is_done_until_something_newer_replaced_it(stage: Stage<'_>) -> Checked {
    for collection in stage.collections() {
        let key = stage.key(collection, "changed");
        let created = stage.create_usual(&key).await?;
        let context = stage.router(stage.revision());
        let change = change_if(
            &key,
            created,
            changed(&stage.header(&key), collection, "second"),
        );
        let second = stage.done_in(change.clone(), context.clone()).await?;
        let before = stage.record(&key).await?;
        stage.done_in(change.clone(), context.clone()).await?;
        ensure_unchanged(&stage, &key, &before, "a repeated change").await?;
        stage
            .done(change_if(
                &key,
                second,
                changed(&stage.header(&key), collection, "third"),
            ))
            .await?;
        let before = stage.record(&key).await?;
        let outcome = stage.apply_in(change.clone(), context.clone()).await?;
        ensure!(
            matches!(outcome, Outcome::Conflict { .. }),
            "the overtaken change was answered {outcome:?}"
        );
        ensure_unchanged(&stage, &key, &before, "a change repeated after a newer one").await?;
        stage.done(remove(&key, before.header.revision)).await?;
        let outcome = stage.apply_in(change, context).await?;
        ensure!(
            outcome == Outcome::NoRecord,
            "the change of a removed record was answered {outcome:?}"
        );
        stage.ensure_not_live(&key).await?;
    }
    Ok(())
}

async fn a_repeated_removal_is_done_and_spares_what_came_after(stage: Stage<'_>) -> Checked {
    for collection in stage.collections() {
        let key = stage.key(collection, "removed");
        let created = stage.create_usual(&key).await?;
        let context = stage.router(stage.revision());
        stage
            .done_in(remove(&key, created), context.clone())
            .await?;
        stage
            .done_in(remove(&key, created), context.clone())
            .await?;
        let mark = stage.record(&key).await?;
        ensure!(
            mark.header.content == Content::Removed,
            "the removed {key} is {mark:?}"
        );
        stage.create_usual(&key).await?;
        let before = stage.record(&key).await?;
        let outcome = stage.apply_in(remove(&key, created), context).await?;
        ensure!(
            !outcome.is_done(),
            "a removal repeated after a new creation of {key} was done"
        );
        ensure_unchanged(
            &stage,
            &key,
            &before,
            "a removal repeated after a new creation",
        )
        .await?;
    }
    Ok(())
}

async fn a_repeated_patch_is_done_and_sets_nothing_again(stage: Stage<'_>) -> Checked {
    let key = stage.cart("patched");
    stage.create_usual(&key).await?;
    let context = stage.router(stage.revision());
    let change = patch(
        &key,
        vec![
            (PartKey::line("lamp"), PartChange::Set(line(4))),
            (PartKey::line("rug"), PartChange::Remove),
        ],
    );
    stage.done_in(change.clone(), context.clone()).await?;
    stage.done(set_line(&key, "other", 1)).await?;
    let before = stage.record(&key).await?;
    stage.done_in(change.clone(), context.clone()).await?;
    ensure_unchanged(&stage, &key, &before, "a repeated patch").await?;
    stage.done(set_line(&key, "lamp", 8)).await?;
    let before = stage.record(&key).await?;
    stage.apply_in(change, context).await?;
    ensure_unchanged(
        &stage,
        &key,
        &before,
        "a patch repeated after half of it was replaced",
    )
    .await
}

async fn a_patch_repeated_after_a_newer_one_changes_nothing(stage: Stage<'_>) -> Checked {
    let key = stage.cart("patched");
    stage.create_usual(&key).await?;
    let context = stage.router(stage.revision());
    stage
        .done_in(set_line(&key, "lamp", 4), context.clone())
        .await?;
    stage.done(set_line(&key, "lamp", 8)).await?;
    let outcome = stage
        .apply_in(set_line(&key, "lamp", 4), context.clone())
        .await?;
    ensure!(
        matches!(outcome, Outcome::Stale { .. }),
        "the overtaken patch was answered {outcome:?}"
    );
    let record = stage.record(&key).await?;
    ensure!(
        quantity(&record, "lamp") == Some(8),
        "the overtaken patch made it {record:?}"
    );
    stage.done(remove_line(&key, "lamp")).await?;
    let outcome = stage.apply_in(set_line(&key, "lamp", 4), context).await?;
    ensure!(
        matches!(outcome, Outcome::Stale { .. }),
        "a patch older than a mark was answered {outcome:?}"
    );
    let record = stage.record(&key).await?;
    ensure!(
        quantity(&record, "lamp").is_none(),
        "the removed line is back: {record:?}"
    );
    Ok(())
}

async fn a_patch_repeated_into_a_new_record_changes_nothing(stage: Stage<'_>) -> Checked {
    let key = stage.cart("patched");
    let created = stage.create_usual(&key).await?;
    let context = stage.router(stage.revision());
    stage
        .done_in(set_line(&key, "old", 4), context.clone())
        .await?;
    stage.done(remove(&key, created)).await?;
    let outcome = stage
        .apply_in(set_line(&key, "old", 4), context.clone())
        .await?;
    ensure!(
        outcome == Outcome::NoRecord,
        "the patch of a removed record was answered {outcome:?}"
    );
    stage.create_usual(&key).await?;
    let outcome = stage.apply_in(set_line(&key, "old", 4), context).await?;
    ensure!(
        !outcome.is_done(),
        "a patch from before the new record was done"
    );
    let record = stage.record(&key).await?;
    ensure!(
        quantity(&record, "old").is_none(),
        "the old line came back: {record:?}"
    );
    Ok(())
}

async fn eight_concurrent_copies_of_one_change_apply_once(stage: Stage<'_>) -> Checked {
    for collection in stage.collections() {
        let key = stage.key(collection, "copied");
        let creation = create(
            &key,
            stage.header(&key),
            usual_parts(collection, stage.now()),
        );
        let context = stage.router(stage.revision());
        let outcomes = stage.at_once(vec![(creation, context.clone()); 8]).await?;
        ensure!(
            outcomes.iter().all(Outcome::is_done),
            "copies of one creation were answered {outcomes:?}"
        );
        let change = change_if(
            &key,
            context.revision,
            changed(&stage.header(&key), collection, "second"),
        );
        let context = stage.router(stage.revision());
        let outcomes = stage.at_once(vec![(change, context.clone()); 8]).await?;
        ensure!(
            outcomes.iter().all(Outcome::is_done),
            "copies of one change were answered {outcomes:?}"
        );
        let record = stage.record(&key).await?;
        ensure!(
            record.header.revision == context.revision,
            "{key} is {:?}",
            record.header
        );
    }
    Ok(())
}
