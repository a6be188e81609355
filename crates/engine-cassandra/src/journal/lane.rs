//! Writing a lane: begin, settle, and settle again what could not be settled.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use engine_api::{ChangeKind, EngineError};
use scylla::value::CqlValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    Entry, Journal, SEGMENT_ENTRIES, STATE_APPLIED, STATE_VOID, STEP_SETTLED, segment_of, to_number,
};
use crate::connection::{Connection, number, text};
use crate::levels::BOOKKEEPING;

/// Changes under way at once in one lane.
const IN_FLIGHT_MAX: usize = 256;
/// Entries whose settling failed and is tried again; with more, writing pauses.
const UNSETTLED_MAX: usize = 512;
/// How many of them one change tries again before its own work.
const RESETTLED_MAX: usize = 8;

const _: () = assert!(IN_FLIGHT_MAX + UNSETTLED_MAX < SEGMENT_ENTRIES as usize);

#[derive(Debug)]
pub(crate) struct Lane {
    name: String,
    in_flight: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    announced_segment: u64,
    unsettled: BTreeMap<u64, &'static str>,
}

/// An entry that was begun: its change may go ahead.
#[derive(Debug)]
#[must_use = "an entry that is not settled stops every reader of the lane"]
pub(crate) struct Begun {
    number: u64,
    _permit: OwnedSemaphorePermit,
}

impl Lane {
    pub fn new(name: String) -> Lane {
        Lane {
            name,
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            state: Mutex::default(),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no code panics while it holds the lock")
    }

    fn take_unsettled(&self) -> Vec<(u64, &'static str)> {
        let mut state = self.lock();
        let numbers: Vec<u64> = state
            .unsettled
            .keys()
            .copied()
            .take(RESETTLED_MAX)
            .collect();
        numbers
            .into_iter()
            .filter_map(|number| state.unsettled.remove_entry(&number))
            .collect()
    }
}

impl Journal {
    /// Writes the entry down. An error means that the change must not go ahead,
    /// and that nothing was changed.
    pub async fn begin(
        &self,
        connection: &Connection,
        entry: &Entry,
    ) -> Result<Begun, EngineError> {
        let permit = Arc::clone(&self.lane.in_flight).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        self.resettle(connection).await;
        let (number, announced) = {
            let mut state = self.lane.lock();
            if state.unsettled.len() >= UNSETTLED_MAX {
                return Err(EngineError::Unavailable {
                    reason: format!("{UNSETTLED_MAX} journal entries wait to be settled"),
                });
            }
            state.last += 1;
            (state.last, state.announced_segment)
        };
        match self.write_begun(connection, entry, number, announced).await {
            Ok(()) => Ok(Begun {
                number,
                _permit: permit,
            }),
            Err(error) => {
                self.lane.lock().unsettled.insert(number, STATE_VOID);
                Err(EngineError::Unavailable {
                    reason: error.to_string(),
                })
            }
        }
    }

    /// The change was carried out, or may have been.
    pub async fn applied(&self, connection: &Connection, begun: Begun) {
        self.settle(connection, begun.number, STATE_APPLIED).await;
    }

    /// The change was refused.
    pub async fn void(&self, connection: &Connection, begun: Begun) {
        self.settle(connection, begun.number, STATE_VOID).await;
    }

    /// Settles what could not be settled before.
    pub(super) async fn resettle(&self, connection: &Connection) {
        for (number, state) in self.lane.take_unsettled() {
            self.settle(connection, number, state).await;
        }
    }

    /// A failure is not the change's: it is kept, and tried again later.
    async fn settle(&self, connection: &Connection, number: u64, state: &'static str) {
        let written = self
            .write_state(connection, self.lane.name(), number, state, STEP_SETTLED)
            .await;
        if let Err(error) = written {
            tracing::warn!(lane = self.lane.name(), number, %error, "journal entry not settled, trying again later");
            self.lane.lock().unsettled.insert(number, state);
        }
    }

    pub(super) async fn write_state(
        &self,
        connection: &Connection,
        lane: &str,
        entry_number: u64,
        state: &str,
        step: i64,
    ) -> Result<(), EngineError> {
        let segment = number(to_number(segment_of(entry_number)));
        let cells = vec![
            number(step),
            text(state),
            text(lane),
            segment,
            number(to_number(entry_number)),
        ];
        connection
            .write(&self.statements.settle, cells, BOOKKEEPING)
            .await
    }

    async fn write_begun(
        &self,
        connection: &Connection,
        entry: &Entry,
        entry_number: u64,
        announced: u64,
    ) -> Result<(), EngineError> {
        let segment = segment_of(entry_number);
        if segment > announced {
            self.announce(connection, segment).await?;
            let mut state = self.lane.lock();
            state.announced_segment = state.announced_segment.max(segment);
        }
        let kind = match entry.kind {
            ChangeKind::Written => "written",
            ChangeKind::Removed => "removed",
        };
        let cells = vec![
            text(self.lane.name()),
            number(to_number(segment)),
            number(to_number(entry_number)),
            text(entry.key.collection.name()),
            text(entry.key.id.as_str()),
            Some(CqlValue::Blob(entry.key.shard_key.as_bytes().to_vec())),
            text(kind),
            number(entry.revision.to_i64()),
            number(entry.written_at.unix_micros()),
        ];
        connection
            .write(&self.statements.begin, cells, BOOKKEEPING)
            .await
    }
}
