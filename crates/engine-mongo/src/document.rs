//! Records as documents.
//!
//! ```text
//! { _id, shard_key: hex, slot, generation | move + term, stamp, written_at,
//!   change: { removed, revision }, expires_at?, collect_at?, oldest_mark?, condemned?,
//!   header: { revision, cleared, live, fields },
//!   parts: [ { kind, path: […], revision, live, fields } ] }
//! ```
//!
//! The shard key is hexadecimal text, because MongoDB orders binary values by
//! length first and a range scope needs byte order. Parts are a list, so that
//! no product id ever becomes a field name. `expires_at`, `collect_at` and
//! `oldest_mark` repeat what stands in the parts, for the indexes. `stamp` is new with every write: a
//! counter would start again after a record was collected, and an old reader
//! would take the new record for the one it had seen.

use std::collections::BTreeMap;

use engine_api::layout::{Collection, PartKind, ShardKey};
use engine_api::{
    Authority, ChangeKind, Content, EngineError, Header, Part, PartKey, Record, RecordId,
    RecordKey, Revision, WriteContext,
};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};

use crate::forgetting::CONDEMNED;
use crate::value::{fields_from_bson, fields_to_bson};

/// A stored document with what a compare-and-swap needs of it.
#[derive(Debug)]
pub(crate) struct Stored {
    pub record: Record,
    pub stamp: ObjectId,
    pub condemned: bool,
}

/// Bytes in the database that are no record of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is not as Caravan writes it: {found}")]
pub(crate) struct Unreadable {
    what: String,
    found: String,
}

impl Unreadable {
    pub(crate) fn new(what: impl Into<String>, found: &Bson) -> Unreadable {
        // The type alone: values belong to shoppers and must not reach a log.
        Unreadable {
            what: what.into(),
            found: format!("{:?}", found.element_type()),
        }
    }

    fn missing(what: &str) -> Unreadable {
        Unreadable {
            what: what.to_owned(),
            found: "missing".to_owned(),
        }
    }

    pub(crate) fn at(self, collection: Collection, document: &Document) -> EngineError {
        let id = document
            .get_str("_id")
            .unwrap_or("a document without a text id");
        EngineError::Damaged {
            reason: format!("{collection}/{id}: {self}"),
        }
    }
}

/// The whole document that a change leaves behind.
pub(crate) fn to_document(
    record: &Record,
    kind: ChangeKind,
    revision: Revision,
    context: &WriteContext,
) -> Result<Document, EngineError> {
    let mut document = doc! {
        "_id": record.key.id.as_str(),
        "shard_key": hex(&record.key.shard_key),
    };
    document.extend(repeated(record));
    match &context.authority {
        Authority::Router { generation } => {
            document.insert("generation", number("a generation", generation.0)?);
        }
        Authority::Mover { term } => {
            document.insert("move", &term.move_name);
            document.insert("term", number("a term", term.term)?);
        }
    }
    document.insert("stamp", ObjectId::new());
    document.insert("written_at", context.now.unix_micros());
    let removed = kind == ChangeKind::Removed;
    document.insert(
        "change",
        doc! { "removed": removed, "revision": revision.to_i64() },
    );
    let mut header = content(record.header.revision, &record.header.content);
    header.insert("cleared", record.header.cleared.to_i64());
    document.insert("header", header);
    let part = |(key, part): (&PartKey, &Part)| {
        let mut document = content(part.revision, &part.content);
        document.insert("kind", key.kind().name());
        document.insert("path", key.path().to_vec());
        Bson::Document(document)
    };
    document.insert("parts", record.parts.iter().map(part).collect::<Vec<_>>());
    Ok(document)
}

/// The fields that repeat what stands elsewhere in a document.
pub(crate) const REPEATED: [&str; 4] = ["slot", "expires_at", "collect_at", "oldest_mark"];

pub(crate) fn repeated(record: &Record) -> Document {
    let mut document = doc! { "slot": i32::from(record.key.shard_key.slot().number()) };
    if let Some(expires_at) = record.expires_at() {
        document.insert("expires_at", expires_at.unix_micros());
        document.insert(
            "collect_at",
            DateTime::from_millis(expires_at.unix_micros() / 1000),
        );
    }
    let marks = record
        .parts
        .values()
        .filter(|part| part.content == Content::Removed);
    if let Some(oldest) = marks.map(|part| part.revision).min() {
        document.insert("oldest_mark", oldest.to_i64());
    }
    document
}

