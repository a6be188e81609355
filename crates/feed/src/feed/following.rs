//! Reading the journal on, page by page.
//!
//! Entries that the source does not show yet, or whose cargo has something to do
//! later, wait and hold the saved position back: it is the lowest that is not done (W22). Reading goes on meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use engine_api::{
    ChangeKind, EngineError, JournalEntry, JournalEvent, Position, RecordKey, Revision, Timestamp,
};

use super::carrying::{Done, Named};
use super::{Pass, Route, Tenure, Work, of_side};
use crate::error::{FeedError, Side};
use crate::phase::{Event, Phase};

/// Where a holder reads, ahead of what it has saved.
#[derive(Debug)]
pub(super) struct Reading {
    at: Position,
    /// Counts entries, so that the lowest that waits can be told: positions are opaque.
    ordinal: u64,
    waiting: BTreeMap<RecordKey, Waiting>,
}

/// Entries of one record that are not done yet.
#[derive(Clone, Debug)]
struct Waiting {
    kind: ChangeKind,
    revision: Revision,
    /// The place just before the first of them.
    before: Position,
    ordinal: u64,
    /// By `World::elapsed`.
    until: Duration,
}

/// What a page says about one record.
#[derive(Clone, Debug)]
struct Mentioned {
    named: Named,
    before: Position,
    ordinal: u64,
}

impl Route {
    pub(super) async fn follow(
        &self,
        tenure: &Tenure,
        work: &mut Work,
        at: Position,
    ) -> Result<Pass, FeedError> {
        let began = self.world.now();
        let mut reading = match work.reading.take() {
            Some(reading) => reading,
            None => Reading {
                at,
                ordinal: 0,
                waiting: BTreeMap::new(),
            },
        };
        let read = self.read_on(tenure, work, &mut reading, began).await;
        let done = reading.done().clone();
        // Dropped before this line, the next pass begins at what was saved.
        work.reading = Some(reading);
        let pass = match read {
            Ok(pass) => pass,
            Err(FeedError::Engine {
                source: EngineError::PositionLost,
                ..
            }) => return self.lose(tenure, work).await,
            Err(error) => return Err(error),
        };
        self.save_position(tenure, work, done).await?;
        if pass == Pass::CaughtUp {
            self.counts.caught_up(self.due_before(began));
        }
        Ok(pass)
    }

    async fn read_on(
        &self,
        tenure: &Tenure,
        work: &mut Work,
        reading: &mut Reading,
        now: Timestamp,
    ) -> Result<Pass, FeedError> {
        self.look_again(tenure, work, reading).await?;
        if reading.waiting.len() >= self.limits.waiting_max {
            return Ok(Pass::CaughtUp);
        }
        let limit = self.limits.page_entries_max.min(self.piece_max);
        let page = self.source.journal_read(&reading.at, limit).await;
        let page = page.map_err(|source| of_side(tenure, Side::Source, source))?;
        let due = self.due(&page.entries, now);
        let next = match (due.len() == page.entries.len(), due.last()) {
            (true, _) => page.next.clone(),
            (false, Some(last)) => last.position.clone(),
            (false, None) => reading.at.clone(),
        };
        let mentioned = self.mentioned(due, reading);
        let lagging = due.len() + reading.waiting.len();
        self.counts.lag_entries.set(lagging as u64);
        let named: Vec<Named> = mentioned.iter().map(|it| it.named.clone()).collect();
        let shown = self.carry_named(tenure, work, &named).await?;
        let until = self.world.elapsed() + Duration::from_millis(self.limits.show_ms_max);
        for (mentioned, shown) in mentioned.into_iter().zip(shown) {
            reading.settle(mentioned, shown, until);
        }
        reading.at = next;
        reading.ordinal += due.len() as u64;
        self.counts.entries.add(due.len() as u64);
        self.counts.lag_entries.set(reading.waiting.len() as u64);
        Ok(if due.len() == limit {
            Pass::Behind
        } else {
            Pass::CaughtUp
        })
    }

    /// Looks again at what was not done before.
    async fn look_again(
        &self,
        tenure: &Tenure,
        work: &mut Work,
        reading: &mut Reading,
    ) -> Result<(), FeedError> {
        if reading.waiting.is_empty() {
            return Ok(());
        }
        let named: Vec<Named> = reading
            .waiting
            .iter()
            .map(|(key, waiting)| Named {
                key: key.clone(),
                kind: waiting.kind,
                revision: waiting.revision,
            })
            .collect();
        let shown = self.carry_named(tenure, work, &named).await?;
        let now = self.world.elapsed();
        let mut given_up = 0;
        for (named, shown) in named.iter().zip(shown) {
            let patience_is_over = reading
                .waiting
                .get(&named.key)
                .is_some_and(|waiting| waiting.until <= now);
            match shown {
                Done::Yes => {
                    reading.waiting.remove(&named.key);
                }
                // A change that was announced and never happened (E18).
                Done::NotYet if patience_is_over => {
                    reading.waiting.remove(&named.key);
                    given_up += 1;
                }
                Done::NotYet => {}
            }
        }
        if given_up > 0 {
            let feed = tenure.name();
            tracing::warn!(feed, given_up, "journal entries whose change never showed");
            self.counts.never_shown.add(given_up);
        }
        Ok(())
    }

