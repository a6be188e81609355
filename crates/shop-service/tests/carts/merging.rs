//! The merge at sign-in: killed at every write, doubled, and in everybody's way (C5, W14).

use std::collections::BTreeMap;

use engine_api::Revision;
use futures::future::{join3, join4};
use model::{CartError, CartId, CartStatus, QUANTITY_MAX, ShopperSessionId, UserId};
use shop_service::{Merge, MergeEnd, Shop, ShopError};

use crate::stage::{
    DAY_S, Stage, Stop, expected, guest_owner, item, pieces, status, user, user_owner,
};

const ZERO: Revision = Revision::ZERO;

/// A guest with three teas and a coffee.
async fn guest(stage: &Stage) -> ShopperSessionId {
    let session = stage.open_guest_session().await;
    let items = [("tea", 3), ("coffee", 1)];
    stage.fill(&guest_owner(&session), &items).await;
    session
}

async fn sign_in(shop: &Shop, guest: &ShopperSessionId) -> Result<Merge, ShopError> {
    shop.merge_guest_cart(guest, &user(), ZERO).await
}

#[tokio::test]
async fn a_guest_cart_goes_into_the_users_once() {
    let stage = Stage::open().await;
    let session = guest(&stage).await;
    let own = stage.fill(&user_owner(), &[("tea", 2), ("sugar", 4)]).await;
    let merge = sign_in(&stage.shop, &session).await.unwrap();
    assert_eq!(merge.end, MergeEnd::Merged);
    let cart = merge.cart.unwrap();
    assert_eq!(cart.value.id(), own.id());
    let sum = expected(&[("tea", 5), ("coffee", 1), ("sugar", 4)]);
    assert_eq!(pieces(&cart.value), sum);

    let guest_cart = CartId::of_owner(&guest_owner(&session), 1);
    let closed = stage.shop.cart(&guest_cart).await.unwrap();
    assert_eq!(status(&closed), CartStatus::Abandoned);
    assert_eq!(closed.value.header().merges_into.as_ref(), Some(own.id()));

    let again = sign_in(&stage.other, &session).await.unwrap();
    assert_eq!(again.end, MergeEnd::AlreadyMerged);
    assert_eq!(again.cart, Some(cart));
}

#[tokio::test]
async fn a_user_without_a_cart_gets_one_and_nothing_to_merge_makes_none() {
    let stage = Stage::open().await;
    let empty_handed = stage.open_guest_session().await;
    let merge = sign_in(&stage.shop, &empty_handed).await.unwrap();
    assert_eq!((merge.end, merge.cart), (MergeEnd::NothingToMerge, None));
    let session = guest(&stage).await;
    let merge = sign_in(&stage.shop, &session).await.unwrap();
    assert_eq!(merge.end, MergeEnd::Merged);
    let items = expected(&[("tea", 3), ("coffee", 1)]);
    assert_eq!(stage.pieces(&user_owner()).await, items);
}

/// What happens between a merge that was killed and its repeat.
#[derive(Clone, Copy, Debug)]
enum Between {
    Nothing,
    /// The user wants seven teas, whatever was there.
    UserPutsTea,
    UserOrders,
    /// The guest goes on shopping, in the old cart or a new one.
    GuestPutsSugar,
    /// The other user at the same browser signs in.
    OtherSignsIn,
}

#[tokio::test]
async fn a_merge_killed_at_any_write_is_completed_by_its_repeat() {
    use Between::{GuestPutsSugar, Nothing, OtherSignsIn, UserOrders, UserPutsTea};
    for between in [
        Nothing,
        UserPutsTea,
        UserOrders,
        GuestPutsSugar,
        OtherSignsIn,
    ] {
        for own in [&[][..], &[("tea", 2)][..]] {
            let mut kills = 0;
            for stop in [Stop::Before, Stop::AnswerLost] {
                for writes in 0.. {
                    let writes = writes + u64::from(stop == Stop::AnswerLost);
                    if !killed_and_repeated(own, writes, stop, between).await {
                        break;
                    }
                    kills += 1;
                }
            }
            // Closing and taking in, and the user's cart if there is none, twice each.
            let least = if own.is_empty() { 6 } else { 4 };
            assert_eq!(kills, least, "{between:?}");
        }
    }
}