pub(crate) fn from_document(
    collection: Collection,
    document: &Document,
) -> Result<Stored, EngineError> {
    read(collection, document).map_err(|unreadable| unreadable.at(collection, document))
}

/// What a compare-and-swap needs, also of a document that is damaged otherwise.
pub(crate) fn stamp_of(
    collection: Collection,
    document: &Document,
) -> Result<ObjectId, EngineError> {
    stamp(document).map_err(|unreadable| unreadable.at(collection, document))
}

pub(crate) fn key_of(collection: Collection, document: &Document) -> Result<RecordKey, Unreadable> {
    let id = text(document, "_id")?;
    Ok(RecordKey {
        collection,
        id: RecordId::new(id).map_err(|_| Unreadable::new("_id", &Bson::String(String::new())))?,
        shard_key: shard_key(text(document, "shard_key")?)?,
    })
}

/// Two digits a byte: sorts like the bytes.
pub(crate) fn hex(key: &ShardKey) -> String {
    key.as_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

pub(crate) fn shard_key(hex: &str) -> Result<ShardKey, Unreadable> {
    let unreadable = || Unreadable::new("shard_key", &Bson::String(String::new()));
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let bytes = hex
        .as_bytes()
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some((digit(*high)? * 16 + digit(*low)?) as u8),
            _ => None,
        })
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(unreadable)?;
    ShardKey::from_bytes(bytes).map_err(|_| unreadable())
}

/// BSON has no unsigned numbers.
pub(crate) fn number(what: &str, number: u64) -> Result<i64, EngineError> {
    i64::try_from(number).map_err(|_| EngineError::Invalid {
        reason: format!("{what} is at most 2^63 - 1, not {number}"),
    })
}

pub(crate) fn long(document: &Document, name: &str) -> Result<i64, Unreadable> {
    match document.get(name) {
        Some(Bson::Int64(number)) => Ok(*number),
        Some(other) => Err(Unreadable::new(name, other)),
        None => Err(Unreadable::missing(name)),
    }
}

pub(crate) fn revision(document: &Document, name: &str) -> Result<Revision, Unreadable> {
    let number = long(document, name)?;
    Revision::from_i64(number).ok_or_else(|| Unreadable::new(name, &Bson::Int64(number)))
}

pub(crate) fn inner<'a>(document: &'a Document, name: &str) -> Result<&'a Document, Unreadable> {
    match document.get(name) {
        Some(Bson::Document(inner)) => Ok(inner),
        Some(other) => Err(Unreadable::new(name, other)),
        None => Err(Unreadable::missing(name)),
    }
}

pub(crate) fn text<'a>(document: &'a Document, name: &str) -> Result<&'a str, Unreadable> {
    match document.get(name) {
        Some(Bson::String(text)) => Ok(text),
        Some(other) => Err(Unreadable::new(name, other)),
        None => Err(Unreadable::missing(name)),
    }
}

pub(crate) fn flag(document: &Document, name: &str) -> Result<bool, Unreadable> {
    match document.get(name) {
        Some(Bson::Boolean(flag)) => Ok(*flag),
        Some(other) => Err(Unreadable::new(name, other)),
        None => Err(Unreadable::missing(name)),
    }
}

pub(crate) fn list<'a>(document: &'a Document, name: &str) -> Result<&'a [Bson], Unreadable> {
    match document.get(name) {
        Some(Bson::Array(list)) => Ok(list),
        Some(other) => Err(Unreadable::new(name, other)),
        None => Err(Unreadable::missing(name)),
    }
}

fn content(revision: Revision, content: &Content) -> Document {
    let mut document = doc! { "revision": revision.to_i64(), "live": content.live().is_some() };
    if let Some(fields) = content.live() {
        document.insert("fields", fields_to_bson(fields));
    }
    document
}