    /// The entries at the head of a page that are old enough.
    fn due<'a>(&self, entries: &'a [JournalEntry], now: Timestamp) -> &'a [JournalEntry] {
        if self.limits.delay_ms == 0 {
            return entries;
        }
        let before = self.due_before(now);
        let due = entries
            .iter()
            .take_while(|entry| entry.written_at <= before);
        &entries[..due.count()]
    }

    fn due_before(&self, now: Timestamp) -> Timestamp {
        let delay_us = i64::try_from(self.limits.delay_ms * 1_000).unwrap_or(i64::MAX);
        Timestamp::from_unix_micros(now.unix_micros().saturating_sub(delay_us))
    }

    /// The cargo's records that the page names, each once, with the newest of what
    /// is said about it and the place of the first.
    fn mentioned(&self, due: &[JournalEntry], reading: &Reading) -> Vec<Mentioned> {
        let (collection, scope) = (self.cargo.collection(), self.cargo.scope());
        let mut mentioned: Vec<Mentioned> = Vec::new();
        let mut places: BTreeMap<&RecordKey, usize> = BTreeMap::new();
        let mut before = &reading.at;
        for (index, entry) in due.iter().enumerate() {
            let place = before;
            before = &entry.position;
            let JournalEvent::Changed {
                key,
                kind,
                revision,
            } = &entry.event
            else {
                continue;
            };
            if key.collection != collection || !scope.contains(&key.shard_key) {
                continue;
            }
            if let Some(at) = places.get(key) {
                let named = &mut mentioned[*at].named;
                if named.revision < *revision {
                    (named.kind, named.revision) = (*kind, *revision);
                }
                continue;
            }
            places.insert(key, mentioned.len());
            mentioned.push(Mentioned {
                named: Named {
                    key: key.clone(),
                    kind: *kind,
                    revision: *revision,
                },
                before: place.clone(),
                ordinal: reading.ordinal + index as u64,
            });
        }
        mentioned
    }

    /// Not before every entry in front of it is done.
    async fn save_position(
        &self,
        tenure: &Tenure,
        work: &mut Work,
        done: Position,
    ) -> Result<(), FeedError> {
        let Some(phase) = work.held.state.step(Event::ReadTo { at: done }) else {
            return Ok(());
        };
        if phase != work.held.state {
            self.save(tenure, work, phase).await?;
        }
        Ok(())
    }

    /// Says so where everybody looks, and carries nothing more (W28).
    async fn lose(&self, tenure: &Tenure, work: &mut Work) -> Result<Pass, FeedError> {
        work.reading = None;
        if let Some(lost) = work.held.state.step(Event::PositionLost) {
            self.save(tenure, work, lost).await?;
        }
        if let Phase::Lost { .. } = work.held.state {
            self.counts.positions_lost.add(1);
            self.counts.lost.set(1);
            return Err(FeedError::PositionLost {
                feed: tenure.name().to_owned(),
            });
        }
        Ok(Pass::Behind)
    }
}

impl Reading {
    /// The lowest place before which everything is done.
    fn done(&self) -> &Position {
        let lowest = self.waiting.values().min_by_key(|waiting| waiting.ordinal);
        lowest.map_or(&self.at, |waiting| &waiting.before)
    }

    pub(super) fn forgo_waiting(&mut self) -> usize {
        std::mem::take(&mut self.waiting).len()
    }

    fn settle(&mut self, mentioned: Mentioned, shown: Done, until: Duration) {
        let Mentioned {
            named,
            before,
            ordinal,
        } = mentioned;
        let waits = self.waiting.get_mut(&named.key);
        match (shown, waits) {
            // What waited longer is shown too, unless it is newer.
            (Done::Yes, Some(waiting)) if waiting.revision <= named.revision => {
                self.waiting.remove(&named.key);
            }
            (Done::Yes, _) => {}
            (Done::NotYet, Some(waiting)) if waiting.revision < named.revision => {
                waiting.kind = named.kind;
                waiting.revision = named.revision;
                waiting.until = until;
            }
            (Done::NotYet, Some(_)) => {}
            (Done::NotYet, None) => {
                let waiting = Waiting {
                    kind: named.kind,
                    revision: named.revision,
                    before,
                    ordinal,
                    until,
                };
                self.waiting.insert(named.key, waiting);
            }
        }
    }
}
