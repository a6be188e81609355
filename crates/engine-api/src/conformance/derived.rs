//! Paths follow their records: E16 after a change, W9.

use layout::{AccessPath, Collection, Field, Scope, Value};

use crate::change::Change;
use crate::conformance::images::{image, with_line};
use crate::conformance::listings::{Listing, found_at, found_by};
use crate::conformance::scenery::{
    HOUR_S, change_if, create, expiring, micros_after, remove, set_line, touch,
};
use crate::conformance::stage::{Checked, Failure, Stage};
use crate::conformance::{CARTS, PRODUCTS, SESSIONS};
use crate::context::WriteContext;
use crate::record::{Content, Record, RecordKey};
use crate::revision::Revision;
use crate::stray::{Patience, Stray, StraySearch};

cases! {
    "E16" ["W9"] a_removed_record_vanishes_from_every_path [];
    "E16" ["W9"] an_ordered_cart_is_no_longer_the_active_one [CARTS];
    "E16" ["W9"] a_product_with_a_new_price_is_shown_once_in_its_new_place [PRODUCTS];
    "E16" ["W9"] a_session_that_gets_a_user_is_found_by_that_user [SESSIONS];
    "E16" ["W7"] an_expired_record_is_on_no_path [CARTS];
    "E25" ["W9"] rows_that_follow_their_records_are_no_strays [];
    "E25" ["W9"] an_image_leaves_no_row_of_the_one_before [];
    "E25" ["W9", "W26"] an_image_that_comes_back_has_all_of_its_rows [CARTS];
    "E25" ["W7"] the_rows_of_an_image_live_as_long_as_it_does [SESSIONS];
    "E1" [] a_patched_record_shows_its_parts_on_every_path [CARTS];
}
async fn a_removed_record_vanishes_from_every_path(stage: Stage<'_>) -> Checked {
    for listing in Listing::all(&stage) {
        let (gone, kept) = (listing.add("gone", 1).await?, listing.add("kept", 2).await?);
        let created = stage.record(&gone).await?.header.revision;
        stage.done(remove(&gone, created)).await?;
        let (found, expected) = (
            listing.ids(listing.query(10)).await?,
            vec![kept.id.to_string()],
        );
        if found != expected {
            return Err(listing.failed("after a removal", &found, &expected));
        }
        let by_id = found_by(&stage, AccessPath::by_id(gone.collection), gone.id.as_str()).await?;
        ensure!(
            by_id.is_empty(),
            "the removed {gone} is found by its id: {by_id:?}"
        );
    }
    Ok(())
}

async fn an_ordered_cart_is_no_longer_the_active_one(stage: Stage<'_>) -> Checked {
    let key = stage.cart("full");
    let (user, guest) = (stage.name("user"), stage.name("guest"));
    let active = stage
        .header(&key)
        .with(Field::UserId, Value::text(user.as_str()))
        .with(Field::SessionId, Value::text(guest.as_str()));
    let created = stage.done(create(&key, active.clone(), vec![])).await?;
    let paths = [
        (AccessPath::ActiveCartByUser, &user),
        (AccessPath::ActiveCartBySession, &guest),
    ];
    for (path, owner) in paths {
        let found = found_by(&stage, path, owner).await?;
        ensure!(
            found.len() == 1 && found[0].key == key,
            "{path} found {found:?}"
        );
    }
    let ordered = active.with(Field::Status, Value::text("ordered"));
    stage.done(change_if(&key, created, ordered)).await?;
    for (path, owner) in paths {
        let found = found_by(&stage, path, owner).await?;
        ensure!(found.is_empty(), "{path} still found {found:?}");
    }
    let found = found_by(&stage, AccessPath::CartById, key.id.as_str()).await?;
    ensure!(found.len() == 1, "the ordered cart is not found by its id");
    Ok(())
}

