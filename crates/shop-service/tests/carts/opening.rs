//! One active cart an owner, whoever opens it and whenever (C1, C2, C7).

use engine_api::{Revision, World};
use futures::future::{join, join_all};
use model::{CartId, CartStatus};
use shop_service::{Made, Settings, ShopError};

use crate::stage::{DAY_S, Stage, guest_owner, lifetime, status, user_owner};

const ZERO: Revision = Revision::ZERO;

#[tokio::test]
async fn a_cart_is_opened_once_and_then_found() {
    let stage = Stage::open().await;
    let owner = user_owner();
    assert_eq!(
        stage.shop.active_cart(&owner).await,
        Err(ShopError::NoActiveCart)
    );
    let (made, cart) = stage.shop.open_cart(&owner, ZERO).await.unwrap();
    assert_eq!(made, Made::Now);
    assert_eq!(cart.value.id(), &CartId::of_owner(&owner, 1));
    for shop in [&stage.shop, &stage.other] {
        let again = shop.open_cart(&owner, ZERO).await.unwrap();
        assert_eq!(again, (Made::Before, cart.clone()));
        assert_eq!(shop.active_cart(&owner).await.unwrap(), cart);
        assert_eq!(shop.cart(cart.value.id()).await.unwrap(), cart);
    }
    let unknown = CartId::of_owner(&owner, 2);
    let missing = stage.shop.cart(&unknown).await.unwrap_err();
    assert!(matches!(missing, ShopError::NotFound { .. }), "{missing}");
}

#[tokio::test]
async fn many_who_open_at_once_get_the_same_cart() {
    for seed in 1..=60 {
        let stage = Stage::open().await;
        let session = stage.open_guest_session().await;
        stage.shuffle(seed);
        for owner in [user_owner(), guest_owner(&session)] {
            let shops = [&stage.shop, &stage.other].into_iter().cycle().take(20);
            let opened = join_all(shops.map(|shop| shop.open_cart(&owner, ZERO))).await;
            let opened: Vec<_> = opened.into_iter().map(Result::unwrap).collect();
            let now = opened.iter().filter(|(made, _)| *made == Made::Now);
            assert_eq!(now.count(), 1, "seed {seed}");
            let id = CartId::of_owner(&owner, 1);
            assert!(opened.iter().all(|(_, cart)| *cart.value.id() == id));
        }
    }
}

/// The stage counts the active carts after every write.
#[tokio::test]
async fn closing_and_opening_at_once_never_makes_two_active_carts() {
    for seed in 1..=60 {
        let stage = Stage::open().await;
        let session = stage.open_guest_session().await;
        stage.shuffle(seed);
        for owner in [user_owner(), guest_owner(&session)] {
            let visits = [&stage.shop, &stage.other].into_iter().cycle().take(8);
            let visit = async |shop: &shop_service::Shop| {
                let (_, cart) = shop.open_cart(&owner, ZERO).await.unwrap();
                let closing = shop.close_cart(cart.value.id(), CartStatus::Ordered, ZERO);
                assert_eq!(status(&closing.await.unwrap()), CartStatus::Ordered);
                shop.open_cart(&owner, ZERO).await.unwrap()
            };
            join_all(visits.map(visit)).await;
            assert_eq!(stage.active_count(&owner).await, 1, "seed {seed}");
        }
    }
}

#[tokio::test]
async fn a_user_with_many_carts_gets_the_next_one_with_and_without_a_hint() {
    let stage = Stage::open().await;
    let owner = user_owner();
    for ordinal in 1..=23 {
        let shop = if ordinal % 5 == 0 {
            &stage.other
        } else {
            &stage.shop
        };
        let (made, cart) = shop.open_cart(&owner, ZERO).await.unwrap();
        assert_eq!(made, Made::Now);
        assert_eq!(cart.value.id(), &CartId::of_owner(&owner, ordinal));
        let closing = stage
            .other
            .close_cart(cart.value.id(), CartStatus::Abandoned, ZERO);
        closing.await.unwrap();
        assert_eq!(shop.active_cart(&owner).await, Err(ShopError::NoActiveCart));
    }
}

