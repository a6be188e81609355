//! Whether a derived row holds what its record says: every column, and how long it stays.

use std::collections::BTreeMap;

use engine_api::{EngineError, Part, PartKey, Record};
use layout::{Field, PartKind, Table};
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlValue, Row};

use crate::cell::to_cell;
use crate::column::{CART_ITEM_FIELDS, Faith, HeaderColumn, item_to_cell};
use crate::config::OpenError;
use crate::connection::{Cells, Connection};
use crate::schema::{CopyForm, ITEM_KEY, copy_of, has_items, single_parts};

/// A row of a live record, as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowState {
    Follows,
    Missing,
    /// It holds something else than the record, or ends before it.
    Altered,
}

/// Items of a copy are rows of their own, or columns of the only one.
type ItemKey = Vec<String>;
type Columns = BTreeMap<String, CqlValue>;

#[derive(Debug, Default, PartialEq)]
pub(super) struct Content(BTreeMap<ItemKey, Columns>);

#[derive(Debug)]
pub(super) struct ContentRead {
    keyspace: String,
    form: CopyForm,
    header: Vec<HeaderColumn>,
    singles: Vec<(PartKind, Field)>,
    /// The columns that the statement selects, in their order.
    columns: Vec<String>,
    select: PreparedStatement,
}

/// The name under which the rest of a row's life is kept beside its columns.
const TTL: &str = "ttl(revision)";
const REVISION: &str = "revision";

impl ContentRead {
    pub async fn prepare(
        connection: &Connection,
        keyspace: &str,
        table: &Table,
        equal: &str,
    ) -> Result<ContentRead, OpenError> {
        let form = copy_of(table);
        let (header, singles) = match form {
            CopyForm::Pointer => (Vec::new(), Vec::new()),
            CopyForm::Inside | CopyForm::Rows => (
                HeaderColumn::of(table, Faith::Readable),
                single_parts(table.collection).collect(),
            ),
        };
        let mut columns = vec![REVISION.to_owned(), TTL.to_owned()];
        columns.extend(header.iter().map(|column| column.name()));
        columns.extend(singles.iter().map(|(_, field)| field.name().to_owned()));
        match form {
            CopyForm::Rows => {
                columns.extend(ITEM_KEY.iter().map(|(name, _)| (*name).to_owned()));
                columns.extend(CART_ITEM_FIELDS.iter().map(|field| field.name().to_owned()));
            }
            CopyForm::Inside if has_items(table.collection) => {
                columns.extend(["items", "merged_items"].map(str::to_owned));
            }
            CopyForm::Inside | CopyForm::Pointer => {}
        }
        let mut seen = Vec::new();
        columns.retain(|name| {
            let is_new = !seen.contains(name);
            seen.push(name.clone());
            is_new
        });
        let all = columns.join(", ");
        let select = format!("SELECT {all} FROM {keyspace}.{} WHERE {equal}", table.name);
        Ok(ContentRead {
            keyspace: keyspace.to_owned(),
            form,
            header,
            singles,
            columns,
            select: connection.prepare_repeatable(&select).await?,
        })
    }

    pub async fn read(
        &self,
        connection: &Connection,
        key: Cells,
        level: Consistency,
    ) -> Result<Content, EngineError> {
        let rows = connection.read(&self.select, key, level).await?;
        let mut content = Content::default();
        for row in rows {
            let (key, columns) = self.taken_apart(row);
            content.0.insert(key, columns);
        }
        Ok(content)
    }

    /// `left_s` is how long the record lives on, in a table whose rows end by themselves.
    pub fn judge(&self, found: &Content, record: &Record, left_s: Option<i64>) -> RowState {
        let header_row = found.0.iter().find(|(key, _)| is_header(key));
        let Some((_, header)) = header_row.filter(|(_, row)| row.contains_key(REVISION)) else {
            return RowState::Missing;
        };
        let stays = match (header.get(TTL), left_s) {
            (None, None) => true,
            (Some(CqlValue::Int(ttl)), Some(left_s)) => i64::from(*ttl) >= left_s,
            _ => false,
        };
        let without_ttl = found.0.iter().map(|(key, row)| {
            let mut row = row.clone();
            row.remove(TTL);
            (key.clone(), row)
        });
        let same = Content(without_ttl.collect()) == self.expected(record);
        match stays && same {
            true => RowState::Follows,
            false => RowState::Altered,
        }
    }

