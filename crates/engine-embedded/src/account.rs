//! Whether every pointer and due time follows its record, told by two sums over one view (E25).
//!
//! ```text
//!   records ─▶ the rows that follow from each ─▶ sum ╮
//!                                                    ├─ equal: there is nothing to look for
//!   rows, as they stand ───────────────────────▶ sum ╯
//! ```
//!
//! A look at every row reads its record once more. That is only done where the sums differ, to tell which.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use engine_api::EngineError;
use engine_api::layout::Collection;
use xxhash_rust::xxh3::xxh3_128;

use crate::batch::Space;
use crate::read::{apart, id_of, root_of, store_failed, successor};
use crate::stray::following;
use crate::tables::{Tables, due_record};
use crate::view::{View, lock};

/// A view that nobody asks for any more holds old versions and files: it is let go.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// The account of a collection that is being drawn up; a later one takes its place.
#[derive(Default)]
pub(crate) struct Accounts(Mutex<BTreeMap<u8, (Account, Instant)>>);

/// A collection's records and rows, as far as they were gone through.
pub(crate) struct Account {
    collection: Collection,
    view: Arc<View>,
    records: Side,
    rows: Side,
}

/// One of the two sums.
#[derive(Clone, Debug)]
struct Side {
    /// What is left.
    spans: Vec<Span>,
    sum: u128,
}

/// Rows of a space from one to another.
#[derive(Clone, Debug)]
struct Span {
    space: Space,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
}

/// What a page of an account came to.
pub(crate) enum Drawn {
    Further(Account),
    /// Everything was gone through.
    Balanced,
    Unbalanced,
}

impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accounts").finish_non_exhaustive()
    }
}

impl Accounts {
    pub(crate) fn take(&self, collection: Collection, number: u64) -> Option<Account> {
        let mut open = lock(&self.0);
        let (account, since) = open.remove(&collection.number())?;
        if account.number() == number {
            return Some(account);
        }
        open.insert(collection.number(), (account, since));
        None
    }

    /// Keeps it for the next page. Answers the number that it is asked for with.
    pub(crate) fn keep(&self, account: Account) -> u64 {
        let number = account.number();
        let collection = account.collection.number();
        lock(&self.0).insert(collection, (account, Instant::now()));
        number
    }

    pub(crate) fn let_go_idle(&self) {
        lock(&self.0).retain(|_, (_, since)| since.elapsed() < IDLE_MAX);
    }
}

impl Account {
    pub(crate) fn open(view: View, tables: &Tables, collection: Collection) -> Account {
        let number = collection.number();
        let mut rows: Vec<Span> = tables
            .pointers(collection)
            .map(|table| Span::under(Space::Paths, vec![table.number]))
            .collect();
        rows.push(Span {
            space: Space::Due,
            from: Bound::Unbounded,
            to: Bound::Unbounded,
        });
        Account {
            collection,
            view: Arc::new(view),
            records: Side::over(vec![Span::under(Space::Records, vec![number])]),
            rows: Side::over(rows),
        }
    }

    fn number(&self) -> u64 {
        self.view.until()
    }

    /// Goes through some records, and some rows beside them. Answers how many there were of both.
    pub(crate) async fn draw(
        mut self,
        tables: &Arc<Tables>,
        records_max: usize,
        rows_max: usize,
    ) -> Result<(usize, Drawn), EngineError> {
        let (view, of, collection) = (self.view.clone(), tables.clone(), self.collection);
        let side = self.records.clone();
        let records = apart(move || side.add_records(&view, &of, collection, records_max));
        let (view, side) = (self.view.clone(), self.rows.clone());
        let rows = apart(move || side.add_rows(&view, collection, rows_max));
        let (records, rows) = tokio::try_join!(records, rows)?;
        let looked_at = records.1 + rows.1;
        (self.records, self.rows) = (records.0, rows.0);
        let is_over = self.records.spans.is_empty() && self.rows.spans.is_empty();
        let drawn = match is_over {
            false => Drawn::Further(self),
            true if self.records.sum == self.rows.sum => Drawn::Balanced,
            true => Drawn::Unbalanced,
        };
        Ok((looked_at, drawn))
    }
}

impl Side {
    fn over(spans: Vec<Span>) -> Side {
        Side { spans, sum: 0 }
    }

    fn add(&mut self, space: Space, row: &[u8], bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.push(space as u8);
        bytes.extend_from_slice(row);
        self.sum = self.sum.wrapping_add(xxh3_128(bytes));
    }

