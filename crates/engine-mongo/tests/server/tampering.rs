//! Somebody with a driver of its own alters a copy while its move is ready: each time the record is named, the cutover
//! refused, and the copy repaired.

use std::sync::Arc;

use engine_api::Engine;
use engine_api::layout::Collection;
use mongodb::Client;
use mongodb::bson::{Bson, Document, doc};

use crate::tampered::{Copies, REMOVED};
use crate::{open, set};

struct Tampering {
    copies: Copies,
    documents: mongodb::Collection<Document>,
}

impl Tampering {
    async fn begin(collection: Collection) -> Option<Tampering> {
        let set = set()?;
        let (source, target) = (set.database("whole"), set.database("tampered"));
        let bare = Client::with_uri_str(set.uri()).await.unwrap();
        let documents = bare.database(&target).collection(collection.name());
        let source: Arc<dyn Engine> = Arc::new(open(&set.uri(), &source).await);
        let target: Arc<dyn Engine> = Arc::new(open(&set.uri(), &target).await);
        let copies = Copies::make(collection, source, target).await;
        Some(Tampering { copies, documents })
    }

    async fn set(&self, number: usize, fields: Document) {
        let filter = doc! { "_id": self.copies.id(number) };
        let updated = self.documents.update_one(filter, doc! { "$set": fields });
        assert_eq!(updated.await.unwrap().modified_count, 1);
    }

    async fn document(&self, number: usize) -> Document {
        let filter = doc! { "_id": self.copies.id(number) };
        self.documents.find_one(filter).await.unwrap().unwrap()
    }

    async fn expect(&mut self, what: &str, number: usize, named: &str) {
        let id = format!("/{}:", self.copies.id(number));
        self.copies.expect(what, &[&id, named]).await;
    }
}

async fn tamper(collection: Collection, value: (&str, Bson)) {
    let Some(mut it) = Tampering::begin(collection).await else {
        return;
    };
    let dropped = doc! { "_id": it.copies.id(0) };
    it.documents.delete_one(dropped).await.unwrap();
    it.expect("a document is gone", 0, "missing at the target")
        .await;

    let (field, other) = value;
    it.set(1, doc! { format!("header.fields.{field}"): other })
        .await;
    it.expect("a field is another one", 1, "of other content")
        .await;

    let whole = it.document(2).await;
    let revision = whole.get_document("header").unwrap().get_i64("revision");
    it.set(2, doc! { "header.revision": revision.unwrap() + 128 })
        .await;
    it.expect("a revision is another one", 2, "of another revision")
        .await;

    let fields = whole.get_document("header").unwrap().get("fields");
    let revived = doc! { "header.live": true, "header.fields": fields.unwrap() };
    it.set(REMOVED, revived).await;
    it.expect("a removal is undone", REMOVED, "alive at the target")
        .await;

    let mut added = whole.clone();
    added.insert("_id", it.copies.id(9));
    it.documents.insert_one(added).await.unwrap();
    it.expect("a document is added", 9, "at the target only")
        .await;

    it.set(3, doc! { "slot": 70_000 }).await;
    it.expect("an index leads elsewhere", 3, "other content in slot")
        .await;
    it.copies.cut_over().await;
}

/// The time at which a record ends stands in a part, and once more for the index by which the server collects.
async fn tamper_with_expiry(collection: Collection) {
    let Some(mut it) = Tampering::begin(collection).await else {
        return;
    };
    let filter = doc! { "_id": it.copies.id(1), "parts.kind": "expiry" };
    let sooner = doc! { "$inc": { "parts.$.fields.expires_at": -1_i64 } };
    let updated = it.documents.update_one(filter, sooner).await;
    if updated.is_err() {
        let document = it.document(1).await;
        panic!("{document}");
    }
    it.expect("it ends sooner", 1, "expires at another time")
        .await;
    let soon = it.document(2).await.get_i64("expires_at").unwrap() - 1_000_000;
    it.set(2, doc! { "expires_at": soon }).await;
    it.expect("it is collected sooner", 2, "other content in expires_at")
        .await;
    let filter = doc! { "_id": it.copies.id(3) };
    let never = doc! { "$unset": { "collect_at": 1 } };
    it.documents.update_one(filter, never).await.unwrap();
    it.expect("it is never collected", 3, "other content in collect_at")
        .await;
}

#[tokio::test]
async fn whatever_a_bare_driver_does_to_a_copy_of_carts_is_named() {
    tamper(Collection::Carts, ("status", Bson::from("activf"))).await;
    tamper_with_expiry(Collection::Carts).await;
}

#[tokio::test]
async fn whatever_a_bare_driver_does_to_a_copy_of_orders_is_named() {
    tamper(Collection::Orders, ("geo_zone", Bson::from("ev"))).await;
}

#[tokio::test]
async fn whatever_a_bare_driver_does_to_a_copy_of_sessions_is_named() {
    tamper(Collection::Sessions, ("user_id", Bson::from("bob"))).await;
    tamper_with_expiry(Collection::Sessions).await;
}

#[tokio::test]
async fn whatever_a_bare_driver_does_to_a_copy_of_products_is_named() {
    tamper(Collection::Products, ("name", Bson::from("Lamq"))).await;
    let Some(mut it) = Tampering::begin(Collection::Products).await else {
        return;
    };
    let filter = doc! { "_id": it.copies.id(1), "parts.kind": "stock" };
    let one_more = doc! { "$inc": { "parts.$.fields.available": 1_i64 } };
    it.documents.update_one(filter, one_more).await.unwrap();
    it.expect("a piece more is there", 1, "is another one at the target")
        .await;
}
