//! The driver, reduced to what the engine asks of it.

use std::ops::ControlFlow;

use engine_api::EngineError;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::response::PagingState;
use scylla::response::query_result::QueryResult;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};
use scylla::value::{CqlValue, Row};

use crate::config::{CassandraConfig, OpenError};
use crate::failure::{damaged, of_decision, of_read, of_write};

/// The values of one statement, in the order of its marks.
pub(crate) type Cells = Vec<Option<CqlValue>>;

/// A statement with its values.
pub(crate) type Bound<'a> = (&'a PreparedStatement, Cells);

#[derive(Debug)]
pub(crate) struct Connection {
    session: Session,
}

/// What a conditional batch met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decided {
    Applied,
    Refused,
}

impl Connection {
    pub async fn open(config: &CassandraConfig) -> Result<Connection, OpenError> {
        let profile = ExecutionProfile::builder()
            .consistency(Consistency::LocalQuorum)
            .serial_consistency(Some(SerialConsistency::LocalSerial))
            .request_timeout(Some(config.request_timeout()))
            .build();
        let session = SessionBuilder::new()
            .known_nodes_addr(config.contact_points.iter().copied())
            .default_execution_profile_handle(profile.into_handle())
            .build()
            .await
            .map_err(|error| OpenError::Unreachable {
                reason: error.to_string(),
            })?;
        Ok(Connection { session })
    }

    /// Changes the schema, and waits until all servers agree on it.
    pub async fn define(&self, statement: &str) -> Result<(), OpenError> {
        let failed = |error: &dyn std::error::Error| OpenError::Schema {
            reason: format!("{statement}: {error}"),
        };
        self.session
            .query_unpaged(statement, ())
            .await
            .map_err(|error| failed(&error))?;
        self.session
            .await_schema_agreement()
            .await
            .map_err(|error| failed(&error))?;
        Ok(())
    }

    pub async fn prepare(&self, statement: &str) -> Result<PreparedStatement, OpenError> {
        let prepared = self.session.prepare(statement).await;
        prepared.map_err(|error| OpenError::Schema {
            reason: format!("{statement}: {error}"),
        })
    }

    /// Prepares a read; reads may be repeated by the driver.
    pub async fn prepare_read(
        &self,
        statement: &str,
        consistency: Consistency,
    ) -> Result<PreparedStatement, OpenError> {
        let mut prepared = self.prepare(statement).await?;
        prepared.set_consistency(consistency);
        prepared.set_is_idempotent(true);
        Ok(prepared)
    }

    pub async fn read(
        &self,
        statement: &PreparedStatement,
        cells: Cells,
    ) -> Result<Vec<Row>, EngineError> {
        rows(
            self.session
                .execute_unpaged(statement, cells)
                .await
                .map_err(of_read)?,
        )
    }

    /// One page, and where the next one starts.
    pub async fn read_page(
        &self,
        statement: &PreparedStatement,
        cells: Cells,
        from: PagingState,
    ) -> Result<(Vec<Row>, Option<PagingState>), EngineError> {
        let (result, paging) = self
            .session
            .execute_single_page(statement, cells, from)
            .await
            .map_err(of_read)?;
        let next = match paging.into_paging_control_flow() {
            ControlFlow::Break(()) => None,
            ControlFlow::Continue(next) => Some(next),
        };
        Ok((rows(result)?, next))
    }

    pub async fn write(
        &self,
        statement: &PreparedStatement,
        cells: Cells,
    ) -> Result<(), EngineError> {
        self.session
            .execute_unpaged(statement, cells)
            .await
            .map_err(of_write)?;
        Ok(())
    }

    /// Writes to one partition, at once.
    pub async fn write_together(&self, bound: Vec<Bound<'_>>) -> Result<(), EngineError> {
        let (batch, cells) = batch(BatchType::Unlogged, bound);
        self.session.batch(&batch, cells).await.map_err(of_write)?;
        Ok(())
    }

