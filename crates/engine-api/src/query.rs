//! Reading many records: by access path in pages, and whole collections by scan.

use std::cmp::Ordering;
use std::sync::Arc;

use layout::{AccessPath, Collection, Direction, Field, Scope, Value};

use crate::record::{Record, RecordId};

/// The most records one page holds, of a query or of a scan.
pub const PAGE_RECORDS_MAX: usize = 1000;

/// A page of an access path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    pub path: AccessPath,
    /// Values of the path's `equals` fields, in their order.
    pub equals: Vec<Value>,
    pub range: SortRange,
    /// The page starts after this place.
    pub after: Option<Cursor>,
    pub limit: usize,
}

/// Bounds of the path's sort field, both included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SortRange {
    pub least: Option<Value>,
    pub most: Option<Value>,
}

/// A place in an ordered answer: never an offset, never an engine's own cursor (W31).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub sort: Option<Value>,
    pub id: RecordId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub records: Vec<Record>,
    /// Where the next page starts; `None` at the end.
    pub next: Option<Cursor>,
}

/// A page of all images of a collection in a scope, marks and expired ones included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    pub collection: Collection,
    pub scope: Scope,
    pub after: Option<ScanPosition>,
    pub until: Option<ScanPosition>,
    pub limit: usize,
}

/// A place in an engine's own key order; only that engine understands it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScanPosition(pub Vec<u8>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPage {
    pub images: Vec<Record>,
    pub next: Option<ScanPosition>,
}

/// What is done with an image where it was read; called by one thread at a time.
pub type Look = Arc<dyn Fn(&Record) + Send + Sync>;

impl Query {
    /// The first page of a path.
    pub fn first(path: AccessPath, equals: Vec<Value>, limit: usize) -> Query {
        Query {
            path,
            equals,
            range: SortRange::default(),
            after: None,
            limit,
        }
    }

    #[must_use]
    pub fn after(mut self, cursor: Cursor) -> Query {
        self.after = Some(cursor);
        self
    }
}

impl Cursor {
    /// The record's own place in the order of `path`.
    pub fn of(path: AccessPath, record: &Record) -> Cursor {
        let sort = path
            .shape()
            .sort
            .and_then(|(field, _)| Some(record.header.content.live()?.get(field)?.clone()));
        Cursor {
            sort,
            id: record.key.id.clone(),
        }
    }

    /// The order of the path's answers: by sort field in its direction, then by id upwards.
    pub fn compare(&self, other: &Cursor, path: AccessPath) -> Ordering {
        let by_sort = match (&self.sort, &other.sort, path.shape().sort) {
            (Some(own), Some(others), Some((_, direction))) => {
                let ascending = compare_values(own, others);
                if direction == Direction::Descending {
                    ascending.reverse()
                } else {
                    ascending
                }
            }
            _ => Ordering::Equal,
        };
        by_sort.then_with(|| self.id.cmp(&other.id))
    }
}

impl SortRange {
    pub fn contains(&self, value: &Value) -> bool {
        self.least
            .as_ref()
            .is_none_or(|least| compare_values(least, value).is_le())
            && self
                .most
                .as_ref()
                .is_none_or(|most| compare_values(value, most).is_le())
    }
}

/// Whether a live header answers the query (the cursor apart): what an engine
/// checks before it trusts a row of a derived table (W9).
pub fn answers(query: &Query, header: &layout::Fields) -> bool {
    let shape = query.path.shape();
    let equal = |(field, value): (&Field, &Value)| header.get(*field) == Some(value);
    shape.equals.iter().zip(&query.equals).all(equal)
        && shape
            .only
            .is_none_or(|(field, text)| header.text(field) == Some(text))
        && shape.sort.is_none_or(|(field, _)| {
            header
                .get(field)
                .is_some_and(|value| query.range.contains(value))
        })
}

/// Values of one kind in their own order; values of two kinds never meet in one sort field.
fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Decimal(a), Value::Decimal(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        _ => Ordering::Equal,
    }
}
