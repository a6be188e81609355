//! The rules as they stand in the database, and the announcements of fences.

use engine_api::{EngineError, Fence, MoverTerm, Timestamp};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};

use super::GUARDS;
use crate::document::{Unreadable, flag, inner, list, long, number, text};
use crate::validator::{Rules, fence_from_bson, fence_to_bson, unsigned};

pub(super) const RULES_ID: &str = "rules";
pub(super) const ANNOUNCEMENT_ID: &str = "announcement";

/// The rules document.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    /// Counts changes of this document: what is compared and swapped.
    pub number: i64,
    pub token: String,
    /// Whether a change has begun that is not yet in every validator.
    pub pending: bool,
    pub rules: Rules,
    /// Fences in the rules whose announcement may not be written yet.
    pub unannounced: Vec<(Fence, Timestamp)>,
}

/// The fence of an announcement and when it was raised; `None` for the rules document.
pub(crate) fn announcement(document: &Document) -> Result<Option<(Fence, Timestamp)>, EngineError> {
    if document.get_str("_id").ok() != Some(ANNOUNCEMENT_ID) {
        return Ok(None);
    }
    read_announcement(document).map(Some).map_err(damaged)
}

fn read_announcement(document: &Document) -> Result<(Fence, Timestamp), Unreadable> {
    let written_at = Timestamp::from_unix_micros(long(document, "written_at")?);
    Ok((fence_from_bson(inner(document, "fence")?)?, written_at))
}

impl Guard {
    pub fn to_document(&self) -> Result<Document, EngineError> {
        let fences = self
            .rules
            .fences
            .iter()
            .map(fence_to_bson)
            .collect::<Result<Vec<_>, _>>()?;
        let term = |term: &MoverTerm| {
            Ok(doc! { "move": &term.move_name, "term": number("a term", term.term)? })
        };
        let terms = self
            .rules
            .terms
            .iter()
            .map(term)
            .collect::<Result<Vec<_>, EngineError>>()?;
        let announce = |(fence, now): &(Fence, Timestamp)| {
            Ok(doc! { "fence": fence_to_bson(fence)?, "written_at": now.unix_micros() })
        };
        let unannounced = self
            .unannounced
            .iter()
            .map(announce)
            .collect::<Result<Vec<_>, EngineError>>()?;
        Ok(doc! {
            "_id": RULES_ID, "number": self.number, "token": &self.token, "pending": self.pending,
            "fences": fences, "terms": terms, "unannounced": unannounced,
        })
    }

    pub fn from_document(document: &Document) -> Result<Guard, Unreadable> {
        let inner_of = |bson: &Bson| {
            bson.as_document()
                .cloned()
                .ok_or_else(|| Unreadable::new("a rule", bson))
        };
        let documents = |name| {
            list(document, name)?
                .iter()
                .map(inner_of)
                .collect::<Result<Vec<_>, _>>()
        };
        let term = |term: &Document| {
            Ok(MoverTerm {
                move_name: text(term, "move")?.to_owned(),
                term: unsigned(term, "term")?,
            })
        };
        Ok(Guard {
            number: long(document, "number")?,
            token: text(document, "token")?.to_owned(),
            pending: flag(document, "pending")?,
            rules: Rules {
                fences: documents("fences")?
                    .iter()
                    .map(fence_from_bson)
                    .collect::<Result<_, _>>()?,
                terms: documents("terms")?
                    .iter()
                    .map(term)
                    .collect::<Result<_, _>>()?,
            },
            unannounced: documents("unannounced")?
                .iter()
                .map(read_announcement)
                .collect::<Result<_, _>>()?,
        })
    }
}

pub(super) fn new_token() -> String {
    format!("caravan_token_{}", ObjectId::new().to_hex())
}

pub(super) fn damaged(reason: impl ToString) -> EngineError {
    EngineError::Damaged {
        reason: format!("{GUARDS}/{RULES_ID}: {}", reason.to_string()),
    }
}
