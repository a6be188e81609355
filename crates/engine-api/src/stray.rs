//! Derived rows that do not follow their records (W9).
//!
//! Where the tables of a record are written one after the other, a crash leaves them. Where one commit
//! holds all of them only somebody who went past the engine does.

use std::fmt;

use layout::{Collection, Scope};
use model::Timestamp;

use crate::query::ScanPosition;
use crate::record::RecordId;

/// A look at the rows of a collection's derived tables, a page at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StraySearch {
    pub collection: Collection,
    /// Rows of records outside are left out; a row without a record may be anybody's.
    pub scope: Scope,
    pub after: Option<ScanPosition>,
    /// Records and rows to look at, about.
    pub limit: usize,
    pub patience: Patience,
    pub now: Timestamp,
}

/// What a row that does not follow its record is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// A change that is under way may be about to put it right: it is left as long as one may take.
    WithChanges,
    /// A stray, at once: for who looks again before it does anything about it.
    Without,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StrayPage {
    /// Records and rows that were compared.
    pub looked_at: usize,
    pub strays: Vec<Stray>,
    pub next: Option<ScanPosition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    pub collection: Collection,
    pub id: RecordId,
    pub table: String,
    pub fault: RowFault,
    /// The patience that it was found with.
    pub patience: Patience,
    /// The row, as its engine finds it again; opaque to everyone else.
    pub row: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFault {
    /// The record has no row in the table: a listing misses it.
    Missing,
    /// The record has no such row any more, or there is no record: a listing reads it in vain.
    Outgrown,
    /// The row holds something else than the record, or ends before it.
    Altered,
}

/// What became of a stray.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrayEnd {
    Mended,
    /// It follows its record by now.
    Follows,
}

impl fmt::Display for Stray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stray { table, id, .. } = self;
        write!(f, "{}/{id}: {} in {table}", self.collection, self.fault)
    }
}

impl fmt::Display for RowFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RowFault::Missing => "has no row",
            RowFault::Outgrown => "has a row too many",
            RowFault::Altered => "has a row of other content",
        })
    }
}
