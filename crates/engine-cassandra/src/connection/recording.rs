//! The statements of a call as they went to the driver, to be sent again
//! without the engine: what its own work is measured against.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use engine_api::EngineError;
use scylla::response::PagingState;
use scylla::statement::batch::Batch;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlValue;

use super::{Cells, Connection};
use crate::failure::of_write;

/// Notes what is sent, where somebody wants to know.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Option<Mutex<Vec<Sent>>>);

pub(super) enum Sent {
    Whole(PreparedStatement, Cells),
    Page(PreparedStatement, Cells),
    Batch(Batch, Vec<Cells>),
}

/// What was sent since the last recording was taken, in the order of sending.
#[derive(Debug)]
pub struct Recording {
    connection: Arc<Connection>,
    sent: Vec<Sent>,
}

/// By kind only: the driver's batches cannot be shown.
impl fmt::Debug for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sent::Whole(..) => "statement",
            Sent::Page(..) => "page",
            Sent::Batch(..) => "batch",
        })
    }
}

impl Recorder {
    pub fn on() -> Recorder {
        Recorder(Some(Mutex::default()))
    }

    pub(super) fn note(&self, sent: impl FnOnce() -> Sent) {
        if let Some(mut all) = self.all() {
            all.push(sent());
        }
    }

    fn all(&self) -> Option<MutexGuard<'_, Vec<Sent>>> {
        let all = self.0.as_ref()?.lock();
        Some(all.expect("no code panics while it holds the lock"))
    }
}

impl Recording {
    /// `None` when the connection records nothing.
    pub(crate) fn take(connection: &Arc<Connection>) -> Option<Recording> {
        let sent = std::mem::take(&mut *connection.recorder.all()?);
        Some(Recording {
            connection: Arc::clone(connection),
            sent,
        })
    }

    pub fn requests(&self) -> usize {
        self.sent.len()
    }

    /// Sends the same statements for another record, one after the other, and
    /// looks at no answer. Texts that are the first of a pair become the second.
    pub async fn replay(&self, renamed: &[(&str, &str)]) -> Result<(), EngineError> {
        let session = &self.connection.session;
        let new_text = |text: &str| {
            let pair = renamed.iter().find(|(old, _)| *old == text);
            pair.map_or(text, |(_, new)| new).to_owned()
        };
        let renamed = |cells: &Cells| -> Cells {
            let cell = |cell: &Option<CqlValue>| match cell {
                Some(CqlValue::Text(text)) => Some(CqlValue::Text(new_text(text))),
                other => other.clone(),
            };
            cells.iter().map(cell).collect()
        };
        for sent in &self.sent {
            match sent {
                Sent::Whole(statement, cells) => session
                    .execute_unpaged(statement, renamed(cells))
                    .await
                    .map(|_| ()),
                Sent::Page(statement, cells) => session
                    .execute_single_page(statement, renamed(cells), PagingState::start())
                    .await
                    .map(|_| ()),
                Sent::Batch(batch, cells) => {
                    let cells: Vec<Cells> = cells.iter().map(renamed).collect();
                    session.batch(batch, cells).await.map(|_| ())
                }
            }
            .map_err(of_write)?;
        }
        Ok(())
    }
}