#[tokio::test]
async fn closing_again_changes_nothing_and_closing_otherwise_is_refused() {
    let stage = Stage::open().await;
    let cart = stage.fill(&user_owner(), &[("tea", 1)]).await;
    let close = |status| stage.shop.close_cart(cart.id(), status, ZERO);
    let active = close(CartStatus::Active).await.unwrap();
    assert_eq!(active.value, cart);
    let ordered = close(CartStatus::Ordered).await.unwrap();
    assert_eq!(status(&ordered), CartStatus::Ordered);
    assert_eq!(ordered.value.parts().count(), 1);
    assert_eq!(close(CartStatus::Ordered).await.unwrap(), ordered);
    for other in [CartStatus::Abandoned, CartStatus::Active] {
        let closed = ShopError::CartClosed {
            cart: cart.id().clone(),
        };
        assert_eq!(close(other).await, Err(closed));
    }
}

#[tokio::test]
async fn a_guest_cart_expires_and_does_not_outlive_its_session() {
    let stage = Stage::open_with(Settings {
        guest_cart_lifetime_s: lifetime(10 * DAY_S),
        session_lifetime_s: lifetime(2 * DAY_S),
        ..Settings::default()
    })
    .await;
    let session = stage.open_guest_session().await;
    let owner = guest_owner(&session);
    stage.world.pass_seconds(DAY_S);
    let (_, cart) = stage.shop.open_cart(&owner, ZERO).await.unwrap();
    let ends = stage.shop.session(&session).await.unwrap();
    let ends = ends.value.times().expires_at;
    assert_eq!(cart.value.header().expires_at, Some(ends));
    stage.world.pass_seconds(DAY_S - 1);
    stage.shop.active_cart(&owner).await.unwrap();
    stage.world.pass_seconds(1);
    assert_eq!(
        stage.shop.active_cart(&owner).await,
        Err(ShopError::NoActiveCart)
    );
    let ended = stage.shop.open_cart(&owner, ZERO).await.unwrap_err();
    assert!(matches!(ended, ShopError::SessionEnded(_)), "{ended}");
    let gone = stage.shop.cart(cart.value.id()).await.unwrap_err();
    assert!(matches!(gone, ShopError::NotFound { .. }), "{gone}");
}

/// A guest with one closed cart that has a second left to live; its session goes on.
async fn guest_before_the_first_cart_expires() -> (Stage, model::CartOwner) {
    let stage = Stage::open_with(Settings {
        guest_cart_lifetime_s: lifetime(DAY_S),
        ..Settings::default()
    })
    .await;
    let session = stage.open_guest_session().await;
    let owner = guest_owner(&session);
    let (_, first) = stage.shop.open_cart(&owner, ZERO).await.unwrap();
    let closing = stage
        .shop
        .close_cart(first.value.id(), CartStatus::Ordered, ZERO);
    closing.await.unwrap();
    stage.world.pass_seconds(DAY_S - 1);
    (stage, owner)
}

/// B learns that there is no active cart, sleeps, and wakes up when the first cart would
/// have expired: had it, B would create it anew beside A's second.
#[tokio::test]
async fn a_slow_guest_request_meets_the_cart_of_a_fast_one() {
    for seconds in [2, 61, 700] {
        let (stage, owner) = guest_before_the_first_cart_expires().await;
        let gate = stage.fate.gate_next_query();
        let slow = stage.other.open_cart(&owner, ZERO);
        let fast = async {
            gate.someone_arrived().await;
            let (made, cart) = stage.shop.open_cart(&owner, ZERO).await.unwrap();
            assert_eq!(made, Made::Now);
            assert_eq!(cart.value.id(), &CartId::of_owner(&owner, 2));
            stage.world.pass_seconds(seconds);
            stage.collect().await;
            gate.open();
            cart
        };
        let (slow, fast) = join(slow, fast).await;
        assert_eq!(slow.unwrap(), (Made::Before, fast), "{seconds} s");
    }
}

#[tokio::test]
async fn a_guest_whose_carts_are_gone_begins_again() {
    let (stage, owner) = guest_before_the_first_cart_expires().await;
    stage.world.pass_seconds(1);
    stage.collect().await;
    let (made, cart) = stage.shop.open_cart(&owner, ZERO).await.unwrap();
    assert_eq!(made, Made::Now);
    assert_eq!(cart.value.id(), &CartId::of_owner(&owner, 1));
    assert_eq!(cart.value.header().created_at, stage.world.now());
    assert_eq!(status(&cart), CartStatus::Active);
}
