//! Real databases for tests, on this machine alone: MongoDB replica sets and
//! Cassandra clusters, fetched once, started on loopback, shared between test
//! processes and ended when nobody uses them. Linux only, never shipped.
//!
//! ```no_run
//! let Some(set) = testbed::required_or_skip(testbed::mongo(testbed::Members::One), "MongoDB") else { return };
//! println!("{} {}", set.uri(), set.database("carts"));
//! ```
//!
//! Tests that break things take [`MongoSet::exclusive`] or
//! [`CassandraCluster::exclusive`] instead: those servers belong to one test.
#![forbid(unsafe_code)]

mod cassandra;
mod cassandra_wire;
mod exclusive;
mod install;
mod instance;
mod lock;
mod mongo;
mod mongo_wire;
mod names;
mod ports;
mod processes;
mod settings;
mod shared;
mod unavailable;

use std::io::Write;
use std::net::SocketAddr;

pub use cassandra::{CassandraCluster, CassandraPlan, Nodes};
pub use exclusive::Exclusive;
pub use mongo::{Members, MongoPlan, MongoSet};
pub use names::Label;
pub use settings::{CassandraSettings, Commitlog, Hints, Purpose};
pub use unavailable::Unavailable;

/// A replica set that one test owns.
pub type ExclusiveMongoSet = Exclusive<MongoPlan>;
/// A cluster that one test owns.
pub type ExclusiveCassandraCluster = Exclusive<CassandraPlan>;

/// The shared replica set of this size, started if nobody has yet.
pub fn mongo(members: Members) -> Result<MongoSet, Unavailable> {
    MongoSet::shared(&install::cache_folder()?, members, None)
}

/// Another shared replica set beside that one: as many as there are labels.
pub fn mongo_labelled(members: Members, label: &Label) -> Result<MongoSet, Unavailable> {
    MongoSet::shared(&install::cache_folder()?, members, Some(label))
}

/// The shared cluster of this size, started if nobody has yet.
pub fn cassandra(nodes: Nodes) -> Result<CassandraCluster, Unavailable> {
    CassandraCluster::shared(&install::cache_folder()?, nodes, Purpose::Anything)
}

/// The shared cluster with the settings that orders or carts want.
pub fn cassandra_for(purpose: Purpose, nodes: Nodes) -> Result<CassandraCluster, Unavailable> {
    CassandraCluster::shared(&install::cache_folder()?, nodes, purpose)
}

/// The server, or `None` after a loud line where a test may go without it.
/// Under `CI=true` nothing may be skipped, so there it panics with the remedy.
pub fn required_or_skip<T>(result: Result<T, Unavailable>, what: &str) -> Option<T> {
    let necessity = match std::env::var("CI").as_deref() {
        Ok("true") => Necessity::Required,
        _ => Necessity::Optional,
    };
    decide(result, what, necessity)
}

/// A shared set or cluster as `status` and `down` list it.
#[derive(Debug, Clone)]
pub struct Running {
    /// For example `mongo:3` or `cassandra:1@carts`.
    pub name: String,
    pub addresses: Vec<SocketAddr>,
    pub pids: Vec<i32>,
}

/// Fetches both databases, so that later starts need no network.
pub fn install() -> Result<(), Unavailable> {
    let root = install::cache_folder()?;
    install::mongod(&root)?;
    install::cassandra_jars(&root)?;
    Ok(())
}

/// The shared servers that are up.
pub fn status() -> Result<Vec<Running>, Unavailable> {
    shared::running(&install::cache_folder()?)
}

/// Ends every shared server and throws its records away; returns what was up.
pub fn down() -> Result<Vec<Running>, Unavailable> {
    shared::end_all(&install::cache_folder()?)
}

#[derive(Debug, Clone, Copy)]
enum Necessity {
    Required,
    Optional,
}

fn decide<T>(result: Result<T, Unavailable>, what: &str, necessity: Necessity) -> Option<T> {
    match (result, necessity) {
        (Ok(server), _) => Some(server),
        (Err(reason), Necessity::Required) => panic!("{what} is required here: {reason}"),
        (Err(reason), Necessity::Optional) => {
            say(&format!("SKIPPED: {what} is not available: {reason}"));
            None
        }
    }
}

/// One line on the real stderr. `eprintln!` would vanish in the capture of a
/// passing test, and a skipped test passes.
pub(crate) fn say(line: &str) {
    // Nobody is left to tell when stderr itself is closed.
    let _ = writeln!(std::io::stderr(), "testbed: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unavailable() -> Result<(), Unavailable> {
        Err(Unavailable::ToolMissing {
            tool: "java",
            package: "openjdk-17-jre-headless",
        })
    }

    #[test]
    fn an_unavailable_server_skips_where_it_is_optional() {
        assert!(decide(unavailable(), "Cassandra", Necessity::Optional).is_none());
        assert!(decide(Ok(7), "Cassandra", Necessity::Optional) == Some(7));
    }

    #[test]
    #[should_panic(
        expected = "Cassandra is required here: java is not on the PATH: install it (Debian: openjdk-17-jre-headless)"
    )]
    fn an_unavailable_server_fails_the_test_where_it_is_required() {
        decide(unavailable(), "Cassandra", Necessity::Required);
    }
}
