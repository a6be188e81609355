//! The database: a collection for each authority table, an index for each
//! derived one, made if they are not there yet.

use std::time::Duration;

use engine_api::EngineError;
use engine_api::layout::{AccessPath, Collection, Direction, KeyColumn, Role, Table};
use mongodb::bson::{Document, doc};
use mongodb::options::{
    Acknowledgment, ClientOptions, DatabaseOptions, ReadConcern, ReadPreference, SelectionCriteria,
    WriteConcern,
};
use mongodb::{Client, Database};

use crate::config::{MongoConfig, OpenError};
use crate::control::CONTROL;
use crate::failure::{Asked, Failure, NAMESPACE_EXISTS, answer};
use crate::guard::GUARDS;
use crate::value::field_to_bson;

/// An expired record is left alone this long by the server's own collector,
/// whose clock is not the writers'.
const COLLECT_MARGIN_SECONDS: i32 = 3600;

/// A table of the layout's authority role and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub collection: Collection,
    pub name: String,
    /// Derived tables, as indexes.
    pub indexes: Vec<Table>,
    /// Whether the server collects expired records as well.
    pub collected_by_server: bool,
}

impl Place {
    /// Whether an index answers the path without reading the whole collection.
    pub fn answers(&self, path: AccessPath) -> bool {
        let shape = path.shape();
        path == AccessPath::by_id(self.collection)
            || self.indexes.iter().any(|table| {
                let given: Vec<_> = table.partition.iter().map(KeyColumn::source).collect();
                let only = table
                    .only
                    .as_ref()
                    .map(|(field, text)| (*field, text.as_str()));
                given == shape.equals && (only.is_none() || only == shape.only)
            })
    }
}

/// A driver's handle on the database: majority and journal for writes, the
/// majority's view of the primary for reads.
pub(crate) async fn connect(config: &MongoConfig) -> Result<Database, OpenError> {
    let bad = |error: mongodb::error::Error| OpenError::BadUri {
        reason: error.to_string(),
    };
    let mut options = ClientOptions::parse(&config.uri).await.map_err(bad)?;
    options.app_name.get_or_insert_with(|| "caravan".to_owned());
    options.server_selection_timeout = Some(config.selection_max());
    options.connect_timeout = Some(config.selection_max());
    options.retry_writes = Some(true);
    let client = Client::with_options(options).map_err(bad)?;
    let database = client.database_with_options(
        &config.database,
        DatabaseOptions::builder()
            .write_concern(write_concern())
            .read_concern(ReadConcern::majority())
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .build(),
    );
    let asking = database.run_command(doc! { "hello": 1 });
    let hello = answer(config.answer_max(), Asked::Read, asking)
        .await
        .map_err(engine)?;
    if !hello.contains_key("setName") {
        return Err(OpenError::NotAReplicaSet {
            address: config.uri.clone(),
        });
    }
    Ok(database)
}

fn write_concern() -> WriteConcern {
    WriteConcern::builder()
        .w(Acknowledgment::Majority)
        .journal(true)
        .build()
}

/// The same for commands, which do not inherit it.
pub(crate) fn write_concern_of_command() -> Document {
    doc! { "w": "majority", "j": true }
}

pub(crate) fn places(tables: &[Table]) -> Result<Vec<Place>, OpenError> {
    let mut places: Vec<Place> = Vec::new();
    for table in tables.iter().filter(|table| table.role == Role::Authority) {
        if let Some(first) = places
            .iter()
            .find(|place| place.collection == table.collection)
        {
            return Err(OpenError::TwoAuthorities {
                collection: table.collection,
                first: first.name.clone(),
                second: table.name.clone(),
            });
        }
        if [GUARDS, CONTROL].contains(&table.name.as_str()) {
            return Err(refused(
                table,
                "the name is taken by Caravan's own collection",
            ));
        }
        places.push(Place {
            collection: table.collection,
            name: table.name.clone(),
            indexes: Vec::new(),
            collected_by_server: table.options.ttl_seconds.is_some(),
        });
    }
    for table in tables.iter().filter(|table| table.role == Role::Derived) {
        let columns = table
            .partition
            .iter()
            .chain(table.clustering.iter().map(|(column, _)| column));
        if let Some(column) = columns
            .into_iter()
            .find(|column| !matches!(column, KeyColumn::Field(_)))
        {
            let reason =
                format!("its key column {column} is computed, an index needs stored fields");
            return Err(refused(table, &reason));
        }
        let place = places
            .iter_mut()
            .find(|place| place.collection == table.collection);
        let place = place.ok_or(OpenError::NoAuthority {
            collection: table.collection,
        })?;
        place.indexes.push(table.clone());
    }
    Ok(places)
}

