//! Reading all lanes, merged by revision, each up to its first unsettled number.

use std::collections::VecDeque;
use std::time::Instant;

use engine_api::{
    ChangeKind, EngineError, JOURNAL_ENTRIES_MAX, JournalEntry, JournalEvent, JournalPage,
    Position, RecordId, RecordKey, Timestamp,
};
use layout::{Collection, ShardKey};
use scylla::value::{CqlValue, Row};

use super::position::LanesRead;
use super::{
    Entry, Journal, LaneState, OBSTACLE_PATIENCES_MAX, SEGMENT_ENTRIES, STATE_APPLIED, STATE_BEGUN,
    STATE_VOID, STEP_BEGUN, from_number, segment_of, to_number,
};
use crate::authority::numbered;
use crate::connection::{Columns, Connection, number, text};
use crate::failure::damaged;
use crate::levels::BOOKKEEPING;

/// A row of a lane: its number, its state, and what it says unless it is a closed gap.
struct LaneRow {
    number: u64,
    state: String,
    entry: Option<Entry>,
}

/// What a lane has after a number.
struct LaneRead {
    lane: String,
    entries: VecDeque<(u64, Entry)>,
    /// Everything up to here was seen and is settled.
    reached: u64,
}

impl Journal {
    /// The place after everything settled, lane by lane.
    pub async fn end(&self, connection: &Connection) -> Result<Position, EngineError> {
        self.resettle(connection).await;
        let mut read = LanesRead::default();
        for lane in self.lanes(connection).await? {
            // What is unsettled stands in the last two segments, see `SEGMENT_ENTRIES`.
            let start = (lane.segment.saturating_sub(1) * SEGMENT_ENTRIES)
                .saturating_sub(1)
                .max(lane.trimmed);
            let all = usize::try_from(3 * SEGMENT_ENTRIES).expect("a small number");
            let reached = self.read_lane(connection, &lane, start, all).await?.reached;
            read.0.insert(lane.lane, reached);
        }
        Ok(read.to_position())
    }

    pub async fn read(
        &self,
        connection: &Connection,
        from: &Position,
        limit: usize,
    ) -> Result<JournalPage, EngineError> {
        self.resettle(connection).await;
        let limit = limit.clamp(1, JOURNAL_ENTRIES_MAX);
        let mut read = LanesRead::from_position(from)?;
        let lanes = self.lanes(connection).await?;
        if read
            .0
            .keys()
            .any(|known| !lanes.iter().any(|lane| lane.lane == *known))
        {
            return Err(EngineError::PositionLost);
        }
        let mut found = Vec::with_capacity(lanes.len());
        for lane in &lanes {
            let after = read.of(&lane.lane);
            self.check_reachable(connection, lane, after).await?;
            found.push(self.read_lane(connection, lane, after, limit).await?);
        }
        let mut entries = Vec::new();
        while entries.len() < limit
            && let Some(lane) = oldest(&mut found)
            && let Some((number, entry)) = lane.entries.pop_front()
        {
            read.0.insert(lane.lane.clone(), number);
            let Entry {
                key,
                kind,
                revision,
                written_at,
            } = entry;
            let event = JournalEvent::Changed {
                key,
                kind,
                revision,
            };
            entries.push(JournalEntry {
                position: read.to_position(),
                written_at,
                event,
            });
        }
        for lane in found
            .into_iter()
            .filter(|lane| lane.entries.is_empty() && lane.reached > 0)
        {
            read.0.insert(lane.lane, lane.reached);
        }
        Ok(JournalPage {
            entries,
            next: read.to_position(),
        })
    }

    /// Trims settled entries written before a moment. Answers how many entries went.
    pub async fn trim(
        &self,
        connection: &Connection,
        before: Timestamp,
        items_max: usize,
    ) -> Result<usize, EngineError> {
        let mut trimmed = 0;
        for lane in self.lanes(connection).await? {
            let read = self
                .read_lane(connection, &lane, lane.trimmed, items_max - trimmed)
                .await?;
            let old: Vec<u64> = read
                .entries
                .iter()
                .take_while(|(_, entry)| entry.written_at < before)
                .map(|(number, _)| *number)
                .collect();
            let last = if old.len() == read.entries.len() {
                Some(read.reached)
            } else {
                old.last().copied()
            };
            if let Some(last) = last.filter(|last| *last > lane.trimmed) {
                self.trim_lane(connection, &lane, last).await?;
                trimmed += old.len();
            }
            if trimmed >= items_max {
                break;
            }
        }
        Ok(trimmed)
    }

    /// The floor rises before anything goes, so that no reader mistakes it for the beginning (W28).
    async fn trim_lane(
        &self,
        connection: &Connection,
        lane: &LaneState,
        last: u64,
    ) -> Result<(), EngineError> {
        let floor = to_number(last);
        let cells = vec![
            text(super::LANES_ANCHOR),
            text(&lane.lane),
            number(floor),
            number(floor + 1),
        ];
        connection
            .write(&self.statements.set_trimmed, cells, BOOKKEEPING)
            .await?;
        for segment in segment_of(lane.trimmed)..=segment_of(last) {
            let cells = vec![text(&lane.lane), number(to_number(segment)), number(floor)];
            connection
                .write(&self.statements.trim, cells, BOOKKEEPING)
                .await?;
        }
        Ok(())
    }

