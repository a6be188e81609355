//! Sessions: opened, touched, closed, expired, listed; and signing in (S1–S5, C5, C7).

use std::net::IpAddr;

use engine_api::{Revision, World};
use futures::future::join;
use model::{CartStatus, SessionError, ShopperSessionId};
use shop_service::{MergeEnd, PageWish, SessionWish, Settings, ShopError};

use crate::stage::{
    DAY_S, Stage, Stop, expected, guest_owner, item, lifetime, pieces, status, user, user_owner,
};

const ZERO: Revision = Revision::ZERO;

#[tokio::test]
async fn a_session_keeps_what_it_was_opened_with() {
    let stage = Stage::open().await;
    let wish = SessionWish {
        user: Some(user()),
        ip_address: Some(IpAddr::from([203, 0, 113, 7])),
        user_agent: Some("browser".parse().unwrap()),
        device_type: Some("phone".parse().unwrap()),
        geo_zone: Some("north".parse().unwrap()),
        ..SessionWish::default()
    };
    let opened = stage.shop.open_session(wish.clone()).await.unwrap();
    let details = opened.value.details();
    assert_eq!(details.user, wish.user);
    assert_eq!(details.ip_address, wish.ip_address);
    assert_eq!(details.user_agent, wish.user_agent);
    assert_eq!(details.device_type, wish.device_type);
    assert_eq!(details.geo_zone, wish.geo_zone);
    let id = opened.value.id();
    assert_eq!(id.as_str().len(), 34);
    assert_eq!(stage.other.session(id).await.unwrap(), opened);
    let second = stage.shop.open_session(wish).await.unwrap();
    assert_ne!(second.value.id(), id);
    let unknown = ShopperSessionId::parse("s-0").unwrap();
    let missing = stage.shop.session(&unknown).await.unwrap_err();
    assert!(matches!(missing, ShopError::NotFound { .. }), "{missing}");
    let missing = stage.shop.close_session(&unknown, ZERO).await.unwrap_err();
    assert!(matches!(missing, ShopError::NotFound { .. }), "{missing}");
}

#[tokio::test]
async fn a_touched_session_and_its_cart_live_on_and_an_untouched_one_expires() {
    let stage = Stage::open().await;
    let session = stage.open_guest_session().await;
    let owner = guest_owner(&session);
    stage.fill(&owner, &[("tea", 1)]).await;
    for _ in 0..3 {
        stage.world.pass_seconds(6 * DAY_S);
        let touched = stage.shop.touch_session(&session, ZERO).await.unwrap();
        let now = stage.world.now();
        let times = touched.value.times();
        assert_eq!(times.last_active_at, now);
        assert_eq!(times.expires_at, now.end_of(lifetime(7 * DAY_S)));
        assert_eq!(stage.other.session(&session).await.unwrap(), touched);
        let cart = stage.other.active_cart(&owner).await.unwrap();
        assert_eq!(cart.value.header().expires_at, Some(times.expires_at));
    }
    stage.world.pass_seconds(7 * DAY_S);
    let ended = [
        stage.shop.session(&session).await,
        stage.shop.touch_session(&session, ZERO).await,
    ];
    for ended in ended {
        let expired = SessionError::Expired {
            expires_at: stage.world.now(),
        };
        assert_eq!(ended, Err(ShopError::SessionEnded(expired)));
    }
    stage.shop.close_session(&session, ZERO).await.unwrap();
    stage.collect().await;
    let gone = stage.shop.session(&session).await.unwrap_err();
    assert!(matches!(gone, ShopError::NotFound { .. }), "{gone}");
}

#[tokio::test]
async fn a_touch_lets_the_cart_live_for_its_own_lifetime_only() {
    let stage = Stage::open_with(Settings {
        guest_cart_lifetime_s: lifetime(DAY_S),
        ..Settings::default()
    })
    .await;
    let session = stage.open_guest_session().await;
    let owner = guest_owner(&session);
    stage.fill(&owner, &[("tea", 1)]).await;
    stage.world.pass_seconds(DAY_S / 2);
    stage.shop.touch_session(&session, ZERO).await.unwrap();
    let cart = stage.shop.active_cart(&owner).await.unwrap();
    let ends = stage.world.now().end_of(lifetime(DAY_S));
    assert_eq!(cart.value.header().expires_at, Some(ends));
    stage.world.pass_seconds(DAY_S);
    // The cart is gone, the session goes on without one.
    stage.shop.touch_session(&session, ZERO).await.unwrap();
    assert_eq!(
        stage.shop.active_cart(&owner).await,
        Err(ShopError::NoActiveCart)
    );
}

