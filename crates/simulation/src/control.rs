//! The control store behind a link; every map that stood there is recorded, and every
//! record of a move. Feeds keep their positions here too.

use std::sync::Arc;

use async_trait::async_trait;
use engine_api::memory::MemoryEngine;
use engine_api::{ControlStore, ControlValue, EngineError, SetOutcome};
use feed::tenure::Tenured;
use mover::MoveState;
use router::{MAP_NAME, Map};

use crate::link::{Call, Link};
use crate::recording::{Published, Recorded, Recording};
use crate::witness::Witness;

#[derive(Debug)]
pub struct FaultyControl {
    memory: Arc<MemoryEngine>,
    recording: Recording,
    pub witness: Witness,
    pub link: Link,
}

impl FaultyControl {
    pub fn new(link: Link, recording: Recording) -> FaultyControl {
        FaultyControl {
            memory: Arc::new(MemoryEngine::new()),
            witness: Witness::new(recording.clone()),
            recording,
            link,
        }
    }

    /// What stands here, past the link.
    pub fn behind(&self) -> &dyn ControlStore {
        self.memory.as_ref()
    }
}

#[async_trait]
impl ControlStore for FaultyControl {
    async fn control_get(&self, name: &str) -> Result<Option<ControlValue>, EngineError> {
        let (memory, name) = (Arc::clone(&self.memory), name.to_owned());
        let serve = move || {
            let (memory, name) = (Arc::clone(&memory), name.clone());
            async move { memory.control_get(&name).await }
        };
        self.link.send(Call::Reads, serve).await
    }

    async fn compare_and_set(
        &self,
        name: &str,
        expected: Option<u64>,
        bytes: Vec<u8>,
    ) -> Result<SetOutcome, EngineError> {
        let (memory, name) = (Arc::clone(&self.memory), name.to_owned());
        let (recording, witness) = (self.recording.clone(), self.witness.clone());
        let serve = move || {
            let (memory, name) = (Arc::clone(&memory), name.clone());
            let (recording, bytes) = (recording.clone(), bytes.clone());
            let witness = witness.clone();
            async move {
                let outcome = memory
                    .compare_and_set(&name, expected, bytes.clone())
                    .await?;
                if !matches!(outcome, SetOutcome::Set { .. }) {
                    return Ok(outcome);
                }
                if name == MAP_NAME {
                    record_map(&recording, &witness, &bytes).await;
                } else if let Some(name) = name.strip_prefix("move-") {
                    record_move(&recording, name, &bytes);
                }
                Ok(outcome)
            }
        };
        self.link.send(Call::Writes, serve).await
    }
}

async fn record_map(recording: &Recording, witness: &Witness, bytes: &[u8]) {
    let map = match Map::from_json(bytes) {
        Ok(map) => Arc::new(map),
        Err(error) => {
            return recording.breach(format!("a map was published that cannot be read: {error}"));
        }
    };
    let before = recording.with(|history| {
        let before = history.maps.last().map(|before| Arc::clone(&before.map));
        let note = map.note.as_ref().map(|note| format!(", {}", note.reason));
        let what = format!(
            "map {} is published{}",
            map.generation,
            note.unwrap_or_default()
        );
        let moment = history.note(what);
        let map = Arc::clone(&map);
        history.maps.push(Published { moment, map });
        before
    });
    if let Some(before) = before {
        witness.sees(&before, &map).await;
    }
}

fn record_move(recording: &Recording, name: &str, bytes: &[u8]) {
    match serde_json::from_slice::<Tenured<MoveState>>(bytes) {
        Ok(record) => recording.with(|history| {
            let state = &record.state;
            let moment = history.note(format!(
                "move {name} is {}, {:?}, wish {:?}, term {} of {}, given up: {:?}",
                state.phase.name(),
                state.pace,
                state.wish,
                record.term,
                record
                    .holder
                    .as_deref()
                    .map_or("nobody", |holder| &holder[..4]),
                state.given_up.as_ref().map(|given_up| &given_up.why),
            ));
            let name = name.to_owned();
            history.records.push(Recorded {
                moment,
                name,
                record,
            });
        }),
        Err(error) => recording.breach(format!("a record of a move cannot be read: {error}")),
    }
}
