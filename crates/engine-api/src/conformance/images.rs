//! Images, as feeds put them: E10.

use std::collections::BTreeMap;

use layout::{Collection, Fields};

use crate::change::{Change, Outcome};
use crate::conformance::scenery::{
    change_if, changed, create, expiring, line, quantity, remove, remove_line, set_line,
};
use crate::conformance::stage::{Checked, Stage};
use crate::conformance::{CARTS, Need, SESSIONS};
use crate::error::EngineError;
use crate::record::{Content, Header, Merged, Part, PartKey, Record, RecordKey};
use crate::revision::Revision;

cases! {
    "E10" ["W26"] an_image_arrives_as_it_left [];
    "E10" ["W1", "W26"] images_in_any_order_and_number_make_the_same_record [CARTS];
    "E10" ["W1", "W26"] images_put_at_once_make_the_same_record [CARTS];
    "E10" ["W1"] a_part_removed_while_its_image_was_copied_stays_removed [CARTS];
    "E10" ["W26"] a_late_image_changes_nothing [CARTS];
    "E10" ["W26"] a_late_image_does_not_revive_a_removed_record [];
    "E10" ["W1"] a_new_beginning_clears_the_parts_before_it [CARTS];
    "E10" ["W26"] a_newer_change_on_the_target_survives_an_image [CARTS];
    "E10" ["W26"] an_image_that_is_not_newer_leaves_no_entry [CARTS, Need::Journal];
    "E10" ["W26"] a_router_may_not_put_images [CARTS];
    "E10" ["W7"] an_expired_image_is_not_live [CARTS];
    "E10" ["W7"] an_old_expiry_does_not_end_a_session_extended_meanwhile [SESSIONS];
    "E10" ["W5"] routers_go_on_from_the_revisions_of_an_image [CARTS];
}

pub(super) fn image(key: &RecordKey, revision: Revision, header: Fields) -> Record {
    let header = Header {
        revision,
        cleared: revision.just_before(),
        content: Content::Live(header),
    };
    Record {
        key: key.clone(),
        header,
        parts: BTreeMap::new(),
    }
}

pub(super) fn with_line(
    mut image: Record,
    product: &str,
    revision: Revision,
    pieces: i64,
) -> Record {
    image
        .parts
        .insert(PartKey::line(product), Part::live(revision, line(pieces)));
    image
}

pub(super) fn mark(key: &RecordKey, revision: Revision) -> Record {
    let header = Header {
        revision,
        cleared: revision.just_before(),
        content: Content::Removed,
    };
    Record {
        key: key.clone(),
        header,
        parts: BTreeMap::new(),
    }
}

async fn ensure_stored(stage: &Stage<'_>, expected: &Record, when: &str) -> Checked {
    let stored = stage.record(&expected.key).await?;
    ensure!(
        stored == *expected,
        "{when} the record should be\n{expected:?}, it is\n{stored:?}"
    );
    Ok(())
}

/// What a cart looked like at four moments, and what all of them merge to.
fn moments(stage: &Stage<'_>, key: &RecordKey) -> ([Record; 4], Record) {
    let [created, lamp, rug, gone, ordered, vase] = std::array::from_fn(|_| stage.revision());
    let header = stage.header(key);
    let first = with_line(image(key, created, header.clone()), "lamp", lamp, 1);
    let mut second = with_line(first.clone(), "rug", rug, 2);
    second.parts.insert(PartKey::line("lamp"), Part::mark(gone));
    let mut third = second.clone();
    third.header.revision = ordered;
    third.header.content = Content::Live(changed(&header, key.collection, "ordered"));
    // A reader that saw the newest part before the older ones.
    let fourth = with_line(with_line(first.clone(), "vase", vase, 4), "rug", rug, 2);
    let moments = [first, second, third, fourth];
    let mut merged = moments[0].clone();
    for moment in &moments[1..] {
        let _: Merged = merged.merge(moment);
    }
    (moments, merged)
}

const ORDERS_OF_FOUR: [[usize; 4]; 8] = [
    [0, 1, 2, 3],
    [3, 2, 1, 0],
    [1, 3, 0, 2],
    [2, 0, 3, 1],
    [3, 0, 2, 1],
    [2, 3, 1, 0],
    [0, 3, 1, 2],
    [1, 0, 2, 3],
];

async fn an_image_arrives_as_it_left(stage: Stage<'_>) -> Checked {
    for collection in stage.collections() {
        let source = stage.key(collection, "source");
        stage.create_usual(&source).await?;
        let mut copy = stage.record(&source).await?;
        copy.key = stage.key(collection, "target");
        if let Content::Live(header) = &copy.header.content {
            let id = layout::Value::text(copy.key.id.as_str());
            copy.header.content = Content::Live(header.clone().with(collection.id_field(), id));
        }
        let outcome = stage.put_image(&copy).await?;
        ensure!(
            outcome.is_done(),
            "an image of {source} was answered {outcome:?}"
        );
        ensure_stored(&stage, &copy, "after its image").await?;
    }
    Ok(())
}

