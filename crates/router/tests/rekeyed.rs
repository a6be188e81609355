//! Requests that were keyed before the shard key of their collection changed.

#![allow(clippy::unwrap_used)] // a story ends where something unforeseen happens

mod support;

use std::sync::Arc;

use engine_api::{
    Authority, Change, Engine, Freshness, MoverTerm, Outcome, RecordKey, Revision, World,
    WriteContext,
};
use layout::{Collection, Field, Fields, Scope, Value};
use router::{CollectionMap, Cut, Edit, RouterError, Written};
use support::{
    Fault, Shop, cart_header, cart_key, everyone_waits, named, quantity, set_line, written,
};
use tokio::task::JoinHandle;

const CARTS: Collection = Collection::Carts;

fn by_id() -> CollectionMap {
    CollectionMap::on_one_shard("one", vec![Field::CartId], named("a"))
}

fn by_user() -> CollectionMap {
    let fields = vec![Field::UserId, Field::CartId];
    CollectionMap::cut_by("two", fields, Cut::even_slots(&[named("b"), named("c")]))
}

fn header(id: &str) -> Fields {
    cart_header(id).with(Field::UserId, Value::text(format!("user-of-{id}")))
}

fn creation(placement: &CollectionMap, id: &str) -> Change {
    Change::CreateIfAbsent {
        key: key(placement, id),
        header: header(id),
        parts: Vec::new(),
    }
}

fn key(placement: &CollectionMap, id: &str) -> RecordKey {
    let key = placement.key_for(CARTS, cart_key(id).id, &header(id));
    key.unwrap()
}

fn keyed(change: Change, key: &RecordKey) -> Change {
    let mut change = change;
    *change.key_mut() = key.clone();
    change
}

/// Copies the carts to where the other placement has them, by hand.
async fn carry(shop: &Shop, from: &CollectionMap, to: &CollectionMap, ids: &[&str]) {
    for id in ids {
        let (old, new) = (key(from, id), key(to, id));
        let source = &shop.shards[from.owner(&old.shard_key).as_str()];
        let now = shop.world.now();
        let context = engine_api::ReadContext {
            now,
            freshness: Freshness::Latest,
        };
        let mut image = source.memory.get(&old, context).await.unwrap().unwrap();
        image.key = new;
        let term = MoverTerm {
            move_name: "by-hand".to_owned(),
            term: 1,
        };
        let context = WriteContext {
            authority: Authority::Mover { term },
            now,
            revision: image.newest_revision(),
        };
        let target = &shop.shards[to.owner(&image.key.shard_key).as_str()];
        let put = target.memory.apply(Change::PutImage { image }, context);
        assert!(put.await.unwrap().is_done());
    }
}

async fn freeze(shop: &Shop) {
    let map = shop.router.map().freeze(CARTS, Scope::All).unwrap();
    shop.router.publish(map).await.unwrap();
}

async fn replace(shop: &Shop, placement: &CollectionMap) {
    let edits = [
        Edit::Place {
            placement: placement.clone(),
        },
        Edit::Thaw { scope: Scope::All },
    ];
    let map = shop.router.map();
    let map = map.edited(&edits.map(|edit| (CARTS, edit))).unwrap();
    shop.router.publish(map).await.unwrap();
}

fn held(shop: &Shop, change: Change) -> JoinHandle<Result<Written, RouterError>> {
    let router = Arc::clone(&shop.router);
    tokio::spawn(async move { router.write(change, Revision::ZERO).await })
}