    fn taken_apart(&self, row: Row) -> (ItemKey, Columns) {
        let named = self.columns.iter().cloned().zip(row.columns);
        let mut columns: Columns = named
            .filter_map(|(name, cell)| Some((name, plain(cell?))))
            .collect();
        let mut key = ItemKey::new();
        if self.form == CopyForm::Rows {
            for (name, _) in ITEM_KEY {
                key.push(match columns.remove(name) {
                    Some(CqlValue::Text(text)) => text,
                    _ => String::new(),
                });
            }
        }
        (key, columns)
    }

    fn expected(&self, record: &Record) -> Content {
        let mut content = Content::default();
        let mut row = Columns::new();
        let revision = record.header.revision.to_i64();
        row.insert(REVISION.to_owned(), CqlValue::BigInt(revision));
        if let Some(live) = record.header.content.live() {
            for column in &self.header {
                let cell = column.cell(live, &self.keyspace);
                row.extend(cell.map(|cell| (column.name(), plain(cell))));
            }
        }
        for (kind, field) in &self.singles {
            let part = record.parts.iter().find(|(key, _)| key.kind() == *kind);
            let value = part.and_then(|(_, part)| part.content.live()?.get(*field).cloned());
            row.extend(value.map(|value| (field.name().to_owned(), to_cell(&value))));
        }
        match self.form {
            CopyForm::Pointer => {}
            CopyForm::Inside => {
                for (name, kind) in [
                    ("items", PartKind::Line),
                    ("merged_items", PartKind::Contribution),
                ] {
                    let items: Vec<_> = self.items(record, kind).collect();
                    if !items.is_empty() {
                        row.insert(name.to_owned(), plain(CqlValue::Map(items)));
                    }
                }
            }
            CopyForm::Rows => {
                let items = record.parts.iter().filter_map(item_row);
                content.0.extend(items);
            }
        }
        let key = match self.form {
            CopyForm::Rows => vec![String::new(); ITEM_KEY.len()],
            CopyForm::Pointer | CopyForm::Inside => ItemKey::new(),
        };
        content.0.insert(key, row);
        content
    }

    fn items(&self, record: &Record, kind: PartKind) -> impl Iterator<Item = (CqlValue, CqlValue)> {
        let parts = record
            .parts
            .iter()
            .filter(move |(key, _)| key.kind() == kind);
        parts.filter_map(|(key, part)| {
            let item = item_to_cell(part.content.live()?, &self.keyspace);
            let text = |name: &String| CqlValue::Text(name.clone());
            let name = match key.path() {
                [product] => text(product),
                path => CqlValue::Tuple(path.iter().map(|name| Some(text(name))).collect()),
            };
            Some((name, item))
        })
    }
}

fn is_header(key: &ItemKey) -> bool {
    key.iter().all(String::is_empty)
}

fn item_row((key, part): (&PartKey, &Part)) -> Option<(ItemKey, Columns)> {
    if !matches!(key.kind(), PartKind::Line | PartKind::Contribution) {
        return None;
    }
    let fields = part.content.live()?;
    let name_at = |index: usize| key.path().get(index).cloned().unwrap_or_default();
    let cells = CART_ITEM_FIELDS.iter().filter_map(|field| {
        let value = fields.get(*field)?;
        Some((field.name().to_owned(), to_cell(value)))
    });
    let named = vec![key.kind().name().to_owned(), name_at(0), name_at(1)];
    Some((named, cells.collect()))
}

/// The same whether we made it or a server answered it: in order, and without names of types and empty fields.
fn plain(cell: CqlValue) -> CqlValue {
    match cell {
        CqlValue::UserDefinedType { fields, .. } => {
            let fields = fields
                .into_iter()
                .filter_map(|(name, cell)| Some((CqlValue::Text(name), plain(cell?))));
            CqlValue::Map(fields.collect())
        }
        CqlValue::List(cells) => CqlValue::List(cells.into_iter().map(plain).collect()),
        CqlValue::Map(entries) => {
            let mut entries: Vec<_> = entries
                .into_iter()
                .map(|(key, cell)| (plain(key), plain(cell)))
                .collect();
            entries.sort_by_cached_key(|(key, _)| format!("{key:?}"));
            CqlValue::Map(entries)
        }
        other => other,
    }
}
