//! Fences: E12, E13.

use std::sync::Arc;

use layout::{Collection, Scope, ShardKey, SlotRange};

use crate::change::{Change, StockAction};
use crate::conformance::scenery::{change_if, create, remove, set_line, stock, take};
use crate::conformance::stage::{Checked, Failure, Stage};
use crate::conformance::{CARTS, Need, PRODUCTS, SESSIONS};
use crate::context::Generation;
use crate::error::EngineError;
use crate::journal::{Fence, Seal};
use crate::record::RecordKey;
use crate::revision::Revision;

cases! {
    "E12" ["W15"] a_write_under_an_older_generation_is_refused [CARTS, Need::FenceInStore];
    "E12" ["W15"] every_kind_of_change_stops_at_the_fence [CARTS, Need::FenceInStore];
    "E12" ["W15"] stock_stops_at_the_fence [PRODUCTS, Need::FenceInStore, Need::Stock];
    "E12" ["W15"] changes_that_go_together_stop_at_the_fence [CARTS, Need::FenceInStore, Need::Together];
    "E12" ["W15"] keys_outside_the_fence_are_not_touched [CARTS, Need::FenceInStore];
    "E12" ["W15"] other_collections_are_not_touched [CARTS, SESSIONS, Need::FenceInStore];
    "E12" ["W20"] raising_a_fence_again_is_harmless [CARTS, Need::FenceInStore];
    "E12" ["W20"] a_fence_is_never_lowered [CARTS, Need::FenceInStore];
    "E12" ["W26"] a_movers_image_passes_the_fence [CARTS, Need::FenceInStore];
    "E13" ["W15"] what_was_let_through_stands_at_or_before_the_seal [CARTS, Need::FenceInStore, Need::Journal];
    "E23" ["W15"] a_fenced_write_leaves_no_entry [CARTS, Need::FenceInStore, Need::Journal];
}

pub(super) async fn fence(
    stage: &Stage<'_>,
    scope: Scope,
    generation: Generation,
) -> Checked<Seal> {
    let fence = Fence {
        collection: Collection::Carts,
        scope,
        generation,
    };
    Ok(stage
        .engine
        .raise_fence(fence, stage.term(1), stage.now())
        .await?)
}

pub(super) fn only(key: &RecordKey) -> Scope {
    Scope::Keys(vec![key.shard_key.clone()])
}

pub(super) async fn ensure_fenced(stage: &Stage<'_>, change: Change, used: Generation) -> Checked {
    let key = change.key().clone();
    let before = stage.image(&key).await?;
    let error = stage
        .error_in(change.clone(), stage.router_under(used))
        .await?;
    ensure!(
        matches!(error, EngineError::Fenced { used: told, fence } if told == used && fence > used),
        "{change:?} under {used} was answered {error:?}"
    );
    let after = stage.image(&key).await?;
    ensure!(
        after == before,
        "a fenced {change:?} made {before:?} into {after:?}"
    );
    Ok(())
}

async fn a_write_under_an_older_generation_is_refused(stage: Stage<'_>) -> Checked {
    let (old, new) = (stage.generation, stage.generation.next());
    let key = stage.cart("fenced");
    stage.create_usual(&key).await?;
    fence(&stage, only(&key), new).await?;
    ensure_fenced(&stage, set_line(&key, "lamp", 2), old).await?;
    stage
        .done_in(set_line(&key, "lamp", 3), stage.router_under(new))
        .await?;
    stage
        .done_in(set_line(&key, "lamp", 4), stage.router_under(new.next()))
        .await?;
    ensure_fenced(&stage, set_line(&key, "lamp", 5), old).await
}

async fn every_kind_of_change_stops_at_the_fence(stage: Stage<'_>) -> Checked {
    let (key, absent) = (stage.cart("fenced"), stage.cart("absent"));
    let created = stage.create_usual(&key).await?;
    let scope = Scope::Keys(vec![key.shard_key.clone(), absent.shard_key.clone()]);
    fence(&stage, scope, stage.generation.next()).await?;
    for change in [
        create(&absent, stage.header(&absent), vec![]),
        create(&key, stage.header(&key), vec![]),
        change_if(&key, created, stage.header(&key)),
        change_if(&key, Revision::ZERO, stage.header(&key)),
        set_line(&key, "lamp", 2),
        set_line(&absent, "lamp", 2),
        remove(&key, created),
    ] {
        ensure_fenced(&stage, change, stage.generation).await?;
    }
    Ok(())
}