/// Answers whether the merge was killed at all.
async fn killed_and_repeated(
    own: &[(&str, u32)],
    writes: u64,
    stop: Stop,
    between: Between,
) -> bool {
    let story = format!("{own:?}, killed after {writes} ({stop:?}), {between:?}");
    let stage = Stage::open().await;
    let session = guest(&stage).await;
    if !own.is_empty() {
        stage.fill(&user_owner(), own).await;
    }
    stage.fate.stop_after(writes, stop);
    let killed = sign_in(&stage.shop, &session).await.is_err();
    stage.fate.go_on();
    if !killed {
        return false;
    }
    let target = stage.other.active_cart(&user_owner()).await.ok();
    let merged = target
        .as_ref()
        .is_some_and(|target| pieces(&target.value).contains_key("coffee"));
    let own_tea = own.iter().map(|(_, pieces)| u64::from(*pieces)).sum();
    let mut wanted = BTreeMap::from([("tea".to_owned(), 3 + own_tea)]);
    wanted.insert("coffee".to_owned(), 1);
    match between {
        Between::Nothing => {}
        Between::UserPutsTea => {
            stage.fill(&user_owner(), &[("tea", 7)]).await;
            wanted.insert("tea".to_owned(), if merged { 7 } else { 7 + 3 });
        }
        Between::UserOrders => {
            if let Some(target) = &target {
                let id = target.value.id();
                let closing = stage.other.close_cart(id, CartStatus::Ordered, ZERO);
                let ordered = closing.await.unwrap();
                wanted = if merged {
                    assert_eq!(pieces(&ordered), wanted, "{story}");
                    BTreeMap::new()
                } else {
                    expected(&[("tea", 3), ("coffee", 1)])
                };
            }
        }
        Between::GuestPutsSugar => {
            stage.fill(&guest_owner(&session), &[("sugar", 1)]).await;
            wanted.insert("sugar".to_owned(), 1);
        }
        Between::OtherSignsIn => {
            let other = UserId::parse("USER-2").unwrap();
            let merge = stage.other.merge_guest_cart(&session, &other, ZERO);
            // Who closes the guest cart has it.
            if merge.await.unwrap().end == MergeEnd::Merged {
                wanted = expected(&[("tea", own_tea)]);
                wanted.retain(|_, pieces| *pieces > 0);
            }
        }
    }
    let merge = sign_in(&stage.shop, &session).await.unwrap();
    let of_active = merge.cart.map(|cart| pieces(&cart.value));
    assert_eq!(of_active.clone().unwrap_or_default(), wanted, "{story}");
    let again = sign_in(&stage.other, &session).await.unwrap();
    assert_ne!(again.end, MergeEnd::Merged, "{story}");
    assert_eq!(again.cart.map(|cart| pieces(&cart.value)), of_active);
    true
}

/// Two merges, a user who wants seven teas and a guest who adds sugar, all at once.
#[tokio::test]
async fn merges_at_once_lose_nothing_and_double_nothing() {
    let mut seen = BTreeMap::new();
    for seed in 1..=150 {
        let stage = Stage::open().await;
        let session = guest(&stage).await;
        let guest_cart = CartId::of_owner(&guest_owner(&session), 1);
        let own = stage.fill(&user_owner(), &[("tea", 2)]).await;
        stage.shuffle(seed);
        let (one, two, put, sugar) = join4(
            sign_in(&stage.shop, &session),
            sign_in(&stage.other, &session),
            stage.shop.put_item(own.id(), item("tea", 7), ZERO),
            stage.other.put_item(&guest_cart, item("sugar", 1), ZERO),
        )
        .await;
        put.unwrap();
        let ends = [one.unwrap().end, two.unwrap().end];
        let merged = ends.iter().filter(|end| **end == MergeEnd::Merged);
        assert_eq!(merged.count(), 1, "seed {seed}: {ends:?}");
        let found = stage.pieces(&user_owner()).await;
        assert_eq!(found["coffee"], 1, "seed {seed}");
        assert!([7, 10].contains(&found["tea"]), "seed {seed}: {found:?}");
        match sugar {
            Ok(_) => assert_eq!(found.get("sugar"), Some(&1), "seed {seed}"),
            Err(ShopError::CartClosed { .. }) => assert_eq!(found.get("sugar"), None),
            Err(error) => panic!("{error}"),
        }
        *seen.entry(found).or_insert(0) += 1;
    }
    assert!(seen.len() > 1, "the seeds differ: {seen:?}");
}