/// Which place holds a collection.
pub(crate) fn place_of(places: &[Place], collection: Collection) -> Result<&Place, EngineError> {
    places
        .iter()
        .find(|place| place.collection == collection)
        .ok_or(EngineError::NoTable { collection })
}

/// Makes what is missing; what is there already stays as it is.
pub(crate) async fn prepare(
    database: &Database,
    place: &Place,
    limit: Duration,
) -> Result<(), OpenError> {
    create_collection(database, &place.name, limit).await?;
    let mut indexes: Vec<Document> = place.indexes.iter().map(index).collect();
    indexes.push(doc! {
        "name": "caravan_expiry", "key": { "expires_at": 1 },
        "partialFilterExpression": { "expires_at": { "$exists": true } },
    });
    indexes.push(doc! {
        "name": "caravan_marks", "key": { "header.revision": 1 },
        "partialFilterExpression": { "header.live": false },
    });
    indexes.push(doc! {
        "name": "caravan_part_marks", "key": { "oldest_mark": 1 },
        "partialFilterExpression": { "oldest_mark": { "$exists": true } },
    });
    if place.collected_by_server {
        indexes.push(doc! {
            "name": "caravan_collect", "key": { "collect_at": 1 },
            "expireAfterSeconds": COLLECT_MARGIN_SECONDS,
        });
    }
    create_indexes(database, &place.name, indexes, limit)
        .await
        .map_err(engine)
}

pub(crate) async fn create_collection(
    database: &Database,
    name: &str,
    limit: Duration,
) -> Result<(), OpenError> {
    let command = doc! { "create": name, "writeConcern": write_concern_of_command() };
    match answer(limit, Asked::Write, database.run_command(command)).await {
        Ok(_)
        | Err(Failure::Refused {
            code: NAMESPACE_EXISTS,
            ..
        }) => Ok(()),
        Err(failure) => Err(engine(failure)),
    }
}

pub(crate) async fn create_indexes(
    database: &Database,
    collection: &str,
    indexes: Vec<Document>,
    limit: Duration,
) -> Result<(), Failure> {
    let command = doc! {
        "createIndexes": collection, "indexes": indexes, "writeConcern": write_concern_of_command(),
    };
    answer(limit, Asked::Write, database.run_command(command))
        .await
        .map(|_| ())
}

/// An index that no document enters; only its name counts, see `guard`.
pub(crate) fn token_index(token: &str) -> Document {
    let mut key = Document::new();
    key.insert(token, 1);
    doc! { "name": token, "key": key, "sparse": true, "hidden": true }
}

fn index(table: &Table) -> Document {
    let mut key = Document::new();
    for column in &table.partition {
        key.insert(format!("header.fields.{}", column.source()), 1);
    }
    for (column, direction) in &table.clustering {
        let name = if column.source() == table.collection.id_field() {
            "_id".to_owned()
        } else {
            format!("header.fields.{}", column.source())
        };
        key.insert(
            name,
            if *direction == Direction::Descending {
                -1
            } else {
                1
            },
        );
    }
    if !key.contains_key("_id") {
        key.insert("_id", 1);
    }
    let mut rows = doc! { "header.live": true };
    if let Some((field, text)) = &table.only {
        let only = engine_api::layout::Value::text(text);
        rows.insert(format!("header.fields.{field}"), field_to_bson(&only));
    }
    doc! { "name": &table.name, "key": key, "partialFilterExpression": rows }
}

fn refused(table: &Table, reason: &str) -> OpenError {
    OpenError::TableRefused {
        table: table.name.clone(),
        reason: reason.to_owned(),
    }
}

fn engine(failure: Failure) -> OpenError {
    OpenError::Engine(failure.into())
}
