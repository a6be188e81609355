//! The database as commands: a collection for each authority table, an index
//! for each derived one, and for a sharded deployment how they are divided. Pure.

use std::fmt;

use engine_api::EngineError;
use engine_api::layout::{AccessPath, Collection, Direction, KeyColumn, Layout, Role, Table};
use mongodb::bson::{Document, doc};

use crate::config::{MongoConfig, OpenError};
use crate::control::CONTROL;
use crate::guard::GUARDS;
use crate::value::field_to_bson;

/// A command and the database that it is sent to. Prints as a line for `mongosh`.
#[derive(Clone, Debug, PartialEq)]
pub struct SchemaCommand {
    pub database: String,
    pub command: Document,
}

/// Everything that makes the database of one engine of a layout: collections
/// and indexes, as the engine itself makes them when it opens, then what a
/// sharded deployment needs besides.
pub fn commands(
    layout: &Layout,
    engine: &str,
    database: &str,
) -> Result<Vec<SchemaCommand>, OpenError> {
    let config = MongoConfig::of_layout(layout, engine, "", database);
    let places = places(&config.tables)?;
    let to = |database: &str| {
        let database = database.to_owned();
        move |command| SchemaCommand {
            database: database.clone(),
            command,
        }
    };
    let created = creation(&places).into_iter().map(to(database));
    let divided = division(&config, &places)
        .into_iter()
        .flat_map(|(_, commands)| commands);
    let sharded = std::iter::once(enable_sharding(database)).chain(divided);
    Ok(created.chain(sharded.map(to("admin"))).collect())
}

/// How a sharded deployment divides the collections: namespaces and their
/// commands for `admin`.
pub(crate) fn division(config: &MongoConfig, places: &[Place]) -> Vec<(String, Vec<Document>)> {
    let divided = |place: &Place| {
        let sharding = config
            .sharding
            .iter()
            .find(|sharding| sharding.collection == place.collection)?;
        let namespace = format!("{}.{}", config.database, place.name);
        let commands = sharding.commands(&namespace);
        Some((namespace, commands))
    };
    places.iter().filter_map(divided).collect()
}

pub(crate) fn enable_sharding(database: &str) -> Document {
    doc! { "enableSharding": database }
}

impl fmt::Display for SchemaCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "db.getSiblingDB({:?}).runCommand({})",
            self.database, self.command
        )
    }
}

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

/// What makes the database, in order. Running it again changes nothing.
pub(crate) fn creation(places: &[Place]) -> Vec<Document> {
    let own = [GUARDS, CONTROL].map(create_collection).into_iter();
    let shop = places.iter().flat_map(|place| {
        [
            create_collection(&place.name),
            create_indexes(&place.name, indexes(place)),
        ]
    });
    own.chain(shop).collect()
}

pub(crate) fn create_indexes(collection: &str, indexes: Vec<Document>) -> Document {
    doc! { "createIndexes": collection, "indexes": indexes, "writeConcern": write_concern_of_command() }
}

/// Commands do not inherit the database's own.
pub(crate) fn write_concern_of_command() -> Document {
    doc! { "w": "majority", "j": true }
}

fn create_collection(name: &str) -> Document {
    doc! { "create": name, "writeConcern": write_concern_of_command() }
}

fn indexes(place: &Place) -> Vec<Document> {
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
    indexes
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
