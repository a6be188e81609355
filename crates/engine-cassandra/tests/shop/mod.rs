//! The tables of carts and sessions that the tests use.

#![allow(dead_code, reason = "each test file uses its own part of this one")]

use std::net::SocketAddr;

use engine_cassandra::{CassandraConfig, CassandraEngine};
use layout::path::STATUS_ACTIVE;
use layout::{Collection, Direction, Field, KeyColumn, Role, Table, TableOptions};

pub async fn open(config: CassandraConfig) -> CassandraEngine {
    CassandraEngine::open(config)
        .await
        .expect("the server of the testbed takes the schema")
}

pub fn config(contact_points: Vec<SocketAddr>, keyspace: String) -> CassandraConfig {
    CassandraConfig {
        contact_points,
        keyspace,
        replication_factor: 1,
        tables: tables(),
        request_timeout_ms: 20_000,
        unsettled_patience_ms: 30_000,
        collect_margin_s: 0,
    }
}

pub fn tables() -> Vec<Table> {
    let active = || Some((Field::Status, STATUS_ACTIVE.to_owned()));
    let newest_first = vec![(KeyColumn::Field(Field::CreatedAt), Direction::Descending)];
    vec![
        table("carts", Collection::Carts, Role::Authority, Field::CartId),
        Table {
            only: active(),
            ..table(
                "carts_by_user",
                Collection::Carts,
                Role::Derived,
                Field::UserId,
            )
        },
        Table {
            only: active(),
            ..table(
                "carts_by_session",
                Collection::Carts,
                Role::Derived,
                Field::SessionId,
            )
        },
        table(
            "sessions",
            Collection::Sessions,
            Role::Authority,
            Field::SessionId,
        ),
        Table {
            clustering: newest_first,
            ..table(
                "sessions_by_user",
                Collection::Sessions,
                Role::Derived,
                Field::UserId,
            )
        },
    ]
}

fn table(name: &str, collection: Collection, role: Role, partition: Field) -> Table {
    Table {
        name: name.to_owned(),
        collection,
        role,
        partition: vec![KeyColumn::Field(partition)],
        clustering: Vec::new(),
        only: None,
        options: TableOptions::default(),
    }
}
