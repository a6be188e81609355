//! Reading: one record, pages of an access path, pages of a whole collection.
//!
//! Every path is asked of the authority itself, so no derived row can be out of
//! date (W9); the layout's derived tables are its indexes.

use engine_api::layout::{AccessPath, Collection, Direction};
use engine_api::{
    Cursor, EngineError, PAGE_RECORDS_MAX, Page, Query, ReadContext, Record, RecordKey, Revision,
    Scan, ScanPage, ScanPosition,
};
use futures::TryStreamExt;
use mongodb::action::Find;
use mongodb::bson::{Bson, Document, doc};

use crate::document::from_document;
use crate::engine::MongoEngine;
use crate::failure::{Asked, answer};
use crate::lag_counts::count;
use crate::validator::scope_filter;
use crate::value::field_to_bson;

impl MongoEngine {
    pub(crate) async fn read_one(
        &self,
        key: &RecordKey,
        context: ReadContext,
    ) -> Result<Option<Record>, EngineError> {
        let documents = self.documents(key.collection)?;
        let wanted = Wanted {
            filter: self.named(key),
            order: Document::new(),
            limit: 1,
        };
        if let Some(lagging) = self.lagging(context)
            && let Some((found, age)) = self.ask_secondary(&documents, &wanted, &lagging).await
        {
            let record = records(key.collection, &found)?.pop();
            let proved = |record: &Record| shows(record, lagging.seen);
            if lagging.covered || record.as_ref().is_some_and(proved) {
                self.lag_counts().serve(age);
                return Ok(record);
            }
            count(&self.lag_counts().own_change);
        }
        let found = self.ask_primary(&documents, &wanted).await?;
        Ok(records(key.collection, &found)?.pop())
    }

    pub(crate) async fn read_path(
        &self,
        query: &Query,
        context: ReadContext,
    ) -> Result<Page, EngineError> {
        let shape = query.path.shape();
        if !self.place(shape.collection)?.answers(query.path) {
            let what = format!("answer \"{}\" without an index for it", query.path);
            return Err(EngineError::Unsupported { what });
        }
        let mut order = Document::new();
        if let Some((field, direction)) = shape.sort {
            order.insert(
                format!("header.fields.{field}"),
                if direction == Direction::Descending {
                    -1
                } else {
                    1
                },
            );
        }
        order.insert("_id", 1);
        let limit = query.limit.clamp(1, PAGE_RECORDS_MAX);
        let mut records = self
            .page(
                shape.collection,
                Wanted {
                    filter: path_filter(query, context)?,
                    order,
                    limit: limit + 1,
                },
                Some(context),
            )
            .await?;
        let more = records.len() > limit;
        records.truncate(limit);
        let next = records
            .last()
            .filter(|_| more)
            .map(|record| Cursor::of(query.path, record));
        Ok(Page { records, next })
    }

    pub(crate) async fn read_scope(&self, scan: &Scan) -> Result<ScanPage, EngineError> {
        let mut clauses: Vec<Document> = scope_filter(&scan.scope).into_iter().collect();
        for (operator, position) in [("$gt", &scan.after), ("$lte", &scan.until)] {
            if let Some(position) = position {
                let mut bound = Document::new();
                bound.insert(operator, id_of(position)?);
                clauses.push(doc! { "_id": bound });
            }
        }
        let filter = if clauses.is_empty() {
            Document::new()
        } else {
            doc! { "$and": clauses }
        };
        let limit = scan.limit.clamp(1, PAGE_RECORDS_MAX);
        let mut images = self
            .page(
                scan.collection,
                Wanted {
                    filter,
                    order: doc! { "_id": 1 },
                    limit: limit + 1,
                },
                None,
            )
            .await?;
        let more = images.len() > limit;
        images.truncate(limit);
        let place = |record: &Record| ScanPosition(record.key.id.as_str().as_bytes().to_vec());
        let next = images.last().filter(|_| more).map(place);
        Ok(ScanPage { images, next })
    }

    /// Without a context nothing may lag.
    async fn page(
        &self,
        collection: Collection,
        wanted: Wanted,
        context: Option<ReadContext>,
    ) -> Result<Vec<Record>, EngineError> {
        let documents = self.documents(collection)?;
        if let Some(lagging) = context.and_then(|context| self.lagging(context)) {
            // A page cannot show that nothing is missing from it.
            if !lagging.covered {
                count(&self.lag_counts().own_change);
            } else if let Some((found, age)) =
                self.ask_secondary(&documents, &wanted, &lagging).await
            {
                self.lag_counts().serve(age);
                return records(collection, &found);
            }
        }
        records(collection, &self.ask_primary(&documents, &wanted).await?)
    }