async fn stock_stops_at_the_fence(stage: Stage<'_>) -> Checked {
    let key = stage.key(Collection::Products, "fenced");
    stage.create(&key, vec![]).await?;
    stage
        .done(stock(&key, StockAction::Receive { total: 5 }))
        .await?;
    let generation = stage.generation.next();
    let fence = Fence {
        collection: Collection::Products,
        scope: only(&key),
        generation,
    };
    stage
        .engine
        .raise_fence(fence, stage.term(1), stage.now())
        .await?;
    ensure_fenced(
        &stage,
        stock(&key, take("a", 1, stage.now())),
        stage.generation,
    )
    .await?;
    stage
        .done_in(
            stock(&key, take("a", 1, stage.now())),
            stage.router_under(generation),
        )
        .await?;
    Ok(())
}

async fn changes_that_go_together_stop_at_the_fence(stage: Stage<'_>) -> Checked {
    let (open, fenced) = (stage.cart("open"), stage.cart("fenced"));
    fence(&stage, only(&fenced), stage.generation.next()).await?;
    let both = [&open, &fenced].map(|key| create(key, stage.header(key), vec![]));
    let answer = stage
        .engine
        .apply_together(both.to_vec(), stage.router(stage.revision()))
        .await;
    ensure!(
        matches!(answer, Err(EngineError::Fenced { .. })),
        "the commit was answered {answer:?}"
    );
    ensure!(
        stage.image(&open).await?.is_none(),
        "half of a fenced commit was applied"
    );
    ensure!(
        stage.image(&fenced).await?.is_none(),
        "a fenced change was applied"
    );
    Ok(())
}

async fn keys_outside_the_fence_are_not_touched(stage: Stage<'_>) -> Checked {
    let key_of = |text: &str| RecordKey {
        shard_key: ShardKey::of_text(text),
        ..stage.cart(text)
    };
    let (inside, outside) = (key_of("m"), key_of("z"));
    ensure!(
        inside.shard_key.slot() != outside.shard_key.slot(),
        "the two keys share a slot"
    );
    for key in [&inside, &outside] {
        stage.create_usual(key).await?;
    }
    let slot = inside.shard_key.slot();
    let scopes = [
        only(&inside),
        Scope::Slots(vec![SlotRange {
            first: slot,
            last: slot,
        }]),
        Scope::Range {
            from: Some(ShardKey::of_text("m")),
            to: Some(ShardKey::of_text("n")),
        },
    ];
    let mut generation = stage.generation;
    for scope in scopes {
        let asked = format!("{scope:?}");
        let context = stage.router_under(generation);
        stage.done_in(set_line(&inside, "lamp", 1), context).await?;
        fence(&stage, scope, generation.next()).await?;
        ensure_fenced(&stage, set_line(&inside, "lamp", 2), generation)
            .await
            .map_err(|Failure(why)| Failure(format!("{asked}: {why}")))?;
        stage
            .done_in(
                set_line(&outside, "lamp", 2),
                stage.router_under(stage.generation),
            )
            .await?;
        generation = generation.next();
    }
    Ok(())
}

async fn other_collections_are_not_touched(stage: Stage<'_>) -> Checked {
    let (cart, session) = (stage.cart("same"), stage.key(Collection::Sessions, "same"));
    stage.create_usual(&cart).await?;
    fence(&stage, Scope::All, stage.generation.next()).await?;
    ensure_fenced(&stage, set_line(&cart, "lamp", 2), stage.generation).await?;
    stage.create_usual(&session).await?;
    Ok(())
}

async fn raising_a_fence_again_is_harmless(stage: Stage<'_>) -> Checked {
    let key = stage.cart("fenced");
    stage.create_usual(&key).await?;
    let generation = stage.generation.next();
    for _ in 0..3 {
        fence(&stage, only(&key), generation).await?;
        ensure_fenced(&stage, set_line(&key, "lamp", 2), stage.generation).await?;
        stage
            .done_in(set_line(&key, "lamp", 3), stage.router_under(generation))
            .await?;
    }
    Ok(())
}

