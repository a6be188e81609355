//! Expiry: E20, E21.

use layout::{AccessPath, Collection};

use crate::change::{Change, Outcome, PartChange, PartsChange};
use crate::conformance::care::maintain_all;
use crate::conformance::listings::found_by;
use crate::conformance::scenery::{
    HOUR_S, change_if, create, expiring, line, micros_after, patch, remove, set_line, touch,
};
use crate::conformance::stage::{Checked, Stage};
use crate::conformance::{CARTS, Need, SESSIONS};
use crate::record::{PartKey, RecordKey};

cases! {
    "E20" ["W7"] a_record_is_gone_from_the_moment_it_expires [CARTS];
    "E20" ["W7"] expired_records_are_collected_without_an_entry [CARTS, Need::MaintainedExpiry, Need::Journal];
    "E20" ["W7"] what_has_not_expired_is_not_collected [CARTS, SESSIONS];
    "E20" ["W7"] an_expired_record_can_begin_again_after_its_collection [CARTS, Need::MaintainedExpiry];
    "E21" ["W7"] a_touched_session_lives_on [SESSIONS];
    "E21" ["W7"] a_cart_that_gets_an_owner_never_expires [CARTS];
}

/// A cart that was alive when it was written and has expired since.
pub(super) async fn expired_cart(stage: &Stage<'_>, name: &str) -> Checked<RecordKey> {
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

async fn a_record_is_gone_from_the_moment_it_expires(stage: Stage<'_>) -> Checked {
    let key = stage.cart("guest");
    let expires_at = stage.in_seconds(HOUR_S);
    let created = stage.create(&key, vec![expiring(expires_at)]).await?;
    let just_before = micros_after(expires_at, -1);
    let last = stage.router_at(stage.revision(), just_before);
    stage.done_in(set_line(&key, "lamp", 1), last).await?;
    for change in [
        set_line(&key, "lamp", 2),
        change_if(&key, created, stage.header(&key)),
        remove(&key, created),
    ] {
        let context = stage.router_at(stage.revision(), expires_at);
        let outcome = stage.apply_in(change.clone(), context).await?;
        ensure!(
            outcome == Outcome::NoRecord,
            "{change:?} of an expired cart was answered {outcome:?}"
        );
    }
    let record = stage.record(&key).await?;
    ensure!(
        record.live_at(just_before).is_some(),
        "{record:?} is not live before it expires"
    );
    ensure!(
        record.live_at(expires_at).is_none(),
        "{record:?} is live after it expired"
    );
    Ok(())
}

async fn expired_records_are_collected_without_an_entry(stage: Stage<'_>) -> Checked {
    let keys = [
        expired_cart(&stage, "one").await?,
        expired_cart(&stage, "two").await?,
    ];
    let position = stage.position().await?;
    maintain_all(&stage, 100).await?;
    for key in &keys {
        let left = stage.image(key).await?;
        ensure!(left.is_none(), "after the collection {left:?} is left");
    }
    let entries = stage.entries_after(&position).await?;
    ensure!(entries.is_empty(), "the collection left {entries:?}");
    Ok(())
}

async fn what_has_not_expired_is_not_collected(stage: Stage<'_>) -> Checked {
    let (user, guest) = (stage.cart("user"), stage.cart("guest"));
    let session = stage.key(Collection::Sessions, "open");
    stage.create_usual(&user).await?;
    stage
        .create(&guest, vec![expiring(stage.in_seconds(HOUR_S))])
        .await?;
    stage.create_usual(&session).await?;
    let mut before = Vec::new();
    for key in [&user, &guest, &session] {
        before.push(stage.record(key).await?);
    }
    maintain_all(&stage, 100).await?;
    for before in before {
        let after = stage.record(&before.key).await?;
        ensure!(
            after == before,
            "the collection made {before:?} into {after:?}"
        );
    }
    Ok(())
}

async fn an_expired_record_can_begin_again_after_its_collection(stage: Stage<'_>) -> Checked {
    let key = expired_cart(&stage, "again").await?;
    maintain_all(&stage, 100).await?;
    stage
        .create(&key, vec![(PartKey::line("new"), line(2))])
        .await?;
    maintain_all(&stage, 100).await?;
    let record = stage.record(&key).await?;
    ensure!(
        record.live_at(stage.in_seconds(10 * HOUR_S)).is_some(),
        "the new record is {record:?}"
    );
    let found = found_by(&stage, AccessPath::CartById, key.id.as_str()).await?;
    ensure!(found.len() == 1, "the new record is not found: {found:?}");
    Ok(())
}

async fn a_touched_session_lives_on(stage: Stage<'_>) -> Checked {
    let key = stage.key(Collection::Sessions, "touched");
    let (opened_at, touched_at) = (stage.in_seconds(-10), stage.in_seconds(-5));
    let creation = create(
        &key,
        stage.header(&key),
        vec![expiring(stage.in_seconds(-1))],
    );
    stage
        .done_in(creation, stage.router_at(stage.revision(), opened_at))
        .await?;
    let context = stage.router_at(stage.revision(), touched_at);
    stage
        .done_in(touch(&key, touched_at, stage.in_seconds(HOUR_S)), context)
        .await?;
    maintain_all(&stage, 100).await?;
    let record = stage.record(&key).await?;
    ensure!(
        record.live_at(stage.now()).is_some(),
        "the touched session ended: {record:?}"
    );
    ensure!(
        record.expires_at() == Some(stage.in_seconds(HOUR_S)),
        "the touched session is {record:?}"
    );
    stage
        .done(touch(&key, stage.now(), stage.in_seconds(2 * HOUR_S)))
        .await?;
    let found = found_by(&stage, AccessPath::SessionById, key.id.as_str()).await?;
    ensure!(found.len() == 1, "the touched session is not found");
    Ok(())
}

async fn a_cart_that_gets_an_owner_never_expires(stage: Stage<'_>) -> Checked {
    let long_after = stage.in_seconds(100 * 365 * 24 * HOUR_S);
    let by_patch = stage.cart("by-patch");
    stage
        .create(&by_patch, vec![expiring(stage.in_seconds(HOUR_S))])
        .await?;
    stage
        .done(patch(
            &by_patch,
            vec![(PartKey::expiry(), PartChange::Remove)],
        ))
        .await?;
    let by_change = stage.cart("by-change");
    let created = stage
        .create(&by_change, vec![expiring(stage.in_seconds(HOUR_S))])
        .await?;
    let parts = PartsChange::Replace(vec![(PartKey::line("lamp"), line(1))]);
    let header = stage.header(&by_change);
    stage
        .done(Change::ChangeIf {
            key: by_change.clone(),
            expected: created,
            header,
            parts,
        })
        .await?;
    for key in [&by_patch, &by_change] {
        let record = stage.record(key).await?;
        ensure!(
            record.live_at(long_after).is_some(),
            "{record:?} still expires"
        );
        let context = stage.router_at(stage.revision(), long_after);
        stage.done_in(set_line(key, "vase", 1), context).await?;
    }
    Ok(())
}