    fn add_records(
        mut self,
        view: &View,
        tables: &Tables,
        collection: Collection,
        limit: usize,
    ) -> Result<(Side, usize), EngineError> {
        let Some(Span { space, from, to }) = self.spans.pop() else {
            return Ok((self, 0));
        };
        let fields = tables.row_fields(collection);
        let (mut met, mut last, mut bytes) = (0, None, Vec::new());
        for entry in view.bodies(from, to.clone()).take(limit) {
            let body = entry.map_err(store_failed)?;
            let id = id_of(&body.key()[1..])?;
            let root = root_of(view, tables, (collection, id), &fields, &body)?;
            for it in following(tables, &root)? {
                self.add(it.space, &it.row, &mut bytes);
            }
            (met, last) = (met + 1, Some(body.key().to_vec()));
        }
        if let Some(last) = last.filter(|_| met == limit) {
            let from = Bound::Excluded(last);
            self.spans.push(Span { space, from, to });
        }
        Ok((self, met))
    }

    fn add_rows(
        mut self,
        view: &View,
        collection: Collection,
        limit: usize,
    ) -> Result<(Side, usize), EngineError> {
        let Some(Span { space, from, to }) = self.spans.pop() else {
            return Ok((self, 0));
        };
        let (mut met, mut last, mut bytes) = (0, None, Vec::new());
        for row in view.range(space, from, to.clone()).take(limit) {
            let (row, _) = row.map_err(store_failed)?;
            let is_meant = match space {
                Space::Due => due_record(&row).is_some_and(|(of, _)| of == collection),
                _ => true,
            };
            if is_meant {
                self.add(space, &row, &mut bytes);
            }
            (met, last) = (met + 1, Some(row));
        }
        if let Some(last) = last.filter(|_| met == limit) {
            let from = Bound::Excluded(last.to_vec());
            self.spans.push(Span { space, from, to });
        }
        Ok((self, met))
    }
}

impl Span {
    /// Everything that begins so.
    fn under(space: Space, prefix: Vec<u8>) -> Span {
        Span {
            space,
            from: Bound::Included(prefix.clone()),
            to: successor(prefix),
        }
    }
}

#[cfg(test)]
mod tests {
    use engine_api::layout::{Field, Fields, Scope, Value};
    use engine_api::{
        Change, Engine, Generation, Patience, RealWorld, RecordId, RecordKey, Revision,
        StraySearch, World, WriteContext, Writer,
    };

    use super::*;
    use crate::engine::{EmbeddedConfig, EmbeddedEngine};

    const CARTS: usize = 25;

    /// Carts of users: each has one pointer.
    async fn engine(folder: &tempfile::TempDir) -> EmbeddedEngine {
        let layout = engine_api::layout::embedded();
        let engine = EmbeddedEngine::open(EmbeddedConfig {
            path: folder.path().join("shop"),
            tables: layout.collections[&Collection::Carts].live.tables.clone(),
            cache_bytes: 1 << 20,
        });
        let engine = engine.unwrap();
        let now = RealWorld::new().now();
        for number in 0..CARTS {
            let id = RecordId::new(format!("cart-{number}")).unwrap();
            let header = Fields::new()
                .with(Field::CartId, Value::text(id.as_str()))
                .with(Field::UserId, Value::text(format!("user-{number}")))
                .with(Field::Status, Value::text("active"))
                .with(Field::Ordinal, Value::Int(1))
                .with(Field::CreatedAt, Value::Timestamp(now))
                .with(Field::UpdatedAt, Value::Timestamp(now));
            let create = Change::CreateIfAbsent {
                key: RecordKey::by_id(Collection::Carts, id),
                header,
                parts: Vec::new(),
            };
            let context = WriteContext {
                authority: engine_api::Authority::Router {
                    generation: Generation(1),
                },
                now,
                revision: Revision::at(now, Writer::numbered(1)),
            };
            assert!(engine.apply(create, context).await.unwrap().is_done());
        }
        engine
    }

    fn search() -> StraySearch {
        StraySearch {
            collection: Collection::Carts,
            scope: Scope::All,
            after: None,
            limit: 10,
            patience: Patience::Without,
            now: RealWorld::new().now(),
        }
    }

    /// To its end. Answers how much was looked at.
    async fn searched(engine: &EmbeddedEngine, mut search: StraySearch) -> usize {
        let mut looked_at = 0;
        loop {
            let page = engine.find_strays(&search).await.unwrap();
            assert!(page.strays.is_empty());
            looked_at += page.looked_at;
            match page.next {
                Some(next) => search.after = Some(next),
                None => return looked_at,
            }
        }
    }

    #[tokio::test]
    async fn where_the_sums_agree_every_record_and_row_is_met_once() {
        let folder = tempfile::tempdir().unwrap();
        let engine = engine(&folder).await;
        assert_eq!(searched(&engine, search()).await, 2 * CARTS);
    }

    #[tokio::test]
    async fn a_search_whose_account_is_gone_begins_one_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let (engine, mut search) = (engine(&folder).await, search());
        let page = engine.find_strays(&search).await.unwrap();
        let mut other = page.next.unwrap();
        *other.0.last_mut().unwrap() ^= 1;
        search.after = Some(other);
        assert_eq!(searched(&engine, search).await, 2 * CARTS);
    }
}
