//! What stops an engine from opening, and what it says then.

#![allow(clippy::unwrap_used)]

mod shop;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use engine_cassandra::{
    CassandraConfig, CassandraEngine, Credentials, OpenError, SchemaCare, Warning,
};
use layout::Collection;

/// The servers make their first user some seconds after they answer.
const FIRST_USER_MAX: Duration = Duration::from_secs(90);
const BETWEEN_LOGINS: Duration = Duration::from_millis(500);

async fn refused(config: CassandraConfig) -> OpenError {
    let opened = CassandraEngine::open(config).await;
    opened.expect_err("this must not open")
}

fn without_orders(mut config: CassandraConfig) -> CassandraConfig {
    let stores = &mut config.keyspace.stores;
    stores.retain(|kept| kept.collection() != Collection::Orders);
    config
}

#[tokio::test]
async fn nobody_at_the_address_is_said_with_the_address() {
    let closed = SocketAddr::from(([127, 0, 0, 1], 1));
    let error = refused(shop::config(vec![closed], "nobody".to_owned())).await;
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
    assert!(
        error.to_string().contains("check addresses and servers"),
        "{error}"
    );
}

#[tokio::test]
async fn a_missing_keyspace_is_made_only_by_who_may() {
    let cluster = testbed::cassandra(testbed::Nodes::One);
    let Some(cluster) = testbed::required_or_skip(cluster, "Cassandra") else {
        return;
    };
    let make = shop::config(cluster.contact_points(), cluster.keyspace("opening"));
    let expect = CassandraConfig {
        schema: SchemaCare::Expect,
        ..make.clone()
    };
    let error = refused(expect.clone()).await;
    assert!(
        matches!(error, OpenError::MissingKeyspace { .. }),
        "{error}"
    );
    assert!(
        error.to_string().contains("caravan layout schema"),
        "{error}"
    );
    let made = shop::open(without_orders(make)).await;
    drop(made);
    // The keyspace is there now, the tables of orders are not.
    let error = refused(expect.clone()).await;
    assert!(matches!(error, OpenError::Schema { .. }), "{error}");
    shop::open(without_orders(expect)).await;
}

#[tokio::test]
async fn a_guarded_server_that_forgets_is_refused_for_orders_and_warned_of_for_carts() {
    let settings = [
        ("authenticator", "PasswordAuthenticator"),
        ("authorizer", "CassandraAuthorizer"),
    ];
    let cluster = testbed::CassandraCluster::exclusive_with_lines(
        testbed::Nodes::One,
        testbed::Purpose::Carts.settings(),
        &settings,
    );
    let Some(cluster) = testbed::required_or_skip(cluster, "Cassandra") else {
        return;
    };
    let nameless = shop::config(cluster.contact_points(), cluster.keyspace("opening"));
    let named = |password: &str| CassandraConfig {
        credentials: Some(Credentials {
            user: "cassandra".to_owned(),
            password: password.to_owned(),
        }),
        ..nameless.clone()
    };
    for config in [nameless.clone(), named("wrong")] {
        let error = refused(config).await;
        assert!(matches!(error, OpenError::Login { .. }), "{error}");
    }
    let start = Instant::now();
    let error = loop {
        let error = refused(named("cassandra")).await;
        match error {
            OpenError::Login { .. } if start.elapsed() < FIRST_USER_MAX => {
                tokio::time::sleep(BETWEEN_LOGINS).await;
            }
            other => break other,
        }
    };
    assert!(matches!(error, OpenError::CommitLog { .. }), "{error}");
    assert!(error.to_string().contains("group or batch"), "{error}");

    let engine = shop::open(without_orders(named("cassandra"))).await;
    let found = |wanted: fn(&Warning) -> bool| engine.warnings().iter().any(wanted);
    assert!(found(|warning| matches!(
        warning,
        Warning::CommitLogPeriodic { .. }
    )));
    assert!(found(|warning| matches!(
        warning,
        Warning::HintWindow {
            found_seconds: 3_600,
            declared_seconds: 10_800,
            ..
        }
    )));
}
