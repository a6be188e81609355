//! Where keys go: slots, ranges with split points, pins, and what may go together.

#![allow(clippy::unwrap_used)] // a story ends where something unforeseen happens

mod support;

use std::collections::BTreeMap;

use engine_api::{Change, PartsChange, RecordId, Revision};
use layout::{Collection, Field, ShardKey, Value};
use router::{CollectionMap, Cut, Edit, MapError, RangeStart, RouterError};
use support::*;

const CARTS: Collection = Collection::Carts;

fn carts_cut(cut: Cut) -> (Collection, CollectionMap) {
    (
        CARTS,
        CollectionMap::cut_by("embedded", vec![Field::CartId], cut),
    )
}

#[tokio::test(start_paused = true)]
async fn several_shards_share_the_slots() {
    let names = ["a", "b", "c", "d"];
    let shop = Shop::open(&names, &[carts_cut(Cut::even_slots(&names.map(named)))]).await;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for number in 0..400 {
        let id = format!("cart-{number}");
        written(&shop.router, create_cart(&id)).await;
        for name in names {
            *counts.entry(name).or_default() +=
                usize::from(shop.shard(name).holds(&cart_key(&id)).await);
        }
    }
    assert_eq!(
        counts.values().sum::<usize>(),
        400,
        "each cart stands on exactly one shard"
    );
    assert!(counts.values().all(|count| *count > 60), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn ranges_follow_their_split_points() {
    let ranges = Cut::Ranges(vec![
        RangeStart {
            from: None,
            shard: named("a"),
        },
        RangeStart {
            from: Some(ShardKey::of_text("m")),
            shard: named("b"),
        },
    ]);
    let shop = Shop::open(&["a", "b", "c"], &[carts_cut(ranges)]).await;
    let split = [
        (
            CARTS,
            Edit::Split {
                at: ShardKey::of_text("t"),
            },
        ),
        (
            CARTS,
            Edit::Move {
                scope: layout::Scope::Range {
                    from: Some(ShardKey::of_text("t")),
                    to: None,
                },
                to: named("c"),
            },
        ),
    ];
    shop.router
        .publish(shop.router.map().edited(&split).unwrap())
        .await
        .unwrap();
    for (id, shard) in [
        ("apple", "a"),
        ("m", "b"),
        ("melon", "b"),
        ("t", "c"),
        ("zebra", "c"),
    ] {
        written(&shop.router, create_cart(id)).await;
        assert!(
            shop.shard(shard).holds(&cart_key(id)).await,
            "{id} belongs to {shard}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_pinned_key_lives_on_its_own_shard() {
    let shop = Shop::open(&["a", "b"], &[carts_on("a")]).await;
    let map = shop
        .router
        .map()
        .pin(CARTS, cart_key("hot").shard_key, &named("b"))
        .unwrap();
    shop.router.publish(map).await.unwrap();
    written(&shop.router, create_cart("hot")).await;
    written(&shop.router, create_cart("cold")).await;
    assert!(shop.shard("b").holds(&cart_key("hot")).await);
    assert!(shop.shard("a").holds(&cart_key("cold")).await);
    assert!(shop.router.get(&cart_key("hot")).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn changes_go_together_on_one_shard_only() {
    let shop = Shop::open(&["a", "b"], &[carts_on("a")]).await;
    let together = shop
        .router
        .write_together(vec![create_cart("x"), create_cart("y")], Revision::ZERO)
        .await
        .unwrap();
    assert!(together.outcome.is_done());

    let map = shop
        .router
        .map()
        .pin(CARTS, cart_key("z").shard_key, &named("b"))
        .unwrap();
    shop.router.publish(map).await.unwrap();
    let apart = vec![create_cart("w"), create_cart("z")];
    let error = shop
        .router
        .write_together(apart, Revision::ZERO)
        .await
        .unwrap_err();
    assert!(matches!(error, RouterError::NotTogether { .. }), "{error}");
    assert!(!shop.shard("a").holds(&cart_key("w")).await);
    let nothing = shop
        .router
        .write_together(Vec::new(), Revision::ZERO)
        .await
        .unwrap_err();
    assert!(
        matches!(nothing, RouterError::NotAWrite { .. }),
        "{nothing}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_shard_key_field_is_refused() {
    let sessions = CollectionMap::on_one_shard("embedded", vec![Field::UserId], named("a"));
    let shop = Shop::open(&["a"], &[(Collection::Sessions, sessions)]).await;
    let key = session_key("s", "u");
    let created = written(&shop.router, create_session(key.clone(), "u", 0)).await;
    let Change::CreateIfAbsent { header, .. } = create_session(key.clone(), "somebody else", 0)
    else {
        unreachable!()
    };
    let parts = PartsChange::Keep;
    let stolen = Change::ChangeIf {
        key,
        expected: created.revision,
        header,
        parts,
    };
    let error = shop.router.write(stolen, Revision::ZERO).await.unwrap_err();
    assert!(
        matches!(error, RouterError::Map(MapError::ShardKeyDiffers { .. })),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_shard_key_comes_from_the_header() {
    let sessions = CollectionMap::on_one_shard("embedded", vec![Field::UserId], named("a"));
    let shop = Shop::open(&["a"], &[(Collection::Sessions, sessions), carts_on("a")]).await;
    let map = shop.router.map();
    let id = || RecordId::new("s").unwrap();
    let header = layout::Fields::new().with(Field::UserId, Value::text("u"));
    assert_eq!(
        map.key_for(Collection::Sessions, id(), &header).unwrap(),
        session_key("s", "u")
    );
    assert_eq!(map.key_by_id(CARTS, id()).unwrap(), cart_key("s"));
    let missing = map.key_by_id(Collection::Sessions, id()).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "sessions are routed by user_id, which the record lacks: give the field"
    );
}

#[tokio::test(start_paused = true)]
async fn revisions_rise_above_the_clients_token_and_never_repeat() {
    let shop = Shop::open(&["a"], &[carts_on("a")]).await;
    let first = written(&shop.router, create_cart("c")).await;
    let token = Revision::above(first.revision, first.revision.writer());
    let second = shop
        .router
        .write(set_line("c", "P", 1), token)
        .await
        .unwrap();
    assert!(second.revision > token);
    let third = written(&shop.router, set_line("c", "P", 2)).await;
    assert!(
        third.revision > second.revision,
        "time stands still, revisions do not"
    );
}
