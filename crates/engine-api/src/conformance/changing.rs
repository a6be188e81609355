//! Changing and removing whole records: E5, E8, and the shard key of E23.

use layout::{Collection, ShardKey};

use crate::change::{Change, Outcome, PartsChange};
use crate::conformance::scenery::{change_if, changed, create, line, quantity, remove, set_line};
use crate::conformance::stage::{Checked, Stage};
use crate::conformance::writing::only_the_new_line;
use crate::conformance::{CARTS, ORDERS};
use crate::record::{Content, PartKey, RecordKey};
use crate::revision::Writer;

cases! {
    "E5" ["W3"] a_change_meets_the_header_it_expects_or_a_conflict [];
    "E5" ["W3"] one_of_eight_concurrent_changes_wins [];
    "E5" ["W3"] an_order_is_shipped_or_cancelled_never_both [ORDERS];
    "E5" ["W3"] a_cart_is_ordered_or_removed_never_both [CARTS];
    "E5" ["W6"] a_change_keeps_the_parts_or_replaces_them_all [CARTS];
    "E5" ["W14"] a_change_puts_some_parts_and_keeps_the_others [CARTS];
    "E5" [] nothing_can_be_changed_or_removed_where_nothing_lives [];
    "E8" ["W5"] a_header_change_below_what_it_replaces_is_stale [CARTS];
    "E23" ["W8"] a_change_under_another_shard_key_is_not_done [CARTS];
}
async fn a_change_meets_the_header_it_expects_or_a_conflict(stage: Stage<'_>) -> Checked {
    for collection in stage.collections() {
        let key = stage.key(collection, "changed");
        let created = stage.create_usual(&key).await?;
        let second = changed(&stage.header(&key), collection, "second");
        let revision = stage.done(change_if(&key, created, second.clone())).await?;
        let third = changed(&stage.header(&key), collection, "third");
        match stage.apply(change_if(&key, created, third)).await? {
            Outcome::Conflict { header } => {
                ensure!(
                    header.revision == revision,
                    "the conflict on {key} shows {header:?}"
                );
            }
            other => ensure!(
                false,
                "a change of an old header of {key} was answered {other:?}"
            ),
        }
        match stage.apply(remove(&key, created)).await? {
            Outcome::Conflict { header } => {
                ensure!(
                    header.revision == revision,
                    "the conflict on {key} shows {header:?}"
                );
            }
            other => ensure!(
                false,
                "a removal of an old header of {key} was answered {other:?}"
            ),
        }
        let record = stage.record(&key).await?;
        ensure!(
            record.header.content == Content::Live(second),
            "{key} is {:?}",
            record.header
        );
        ensure!(
            record.header.revision == revision,
            "{key} is {:?}",
            record.header
        );
        stage.done(remove(&key, revision)).await?;
        let mark = stage.record(&key).await?;
        ensure!(
            mark.header.content == Content::Removed,
            "the removed {key} is {mark:?}"
        );
    }
    Ok(())
}

async fn one_of_eight_concurrent_changes_wins(stage: Stage<'_>) -> Checked {
    for collection in stage.collections() {
        let key = stage.key(collection, "raced");
        let created = stage.create_usual(&key).await?;
        let attempts: Vec<_> = (0..8)
            .map(|number| {
                let header = changed(&stage.header(&key), collection, &format!("change {number}"));
                let revision = stage.revision_by(Writer::numbered(number));
                (change_if(&key, created, header), stage.router(revision))
            })
            .collect();
        let outcomes = stage.at_once(attempts.clone()).await?;
        let winners: Vec<usize> = (0..8)
            .filter(|number| outcomes[*number].is_done())
            .collect();
        ensure!(
            winners.len() == 1,
            "{} changes of {key} won: {outcomes:?}",
            winners.len()
        );
        let record = stage.record(&key).await?;
        let won = attempts[winners[0]].1.revision;
        ensure!(
            record.header.revision == won,
            "{won} won {key}, stored is {:?}",
            record.header
        );
    }
    Ok(())
}

async fn an_order_is_shipped_or_cancelled_never_both(stage: Stage<'_>) -> Checked {
    for round in 0..5 {
        let key = stage.key(Collection::Orders, &format!("paid{round}"));
        let paid = stage.create(&key, vec![]).await?;
        let to = |status| {
            change_if(
                &key,
                paid,
                changed(&stage.header(&key), key.collection, status),
            )
        };
        let attempts = vec![
            (
                to("shipped"),
                stage.router(stage.revision_by(Writer::numbered(1))),
            ),
            (
                to("cancelled"),
                stage.router(stage.revision_by(Writer::numbered(2))),
            ),
        ];
        let outcomes = stage.at_once(attempts).await?;
        let done = outcomes.iter().filter(|outcome| outcome.is_done()).count();
        ensure!(
            done == 1,
            "{done} of shipping and cancelling were done: {outcomes:?}"
        );
    }
    Ok(())
}

async fn a_cart_is_ordered_or_removed_never_both(stage: Stage<'_>) -> Checked {
    for round in 0..5 {
        let key = stage.cart(&format!("full{round}"));
        let created = stage.create_usual(&key).await?;
        let ordered = changed(&stage.header(&key), key.collection, "ordered");
        let attempts = vec![
            (
                change_if(&key, created, ordered),
                stage.router(stage.revision_by(Writer::numbered(1))),
            ),
            (
                remove(&key, created),
                stage.router(stage.revision_by(Writer::numbered(2))),
            ),
        ];
        let outcomes = stage.at_once(attempts).await?;
        let done = outcomes.iter().filter(|outcome| outcome.is_done()).count();
        ensure!(
            done == 1,
            "{done} of ordering and removing were done: {outcomes:?}"
        );
        let live = stage.record(&key).await?.header.content.live().is_some();
        ensure!(
            live == outcomes[0].is_done(),
            "{outcomes:?} left a record that is live: {live}"
        );
    }
    Ok(())
}

