//! The journal, written ahead, in lanes (W22, W23).
//!
//! ```text
//!   lane of this engine:   7 applied │ 8 void │ 9 applied │ 10 begun ……
//!                                                         ▲ a reader stops here
//! ```
//! Each open engine has a lane of its own with dense numbers, cut into segments
//! so that no partition grows without bound. A change takes a number, writes
//! its entry as *begun*, is carried out, and settles the entry as *applied*, or
//! as *void* when it was refused. Because the entry comes first:
//!
//! - what was changed has an entry, whenever the writer dies;
//! - a number without an entry belongs to a change that never began: a gap
//!   hides no straggler, and whoever meets it may close it;
//! - an entry that stays *begun* names its key: after some patience the reader
//!   hands it on, because looking at an unchanged record again is harmless.
//!
//! A logged batch of entry and data was the other way. It cannot hold a
//! conditional write, and a change seen before its entry could be acknowledged
//! by its own retry. It costs about the same.
//!
//! Timestamps are steps, not clocks: begun at 1, settled at 2, trimmed at 3. A
//! reader closes a gap at 1, so that its writer, should it live, has the last word.

mod lane;
mod position;
mod reader;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use engine_api::{ChangeKind, EngineError, RecordKey, Revision, Timestamp};
use scylla::statement::prepared::PreparedStatement;

use crate::config::OpenError;
use crate::connection::{Columns, Connection, number, text};
use crate::failure::damaged;
use crate::levels::BOOKKEEPING;
use lane::Lane;

/// How many entries one segment of a lane holds. More than are ever in flight
/// at once, so that the last two segments show everything unsettled.
const SEGMENT_ENTRIES: u64 = 1024;

/// All lanes stand in one partition: there are as many as engines were opened.
const LANES_ANCHOR: &str = "lanes";

/// Obstacles are forgotten after this many times the patience: nobody stands there any more.
const OBSTACLE_PATIENCES_MAX: u32 = 16;

const STATE_BEGUN: &str = "begun";
const STATE_APPLIED: &str = "applied";
/// Sorts after `begun`: of two cells with one timestamp the greater value stays.
const STATE_VOID: &str = "void";

const STEP_BEGUN: i64 = 1;
const STEP_SETTLED: i64 = 2;
const STEP_TRIMMED: i64 = 3;

#[derive(Debug)]
pub(crate) struct Journal {
    lane: Lane,
    statements: Statements,
    patience: Duration,
    /// The lanes' numbers at which readers stopped, and since when.
    obstacles: Mutex<BTreeMap<(String, u64), Instant>>,
}

/// What an entry says.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub key: RecordKey,
    pub kind: ChangeKind,
    pub revision: Revision,
    pub written_at: Timestamp,
}

#[derive(Debug)]
struct Statements {
    announce: PreparedStatement,
    set_trimmed: PreparedStatement,
    lanes: PreparedStatement,
    begin: PreparedStatement,
    settle: PreparedStatement,
    read: PreparedStatement,
    trim: PreparedStatement,
}

/// What is known of a lane from outside.
#[derive(Clone, Debug)]
struct LaneState {
    lane: String,
    segment: u64,
    trimmed: u64,
}

impl Journal {
    /// Opens a lane of this engine's own.
    pub async fn open(
        connection: &Connection,
        keyspace: &str,
        lane: String,
        patience: Duration,
    ) -> Result<Journal, OpenError> {
        let statements = Statements::prepare(connection, keyspace).await?;
        let journal = Journal {
            lane: Lane::new(lane),
            statements,
            patience,
            obstacles: Mutex::default(),
        };
        let announced = journal.announce(connection, 0).await;
        announced.map_err(|error| OpenError::Schema {
            reason: error.to_string(),
        })?;
        Ok(journal)
    }

    async fn announce(&self, connection: &Connection, segment: u64) -> Result<(), EngineError> {
        let segment = to_number(segment);
        let cells = vec![
            text(LANES_ANCHOR),
            text(self.lane.name()),
            number(segment),
            number(segment + 1),
        ];
        connection
            .write(&self.statements.announce, cells, BOOKKEEPING)
            .await
    }

    async fn lanes(&self, connection: &Connection) -> Result<Vec<LaneState>, EngineError> {
        let rows = connection
            .read(
                &self.statements.lanes,
                vec![text(LANES_ANCHOR)],
                BOOKKEEPING,
            )
            .await?;
        let mut lanes = Vec::with_capacity(rows.len());
        for row in rows {
            let mut columns = Columns::of(row);
            lanes.push(LaneState {
                lane: columns
                    .text()?
                    .ok_or_else(|| damaged("a lane has no name"))?,
                segment: from_number(columns.number()?.unwrap_or(0))?,
                trimmed: from_number(columns.number()?.unwrap_or(0))?,
            });
        }
        Ok(lanes)
    }
}

impl Statements {
    async fn prepare(connection: &Connection, keyspace: &str) -> Result<Statements, OpenError> {
        let entry = "lane = ? AND segment = ? AND number";
        let set = async |column: &str| {
            let statement = format!(
                "INSERT INTO {keyspace}.journal_lanes (anchor, lane, {column}) VALUES (?, ?, ?) USING TIMESTAMP ?"
            );
            repeatable(connection, statement).await
        };
        let read = async |statement: String| repeatable(connection, statement).await;
        Ok(Statements {
            announce: set("segment").await?,
            set_trimmed: set("trimmed").await?,
            lanes: read(format!("SELECT lane, segment, trimmed FROM {keyspace}.journal_lanes WHERE anchor = ?")).await?,
            begin: repeatable(
                connection,
                format!(
                    "INSERT INTO {keyspace}.journal (lane, segment, number, state, collection, id, shard_key, \
                     kind, revision, written_at) VALUES (?, ?, ?, '{STATE_BEGUN}', ?, ?, ?, ?, ?, ?) \
                     USING TIMESTAMP {STEP_BEGUN}"
                ),
            )
            .await?,
            settle: repeatable(
                connection,
                format!("UPDATE {keyspace}.journal USING TIMESTAMP ? SET state = ? WHERE {entry} = ?"),
            )
            .await?,
            read: read(format!(
                "SELECT number, state, collection, id, shard_key, kind, revision, written_at \
                 FROM {keyspace}.journal WHERE {entry} >= ? LIMIT ?"
            ))
            .await?,
            trim: repeatable(
                connection,
                format!("DELETE FROM {keyspace}.journal USING TIMESTAMP {STEP_TRIMMED} WHERE {entry} <= ?"),
            )
            .await?,
        })
    }
}

/// Journal writes may be repeated by the driver: whatever becomes of them, the
/// record itself was not touched by them.
async fn repeatable(
    connection: &Connection,
    statement: String,
) -> Result<PreparedStatement, OpenError> {
    connection.prepare_repeatable(&statement).await
}

fn segment_of(number: u64) -> u64 {
    number / SEGMENT_ENTRIES
}

fn to_number(number: u64) -> i64 {
    i64::try_from(number).expect("a lane never counts to 2^63")
}

fn from_number(number: i64) -> Result<u64, EngineError> {
    u64::try_from(number).map_err(|_| damaged(format!("{number} is not a journal number")))
}
