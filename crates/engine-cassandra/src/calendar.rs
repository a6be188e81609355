//! The calendar: which months or days a divided table has rows in.
//!
//! A listing without a lower bound would otherwise have to visit every month
//! since the beginning of time. An entry is written before the first row of its
//! period, in the same batch, and never taken back: a period without rows costs
//! a reader one look.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use engine_api::EngineError;
use layout::key::encode_value;
use layout::{Direction, Fields, KeyColumn, Table, Value};
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlValue;

use crate::config::OpenError;
use crate::connection::{Bound, Cells, Columns, Connection, text};
use crate::failure::damaged;

/// Entries remembered as written. Beyond it all are forgotten and written again.
const KNOWN_MAX: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Calendar {
    insert: PreparedStatement,
    select: PreparedStatement,
    known: Mutex<BTreeSet<Entry>>,
}

/// A period of a table, within what the rest of the partition key names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    table: String,
    owner: Vec<u8>,
    period: String,
}

impl Calendar {
    pub async fn prepare(connection: &Connection, keyspace: &str) -> Result<Calendar, OpenError> {
        let insert =
            format!("INSERT INTO {keyspace}.calendar (table_name, owner, period) VALUES (?, ?, ?)");
        let select =
            format!("SELECT period FROM {keyspace}.calendar WHERE table_name = ? AND owner = ?");
        Ok(Calendar {
            insert: connection.prepare_repeatable(&insert).await?,
            select: connection.prepare_repeatable(&select).await?,
            known: Mutex::default(),
        })
    }

    /// What has to be written with the rows of a header, as far as it is not known to be there.
    pub fn missing(&self, table: &Table, header: &Fields) -> Option<Entry> {
        let entry = self.entry(table, header)?;
        (!self.known().contains(&entry)).then_some(entry)
    }

    /// The period of a header's row, if the table has periods.
    pub fn entry(&self, table: &Table, header: &Fields) -> Option<Entry> {
        let column = column(table)?;
        let period = column.value(header, 1)?.as_text()?.to_owned();
        Some(Entry {
            table: table.name.clone(),
            owner: owner(table, header)?,
            period,
        })
    }

    pub fn put(&self, entry: &Entry) -> Bound<'_> {
        let mut cells = partition(&entry.table, &entry.owner);
        cells.push(text(entry.period.as_str()));
        (&self.insert, cells)
    }

    /// The entries are written.
    pub fn learn(&self, entries: Vec<Entry>) {
        let mut known = self.known();
        if known.len() + entries.len() > KNOWN_MAX {
            known.clear();
        }
        known.extend(entries);
    }

    /// The periods that have rows of `given`, in the order of `direction`.
    pub async fn periods(
        &self,
        connection: &Connection,
        table: &Table,
        given: &Fields,
        direction: Direction,
        level: Consistency,
    ) -> Result<Vec<String>, EngineError> {
        let owner = owner(table, given).ok_or_else(|| EngineError::Invalid {
            reason: format!("{} needs more of its partition key", table.name),
        })?;
        let cells = partition(&table.name, &owner);
        let mut periods = Vec::new();
        for row in connection.read(&self.select, cells, level).await? {
            let period = Columns::of(row).text()?;
            periods.push(period.ok_or_else(|| damaged("a period has no name"))?);
        }
        periods.sort_by_key(|period| number(period));
        if direction == Direction::Descending {
            periods.reverse();
        }
        Ok(periods)
    }

    fn known(&self) -> MutexGuard<'_, BTreeSet<Entry>> {
        self.known
            .lock()
            .expect("no code panics while it holds the lock")
    }
}

/// Keeps the periods between two moments, both included.
pub(crate) fn within(
    table: &Table,
    periods: Vec<String>,
    least: Option<&Value>,
    most: Option<&Value>,
) -> Vec<String> {
    let Some(column) = column(table) else {
        return periods;
    };
    let period_of = |moment: &Value| {
        let field = column.source();
        let header = match moment {
            Value::Timestamp(at) => Fields::new().with(field, Value::Timestamp(*at)),
            _ => return None,
        };
        column.value(&header, 1)?.as_text().map(number)
    };
    let (least, most) = (least.and_then(period_of), most.and_then(period_of));
    let is_within = |period: &String| {
        let period = number(period);
        least.is_none_or(|least| least <= period) && most.is_none_or(|most| period <= most)
    };
    periods.into_iter().filter(is_within).collect()
}

/// The column that divides the table's partitions by time.
pub(crate) fn column(table: &Table) -> Option<&KeyColumn> {
    let is_calendar =
        |column: &&KeyColumn| matches!(column, KeyColumn::Month(_) | KeyColumn::Day(_));
    table.partition.iter().find(is_calendar)
}

/// What the partition key names beside period and bucket.
fn owner(table: &Table, given: &Fields) -> Option<Vec<u8>> {
    let mut owner = Vec::new();
    for column in &table.partition {
        if let KeyColumn::Field(field) = column {
            let value = given.get(*field)?;
            encode_value(&mut owner, value, Direction::Ascending).ok()?;
        }
    }
    Some(owner)
}

/// Year, month, day: the text alone does not sort before the year 0 and after 9999.
fn number(period: &str) -> (i64, i64, i64) {
    let (sign, digits) = match period.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, period),
    };
    let mut numbers = digits.split('-').map(|part| part.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (sign * next(), next(), next())
}

fn partition(table: &str, owner: &[u8]) -> Cells {
    vec![text(table), Some(CqlValue::Blob(owner.to_vec()))]
}

#[cfg(test)]
mod tests {
    use engine_api::Timestamp;
    use layout::{Collection, Field, Role, TableOptions};

    use super::*;

    #[test]
    fn periods_between_two_moments_are_kept_in_order() {
        let table = Table {
            name: "orders_by_period".to_owned(),
            collection: Collection::Orders,
            role: Role::Derived,
            partition: vec![KeyColumn::Day(Field::CreatedAt)],
            clustering: Vec::new(),
            only: None,
            options: TableOptions::default(),
        };
        let periods = ["2024-02-29", "2024-02-28", "2023-12-31", "-0001-12-31"];
        let at = |micros: i64| Value::Timestamp(Timestamp::from_unix_micros(micros));
        let (least, most) = (at(1_704_067_199_999_999), at(1_709_164_799_999_999));
        let kept = within(
            &table,
            periods.map(str::to_owned).to_vec(),
            Some(&least),
            Some(&most),
        );
        assert_eq!(kept, ["2024-02-28", "2023-12-31"]);
        assert!(number("-0001-12-31") < number("0000-01-01"));
        assert!(number("9999-12-31") < number("10000-01-01"));
    }
}
