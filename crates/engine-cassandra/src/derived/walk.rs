//! Walking the rows of an access path, over as many partitions as it takes.
//!
//! ```text
//!   months or days, one after the other:   2024-03 ──▶ 2024-02 ──▶ …   until the page is full
//!   buckets of each, side by side, merged:   0 │ 1 │ 2 │ … 15
//! ```

use std::cmp::Ordering;
use std::collections::VecDeque;

use engine_api::{Cursor, EngineError, Query};
use futures::{StreamExt, TryStreamExt, stream};
use layout::{AccessPath, Direction, Fields, KeyColumn, Value};
use scylla::response::PagingState;
use scylla::statement::Consistency;
use scylla::value::CqlValue;

use super::{DerivedTable, PathRead};
use crate::calendar::{self, Calendar};
use crate::cell::to_cell;
use crate::connection::{Cells, Connection, PageStart, number};

/// How many rows one page asks the servers for, of one partition.
const PAGE_ROWS_MAX: usize = 64;
const PAGE_ROWS_MIN: usize = 8;
/// Partitions read at once.
const PARTITIONS_AT_ONCE: usize = 16;
/// Rows of a path without an order, which are read before the first is answered.
const UNSORTED_ROWS_MAX: usize = 10_000;

/// A row as a listing meets it.
#[derive(Clone, Debug)]
pub(crate) struct DerivedRow {
    pub key: Vec<Value>,
    pub place: Cursor,
    /// The timestamp it was written at.
    pub stamp: i64,
}

/// A listing under way.
pub(crate) struct Walk<'a> {
    connection: &'a Connection,
    read: &'a PathRead,
    table: &'a DerivedTable,
    query: &'a Query,
    level: Consistency,
    given: Fields,
    /// Months or days still to visit; `None` stands for a table without them.
    periods: VecDeque<Option<String>>,
    lanes: Vec<Lane>,
    page_rows: i32,
}

/// What is known of one partition.
struct Lane {
    cells: Cells,
    rows: VecDeque<DerivedRow>,
    next: Option<PagingState>,
}

impl<'a> Walk<'a> {
    pub async fn open(
        connection: &'a Connection,
        calendar: Option<&Calendar>,
        read: &'a PathRead,
        table: &'a DerivedTable,
        query: &'a Query,
        level: Consistency,
    ) -> Result<Walk<'a>, EngineError> {
        let given = given(query)?;
        let periods = match (calendar::column(&table.table), calendar) {
            (Some(_), Some(calendar)) => {
                let direction = query.path.shape().sort.map(|(_, direction)| direction);
                let direction = direction.unwrap_or(Direction::Ascending);
                let all = calendar.periods(connection, &table.table, &given, direction, level);
                let (least, most) = limits(query);
                calendar::within(&table.table, all.await?, least.as_ref(), most.as_ref())
                    .into_iter()
                    .map(Some)
                    .collect()
            }
            _ => VecDeque::from([None]),
        };
        let lanes_at_once = if is_merged(&table.table, &given) {
            table.buckets.max(1) as usize
        } else {
            1
        };
        let share = 2 * (query.limit + 1) / lanes_at_once;
        let page_rows = share.clamp(PAGE_ROWS_MIN, PAGE_ROWS_MAX);
        Ok(Walk {
            connection,
            read,
            table,
            query,
            level,
            given,
            periods,
            lanes: Vec::new(),
            page_rows: i32::try_from(page_rows).expect("a page is small"),
        })
    }

    /// The next rows in the path's order; fewer than wanted only at the end.
    pub async fn next(&mut self, wanted: usize) -> Result<Vec<DerivedRow>, EngineError> {
        let mut found = Vec::new();
        while found.len() < wanted {
            if self.lanes.iter().any(|lane| lane.rows.is_empty()) {
                self.refill().await?;
            }
            let path = self.read.path;
            match self.lanes.iter_mut().min_by(|a, b| order(a, b, path)) {
                Some(lane) => found.extend(lane.rows.pop_front()),
                None => match self.periods.pop_front() {
                    Some(period) => self.lanes = self.partitions(period.as_deref())?,
                    None => break,
                },
            }
        }
        Ok(found)
    }

    /// Afterwards every partition that is left has a row to show.
    async fn refill(&mut self) -> Result<(), EngineError> {
        let lanes = std::mem::take(&mut self.lanes);
        let refilled = lanes.into_iter().map(|lane| self.refill_one(lane));
        let lanes: Vec<Lane> = stream::iter(refilled.collect::<Vec<_>>())
            .buffered(PARTITIONS_AT_ONCE)
            .try_collect()
            .await?;
        self.lanes = lanes
            .into_iter()
            .filter(|lane| !lane.rows.is_empty())
            .collect();
        Ok(())
    }

    async fn refill_one(&self, mut lane: Lane) -> Result<Lane, EngineError> {
        let is_sorted = self.read.path.shape().sort.is_some();
        while (lane.rows.is_empty() || !is_sorted)
            && let Some(from) = lane.next.take()
        {
            let page = PageStart {
                from,
                rows: self.page_rows,
            };
            let read = &self.read.statement;
            let cells = lane.cells.clone();
            let (rows, next) = self
                .connection
                .read_page(read, cells, self.level, page)
                .await?;
            let shape = self.read.path.shape();
            let (id, sort) = (
                shape.collection.id_field(),
                shape.sort.map(|(field, _)| field),
            );
            for row in rows {
                lane.rows.extend(self.table.read_row(row, id, sort)?);
            }
            lane.next = next;
            if !is_sorted && lane.rows.len() > UNSORTED_ROWS_MAX {
                return Err(EngineError::Unavailable {
                    reason: format!("{} has more than {UNSORTED_ROWS_MAX} rows", self.read.path),
                });
            }
        }
        if !is_sorted {
            lane.rows
                .make_contiguous()
                .sort_by(|a, b| a.place.compare(&b.place, self.read.path));
        }
        Ok(lane)
    }

    /// The partitions of a period: one, or one a bucket.
    fn partitions(&self, period: Option<&str>) -> Result<Vec<Lane>, EngineError> {
        let table = &self.table.table;
        let buckets = match is_merged(table, &self.given) {
            true => (0..self.table.buckets.max(1)).map(Some).collect(),
            false => vec![None],
        };
        buckets
            .into_iter()
            .map(|bucket| {
                let mut cells = Cells::new();
                for column in &table.partition {
                    cells.push(Some(to_cell(&self.value(column, period, bucket)?)));
                }
                for field in &self.read.prefix {
                    let value = self.given.get(*field).expect("the prefix is given");
                    cells.push(Some(to_cell(value)));
                }
                if self.read.path.shape().sort.is_some() {
                    cells.extend(bounds(self.query));
                }
                Ok(Lane {
                    cells,
                    rows: VecDeque::new(),
                    next: Some(PagingState::start()),
                })
            })
            .collect()
    }

    fn value(
        &self,
        column: &KeyColumn,
        period: Option<&str>,
        bucket: Option<u32>,
    ) -> Result<Value, EngineError> {
        match (column, period, bucket) {
            (KeyColumn::Month(_) | KeyColumn::Day(_), Some(period), _) => Ok(Value::text(period)),
            (KeyColumn::Bucket(_), _, Some(bucket)) => Ok(Value::Int(i64::from(bucket))),
            _ => column
                .value(&self.given, self.table.buckets)
                .ok_or_else(|| EngineError::Invalid {
                    reason: format!("{} needs {}", self.read.path, column.source()),
                }),
        }
    }
}

