//! Surveys: all records of a collection, each from its owner.

#![allow(clippy::unwrap_used)] // a story ends where something unforeseen happens

mod support;

use engine_api::{RecordId, RecordKey};
use layout::{Collection, Field};
use router::{CollectionMap, Cut};
use support::*;

const SESSIONS: Collection = Collection::Sessions;

fn key(number: i64) -> RecordKey {
    RecordKey::by_id(SESSIONS, RecordId::new(format!("s{number:03}")).unwrap())
}

async fn met(shop: &Shop, limit: usize) -> Vec<String> {
    let (mut ids, mut from) = (Vec::new(), None);
    loop {
        let page = shop.router.survey(SESSIONS, from.as_ref(), limit);
        let page = page.await.unwrap();
        assert!(page.images.len() <= limit);
        ids.extend(page.images.iter().map(|image| image.key.id.to_string()));
        match page.next {
            Some(next) => from = Some(next),
            None => break,
        }
    }
    ids.sort();
    ids
}

/// As in the middle of a move: every record stands on both shards.
#[tokio::test(start_paused = true)]
async fn every_record_is_met_once_and_from_its_owner() {
    let shards = ["a", "b"].map(named);
    let cut = Cut::even_slots(&shards);
    let sessions = CollectionMap::cut_by("embedded", vec![Field::SessionId], cut);
    let shop = Shop::open(&["a", "b"], &[(SESSIONS, sessions)]).await;
    let mut expected = Vec::new();
    for number in 0..30 {
        written(&shop.router, create_session(key(number), "u", number)).await;
        let image = shop.image(&key(number)).await;
        let map = shop.router.map();
        let other = match map.owner(&key(number)).unwrap().as_str() {
            "a" => "b",
            _ => "a",
        };
        shop.shard(other).put_image(image).await;
        expected.push(key(number).id.to_string());
    }
    for limit in [1, 7, 1_000] {
        assert_eq!(met(&shop, limit).await, expected, "limit {limit}");
    }
}