    /// Writes to one partition if the condition of one of the statements holds.
    pub async fn decide(&self, bound: Vec<Bound<'_>>) -> Result<Decided, EngineError> {
        let (batch, cells) = batch(BatchType::Logged, bound);
        let result = self
            .session
            .batch(&batch, cells)
            .await
            .map_err(of_decision)?;
        let unreadable = || EngineError::OutcomeUnknown {
            reason: "the answer has no verdict".to_owned(),
        };
        let answer = rows(result).map_err(|_| unreadable())?;
        match answer.first().and_then(|row| row.columns.first()) {
            Some(Some(CqlValue::Boolean(true))) => Ok(Decided::Applied),
            Some(Some(CqlValue::Boolean(false))) => Ok(Decided::Refused),
            _ => Err(unreadable()),
        }
    }

    /// A setting as the contacted server reports it.
    pub async fn setting(&self, name: &str) -> Result<Option<String>, OpenError> {
        let failed = |reason: String| OpenError::Schema {
            reason: format!("reading setting {name}: {reason}"),
        };
        let statement = "SELECT value FROM system_views.settings WHERE name = ?";
        let result = self.session.query_unpaged(statement, (name,)).await;
        let answer = rows(result.map_err(|error| failed(error.to_string()))?)
            .map_err(|error| failed(error.to_string()))?;
        Ok(answer
            .first()
            .and_then(|row| row.columns.first().cloned().flatten())
            .and_then(|cell| match cell {
                CqlValue::Text(text) => Some(text),
                _ => None,
            }))
    }
}

fn batch(kind: BatchType, bound: Vec<Bound<'_>>) -> (Batch, Vec<Cells>) {
    let mut batch = Batch::new(kind);
    let mut all = Vec::with_capacity(bound.len());
    for (statement, cells) in bound {
        batch.append_statement(statement.clone());
        all.push(cells);
    }
    (batch, all)
}

fn rows(result: QueryResult) -> Result<Vec<Row>, EngineError> {
    let result = result.into_rows_result().map_err(damaged)?;
    result
        .rows::<Row>()
        .map_err(damaged)?
        .collect::<Result<_, _>>()
        .map_err(damaged)
}

pub(crate) fn text(text: impl Into<String>) -> Option<CqlValue> {
    Some(CqlValue::Text(text.into()))
}

pub(crate) fn number(number: i64) -> Option<CqlValue> {
    Some(CqlValue::BigInt(number))
}

/// Takes a row's cells apart, in the order of the statement's columns.
pub(crate) struct Columns(std::vec::IntoIter<Option<CqlValue>>);

impl Columns {
    pub fn of(row: Row) -> Columns {
        Columns(row.columns.into_iter())
    }

    pub fn cell(&mut self) -> Option<CqlValue> {
        self.0.next().flatten()
    }

    pub fn text(&mut self) -> Result<Option<String>, EngineError> {
        match self.cell() {
            None => Ok(None),
            Some(CqlValue::Text(text)) => Ok(Some(text)),
            Some(other) => Err(damaged(format!("{other:?} is not a text"))),
        }
    }

    pub fn number(&mut self) -> Result<Option<i64>, EngineError> {
        match self.cell() {
            None => Ok(None),
            Some(CqlValue::BigInt(number)) => Ok(Some(number)),
            Some(CqlValue::TinyInt(number)) => Ok(Some(i64::from(number))),
            Some(other) => Err(damaged(format!("{other:?} is not a number"))),
        }
    }

    pub fn bytes(&mut self) -> Result<Option<Vec<u8>>, EngineError> {
        match self.cell() {
            None => Ok(None),
            Some(CqlValue::Blob(bytes)) => Ok(Some(bytes)),
            Some(other) => Err(damaged(format!("{other:?} is not a blob"))),
        }
    }

    pub fn truth(&mut self) -> Result<Option<bool>, EngineError> {
        match self.cell() {
            None => Ok(None),
            Some(CqlValue::Boolean(truth)) => Ok(Some(truth)),
            Some(other) => Err(damaged(format!("{other:?} is not a boolean"))),
        }
    }
}
