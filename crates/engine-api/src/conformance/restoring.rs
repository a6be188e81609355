//! A copy that is repaired, where merging cannot: E26.

use layout::{AccessPath, Field, Value};

use crate::change::Change;
use crate::conformance::images::{image, mark, with_line};
use crate::conformance::listings::found_by;
use crate::conformance::scenery::{changed, quantity, set_line};
use crate::conformance::stage::{Checked, Stage};
use crate::conformance::{CARTS, Need};
use crate::record::Content;

cases! {
    "E26" ["W1"] a_restored_record_is_the_image_whatever_stood_there [CARTS];
    "E26" ["W9"] a_restored_record_is_found_where_it_belongs_and_nowhere_else [CARTS];
    "E26" ["W35"] a_restored_record_leaves_an_entry [CARTS, Need::Journal];
    "E26" ["W21"] a_router_and_a_lost_term_may_not_restore [CARTS, Need::TermsInStore];
}

/// Lines of the very same revision, of a newer one and too many: nothing that is merged mends them.
async fn a_restored_record_is_the_image_whatever_stood_there(stage: Stage<'_>) -> Checked {
    let key = stage.cart("damaged");
    let [created, lamp, rug] = std::array::from_fn(|_| stage.revision());
    let whole = with_line(image(&key, created, stage.header(&key)), "lamp", lamp, 2);
    let mut other = with_line(whole.clone(), "lamp", lamp, 9);
    other.header.content = Content::Live(changed(&stage.header(&key), key.collection, "ordered"));
    let damaged = [
        other,
        with_line(with_line(whole.clone(), "lamp", rug, 9), "rug", rug, 1),
        mark(&key, rug),
    ];
    for damaged in damaged {
        let revision = damaged.newest_revision();
        stage.restore(&damaged, stage.mover_at(1, revision)).await?;
        let stored = stage.record(&key).await?;
        ensure!(stored == damaged, "{damaged:?} was restored as {stored:?}");
        stage.restore(&whole, stage.mover_at(1, lamp)).await?;
        let stored = stage.record(&key).await?;
        ensure!(stored == whole, "{whole:?} was restored as {stored:?}");
    }
    stage.restore(&whole, stage.mover_at(1, lamp)).await?;
    let stored = stage.record(&key).await?;
    ensure!(stored == whole, "restored twice it is {stored:?}");
    stage.done(set_line(&key, "lamp", 4)).await?;
    let stored = stage.record(&key).await?;
    ensure!(
        quantity(&stored, "lamp") == Some(4),
        "a change after it shows {stored:?}"
    );
    Ok(())
}

async fn a_restored_record_is_found_where_it_belongs_and_nowhere_else(stage: Stage<'_>) -> Checked {
    let key = stage.cart("strayed");
    let revision = stage.revision();
    let owned = |user: &str| {
        let header = stage.header(&key);
        let header = header.with(Field::UserId, Value::text(stage.name(user)));
        image(&key, revision, header)
    };
    stage.put_image(&owned("stranger")).await?;
    stage
        .restore(&owned("owner"), stage.mover_at(1, revision))
        .await?;
    for (user, expected) in [("owner", 1), ("stranger", 0)] {
        let path = AccessPath::ActiveCartByUser;
        let found = found_by(&stage, path, &stage.name(user)).await?;
        ensure!(
            found.len() == expected,
            "the {user} has {found:?} after a restore"
        );
    }
    Ok(())
}

async fn a_restored_record_leaves_an_entry(stage: Stage<'_>) -> Checked {
    let key = stage.cart("noted");
    let revision = stage.revision();
    let whole = image(&key, revision, stage.header(&key));
    stage.put_image(&whole).await?;
    let position = stage.position().await?;
    stage.restore(&whole, stage.mover_at(1, revision)).await?;
    let entries = stage.entries_after(&position).await?;
    ensure!(entries.len() == 1, "a restore left {entries:?}");
    Ok(())
}

async fn a_router_and_a_lost_term_may_not_restore(stage: Stage<'_>) -> Checked {
    let key = stage.cart("guarded");
    let revision = stage.revision();
    let whole = with_line(
        image(&key, revision, stage.header(&key)),
        "lamp",
        revision,
        1,
    );
    stage.engine.claim_term(stage.term(2)).await?;
    stage
        .engine
        .apply(
            Change::PutImage {
                image: whole.clone(),
            },
            stage.mover_at(2, revision),
        )
        .await?;
    let other = with_line(whole.clone(), "lamp", revision, 7);
    for context in [stage.router(revision), stage.mover_at(1, revision)] {
        let refused = stage.engine.restore(other.clone(), context.clone()).await;
        ensure!(refused.is_err(), "{context:?} restored: {refused:?}");
    }
    let stored = stage.record(&key).await?;
    ensure!(stored == whole, "a refused restore left {stored:?}");
    Ok(())
}