#[tokio::test]
async fn a_closed_session_stays_closed_and_its_cart_is_abandoned() {
    let stage = Stage::open().await;
    let session = stage.open_guest_session().await;
    let owner = guest_owner(&session);
    let cart = stage.fill(&owner, &[("tea", 1)]).await;
    let closed_at = stage.world.now();
    // The cart's end is the second write, and does not arrive.
    stage.fate.stop_after(1, Stop::Before);
    stage.shop.close_session(&session, ZERO).await.unwrap_err();
    stage.fate.go_on();
    stage.shop.active_cart(&owner).await.unwrap();
    for _ in 0..2 {
        stage.world.pass_seconds(5);
        stage.shop.close_session(&session, ZERO).await.unwrap();
    }
    let abandoned = stage.shop.cart(cart.id()).await.unwrap();
    assert_eq!(status(&abandoned), CartStatus::Abandoned);
    let closed = ShopError::SessionEnded(SessionError::Closed { closed_at });
    assert_eq!(stage.shop.session(&session).await, Err(closed.clone()));
    let touch = stage.shop.touch_session(&session, ZERO).await;
    assert_eq!(touch, Err(closed.clone()));
    let open = stage.shop.open_cart(&owner, ZERO).await;
    assert_eq!(open, Err(closed));
}

#[tokio::test]
async fn a_session_closed_while_its_cart_opens_or_is_touched_leaves_no_active_cart() {
    for seed in 1..=100 {
        let stage = Stage::open().await;
        let session = stage.open_guest_session().await;
        let owner = guest_owner(&session);
        stage.shuffle(seed);
        let (opened, closed) = join(
            stage.shop.open_cart(&owner, ZERO),
            stage.other.close_session(&session, ZERO),
        )
        .await;
        closed.unwrap();
        if let Err(error) = opened {
            assert!(matches!(error, ShopError::SessionEnded(_)), "{error}");
        }
        assert_eq!(stage.active_count(&owner).await, 0, "seed {seed}");

        let session = stage.open_guest_session().await;
        stage.world.pass_seconds(DAY_S);
        let (touched, closed) = join(
            stage.shop.touch_session(&session, ZERO),
            stage.other.close_session(&session, ZERO),
        )
        .await;
        closed.unwrap();
        if let Err(error) = touched {
            assert!(matches!(error, ShopError::SessionEnded(_)), "{error}");
        }
        let ended = stage.shop.session(&session).await.unwrap_err();
        assert!(matches!(ended, ShopError::SessionEnded(_)), "{ended}");
    }
}

#[tokio::test]
async fn the_sessions_of_a_user_are_listed_newest_first_in_pages() {
    let stage = Stage::open().await;
    let user = user();
    let mut opened = Vec::new();
    for _ in 0..5 {
        stage.world.pass_seconds(1);
        let login = stage.shop.login(SessionWish::default(), &user, None, ZERO);
        opened.push(login.await.unwrap().session);
    }
    stage.open_guest_session().await;
    opened.reverse();
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = PageWish { after, limit: 2 };
        let page = stage.shop.sessions_of_user(&user, page).await.unwrap();
        assert!(page.items.len() <= 2);
        found.extend(page.items);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(found, opened);
}

#[tokio::test]
async fn signing_in_opens_a_session_and_brings_the_guests_items() {
    let stage = Stage::open().await;
    let user = user();
    let guest = stage.open_guest_session().await;
    stage.fill(&guest_owner(&guest), &[("tea", 3)]).await;
    let login = stage
        .shop
        .login(SessionWish::default(), &user, Some(&guest), ZERO);
    let login = login.await.unwrap();
    assert_eq!(login.session.value.details().user.as_ref(), Some(&user));
    assert_ne!(login.session.value.id(), &guest);
    assert_eq!(login.merge.end, MergeEnd::Merged);
    let cart = login.merge.cart.unwrap();
    assert_eq!(pieces(&cart.value), expected(&[("tea", 3)]));

    let put = stage
        .shop
        .put_item(cart.value.id(), item("coffee", 1), cart.revision);
    let put = put.await.unwrap();
    let login = stage
        .other
        .login(SessionWish::default(), &user, None, put.revision);
    let login = login.await.unwrap();
    assert_eq!(login.merge.end, MergeEnd::NothingToMerge);
    assert_eq!(login.merge.cart, Some(put));
    assert_eq!(stage.active_count(&user_owner()).await, 1);
}
