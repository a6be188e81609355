//! From an address to a database that is fit for records: the driver's handle,
//! the server's own account of itself, and the reason when there is none.

use std::time::Duration;

use engine_api::EngineError;
use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::options::{
    Acknowledgment, ClientOptions, DatabaseOptions, ReadConcern, ReadPreference, SelectionCriteria,
    WriteConcern,
};
use mongodb::{Client, Database};

use crate::config::{MongoConfig, OpenError};
use crate::failure::{
    AUTHENTICATION_FAILED, Asked, Failure, NAMESPACE_EXISTS, UNAUTHORIZED, answer,
};
use crate::schema::{self, Place};

/// The oldest server that the engine is tested with, and its number in `hello`.
pub(crate) const OLDEST_VERSION: &str = "6.0";
const OLDEST_WIRE_VERSION: i32 = 17;

/// How long one server is given to say what it is, when the set gave no answer.
const PROBE_MAX: Duration = Duration::from_secs(2);

/// What stands behind the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deployment {
    ReplicaSet {
        members: usize,
    },
    /// Asked through `mongos`.
    Sharded,
}

#[derive(Debug)]
pub(crate) struct Connected {
    pub database: Database,
    pub deployment: Deployment,
}

/// A driver's handle on the database: majority and journal for writes, the
/// majority's view of the primary for reads.
pub(crate) async fn connect(config: &MongoConfig) -> Result<Connected, OpenError> {
    check_uri(&config.uri)?;
    let bad = |error: Error| bad_uri(&config.uri, &error);
    let mut options = ClientOptions::parse(&config.uri).await.map_err(bad)?;
    options.app_name.get_or_insert_with(|| "caravan".to_owned());
    options.server_selection_timeout = Some(config.selection_max());
    options.connect_timeout = Some(config.selection_max());
    options.retry_writes = Some(true);
    let client = Client::with_options(options.clone()).map_err(bad)?;
    let database = client.database_with_options(
        &config.database,
        DatabaseOptions::builder()
            .write_concern(write_concern())
            .read_concern(ReadConcern::majority())
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .build(),
    );
    let asking = database.run_command(doc! { "hello": 1 });
    let deployment = match tokio::time::timeout(config.answer_max(), asking).await {
        Ok(Ok(hello)) => judge(&hello, &addresses(&options))?,
        Ok(Err(error)) => return Err(diagnose(&options, &error).await),
        Err(_) => {
            return Err(OpenError::Unreachable {
                addresses: addresses(&options),
                reason: format!("no answer within {} ms", config.answer_ms_max),
            });
        }
    };
    Ok(Connected {
        database,
        deployment,
    })
}

/// Makes what is missing; what is there already stays as it is.
pub(crate) async fn prepare(
    connected: &Connected,
    config: &MongoConfig,
    places: &[Place],
) -> Result<(), OpenError> {
    for command in schema::creation(places) {
        let asking = connected.database.run_command(command);
        match answer(config.answer_max(), Asked::Write, asking).await {
            Ok(_)
            | Err(Failure::Refused {
                code: NAMESPACE_EXISTS,
                ..
            }) => {}
            Err(failure) => return Err(refusal(config, failure)),
        }
    }
    match connected.deployment {
        Deployment::ReplicaSet { .. } => Ok(()),
        Deployment::Sharded => divide(&connected.database, config, places).await,
    }
}

/// Divides the collections that are not divided yet: a split point cannot be made twice.
async fn divide(
    database: &Database,
    config: &MongoConfig,
    places: &[Place],
) -> Result<(), OpenError> {
    let refused = |failure| refusal(config, failure);
    let limit = config.answer_max();
    let admin = database.client().database("admin");
    let known = database
        .client()
        .database("config")
        .collection::<Document>("collections");
    let enabling = admin.run_command(schema::enable_sharding(&config.database));
    answer(limit, Asked::Write, enabling)
        .await
        .map_err(refused)?;
    for (namespace, commands) in schema::division(config, places) {
        let finding = known.find_one(doc! { "_id": namespace });
        let found = answer(limit, Asked::Read, finding).await.map_err(refused)?;
        if found.is_some() {
            continue;
        }
        for command in commands {
            let asking = admin.run_command(command);
            answer(limit, Asked::Write, asking).await.map_err(refused)?;
        }
    }
    Ok(())
}

fn write_concern() -> WriteConcern {
    WriteConcern::builder()
        .w(Acknowledgment::Majority)
        .journal(true)
        .build()
}

