//! Somebody with a driver of its own alters a copy while its move is ready: each time the record, or the row of a derived
//! table, is named, the cutover refused, and the copy repaired.

mod shop;
#[path = "../../mover/tests/tampered/mod.rs"]
mod tampered;

use std::sync::Arc;

use engine_api::Engine;
use layout::{Collection, Field, Fields, KeyColumn, Value};
use scylla::client::session::Session;
use scylla::value::{CqlValue, Row};
use tampered::{Copies, LINE, REMOVED};

/// A table of the small layout, and the columns of its key.
type Table = (&'static str, &'static [&'static str]);

/// Of the table of sessions, by the small layout.
const SESSION_BUCKETS: u32 = 8;

struct Tampering {
    _cluster: testbed::CassandraCluster,
    copies: Copies,
    session: Session,
    keyspace: String,
    authority: Table,
}

impl Tampering {
    async fn begin(collection: Collection) -> Option<Tampering> {
        let cluster =
            testbed::required_or_skip(testbed::cassandra(testbed::Nodes::One), "Cassandra")?;
        let points = cluster.contact_points();
        let keyspace = cluster.keyspace("tampered");
        let config = |keyspace: String| shop::config(points.clone(), keyspace);
        let whole = config(cluster.keyspace("whole"));
        let source: Arc<dyn Engine> = Arc::new(shop::open(whole).await);
        let target: Arc<dyn Engine> = Arc::new(shop::open(config(keyspace.clone())).await);
        let session = shop::bare_driver(points).await;
        let authority: Table = match collection {
            Collection::Carts => ("carts", &["cart_id", "origin", "kind", "name", "subname"]),
            Collection::Orders => ("orders_by_id", &["order_id"]),
            Collection::Sessions => (
                "user_sessions",
                &[
                    "session_id_bucket",
                    "session_id",
                    "origin",
                    "kind",
                    "name",
                    "subname",
                ],
            ),
            Collection::Products => unreachable!("this engine keeps none"),
        };
        Some(Tampering {
            copies: Copies::make(collection, source, target).await,
            _cluster: cluster,
            session,
            keyspace,
            authority,
        })
    }

    async fn run(&self, statement: &str) {
        let statement = statement.replace("KS", &self.keyspace);
        let done = self.session.query_unpaged(statement.clone(), ()).await;
        done.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }

    /// The columns of the first row of a record that holds all these texts.
    async fn cells(&self, table: &str, columns: &str, texts: &[&str]) -> Vec<Option<CqlValue>> {
        let statement = format!("SELECT {columns} FROM {}.{table}", self.keyspace);
        let answer = self.session.query_unpaged(statement, ()).await;
        let answer = answer.expect("the columns are there").into_rows_result();
        let answer = answer.expect("there are rows");
        let rows = answer.rows::<Row>().expect("any row is a row");
        let has = |row: &Row, text: &str| {
            let cells = row.columns.iter().flatten();
            cells.filter_map(CqlValue::as_text).any(|cell| cell == text)
        };
        let rows = rows.map(|row| row.expect("a readable row"));
        let mut found = rows.filter(|row| texts.iter().all(|text| has(row, text)));
        found.next().expect("the record has such a row").columns
    }

    /// `WHERE` with the whole key of a row.
    async fn place(&self, (table, key): Table, texts: &[&str]) -> String {
        let cells = self.cells(table, &key.join(", "), texts).await;
        let equal = key
            .iter()
            .zip(&cells)
            .map(|(name, cell)| format!("{name} = {}", literal(cell)));
        equal.collect::<Vec<_>>().join(" AND ")
    }

    /// The row of a record's header in the authority.
    async fn header(&self, number: usize) -> String {
        let id = self.copies.id(number);
        let place = self.place(self.authority, &[&id]).await;
        let cut = place
            .split(" AND origin")
            .next()
            .unwrap_or_default()
            .to_owned();
        match self.authority.1.contains(&"origin") {
            true => format!("{cut} AND origin = 0 AND kind = '' AND name = '' AND subname = ''"),
            false => cut,
        }
    }

    /// The same place, in the bucket that the id of another record falls into.
    fn in_its_bucket(&self, place: &str, number: usize) -> String {
        let Some((before, rest)) = place.split_once("session_id_bucket = ") else {
            return place.to_owned();
        };
        let (_, rest) = rest.split_once(' ').expect("the id comes after its bucket");
        let id = Fields::new().with(Field::SessionId, Value::text(self.copies.id(number)));
        let bucket = KeyColumn::Bucket(Field::SessionId).value(&id, SESSION_BUCKETS);
        let bucket = bucket.expect("the id is all that it takes");
        format!("{before}session_id_bucket = {bucket} {rest}")
    }

    async fn partition(&self, number: usize) -> String {
        let header = self.header(number).await;
        header
            .split(" AND origin")
            .next()
            .unwrap_or_default()
            .to_owned()
    }

    async fn set(&self, number: usize, sets: &str) {
        let (table, place) = (self.authority.0, self.header(number).await);
        self.run(&format!("UPDATE KS.{table} SET {sets} WHERE {place}"))
            .await;
    }

    async fn expect(&mut self, what: &str, number: usize, named: &str) {
        let id = format!("/{}:", self.copies.id(number));
        self.copies.expect(what, &[&id, named]).await;
    }

    /// One digit of what stands in a part.
    async fn alter_part(&self, number: usize, kind: &str, name: &str) {
        let (table, id) = (self.authority.0, self.copies.id(number));
        let columns = [self.authority.1.join(", "), "content".to_owned()].join(", ");
        let cells = self.cells(table, &columns, &[&id, kind, name]).await;
        let content = cells
            .last()
            .and_then(|cell| cell.as_ref()?.as_text().cloned());
        let content = content.expect("a part has a content");
        let digit = content.rfind(|letter: char| ('1'..='8').contains(&letter));
        let digit = digit.expect("there is a number in it");
        let next = char::from(content.as_bytes()[digit] + 1);
        let altered = format!("{}{next}{}", &content[..digit], &content[digit + 1..]);
        let place = self.place(self.authority, &[&id, kind, name]).await;
        self.run(&format!(
            "UPDATE KS.{table} SET content = '{altered}' WHERE {place}"
        ))
        .await;
    }
}

fn literal(cell: &Option<CqlValue>) -> String {
    match cell {
        Some(CqlValue::Text(text)) => format!("'{text}'"),
        Some(CqlValue::BigInt(number)) => number.to_string(),
        Some(CqlValue::TinyInt(number)) => number.to_string(),
        other => panic!("{other:?} stands in no key"),
    }
}

/// What can be done to the row that decides.
async fn tamper(it: &mut Tampering, other: &str) {
    let table = it.authority.0;
    let place = it.partition(0).await;
    it.run(&format!("DELETE FROM KS.{table} WHERE {place}"))
        .await;
    it.expect("a record is gone", 0, "missing at the target")
        .await;

    it.set(1, other).await;
    it.expect("a value is another one", 1, "of other content")
        .await;

    let id = it.copies.id(2);
    let columns = format!("{}, revision", it.authority.1.join(", "));
    let mut texts = vec![id.as_str()];
    texts.extend(it.authority.1.contains(&"origin").then_some(""));
    let cells = it.cells(table, &columns, &texts).await;
    let revision = cells.last().and_then(|cell| cell.as_ref()?.as_bigint());
    let revision = revision.expect("a header has a revision") + 128;
    it.set(2, &format!("revision = {revision}")).await;
    it.expect("a revision is another one", 2, "of another revision")
        .await;

    it.set(REMOVED, "live = true").await;
    it.expect("a removal is undone", REMOVED, "alive at the target")
        .await;

    let cells = it
        .cells(
            table,
            &format!("{}, shard_key", it.authority.1.join(", ")),
            &texts,
        )
        .await;
    let shard_key = cells
        .last()
        .and_then(|cell| cell.as_ref()?.as_blob().cloned());
    let shard_key: String = shard_key
        .expect("a header has a shard key")
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let place = it.header(2).await.replace(&id, &it.copies.id(9));
    let place = it.in_its_bucket(&place, 9);
    it.run(&format!(
        "UPDATE KS.{table} SET turn = 1, shard_key = 0x{shard_key}, revision = {revision}, cleared = 0, live = true WHERE {place}"
    ))
    .await;
    it.expect("a record is added", 9, "at the target only")
        .await;
}

/// What can be done to a row that only follows.
async fn tamper_with_rows(it: &mut Tampering, table: Table, altered: Option<&str>) {
    let name = table.0;
    let id = it.copies.id(3);
    let place = it.place(table, &[&id]).await;
    it.run(&format!("DELETE FROM KS.{name} WHERE {place}"))
        .await;
    it.expect("a row is gone", 3, &format!("has no row in {name}"))
        .await;

    let (columns, id) = (table.1.join(", "), it.copies.id(4));
    let cells = it.cells(name, &columns, &[&id]).await;
    let values: Vec<String> = cells.iter().map(literal).collect();
    let values = values.join(", ").replace(&id, &it.copies.id(8));
    let insert = format!("INSERT INTO KS.{name} ({columns}, revision) VALUES ({values}, 1)");
    it.run(&insert).await;
    it.expect("a row is added", 8, &format!("a row too many in {name}"))
        .await;

    let place = it.place(table, &[&id]).await;
    let altered = altered.unwrap_or("revision = 1");
    it.run(&format!("UPDATE KS.{name} SET {altered} WHERE {place}"))
        .await;
    it.expect("a row is altered", 4, &format!("other content in {name}"))
        .await;
}

#[tokio::test]
async fn whatever_a_bare_driver_does_to_a_copy_of_carts_is_named() {
    let Some(mut it) = Tampering::begin(Collection::Carts).await else {
        return;
    };
    tamper(&mut it, "status = 'activf'").await;
    it.alter_part(1, "line", LINE).await;
    it.expect("a line is another one", 1, "is another one at the target")
        .await;
    it.alter_part(2, "expiry", "").await;
    it.expect("it ends at another time", 2, "expires at another time")
        .await;
    let by_user: Table = ("carts_by_user", &["user_id", "status", "cart_id"]);
    let extra = "items = items + {'rug': {name: 'Rug'}}";
    tamper_with_rows(&mut it, by_user, Some(extra)).await;
    it.copies.cut_over().await;
}

#[tokio::test]
async fn whatever_a_bare_driver_does_to_a_copy_of_orders_is_named() {
    let Some(mut it) = Tampering::begin(Collection::Orders).await else {
        return;
    };
    tamper(&mut it, "geo_zone = 'ev'").await;
    let history: Table = (
        "order_history",
        &["user_id", "created_at_month", "created_at", "order_id"],
    );
    tamper_with_rows(&mut it, history, Some("total = 19.91")).await;
    let by_period: Table = (
        "orders_by_period",
        &[
            "created_at_day",
            "order_id_bucket",
            "created_at",
            "order_id",
        ],
    );
    tamper_with_rows(&mut it, by_period, None).await;
    it.copies.cut_over().await;
}

#[tokio::test]
async fn whatever_a_bare_driver_does_to_a_copy_of_sessions_is_named() {
    let Some(mut it) = Tampering::begin(Collection::Sessions).await else {
        return;
    };
    tamper(&mut it, "status = 'opem'").await;
    it.alter_part(2, "expiry", "").await;
    it.expect("it ends at another time", 2, "expires at another time")
        .await;
    let by_user: Table = ("sessions_by_user", &["user_id", "created_at", "session_id"]);
    tamper_with_rows(&mut it, by_user, None).await;
    // The row ends before its record does.
    let (columns, id) = (by_user.1.join(", "), it.copies.id(4));
    let texts = [id.as_str()];
    let values: Vec<String> = it
        .cells(by_user.0, &format!("{columns}, revision"), &texts)
        .await
        .iter()
        .map(literal)
        .collect();
    let values = values.join(", ");
    it.run(&format!(
        "INSERT INTO KS.sessions_by_user ({columns}, revision) VALUES ({values}) USING TTL 600"
    ))
    .await;
    it.expect(
        "a row ends too soon",
        4,
        "other content in sessions_by_user",
    )
    .await;
    it.copies.cut_over().await;
}
