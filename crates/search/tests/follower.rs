//! Stories about an index that follows a changing shop.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine_api::{Change, PartKey, PriceCondition, SharedRecord, StockAction};
use layout::{Collection, Field, Scope, Value};
use router::Edit;
use search::{FollowError, Follower, ProductIndex, Reached, SearchError};
use support::{Shop, found, header, key, named};

const NOTHING: [&str; 0] = [];

async fn shop_with_lamps() -> Shop {
    let shop = Shop::open().await;
    shop.create("lamp", "Настольная лампа", "Свет").await;
    shop.create("torch", "Torch", "Свет").await;
    shop
}

async fn followed(shop: &Shop) -> (Arc<ProductIndex>, Follower) {
    let index = Arc::new(ProductIndex::new().unwrap());
    let mut follower = shop.follower(&index);
    follower.catch_up().await.unwrap();
    (index, follower)
}

/// What a fresh index of the same shop answers.
async fn assert_as_rebuilt(shop: &Shop, index: &ProductIndex, texts: &[&str]) {
    let (rebuilt, _) = followed(shop).await;
    for text in texts {
        assert_eq!(found(index, text), found(&rebuilt, text), "{text}");
    }
    assert_eq!(index.products(), rebuilt.products());
}

#[tokio::test(start_paused = true)]
async fn products_are_followed_through_creation_renaming_and_removal() {
    let shop = shop_with_lamps().await;
    let index = Arc::new(ProductIndex::new().unwrap());
    let mut follower = shop.follower(&index);
    assert_eq!(index.search("лампа", 9), Err(SearchError::NotReady));
    let caught = follower.catch_up().await.unwrap();
    assert_eq!((caught.rebuilds, caught.reached), (1, Reached::End));
    assert_eq!(found(&index, "лампы"), ["lamp"]);
    assert_eq!(found(&index, "свет"), ["torch", "lamp"]);

    shop.create("chair", "Стул", "Мебель").await;
    shop.rename("torch", "Фонарь").await;
    shop.remove("lamp").await;
    assert_eq!(found(&index, "стул"), NOTHING, "nobody followed yet");
    let caught = follower.catch_up().await.unwrap();
    assert_eq!((caught.rebuilds, caught.entries), (0, 3));
    assert_eq!(found(&index, "стулья"), ["chair"]);
    assert_eq!(found(&index, "свет"), ["torch"]);
    assert_eq!(found(&index, "torch"), NOTHING);
    assert_eq!(found(&index, "фонари"), ["torch"]);

    shop.create("lamp", "Новая лампа", "Свет").await;
    follower.catch_up().await.unwrap();
    assert_eq!(found(&index, "лампа"), ["lamp"]);
    assert_as_rebuilt(&shop, &index, &["лампа", "свет", "стул", "фон"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_index_is_rebuilt_to_the_same_answers() {
    let shop = Shop::open().await;
    let (index, mut follower) = followed(&shop).await;
    for number in 0..1500 {
        let id = format!("p{number}");
        shop.create(&id, &format!("Лампа {}", number % 7), "Свет")
            .await;
        if number % 5 == 0 {
            shop.rename(&id, "Lamp lamp").await;
        }
        if number % 11 == 0 {
            shop.remove(&id).await;
        }
        if number % 400 == 0 {
            follower.catch_up().await.unwrap();
        }
    }
    follower.catch_up().await.unwrap();
    assert_as_rebuilt(&shop, &index, &["лампа", "лампа 3", "lamp", "св", "лмапа"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_trimmed_journal_means_a_rebuild_that_also_forgets_the_removed() {
    let shop = shop_with_lamps().await;
    let (index, mut follower) = followed(&shop).await;
    shop.remove("torch").await;
    shop.rename("lamp", "Люстра").await;
    shop.shard("a").trim_journal().await;
    let caught = follower.catch_up().await.unwrap();
    assert_eq!((caught.rebuilds, caught.reached), (1, Reached::End));
    assert_eq!(found(&index, "свет"), ["lamp"]);
    assert_eq!(found(&index, "люстра"), ["lamp"]);
    assert_eq!(follower.counts().positions_lost.value(), 1);
    assert_eq!(follower.catch_up().await.unwrap().rebuilds, 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_written_while_the_scan_runs_is_found() {
    let shop = shop_with_lamps().await;
    let during = shop.clone();
    shop.shard("a").during_next_scan(async move {
        during.create("chair", "Стул", "Мебель").await;
        during.rename("lamp", "Люстра").await;
        during.remove("torch").await;
    });
    let (index, _) = followed(&shop).await;
    assert_eq!(found(&index, "стул"), ["chair"]);
    assert_eq!(found(&index, "люстра"), ["lamp"]);
    assert_eq!(found(&index, "torch"), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn copies_on_a_shard_that_does_not_own_them_are_not_taken() {
    let shop = shop_with_lamps().await;
    // `b` owns one other product and holds an old copy of the lamp.
    let old = shop.image(&key("lamp")).await;
    let pin = Edit::Pin {
        key: key("vase").shard_key,
        shard: named("b"),
    };
    publish(&shop, Collection::Products, pin).await;
    shop.create("vase", "Ваза", "Дом").await;
    shop.rename("lamp", "Люстра").await;
    shop.shard("b").put_image(old).await;
    let (index, mut follower) = followed(&shop).await;
    assert_eq!(found(&index, "лампа"), NOTHING);
    assert_eq!(found(&index, "люстра"), ["lamp"]);
    assert_eq!(found(&index, "ваза"), ["vase"]);

    // An entry of the copy is a reason to look at the owner, nothing more.
    let mut newer = shop.image(&key("torch")).await;
    newer.header.content = engine_api::Content::Live(header("torch", "Подделка", "Свет"));
    shop.shard("b").put_image(newer).await;
    assert_eq!(follower.catch_up().await.unwrap().entries, 1);
    assert_eq!(found(&index, "подделка"), NOTHING);
    assert_eq!(found(&index, "torch"), ["torch"]);
}

#[tokio::test(start_paused = true)]
async fn a_move_of_products_means_a_rebuild_and_other_new_maps_do_not() {
    let shop = shop_with_lamps().await;
    let (index, mut follower) = followed(&shop).await;

    let freeze = || Edit::Freeze { scope: Scope::All };
    publish(&shop, Collection::Products, freeze()).await;
    publish(&shop, Collection::Carts, freeze()).await;
    assert_eq!(follower.catch_up().await.unwrap().rebuilds, 0);

    for id in ["lamp", "torch"] {
        let image = shop.image(&key(id)).await;
        shop.shard("b").put_image(image).await;
    }
    let to_b = Edit::Move {
        scope: Scope::All,
        to: named("b"),
    };
    publish(&shop, Collection::Products, to_b).await;
    publish(
        &shop,
        Collection::Products,
        Edit::Thaw { scope: Scope::All },
    )
    .await;
    shop.rename("lamp", "Люстра").await;
    assert_eq!(follower.catch_up().await.unwrap().rebuilds, 1);
    assert_eq!(found(&index, "свет"), ["lamp", "torch"]);
    assert_eq!(found(&index, "люстра"), ["lamp"]);

    shop.rename("torch", "Фонарь").await;
    assert_eq!(follower.catch_up().await.unwrap().rebuilds, 0);
    assert_eq!(found(&index, "фонарь"), ["torch"]);
}

#[tokio::test(start_paused = true)]
async fn a_scan_under_two_maps_does_not_count() {
    let shop = shop_with_lamps().await;
    for id in ["lamp", "torch"] {
        let image = shop.image(&key(id)).await;
        shop.shard("b").put_image(image).await;
    }
    let to_b = Edit::Move {
        scope: Scope::All,
        to: named("b"),
    };
    let during = shop.clone();
    shop.shard("a").during_next_scan(async move {
        publish(&during, Collection::Products, to_b).await;
        during.rename("lamp", "Люстра").await;
    });
    let index = Arc::new(ProductIndex::new().unwrap());
    let mut follower = shop.follower(&index);
    assert_eq!(follower.catch_up().await.unwrap().rebuilds, 2);
    assert_eq!(found(&index, "люстра"), ["lamp"]);
    assert_eq!(found(&index, "torch"), ["torch"]);
}

#[tokio::test(start_paused = true)]
async fn an_entry_waits_until_its_owner_shows_the_change() {
    let shop = shop_with_lamps().await;
    let (index, mut follower) = followed(&shop).await;
    let old = shop.router.image(&key("lamp")).await.unwrap();
    let hidden = shop.shard("a").clone();
    hidden.shown.lock().unwrap().insert(key("chair"), None);
    shop.create("chair", "Стул", "Мебель").await;
    shop.rename("lamp", "Люстра").await;
    hidden
        .shown
        .lock()
        .unwrap()
        .insert(key("lamp"), old.map(SharedRecord::into_record));

    let caught = follower.catch_up().await.unwrap();
    assert_eq!((caught.entries, caught.reached), (2, Reached::End));
    assert_eq!(follower.counts().waiting.value(), 2);
    assert_eq!(found(&index, "стул"), NOTHING);
    follower.catch_up().await.unwrap();
    assert_eq!(found(&index, "лампа"), ["lamp"]);

    hidden.shown.lock().unwrap().remove(&key("chair"));
    follower.catch_up().await.unwrap();
    assert_eq!(follower.counts().waiting.value(), 1);
    assert_eq!(found(&index, "стул"), ["chair"]);

    // What never shows does not wait for ever.
    tokio::time::sleep(Duration::from_secs(601)).await;
    follower.catch_up().await.unwrap();
    assert_eq!(follower.counts().waiting.value(), 0);
    assert_eq!(follower.counts().never_shown.value(), 1);
}

#[tokio::test(start_paused = true)]
async fn sales_read_a_product_once_a_page_and_leave_the_index_alone() {
    let shop = shop_with_lamps().await;
    let (index, mut follower) = followed(&shop).await;
    let put_before = follower.counts().products_put.value();
    let gets_before = shop.shard("a").gets.load(Ordering::Relaxed);
    for total in 1..=50 {
        shop.write(Change::Stock {
            key: key("lamp"),
            part: PartKey::stock("north", 0),
            price: PriceCondition::Any,
            action: StockAction::Receive { total },
        })
        .await;
    }
    assert_eq!(follower.catch_up().await.unwrap().entries, 50);
    let gets = shop.shard("a").gets.load(Ordering::Relaxed) - gets_before;
    assert_eq!(gets, 1);
    assert_eq!(follower.counts().products_put.value(), put_before);
    assert_eq!(found(&index, "лампа"), ["lamp"]);
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_stumbles_delays_a_rebuild_and_one_that_is_gone_fails_it() {
    let shop = shop_with_lamps().await;
    shop.shard("a").scans_that_fail.store(4, Ordering::Relaxed);
    let (index, mut follower) = followed(&shop).await;
    assert_eq!(found(&index, "torch"), ["torch"]);

    shop.shard("a").scans_that_fail.store(5, Ordering::Relaxed);
    shop.rename("lamp", "Люстра").await;
    shop.shard("a").trim_journal().await;
    let error = follower.catch_up().await.unwrap_err();
    assert!(matches!(error, FollowError::Engine { .. }), "{error}");
    assert_eq!(found(&index, "лампа"), ["lamp"], "the old answers stay");
    assert_eq!(follower.catch_up().await.unwrap().rebuilds, 1);
    assert_eq!(found(&index, "люстра"), ["lamp"]);
    assert_eq!(follower.counts().passes_failed.value(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_record_without_a_name_is_left_out_and_counted() {
    let shop = shop_with_lamps().await;
    let (index, mut follower) = followed(&shop).await;
    let mut image = shop.image(&key("lamp")).await;
    let nameless = header("lamp", "x", "Свет").with(Field::Name, Value::text(""));
    image.header.content = engine_api::Content::Live(nameless);
    shop.shard("a")
        .shown
        .lock()
        .unwrap()
        .insert(key("lamp"), Some(image));
    shop.rename("lamp", "Люстра").await;
    shop.rename("torch", "Фонарь").await;
    follower.catch_up().await.unwrap();
    assert_eq!(found(&index, "свет"), ["torch"]);
    assert!(follower.counts().unreadable.value() > 0);
}

#[tokio::test(start_paused = true)]
async fn rebuilds_tell_how_far_they_are() {
    let shop = Shop::open().await;
    for number in 0..1001 {
        shop.create(&format!("p{number:04}"), "Лампа", "Свет").await;
    }
    shop.remove("p0000").await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    let index = Arc::new(ProductIndex::new().unwrap());
    let mut follower = shop.follower(&index).on_progress(move |progress| {
        let line = (
            progress.shard.to_string(),
            progress.scanned,
            progress.products,
        );
        heard.lock().unwrap().push(line);
    });
    follower.catch_up().await.unwrap();
    let a = || "a".to_owned();
    assert_eq!(*told.lock().unwrap(), [(a(), 1000, 999), (a(), 1001, 1000)]);
}

#[tokio::test(start_paused = true)]
async fn a_running_follower_keeps_up_and_stops_when_told() {
    let shop = shop_with_lamps().await;
    let index = Arc::new(ProductIndex::new().unwrap());
    let follower = shop.follower(&index);
    let counts = follower.counts();
    assert_eq!(counts.caught_up_at(), None);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let story = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let first = counts.caught_up_at().unwrap();
        assert_eq!(found(&index, "лампа"), ["lamp"]);
        shop.rename("lamp", "Люстра").await;
        shop.shard("a").scans_that_fail.store(12, Ordering::Relaxed);
        shop.shard("a").trim_journal().await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(found(&index, "люстра"), ["lamp"]);
        assert_eq!(counts.passes_failed.value(), 2);
        assert!(counts.caught_up_at().unwrap() > first);
        stop.send(()).unwrap();
    };
    let run = follower.run(async {
        stopped.await.unwrap();
    });
    tokio::join!(run, story);
}

async fn publish(shop: &Shop, collection: Collection, edit: Edit) {
    let next = shop.router.map().edited(&[(collection, edit)]).unwrap();
    shop.router.publish(next).await.unwrap();
}
