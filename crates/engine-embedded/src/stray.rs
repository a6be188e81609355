//! Pointers and due times that do not follow their records (E25).
//!
//! One commit holds a record and everything that follows from it, so that no crash leaves any: only somebody who went
//! past the engine does. A pointer to nothing would fail a whole listing.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use engine_api::layout::Collection;
use engine_api::{
    EngineError, PAGE_RECORDS_MAX, Record, RecordId, RowFault, Scan, ScanPosition, Stray,
    StrayPage, StraySearch,
};

use crate::account::{Account, Accounts, Drawn};
use crate::batch::Space;
use crate::read::{self, apart, store_failed};
use crate::store::Store;
use crate::tables::{Tables, due_key, due_record, dues_of};
use crate::view::View;

/// The name under which due times are told, beside the tables of the layout.
const DUE_TIMES: &str = "due times";

/// So many rows are summed up for each record: of the two, neither is to wait for long.
const ROWS_A_RECORD: usize = 4;

/// A row that follows from a record.
#[derive(Debug)]
pub(crate) struct Following<'a> {
    pub space: Space,
    pub row: Vec<u8>,
    pub value: Vec<u8>,
    pub table: &'a str,
}

/// Where a search goes on.
enum Place {
    /// With the account of this number: where it balances, that is all.
    Account(u64),
    /// One by one, after this.
    At(Stage, Option<Vec<u8>>),
}

/// What is looked through one by one, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Stage {
    Records = 0,
    Pointers = 1,
    Dues = 2,
}

/// In the place of a stage's number.
const ACCOUNT: u8 = 3;

pub(crate) fn following<'a>(
    tables: &'a Tables,
    record: &Record,
) -> Result<Vec<Following<'a>>, EngineError> {
    let mut rows = Vec::new();
    if let Some(header) = record.header.content.live() {
        for table in tables.pointers(record.key.collection) {
            if let Some(row) = table.row(header, &record.key.id)? {
                rows.push(Following {
                    space: Space::Paths,
                    row,
                    value: vec![record.key.id.as_str().len() as u8],
                    table: &table.name,
                });
            }
        }
    }
    rows.extend(dues_of(record).into_iter().map(|(due, at)| Following {
        space: Space::Due,
        row: due_key(due, at, &record.key),
        value: Vec::new(),
        table: DUE_TIMES,
    }));
    Ok(rows)
}

/// The space of a stray's row, and the row.
pub(crate) fn row_of(stray: &Stray) -> Result<(Space, &[u8]), EngineError> {
    match stray.row.split_first() {
        Some((1, row)) => Ok((Space::Paths, row)),
        Some((2, row)) => Ok((Space::Due, row)),
        _ => Err(invalid()),
    }
}

pub(crate) async fn find(
    store: &Store,
    tables: &Arc<Tables>,
    accounts: &Accounts,
    search: &StraySearch,
) -> Result<StrayPage, EngineError> {
    let (stage, after) = match search.after.as_ref().map(Place::parse).transpose()? {
        None => {
            let account = Account::open(store.view(), tables, search.collection);
            return sum(account, tables, accounts, search).await;
        }
        Some(Place::Account(number)) => match accounts.take(search.collection, number) {
            Some(account) => return sum(account, tables, accounts, search).await,
            None => (Stage::Records, None),
        },
        Some(Place::At(stage, after)) => (stage, after),
    };
    let (view, tables, search) = (store.view(), tables.clone(), search.clone());
    apart(move || look(&view, &tables, &search, stage, after)).await
}

/// A page of both sums.
async fn sum(
    account: Account,
    tables: &Arc<Tables>,
    accounts: &Accounts,
    search: &StraySearch,
) -> Result<StrayPage, EngineError> {
    let records = search.limit.clamp(1, PAGE_RECORDS_MAX);
    let (looked_at, drawn) = account
        .draw(tables, records, ROWS_A_RECORD * records)
        .await?;
    let next = match drawn {
        Drawn::Further(account) => Some(Place::Account(accounts.keep(account))),
        Drawn::Balanced => None,
        Drawn::Unbalanced => Some(Place::At(Stage::Records, None)),
    };
    Ok(StrayPage {
        looked_at,
        strays: Vec::new(),
        next: next.map(Place::position),
    })
}

/// A page of records or rows, one by one.
fn look(
    view: &View,
    tables: &Tables,
    search: &StraySearch,
    stage: Stage,
    after: Option<Vec<u8>>,
) -> Result<StrayPage, EngineError> {
    let (looked_at, strays, next) = match stage {
        Stage::Records => missing(view, tables, search, after)?,
        Stage::Pointers => outgrown(view, tables, search, Space::Paths, after)?,
        Stage::Dues => outgrown(view, tables, search, Space::Due, after)?,
    };
    let next = match (next, stage) {
        (Some(after), stage) => Some(Place::At(stage, Some(after))),
        (None, Stage::Records) => Some(Place::At(Stage::Pointers, None)),
        (None, Stage::Pointers) => Some(Place::At(Stage::Dues, None)),
        (None, Stage::Dues) => None,
    };
    Ok(StrayPage {
        looked_at,
        strays,
        next: next.map(Place::position),
    })
}

