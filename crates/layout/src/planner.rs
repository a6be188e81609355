//! Finds the table that answers an access path, and what reading it costs.
//!
//! A table answers a path when its partition columns are given by the path or
//! can be counted off, when its rows are exactly those the path asks for, and
//! when they stand in the path's order. A MongoDB index is a derived table here.

use std::fmt;

use crate::collection::Collection;
use crate::column::{clustering_text, partition_text};
use crate::field::Field;
use crate::file::{CollectionLayout, Cut, Store};
use crate::key::Direction;
use crate::path::{AccessPath, Operation, PathShape};
use crate::table::{Body, BucketCounts, KeyColumn, Role, Table};

/// How one access path is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub path: AccessPath,
    pub table: String,
    pub role: Role,
    /// A pointer is followed by a read of the authority.
    pub body: Body,
    pub fan_out: FanOut,
    pub shards: ShardFanOut,
    pub sort: Sort,
}

/// Which partitions of the table are read, on each shard that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanOut {
    OnePartition,
    /// One partition per month or day between the bounds (when the key has a
    /// calendar), times the buckets.
    Partitions {
        calendar: Option<Calendar>,
        buckets: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Calendar {
    Month,
    Day,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardFanOut {
    /// The path gives the whole shard key.
    One,
    /// Ordered ranges, and the path gives the first fields of the shard key.
    SomeRanges,
    /// The path does not give the shard key: each shard is asked.
    All,
}

/// How the answer gets its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// The path asks for no order.
    Unsorted,
    /// Rows are read as they stand.
    Native(Walk),
    /// Partitions one after the other, rows as they stand.
    Chained(Walk),
    /// Several partitions or shards are read side by side and merged.
    Merged(Walk),
}

/// Which way the rows of a partition are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    Forward,
    Backward,
}

/// No table answers the path. The table to add is a suggestion that always works.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("collection {collection} has no table that answers {path:?}: {advice}", path = path.name())]
pub struct Unanswerable {
    pub collection: Collection,
    pub path: AccessPath,
    pub advice: String,
    /// Why each table there is does not answer.
    pub tried: Vec<(String, Mismatch)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    #[error("it holds only records with another {field}")]
    OtherOnly { field: Field },
    #[error("its partition needs {field}, which is not given")]
    PartitionNotGiven { field: Field },
    #[error("its key does not narrow to the given {field}")]
    NotNarrowed { field: Field },
    #[error("its rows do not stand in the order of {field}, then of the id")]
    OtherOrder { field: Field },
}

/// The plan for the collection's live records.
pub fn plan(
    layout: &CollectionLayout,
    path: AccessPath,
    buckets: &BucketCounts,
) -> Result<Plan, Unanswerable> {
    plan_in(layout, &layout.live, path, &[], buckets)
}

/// The plan for the records that went to the collection's history, if it has one.
pub fn plan_history(
    layout: &CollectionLayout,
    path: AccessPath,
    buckets: &BucketCounts,
) -> Option<Result<Plan, Unanswerable>> {
    layout
        .history
        .as_ref()
        .map(|history| plan_in(layout, &history.store, path, &[], buckets))
}

/// The plan within one store for an operation that uses the path: its caller may
/// know more of the shard key than the path gives.
pub fn plan_operation(
    layout: &CollectionLayout,
    store: &Store,
    operation: Operation,
    path: AccessPath,
    buckets: &BucketCounts,
) -> Result<Plan, Unanswerable> {
    plan_in(layout, store, path, operation.also_given(), buckets)
}

fn plan_in(
    layout: &CollectionLayout,
    store: &Store,
    path: AccessPath,
    also_given: &[Field],
    buckets: &BucketCounts,
) -> Result<Plan, Unanswerable> {
    let shape = path.shape();
    let shards = shard_fan_out(layout, &shape, also_given);
    let (mut best, mut tried): (Option<Plan>, Vec<_>) = (None, Vec::new());
    for table in &store.tables {
        let fit = fit(table, &shape, buckets.of(&table.name));
        match fit {
            Err(mismatch) => tried.push((table.name.clone(), mismatch)),
            Ok((fan_out, walk)) => {
                let plan = Plan {
                    path,
                    table: table.name.clone(),
                    role: table.role,
                    body: table.options.body,
                    fan_out,
                    shards,
                    sort: sort(&shape, fan_out, shards, walk),
                };
                // Strictly cheaper only: of equals, the first in the file stays.
                if best.as_ref().is_none_or(|best| cost(&plan) < cost(best)) {
                    best = Some(plan);
                }
            }
        }
    }
    best.ok_or_else(|| Unanswerable {
        collection: layout.collection,
        path,
        advice: advice(path),
        tried,
    })
}

