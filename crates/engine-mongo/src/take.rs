//! Taking stock in one step of the server.
//!
//! A take is what many shoppers do to one record at once. As a compare-and-swap
//! all but one of them would lose each round. So the usual take is one update
//! whose filter asks for everything that the take depends on: the zone and its
//! quantity in one `$elemMatch`, the price, and that the order is not known
//! there yet (W12, W13). What the filter does not find, for whatever reason, is
//! read and decided like any other change, which also says why.

use std::collections::BTreeMap;

use engine_api::layout::{Field, Fields, Value};
use engine_api::{
    Authority, Change, Content, Decision, EngineError, Header, Outcome, Part, PartKey,
    PriceCondition, Record, RecordKey, Revision, StockAction, Timestamp, WriteContext, decide,
};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::ReturnDocument;

use crate::document::{hex, inner, number, revision};
use crate::engine::MongoEngine;
use crate::failure::{Asked, DOCUMENT_VALIDATION_FAILURE, Failure, answer};
use crate::value::{field_to_bson, fields_to_bson};

/// Below this many reserved pieces there cannot be too many orders that hold
/// some; above, the rules count them.
const RESERVED_MAX: i64 = 1_000;

/// A take as the update needs it.
struct Take<'a> {
    key: &'a RecordKey,
    part: &'a PartKey,
    price: PriceCondition,
    order: &'a str,
    quantity: u32,
    at: Timestamp,
}

impl MongoEngine {
    /// `None` when the change is no take, or must be looked at more closely.
    pub(crate) async fn take_at_once(
        &self,
        change: &Change,
        context: &WriteContext,
    ) -> Result<Option<Outcome>, EngineError> {
        let (Some(take), Authority::Router { generation }) = (Take::of(change), &context.authority)
        else {
            return Ok(None);
        };
        let mut filter = self.named(take.key);
        filter.extend(take.filter(context.now));
        let update = take.update(number("a generation", generation.0)?, context)?;
        let documents = self.documents(take.key.collection)?;
        let updating = documents
            .find_one_and_update(filter, update)
            .projection(doc! { "change": 1 })
            .return_document(ReturnDocument::After);
        match answer(self.limit(), Asked::Write, updating).await {
            Ok(Some(document)) => {
                let numbered = inner(&document, "change").and_then(|it| revision(it, "revision"));
                let revision =
                    numbered.map_err(|unreadable| unreadable.at(take.key.collection, &document))?;
                Ok(Some(Outcome::Done { revision }))
            }
            // A fence says why when the change is decided.
            Ok(None)
            | Err(Failure::Refused {
                code: DOCUMENT_VALIDATION_FAILURE,
                ..
            }) => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }
}

impl Take<'_> {
    fn of(change: &Change) -> Option<Take<'_>> {
        let Change::Stock {
            key,
            part,
            price,
            action:
                StockAction::Take {
                    order,
                    quantity,
                    at,
                },
        } = change
        else {
            return None;
        };
        Some(Take {
            key,
            part,
            price: *price,
            order,
            quantity: *quantity,
            at: *at,
        })
    }

    fn filter(&self, now: Timestamp) -> Document {
        let mut filter = doc! {
            "shard_key": hex(&self.key.shard_key),
            "header.live": true,
            "$or": [
                { "expires_at": { "$exists": false } },
                { "expires_at": { "$gt": now.unix_micros() } },
            ],
            "parts": { "$elemMatch": {
                "kind": self.part.kind().name(),
                "path": self.part.path().to_vec(),
                "live": true,
                "fields.available": { "$gte": i64::from(self.quantity) },
                "fields.reserved": { "$lt": RESERVED_MAX },
                "fields.floor": { "$not": { "$gte": self.at.unix_micros() } },
                "fields.reservations.key": { "$ne": self.order },
            } },
        };
        if let PriceCondition::Exactly(seen) = self.price {
            let price = format!("header.fields.{}", Field::Price);
            filter.insert(price, field_to_bson(&Value::Decimal(seen)));
        }
        filter
    }

    fn update(
        &self,
        generation: i64,
        context: &WriteContext,
    ) -> Result<Vec<Document>, EngineError> {
        let quantity = i64::from(self.quantity);
        let reserved = doc! {
            "available": { "$subtract": ["$$this.fields.available", quantity] },
            "reserved": { "$add": ["$$this.fields.reserved", quantity] },
            "reservations": { "$concatArrays": [
                { "$ifNull": ["$$this.fields.reservations", []] },
                // Literal, or an order's id could be taken for an expression.
                { "$literal": self.reservation(context)? },
            ] },
        };
        let taken = doc! {
            "revision": numbered_above(context.revision),
            "fields": { "$mergeObjects": ["$$this.fields", reserved] },
        };
        let meant = doc! { "$and": [
            { "$eq": ["$$this.kind", self.part.kind().name()] },
            { "$eq": ["$$this.path", { "$literal": self.part.path().to_vec() }] },
        ] };
        let parts = doc! { "$map": { "input": "$parts", "in": { "$cond": [
            &meant, { "$mergeObjects": ["$$this", taken] }, "$$this",
        ] } } };
        let revision = doc! { "$max": { "$map": {
            "input": { "$filter": { "input": "$parts", "cond": meant } },
            "in": "$$this.revision",
        } } };
        Ok(vec![
            doc! { "$set": {
                "parts": parts,
                "generation": generation,
                "stamp": ObjectId::new(),
                "written_at": context.now.unix_micros(),
            } },
            doc! { "$set": { "change": { "removed": false, "revision": revision } } },
            doc! { "$unset": ["move", "term"] },
        ])
    }

    /// The reservation as the rules themselves write it: taken from a stock
    /// that has these pieces and nothing else.
    fn reservation(&self, context: &WriteContext) -> Result<Bson, EngineError> {
        let pieces = Value::Int(i64::from(self.quantity));
        let stock = Fields::new()
            .with(Field::Received, pieces.clone())
            .with(Field::Available, pieces)
            .with(Field::Reserved, Value::Int(0))
            .with(Field::Sold, Value::Int(0));
        let record = Record {
            key: self.key.clone(),
            header: Header {
                revision: Revision::ZERO,
                cleared: Revision::ZERO,
                content: Content::Live(Fields::new()),
            },
            parts: BTreeMap::from([(self.part.clone(), Part::live(Revision::ZERO, stock))]),
        };
        let alone = Change::Stock {
            key: self.key.clone(),
            part: self.part.clone(),
            price: PriceCondition::Any,
            action: StockAction::Take {
                order: self.order.to_owned(),
                quantity: self.quantity,
                at: self.at,
            },
        };
        let written = match decide(Some(&record), &alone, context)? {
            Decision::Write { record, .. } => record.part(self.part).map(fields_to_bson),
            Decision::Answer(_) => None,
        };
        written
            .and_then(|mut fields| fields.remove(Field::Reservations.name()))
            .ok_or_else(|| EngineError::Invalid {
                reason: format!("order {} cannot hold {} pieces", self.order, self.quantity),
            })
    }
}

