//! Creating records, and what no change may do: E1, E2, E4, E23.

use crate::change::{Outcome, PartChange};
use crate::conformance::CARTS;
use crate::conformance::scenery::{
    change_if, changed, create, expiring, line, patch, remove, set_line, usual_parts,
};
use crate::conformance::stage::{Checked, Stage};
use crate::error::EngineError;
use crate::record::{Content, PartKey, RecordKey};
use crate::revision::Writer;

cases! {
    "E1" [] what_is_done_is_read_back_by_its_id [];
    "E2" [] whatever_is_refused_changes_nothing [CARTS];
    "E4" ["W3"] a_second_creator_meets_the_record_of_the_first [];
    "E4" ["W3"] one_of_sixteen_concurrent_creators_wins [];
    "E4" ["W1"] a_removed_record_is_created_again_without_its_parts [CARTS];
    "E4" ["W7"] an_expired_record_is_created_again_without_its_parts [CARTS];
    "E23" [] a_malformed_change_is_an_error_and_changes_nothing [CARTS];
}

async fn what_is_done_is_read_back_by_its_id(stage: Stage<'_>) -> Checked {
    for collection in stage.collections() {
        let key = stage.key(collection, "one");
        let parts = usual_parts(collection, stage.now());
        ensure!(
            stage.image(&key).await?.is_none(),
            "{key} is there before anyone created it"
        );
        let asked = stage.revision();
        let revision = stage
            .done_in(
                create(&key, stage.header(&key), parts.clone()),
                stage.router(asked),
            )
            .await?;
        ensure!(
            revision == asked,
            "{key} was created as {asked}, the answer says {revision}"
        );
        let record = stage.record(&key).await?;
        ensure!(record.key == key, "{key} comes back as {:?}", record.key);
        ensure!(
            record.header.revision == asked,
            "{key} has revision {}",
            record.header.revision
        );
        ensure!(
            record.header.cleared < asked,
            "{key} has cleared its own parts"
        );
        let expected = Content::Live(stage.header(&key));
        ensure!(
            record.header.content == expected,
            "{key} comes back as {:?}",
            record.header.content
        );
        let found: Vec<_> = record
            .live_parts()
            .map(|(part, fields)| (part.clone(), fields.clone()))
            .collect();
        let mut parts = parts;
        parts.sort_by(|(a, _), (b, _)| a.cmp(b));
        ensure!(found == parts, "{key} comes back with parts {found:?}");
        ensure!(
            record.parts.values().all(|part| part.revision == asked),
            "the parts of {key} do not bear its revision {asked}: {:?}",
            record.parts
        );
    }
    Ok(())
}

async fn whatever_is_refused_changes_nothing(stage: Stage<'_>) -> Checked {
    let (key, absent) = (stage.cart("kept"), stage.cart("absent"));
    let wrong = stage.revision();
    let created = stage.create_usual(&key).await?;
    let before = stage.record(&key).await?;
    let refused = [
        create(
            &key,
            changed(&stage.header(&key), key.collection, "abandoned"),
            vec![],
        ),
        change_if(
            &key,
            wrong,
            changed(&stage.header(&key), key.collection, "ordered"),
        ),
        remove(&key, wrong),
        change_if(&absent, created, stage.header(&absent)),
        remove(&absent, created),
        set_line(&absent, "lamp", 3),
    ];
    for change in refused {
        let outcome = stage.apply(change.clone()).await?;
        ensure!(!outcome.is_done(), "{change:?} was done");
    }
    let stale = stage
        .apply_in(set_line(&key, "lamp", 9), stage.router(wrong))
        .await?;
    ensure!(
        stale == Outcome::Stale { stored: created },
        "a stale patch was answered {stale:?}"
    );
    let after = stage.record(&key).await?;
    ensure!(
        after == before,
        "refused changes made\n{before:?} into\n{after:?}"
    );
    stage.ensure_not_live(&absent).await
}

async fn a_second_creator_meets_the_record_of_the_first(stage: Stage<'_>) -> Checked {
    for collection in stage.collections() {
        let key = stage.key(collection, "twice");
        stage.create_usual(&key).await?;
        let first = stage.record(&key).await?;
        let second = changed(&stage.header(&key), collection, "second");
        match stage.apply(create(&key, second, vec![])).await? {
            Outcome::Exists { record } => {
                ensure!(
                    record.header == first.header,
                    "the second creator of {key} meets {record:?}"
                );
            }
            other => ensure!(false, "the second creator of {key} was answered {other:?}"),
        }
        let after = stage.record(&key).await?;
        ensure!(
            after == first,
            "the second creator changed {key} to {after:?}"
        );
    }
    Ok(())
}

