//! Looking at the servers before anything is kept there.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine_api::{EngineError, World};
use scylla::cluster::Node;
use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, MetadataError,
    NewSessionError,
};
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::serialize::row::SerializeRow;
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;
use scylla::value::Row;

use super::{Columns, Connection, rows};
use crate::config::OpenError;
use crate::servers::{SETTINGS, Server, Warning};

impl Connection {
    /// Nothing is made: the keyspace has to be there.
    pub async fn expect_keyspace(&self, keyspace: &str) -> Result<(), OpenError> {
        let text = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?";
        let found = self.ask(Statement::new(text), (keyspace,)).await;
        let found = found.map_err(|reason| OpenError::Schema { reason })?;
        match found.is_empty() {
            true => Err(OpenError::MissingKeyspace {
                keyspace: keyspace.to_owned(),
            }),
            false => Ok(()),
        }
    }

    /// Every server as it describes itself, and those that do not answer.
    pub async fn servers(
        &self,
        world: &dyn World,
    ) -> Result<(Vec<Server>, Vec<Warning>), OpenError> {
        let (mut servers, mut silent) = (Vec::new(), Vec::new());
        for node in self.session.get_cluster_state().get_nodes_info() {
            let name = node.address.to_string();
            match self.server(node, &name, world).await {
                Ok(server) => servers.push(server),
                Err(reason) => silent.push(Warning::NotAsked {
                    server: name,
                    reason,
                }),
            }
        }
        match (servers.is_empty(), silent.first()) {
            (true, Some(Warning::NotAsked { reason, .. })) => Err(OpenError::Unreachable {
                reason: reason.clone(),
            }),
            _ => Ok((servers, silent)),
        }
    }

    async fn server(
        &self,
        node: &Arc<Node>,
        name: &str,
        world: &dyn World,
    ) -> Result<Server, String> {
        let to_this = |text: &str| {
            let target = NodeIdentifier::Node(Arc::clone(node));
            let mut statement = Statement::new(text);
            statement.set_consistency(Consistency::One);
            statement.set_load_balancing_policy(Some(SingleTargetLoadBalancingPolicy::new(
                target, None,
            )));
            statement
        };
        let unreadable = |error: EngineError| error.to_string();
        let version = to_this("SELECT release_version FROM system.local");
        let version = self.ask(version, ()).await?.into_iter().next();
        let version = version.map(|row| Columns::of(row).text()).transpose();
        let mut settings = BTreeMap::new();
        for setting in SETTINGS {
            let value = to_this("SELECT value FROM system_views.settings WHERE name = ?");
            for row in self.ask(value, (setting,)).await? {
                if let Some(value) = Columns::of(row).text().map_err(unreadable)? {
                    settings.insert(setting.to_owned(), value);
                }
            }
        }
        let clock = to_this("SELECT toUnixTimestamp(now()) FROM system.local");
        let asked_ms = world.now().unix_micros().div_euclid(1000);
        let clock = self.ask(clock, ()).await?.into_iter().next();
        let answered_ms = world.now().unix_micros().div_euclid(1000);
        let clock_ms = clock.map(|row| Columns::of(row).number()).transpose();
        let clock_ms = clock_ms.map_err(unreadable)?.flatten();
        Ok(Server {
            name: name.to_owned(),
            version: version.map_err(unreadable)?.flatten().unwrap_or_default(),
            settings,
            clock_off_ms: clock_ms.map_or(0, |clock| off_by(clock, asked_ms, answered_ms)),
        })
    }

    async fn ask(
        &self,
        statement: Statement,
        values: impl SerializeRow,
    ) -> Result<Vec<Row>, String> {
        let answer = self.session.query_unpaged(statement, values).await;
        rows(answer.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
    }
}

/// How far a clock is from ours for certain: it was read between asking and answering.
fn off_by(clock_ms: i64, asked_ms: i64, answered_ms: i64) -> u64 {
    let ahead = clock_ms.saturating_sub(answered_ms);
    let behind = asked_ms.saturating_sub(clock_ms);
    ahead.max(behind).max(0).unsigned_abs()
}

pub(super) fn refused_session(error: NewSessionError) -> OpenError {
    let reason = error.to_string();
    let NewSessionError::MetadataError(MetadataError::ConnectionPoolError(
        ConnectionPoolError::Broken {
            last_connection_error: ConnectionError::ConnectionSetupRequestError(setup),
        },
    )) = &error
    else {
        return OpenError::Unreachable { reason };
    };
    match setup.get_error() {
        ConnectionSetupRequestErrorKind::MissingAuthentication
        | ConnectionSetupRequestErrorKind::DbError(
            DbError::AuthenticationError | DbError::Unauthorized,
            _,
        ) => OpenError::Login { reason },
        _ => OpenError::Unreachable { reason },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_off_only_by_what_the_way_cannot_explain() {
        assert_eq!(off_by(150, 100, 200), 0);
        assert_eq!(off_by(260, 100, 200), 60);
        assert_eq!(off_by(70, 100, 200), 30);
    }
}
