//! Tables: how a record of a collection becomes rows, by its keys.

use std::collections::BTreeMap;

use model::Timestamp;
use xxhash_rust::xxh3::xxh3_64;

use crate::collection::Collection;
use crate::field::Field;
use crate::key::{Direction, KeyError, encode_value};
use crate::value::{Fields, Value};

/// How many buckets a divided partition has at the most.
pub const BUCKETS_MAX: u32 = 4096;

/// One table of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub name: String,
    pub collection: Collection,
    pub role: Role,
    pub partition: Vec<KeyColumn>,
    pub clustering: Vec<(KeyColumn, Direction)>,
    /// Rows only for records whose field has this value.
    pub only: Option<(Field, String)>,
    pub options: TableOptions,
}

/// One authority a collection; the others are derived from it (W9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Authority,
    Derived,
}

/// A key column: a header field, or a value computed from one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyColumn {
    Field(Field),
    /// `YYYY-MM` of a timestamp, in UTC.
    Month(Field),
    /// `YYYY-MM-DD` of a timestamp, in UTC.
    Day(Field),
    /// A hash bucket of a field; the count stands in the map.
    Bucket(Field),
}

/// What only some engines know. An engine refuses what it cannot keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableOptions {
    /// Whether a row holds the whole record or points to the authority's.
    pub body: Body,
    /// Whether parts stand inside the record's row or in rows of their own.
    pub parts: Parts,
    pub compaction: Option<String>,
    pub read_repair: Option<String>,
    pub gc_grace_seconds: Option<u64>,
    pub ttl_seconds: Option<u64>,
    /// Sub-options of the compaction, by the server's names.
    pub compaction_options: BTreeMap<String, String>,
    /// Whether the scheduled repair includes this table.
    pub repair: Repair,
    /// Rows that would share a partition if it were not divided; bucket counts
    /// are sized from it.
    pub expected_rows: Option<u64>,
    /// Further table options, by the server's names.
    pub server_options: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Body {
    #[default]
    Whole,
    Pointer,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parts {
    #[default]
    Inside,
    Rows,
}

/// Rows that expire soon may be left to hints alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repair {
    #[default]
    Scheduled,
    None,
}

/// Bucket counts of tables, taken from the map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketCounts(BTreeMap<String, u32>);

impl BucketCounts {
    pub fn new(counts: BTreeMap<String, u32>) -> BucketCounts {
        BucketCounts(counts)
    }

    /// A table that the map does not mention is not divided.
    pub fn of(&self, table: &str) -> u32 {
        self.0
            .get(table)
            .copied()
            .unwrap_or(1)
            .clamp(1, BUCKETS_MAX)
    }

    /// The counts that were given, by table.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        self.0.iter().map(|(table, count)| (table.as_str(), *count))
    }
}

impl KeyColumn {
    pub const fn source(&self) -> Field {
        match self {
            KeyColumn::Field(field)
            | KeyColumn::Month(field)
            | KeyColumn::Day(field)
            | KeyColumn::Bucket(field) => *field,
        }
    }

    /// The column's value for a record, or `None` when the record lacks the field.
    pub fn value(&self, header: &Fields, bucket_count: u32) -> Option<Value> {
        let value = header.get(self.source())?;
        match self {
            KeyColumn::Field(_) => Some(value.clone()),
            KeyColumn::Month(_) => value.as_timestamp().map(|at| Value::Text(month_of(at))),
            KeyColumn::Day(_) => value.as_timestamp().map(|at| Value::Text(day_of(at))),
            KeyColumn::Bucket(_) => value
                .as_text()
                .map(|text| Value::Int(i64::from(bucket_of(text, bucket_count)))),
        }
    }
}

impl Table {
    /// The record's row key in this table, as ordered bytes: partition columns,
    /// clustering columns, then the id. `None` when the table has no row for it.
    pub fn row_key(
        &self,
        header: &Fields,
        buckets: &BucketCounts,
    ) -> Result<Option<Vec<u8>>, KeyError> {
        if let Some((field, wanted)) = &self.only
            && header.text(*field) != Some(wanted.as_str())
        {
            return Ok(None);
        }
        let count = buckets.of(&self.name);
        let mut key = Vec::with_capacity(64);
        let partition = self
            .partition
            .iter()
            .map(|column| (column, Direction::Ascending));
        let clustering = self
            .clustering
            .iter()
            .map(|(column, direction)| (column, *direction));
        for (column, direction) in partition.chain(clustering) {
            let Some(value) = column.value(header, count) else {
                return Ok(None);
            };
            encode_value(&mut key, &value, direction)?;
        }
        Ok(Some(key))
    }
}

pub fn month_of(at: Timestamp) -> String {
    let (year, month) = at.year_month();
    format!("{year:04}-{month:02}")
}

pub fn day_of(at: Timestamp) -> String {
    let (year, month, day) = at.year_month_day();
    format!("{year:04}-{month:02}-{day:02}")
}

/// xxh3-64 with seed 0 of the text's bytes, unsigned remainder.
pub fn bucket_of(text: &str, count: u32) -> u32 {
    (xxh3_64(text.as_bytes()) % u64::from(count.max(1))) as u32
}
