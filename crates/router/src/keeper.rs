//! The keeper of the map: one control value, changed by compare-and-set.
//!
//! Publishing and aborting are the same thing, a compare-and-set to a higher
//! generation; nothing ever returns to an older one (W20).

use std::sync::{Arc, Mutex};

use engine_api::{
    CONTROL_BYTES_MAX, ControlStore, ControlValue, EngineError, Generation, Remedy, SetOutcome,
};

use crate::history::MapHistory;
use crate::map::{Map, MapError};

/// The name of the map in the control store.
pub const MAP_NAME: &str = "map";

/// How often one map is offered to a control store whose answers get lost.
pub const PUBLISH_ATTEMPTS_MAX: u32 = 4;

#[derive(Debug)]
pub struct MapKeeper {
    control: Arc<dyn ControlStore>,
    history: MapHistory,
    /// What was read last: a map is parsed once, not at every look.
    last_read: Mutex<Option<Standing>>,
    /// Up to here everything is in the history.
    remembered: Mutex<Generation>,
}

#[derive(Clone, Debug)]
struct Standing {
    number: u64,
    map: Arc<Map>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeeperError {
    #[error("map {offered} does not follow map {current}: take the standing map and edit that one")]
    NotNext {
        offered: Generation,
        current: Generation,
    },
    #[error(
        "another map was published first, {generation} stands there now: edit that one",
        generation = current.as_ref().map_or(Generation(0), |map| map.generation)
    )]
    Lost { current: Option<Arc<Map>> },
    #[error(
        "whether map {offered} was published is not known ({reason}): load the map and compare"
    )]
    OutcomeUnknown { offered: Generation, reason: String },
    #[error("the map has {bytes} bytes, the control store takes {most}: join ranges or unpin keys")]
    TooLong { bytes: usize, most: usize },
    #[error(transparent)]
    Map(#[from] MapError),
    #[error("control store: {0}")]
    Control(#[from] EngineError),
}

impl KeeperError {
    pub fn remedy(&self) -> Remedy {
        match self {
            KeeperError::NotNext { .. } | KeeperError::Lost { .. } => Remedy::RefreshMap,
            KeeperError::OutcomeUnknown { .. } => Remedy::ReadBack,
            KeeperError::Control(error) => error.remedy(),
            KeeperError::TooLong { .. } | KeeperError::Map(_) => Remedy::GiveUp,
        }
    }
}

impl MapKeeper {
    pub fn new(control: Arc<dyn ControlStore>) -> MapKeeper {
        MapKeeper {
            history: MapHistory::new(control.clone()),
            control,
            last_read: Mutex::new(None),
            remembered: Mutex::new(Generation(0)),
        }
    }

    /// The map that stands in the control store, or `None` before the first.
    pub async fn load(&self) -> Result<Option<Arc<Map>>, KeeperError> {
        Ok(self.standing().await?.map(|standing| standing.map))
    }

    /// Publishes the map that follows the standing one. An `Ok` means that the
    /// map was published; any error but `OutcomeUnknown` that it was not.
    pub async fn publish(&self, map: &Map) -> Result<(), KeeperError> {
        self.publish_at_once(map).await?;
        if let Err(error) = self.remember(map).await {
            // Whoever publishes the next one makes up for it.
            tracing::debug!(%error, "a map is not in the history yet");
        }
        Ok(())
    }

    /// The same for one whom shoppers wait for: nothing is read that was read before, and
    /// the map is not in the history yet (see [`MapKeeper::remember`]).
    pub async fn publish_at_once(&self, map: &Map) -> Result<(), KeeperError> {
        map.check_shape()?;
        let bytes = map.to_json();
        if bytes.len() > CONTROL_BYTES_MAX {
            return Err(KeeperError::TooLong {
                bytes: bytes.len(),
                most: CONTROL_BYTES_MAX,
            });
        }
        // Another's map in between makes the offer fail: it is against this number.
        let standing = match self.last_read().filter(|known| known.is_before(map)) {
            Some(known) => Some(known),
            None => self.standing().await?,
        };
        let current = standing
            .as_ref()
            .map_or(Generation(0), |standing| standing.map.generation);
        if map.generation != current.next() {
            return Err(KeeperError::NotNext {
                offered: map.generation,
                current,
            });
        }
        if let Some(standing) = &standing {
            self.remember(&standing.map).await?;
        }
        self.offer(map, standing.map(|standing| standing.number), bytes)
            .await
    }

    /// Sees to it that a published map is in the history.
    pub async fn remember(&self, map: &Map) -> Result<(), KeeperError> {
        let remembered = || {
            self.remembered
                .lock()
                .expect("no code panics while it holds the lock")
        };
        if *remembered() >= map.generation {
            return Ok(());
        }
        self.history.add(map).await?;
        let mut remembered = remembered();
        *remembered = map.generation.max(*remembered);
        Ok(())
    }

    /// Offers the same bytes against the same number until an answer arrives:
    /// at most one of the attempts can win.
    async fn offer(
        &self,
        map: &Map,
        expected: Option<u64>,
        bytes: Vec<u8>,
    ) -> Result<(), KeeperError> {
        let mut lost_answer: Option<String> = None;
        for _ in 0..PUBLISH_ATTEMPTS_MAX {
            match self
                .control
                .compare_and_set(MAP_NAME, expected, bytes.clone())
                .await
            {
                Ok(SetOutcome::Set { number }) => {
                    let map = Arc::new(map.clone());
                    self.know(Standing { number, map });
                    return Ok(());
                }
                Ok(SetOutcome::Lost { current }) => {
                    let Some(reason) = lost_answer else {
                        return Err(KeeperError::Lost {
                            current: self.parse_all(current)?,
                        });
                    };
                    return self.judge_after_lost_answer(map, &bytes, current, reason);
                }
                Err(EngineError::OutcomeUnknown { reason }) => lost_answer = Some(reason),
                Err(error) if lost_answer.is_none() => return Err(error.into()),
                Err(error) => lost_answer = Some(error.to_string()),
            }
        }
        let reason = lost_answer.unwrap_or_else(|| "no answer arrived".to_owned());
        Err(KeeperError::OutcomeUnknown {
            offered: map.generation,
            reason,
        })
    }

    /// An earlier attempt may have won: then its own bytes stand there, unless
    /// yet another map has followed them.
    fn judge_after_lost_answer(
        &self,
        map: &Map,
        bytes: &[u8],
        current: Option<ControlValue>,
        reason: String,
    ) -> Result<(), KeeperError> {
        if current.as_ref().is_some_and(|value| value.bytes == bytes) {
            return Ok(());
        }
        let current = self.parse_all(current)?;
        match &current {
            Some(standing) if standing.generation > map.generation => {
                Err(KeeperError::OutcomeUnknown {
                    offered: map.generation,
                    reason,
                })
            }
            _ => Err(KeeperError::Lost { current }),
        }
    }

    async fn standing(&self) -> Result<Option<Standing>, KeeperError> {
        let Some(value) = self.control.control_get(MAP_NAME).await? else {
            return Ok(None);
        };
        Ok(Some(self.parse(value)?))
    }

    fn parse_all(&self, value: Option<ControlValue>) -> Result<Option<Arc<Map>>, KeeperError> {
        Ok(value
            .map(|value| self.parse(value))
            .transpose()?
            .map(|standing| standing.map))
    }

    fn parse(&self, value: ControlValue) -> Result<Standing, KeeperError> {
        let known = self.last_read();
        if let Some(known) = known.filter(|known| known.number == value.number) {
            return Ok(known);
        }
        let map = Arc::new(Map::from_json(&value.bytes)?);
        let standing = Standing {
            number: value.number,
            map,
        };
        self.know(standing.clone());
        Ok(standing)
    }

    fn last_read(&self) -> Option<Standing> {
        let last_read = self.last_read.lock();
        let last_read = last_read.expect("no code panics while it holds the lock");
        last_read.clone()
    }

    fn know(&self, standing: Standing) {
        let last_read = self.last_read.lock();
        let mut known = last_read.expect("no code panics while it holds the lock");
        let is_newer = |known: &Standing| known.number < standing.number;
        if known.as_ref().is_none_or(is_newer) {
            *known = Some(standing);
        }
    }
}

impl Standing {
    fn is_before(&self, map: &Map) -> bool {
        self.map.generation.next() == map.generation
    }
}
