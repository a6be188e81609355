//! The journal: the database's change stream, cut down to what entries need.
//!
//! A position is a resume token: hexadecimal text that sorts in the order of
//! the oplog. The server trims the oplog by its own size, so a position can be
//! lost without anybody's asking; that is `PositionLost` and never a gap (W28).
//! A page that found nothing still moves its position forward, or a quiet
//! collection on a busy set would lose its place.

use std::time::Duration;

use engine_api::{
    ChangeKind, EngineError, JOURNAL_ENTRIES_MAX, JournalEntry, JournalEvent, JournalPage,
    Position, Revision, Timestamp,
};
use mongodb::bson::{Bson, Document, deserialize_from_document, doc, serialize_to_document};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ResumeToken;
use mongodb::options::FullDocumentType;

use crate::document::{Unreadable, flag, inner, key_of, long, revision, text};
use crate::engine::MongoEngine;
use crate::failure::{
    Asked, CHANGE_STREAM_FATAL, CHANGE_STREAM_HISTORY_LOST, FAILED_TO_PARSE, Failure,
    INVALID_RESUME_TOKEN, answer,
};
use crate::forgetting::CONDEMNED;
use crate::guard::{GUARDS, announcement};
use crate::maintain::FORGOTTEN;

/// How long the server waits for news at the end of the journal. It looks
/// through all that is there before it starts waiting.
const NEWS_MAX: Duration = Duration::from_millis(5);

/// The server's codes for a token that it cannot make sense of.
const BAD_TOKENS: std::ops::RangeInclusive<i32> = 40_643..=40_652;

/// The longest token we take for one. Those of a record's change hold its id.
const TOKEN_BYTES_MAX: usize = 4096;

impl MongoEngine {
    /// A new stream begins after everything that the server has applied.
    pub(crate) async fn end_of_journal(&self) -> Result<Position, EngineError> {
        let mut stream = self.stream(None).await?;
        // Under writers its first batch may hold events already, and then it has no place before them. After the
        // first of them is as good: it was applied before this answers.
        if stream.resume_token().is_none() {
            self.next_event(&mut stream).await?;
        }
        position_of(&stream)
    }

    pub(crate) async fn read_journal(
        &self,
        from: &Position,
        limit: usize,
    ) -> Result<JournalPage, EngineError> {
        let limit = limit.clamp(1, JOURNAL_ENTRIES_MAX);
        let mut stream = self.stream(Some(token_of(from)?)).await?;
        let mut entries = Vec::new();
        while let Some(event) = self.next_event(&mut stream).await? {
            if let Some((written_at, event)) = self.entry(&event)? {
                entries.push(JournalEntry {
                    position: position_of(&stream)?,
                    written_at,
                    event,
                });
                if entries.len() == limit {
                    break;
                }
            }
        }
        Ok(JournalPage {
            entries,
            next: position_of(&stream)?,
        })
    }

    async fn stream(
        &self,
        after: Option<ResumeToken>,
    ) -> Result<ChangeStream<Document>, EngineError> {
        let mut names: Vec<&str> = self
            .places()
            .iter()
            .map(|place| place.name.as_str())
            .collect();
        names.push(GUARDS);
        let kept = ["_id", "shard_key", "change", "written_at", "fence"];
        let updated = "updateDescription.updatedFields";
        let mut projection = doc! { "operationType": 1, "ns": 1, updated: 1 };
        projection.extend(kept.map(|name| (format!("fullDocument.{name}"), Bson::Int32(1))));
        let watching = self
            .database()
            .watch()
            .pipeline([
                doc! { "$match": { "ns.coll": { "$in": names } } },
                doc! { "$project": projection },
            ])
            // For updates of stock, which are no whole documents, and for other programs.
            .full_document(FullDocumentType::UpdateLookup)
            .max_await_time(NEWS_MAX)
            .resume_after(after);
        let stream = answer(self.limit(), Asked::Read, watching)
            .await
            .map_err(lost_or)?;
        Ok(stream.with_type())
    }

    async fn next_event(
        &self,
        stream: &mut ChangeStream<Document>,
    ) -> Result<Option<Document>, EngineError> {
        answer(self.limit(), Asked::Read, stream.next_if_any())
            .await
            .map_err(lost_or)
    }

