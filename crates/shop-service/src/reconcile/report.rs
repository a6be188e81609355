//! What was looked at, found, mended and left.

use std::collections::BTreeMap;
use std::fmt;

/// Problems that are left are named up to this number, and counted beyond it.
pub const LEFT_NAMED_MAX: usize = 1_000;

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A record that cannot be read, or contradicts itself.
    Unreadable,
    /// Pieces that are held for an order that does not want them, or that bought them.
    Reservation,
    /// An order whose steps nobody goes on with.
    OpenOrder,
    /// Pieces sold and reserved that are not those of the orders.
    Shelf,
    /// A guest's cart that was closed for a merge and never arrived.
    UnmergedCart,
    /// A second active cart of one owner.
    SecondCart,
    /// A row of a derived table that does not follow its record.
    Row,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub looked_at: u64,
    pub found: u64,
    pub mended: u64,
    pub left: u64,
    /// Changed by shoppers faster than it could be judged.
    pub unjudged: u64,
}

/// A problem that is left to somebody who knows more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    pub kind: Kind,
    pub key: String,
    pub what: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    tallies: BTreeMap<Kind, Tally>,
    left: Vec<Left>,
    /// Records and rows that were read for all of it.
    records: u64,
}

impl Kind {
    pub const ALL: [Kind; 7] = [
        Kind::Unreadable,
        Kind::Reservation,
        Kind::OpenOrder,
        Kind::Shelf,
        Kind::UnmergedCart,
        Kind::SecondCart,
        Kind::Row,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Kind::Unreadable => "records that can be read",
            Kind::Reservation => "reservations",
            Kind::OpenOrder => "open orders",
            Kind::Shelf => "pieces of a shelf",
            Kind::UnmergedCart => "carts to be merged",
            Kind::SecondCart => "active carts",
            Kind::Row => "derived rows",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Report {
    pub fn tally(&self, kind: Kind) -> Tally {
        self.tallies.get(&kind).copied().unwrap_or_default()
    }

    /// The problems that are left, as many as are named.
    pub fn left_named(&self) -> &[Left] {
        &self.left
    }

    pub fn left_count(&self) -> u64 {
        self.tallies.values().map(|tally| tally.left).sum()
    }

    pub fn looked_at(&self) -> u64 {
        self.records
    }

    pub(super) fn read(&mut self, records: usize) {
        self.records += wide(records);
    }

    pub(super) fn look(&mut self, kind: Kind, count: usize) {
        self.tallies.entry(kind).or_default().looked_at += wide(count);
    }

    pub(super) fn mended(&mut self, kind: Kind) {
        let tally = self.tallies.entry(kind).or_default();
        tally.found += 1;
        tally.mended += 1;
    }

    pub(super) fn unjudged(&mut self, kind: Kind, count: usize) {
        self.tallies.entry(kind).or_default().unjudged += wide(count);
    }

    pub(super) fn left(&mut self, kind: Kind, key: String, what: String) {
        let tally = self.tallies.entry(kind).or_default();
        tally.found += 1;
        tally.left += 1;
        if self.left.len() < LEFT_NAMED_MAX {
            self.left.push(Left { kind, key, what });
        }
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