async fn images_in_any_order_and_number_make_the_same_record(stage: Stage<'_>) -> Checked {
    for (number, order) in ORDERS_OF_FOUR.iter().enumerate() {
        let key = stage.cart(&format!("order{number}"));
        let (moments, expected) = moments(&stage, &key);
        for index in order.iter().chain([&order[1], &order[0]]) {
            let outcome = stage.put_image(&moments[*index]).await?;
            ensure!(outcome.is_done(), "an image was answered {outcome:?}");
        }
        ensure_stored(
            &stage,
            &expected,
            &format!("after images in the order {order:?}"),
        )
        .await?;
    }
    Ok(())
}

async fn images_put_at_once_make_the_same_record(stage: Stage<'_>) -> Checked {
    for round in 0..4 {
        let key = stage.cart(&format!("round{round}"));
        let (moments, expected) = moments(&stage, &key);
        let puts = moments
            .into_iter()
            .map(|image| (Change::PutImage { image }, stage.mover(1)))
            .collect();
        let outcomes = stage.at_once(puts).await?;
        ensure!(
            outcomes.iter().all(Outcome::is_done),
            "images were answered {outcomes:?}"
        );
        ensure_stored(&stage, &expected, "after images put at once").await?;
    }
    Ok(())
}

async fn a_part_removed_while_its_image_was_copied_stays_removed(stage: Stage<'_>) -> Checked {
    let (source, target) = (stage.cart("source"), stage.cart("target"));
    let [created, lamp, removal, rug] = std::array::from_fn(|_| stage.revision());
    stage
        .done_in(
            create(&source, stage.header(&source), vec![]),
            stage.router(created),
        )
        .await?;
    stage
        .done_in(set_line(&source, "lamp", 1), stage.router(lamp))
        .await?;
    stage
        .done_in(set_line(&source, "rug", 1), stage.router(rug))
        .await?;
    let copy = |mut image: Record| {
        image.key = target.clone();
        image.header.content = Content::Live(stage.header(&target));
        image
    };
    let before = copy(stage.record(&source).await?);
    stage
        .done_in(remove_line(&source, "lamp"), stage.router(removal))
        .await?;
    let after = copy(stage.record(&source).await?);
    ensure!(
        before.newest_revision() == after.newest_revision(),
        "the removal is meant to be older than the newest part"
    );
    for image in [&before, &after, &before] {
        stage.put_image(image).await?;
    }
    let record = stage.record(&target).await?;
    ensure!(
        quantity(&record, "lamp").is_none(),
        "the removed line is back: {record:?}"
    );
    ensure!(
        quantity(&record, "rug") == Some(1),
        "the other line is lost: {record:?}"
    );
    Ok(())
}

async fn a_late_image_changes_nothing(stage: Stage<'_>) -> Checked {
    let key = stage.cart("late");
    let created = stage.create_usual(&key).await?;
    let old = stage.record(&key).await?;
    stage.done(set_line(&key, "lamp", 8)).await?;
    stage.done(remove_line(&key, "rug")).await?;
    stage
        .done(change_if(
            &key,
            created,
            changed(&stage.header(&key), key.collection, "ordered"),
        ))
        .await?;
    let before = stage.record(&key).await?;
    let outcome = stage.put_image(&old).await?;
    ensure!(outcome.is_done(), "a late image was answered {outcome:?}");
    ensure_stored(&stage, &before, "after a late image").await
}

async fn a_late_image_does_not_revive_a_removed_record(stage: Stage<'_>) -> Checked {
    for collection in stage.collections() {
        let key = stage.key(collection, "late");
        let created = stage.create_usual(&key).await?;
        let old = stage.record(&key).await?;
        stage.done(remove(&key, created)).await?;
        stage.put_image(&old).await?;
        stage.ensure_not_live(&key).await?;
        let copied = stage.key(collection, "copied");
        let [alive, removed] = std::array::from_fn(|_| stage.revision());
        stage.put_image(&mark(&copied, removed)).await?;
        stage
            .put_image(&image(&copied, alive, stage.header(&copied)))
            .await?;
        ensure_stored(
            &stage,
            &mark(&copied, removed),
            "after a mark and a late image",
        )
        .await?;
    }
    Ok(())
}

async fn a_new_beginning_clears_the_parts_before_it(stage: Stage<'_>) -> Checked {
    let key = stage.cart("anew");
    let [created, lamp, anew, rug] = std::array::from_fn(|_| stage.revision());
    let old = with_line(image(&key, created, stage.header(&key)), "lamp", lamp, 1);
    let new = with_line(image(&key, anew, stage.header(&key)), "rug", rug, 2);
    for (name, images) in [("forward", [&old, &new]), ("backward", [&new, &old])] {
        let key = stage.cart(name);
        let named = |image: &Record| Record {
            key: key.clone(),
            header: Header {
                content: Content::Live(stage.header(&key)),
                ..image.header.clone()
            },
            parts: image.parts.clone(),
        };
        for image in images {
            stage.put_image(&named(image)).await?;
        }
        ensure_stored(&stage, &named(&new), name).await?;
    }
    Ok(())
}