/// What to add so that the path is answered, in the words of a layout file.
pub fn advice(path: AccessPath) -> String {
    advice_with(path, Divided::Yes)
}

/// The same for an engine whose tables are walked in their order, undivided.
pub(crate) fn advice_undivided(path: AccessPath) -> String {
    advice_with(path, Divided::No)
}

enum Divided {
    Yes,
    No,
}

fn advice_with(path: AccessPath, divided: Divided) -> String {
    let shape = path.shape();
    let id = shape.collection.id_field();
    let mut partition: Vec<KeyColumn> = shape
        .equals
        .iter()
        .map(|field| KeyColumn::Field(*field))
        .collect();
    let mut clustering = Vec::new();
    if let Some((field, direction)) = shape.sort {
        if partition.is_empty() && matches!(divided, Divided::Yes) {
            partition = vec![KeyColumn::Day(field), KeyColumn::Bucket(id)];
        }
        clustering.push((KeyColumn::Field(field), direction));
    }
    if !shape.equals.contains(&id) {
        clustering.push((KeyColumn::Field(id), Direction::Ascending));
    }
    let mut advice = format!("add a table with partition {}", partition_text(&partition));
    if !clustering.is_empty() {
        advice += &format!(" and clustering {}", clustering_text(&clustering));
    }
    if let Some((field, value)) = shape.only {
        advice += &format!(" and only {{ {field} = \"{value}\" }}");
    }
    advice
}

fn shard_fan_out(
    layout: &CollectionLayout,
    shape: &PathShape,
    also_given: &[Field],
) -> ShardFanOut {
    let known = |field: &&Field| is_given(shape, **field) || also_given.contains(field);
    let given = layout.shard_key.iter().take_while(known).count();
    match &layout.cut {
        _ if given == layout.shard_key.len() => ShardFanOut::One,
        Cut::Ranges { .. } if given > 0 => ShardFanOut::SomeRanges,
        Cut::Ranges { .. } | Cut::Slots { .. } => ShardFanOut::All,
    }
}

fn fit(table: &Table, shape: &PathShape, bucket_count: u32) -> Result<(FanOut, Walk), Mismatch> {
    if let Some((field, value)) = &table.only
        && shape.only != Some((*field, value.as_str()))
    {
        return Err(Mismatch::OtherOnly { field: *field });
    }
    let (mut calendar, mut buckets) = (None, None);
    for column in &table.partition {
        match column {
            column if is_given(shape, column.source()) => {}
            KeyColumn::Bucket(_) => buckets = Some(bucket_count),
            KeyColumn::Month(field) if is_sort(shape, *field) => {
                calendar = calendar.max(Some(Calendar::Month))
            }
            KeyColumn::Day(field) if is_sort(shape, *field) => {
                calendar = calendar.max(Some(Calendar::Day))
            }
            KeyColumn::Field(field) | KeyColumn::Month(field) | KeyColumn::Day(field) => {
                return Err(Mismatch::PartitionNotGiven { field: *field });
            }
        }
    }
    let equal = |(column, _): &&(KeyColumn, Direction)| matches!(column, KeyColumn::Field(field) if is_given(shape, *field));
    let prefix = table.clustering.iter().take_while(equal).count();
    let wanted = shape
        .equals
        .iter()
        .copied()
        .chain(shape.only.map(|(field, _)| field));
    for field in wanted {
        let narrowed = table.only.as_ref().is_some_and(|(only, _)| *only == field)
            || table.partition.contains(&KeyColumn::Field(field))
            || table.clustering[..prefix]
                .iter()
                .any(|(column, _)| *column == KeyColumn::Field(field));
        if !narrowed {
            return Err(Mismatch::NotNarrowed { field });
        }
    }
    let walk = walk(shape, &table.clustering[prefix..])?;
    let fan_out = match (calendar, buckets) {
        (None, None) => FanOut::OnePartition,
        (calendar, buckets) => FanOut::Partitions {
            calendar,
            buckets: buckets.unwrap_or(1),
        },
    };
    Ok((fan_out, walk))
}

