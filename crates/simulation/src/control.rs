//! The control store behind a link; every map that stood there is recorded. Feeds keep
//! their positions here too.

use std::sync::Arc;

use async_trait::async_trait;
use engine_api::memory::MemoryEngine;
use engine_api::{ControlStore, ControlValue, EngineError, SetOutcome};
use router::{MAP_NAME, Map};

use crate::link::{Call, Link};
use crate::recording::{Published, Recording};

#[derive(Debug)]
pub struct FaultyControl {
    memory: Arc<MemoryEngine>,
    recording: Recording,
    pub link: Link,
}

impl FaultyControl {
    pub fn new(link: Link, recording: Recording) -> FaultyControl {
        FaultyControl {
            memory: Arc::new(MemoryEngine::new()),
            recording,
            link,
        }
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
        let recording = self.recording.clone();
        let serve = move || {
            let (memory, name) = (Arc::clone(&memory), name.clone());
            let (recording, bytes) = (recording.clone(), bytes.clone());
            async move {
                let outcome = memory
                    .compare_and_set(&name, expected, bytes.clone())
                    .await?;
                if name == MAP_NAME && matches!(outcome, SetOutcome::Set { .. }) {
                    record(&recording, &bytes);
                }
                Ok(outcome)
            }
        };
        self.link.send(Call::Writes, serve).await
    }
}

fn record(recording: &Recording, bytes: &[u8]) {
    match Map::from_json(bytes) {
        Ok(map) => recording.with(|history| {
            let moment = history.note(format!("map {} is published", map.generation));
            history.maps.push(Published {
                moment,
                map: Arc::new(map),
            });
        }),
        Err(error) => recording.breach(format!("a map was published that cannot be read: {error}")),
    }
}
