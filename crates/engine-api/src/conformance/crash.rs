//! What a crash must not take: E24.

use layout::{AccessPath, Collection};

use crate::change::{Change, StockAction};
use crate::conformance::fences::{ensure_fenced, fence, only};
use crate::conformance::listings::found_by;
use crate::conformance::scenery::{
    change_if, changed, create, expiring, remove, remove_line, set_line, stock, take,
};
use crate::conformance::stage::{Checked, Stage};
use crate::conformance::stock::{counted, counts};
use crate::conformance::{CARTS, Need, PRODUCTS};
use crate::error::EngineError;
use crate::revision::Writer;

cases! {
    "E24" [] acknowledged_changes_survive_a_crash [CARTS, Need::Durable];
    "E24" [] every_collection_survives_a_crash [Need::Durable];
    "E24" ["W22"] the_journal_and_its_positions_survive_a_crash [CARTS, Need::Durable, Need::Journal];
    "E24" ["W15"] fences_survive_a_crash [CARTS, Need::Durable, Need::FenceInStore];
    "E24" ["W21"] terms_survive_a_crash [CARTS, Need::Durable, Need::TermsInStore];
    "E24" ["W12"] stock_survives_a_crash_and_its_repeats_count_once [PRODUCTS, Need::Durable, Need::Stock];
    "E24" [] a_change_repeated_after_a_crash_changes_nothing_more [CARTS, Need::Durable];
    "CS" ["W20"] control_values_survive_a_crash [Need::Durable, Need::Control];
}

async fn acknowledged_changes_survive_a_crash(stage: Stage<'_>) -> Checked {
    let [kept, ordered, removed, guest] =
        ["kept", "ordered", "removed", "guest"].map(|name| stage.cart(name));
    stage.create_usual(&kept).await?;
    let writes = (0..20u8)
        .map(|number| {
            let context = stage.router(stage.revision_by(Writer::numbered(number)));
            (set_line(&kept, &format!("p{number}"), 1), context)
        })
        .collect();
    for outcome in stage.at_once(writes).await? {
        ensure!(outcome.is_done(), "a writer was answered {outcome:?}");
    }
    stage.done(remove_line(&kept, "lamp")).await?;
    let created = stage.create_usual(&ordered).await?;
    stage
        .done(change_if(
            &ordered,
            created,
            changed(&stage.header(&ordered), ordered.collection, "ordered"),
        ))
        .await?;
    let created = stage.create_usual(&removed).await?;
    stage.done(remove(&removed, created)).await?;
    stage
        .create(&guest, vec![expiring(stage.in_seconds(3600))])
        .await?;
    let mut before = Vec::new();
    for key in [&kept, &ordered, &removed, &guest] {
        before.push(stage.record(key).await?);
    }
    let stage = stage.crash().await?;
    for before in before {
        let after = stage.record(&before.key).await?;
        ensure!(after == before, "the crash made {before:?} into {after:?}");
    }
    Ok(())
}

async fn every_collection_survives_a_crash(stage: Stage<'_>) -> Checked {
    let mut before = Vec::new();
    for collection in stage.collections() {
        let key = stage.key(collection, "kept");
        stage.create_usual(&key).await?;
        before.push(stage.record(&key).await?);
    }
    let stage = stage.crash().await?;
    for before in before {
        let path = AccessPath::by_id(before.key.collection);
        let found = found_by(&stage, path, before.key.id.as_str()).await?;
        ensure!(
            found.len() == 1 && found[0].header == before.header,
            "{path} finds {found:?} after the crash"
        );
    }
    Ok(())
}

async fn the_journal_and_its_positions_survive_a_crash(stage: Stage<'_>) -> Checked {
    let start = stage.position().await?;
    let key = stage.cart("written");
    stage.create_usual(&key).await?;
    stage.done(set_line(&key, "lamp", 2)).await?;
    let before = stage.entries_after(&start).await?;
    let end = stage.position().await?;
    let stage = stage.crash().await?;
    let after = stage.entries_after(&start).await?;
    ensure!(
        before.len() == 2 && after == before,
        "the crash made {before:?} into {after:?}"
    );
    stage.done(set_line(&key, "lamp", 3)).await?;
    let new = stage.entries_after(&end).await?;
    ensure!(
        new.len() == 1,
        "from the last position before the crash come {new:?}"
    );
    Ok(())
}

async fn fences_survive_a_crash(stage: Stage<'_>) -> Checked {
    let key = stage.cart("fenced");
    stage.create_usual(&key).await?;
    fence(&stage, only(&key), stage.generation.next()).await?;
    let stage = stage.crash().await?;
    ensure_fenced(&stage, set_line(&key, "lamp", 2), stage.generation).await?;
    stage
        .done_in(
            set_line(&key, "lamp", 3),
            stage.router_under(stage.generation.next()),
        )
        .await?;
    Ok(())
}

async fn terms_survive_a_crash(stage: Stage<'_>) -> Checked {
    stage.engine.claim_term(stage.term(1)).await?;
    stage.engine.claim_term(stage.term(2)).await?;
    let stage = stage.crash().await?;
    let key = stage.cart("moved");
    let image = super::images::image(&key, stage.revision(), stage.header(&key));
    let error = stage
        .error_in(
            Change::PutImage {
                image: image.clone(),
            },
            stage.mover(1),
        )
        .await?;
    ensure!(
        matches!(error, EngineError::TermLost { current: 2, .. }),
        "a lost term was answered {error}"
    );
    stage
        .done_in(Change::PutImage { image }, stage.mover(2))
        .await?;
    Ok(())
}

async fn stock_survives_a_crash_and_its_repeats_count_once(stage: Stage<'_>) -> Checked {
    let key = stage.key(Collection::Products, "lamp");
    stage.create(&key, vec![]).await?;
    stage
        .done(stock(&key, StockAction::Receive { total: 10 }))
        .await?;
    stage.done(stock(&key, take("a", 3, stage.now()))).await?;
    let stage = stage.crash().await?;
    stage.done(stock(&key, take("a", 3, stage.now()))).await?;
    let found = counts(&stage, &key).await?;
    ensure!(found == counted(10, 7, 3, 0), "the stock is {found:?}");
    Ok(())
}

async fn a_change_repeated_after_a_crash_changes_nothing_more(stage: Stage<'_>) -> Checked {
    let key = stage.cart("written");
    let (first, second) = (
        stage.router(stage.revision()),
        stage.router(stage.revision()),
    );
    let creation = create(&key, stage.header(&key), vec![]);
    stage.done_in(creation.clone(), first.clone()).await?;
    stage
        .done_in(set_line(&key, "lamp", 2), second.clone())
        .await?;
    let before = stage.record(&key).await?;
    let stage = stage.crash().await?;
    stage.done_in(creation, first).await?;
    stage.done_in(set_line(&key, "lamp", 2), second).await?;
    let after = stage.record(&key).await?;
    ensure!(
        after == before,
        "repeats after a crash made {before:?} into {after:?}"
    );
    Ok(())
}

async fn control_values_survive_a_crash(stage: Stage<'_>) -> Checked {
    let name = stage.name("map");
    let control = stage.control()?;
    control
        .compare_and_set(&name, None, b"one".to_vec())
        .await?;
    control
        .compare_and_set(&name, Some(1), b"two".to_vec())
        .await?;
    let before = control.control_get(&name).await?;
    ensure!(
        before.is_some(),
        "a control value is not there after it was set"
    );
    drop(control);
    let stage = stage.crash().await?;
    let after = stage.control()?.control_get(&name).await?;
    ensure!(after == before, "the crash made {before:?} into {after:?}");
    Ok(())
}
