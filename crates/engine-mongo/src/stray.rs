//! Fields for the indexes that do not repeat what their document says (E25).
//!
//! Index entries are the server's, in the same step as the document. What an index is made of is ours: a due time or a
//! slot that somebody else changed lets a record be collected too early, or hides it from a scan.

use engine_api::{
    EngineError, PAGE_RECORDS_MAX, Patience, Record, RowFault, ScanPosition, Stray, StrayEnd,
    StrayPage, StraySearch,
};
use futures::TryStreamExt;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};

use crate::document::{REPEATED, from_document, repeated};
use crate::engine::MongoEngine;
use crate::failure::{Asked, answer};

/// How often a field is put right anew because its document was changed in between.
const ATTEMPTS_MAX: usize = 16;

impl MongoEngine {
    pub(crate) async fn find_fields(&self, search: &StraySearch) -> Result<StrayPage, EngineError> {
        let limit = search.limit.clamp(1, PAGE_RECORDS_MAX);
        let mut filter = Document::new();
        if let Some(after) = &search.after {
            let after = std::str::from_utf8(&after.0).map_err(|_| EngineError::Invalid {
                reason: "the position is of another engine".to_owned(),
            })?;
            filter.insert("_id", doc! { "$gt": after });
        }
        let documents = self.documents(search.collection)?;
        let finding = async {
            let found = documents.find(filter).sort(doc! { "_id": 1 });
            let limit = i64::try_from(limit).expect("a page is small");
            found.limit(limit).await?.try_collect().await
        };
        let found: Vec<Document> = answer(self.limit(), Asked::Read, finding).await?;
        let mut strays = Vec::new();
        let mut last = None;
        for document in &found {
            let record = from_document(search.collection, document)?.record;
            last = Some(ScanPosition(record.key.id.as_str().as_bytes().to_vec()));
            if search.scope.contains(&record.key.shard_key) {
                let fields = altered(document, &record);
                strays.extend(fields.map(|field| stray(&record, field, search.patience)));
            }
        }
        Ok(StrayPage {
            looked_at: found.len(),
            strays,
            next: last.filter(|_| found.len() == limit),
        })
    }

    pub(crate) async fn is_field_altered(&self, stray: &Stray) -> Result<bool, EngineError> {
        Ok(self.altered_now(stray).await?.is_some())
    }

    pub(crate) async fn mend_field(&self, stray: &Stray) -> Result<StrayEnd, EngineError> {
        let documents = self.documents(stray.collection)?;
        for _ in 0..ATTEMPTS_MAX {
            let Some((stamp, record)) = self.altered_now(stray).await? else {
                return Ok(StrayEnd::Follows);
            };
            let fields = repeated(&record);
            let missing = REPEATED.iter().filter(|name| !fields.contains_key(**name));
            let unset: Document = missing
                .map(|name| ((*name).to_owned(), Bson::Null))
                .collect();
            let mut set = fields.clone();
            set.insert("stamp", ObjectId::new());
            let mut change = doc! { "$set": set };
            if !unset.is_empty() {
                change.insert("$unset", unset);
            }
            // The validator judges who changed a record last, who may be fenced by now; this is no change of it.
            let filter = doc! { "_id": stray.id.as_str(), "stamp": stamp };
            let updating = documents
                .update_one(filter, change)
                .bypass_document_validation(true);
            let updated = answer(self.limit(), Asked::Write, updating).await?;
            if updated.matched_count == 1 {
                return Ok(StrayEnd::Mended);
            }
        }
        Err(EngineError::Unavailable {
            reason: format!("{} is changed by too many at once", stray.id),
        })
    }

    async fn altered_now(&self, stray: &Stray) -> Result<Option<(ObjectId, Record)>, EngineError> {
        let documents = self.documents(stray.collection)?;
        let finding = documents.find_one(doc! { "_id": stray.id.as_str() });
        let Some(document) = answer(self.limit(), Asked::Read, finding).await? else {
            return Ok(None);
        };
        let stored = from_document(stray.collection, &document)?;
        let is_altered = altered(&document, &stored.record).any(|field| field == stray.table);
        Ok(is_altered.then_some((stored.stamp, stored.record)))
    }
}

fn altered<'a>(document: &'a Document, record: &Record) -> impl Iterator<Item = &'static str> + 'a {
    let expected = repeated(record);
    let differs = move |name: &&'static str| document.get(*name) != expected.get(*name);
    REPEATED.into_iter().filter(differs)
}

fn stray(record: &Record, field: &'static str, patience: Patience) -> Stray {
    Stray {
        collection: record.key.collection,
        id: record.key.id.clone(),
        table: field.to_owned(),
        fault: RowFault::Altered,
        patience,
        row: Vec::new(),
    }
}
