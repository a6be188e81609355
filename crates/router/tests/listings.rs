//! Listings over shards.

#![allow(clippy::unwrap_used)] // a story ends where something unforeseen happens

mod support;

use engine_api::{Change, Generation, Query, RecordId, RecordKey};
use layout::{AccessPath, Collection, Field, Value};
use router::{CollectionMap, Cut, Edit, Limits};
use support::*;

const SESSIONS: Collection = Collection::Sessions;

fn sessions_by(field: Field, shards: &[&str]) -> (Collection, CollectionMap) {
    let shards: Vec<_> = shards.iter().map(|name| named(name)).collect();
    (
        SESSIONS,
        CollectionMap::cut_by("embedded", vec![field], Cut::even_slots(&shards)),
    )
}

fn by_id(number: i64) -> RecordKey {
    RecordKey::by_id(SESSIONS, RecordId::new(format!("s{number:03}")).unwrap())
}

fn of_user(limit: usize) -> Query {
    Query::first(AccessPath::SessionsByUser, vec![Value::text("u")], limit)
}

async fn open_sessions(shop: &Shop, count: i64) {
    for number in 0..count {
        written(&shop.router, create_session(by_id(number), "u", number)).await;
        written(
            &shop.router,
            create_session(
                session_key(&format!("x{number}"), &format!("x{number}")),
                "v",
                number,
            ),
        )
        .await;
    }
}

async fn all_pages(shop: &Shop, limit: usize) -> Vec<String> {
    let mut query = of_user(limit);
    let mut ids = Vec::new();
    loop {
        let page = shop.router.query(&query).await.unwrap();
        assert!(page.records.len() <= limit);
        ids.extend(page.records.iter().map(|record| record.key.id.to_string()));
        match page.next {
            Some(next) => query = query.after(next),
            None => return ids,
        }
    }
}

fn newest_first(count: i64) -> Vec<String> {
    (0..count)
        .rev()
        .map(|number| format!("s{number:03}"))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_listing_over_shards_is_one_list_in_order() {
    let shop = Shop::open(
        &["a", "b", "c"],
        &[sessions_by(Field::SessionId, &["a", "b", "c"])],
    )
    .await;
    open_sessions(&shop, 40).await;
    for name in ["a", "b", "c"] {
        assert!(
            shop.shard(name).journal_len().await > 5,
            "shard {name} has its share"
        );
    }
    for limit in [1, 3, 7, 40, 100] {
        assert_eq!(
            all_pages(&shop, limit).await,
            newest_first(40),
            "limit {limit}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn copies_on_a_shard_that_is_not_the_owner_are_not_listed() {
    let limits = Limits {
        listing_pages_max: 2,
        ..Limits::default()
    };
    let sessions = [sessions_by(Field::SessionId, &["a", "b"])];
    let shop = Shop::open_with(
        &["a", "b"],
        &sessions,
        limits,
        engine_api::FenceKind::InStore,
    )
    .await;
    open_sessions(&shop, 30).await;
    for number in 0..30 {
        let image = shop.image(&by_id(number)).await;
        let copy_to = if shop.router.map().owner(&by_id(number)).unwrap().as_str() == "a" {
            "b"
        } else {
            "a"
        };
        shop.shard(copy_to).put_image(image).await;
    }
    for limit in [1, 2, 5, 50] {
        assert_eq!(
            all_pages(&shop, limit).await,
            newest_first(30),
            "limit {limit}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn leftovers_of_an_old_move_shorten_pages_but_hide_nothing() {
    let limits = Limits {
        listing_pages_max: 2,
        ..Limits::default()
    };
    let sessions = [sessions_by(Field::SessionId, &["a", "b"])];
    let in_store = engine_api::FenceKind::InStore;
    let shop = Shop::open_with(&["a", "b"], &sessions, limits, in_store).await;
    open_sessions(&shop, 130).await;
    let map = shop.router.map();
    let owned_by_a = |number: &i64| map.owner(&by_id(*number)).unwrap() == &named("a");
    for number in (30..130).filter(owned_by_a) {
        let image = shop.image(&by_id(number)).await;
        let remove = Change::Remove {
            key: by_id(number),
            expected: image.header.revision,
        };
        shop.shard("b").put_image(image).await;
        written(&shop.router, remove).await;
    }
    let mut live = newest_first(130);
    live.retain(|id| {
        let number: i64 = id[1..].parse().unwrap();
        number < 30 || !owned_by_a(&number)
    });
    for limit in [1, 2, 3, 50] {
        assert_eq!(all_pages(&shop, limit).await, live, "limit {limit}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_names_the_shard_key_asks_one_shard() {
    let shop = Shop::open(&["a", "b"], &[sessions_by(Field::UserId, &["a", "b"])]).await;
    for number in 0..5 {
        let key = session_key(&format!("s{number:03}"), "u");
        written(&shop.router, create_session(key, "u", number)).await;
    }
    let owner = shop
        .router
        .map()
        .owner(&session_key("s000", "u"))
        .unwrap()
        .to_string();
    let other = if owner == "a" { "b" } else { "a" };
    let _nobody_passes = shop.shard(other).gate_answers();
    assert_eq!(all_pages(&shop, 2).await, newest_first(5));
}

#[tokio::test(start_paused = true)]
async fn a_listing_starts_again_when_the_generation_changes() {
    let shop = Shop::open(&["a", "b"], &[sessions_by(Field::SessionId, &["a"])]).await;
    open_sessions(&shop, 3).await;
    let gate = shop.shard("a").gate_answers();
    let router = shop.router.clone();
    let listing = tokio::spawn(async move { router.query(&of_user(10)).await });
    gate.someone_arrived().await;
    shop.shard("a").ungate();
    for number in 0..3 {
        let image = shop.image(&by_id(number)).await;
        shop.shard("b").put_image(image).await;
    }
    let moved = [(
        SESSIONS,
        Edit::Move {
            scope: layout::Scope::All,
            to: named("b"),
        },
    )];
    shop.router
        .publish(shop.router.map().edited(&moved).unwrap())
        .await
        .unwrap();
    written(&shop.router, create_session(by_id(3), "u", 3)).await;
    gate.let_one_through();

    let page = listing.await.unwrap().unwrap();
    let ids: Vec<String> = page
        .records
        .iter()
        .map(|record| record.key.id.to_string())
        .collect();
    assert_eq!(ids, newest_first(4));
    assert_eq!(shop.router.counts().listing_restarts.value(), 1);
    assert_eq!(shop.router.map().generation, Generation(2));
}
