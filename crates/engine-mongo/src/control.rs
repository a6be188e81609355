//! The control store: one small document a value, compared and set by its number.

use async_trait::async_trait;
use engine_api::{CONTROL_BYTES_MAX, ControlStore, ControlValue, EngineError, SetOutcome};
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Document, doc};

use crate::document::number;
use crate::engine::MongoEngine;
use crate::failure::{Asked, DUPLICATE_KEY, Failure, answer};
use crate::validator::unsigned;

pub(crate) const CONTROL: &str = "caravan_control";

#[async_trait]
impl ControlStore for MongoEngine {
    async fn control_get(&self, name: &str) -> Result<Option<ControlValue>, EngineError> {
        let values = self.database().collection::<Document>(CONTROL);
        let found = self.find_confirmed(&values, doc! { "_id": name }).await?;
        found.map(|document| value_of(name, &document)).transpose()
    }

    async fn compare_and_set(
        &self,
        name: &str,
        expected: Option<u64>,
        bytes: Vec<u8>,
    ) -> Result<SetOutcome, EngineError> {
        if bytes.len() > CONTROL_BYTES_MAX {
            return Err(EngineError::Invalid {
                reason: format!("control value {name} is too long"),
            });
        }
        let values = self.database().collection::<Document>(CONTROL);
        let next = expected.unwrap_or(0) + 1;
        let document = doc! {
            "_id": name,
            "number": number("a control value's number", next)?,
            "bytes": Binary { subtype: BinarySubtype::Generic, bytes },
        };
        let set = match expected {
            None => match answer(self.limit(), Asked::Write, values.insert_one(document)).await {
                Ok(_) => true,
                Err(Failure::Refused {
                    code: DUPLICATE_KEY,
                    ..
                }) => false,
                Err(failure) => return Err(failure.into()),
            },
            Some(expected) => {
                let seen =
                    doc! { "_id": name, "number": number("a control value's number", expected)? };
                let replacing = values.replace_one(seen, document);
                answer(self.limit(), Asked::Write, replacing)
                    .await?
                    .matched_count
                    == 1
            }
        };
        Ok(if set {
            SetOutcome::Set { number: next }
        } else {
            SetOutcome::Lost {
                current: self.control_get(name).await?,
            }
        })
    }
}

fn value_of(name: &str, document: &Document) -> Result<ControlValue, EngineError> {
    match (unsigned(document, "number"), document.get("bytes")) {
        (Ok(number), Some(Bson::Binary(binary))) => Ok(ControlValue {
            number,
            bytes: binary.bytes.clone(),
        }),
        _ => Err(EngineError::Damaged {
            reason: format!("{CONTROL}/{name} is no control value"),
        }),
    }
}