/// Whether it is one still.
pub(crate) fn stands(view: &View, tables: &Tables, stray: &Stray) -> Result<bool, EngineError> {
    let record = read::get_in(view, tables, stray.collection, &stray.id)?;
    let rows = match &record {
        Some(record) => following(tables, record)?,
        None => Vec::new(),
    };
    if stray.fault == RowFault::Missing {
        let of_table = rows.iter().filter(|it| it.table == stray.table);
        for it in of_table {
            if view.get(it.space, &it.row).map_err(store_failed)?.is_none() {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    let (space, row) = row_of(stray)?;
    let stored = view.get(space, row).map_err(store_failed)?;
    Ok(stored.is_some() && !rows.iter().any(|it| it.space == space && it.row == row))
}

type Found = (usize, Vec<Stray>, Option<Vec<u8>>);

fn missing(
    view: &View,
    tables: &Tables,
    search: &StraySearch,
    after: Option<Vec<u8>>,
) -> Result<Found, EngineError> {
    let scan = Scan {
        collection: search.collection,
        scope: search.scope.clone(),
        after: after.map(ScanPosition),
        until: None,
        limit: search.limit,
    };
    let page = read::scan(view, tables, &scan)?;
    let mut strays = Vec::new();
    for image in &page.images {
        let mut absent = BTreeMap::new();
        for it in following(tables, image)? {
            if view.get(it.space, &it.row).map_err(store_failed)?.is_none() {
                absent.insert(it.table, ());
            }
        }
        let names = absent.into_keys();
        strays.extend(names.map(|table| Stray {
            collection: search.collection,
            id: image.key.id.clone(),
            table: table.to_owned(),
            fault: RowFault::Missing,
            patience: search.patience,
            row: Vec::new(),
        }));
    }
    Ok((page.images.len(), strays, page.next.map(|next| next.0)))
}

fn outgrown(
    view: &View,
    tables: &Tables,
    search: &StraySearch,
    space: Space,
    after: Option<Vec<u8>>,
) -> Result<Found, EngineError> {
    let limit = search.limit.clamp(1, PAGE_RECORDS_MAX);
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let (mut looked_at, mut strays, mut last) = (0, Vec::new(), None);
    for row in view.range(space, from, Bound::Unbounded).take(limit) {
        let (row, value) = row.map_err(store_failed)?;
        looked_at += 1;
        last = Some(row.to_vec());
        let Some((table, id)) = named(tables, search.collection, space, (&row, &value)) else {
            continue;
        };
        let record = read::get_in(view, tables, search.collection, &id)?;
        let is_outside = |record: &Record| !search.scope.contains(&record.key.shard_key);
        if record.as_deref().is_some_and(is_outside) {
            continue;
        }
        let rows = match &record {
            Some(record) => following(tables, record)?,
            None => Vec::new(),
        };
        if !rows.iter().any(|it| it.space == space && it.row == *row) {
            let tag = if space == Space::Paths { 1 } else { 2 };
            strays.push(Stray {
                collection: search.collection,
                id,
                table: table.to_owned(),
                fault: RowFault::Outgrown,
                patience: search.patience,
                row: [&[tag], &row[..]].concat(),
            });
        }
    }
    Ok((looked_at, strays, last.filter(|_| looked_at == limit)))
}

/// The table that a row belongs to and the id it speaks of; `None` for other collections.
fn named<'a>(
    tables: &'a Tables,
    collection: Collection,
    space: Space,
    (row, value): (&[u8], &[u8]),
) -> Option<(&'a str, RecordId)> {
    if space == Space::Due {
        let (of, id) = due_record(row)?;
        return (of == collection).then_some((DUE_TIMES, id));
    }
    let mut pointers = tables.pointers(collection);
    let table = pointers.find(|table| row.first() == Some(&table.number))?;
    let length = usize::from(*value.first()?);
    let id = std::str::from_utf8(row.get(row.len().checked_sub(length)?..)?).ok()?;
    Some((&table.name, RecordId::new(id).ok()?))
}

impl Place {
    fn parse(position: &ScanPosition) -> Result<Place, EngineError> {
        let (tag, after) = position.0.split_first().ok_or_else(invalid)?;
        if *tag == ACCOUNT {
            let number = after.try_into().map_err(|_| invalid())?;
            return Ok(Place::Account(u64::from_be_bytes(number)));
        }
        let mut stages = [Stage::Records, Stage::Pointers, Stage::Dues].into_iter();
        let stage = stages.find(|stage| *stage as u8 == *tag);
        let after = (!after.is_empty()).then(|| after.to_vec());
        Ok(Place::At(stage.ok_or_else(invalid)?, after))
    }

    fn position(self) -> ScanPosition {
        let (tag, mut after) = match self {
            Place::Account(number) => (ACCOUNT, number.to_be_bytes().to_vec()),
            Place::At(stage, after) => (stage as u8, after.unwrap_or_default()),
        };
        after.insert(0, tag);
        ScanPosition(after)
    }
}

fn invalid() -> EngineError {
    EngineError::Invalid {
        reason: "not a place or a row of this engine".to_owned(),
    }
}
