//! Reading: one record, pages of an access path, pages of a whole collection.
//!
//! Every path is asked of the authority itself, so no derived row can be out of
//! date (W9); the layout's derived tables are its indexes.

use std::time::Duration;

use engine_api::layout::{AccessPath, Collection, Direction};
use engine_api::{
    Aged, Because, Cursor, EngineError, PAGE_RECORDS_MAX, Page, Query, ReadContext, Record,
    RecordKey, Revision, Scan, ScanPage, ScanPosition, Served,
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
    ) -> Result<Aged<Option<Record>>, EngineError> {
        let documents = self.documents(key.collection)?;
        let wanted = Wanted {
            filter: self.named(key),
            order: Document::new(),
            limit: 1,
        };
        let because = match self.lagging(context) {
            Ok(lagging) if !lagging.covered && !may_prove(key.collection) => {
                self.lacks_own_change()
            }
            Ok(lagging) => match self.ask_secondary(&documents, &wanted, &lagging).await {
                Ok((found, age)) => {
                    let record = records(key.collection, &found)?.pop();
                    let proved = |record: &Record| proves(record, lagging.seen);
                    if lagging.covered || record.as_ref().is_some_and(proved) {
                        return Ok(self.served(record, age));
                    }
                    self.lacks_own_change()
                }
                Err(because) => because,
            },
            Err(because) => because,
        };
        let found = self.ask_primary(&documents, &wanted).await?;
        Ok(Aged::latest(
            records(key.collection, &found)?.pop(),
            because,
        ))
    }

    pub(crate) async fn read_path(
        &self,
        query: &Query,
        context: ReadContext,
    ) -> Result<Aged<Page>, EngineError> {
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
        let found = self
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
        Ok(found.map(|mut records| {
            let more = records.len() > limit;
            records.truncate(limit);
            let next = records
                .last()
                .filter(|_| more)
                .map(|record| Cursor::of(query.path, record));
            Page { records, next }
        }))
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
            .await?
            .answer;
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
    ) -> Result<Aged<Vec<Record>>, EngineError> {
        let documents = self.documents(collection)?;
        let lagging = context.map_or(Err(Because::Asked), |context| self.lagging(context));
        let because = match lagging {
            // A page cannot show that nothing is missing from it.
            Ok(lagging) if !lagging.covered => self.lacks_own_change(),
            Ok(lagging) => match self.ask_secondary(&documents, &wanted, &lagging).await {
                Ok((found, age)) => return Ok(self.served(records(collection, &found)?, age)),
                Err(because) => because,
            },
            Err(because) => because,
        };
        let found = self.ask_primary(&documents, &wanted).await?;
        Ok(Aged::latest(records(collection, &found)?, because))
    }

    fn served<T>(&self, answer: T, age: Duration) -> Aged<T> {
        self.lag_counts().serve(age);
        let age_max = Some(age);
        Aged {
            answer,
            served: Served::Lagging { age_max },
        }
    }

    fn lacks_own_change(&self) -> Because {
        count(&self.lag_counts().own_change);
        Because::Token
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

/// Whether the record is sure to hold all that somebody has seen of it who has seen
/// nothing newer than `seen`.
fn proves(record: &Record, seen: Revision) -> bool {
    may_prove(record.key.collection) && record.header.revision >= seen
}

/// Whether one record can show that at all. An order can: it has no parts, each change
/// replaces its header above the one before, so that a header at least as new as the
/// token is not behind what was seen. Where parts change side by side it proves
/// nothing: by a clock that ran ahead, one part may bear the newer number and yet have
/// been written before another.
fn may_prove(collection: Collection) -> bool {
    match collection {
        Collection::Orders => true,
        Collection::Carts | Collection::Products | Collection::Sessions => false,
    }
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

#[cfg(test)]
mod tests {
    use engine_api::layout::Fields;
    use engine_api::{Content, Header, Part, PartKey, RecordId, Timestamp, Writer};

    use super::*;

    fn at(second: i64) -> Revision {
        let moment = Timestamp::from_unix_micros(1_700_000_000_000_000 + second * 1_000_000);
        Revision::at(moment, Writer::numbered(1))
    }

    fn record(collection: Collection, revision: Revision) -> Record {
        Record {
            key: RecordKey::by_id(collection, RecordId::new("r-1").unwrap()),
            header: Header {
                revision,
                cleared: Revision::ZERO,
                content: Content::Live(Fields::new()),
            },
            parts: Default::default(),
        }
    }

    #[test]
    fn only_an_order_shows_by_its_header_that_nothing_seen_is_missing() {
        let order = record(Collection::Orders, at(5));
        assert!(proves(&order, at(5)) && proves(&order, at(4)));
        assert!(!proves(&order, at(6)));
        for collection in [
            Collection::Carts,
            Collection::Products,
            Collection::Sessions,
        ] {
            let mut record = record(collection, at(5));
            assert!(!proves(&record, at(5)), "{collection}");
            // Another part may be older than this one and yet have been written after it.
            let ahead = Part {
                revision: at(9),
                content: Content::Live(Fields::new()),
            };
            record.parts.insert(PartKey::line("p-1"), ahead);
            assert!(!proves(&record, at(9)), "{collection}");
        }
    }
}
