//! Layouts, and engines opened with them, for the tests.

#![allow(dead_code, reason = "each test file uses its own part of this one")]

pub mod subject;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engine_api::{
    Authority, Change, Engine, EngineError, Freshness, Generation, Guard, Outcome, Page,
    PartChange, PartKey, Query, ReadContext, RealWorld, RecordId, RecordKey, Remedy, Revision,
    Timestamp, World, WriteContext, Writer,
};
use engine_cassandra::{CassandraConfig, CassandraEngine, Keyspace};
use layout::{Collection, EngineKind, Field, Fields, Layout, Value};
use rust_decimal::Decimal;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::deserialize::DeserializationError;
use scylla::errors::ExecutionError;
use scylla::policies::host_filter::AllowListHostFilter;
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;
use scylla::value::{CqlValue, Row};

/// The layouts that ship, as far as they use Cassandra.
pub const SHIPPED: [&str; 3] = ["cassandra-orders", "hybrid", "adr-010-1"];

pub async fn open(config: CassandraConfig) -> CassandraEngine {
    CassandraEngine::open(config)
        .await
        .expect("the server of the testbed takes the schema")
}

/// A layout of these tests, or one that ships.
pub fn layout(name: &str) -> Layout {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = format!("{name}.toml");
    let folders = ["tests/layouts", "../../layouts"];
    let path = folders
        .iter()
        .map(|folder| root.join(folder).join(&file))
        .find(|path| path.exists())
        .expect("a layout of this name is there");
    let text = std::fs::read_to_string(path).expect("the file is readable");
    Layout::parse(&text, &file).expect("the file is a layout")
}

/// The names of a layout's Cassandra engines.
pub fn engines(layout: &Layout) -> Vec<&str> {
    let is_cassandra = |name: &&String| layout.engines[*name].kind == EngineKind::Cassandra;
    let names = layout.engines.keys().filter(is_cassandra);
    names.map(String::as_str).collect()
}

/// The layout's engine, in a keyspace of the test's own, with as many copies as
/// the cluster has nodes.
pub fn config_of(
    layout: &Layout,
    engine: &str,
    contact_points: Vec<SocketAddr>,
    keyspace: String,
) -> CassandraConfig {
    let copies = u32::try_from(contact_points.len()).expect("a small number");
    let keyspace = Keyspace {
        name: keyspace,
        replication: [("datacenter1".to_owned(), copies)].into(),
        ..Keyspace::of(layout, engine).expect("the layout has this engine")
    };
    CassandraConfig {
        request_timeout_ms: 20_000,
        speculative_after_ms: 5_000,
        unsettled_patience_ms: 30_000,
        collect_margin_s: 0,
        clock_off_ms_max: 2_000,
        ..CassandraConfig::new(contact_points, keyspace)
    }
}

/// The small layout of these tests.
pub fn config(contact_points: Vec<SocketAddr>, keyspace: String) -> CassandraConfig {
    config_of(&layout("small"), "cassandra", contact_points, keyspace)
}

/// How often a change is sent again while the servers find each other.
const PERSIST_TIMES: usize = 120;
const BETWEEN_TIMES: Duration = Duration::from_millis(250);

/// A shop's writer: numbers its changes, and expects them to be done.
pub struct Shopkeeper<'a> {
    pub engine: &'a CassandraEngine,
    world: RealWorld,
    last: Cell<Revision>,
}