fn read(collection: Collection, document: &Document) -> Result<Stored, Unreadable> {
    let header = inner(document, "header")?;
    let stamp = stamp(document)?;
    let parts = list(document, "parts")?
        .iter()
        .map(part)
        .collect::<Result<BTreeMap<_, _>, _>>()?;
    let header = Header {
        revision: revision(header, "revision")?,
        cleared: revision(header, "cleared")?,
        content: content_of(header)?,
    };
    Ok(Stored {
        record: Record {
            key: key_of(collection, document)?,
            header,
            parts,
        },
        stamp,
        condemned: matches!(document.get(CONDEMNED), Some(mark) if *mark != Bson::Null),
    })
}

fn stamp(document: &Document) -> Result<ObjectId, Unreadable> {
    match document.get("stamp") {
        Some(Bson::ObjectId(stamp)) => Ok(*stamp),
        Some(other) => Err(Unreadable::new("stamp", other)),
        None => Err(Unreadable::missing("stamp")),
    }
}

fn part(bson: &Bson) -> Result<(PartKey, Part), Unreadable> {
    let document = bson
        .as_document()
        .ok_or_else(|| Unreadable::new("a part", bson))?;
    let unreadable = || Unreadable::new("the name of a part", bson);
    let kind = PartKind::named(text(document, "kind")?).ok_or_else(unreadable)?;
    let path = list(document, "path")?
        .iter()
        .map(|step| step.as_str().map(str::to_owned).ok_or_else(unreadable))
        .collect::<Result<Vec<_>, _>>()?;
    let key = PartKey::new(kind, path).map_err(|_| unreadable())?;
    Ok((
        key,
        Part {
            revision: revision(document, "revision")?,
            content: content_of(document)?,
        },
    ))
}

fn content_of(document: &Document) -> Result<Content, Unreadable> {
    Ok(if flag(document, "live")? {
        Content::Live(fields_from_bson(inner(document, "fields")?)?)
    } else {
        Content::Removed
    })
}

#[cfg(test)]
mod tests {
    use engine_api::layout::{Field, Fields, Value};
    use engine_api::{Generation, Timestamp, Writer, expiry_fields};

    use super::*;

    #[test]
    fn a_record_with_marks_comes_back_as_it_was() {
        let at = Timestamp::from_unix_micros(1_700_000_000_123_457);
        let revision = Revision::at(at, Writer::numbered(3));
        let fields = Fields::new().with(Field::Name, Value::text("a.b$c"));
        let record = Record {
            key: RecordKey::by_id(Collection::Carts, RecordId::new("C-1").unwrap()),
            header: Header {
                revision,
                cleared: revision.just_before(),
                content: Content::Live(fields.clone()),
            },
            parts: BTreeMap::from([
                (PartKey::line("a.b"), Part::live(revision, fields)),
                (PartKey::contribution("$x", "\0"), Part::mark(revision)),
                (PartKey::expiry(), Part::live(revision, expiry_fields(at))),
            ]),
        };
        let authority = Authority::Router {
            generation: Generation(7),
        };
        let context = WriteContext {
            authority,
            now: at,
            revision,
        };
        let document = to_document(&record, ChangeKind::Written, revision, &context).unwrap();
        assert_eq!(document.get("generation"), Some(&Bson::Int64(7)));
        assert_eq!(
            document.get("expires_at"),
            Some(&Bson::Int64(at.unix_micros()))
        );
        assert_eq!(
            from_document(Collection::Carts, &document).unwrap().record,
            record
        );
    }

    #[test]
    fn hexadecimal_keys_sort_like_their_bytes() {
        let keys = ["", "a", "aa", "b", "я"].map(ShardKey::of_text);
        for a in &keys {
            assert_eq!(shard_key(&hex(a)).as_ref(), Ok(a));
            for b in &keys {
                assert_eq!(a.cmp(b), hex(a).cmp(&hex(b)));
            }
        }
        assert!(shard_key("0").is_err() && shard_key("zz").is_err() && shard_key("ffff").is_err());
    }

    #[test]
    fn a_foreign_document_is_damage_without_its_content() {
        let error = from_document(
            Collection::Carts,
            &doc! { "_id": "C-1", "header": "secret" },
        )
        .unwrap_err();
        let EngineError::Damaged { reason } = error else {
            panic!("{error}")
        };
        assert!(
            reason.contains("carts/C-1: header") && !reason.contains("secret"),
            "{reason}"
        );
    }
}