    /// A position is reachable when nothing after it was trimmed and it was once read.
    async fn check_reachable(
        &self,
        connection: &Connection,
        lane: &LaneState,
        after: u64,
    ) -> Result<(), EngineError> {
        if after < lane.trimmed {
            return Err(EngineError::PositionLost);
        }
        if after == lane.trimmed {
            return Ok(());
        }
        let row = self
            .rows(connection, &lane.lane, after, 1)
            .await?
            .into_iter()
            .next();
        if row.is_some_and(|row| row.number == after) {
            Ok(())
        } else {
            Err(EngineError::PositionLost)
        }
    }

    async fn read_lane(
        &self,
        connection: &Connection,
        lane: &LaneState,
        after: u64,
        limit: usize,
    ) -> Result<LaneRead, EngineError> {
        let mut read = LaneRead {
            lane: lane.lane.clone(),
            entries: VecDeque::new(),
            reached: after,
        };
        while read.entries.len() < limit {
            let next = read.reached + 1;
            let rows = self.rows(connection, &lane.lane, next, limit).await?;
            // The last number of the lane may stand in its last segment, or not be written yet.
            if rows.is_empty() && segment_of(next) >= lane.segment {
                break;
            }
            if !self.take_rows(connection, &mut read, rows, limit).await? {
                break;
            }
        }
        Ok(read)
    }

    /// Takes what is settled. `false` when the reader has to stop here.
    async fn take_rows(
        &self,
        connection: &Connection,
        read: &mut LaneRead,
        rows: Vec<LaneRow>,
        limit: usize,
    ) -> Result<bool, EngineError> {
        if rows.is_empty() {
            return self.close_gap(connection, read).await;
        }
        for row in rows {
            while row.number > read.reached + 1 {
                if !self.close_gap(connection, read).await? {
                    return Ok(false);
                }
            }
            if row.state == STATE_BEGUN && !self.waited_for(&read.lane, row.number) {
                return Ok(false);
            }
            read.reached = row.number;
            match (row.state.as_str(), row.entry) {
                (STATE_BEGUN | STATE_APPLIED, Some(entry)) => {
                    read.entries.push_back((row.number, entry))
                }
                (STATE_VOID, _) => {}
                (state, _) => {
                    return Err(damaged(format!("journal entry {} is {state}", row.number)));
                }
            }
            if read.entries.len() >= limit {
                break;
            }
        }
        Ok(true)
    }

    /// A number that nobody wrote down belongs to a change that never began.
    async fn close_gap(
        &self,
        connection: &Connection,
        read: &mut LaneRead,
    ) -> Result<bool, EngineError> {
        let gap = read.reached + 1;
        if !self.waited_for(&read.lane, gap) {
            return Ok(false);
        }
        self.write_state(connection, &read.lane, gap, STATE_VOID, STEP_BEGUN)
            .await?;
        read.reached = gap;
        Ok(true)
    }

    /// Whether a reader has stood before this number long enough, by its own clock (W17).
    fn waited_for(&self, lane: &str, number: u64) -> bool {
        let mut obstacles = self
            .obstacles
            .lock()
            .expect("no code panics while it holds the lock");
        obstacles.retain(|_, since| since.elapsed() < self.patience * OBSTACLE_PATIENCES_MAX);
        let since = obstacles
            .entry((lane.to_owned(), number))
            .or_insert_with(Instant::now);
        since.elapsed() >= self.patience
    }

    /// Rows of one segment, from a number on.
    async fn rows(
        &self,
        connection: &Connection,
        lane: &str,
        from: u64,
        limit: usize,
    ) -> Result<Vec<LaneRow>, EngineError> {
        let rows_max =
            i32::try_from(limit.min(SEGMENT_ENTRIES as usize)).expect("a segment is small");
        let cells = vec![
            text(lane),
            number(to_number(segment_of(from))),
            number(to_number(from)),
            Some(CqlValue::Int(rows_max)),
        ];
        let rows = connection
            .read(&self.statements.read, cells, BOOKKEEPING)
            .await?;
        rows.into_iter().map(lane_row).collect()
    }
}

/// The lane whose next entry has the lowest revision: near the order in which things happened.
fn oldest(found: &mut [LaneRead]) -> Option<&mut LaneRead> {
    found
        .iter_mut()
        .filter(|lane| !lane.entries.is_empty())
        .min_by_key(|lane| lane.entries.front().map(|(_, entry)| entry.revision))
}

fn lane_row(row: Row) -> Result<LaneRow, EngineError> {
    let missing = || damaged("a journal row is cut short");
    let mut columns = Columns::of(row);
    let number = from_number(columns.number()?.ok_or_else(missing)?)?;
    let state = columns.text()?.ok_or_else(missing)?;
    let Some(collection) = columns.text()? else {
        return Ok(LaneRow {
            number,
            state,
            entry: None,
        });
    };
    let id = RecordId::new(columns.text()?.ok_or_else(missing)?).map_err(damaged)?;
    let shard_key = ShardKey::from_bytes(columns.bytes()?.ok_or_else(missing)?).map_err(damaged)?;
    let kind = match columns.text()?.as_deref() {
        Some("written") => ChangeKind::Written,
        Some("removed") => ChangeKind::Removed,
        other => {
            return Err(damaged(format!(
                "journal entry {number} is of kind {other:?}"
            )));
        }
    };
    let revision = numbered(columns.number()?.ok_or_else(missing)?)?;
    let written_at = Timestamp::from_unix_micros(columns.number()?.ok_or_else(missing)?);
    let collection = Collection::named(&collection).ok_or_else(missing)?;
    let key = RecordKey {
        collection,
        id,
        shard_key,
    };
    Ok(LaneRow {
        number,
        state,
        entry: Some(Entry {
            key,
            kind,
            revision,
            written_at,
        }),
    })
}
