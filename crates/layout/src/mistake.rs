//! Mistakes that a file can spell out. Nothing is ever built from them: they are
//! read so that the checker can name each, with its reason and its remedy,
//! instead of calling it an unknown key.

use crate::field::Field;
use crate::place::Place;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub place: Place,
    pub kind: MistakeKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MistakeKind {
    /// `parts = "list"`: lines appended to a list of the row.
    AppendedList { table: String },
    /// `hint_window_seconds` of a table.
    HintWindowOfTable { table: String, seconds: u64 },
    /// `materialized_view_of` another table.
    MaterializedView { table: String, of: String },
    /// `fixed_buckets`: a bucket count as a literal, for ever.
    FixedBuckets { table: String, count: u32 },
    /// `from` of a range names fields that the shard key does not begin with.
    RangeBesideShardKey { named: Vec<Field> },
    /// `max_staleness_seconds`, MongoDB's own bound.
    MaxStaleness { seconds: u64 },
}