async fn a_product_with_a_new_price_is_shown_once_in_its_new_place(stage: Stage<'_>) -> Checked {
    let path = AccessPath::ProductsByCategory;
    let Some(listing) = Listing::all(&stage)
        .into_iter()
        .find(|listing| listing.path == path)
    else {
        return Err(Failure("products have no listing by category".to_owned()));
    };
    let (moving, fixed) = (
        listing.add("moving", 1).await?,
        listing.add("fixed", 4).await?,
    );
    let mut revision = stage.record(&moving).await?.header.revision;
    for rank in [7, 2, 4, 9] {
        revision = stage
            .done(change_if(&moving, revision, listing.header(&moving, rank)))
            .await?;
        let expected = listing.ordered(&[(rank, moving.clone()), (4, fixed.clone())]);
        for limit in [1, 10] {
            let found = listing.ids(listing.query(limit)).await?;
            if found != expected {
                return Err(listing.failed(
                    &format!("after a price change to {rank}"),
                    &found,
                    &expected,
                ));
            }
        }
    }
    let elsewhere = listing
        .header(&moving, 9)
        .with(Field::Category, Value::text(stage.name("elsewhere")));
    stage.done(change_if(&moving, revision, elsewhere)).await?;
    let (found, expected) = (
        listing.ids(listing.query(10)).await?,
        vec![fixed.id.to_string()],
    );
    if found != expected {
        return Err(listing.failed("after a change of category", &found, &expected));
    }
    let found = found_by(&stage, path, &stage.name("elsewhere")).await?;
    ensure!(
        found.len() == 1 && found[0].key == moving,
        "the new category holds {found:?}"
    );
    Ok(())
}

async fn a_session_that_gets_a_user_is_found_by_that_user(stage: Stage<'_>) -> Checked {
    let key = stage.key(Collection::Sessions, "guest");
    let user = stage.name("user");
    let opened = stage.create_usual(&key).await?;
    let found = found_by(&stage, AccessPath::SessionsByUser, &user).await?;
    ensure!(
        found.is_empty(),
        "a guest's session was found by a user: {found:?}"
    );
    let signed_in = stage
        .header(&key)
        .with(Field::UserId, Value::text(user.as_str()));
    stage.done(change_if(&key, opened, signed_in)).await?;
    let found = found_by(&stage, AccessPath::SessionsByUser, &user).await?;
    ensure!(
        found.len() == 1 && found[0].key == key,
        "the user's sessions are {found:?}"
    );
    Ok(())
}

async fn an_expired_record_is_on_no_path(stage: Stage<'_>) -> Checked {
    let key = stage.cart("guest");
    let owner = format!("u{}", &key.id.as_str()[1..]);
    let expires_at = stage.in_seconds(3600);
    stage.create(&key, vec![expiring(expires_at)]).await?;
    for (path, value) in [
        (AccessPath::ActiveCartByUser, owner.as_str()),
        (AccessPath::CartById, key.id.as_str()),
    ] {
        let before = found_at(&stage, path, value, micros_after(expires_at, -1)).await?;
        ensure!(
            before.len() == 1,
            "{path} does not find a cart just before it expires"
        );
        let after = found_at(&stage, path, value, expires_at).await?;
        ensure!(after.is_empty(), "{path} finds an expired cart: {after:?}");
    }
    Ok(())
}

/// More pages than any case needs.
const STRAY_PAGES_MAX: usize = 10_000;

/// Created and removed on every path.
async fn rows_that_follow_their_records_are_no_strays(stage: Stage<'_>) -> Checked {
    let mut own = Vec::new();
    for listing in Listing::all(&stage) {
        let gone = listing.add("gone", 1).await?;
        let created = stage.record(&gone).await?.header.revision;
        stage.done(remove(&gone, created)).await?;
        own.extend([gone, listing.add("kept", 2).await?]);
    }
    let strays = strays_of(&stage, &own).await?;
    ensure!(strays.is_empty(), "rows that follow are strays: {strays:?}");
    Ok(())
}

/// The second was decided on while the first was on its way: its revision is older than the first one's arrival.
async fn an_image_leaves_no_row_of_the_one_before(stage: Stage<'_>) -> Checked {
    let mut own = Vec::new();
    for listing in Listing::all(&stage) {
        let key = listing.key("copied");
        let first = stage.revision();
        let second = Revision::from_i64(first.to_i64() + 1)
            .ok_or_else(|| Failure("no revision".to_owned()))?;
        for (revision, rank) in [(first, 1), (second, 2)] {
            let copied = image(&key, revision, listing.header(&key, rank));
            arrives(&stage, &copied, 1).await?;
        }
        own.push(key);
    }
    let strays = strays_of(&stage, &own).await?;
    ensure!(
        strays.is_empty(),
        "rows of earlier images are left: {strays:?}"
    );
    Ok(())
}