/// Whether the buckets of the table are to be read side by side.
fn is_merged(table: &layout::Table, given: &Fields) -> bool {
    let unknown = |column: &KeyColumn| match column {
        KeyColumn::Bucket(field) => given.get(*field).is_none(),
        _ => false,
    };
    table.partition.iter().any(unknown)
}

fn given(query: &Query) -> Result<Fields, EngineError> {
    let shape = query.path.shape();
    let mut given = Fields::new();
    let only = shape.only.map(|(field, text)| (field, Value::text(text)));
    let equals = shape
        .equals
        .iter()
        .copied()
        .zip(query.equals.iter().cloned());
    for (field, value) in equals.chain(only) {
        given
            .insert(field, value)
            .map_err(|error| EngineError::Invalid {
                reason: error.to_string(),
            })?;
    }
    Ok(given)
}

fn order(a: &Lane, b: &Lane, path: AccessPath) -> Ordering {
    match (a.rows.front(), b.rows.front()) {
        (Some(a), Some(b)) => a.place.compare(&b.place, path),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
}

/// The range of the sort field, cut to where the page starts.
fn limits(query: &Query) -> (Option<Value>, Option<Value>) {
    let (mut least, mut most) = (query.range.least.clone(), query.range.most.clone());
    let after = query.after.as_ref().and_then(|after| after.sort.as_ref());
    if let (Some(after), Some((_, direction))) = (after, query.path.shape().sort) {
        let is_within = |bound: &Option<Value>, wanted: Ordering| {
            bound
                .as_ref()
                .is_some_and(|bound| compare(after, bound) != wanted)
        };
        match direction {
            Direction::Ascending if !is_within(&least, Ordering::Greater) => {
                least = Some(after.clone())
            }
            Direction::Descending if !is_within(&most, Ordering::Less) => {
                most = Some(after.clone())
            }
            Direction::Ascending | Direction::Descending => {}
        }
    }
    (least, most)
}

fn bounds(query: &Query) -> [Option<CqlValue>; 2] {
    let (least, most) = limits(query);
    let whole = |value: Option<Value>| value.as_ref().and_then(whole_number);
    [
        number(whole(least).unwrap_or(i64::MIN)),
        number(whole(most).unwrap_or(i64::MAX)),
    ]
}

fn compare(a: &Value, b: &Value) -> Ordering {
    whole_number(a).cmp(&whole_number(b))
}

fn whole_number(value: &Value) -> Option<i64> {
    match value {
        Value::Timestamp(at) => Some(at.unix_micros()),
        Value::Int(int) => Some(*int),
        _ => None,
    }
}
