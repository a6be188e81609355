//! Items: what is put, what is removed, and what happens side by side (C3, C4, C8, C9).

use engine_api::{Revision, World};
use futures::future::{join, join_all};
use model::{CartError, CartStatus, LINES_MAX, Money};
use shop_service::ShopError;

use crate::stage::{Stage, expected, item, pieces, product, user_owner};

const ZERO: Revision = Revision::ZERO;

#[tokio::test]
async fn an_item_is_a_copy_of_the_product_with_the_wished_quantity() {
    let stage = Stage::open().await;
    let (_, opened) = stage.shop.open_cart(&user_owner(), ZERO).await.unwrap();
    let id = opened.value.id();
    let put = stage.shop.put_item(id, item("tea", 2), opened.revision);
    let put = put.await.unwrap();
    assert!(put.revision > opened.revision);
    let line = put.value.lines().next().unwrap().line.clone();
    assert_eq!(line.name.as_str(), "tea");
    assert_eq!(line.category.as_str(), "drinks");
    assert_eq!(line.price, Money::parse("2.5").unwrap());
    assert_eq!(line.changed_at, stage.world.now());
    assert_eq!(stage.other.cart(id).await.unwrap(), put);

    let replaced = stage.shop.put_item(id, item("tea", 9), put.revision);
    assert_eq!(
        pieces(&replaced.await.unwrap().value),
        expected(&[("tea", 9)])
    );
    let tea = product("tea");
    let removed = stage.shop.remove_item(id, &tea, put.revision);
    let removed = removed.await.unwrap();
    assert_eq!(pieces(&removed.value), expected(&[]));
    assert_eq!(stage.other.cart(id).await.unwrap(), removed);
    let again = stage.shop.remove_item(id, &tea, put.revision);
    assert_eq!(again.await.unwrap(), removed);
}

#[tokio::test]
async fn what_cannot_be_put_is_refused_with_the_reason() {
    let stage = Stage::open().await;
    let cart = stage.fill(&user_owner(), &[("tea", 1)]).await;
    let put = |name| stage.shop.put_item(cart.id(), item(name, 1), ZERO);
    let unknown = ShopError::UnknownProduct {
        product: product("cocoa"),
    };
    assert_eq!(put("cocoa").await, Err(unknown));
    let closing = stage.other.close_cart(cart.id(), CartStatus::Ordered, ZERO);
    closing.await.unwrap();
    let closed = ShopError::CartClosed {
        cart: cart.id().clone(),
    };
    assert_eq!(put("coffee").await, Err(closed.clone()));
    let tea = product("tea");
    let removal = stage.shop.remove_item(cart.id(), &tea, ZERO);
    assert_eq!(removal.await, Err(closed));
}

#[tokio::test]
async fn fifty_changes_of_different_items_at_once_all_survive() {
    let stage = Stage::open().await;
    let names: Vec<String> = (0..50).map(|number| format!("p-{number}")).collect();
    for name in &names {
        stage.add_product(name, "1").await;
    }
    let cart = stage
        .fill(&user_owner(), &[("tea", 1), ("coffee", 1)])
        .await;
    for seed in 1..=10 {
        stage.shuffle(seed);
        let shops = [&stage.shop, &stage.other].into_iter().cycle();
        let puts = names.iter().zip(shops).map(async |(name, shop)| {
            let put = shop.put_item(cart.id(), item(name, seed as u32), ZERO);
            let answer = put.await.unwrap();
            assert_eq!(pieces(&answer.value)[name], seed, "the own change shows");
        });
        let tea = product("tea");
        let removal = stage.shop.remove_item(cart.id(), &tea, ZERO);
        let (_, removed) = join(join_all(puts), removal).await;
        removed.unwrap();
        let stored = pieces(&stage.shop.cart(cart.id()).await.unwrap().value);
        assert_eq!(stored.len(), 51);
        assert!(names.iter().all(|name| stored[name] == seed));
    }
}

/// An item is acknowledged and in the closed cart, or refused and not in it.
#[tokio::test]
async fn an_item_put_while_the_cart_is_closed_is_in_it_or_refused() {
    let mut seen = [0; 2];
    for seed in 1..=80 {
        let stage = Stage::open().await;
        let cart = stage.fill(&user_owner(), &[("tea", 1)]).await;
        stage.shuffle(seed);
        let put = stage.shop.put_item(cart.id(), item("coffee", 1), ZERO);
        let close = stage.other.close_cart(cart.id(), CartStatus::Ordered, ZERO);
        let (put, closed) = join(put, close).await;
        let closed = closed.unwrap();
        assert_eq!(stage.other.cart(cart.id()).await.unwrap(), closed);
        let there = pieces(&closed.value).contains_key("coffee");
        match put {
            Ok(_) => assert!(there, "seed {seed}"),
            Err(ShopError::CartClosed { .. }) => assert!(!there, "seed {seed}"),
            Err(error) => panic!("{error}"),
        }
        seen[usize::from(there)] += 1;
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

#[tokio::test]
async fn a_full_cart_takes_no_more_products_and_can_be_emptied() {
    let stage = Stage::open().await;
    let (_, cart) = stage.shop.open_cart(&user_owner(), ZERO).await.unwrap();
    let id = cart.value.id();
    for number in 0..=LINES_MAX {
        let name = format!("p-{number}");
        stage.add_product(&name, "1").await;
        let put = stage.shop.put_item(id, item(&name, 1), ZERO).await;
        if number < LINES_MAX {
            put.unwrap();
        } else {
            let full = CartError::TooManyLines { lines: number + 1 };
            assert_eq!(put, Err(ShopError::CartFull(full)));
        }
    }
    let first = product("p-0");
    let removal = stage.shop.remove_item(id, &first, ZERO);
    removal.await.unwrap();
    let put = stage.shop.put_item(id, item("p-100", 1), ZERO);
    assert_eq!(pieces(&put.await.unwrap().value).len(), LINES_MAX);
}
