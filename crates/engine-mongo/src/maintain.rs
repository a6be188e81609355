//! Collecting garbage: expired records and old marks, in bounded batches.
//!
//! Deletes and updates repeat their condition, so that a record which was
//! touched or made anew since it was found stays. Marks of parts go by an
//! update that says so, and the journal leaves it out; it passes the validator
//! by, which would judge the generation of the last writer, long since fenced.
//! The journal itself is the oplog, which the server trims by its own size: no
//! entries are ever reported as trimmed.

use engine_api::{EngineError, Maintained, Maintenance};
use futures::TryStreamExt;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};

use crate::engine::MongoEngine;
use crate::failure::{Asked, answer};
use crate::schema::Place;

/// The most documents that one delete or update names.
const BATCH_MAX: usize = 1000;

/// The field by which the journal knows that an update only forgot marks.
pub(crate) const FORGOTTEN: &str = "forgotten_at";

#[derive(Clone, Copy)]
enum Garbage {
    Expired,
    Marks,
    PartMarks,
}

impl MongoEngine {
    pub(crate) async fn collect(&self, work: Maintenance) -> Result<Maintained, EngineError> {
        let mut done = Maintained::default();
        for place in self.places() {
            for garbage in [Garbage::Expired, Garbage::Marks, Garbage::PartMarks] {
                let left = work.items_max.saturating_sub(done.expired + done.marks);
                let collected = self.collect_some(place, garbage, &work, left).await?;
                match garbage {
                    Garbage::Expired => done.expired += collected,
                    Garbage::Marks | Garbage::PartMarks => done.marks += collected,
                }
            }
        }
        Ok(done)
    }

    async fn collect_some(
        &self,
        place: &Place,
        garbage: Garbage,
        work: &Maintenance,
        items_max: usize,
    ) -> Result<usize, EngineError> {
        let documents = self.documents(place.collection)?;
        let condition = garbage.condition(work);
        let mut collected = 0;
        while collected < items_max {
            let batch = (items_max - collected).min(BATCH_MAX);
            let ids = self.ids(place, &condition, batch).await?;
            let found = ids.len();
            if found > 0 {
                let mut filter = condition.clone();
                filter.insert("_id", doc! { "$in": ids });
                let count = match garbage {
                    Garbage::Expired | Garbage::Marks => {
                        let deleting = documents.delete_many(filter);
                        answer(self.limit(), Asked::Write, deleting)
                            .await?
                            .deleted_count
                    }
                    Garbage::PartMarks => {
                        let forgetting = documents
                            .update_many(filter, forget(work))
                            .bypass_document_validation(true);
                        answer(self.limit(), Asked::Write, forgetting)
                            .await?
                            .modified_count
                    }
                };
                collected += usize::try_from(count).unwrap_or(found);
            }
            if found < batch {
                break;
            }
        }
        Ok(collected)
    }

    async fn ids(
        &self,
        place: &Place,
        condition: &Document,
        limit: usize,
    ) -> Result<Vec<Bson>, EngineError> {
        let documents = self.documents(place.collection)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let finding = async {
            let only_id = documents
                .find(condition.clone())
                .projection(doc! { "_id": 1 });
            only_id.limit(limit).await?.try_collect().await
        };
        let found: Vec<Document> = answer(self.limit(), Asked::Read, finding).await?;
        Ok(found
            .iter()
            .filter_map(|document| document.get("_id").cloned())
            .collect())
    }
}

impl Garbage {
    fn condition(self, work: &Maintenance) -> Document {
        let marks_before = work.marks_before.unix_micros();
        match self {
            Garbage::Expired => doc! { "expires_at": { "$lte": work.now.unix_micros() } },
            Garbage::Marks => {
                doc! { "header.live": false, "header.revision": { "$lt": marks_before } }
            }
            Garbage::PartMarks => doc! { "oldest_mark": { "$lt": marks_before } },
        }
    }
}

/// Keeps the parts that live and the marks that are young.
fn forget(work: &Maintenance) -> Vec<Document> {
    let marks_before = work.marks_before.unix_micros();
    let kept = doc! { "$filter": {
        "input": "$parts",
        "cond": { "$or": ["$$this.live", { "$gte": ["$$this.revision", marks_before] }] },
    } };
    let young = doc! { "$filter": { "input": "$parts", "cond": { "$not": ["$$this.live"] } } };
    let oldest = doc! { "$min": { "$map": { "input": young, "in": "$$this.revision" } } };
    let mut changed = doc! { "parts": kept, "stamp": ObjectId::new() };
    changed.insert(FORGOTTEN, work.now.unix_micros());
    vec![
        doc! { "$set": changed },
        doc! { "$set": { "oldest_mark": { "$ifNull": [oldest, "$$REMOVE"] } } },
    ]
}
