//! Derived rows that do not follow their records (W9).
//!
//! Only where the tables of a record are written one after the other: a commit that
//! holds all of them leaves no strays.

use layout::Collection;
use model::Timestamp;

use crate::query::ScanPosition;
use crate::record::RecordId;

/// A look at the rows of a collection's derived tables, a page at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StraySearch {
    pub collection: Collection,
    pub after: Option<ScanPosition>,
    /// Records and rows to look at, about.
    pub limit: usize,
    pub now: Timestamp,
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
    /// The row, as its engine finds it again; opaque to everyone else.
    pub row: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFault {
    /// The record has no row in the table: a listing misses it.
    Missing,
    /// The record has no such row any more, or there is no record: a listing reads it in vain.
    Outgrown,
}

/// What became of a stray.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrayEnd {
    Mended,
    /// It follows its record by now.
    Follows,
}