impl<'a> Shopkeeper<'a> {
    pub fn new(engine: &'a CassandraEngine) -> Shopkeeper<'a> {
        Shopkeeper {
            engine,
            world: RealWorld::new(),
            last: Cell::new(Revision::ZERO),
        }
    }

    pub fn now(&self) -> Timestamp {
        self.world.now()
    }

    pub async fn done(&self, change: Change) -> Revision {
        let answer = self.attempt(change).await.expect("the servers answer");
        let Outcome::Done { revision } = answer else {
            panic!("answered {answer:?}")
        };
        revision
    }

    pub async fn attempt(&self, change: Change) -> Result<Outcome, EngineError> {
        self.engine.apply(change, self.numbered()).await
    }

    /// Sends a change again, as it was, until an answer comes.
    pub async fn persist(&self, change: Change) -> Revision {
        let context = self.numbered();
        for _ in 0..PERSIST_TIMES {
            match self.engine.apply(change.clone(), context.clone()).await {
                Ok(Outcome::Done { revision }) => return revision,
                Ok(outcome) => panic!("answered {outcome:?}"),
                Err(error) => assert_ne!(error.remedy(), Remedy::GiveUp, "{error}"),
            }
            tokio::time::sleep(BETWEEN_TIMES).await;
        }
        panic!("no answer to {:?}", change.key());
    }

    fn numbered(&self) -> WriteContext {
        let writer = Writer::numbered(0);
        let now = self.world.now();
        let revision = Revision::at(now, writer).max(Revision::above(self.last.get(), writer));
        self.last.set(revision);
        WriteContext {
            authority: Authority::Router {
                generation: Generation(1),
            },
            now,
            revision,
        }
    }

    pub fn reading(&self) -> ReadContext {
        ReadContext {
            now: self.world.now(),
            freshness: Freshness::Latest,
        }
    }

    pub async fn page(&self, query: &Query) -> Page {
        let page = self.engine.query(query, self.reading()).await;
        page.expect("the servers answer")
    }
}

/// An order as the shop writes it.
pub fn order(id: &str, user: &str, created_at: Timestamp) -> Change {
    let line = BTreeMap::from([
        ("product_id".to_owned(), Value::text("lamp")),
        ("category".to_owned(), Value::text("light")),
        ("name".to_owned(), Value::text("Lamp")),
        ("quantity".to_owned(), Value::Int(2)),
        ("price".to_owned(), Value::Decimal(Decimal::new(1990, 2))),
    ]);
    let header = Fields::new()
        .with(Field::OrderId, Value::text(id))
        .with(Field::UserId, Value::text(user))
        .with(Field::Status, Value::text("created"))
        .with(Field::CreatedAt, Value::Timestamp(created_at))
        .with(Field::GeoZone, Value::text("eu"))
        .with(Field::Total, Value::Decimal(Decimal::new(3980, 2)))
        .with(Field::Lines, Value::List(vec![Value::Map(line)]));
    Change::CreateIfAbsent {
        key: key(Collection::Orders, id),
        header,
        parts: vec![],
    }
}

/// A cart of a guest, or of a user.
pub fn cart(id: &str, owner: (Field, &str), parts: Vec<(PartKey, Fields)>) -> Change {
    Change::CreateIfAbsent {
        key: key(Collection::Carts, id),
        header: cart_header(id, owner, "active"),
        parts,
    }
}

pub fn cart_header(id: &str, owner: (Field, &str), status: &str) -> Fields {
    Fields::new()
        .with(Field::CartId, Value::text(id))
        .with(owner.0, Value::text(owner.1))
        .with(Field::Status, Value::text(status))
        .with(Field::CreatedAt, Value::Timestamp(RealWorld::new().now()))
        .with(Field::Ordinal, Value::Int(1))
}

pub fn patch(key: &RecordKey, parts: Vec<(PartKey, PartChange)>) -> Change {
    Change::Patch {
        key: key.clone(),
        guard: Guard::default(),
        parts,
    }
}

pub fn item(quantity: i64) -> Fields {
    Fields::new()
        .with(Field::Name, Value::text("Lamp"))
        .with(Field::Price, Value::Decimal(Decimal::new(1990, 2)))
        .with(Field::Quantity, Value::Int(quantity))
}

pub fn key(collection: Collection, id: &str) -> RecordKey {
    RecordKey::by_id(collection, RecordId::new(id).expect("a short id"))
}

/// A driver of the test's own, which knows nothing of the engine.
pub async fn bare_driver(contact_points: Vec<SocketAddr>) -> Session {
    let session = SessionBuilder::new().known_nodes_addr(contact_points);
    session
        .build()
        .await
        .expect("the engine reached the same servers")
}

/// The same for one server of several: the others are never asked.
pub async fn bare_driver_of_one(server: SocketAddr) -> Session {
    let only = AllowListHostFilter::new([server]).expect("an address is an address");
    let session = SessionBuilder::new()
        .known_node_addr(server)
        .host_filter(Arc::new(only));
    session.build().await.expect("the server is up")
}

/// A statement's rows as text, column by column, in the order of the server.
pub async fn rows(session: &Session, statement: &str) -> Vec<String> {
    let rows = try_rows(session, statement, Consistency::LocalQuorum).await;
    rows.expect("the servers take and answer the statement")
}

pub async fn try_rows(
    session: &Session,
    statement: &str,
    level: Consistency,
) -> Result<Vec<String>, ExecutionError> {
    let mut statement = Statement::new(statement);
    statement.set_consistency(level);
    let answer = session.query_unpaged(statement, ()).await?;
    let answer = answer.into_rows_result().expect("there are rows");
    let rows = answer.rows::<Row>().expect("any row is a row");
    let row = |row: Result<Row, DeserializationError>| {
        let text = |cell: &Option<CqlValue>| cell.as_ref().map_or("-".to_owned(), readable);
        let columns = row.expect("a readable row").columns;
        columns.iter().map(text).collect::<Vec<_>>().join(" | ")
    };
    Ok(rows.map(row).collect())
}

fn readable(cell: &CqlValue) -> String {
    let all = |cells: &[CqlValue]| cells.iter().map(readable).collect::<Vec<_>>().join(", ");
    match cell {
        CqlValue::Text(text) => text.clone(),
        CqlValue::BigInt(number) => number.to_string(),
        CqlValue::Int(number) => number.to_string(),
        CqlValue::Decimal(decimal) => {
            let (bytes, places) = decimal.as_signed_be_bytes_slice_and_exponent();
            let whole = bytes
                .iter()
                .fold(0_i128, |whole, byte| whole * 256 + i128::from(*byte));
            format!("{whole}e-{places}")
        }
        CqlValue::List(cells) => format!("[{}]", all(cells)),
        CqlValue::Tuple(cells) => {
            let cells: Vec<CqlValue> = cells.iter().flatten().cloned().collect();
            format!("({})", all(&cells))
        }
        CqlValue::Map(entries) => {
            let entry = |(key, cell): &(CqlValue, CqlValue)| {
                format!("{}: {}", readable(key), readable(cell))
            };
            format!(
                "{{{}}}",
                entries.iter().map(entry).collect::<Vec<_>>().join(", ")
            )
        }
        CqlValue::UserDefinedType { fields, .. } => {
            let field = |(name, cell): &(String, Option<CqlValue>)| {
                Some(format!("{name} {}", readable(cell.as_ref()?)))
            };
            format!(
                "({})",
                fields
                    .iter()
                    .filter_map(field)
                    .collect::<Vec<_>>()
                    .join(", ")
            )
        }
        other => format!("{other:?}"),
    }
}