/// What was deleted with it before hides nothing of it now.
async fn an_image_that_comes_back_has_all_of_its_rows(stage: Stage<'_>) -> Checked {
    let key = stage.cart("there-and-back");
    let whole = image(&key, stage.revision(), stage.header(&key));
    let whole = with_line(whole, "lamp", stage.revision(), 2);
    for minute in 1..=2 {
        arrives(&stage, &whole, minute).await?;
        if minute == 1 {
            let own = std::slice::from_ref(&key);
            let condemned = stage.engine.condemn(own, stage.mover(1)).await?;
            let gone = stage.engine.forget(&condemned, stage.mover(1)).await?;
            ensure!(gone == 1, "{gone} records went instead of one");
        }
    }
    // Nor does its first arrival hide what changed on the way.
    let changed = with_line(whole, "lamp", stage.revision(), 3);
    arrives(&stage, &changed, 3).await?;
    let strays = strays_of(&stage, &[key]).await?;
    ensure!(strays.is_empty(), "an image came back with {strays:?}");
    Ok(())
}

/// A listing would lose it otherwise.
async fn the_rows_of_an_image_live_as_long_as_it_does(stage: Stage<'_>) -> Checked {
    let key = stage.key(Collection::Sessions, "touched");
    stage.create_usual(&key).await?;
    let mut whole = stage.record(&key).await?;
    whole.header.revision = stage.revision();
    arrives(&stage, &whole, 1).await?;
    let until = stage.in_seconds(100 * 24 * HOUR_S);
    stage.done(touch(&key, stage.now(), until)).await?;
    let strays = strays_of(&stage, &[key]).await?;
    ensure!(strays.is_empty(), "it lives on with {strays:?}");
    Ok(())
}

/// Some minutes after it was read.
async fn arrives(stage: &Stage<'_>, image: &Record, minutes: i64) -> Checked {
    let context = WriteContext {
        now: micros_after(stage.now(), minutes * 60_000_000),
        ..stage.mover(1)
    };
    let image = image.clone();
    stage.done_in(Change::PutImage { image }, context).await?;
    Ok(())
}

async fn strays_of(stage: &Stage<'_>, own: &[RecordKey]) -> Checked<Vec<Stray>> {
    let mut strays = Vec::new();
    for collection in stage.collections() {
        let mut after = None;
        for page in 0.. {
            ensure!(page < STRAY_PAGES_MAX, "the strays have no end");
            let search = StraySearch {
                collection,
                scope: Scope::All,
                after: after.take(),
                limit: 50,
                patience: Patience::Without,
                now: stage.now(),
            };
            let found = stage.engine.find_strays(&search).await?;
            let is_own = |stray: &Stray| {
                own.iter()
                    .any(|key| key.id == stray.id && key.collection == stray.collection)
            };
            strays.extend(found.strays.into_iter().filter(is_own));
            match found.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
    }
    Ok(strays)
}

async fn a_patched_record_shows_its_parts_on_every_path(stage: Stage<'_>) -> Checked {
    let key = stage.cart("patched");
    let owner = format!("u{}", &key.id.as_str()[1..]);
    stage.create_usual(&key).await?;
    stage.done(set_line(&key, "vase", 6)).await?;
    let stored = stage.record(&key).await?;
    let expected: Vec<_> = stored.live_parts().collect();
    for (path, value) in [
        (AccessPath::ActiveCartByUser, owner.as_str()),
        (AccessPath::CartById, key.id.as_str()),
    ] {
        let found = found_by(&stage, path, value).await?;
        ensure!(found.len() == 1, "{path} found {found:?}");
        ensure!(
            matches!(found[0].header.content, Content::Live(_)),
            "{path} found {found:?}"
        );
        let parts: Vec<_> = found[0].live_parts().collect();
        ensure!(
            parts == expected,
            "{path} shows {parts:?}, stored are {expected:?}"
        );
    }
    Ok(())
}