/// Rows must stand as the path wants them, the id deciding ties upwards, or
/// exactly the other way round.
fn walk(shape: &PathShape, columns: &[(KeyColumn, Direction)]) -> Result<Walk, Mismatch> {
    let Some((field, direction)) = shape.sort else {
        return Ok(Walk::Forward);
    };
    let order = [
        (KeyColumn::Field(field), direction),
        (
            KeyColumn::Field(shape.collection.id_field()),
            Direction::Ascending,
        ),
    ];
    let reversed = order
        .clone()
        .map(|(column, direction)| (column, opposite(direction)));
    if columns.starts_with(&order) {
        Ok(Walk::Forward)
    } else if columns.starts_with(&reversed) {
        Ok(Walk::Backward)
    } else {
        Err(Mismatch::OtherOrder { field })
    }
}

fn sort(shape: &PathShape, fan_out: FanOut, shards: ShardFanOut, walk: Walk) -> Sort {
    if shape.sort.is_none() {
        return Sort::Unsorted;
    }
    match (shards, fan_out) {
        (ShardFanOut::SomeRanges | ShardFanOut::All, _) => Sort::Merged(walk),
        (ShardFanOut::One, FanOut::OnePartition) => Sort::Native(walk),
        (ShardFanOut::One, FanOut::Partitions { buckets: 1, .. }) => Sort::Chained(walk),
        (ShardFanOut::One, FanOut::Partitions { .. }) => Sort::Merged(walk),
    }
}

/// Calendar first, because its partitions grow with the period asked for; then
/// buckets; then whether a second read must follow.
fn cost(plan: &Plan) -> (Option<Calendar>, u32, u8) {
    let (calendar, buckets) = match plan.fan_out {
        FanOut::OnePartition => (None, 0),
        FanOut::Partitions { calendar, buckets } => (calendar, buckets),
    };
    (calendar, buckets, u8::from(plan.body == Body::Pointer))
}

fn is_given(shape: &PathShape, field: Field) -> bool {
    shape.equals.contains(&field) || shape.only.is_some_and(|(only, _)| only == field)
}

fn is_sort(shape: &PathShape, field: Field) -> bool {
    shape.sort.is_some_and(|(sort, _)| sort == field)
}

const fn opposite(direction: Direction) -> Direction {
    match direction {
        Direction::Ascending => Direction::Descending,
        Direction::Descending => Direction::Ascending,
    }
}

impl fmt::Display for FanOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FanOut::OnePartition => write!(f, "one partition"),
            FanOut::Partitions {
                calendar: None,
                buckets,
            } => write!(f, "{buckets} buckets"),
            FanOut::Partitions {
                calendar: Some(calendar),
                buckets: 1,
            } => write!(f, "each {calendar}"),
            FanOut::Partitions {
                calendar: Some(calendar),
                buckets,
            } => {
                write!(f, "each {calendar} × {buckets} buckets")
            }
        }
    }
}

impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Calendar::Month => "month",
            Calendar::Day => "day",
        })
    }
}

impl fmt::Display for ShardFanOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ShardFanOut::One => "one shard",
            ShardFanOut::SomeRanges => "shards of some ranges",
            ShardFanOut::All => "every shard",
        })
    }
}

impl fmt::Display for Sort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (how, walk) = match self {
            Sort::Unsorted => return f.write_str("none"),
            Sort::Native(walk) => ("native", walk),
            Sort::Chained(walk) => ("chained", walk),
            Sort::Merged(walk) => ("merged", walk),
        };
        match walk {
            Walk::Forward => write!(f, "{how}"),
            Walk::Backward => write!(f, "{how}, backward"),
        }
    }
}
