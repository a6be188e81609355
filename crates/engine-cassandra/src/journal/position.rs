//! A position: how far each lane was read, as JSON, so that operators can read it too.

use std::collections::BTreeMap;

use engine_api::{EngineError, Position};
use serde_json::{Map, Value as Json};

/// The last number read, by lane. A lane that is missing was not read at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LanesRead(pub BTreeMap<String, u64>);

impl LanesRead {
    pub fn from_position(position: &Position) -> Result<LanesRead, EngineError> {
        let Ok(Json::Object(object)) = serde_json::from_slice(&position.0) else {
            return Err(EngineError::PositionLost);
        };
        let lane = |(lane, number): (String, Json)| Some((lane, number.as_u64()?));
        object
            .into_iter()
            .map(lane)
            .collect::<Option<_>>()
            .map(LanesRead)
            .ok_or(EngineError::PositionLost)
    }

    pub fn to_position(&self) -> Position {
        let object: Map<String, Json> = self
            .0
            .iter()
            .map(|(lane, number)| (lane.clone(), Json::from(*number)))
            .collect();
        Position(Json::Object(object).to_string().into_bytes())
    }

    pub fn of(&self, lane: &str) -> u64 {
        self.0.get(lane).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_comes_back_and_garbage_is_lost() {
        let read = LanesRead(BTreeMap::from([
            ("a".to_owned(), 1),
            ("b".to_owned(), u64::MAX),
        ]));
        assert_eq!(LanesRead::from_position(&read.to_position()).unwrap(), read);
        for garbage in ["", "[]", "{\"a\":-1}", "{\"a\":\"1\"}"] {
            let position = Position(garbage.as_bytes().to_vec());
            assert_eq!(
                LanesRead::from_position(&position),
                Err(EngineError::PositionLost),
                "{garbage}"
            );
        }
    }
}
