//! The mover's term: E14.

use layout::Collection;

use crate::change::Change;
use crate::conformance::fences::{ensure_fenced, only};
use crate::conformance::images::image;
use crate::conformance::scenery::set_line;
use crate::conformance::stage::{Checked, Stage};
use crate::conformance::{CARTS, Need};
use crate::context::MoverTerm;
use crate::error::EngineError;
use crate::journal::Fence;

cases! {
    "E14" ["W21"] images_of_a_lost_term_are_refused [CARTS, Need::TermsInStore];
    "E14" ["W21"] a_lost_term_is_not_claimed_again [CARTS, Need::TermsInStore];
    "E14" ["W21"] a_lost_term_raises_no_fence [CARTS, Need::TermsInStore, Need::FenceInStore];
    "E14" ["W21"] terms_of_other_moves_are_not_touched [CARTS, Need::TermsInStore];
}

fn is_lost(error: &EngineError, lost: &MoverTerm, current: u64) -> bool {
    *error
        == EngineError::TermLost {
            lost: lost.clone(),
            current,
        }
}

async fn images_of_a_lost_term_are_refused(stage: Stage<'_>) -> Checked {
    let key = stage.cart("moved");
    let first = image(&key, stage.revision(), stage.header(&key));
    stage.engine.claim_term(stage.term(1)).await?;
    stage
        .done_in(
            Change::PutImage {
                image: first.clone(),
            },
            stage.mover(1),
        )
        .await?;
    stage.engine.claim_term(stage.term(2)).await?;
    let second = image(&key, stage.revision(), stage.header(&key));
    let put = Change::PutImage {
        image: second.clone(),
    };
    let error = stage.error_in(put.clone(), stage.mover(1)).await?;
    ensure!(
        is_lost(&error, &stage.term(1), 2),
        "an image of a lost term was answered {error:?}"
    );
    let stored = stage.record(&key).await?;
    ensure!(stored == first, "an image of a lost term left {stored:?}");
    stage.done_in(put, stage.mover(2)).await?;
    let stored = stage.record(&key).await?;
    ensure!(stored == second, "an image of the new term left {stored:?}");
    Ok(())
}

async fn a_lost_term_is_not_claimed_again(stage: Stage<'_>) -> Checked {
    stage.engine.claim_term(stage.term(5)).await?;
    stage.engine.claim_term(stage.term(5)).await?;
    match stage.engine.claim_term(stage.term(4)).await {
        Err(error) if is_lost(&error, &stage.term(4), 5) => {}
        other => ensure!(false, "claiming a lost term was answered {other:?}"),
    }
    stage.engine.claim_term(stage.term(6)).await?;
    Ok(())
}

async fn a_lost_term_raises_no_fence(stage: Stage<'_>) -> Checked {
    let key = stage.cart("moved");
    stage.create_usual(&key).await?;
    stage.engine.claim_term(stage.term(2)).await?;
    let generation = stage.generation.next();
    let fence = Fence {
        collection: Collection::Carts,
        scope: only(&key),
        generation,
    };
    match stage
        .engine
        .raise_fence(fence.clone(), stage.term(1), stage.now())
        .await
    {
        Err(error) if is_lost(&error, &stage.term(1), 2) => {}
        other => ensure!(false, "a fence of a lost term was answered {other:?}"),
    }
    stage.done(set_line(&key, "lamp", 2)).await?;
    stage
        .engine
        .raise_fence(fence, stage.term(2), stage.now())
        .await?;
    ensure_fenced(&stage, set_line(&key, "lamp", 3), stage.generation).await
}

async fn terms_of_other_moves_are_not_touched(stage: Stage<'_>) -> Checked {
    let other = MoverTerm {
        move_name: stage.name("other-move"),
        term: 9,
    };
    stage.engine.claim_term(stage.term(1)).await?;
    stage.engine.claim_term(other).await?;
    let key = stage.cart("moved");
    let put = Change::PutImage {
        image: image(&key, stage.revision(), stage.header(&key)),
    };
    stage.done_in(put, stage.mover(1)).await?;
    Ok(())
}