/// What a server says of itself, or why it will not do.
fn judge(hello: &Document, address: &str) -> Result<Deployment, OpenError> {
    let wire_version = hello.get_i32("maxWireVersion").unwrap_or(0);
    if wire_version < OLDEST_WIRE_VERSION {
        return Err(OpenError::TooOld {
            found: format!("{address} speaks wire version {wire_version}"),
        });
    }
    if hello.get_str("msg").ok() == Some("isdbgrid") {
        return Ok(Deployment::Sharded);
    }
    if !hello.contains_key("setName") {
        return Err(OpenError::NotAReplicaSet {
            address: address.to_owned(),
        });
    }
    let named = |name| hello.get_array(name).map_or(0, Vec::len);
    Ok(Deployment::ReplicaSet {
        members: named("hosts") + named("passives"),
    })
}

/// The driver only says that no server suited; each server is asked why.
async fn diagnose(options: &ClientOptions, error: &Error) -> OpenError {
    match error.kind.as_ref() {
        ErrorKind::Authentication { message, .. } => {
            return OpenError::WrongCredentials {
                reason: message.clone(),
            };
        }
        ErrorKind::Command(refusal) if refusal.code == AUTHENTICATION_FAILED => {
            return OpenError::WrongCredentials {
                reason: refusal.message.clone(),
            };
        }
        ErrorKind::IncompatibleServer { message, .. } => {
            return OpenError::TooOld {
                found: message.clone(),
            };
        }
        _ => {}
    }
    let mut answered = false;
    for host in &options.hosts {
        let Some(hello) = probe(options, host).await else {
            continue;
        };
        answered = true;
        if let Err(reason) = judge(&hello, &host.to_string()) {
            return reason;
        }
        let found = hello.get_str("setName").unwrap_or_default();
        if options
            .repl_set_name
            .as_deref()
            .is_some_and(|name| name != found)
        {
            return OpenError::OtherSet {
                address: host.to_string(),
                found: found.to_owned(),
            };
        }
    }
    let addresses = addresses(options);
    if answered {
        OpenError::NoPrimary { addresses }
    } else {
        OpenError::Unreachable {
            addresses,
            reason: error.to_string(),
        }
    }
}

/// `hello` of one server, asked alone and without credentials, as it allows.
async fn probe(
    options: &ClientOptions,
    host: &mongodb::options::ServerAddress,
) -> Option<Document> {
    let mut alone = ClientOptions::builder()
        .hosts(vec![host.clone()])
        .direct_connection(true)
        .server_selection_timeout(PROBE_MAX)
        .connect_timeout(PROBE_MAX)
        .build();
    alone.tls = options.tls.clone();
    let client = Client::with_options(alone).ok()?;
    let admin = client.database("admin");
    let asking = admin.run_command(doc! { "hello": 1 });
    tokio::time::timeout(PROBE_MAX, asking).await.ok()?.ok()
}

/// A slash in a password ends the hosts for the driver, which then takes the user and the
/// beginning of the password for a server, and its errors name servers.
fn check_uri(uri: &str) -> Result<(), OpenError> {
    let rest = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    let (hosts, options) = rest.split_once(['/', '?']).unwrap_or((rest, ""));
    if hosts.contains('@') || !options.contains('@') {
        return Ok(());
    }
    let reason = "an @ stands behind the first / or ?: in name and password write / as %2F, ? as %3F and @ as %40";
    Err(OpenError::BadUri {
        reason: reason.to_owned(),
    })
}

/// What the driver says about an address may quote any piece of it.
fn bad_uri(uri: &str, error: &Error) -> OpenError {
    let reason = match uri.contains('@') {
        true => {
            "in name and password write : / ? # [ ] @ % as %XX, and check the options".to_owned()
        }
        false => error.to_string(),
    };
    OpenError::BadUri { reason }
}

/// Hosts only: the address of the configuration may hold a password.
fn addresses(options: &ClientOptions) -> String {
    let hosts: Vec<String> = options.hosts.iter().map(ToString::to_string).collect();
    hosts.join(", ")
}

pub(crate) fn refusal(config: &MongoConfig, failure: Failure) -> OpenError {
    match failure {
        Failure::Refused {
            code: UNAUTHORIZED,
            message,
        } => OpenError::NotAllowed {
            database: config.database.clone(),
            reason: message,
        },
        failure => OpenError::Engine(EngineError::from(failure)),
    }
}
