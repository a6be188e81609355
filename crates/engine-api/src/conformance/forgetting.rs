//! What a shard does not own any more goes, and nothing else does: E27, E28.

use layout::{AccessPath, Field, Scope, Value};

use crate::change::Change;
use crate::conformance::images::{image, mark, with_line};
use crate::conformance::listings::found_by;
use crate::conformance::scenery::{create, micros_after};
use crate::conformance::stage::{Checked, Stage};
use crate::conformance::{CARTS, Need};
use crate::context::{Generation, WriteContext};
use crate::error::EngineError;
use crate::forgetting::Condemned;
use crate::journal::Fence;
use crate::query::Scan;
use crate::record::{Record, RecordKey};

cases! {
    "E28" [] what_was_condemned_is_forgotten_and_nothing_else [];
    "E28" ["W9"] no_listing_shows_what_was_forgotten [CARTS];
    "E28" ["W26"] a_mark_is_forgotten_like_a_record [CARTS];
    "E28" ["W26"] forgetting_leaves_no_entry [CARTS, Need::Journal];
    "E28" ["W26"] what_was_forgotten_can_be_brought_back [CARTS];
    "E28" [] only_the_last_call_that_condemned_a_record_counts [CARTS];
    "E27" ["W47"] an_image_that_changes_nothing_saves_what_was_condemned [CARTS];
    "E27" ["W47"] an_image_that_was_brought_back_is_not_forgotten_by_an_older_call [CARTS];
    "E27" [] what_is_condemned_is_read_as_before [CARTS];
    "E28" ["W21"] a_router_and_a_lost_term_may_neither_condemn_nor_forget [CARTS, Need::TermsInStore];
    "E28" ["W15"] a_fence_outlives_what_it_guards [CARTS, Need::FenceInStore];
}

async fn condemn(stage: &Stage<'_>, keys: &[RecordKey]) -> Checked<Vec<Condemned>> {
    Ok(stage.engine.condemn(keys, stage.mover(1)).await?)
}

async fn forget(stage: &Stage<'_>, condemned: &[Condemned], expected: u64) -> Checked {
    let gone = stage.engine.forget(condemned, stage.mover(1)).await?;
    ensure!(
        gone == expected,
        "{gone} records went instead of {expected}"
    );
    Ok(())
}

async fn is_scanned(stage: &Stage<'_>, key: &RecordKey) -> Checked<bool> {
    let mut scan = Scan {
        collection: key.collection,
        scope: Scope::All,
        after: None,
        until: None,
        limit: 100,
    };
    loop {
        let page = stage.engine.scan(&scan).await?;
        if page.images.iter().any(|image| image.key == *key) {
            return Ok(true);
        }
        match page.next {
            Some(next) => scan.after = Some(next),
            None => return Ok(false),
        }
    }
}

async fn ensure_gone(stage: &Stage<'_>, key: &RecordKey) -> Checked {
    let stored = stage.image(key).await?;
    ensure!(
        stored.is_none(),
        "{key} is forgotten and read as {stored:?}"
    );
    ensure!(
        !is_scanned(stage, key).await?,
        "{key} is forgotten and met by a scan"
    );
    Ok(())
}

/// A cart of two lines.
fn cart(stage: &Stage<'_>, key: &RecordKey) -> Record {
    let [created, lamp, rug] = std::array::from_fn(|_| stage.revision());
    let image = image(key, created, stage.header(key));
    with_line(with_line(image, "lamp", lamp, 2), "rug", rug, 1)
}

async fn what_was_condemned_is_forgotten_and_nothing_else(stage: Stage<'_>) -> Checked {
    for collection in stage.collections() {
        let [gone, kept, absent] =
            ["gone", "kept", "absent"].map(|name| stage.key(collection, name));
        stage.create_usual(&gone).await?;
        stage.create_usual(&kept).await?;
        let condemned = condemn(&stage, &[gone.clone(), absent.clone()]).await?;
        ensure!(
            condemned.len() == 1 && condemned[0].key == gone,
            "{condemned:?} were condemned instead of {gone}"
        );
        forget(&stage, &condemned, 1).await?;
        ensure_gone(&stage, &gone).await?;
        stage.record(&kept).await?;
        // Again it changes nothing more.
        forget(&stage, &condemned, 0).await?;
    }
    Ok(())
}

async fn no_listing_shows_what_was_forgotten(stage: Stage<'_>) -> Checked {
    let key = stage.cart("listed");
    let user = stage.name("owner");
    let header = stage.header(&key);
    let header = header.with(Field::UserId, Value::text(user.clone()));
    let whole = image(&key, stage.revision(), header);
    stage.put_image(&whole).await?;
    let listed = |expected: usize| {
        let (stage, user) = (&stage, &user);
        async move {
            let found = found_by(stage, AccessPath::ActiveCartByUser, user).await?;
            ensure!(
                found.len() == expected,
                "the owner has {found:?}, not {expected}"
            );
            Ok(())
        }
    };
    listed(1).await?;
    let condemned = condemn(&stage, std::slice::from_ref(&key)).await?;
    forget(&stage, &condemned, 1).await?;
    listed(0).await?;
    // Whoever brings it back does so later, by any clock.
    let context = WriteContext {
        now: micros_after(stage.now(), 1_000_000),
        ..stage.mover(1)
    };
    let again = Change::PutImage { image: whole };
    stage.done_in(again, context).await?;
    listed(1).await
}

async fn a_mark_is_forgotten_like_a_record(stage: Stage<'_>) -> Checked {
    let key = stage.cart("removed");
    stage.put_image(&cart(&stage, &key)).await?;
    stage.put_image(&mark(&key, stage.revision())).await?;
    let condemned = condemn(&stage, std::slice::from_ref(&key)).await?;
    forget(&stage, &condemned, 1).await?;
    ensure_gone(&stage, &key).await
}