/// [`Revision::above`] what the part has, in the server's language: the
/// engine numbers stock itself, so that takes do not refuse one another (W5).
fn numbered_above(proposed: Revision) -> Document {
    let step = Revision::above(proposed, proposed.writer()).to_i64() - proposed.to_i64();
    let own = proposed.to_i64() % step;
    let stored = "$$this.revision";
    let same_step = doc! { "$add": [{ "$subtract": [stored, { "$mod": [stored, step] }] }, own] };
    doc! { "$cond": [
        { "$gt": [proposed.to_i64(), stored] },
        proposed.to_i64(),
        { "$cond": [
            { "$gt": [same_step.clone(), stored] },
            same_step.clone(),
            { "$add": [same_step, step] },
        ] },
    ] }
}

#[cfg(test)]
mod tests {
    use engine_api::Writer;
    use mongodb::bson::Bson;

    use super::*;

    /// Just enough of the server's language to run [`numbered_above`].
    fn evaluate(expression: &Bson, stored: i64) -> i64 {
        let Bson::Document(document) = expression else {
            return expression.as_i64().unwrap_or(stored);
        };
        let (operator, operands) = document.iter().next().unwrap();
        let of = |index: usize| evaluate(&operands.as_array().unwrap()[index], stored);
        match operator.as_str() {
            "$cond" if of(0) == 1 => of(1),
            "$cond" => of(2),
            "$gt" => i64::from(of(0) > of(1)),
            "$add" => of(0) + of(1),
            "$subtract" => of(0) - of(1),
            "$mod" => of(0) % of(1),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn the_server_numbers_like_the_rules() {
        let revision = |micros: i64, writer: u8| {
            Revision::at(
                Timestamp::from_unix_micros(micros),
                Writer::numbered(writer),
            )
        };
        for stored in [(1_000, 3), (2_000, 0), (2_000, 3), (2_000, 63), (9_000, 5)] {
            for proposed in [(2_000, 0), (2_000, 3), (2_000, 63), (5_000, 1)] {
                let (stored, proposed) = (
                    revision(stored.0, stored.1),
                    revision(proposed.0, proposed.1),
                );
                let expected = if proposed > stored {
                    proposed
                } else {
                    Revision::above(stored, proposed.writer())
                };
                let numbered = evaluate(&numbered_above(proposed).into(), stored.to_i64());
                assert_eq!(numbered, expected.to_i64(), "{stored} {proposed}");
            }
        }
    }
}