async fn a_change_keeps_the_parts_or_replaces_them_all(stage: Stage<'_>) -> Checked {
    let key = stage.cart("parts");
    let created = stage.create_usual(&key).await?;
    stage.done(set_line(&key, "late", 7)).await?;
    let before = stage.record(&key).await?;
    let header = changed(&stage.header(&key), key.collection, "ordered");
    let kept = stage.done(change_if(&key, created, header.clone())).await?;
    let record = stage.record(&key).await?;
    ensure!(
        record.parts == before.parts,
        "a change that keeps parts left {:?}",
        record.parts
    );
    let mut expected = kept;
    // The second time the same line goes and comes in one change.
    for pieces in [5, 6] {
        let change = Change::ChangeIf {
            key: key.clone(),
            expected,
            header: header.clone(),
            parts: PartsChange::Replace(vec![(PartKey::line("new"), line(pieces))]),
        };
        expected = stage.done(change).await?;
        let found = quantity(&stage.record(&key).await?, "new");
        ensure!(
            found == Some(pieces),
            "the replaced line has {found:?} pieces, not {pieces}"
        );
    }
    only_the_new_line(&stage, &key).await?;
    let old = stage
        .apply_in(set_line(&key, "lamp", 1), stage.router(kept))
        .await?;
    ensure!(
        matches!(old, Outcome::Stale { .. }),
        "a patch from before the replacement was answered {old:?}"
    );
    only_the_new_line(&stage, &key).await
}

async fn a_change_puts_some_parts_and_keeps_the_others(stage: Stage<'_>) -> Checked {
    let key = stage.cart("put");
    let created = stage.create_usual(&key).await?;
    stage.done(set_line(&key, "late", 7)).await?;
    let header = changed(&stage.header(&key), key.collection, "ordered");
    let put = |expected, pieces| Change::ChangeIf {
        key: key.clone(),
        expected,
        header: header.clone(),
        parts: PartsChange::Put(vec![(PartKey::line("new"), line(pieces))]),
    };
    let first = stage.done(put(created, 5)).await?;
    stage.done(put(first, 6)).await?;
    let again = stage.apply(put(first, 9)).await?;
    ensure!(
        matches!(again, Outcome::Conflict { .. }),
        "a second change of the same header was answered {again:?}"
    );
    let record = stage.record(&key).await?;
    let found = (quantity(&record, "late"), quantity(&record, "new"));
    ensure!(
        found == (Some(7), Some(6)),
        "the kept and the put line are {found:?}"
    );
    Ok(())
}

async fn nothing_can_be_changed_or_removed_where_nothing_lives(stage: Stage<'_>) -> Checked {
    for collection in stage.collections() {
        let (absent, removed) = (
            stage.key(collection, "absent"),
            stage.key(collection, "removed"),
        );
        let created = stage.create_usual(&removed).await?;
        let mark = stage.done(remove(&removed, created)).await?;
        for (key, expected) in [(&absent, created), (&removed, created), (&removed, mark)] {
            for change in [
                change_if(key, expected, stage.header(key)),
                remove(key, expected),
            ] {
                let outcome = stage.apply(change.clone()).await?;
                ensure!(
                    outcome == Outcome::NoRecord,
                    "{change:?} was answered {outcome:?}"
                );
            }
            stage.ensure_not_live(key).await?;
        }
    }
    Ok(())
}

async fn a_header_change_below_what_it_replaces_is_stale(stage: Stage<'_>) -> Checked {
    let key = stage.cart("stale");
    let old = stage.revision();
    let created = stage.create_usual(&key).await?;
    let ordered = changed(&stage.header(&key), key.collection, "ordered");
    let below = stage
        .apply_in(change_if(&key, created, ordered.clone()), stage.router(old))
        .await?;
    ensure!(
        below == Outcome::Stale { stored: created },
        "a change below was answered {below:?}"
    );
    let late = stage.done(set_line(&key, "lamp", 2)).await?;
    let below = stage
        .apply_in(remove(&key, created), stage.router(old))
        .await?;
    ensure!(
        below == Outcome::Stale { stored: late },
        "a removal below a part was answered {below:?}"
    );
    let mark = stage.done(remove(&key, created)).await?;
    let below = stage
        .apply_in(create(&key, ordered, vec![]), stage.router(old))
        .await?;
    ensure!(
        below == Outcome::Stale { stored: mark },
        "a creation below a mark was answered {below:?}"
    );
    stage.ensure_not_live(&key).await
}

async fn a_change_under_another_shard_key_is_not_done(stage: Stage<'_>) -> Checked {
    let key = stage.cart("settled");
    let created = stage.create_usual(&key).await?;
    let before = stage.record(&key).await?;
    let elsewhere = RecordKey {
        shard_key: ShardKey::of_text("elsewhere"),
        ..key.clone()
    };
    let header = changed(&stage.header(&key), key.collection, "ordered");
    let context = stage.router(stage.revision());
    let answer = stage
        .engine
        .apply(change_if(&elsewhere, created, header), context)
        .await;
    let done = answer.as_ref().is_ok_and(Outcome::is_done);
    ensure!(!done, "a change under another shard key was done");
    let after = stage.record(&key).await?;
    ensure!(after == before, "{answer:?} made {before:?} into {after:?}");
    Ok(())
}