async fn one_of_sixteen_concurrent_creators_wins(stage: Stage<'_>) -> Checked {
    for collection in stage.collections() {
        let key = stage.key(collection, "raced");
        let attempts: Vec<_> = (0..16)
            .map(|number| {
                let header = changed(
                    &stage.header(&key),
                    collection,
                    &format!("creator {number}"),
                );
                let revision = stage.revision_by(Writer::numbered(number));
                (
                    create(&key, header, usual_parts(collection, stage.now())),
                    stage.router(revision),
                )
            })
            .collect();
        let outcomes = stage.at_once(attempts.clone()).await?;
        let winners: Vec<usize> = (0..16)
            .filter(|number| outcomes[*number].is_done())
            .collect();
        ensure!(
            winners.len() == 1,
            "{} creators of {key} won: {outcomes:?}",
            winners.len()
        );
        let losers = outcomes
            .iter()
            .filter(|outcome| matches!(outcome, Outcome::Exists { .. }));
        ensure!(
            losers.count() == 15,
            "not all others were told that {key} exists: {outcomes:?}"
        );
        let won = attempts[winners[0]].1.revision;
        let record = stage.record(&key).await?;
        ensure!(
            record.header.revision == won,
            "{won} won {key}, stored is {:?}",
            record.header
        );
        let expected = changed(
            &stage.header(&key),
            collection,
            &format!("creator {}", winners[0]),
        );
        ensure!(
            record.header.content == Content::Live(expected),
            "{key} is a loser's: {:?}",
            record.header
        );
    }
    Ok(())
}

async fn a_removed_record_is_created_again_without_its_parts(stage: Stage<'_>) -> Checked {
    let key = stage.cart("again");
    let created = stage.create_usual(&key).await?;
    stage.done(set_line(&key, "late", 7)).await?;
    stage.done(remove(&key, created)).await?;
    stage.ensure_not_live(&key).await?;
    stage
        .create(&key, vec![(PartKey::line("new"), line(5))])
        .await?;
    only_the_new_line(&stage, &key).await
}

async fn an_expired_record_is_created_again_without_its_parts(stage: Stage<'_>) -> Checked {
    let key = stage.cart("expired");
    let long_ago = stage.in_seconds(-10);
    let parts = vec![
        (PartKey::line("old"), line(1)),
        expiring(stage.in_seconds(-1)),
    ];
    let context = stage.router_at(stage.revision(), long_ago);
    stage
        .done_in(create(&key, stage.header(&key), parts), context)
        .await?;
    stage
        .create(&key, vec![(PartKey::line("new"), line(5))])
        .await?;
    only_the_new_line(&stage, &key).await
}

pub(super) async fn only_the_new_line(stage: &Stage<'_>, key: &RecordKey) -> Checked {
    let record = stage.record(key).await?;
    ensure!(
        record.live_at(stage.now()).is_some(),
        "the new {key} is not live: {record:?}"
    );
    let lines: Vec<_> = record
        .live_parts()
        .map(|(part, _)| part.to_string())
        .collect();
    ensure!(lines == ["line/new"], "the new {key} has {lines:?}");
    Ok(())
}

async fn a_malformed_change_is_an_error_and_changes_nothing(stage: Stage<'_>) -> Checked {
    let (key, absent) = (stage.cart("kept"), stage.cart("absent"));
    let created = stage.create_usual(&key).await?;
    let before = stage.record(&key).await?;
    let mut without_status = stage.header(&absent);
    without_status.remove(layout::Field::Status);
    let other_id = stage.header(&key);
    let malformed = [
        create(&absent, without_status.clone(), vec![]),
        create(&absent, other_id, vec![]),
        create(
            &absent,
            stage.header(&absent),
            vec![(PartKey::activity(), line(1))],
        ),
        change_if(&key, created, without_status),
        patch(&key, vec![]),
        patch(
            &key,
            vec![(PartKey::stock("eu", 0), PartChange::Set(line(1)))],
        ),
    ];
    for change in malformed {
        let error = stage
            .error_in(change.clone(), stage.router(stage.revision()))
            .await?;
        ensure!(
            matches!(error, EngineError::Invalid { .. }),
            "{change:?} was answered {error}"
        );
    }
    let after = stage.record(&key).await?;
    ensure!(
        after == before,
        "malformed changes made {before:?} into {after:?}"
    );
    ensure!(
        stage.image(&absent).await?.is_none(),
        "a malformed creation left a record"
    );
    Ok(())
}
