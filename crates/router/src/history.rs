//! The generations that were published, when and why: for people, not for routing.
//!
//! A map carries its own note, and every publisher sees to it that the map it
//! replaces is in the history before it does so. A publisher that dies in
//! between leaves no gap: the standing map tells of itself.

use std::sync::Arc;

use engine_api::{ControlStore, Generation, SetOutcome, Timestamp};
use serde::{Deserialize, Serialize};

use crate::keeper::{KeeperError, PUBLISH_ATTEMPTS_MAX};
use crate::map::{Map, MapError};

/// The name of the history in the control store.
pub const HISTORY_NAME: &str = "map-history";

/// How many generations are remembered.
pub const HISTORY_ENTRIES_MAX: usize = 500;

/// The longest reason, in characters; the rest is cut off.
pub const REASON_CHARACTERS_MAX: usize = 200;

/// When and why a map was published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// The publisher's wall clock, microseconds since the epoch. Nothing is decided by it.
    at_unix_us: i64,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HistoryEntry {
    pub generation: Generation,
    /// `None`: its publisher gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Note>,
}

#[derive(Clone, Debug)]
pub struct MapHistory {
    control: Arc<dyn ControlStore>,
}

/// Oldest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entries(Vec<HistoryEntry>);

impl Note {
    pub fn new(at: Timestamp, reason: &str) -> Note {
        Note {
            at_unix_us: at.unix_micros(),
            reason: reason.chars().take(REASON_CHARACTERS_MAX).collect(),
        }
    }

    pub fn at(&self) -> Timestamp {
        Timestamp::from_unix_micros(self.at_unix_us)
    }
}

impl MapHistory {
    pub fn new(control: Arc<dyn ControlStore>) -> MapHistory {
        MapHistory { control }
    }

    /// Oldest first, the standing map last.
    pub async fn entries(&self, standing: &Map) -> Result<Vec<HistoryEntry>, KeeperError> {
        let (mut entries, _) = self.load().await?;
        entries.add(standing);
        Ok(entries.0)
    }

    /// Remembers the map, unless it or a newer one is remembered already.
    pub(crate) async fn add(&self, map: &Map) -> Result<(), KeeperError> {
        let mut failure = None;
        for _ in 0..PUBLISH_ATTEMPTS_MAX {
            let (mut entries, number) = self.load().await?;
            if !entries.add(map) {
                return Ok(());
            }
            let bytes = serde_json::to_vec(&entries).expect("entries are plain values only");
            let set = self.control.compare_and_set(HISTORY_NAME, number, bytes);
            match set.await {
                Ok(SetOutcome::Set { .. }) => return Ok(()),
                Ok(SetOutcome::Lost { .. }) => {}
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(()), |error| Err(error.into()))
    }

    async fn load(&self) -> Result<(Entries, Option<u64>), KeeperError> {
        let Some(value) = self.control.control_get(HISTORY_NAME).await? else {
            return Ok((Entries::default(), None));
        };
        let entries = serde_json::from_slice(&value.bytes).map_err(|error| {
            let reason = format!("history: {error}");
            KeeperError::Map(MapError::Unreadable { reason })
        })?;
        Ok((entries, Some(value.number)))
    }
}

impl Entries {
    /// Whether it was new.
    fn add(&mut self, map: &Map) -> bool {
        let newest = self.0.last().map(|entry| entry.generation);
        if newest.is_some_and(|newest| newest >= map.generation) {
            return false;
        }
        self.0.push(HistoryEntry {
            generation: map.generation,
            note: map.note.clone(),
        });
        let outgrown = self.0.len().saturating_sub(HISTORY_ENTRIES_MAX);
        self.0.drain(..outgrown);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_history_is_bounded_and_goes_forward_only() {
        let mut entries = Entries::default();
        let mut map = Map::first(BTreeMap::new());
        for generation in 1..=HISTORY_ENTRIES_MAX as u64 + 3 {
            map.generation = Generation(generation);
            assert!(entries.add(&map));
            assert!(!entries.add(&map));
        }
        map.generation = Generation(2);
        assert!(!entries.add(&map));
        assert_eq!(entries.0.len(), HISTORY_ENTRIES_MAX);
        assert_eq!(entries.0[0].generation, Generation(4));
    }

    #[test]
    fn a_long_reason_is_cut() {
        let note = Note::new(Timestamp::from_unix_micros(7), &"ä".repeat(300));
        assert_eq!(note.reason.chars().count(), REASON_CHARACTERS_MAX);
        assert_eq!(note.at(), Timestamp::from_unix_micros(7));
    }
}