async fn a_fence_is_never_lowered(stage: Stage<'_>) -> Checked {
    let key = stage.cart("fenced");
    stage.create_usual(&key).await?;
    let (old, middle) = (stage.generation, stage.generation.next());
    let high = middle.next();
    fence(&stage, only(&key), high).await?;
    fence(&stage, only(&key), middle).await?;
    ensure_fenced(&stage, set_line(&key, "lamp", 2), old).await?;
    ensure_fenced(&stage, set_line(&key, "lamp", 2), middle).await?;
    stage
        .done_in(set_line(&key, "lamp", 3), stage.router_under(high))
        .await?;
    Ok(())
}

async fn a_movers_image_passes_the_fence(stage: Stage<'_>) -> Checked {
    let key = stage.cart("moved");
    fence(&stage, only(&key), stage.generation.next()).await?;
    let image = super::images::image(&key, stage.revision(), stage.header(&key));
    let outcome = stage.put_image(&image).await?;
    ensure!(
        outcome.is_done(),
        "an image behind the fence was answered {outcome:?}"
    );
    let stored = stage.record(&key).await?;
    ensure!(stored == image, "an image behind the fence left {stored:?}");
    Ok(())
}

async fn what_was_let_through_stands_at_or_before_the_seal(stage: Stage<'_>) -> Checked {
    const WRITERS: usize = 8;
    const WRITES_MAX: usize = 12;
    let keys: Vec<RecordKey> = (0..WRITERS)
        .map(|number| stage.cart(&format!("w{number}")))
        .collect();
    for key in &keys {
        stage.create_usual(key).await?;
    }
    let start = stage.position().await?;
    let writers: Vec<_> = keys
        .iter()
        .map(|key| {
            let engine = Arc::clone(&stage.engine);
            let writes: Vec<_> = (0..WRITES_MAX)
                .map(|count| {
                    (
                        set_line(key, "lamp", count as i64 + 1),
                        stage.router(stage.revision()),
                    )
                })
                .collect();
            tokio::spawn(async move {
                let mut done = Vec::new();
                for (change, context) in writes {
                    let (key, revision) = (change.key().clone(), context.revision);
                    match engine.apply(change, context).await {
                        Ok(outcome) if outcome.is_done() => done.push((key, revision)),
                        Ok(outcome) => return Err(format!("a writer was answered {outcome:?}")),
                        Err(EngineError::Fenced { .. }) => break,
                        Err(error) => return Err(format!("a writer met {error}")),
                    }
                    tokio::task::yield_now().await;
                }
                Ok(done)
            })
        })
        .collect();
    tokio::task::yield_now().await;
    let scope = Scope::Keys(keys.iter().map(|key| key.shard_key.clone()).collect());
    let seal = fence(&stage, scope, stage.generation.next()).await?;
    let mut acknowledged = Vec::new();
    for writer in writers {
        let done = writer
            .await
            .map_err(|error| Failure(format!("a writer broke off: {error}")))?;
        acknowledged.extend(done.map_err(Failure)?);
    }
    for key in &keys {
        ensure_fenced(&stage, set_line(key, "lamp", 99), stage.generation).await?;
    }
    let late = stage.entries_after(&seal.position).await?;
    ensure!(late.is_empty(), "after the seal the journal shows {late:?}");
    let entries = stage.entries_after(&start).await?;
    for (key, revision) in acknowledged {
        ensure!(
            entries
                .iter()
                .any(|entry| entry.key == key && entry.revision == revision),
            "{key} was written as {revision} before the seal and has no entry"
        );
    }
    Ok(())
}

async fn a_fenced_write_leaves_no_entry(stage: Stage<'_>) -> Checked {
    let key = stage.cart("fenced");
    stage.create_usual(&key).await?;
    fence(&stage, only(&key), stage.generation.next()).await?;
    let position = stage.position().await?;
    ensure_fenced(&stage, set_line(&key, "lamp", 2), stage.generation).await?;
    let entries = stage.entries_after(&position).await?;
    ensure!(entries.is_empty(), "a fenced write left {entries:?}");
    Ok(())
}
