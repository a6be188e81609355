//! Records: what crosses the engine boundary.
//!
//! A record is a header and parts, each with a revision of its own (W1). A
//! removal leaves a mark. Two images of one record merge part by part, newest
//! wins, in any order and any number of times to the same result.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use layout::{Collection, Field, Fields, PartKind, ShardKey, Value};
use model::Timestamp;

use crate::journal::ChangeKind;
use crate::revision::Revision;

/// Ids are opaque text of 1 to 64 bytes.
pub const ID_BYTES_MAX: usize = 64;

/// How many parts, live or marks, one record may have.
pub const RECORD_PARTS_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(Arc<str>);

/// A record's full name: what it is, and what routes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey {
    pub collection: Collection,
    pub id: RecordId,
    pub shard_key: ShardKey,
}

/// A record as an engine holds it, marks included: an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: RecordKey,
    pub header: Header,
    pub parts: BTreeMap<PartKey, Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub revision: Revision,
    /// Parts with a revision at or below this one are gone: what a removal, or
    /// a new beginning under the same id, leaves of the parts before it.
    pub cleared: Revision,
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub revision: Revision,
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Live(Fields),
    /// A mark: what a removal leaves behind.
    Removed,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartKey {
    kind: PartKind,
    /// Shared when cloned: a record is copied with every change of one of its parts.
    /// `None` where the kind alone names the part.
    path: Option<Arc<[String]>>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("an id has 1 to {max} bytes, this one has {bytes}: shorten it", max = ID_BYTES_MAX)]
    IdLength { bytes: usize },
    #[error("a part of kind {kind} is named by {expected} texts, not {found}", kind = kind.name())]
    PathLength {
        kind: PartKind,
        expected: usize,
        found: usize,
    },
}

impl RecordId {
    pub fn new(id: impl Into<String>) -> Result<RecordId, NameError> {
        let id = id.into();
        if id.is_empty() || id.len() > ID_BYTES_MAX {
            return Err(NameError::IdLength { bytes: id.len() });
        }
        Ok(RecordId(id.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl RecordKey {
    /// A record whose id is its shard key.
    pub fn by_id(collection: Collection, id: RecordId) -> RecordKey {
        let shard_key = ShardKey::of_text(id.as_str());
        RecordKey {
            collection,
            id,
            shard_key,
        }
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.collection, self.id)
    }
}

impl PartKey {
    pub fn new(kind: PartKind, path: Vec<String>) -> Result<PartKey, NameError> {
        if path.len() != kind.path_len() {
            return Err(NameError::PathLength {
                kind,
                expected: kind.path_len(),
                found: path.len(),
            });
        }
        Ok(PartKey::of(kind, path))
    }

    fn of(kind: PartKind, path: impl Into<Arc<[String]>>) -> PartKey {
        let path = Some(path.into()).filter(|path| !path.is_empty());
        PartKey { kind, path }
    }

    pub fn line(product: &str) -> PartKey {
        PartKey::of(PartKind::Line, [product.to_owned()])
    }

    pub fn contribution(product: &str, guest_cart: &str) -> PartKey {
        let path = [product.to_owned(), guest_cart.to_owned()];
        PartKey::of(PartKind::Contribution, path)
    }

    pub fn stock(zone: &str, bucket: u16) -> PartKey {
        PartKey::of(PartKind::Stock, [zone.to_owned(), bucket.to_string()])
    }

    pub fn activity() -> PartKey {
        PartKey {
            kind: PartKind::Activity,
            path: None,
        }
    }

    pub fn expiry() -> PartKey {
        PartKey {
            kind: PartKind::Expiry,
            path: None,
        }
    }

    pub fn kind(&self) -> PartKind {
        self.kind
    }

    pub fn path(&self) -> &[String] {
        self.path.as_deref().unwrap_or_default()
    }
}

impl fmt::Display for PartKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        let mut path = self.path().iter();
        path.try_for_each(|text| write!(f, "/{text}"))
    }
}

impl Content {
    pub fn live(&self) -> Option<&Fields> {
        match self {
            Content::Live(fields) => Some(fields),
            Content::Removed => None,
        }
    }
}

impl Part {
    pub fn live(revision: Revision, fields: Fields) -> Part {
        Part {
            revision,
            content: Content::Live(fields),
        }
    }

    pub fn mark(revision: Revision) -> Part {
        Part {
            revision,
            content: Content::Removed,
        }
    }
}

impl Record {
    /// The fields of a live header; `None` for a mark or an expired record (W2, W7).
    pub fn live_at(&self, now: Timestamp) -> Option<&Fields> {
        if self
            .expires_at()
            .is_some_and(|expires_at| expires_at <= now)
        {
            return None;
        }
        self.header.content.live()
    }

    /// The moment from which the record counts as gone. `None`: never.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.part(&PartKey::expiry())?
            .get(Field::ExpiresAt)?
            .as_timestamp()
    }

    /// The fields of a live part.
    pub fn part(&self, key: &PartKey) -> Option<&Fields> {
        self.parts.get(key)?.content.live()
    }

    pub fn live_parts(&self) -> impl Iterator<Item = (&PartKey, &Fields)> {
        self.parts
            .iter()
            .filter_map(|(key, part)| Some((key, part.content.live()?)))
    }

    /// The newest revision anywhere in the record.
    pub fn newest_revision(&self) -> Revision {
        self.parts
            .values()
            .map(|part| part.revision)
            .fold(self.header.revision, Revision::max)
    }

    /// What a journal says of a record that was left like this.
    pub fn change_kind(&self) -> ChangeKind {
        match self.header.content {
            Content::Live(_) => ChangeKind::Written,
            Content::Removed => ChangeKind::Removed,
        }
    }

    /// Takes from `other` what is newer, part by part (W1, W26). Answers whether anything was.
    pub fn merge(&mut self, other: &Record) -> Merged {
        let mut merged = Merged::Unchanged;
        if other.header.revision > self.header.revision {
            self.header = other.header.clone();
            merged = Merged::Changed;
        }
        for (key, part) in &other.parts {
            if self
                .parts
                .get(key)
                .is_none_or(|own| own.revision < part.revision)
                && part.revision > self.header.cleared
            {
                self.parts.insert(key.clone(), part.clone());
                merged = Merged::Changed;
            }
        }
        let cleared = self.header.cleared;
        self.parts.retain(|_, part| part.revision > cleared);
        merged
    }

    /// Forgets marks of parts older than `before`. Only safe when no copy of
    /// the record is waiting for them.
    pub fn forget_marks(&mut self, before: Timestamp) {
        self.parts
            .retain(|_, part| part.content.live().is_some() || part.revision.time() >= before);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    Changed,
    Unchanged,
}

/// The part that makes a record expire at `at`.
pub fn expiry_fields(at: Timestamp) -> Fields {
    Fields::new().with(Field::ExpiresAt, Value::Timestamp(at))
}