/// In both directions: the new key can be computed, or the record has to be looked for.
#[tokio::test(start_paused = true)]
async fn a_request_held_through_a_change_of_shard_key_ends_where_the_record_is() {
    for (from, to) in [(by_id(), by_user()), (by_user(), by_id())] {
        let shop = Shop::open(&["a", "b", "c"], &[(CARTS, from.clone())]).await;
        let ids = ["one", "two", "three"];
        for id in ids {
            written(&shop.router, creation(&from, id)).await;
        }
        let revision = shop.image(&key(&from, "two")).await.header.revision;
        freeze(&shop).await;
        let patched = keyed(set_line("one", "p", 7), &key(&from, "one"));
        let changed = Change::ChangeIf {
            key: key(&from, "two"),
            expected: revision,
            header: header("two").with(Field::Status, Value::text("ordered")),
            parts: engine_api::PartsChange::Keep,
        };
        let removed = Change::Remove {
            key: key(&from, "three"),
            expected: shop.image(&key(&from, "three")).await.header.revision,
        };
        let absent = keyed(set_line("none", "p", 7), &key(&from, "none"));
        let all = [patched, changed, removed, creation(&from, "new"), absent];
        let all = all.map(|change| held(&shop, change));
        everyone_waits().await;
        carry(&shop, &from, &to, &ids).await;
        replace(&shop, &to).await;
        let mut outcomes = Vec::new();
        for request in all {
            outcomes.push(request.await.unwrap().unwrap().outcome);
        }
        let (absent, others) = outcomes.split_last().unwrap();
        assert!(others.iter().all(Outcome::is_done), "{outcomes:?}");
        assert_eq!(*absent, Outcome::NoRecord);
        let stored = |id: &'static str| {
            let (shop, to) = (&shop, &to);
            async move { shop.image(&key(to, id)).await }
        };
        assert_eq!(quantity(&stored("one").await, "p"), Some(7));
        assert_eq!(stored("new").await.key, key(&to, "new"));
        let two = stored("two").await;
        let status = two
            .header
            .content
            .live()
            .and_then(|it| it.text(Field::Status));
        assert_eq!(status, Some("ordered"));
        assert!(shop.router.get(&key(&to, "three")).await.unwrap().is_none());
        // Each under its new key, and on one shard alone.
        for id in ["one", "two", "new"] {
            let new = key(&to, id);
            let owner = to.owner(&new.shard_key);
            for shard in to.shards() {
                let context = engine_api::ReadContext {
                    now: shop.world.now(),
                    freshness: Freshness::Latest,
                };
                let found = shop.shards[shard.as_str()].memory.get(&new, context);
                let found = found.await.unwrap();
                assert_eq!(found.is_some(), shard == owner, "{id} on {shard}");
            }
        }
    }
}

/// Whoever kept a key from before still finds the record, and no key that is not known.
#[tokio::test(start_paused = true)]
async fn a_key_from_before_still_reads_the_record() {
    for (from, to) in [(by_id(), by_user()), (by_user(), by_id())] {
        let shop = Shop::open(&["a", "b", "c"], &[(CARTS, from.clone())]).await;
        for id in ["one", "two"] {
            written(&shop.router, creation(&from, id)).await;
        }
        freeze(&shop).await;
        carry(&shop, &from, &to, &["one", "two"]).await;
        replace(&shop, &to).await;
        for id in ["one", "two"] {
            let found = shop.router.get(&key(&from, id)).await.unwrap().unwrap();
            assert_eq!(found.key, key(&to, id));
        }
        let unknown = shop.router.get(&key(&from, "none")).await.unwrap();
        assert!(unknown.is_none());
        assert!(shop.router.counts().rekeyed.value() >= 3);
    }
}

/// The first attempt was applied, its answer lost, and the image taken along: the same change under
/// the new key is recognised, and not done twice.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_settled_under_the_new_key() {
    let (from, to) = (by_id(), by_user());
    let shop = Shop::open(&["a", "b", "c"], &[(CARTS, from.clone())]).await;
    let source = shop.shard("a");
    source.fail_next(&[Fault::AppliedButAnswerLost]);
    let gate = source.gate_answers();
    let request = held(&shop, creation(&from, "one"));
    gate.someone_arrived().await;
    freeze(&shop).await;
    carry(&shop, &from, &to, &["one"]).await;
    gate.let_one_through();
    everyone_waits().await;
    replace(&shop, &to).await;
    let written = request.await.unwrap().unwrap();
    assert!(written.outcome.is_done(), "{written:?}");
    let stored = shop.image(&key(&to, "one")).await;
    assert_eq!(stored.header.revision, written.revision);
}
