//! Forgetting what this database does not own any more (W47).
//!
//! A validator sees no deletes, so that no term could stop a late one. A document is condemned by a field of its own that
//! names the call; the delete repeats it. Whoever puts the record's image takes the field away in the same step, or in a
//! step of its own if the image changes nothing. Updates that touch the field are left out of the journal.

use std::collections::{BTreeMap, BTreeSet};

use engine_api::layout::Collection;
use engine_api::{Authority, Condemned, EngineError, RecordKey, WriteContext};
use futures::TryStreamExt;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};

use crate::document::{Stored, hex};
use crate::engine::MongoEngine;
use crate::failure::{Asked, answer};

/// The field that names the call which condemned a document; null when it was spared.
pub(crate) const CONDEMNED: &str = "condemned";

impl MongoEngine {
    pub(crate) async fn condemn_some(
        &self,
        keys: &[RecordKey],
        context: &WriteContext,
    ) -> Result<Vec<Condemned>, EngineError> {
        self.hold(context).await?;
        // Of this call alone, and never used again: a delete is sent only after the call has answered.
        let mark = ObjectId::new();
        let mut condemned = Vec::with_capacity(keys.len());
        for (collection, keys) in by_collection(keys.iter()) {
            let documents = self.documents(collection)?;
            let named = named(&keys);
            let set = doc! { CONDEMNED: mark, "stamp": ObjectId::new() };
            // Not the validator's: it would judge the generation of the last writer, long since fenced.
            let marking = documents
                .update_many(named.clone(), doc! { "$set": set })
                .bypass_document_validation(true);
            answer(self.limit(), Asked::Write, marking).await?;
            let mut marked = named;
            marked.insert(CONDEMNED, mark);
            let finding = async {
                let only_id = documents.find(marked).projection(doc! { "_id": 1 });
                only_id.await?.try_collect().await
            };
            let found: Vec<Document> = answer(self.limit(), Asked::Read, finding).await?;
            let found: BTreeSet<&str> = found
                .iter()
                .filter_map(|document| document.get_str("_id").ok())
                .collect();
            let there = keys
                .into_iter()
                .filter(|key| found.contains(key.id.as_str()));
            condemned.extend(there.map(|key| Condemned {
                key: key.clone(),
                mark: mark.bytes().to_vec(),
            }));
        }
        Ok(condemned)
    }

    pub(crate) async fn forget_some(
        &self,
        condemned: &[Condemned],
        context: &WriteContext,
    ) -> Result<u64, EngineError> {
        self.hold(context).await?;
        let mut calls: BTreeMap<[u8; 12], Vec<&RecordKey>> = BTreeMap::new();
        for one in condemned {
            let mark = <[u8; 12]>::try_from(one.mark.as_slice());
            let mark = mark.map_err(|_| EngineError::Invalid {
                reason: format!("{} was condemned elsewhere", one.key),
            })?;
            calls.entry(mark).or_default().push(&one.key);
        }
        let mut gone = 0;
        for (mark, keys) in calls {
            for (collection, keys) in by_collection(keys.into_iter()) {
                let documents = self.documents(collection)?;
                let mut filter = named(&keys);
                filter.insert(CONDEMNED, ObjectId::from_bytes(mark));
                let deleting = documents.delete_many(filter);
                let deleted = answer(self.limit(), Asked::Write, deleting).await?;
                gone += deleted.deleted_count;
            }
        }
        Ok(gone)
    }

    /// Answers whether the document was still the one that was read.
    pub(crate) async fn spare(
        &self,
        key: &RecordKey,
        stored: &Stored,
    ) -> Result<bool, EngineError> {
        let documents = self.documents(key.collection)?;
        let mut filter = self.named(key);
        filter.insert("stamp", stored.stamp);
        let set = doc! { CONDEMNED: Bson::Null, "stamp": ObjectId::new() };
        let sparing = documents
            .update_one(filter, doc! { "$set": set })
            .bypass_document_validation(true);
        let spared = answer(self.limit(), Asked::Write, sparing).await?;
        Ok(spared.matched_count == 1)
    }

    async fn hold(&self, context: &WriteContext) -> Result<(), EngineError> {
        match &context.authority {
            Authority::Mover { term } => self.guards().rules().await?.hold_term(term),
            // Refused before (`validate_forgetting`).
            Authority::Router { .. } => Ok(()),
        }
    }
}

fn by_collection<'a>(
    keys: impl Iterator<Item = &'a RecordKey>,
) -> BTreeMap<Collection, Vec<&'a RecordKey>> {
    let mut groups: BTreeMap<Collection, Vec<&RecordKey>> = BTreeMap::new();
    for key in keys {
        groups.entry(key.collection).or_default().push(key);
    }
    groups
}

/// With their shard keys: shards behind a mongos are found by them.
fn named(keys: &[&RecordKey]) -> Document {
    let ids: Vec<&str> = keys.iter().map(|key| key.id.as_str()).collect();
    let shard_keys: BTreeSet<String> = keys.iter().map(|key| hex(&key.shard_key)).collect();
    let shard_keys: Vec<String> = shard_keys.into_iter().collect();
    doc! { "_id": { "$in": ids }, "shard_key": { "$in": shard_keys } }
}