    /// `None` for what is no change of a record: collected garbage, other documents of ours.
    fn entry(&self, event: &Document) -> Result<Option<(Timestamp, JournalEvent)>, EngineError> {
        let unreadable = |unreadable: Unreadable| EngineError::Damaged {
            reason: format!("a change stream's event: {unreadable}"),
        };
        let name = inner(event, "ns")
            .and_then(|namespace| text(namespace, "coll"))
            .map_err(unreadable)?;
        match text(event, "operationType").map_err(unreadable)? {
            "insert" | "replace" => {}
            "update" if is_forgetting(event) => return Ok(None),
            "update" => {}
            "delete" => return Ok(None),
            // Records went away without marks: only a comparison finds out which.
            "drop" | "rename" | "dropDatabase" | "invalidate" => {
                return Err(EngineError::PositionLost);
            }
            _ => return Ok(None),
        }
        let Ok(document) = inner(event, "fullDocument") else {
            // Changed by another program and collected since: nothing is left to copy.
            return Ok(None);
        };
        if name == GUARDS {
            let announced = announcement(document)?;
            return Ok(announced.map(|(fence, at)| (at, JournalEvent::Fenced { fence })));
        }
        let Some(place) = self.places().iter().find(|place| place.name == name) else {
            return Ok(None);
        };
        let read = || {
            let removed = flag(inner(document, "change")?, "removed")?;
            let kind = if removed {
                ChangeKind::Removed
            } else {
                ChangeKind::Written
            };
            let event = JournalEvent::Changed {
                key: key_of(place.collection, document)?,
                kind,
                revision: revision_of(event, document)?,
            };
            let written_at = long(document, "written_at")?;
            Ok((Timestamp::from_unix_micros(written_at), event))
        };
        read()
            .map(Some)
            .map_err(|unreadable: Unreadable| unreadable.at(place.collection, document))
    }
}

/// An update's document is looked up later and may show a later change; the
/// update itself says what it set. The name with the dot is one name there.
fn revision_of(event: &Document, document: &Document) -> Result<Revision, Unreadable> {
    let updated = inner(event, "updateDescription").and_then(|it| inner(it, "updatedFields"));
    match updated {
        Ok(fields) if fields.contains_key("change.revision") => revision(fields, "change.revision"),
        _ => revision(inner(document, "change")?, "revision"),
    }
}

fn is_forgetting(event: &Document) -> bool {
    inner(event, "updateDescription")
        .and_then(|update| inner(update, "updatedFields"))
        .is_ok_and(|fields| fields.contains_key(FORGOTTEN) || fields.contains_key(CONDEMNED))
}

fn token_of(position: &Position) -> Result<ResumeToken, EngineError> {
    let hexadecimal = position.0.iter().all(u8::is_ascii_hexdigit);
    if position.0.is_empty() || position.0.len() > TOKEN_BYTES_MAX || !hexadecimal {
        return Err(EngineError::PositionLost);
    }
    let data = String::from_utf8_lossy(&position.0).into_owned();
    deserialize_from_document(doc! { "_data": data }).map_err(|_| EngineError::PositionLost)
}

fn position_of(stream: &ChangeStream<Document>) -> Result<Position, EngineError> {
    let damaged = |reason: &str| EngineError::Damaged {
        reason: format!("a change stream {reason}"),
    };
    let token = stream
        .resume_token()
        .ok_or_else(|| damaged("has no resume token"))?;
    let token = serialize_to_document(&token)
        .map_err(|_| damaged("has a resume token of another shape"))?;
    let data = token
        .get_str("_data")
        .map_err(|_| damaged("has a resume token of another shape"))?;
    Ok(Position(data.as_bytes().to_vec()))
}

fn lost_or(failure: Failure) -> EngineError {
    match failure {
        Failure::Refused {
            code:
                FAILED_TO_PARSE
                | INVALID_RESUME_TOKEN
                | CHANGE_STREAM_FATAL
                | CHANGE_STREAM_HISTORY_LOST,
            ..
        } => EngineError::PositionLost,
        Failure::Refused { code, .. } if BAD_TOKENS.contains(&code) => EngineError::PositionLost,
        failure => failure.into(),
    }
}