async fn a_newer_change_on_the_target_survives_an_image(stage: Stage<'_>) -> Checked {
    let key = stage.cart("target");
    let [created, lamp, rug] = std::array::from_fn(|_| stage.revision());
    let copied = with_line(image(&key, created, stage.header(&key)), "lamp", lamp, 1);
    stage.put_image(&copied).await?;
    stage.done(set_line(&key, "lamp", 5)).await?;
    stage.put_image(&with_line(copied, "rug", rug, 2)).await?;
    let record = stage.record(&key).await?;
    ensure!(
        quantity(&record, "lamp") == Some(5),
        "the target's own change is lost: {record:?}"
    );
    ensure!(
        quantity(&record, "rug") == Some(2),
        "the image's newer part is missing: {record:?}"
    );
    Ok(())
}

async fn an_image_that_is_not_newer_leaves_no_entry(stage: Stage<'_>) -> Checked {
    let key = stage.cart("echo");
    stage.create_usual(&key).await?;
    let old = stage.record(&key).await?;
    stage.done(set_line(&key, "lamp", 8)).await?;
    let same = stage.record(&key).await?;
    let position = stage.position().await?;
    for image in [&old, &same, &old] {
        stage.put_image(image).await?;
    }
    let entries = stage.entries_after(&position).await?;
    ensure!(
        entries.is_empty(),
        "images that were not newer left {entries:?}"
    );
    Ok(())
}

async fn a_router_may_not_put_images(stage: Stage<'_>) -> Checked {
    let key = stage.cart("foreign");
    let revision = stage.revision();
    let put = Change::PutImage {
        image: image(&key, revision, stage.header(&key)),
    };
    let error = stage.error_in(put, stage.router(revision)).await?;
    ensure!(
        matches!(error, EngineError::Invalid { .. }),
        "a router's image was answered {error}"
    );
    ensure!(
        stage.image(&key).await?.is_none(),
        "a router's image was stored"
    );
    Ok(())
}

async fn an_expired_image_is_not_live(stage: Stage<'_>) -> Checked {
    let key = stage.cart("expired");
    let revision = stage.revision();
    let mut expired = image(&key, revision, stage.header(&key));
    let (part, fields) = expiring(stage.in_seconds(-1));
    expired.parts.insert(part, Part::live(revision, fields));
    let outcome = stage.put_image(&expired).await?;
    ensure!(
        outcome.is_done(),
        "an expired image was answered {outcome:?}"
    );
    stage.ensure_not_live(&key).await?;
    let outcome = stage.apply(set_line(&key, "lamp", 1)).await?;
    ensure!(
        outcome == Outcome::NoRecord,
        "a patch of an expired image was answered {outcome:?}"
    );
    Ok(())
}

async fn an_old_expiry_does_not_end_a_session_extended_meanwhile(stage: Stage<'_>) -> Checked {
    let key = stage.key(Collection::Sessions, "extended");
    let [opened, touched] = std::array::from_fn(|_| stage.revision());
    let session = |revision, seconds| {
        let mut session = image(&key, opened, stage.header(&key));
        let (part, fields) = expiring(stage.in_seconds(seconds));
        session.parts.insert(part, Part::live(revision, fields));
        session
    };
    let (extended, ended) = (session(touched, 3600), session(opened, -1));
    for put in [&extended, &ended] {
        stage.put_image(put).await?;
    }
    let record = stage.record(&key).await?;
    ensure!(
        record.live_at(stage.now()).is_some(),
        "the extended session ended: {record:?}"
    );
    Ok(())
}

async fn routers_go_on_from_the_revisions_of_an_image(stage: Stage<'_>) -> Checked {
    let key = stage.cart("moved");
    let [created, between, lamp] = std::array::from_fn(|_| stage.revision());
    stage
        .put_image(&with_line(
            image(&key, created, stage.header(&key)),
            "lamp",
            lamp,
            1,
        ))
        .await?;
    let outcome = stage
        .apply_in(set_line(&key, "lamp", 2), stage.router(between))
        .await?;
    ensure!(
        outcome == Outcome::Stale { stored: lamp },
        "a patch below an image was answered {outcome:?}"
    );
    stage.done(set_line(&key, "lamp", 2)).await?;
    stage
        .done(change_if(
            &key,
            created,
            changed(&stage.header(&key), key.collection, "ordered"),
        ))
        .await?;
    let record = stage.record(&key).await?;
    ensure!(
        quantity(&record, "lamp") == Some(2),
        "the router's change is missing: {record:?}"
    );
    Ok(())
}