/// The guest's items end in the cart that was ordered or in the next one, never in both.
#[tokio::test]
async fn a_user_who_orders_while_merging_finds_the_items_in_one_cart() {
    let mut seen = [0; 2];
    for seed in 1..=150 {
        let stage = Stage::open().await;
        let session = guest(&stage).await;
        let own = stage.fill(&user_owner(), &[("tea", 2)]).await;
        stage.shuffle(seed);
        let (one, two, ordered) = join3(
            sign_in(&stage.shop, &session),
            sign_in(&stage.other, &session),
            async {
                // Somewhere in the course of the merges.
                for _ in 0..seed {
                    tokio::task::yield_now().await;
                }
                let closing = stage.shop.close_cart(own.id(), CartStatus::Ordered, ZERO);
                closing.await
            },
        )
        .await;
        assert!(one.is_ok() && two.is_ok(), "seed {seed}");
        let ordered = pieces(&ordered.unwrap().value);
        let next = stage.pieces(&user_owner()).await;
        let in_ordered = ordered.contains_key("coffee");
        let (first, second) = if in_ordered {
            (expected(&[("tea", 5), ("coffee", 1)]), BTreeMap::new())
        } else {
            let moved = expected(&[("tea", 3), ("coffee", 1)]);
            (expected(&[("tea", 2)]), moved)
        };
        assert_eq!((ordered, next), (first, second), "seed {seed}");
        seen[usize::from(in_ordered)] += 1;
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

#[tokio::test]
async fn two_users_at_one_browser_do_not_share_the_items() {
    for seed in 1..=60 {
        let stage = Stage::open().await;
        let session = guest(&stage).await;
        stage.shuffle(seed);
        let (one, two) = (user(), UserId::parse("USER-2").unwrap());
        let (first, second) = futures::future::join(
            stage.shop.merge_guest_cart(&session, &one, ZERO),
            stage.other.merge_guest_cart(&session, &two, ZERO),
        )
        .await;
        let (first, second) = (first.unwrap(), second.unwrap());
        let with_items = [first, second].into_iter().filter(|merge| {
            let cart = merge.cart.as_ref();
            cart.is_some_and(|cart| cart.value.parts().count() > 0)
        });
        let with_items: Vec<_> = with_items.collect();
        assert_eq!(with_items.len(), 1, "seed {seed}");
        assert_eq!(with_items[0].end, MergeEnd::Merged);
    }
}

#[tokio::test]
async fn a_refused_merge_waits_closed_until_there_is_room() {
    let stage = Stage::open().await;
    let session = guest(&stage).await;
    let own = stage.fill(&user_owner(), &[("tea", QUANTITY_MAX)]).await;
    for _ in 0..2 {
        let refused = sign_in(&stage.shop, &session).await.unwrap();
        let MergeEnd::Refused { why } = refused.end else {
            panic!("{:?}", refused.end);
        };
        assert!(
            matches!(why, ShopError::CartFull(CartError::LineQuantity { .. })),
            "{why}"
        );
        assert_eq!(refused.cart.unwrap().value, own);
    }
    // Meanwhile the guest has another cart, which comes along.
    stage.fill(&guest_owner(&session), &[("sugar", 2)]).await;
    stage.fill(&user_owner(), &[("tea", 1)]).await;
    let merged = sign_in(&stage.shop, &session).await.unwrap();
    assert_eq!(merged.end, MergeEnd::Merged);
    let sum = expected(&[("tea", 4), ("coffee", 1), ("sugar", 2)]);
    assert_eq!(pieces(&merged.cart.unwrap().value), sum);
}

/// The guest cart would expire between the two halves of the merge.
#[tokio::test]
async fn a_guest_cart_about_to_expire_lives_long_enough_to_be_merged() {
    let stage = Stage::open().await;
    let session = guest(&stage).await;
    stage.fill(&user_owner(), &[("tea", 2)]).await;
    stage.world.pass_seconds(7 * DAY_S - 1);
    stage.fate.stop_after(1, Stop::Before);
    sign_in(&stage.shop, &session).await.unwrap_err();
    stage.fate.go_on();
    stage.world.pass_seconds(200);
    let merge = sign_in(&stage.shop, &session).await.unwrap();
    assert_eq!(merge.end, MergeEnd::Merged);
    let sum = expected(&[("tea", 5), ("coffee", 1)]);
    assert_eq!(stage.pieces(&user_owner()).await, sum);
}
