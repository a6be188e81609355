//! What only a real server can show: values through the driver, fences against
//! a mover that sleeps, a journal that rolls over, collection by the server,
//! secondaries that lag, a primary that dies.
#![allow(clippy::unwrap_used)]

mod failover;
mod fences;
mod flash_sale;
mod journal;
mod lagging;
mod loss;
mod opening;
mod schema;
mod tables;
#[path = "../../../mover/tests/tampered/mod.rs"]
mod tampered;
mod tampering;
mod tokens;
mod values;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine_api::layout::{Collection, Field, Fields, Scope, Table, TableOptions, Value};
use engine_api::{
    Authority, Change, Engine, EngineError, Fence, Freshness, Generation, JournalEvent, MoverTerm,
    Outcome, PartKey, ReadContext, RealWorld, Record, RecordId, RecordKey, Revision, Timestamp,
    World, WriteContext, Writer, expiry_fields,
};
use engine_mongo::{MongoConfig, MongoEngine, OpenError};
use mongodb::Client;
use mongodb::bson::{Document, doc};
use testbed::{ExclusiveMongoSet, Members, MongoSet, required_or_skip};

fn set() -> Option<MongoSet> {
    required_or_skip(testbed::mongo(Members::One), "MongoDB")
}

/// One that the test may pause, kill and tell to fail.
fn own_set(members: Members) -> Option<ExclusiveMongoSet> {
    required_or_skip(MongoSet::exclusive(members), "MongoDB")
}

async fn open(uri: &str, database: &str) -> MongoEngine {
    MongoEngine::open(MongoConfig::new(uri, database, tables::all()))
        .await
        .expect("the server is up")
}

fn now() -> Timestamp {
    RealWorld::new().now()
}

fn router(generation: u64) -> WriteContext {
    let authority = Authority::Router {
        generation: Generation(generation),
    };
    WriteContext {
        authority,
        now: now(),
        revision: Revision::at(now(), Writer::numbered(0)),
    }
}

fn reader() -> ReadContext {
    ReadContext {
        now: now(),
        freshness: Freshness::Latest,
    }
}

fn session_key(id: &str) -> RecordKey {
    RecordKey::by_id(
        Collection::Sessions,
        RecordId::new(id).expect("tests use short ids"),
    )
}

fn session_header(id: &str) -> Fields {
    Fields::new()
        .with(Field::SessionId, Value::text(id))
        .with(Field::Status, Value::text("open"))
        .with(
            Field::CreatedAt,
            Value::Timestamp(Timestamp::from_unix_micros(1_700_000_000_123_457)),
        )
}

fn create(id: &str, header: Fields, parts: Vec<(PartKey, Fields)>) -> Change {
    Change::CreateIfAbsent {
        key: session_key(id),
        header,
        parts,
    }
}

async fn stored(engine: &MongoEngine, id: &str) -> Option<Record> {
    engine
        .get(&session_key(id), reader())
        .await
        .expect("the server answers")
}

fn fence(generation: u64) -> Fence {
    Fence {
        collection: Collection::Sessions,
        scope: Scope::All,
        generation: Generation(generation),
    }
}

fn term(term: u64) -> MoverTerm {
    MoverTerm {
        move_name: "split".to_owned(),
        term,
    }
}

/// Lets the next commands of our engine fail in a way that only networks and time can.
async fn fail_next(client: &Client, times: i32, command: &str, how: Document) {
    let mut data = doc! { "failCommands": [command], "appName": "caravan" };
    data.extend(how);
    let point =
        doc! { "configureFailPoint": "failCommand", "mode": { "times": times }, "data": data };
    client
        .database("admin")
        .run_command(point)
        .await
        .expect("a test server has fail points");
}
