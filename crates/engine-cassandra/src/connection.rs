//! The driver, reduced to what the engine asks of it.

mod cutting;
mod inspection;
mod recording;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use engine_api::EngineError;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::policies::load_balancing::DefaultPolicy;
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::policies::speculative_execution::SimpleSpeculativeExecutionPolicy;
use scylla::response::PagingState;
use scylla::response::query_result::QueryResult;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};
use scylla::value::{CqlValue, Row};

use crate::config::{CassandraConfig, OpenError};
use crate::failure::{damaged, of_decision, of_read, of_write};
pub(crate) use recording::Recorder;
pub use recording::Recording;
use recording::Sent;

/// The values of one statement, in the order of its marks.
pub(crate) type Cells = Vec<Option<CqlValue>>;

/// A statement with its values.
pub(crate) type Bound<'a> = (&'a PreparedStatement, Cells);

/// Where a page starts, and how many rows it has at the most.
#[derive(Debug)]
pub(crate) struct PageStart {
    pub from: PagingState,
    pub rows: i32,
}

#[derive(Debug)]
pub(crate) struct Connection {
    session: Session,
    recorder: Recorder,
}

/// What a conditional batch met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decided {
    Applied,
    Refused,
}

impl Connection {
    pub async fn open(
        config: &CassandraConfig,
        recorder: Recorder,
    ) -> Result<Connection, OpenError> {
        let mut policy = DefaultPolicy::builder().token_aware(true);
        if let Some(datacentre) = &config.local_datacentre {
            policy = policy.prefer_datacenter(datacentre.clone());
        }
        let speculative = SimpleSpeculativeExecutionPolicy {
            max_retry_count: 1,
            retry_interval: Duration::from_millis(config.speculative_after_ms),
        };
        let profile = ExecutionProfile::builder()
            .consistency(Consistency::LocalQuorum)
            .serial_consistency(Some(SerialConsistency::LocalSerial))
            .request_timeout(Some(config.request_timeout()))
            .load_balancing_policy(policy.build())
            .speculative_execution_policy(Some(Arc::new(speculative)))
            .build();
        let mut builder = SessionBuilder::new()
            .known_nodes_addr(config.contact_points.iter().copied())
            .default_execution_profile_handle(profile.into_handle());
        if let Some(credentials) = &config.credentials {
            builder = builder.user(&credentials.user, &credentials.password);
        }
        let session = builder.build().await.map_err(inspection::refused_session)?;
        Ok(Connection { session, recorder })
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

    /// Prepares a write that is sent once: a copy that the driver sent again could
    /// arrive after the change was refused (E2).
    pub async fn prepare(&self, statement: &str) -> Result<PreparedStatement, OpenError> {
        let prepared = self.session.prepare(statement).await;
        prepared.map_err(|error| OpenError::Schema {
            reason: format!("{statement}: {error}"),
        })
    }

    /// Prepares a read, or a write that may arrive again and at any time without
    /// harm. The driver repeats these by itself, and asks a second server when
    /// the first one is slow.
    pub async fn prepare_repeatable(
        &self,
        statement: &str,
    ) -> Result<PreparedStatement, OpenError> {
        let mut prepared = self.prepare(statement).await?;
        prepared.set_is_idempotent(true);
        Ok(prepared)
    }

    pub async fn read(
        &self,
        statement: &PreparedStatement,
        cells: Cells,
        level: Consistency,
    ) -> Result<Vec<Row>, EngineError> {
        let statement = at(statement, level);
        self.recorder
            .note(|| Sent::Whole(statement.clone(), cells.clone()));
        rows(
            self.session
                .execute_unpaged(&statement, cells)
                .await
                .map_err(of_read)?,
        )
    }

    /// One page, and where the next one starts.
    pub async fn read_page(
        &self,
        statement: &PreparedStatement,
        cells: Cells,
        level: Consistency,
        page: PageStart,
    ) -> Result<(Vec<Row>, Option<PagingState>), EngineError> {
        let mut statement = at(statement, level);
        statement.set_page_size(page.rows);
        self.recorder
            .note(|| Sent::Page(statement.clone(), cells.clone()));
        let (result, paging) = self
            .session
            .execute_single_page(&statement, cells, page.from)
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
        level: Consistency,
    ) -> Result<(), EngineError> {
        let statement = at(statement, level);
        self.recorder
            .note(|| Sent::Whole(statement.clone(), cells.clone()));
        self.session
            .execute_unpaged(&statement, cells)
            .await
            .map_err(of_write)?;
        Ok(())
    }

    /// Writes to several partitions. Up to the servers' limit for a batch all of
    /// it happens or none; more than that goes in several batches, in the order
    /// given, and may end half-way.
    pub async fn write_together(
        &self,
        bound: Vec<Bound<'_>>,
        level: Consistency,
    ) -> Result<(), EngineError> {
        for (number, piece) in cutting::pieces(bound).into_iter().enumerate() {
            match self.write_piece(piece, level).await {
                Err(error) if number > 0 => {
                    return Err(EngineError::OutcomeUnknown {
                        reason: format!("half of it was written: {error}"),
                    });
                }
                other => other?,
            }
        }
        Ok(())
    }

    async fn write_piece(
        &self,
        mut piece: Vec<Bound<'_>>,
        level: Consistency,
    ) -> Result<(), EngineError> {
        if piece.len() == 1
            && let Some((statement, cells)) = piece.pop()
        {
            return self.write(statement, cells, level).await;
        }
        let is_repeatable = |(statement, _): &Bound<'_>| statement.get_is_idempotent();
        let repeatable = piece.iter().all(is_repeatable);
        let (mut batch, cells) = batch(BatchType::Logged, piece);
        batch.set_consistency(level);
        batch.set_is_idempotent(repeatable);
        self.recorder
            .note(|| Sent::Batch(batch.clone(), cells.clone()));
        self.session.batch(&batch, cells).await.map_err(of_write)?;
        Ok(())
    }

    /// Writes to one partition if the condition of one of the statements holds.
    pub async fn decide(
        &self,
        bound: Vec<Bound<'_>>,
        level: Consistency,
        serial: SerialConsistency,
    ) -> Result<Decided, EngineError> {
        let (mut batch, cells) = batch(BatchType::Unlogged, bound);
        batch.set_consistency(level);
        batch.set_serial_consistency(Some(serial));
        // "Too few servers" is no verdict on a conditional write: never sent again.
        batch.set_retry_policy(Some(Arc::new(FallthroughRetryPolicy)));
        self.recorder
            .note(|| Sent::Batch(batch.clone(), cells.clone()));
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
}

fn at(statement: &PreparedStatement, level: Consistency) -> PreparedStatement {
    let mut statement = statement.clone();
    statement.set_consistency(level);
    statement
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