    async fn ask_primary(
        &self,
        documents: &mongodb::Collection<Document>,
        wanted: &Wanted,
    ) -> Result<Vec<Document>, EngineError> {
        let finding = async { wanted.find(documents).await?.try_collect().await };
        Ok(answer(self.limit(), Asked::Read, finding).await?)
    }
}

/// Documents to be found.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub filter: Document,
    pub order: Document,
    pub limit: usize,
}

impl Wanted {
    pub fn find<'a>(&self, documents: &'a mongodb::Collection<Document>) -> Find<'a, Document> {
        let limit = i64::try_from(self.limit).unwrap_or(i64::MAX);
        documents
            .find(self.filter.clone())
            .sort(self.order.clone())
            .limit(limit)
    }
}

fn records(collection: Collection, found: &[Document]) -> Result<Vec<Record>, EngineError> {
    let record = |document| Ok(from_document(collection, document)?.record);
    found.iter().map(record).collect()
}

/// Whether the caller's change is in the record, and with it all that the caller
/// did before. A newer one proves nothing: another part may have got it first.
fn shows(record: &Record, seen: Revision) -> bool {
    let mut parts = record.parts.values();
    record.header.revision == seen || parts.any(|part| part.revision == seen)
}

fn path_filter(query: &Query, context: ReadContext) -> Result<Document, EngineError> {
    let shape = query.path.shape();
    if query.equals.len() != shape.equals.len() {
        let reason = format!(
            "\"{}\" is asked with {} values",
            query.path,
            shape.equals.len()
        );
        return Err(EngineError::Invalid { reason });
    }
    let by_id = query.path == AccessPath::by_id(shape.collection);
    let mut clauses = vec![
        doc! { "header.live": true },
        doc! { "$or": [
            { "expires_at": { "$exists": false } },
            { "expires_at": { "$gt": context.now.unix_micros() } },
        ] },
    ];
    let equal = |name: String, value: Bson| {
        let mut clause = Document::new();
        clause.insert(name, value);
        clause
    };
    for (field, value) in shape.equals.iter().zip(&query.equals) {
        let name = if by_id {
            "_id".to_owned()
        } else {
            format!("header.fields.{field}")
        };
        clauses.push(equal(name, field_to_bson(value)));
    }
    if let Some((field, text)) = shape.only {
        clauses.push(equal(
            format!("header.fields.{field}"),
            Bson::String(text.to_owned()),
        ));
    }
    if let Some((field, _)) = shape.sort {
        let mut range = doc! { "$exists": true };
        if let Some(least) = &query.range.least {
            range.insert("$gte", field_to_bson(least));
        }
        if let Some(most) = &query.range.most {
            range.insert("$lte", field_to_bson(most));
        }
        clauses.push(equal(
            format!("header.fields.{field}"),
            Bson::Document(range),
        ));
    }
    if let Some(after) = &query.after {
        clauses.push(after_filter(query.path, after));
    }
    Ok(doc! { "$and": clauses })
}

/// What comes after a cursor in the path's order: ties go by id, upwards.
fn after_filter(path: AccessPath, after: &Cursor) -> Document {
    let later_id = doc! { "_id": { "$gt": after.id.as_str() } };
    let (Some((field, direction)), Some(sort)) = (path.shape().sort, &after.sort) else {
        return later_id;
    };
    let name = format!("header.fields.{field}");
    let sort = field_to_bson(sort);
    let operator = if direction == Direction::Descending {
        "$lt"
    } else {
        "$gt"
    };
    let mut bound = Document::new();
    bound.insert(operator, sort.clone());
    let (mut beyond, mut tie) = (Document::new(), later_id);
    beyond.insert(&name, bound);
    tie.insert(&name, sort);
    doc! { "$or": [beyond, tie] }
}

fn id_of(position: &ScanPosition) -> Result<&str, EngineError> {
    std::str::from_utf8(&position.0).map_err(|_| EngineError::Invalid {
        reason: "the scan position is of another engine".to_owned(),
    })
}