async fn forgetting_leaves_no_entry(stage: Stage<'_>) -> Checked {
    let key = stage.cart("unnoted");
    let whole = cart(&stage, &key);
    stage.put_image(&whole).await?;
    let position = stage.position().await?;
    let condemned = condemn(&stage, std::slice::from_ref(&key)).await?;
    // Saved, condemned once more, and gone: nobody is told of any of it.
    stage.put_image(&whole).await?;
    forget(&stage, &condemned, 0).await?;
    let condemned = condemn(&stage, std::slice::from_ref(&key)).await?;
    forget(&stage, &condemned, 1).await?;
    let entries = stage.entries_after(&position).await?;
    ensure!(entries.is_empty(), "forgetting left {entries:?}");
    Ok(())
}

async fn what_was_forgotten_can_be_brought_back(stage: Stage<'_>) -> Checked {
    let key = stage.cart("back");
    let whole = cart(&stage, &key);
    for _ in 0..2 {
        stage.put_image(&whole).await?;
        let stored = stage.record(&key).await?;
        ensure!(stored == whole, "{whole:?} came back as {stored:?}");
        let condemned = condemn(&stage, std::slice::from_ref(&key)).await?;
        forget(&stage, &condemned, 1).await?;
        ensure_gone(&stage, &key).await?;
    }
    Ok(())
}

async fn only_the_last_call_that_condemned_a_record_counts(stage: Stage<'_>) -> Checked {
    let key = stage.cart("twice");
    stage.put_image(&cart(&stage, &key)).await?;
    let first = condemn(&stage, std::slice::from_ref(&key)).await?;
    let second = condemn(&stage, std::slice::from_ref(&key)).await?;
    forget(&stage, &first, 0).await?;
    stage.record(&key).await?;
    forget(&stage, &second, 1).await?;
    ensure_gone(&stage, &key).await
}

async fn an_image_that_changes_nothing_saves_what_was_condemned(stage: Stage<'_>) -> Checked {
    let key = stage.cart("saved");
    let whole = cart(&stage, &key);
    stage.put_image(&whole).await?;
    let condemned = condemn(&stage, std::slice::from_ref(&key)).await?;
    stage.put_image(&whole).await?;
    forget(&stage, &condemned, 0).await?;
    let stored = stage.record(&key).await?;
    ensure!(stored == whole, "{whole:?} was saved as {stored:?}");
    Ok(())
}

async fn an_image_that_was_brought_back_is_not_forgotten_by_an_older_call(
    stage: Stage<'_>,
) -> Checked {
    let key = stage.cart("older");
    let whole = cart(&stage, &key);
    stage.put_image(&whole).await?;
    let late = condemn(&stage, std::slice::from_ref(&key)).await?;
    let condemned = condemn(&stage, std::slice::from_ref(&key)).await?;
    forget(&stage, &condemned, 1).await?;
    stage.put_image(&whole).await?;
    for late in [&late, &condemned] {
        forget(&stage, late, 0).await?;
    }
    let stored = stage.record(&key).await?;
    ensure!(stored == whole, "{whole:?} was brought back as {stored:?}");
    Ok(())
}

async fn what_is_condemned_is_read_as_before(stage: Stage<'_>) -> Checked {
    let key = stage.cart("condemned");
    let whole = cart(&stage, &key);
    stage.put_image(&whole).await?;
    condemn(&stage, std::slice::from_ref(&key)).await?;
    let stored = stage.record(&key).await?;
    ensure!(
        stored == whole,
        "condemned, {whole:?} is read as {stored:?}"
    );
    ensure!(
        is_scanned(&stage, &key).await?,
        "condemned, it is met by no scan"
    );
    Ok(())
}

async fn a_router_and_a_lost_term_may_neither_condemn_nor_forget(stage: Stage<'_>) -> Checked {
    let key = stage.cart("guarded");
    let whole = cart(&stage, &key);
    stage.put_image(&whole).await?;
    let keys = std::slice::from_ref(&key);
    let condemned = condemn(&stage, keys).await?;
    stage.engine.claim_term(stage.term(2)).await?;
    for context in [stage.router(stage.revision()), stage.mover(1)] {
        let refused = stage.engine.condemn(keys, context.clone()).await;
        ensure!(refused.is_err(), "{context:?} condemned: {refused:?}");
        let refused = stage.engine.forget(&condemned, context.clone()).await;
        ensure!(refused.is_err(), "{context:?} forgot: {refused:?}");
    }
    let stored = stage.record(&key).await?;
    ensure!(stored == whole, "a refused call left {stored:?}");
    Ok(())
}

async fn a_fence_outlives_what_it_guards(stage: Stage<'_>) -> Checked {
    let key = stage.cart("fenced");
    stage.create_usual(&key).await?;
    let used = match stage.router(stage.revision()).authority {
        crate::context::Authority::Router { generation } => generation,
        crate::context::Authority::Mover { .. } => Generation::default(),
    };
    let fence = Fence {
        collection: key.collection,
        scope: Scope::Keys(vec![key.shard_key.clone()]),
        generation: used.next(),
    };
    let raised = stage.engine.raise_fence(fence, stage.term(1), stage.now());
    raised.await?;
    let condemned = condemn(&stage, std::slice::from_ref(&key)).await?;
    forget(&stage, &condemned, 1).await?;
    let late: Change = create(&key, stage.header(&key), Vec::new());
    let refused = stage.error_in(late, stage.router_under(used)).await?;
    ensure!(
        matches!(refused, EngineError::Fenced { .. }),
        "a late write was answered {refused}"
    );
    ensure_gone(&stage, &key).await
}
