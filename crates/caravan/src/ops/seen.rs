//! A move as it is shown: to people, to programs, over the wire.

use anyhow::{Context, Result};
use feed::tenure::Tenured;
use mover::{End, MoveName, MoveState, WriteOwner};
use serde_json::{Map, Value, json};

/// What is kept of the record under another name, since its own is used for what people read.
const EVIDENCE: &str = "evidence";

/// What follows from the rest, and is there for who reads.
const ADDED: [&str; 6] = ["move", "phase", "served_by", "ended", "term", "held"];

#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub name: MoveName,
    /// `None`: it was never begun.
    pub record: Option<StandingMove>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StandingMove {
    pub term: u64,
    /// Whether a process works for it.
    pub held: bool,
    pub state: MoveState,
}

impl Seen {
    pub fn new(name: MoveName, record: Option<Tenured<MoveState>>) -> Seen {
        let record = record.map(|record| StandingMove {
            term: record.term,
            held: record.holder.is_some(),
            state: record.state,
        });
        Seen { name, record }
    }

    pub fn to_json(&self) -> Value {
        let Some(record) = &self.record else {
            return json!({"move": self.name, "phase": null});
        };
        let state = &record.state;
        let value = serde_json::to_value(state).expect("a record always becomes JSON");
        let Value::Object(mut members) = value else {
            unreachable!("a struct becomes an object")
        };
        if let Some(phase) = members.remove("phase") {
            members.insert(EVIDENCE.to_owned(), phase);
        }
        let added = [
            json!(self.name),
            json!(state.phase.name()),
            json!(server(state)),
            json!(state.phase.is_over()),
            json!(record.term),
            json!(record.held),
        ];
        members.extend(ADDED.map(str::to_owned).into_iter().zip(added));
        Value::Object(members)
    }

    pub fn of_json(value: Value) -> Result<Seen> {
        let strange = "the answer is of another version of caravan: use the one that serves";
        let Value::Object(mut members) = value else {
            anyhow::bail!(strange)
        };
        let mut take = |name: &str| members.remove(name).unwrap_or(Value::Null);
        let [name, _, _, _, term, held] = ADDED.map(&mut take);
        let name: MoveName = serde_json::from_value(name).context(strange)?;
        let phase = take(EVIDENCE);
        if phase.is_null() {
            return Ok(Seen { name, record: None });
        }
        let mut members: Map<String, Value> = members;
        members.insert("phase".to_owned(), phase);
        let record = StandingMove {
            term: serde_json::from_value(term).context(strange)?,
            held: serde_json::from_value(held).context(strange)?,
            state: serde_json::from_value(Value::Object(members)).context(strange)?,
        };
        let record = Some(record);
        Ok(Seen { name, record })
    }
}

/// Who takes shoppers' writes: a shard, or the shards of a layout; nobody does behind a freeze.
pub fn server(state: &MoveState) -> Option<String> {
    match state.phase.write_owner() {
        WriteOwner::Source => Some(state.plan.called(End::Source)),
        WriteOwner::Nobody => None,
        WriteOwner::Target => Some(state.plan.called(End::Target)),
    }
}

#[cfg(test)]
mod tests {
    use layout::{Collection, Scope};
    use router::ShardName;

    use super::*;

    #[test]
    fn a_move_comes_back_from_the_wire_as_it_was() {
        let shard = |name| ShardName::new(name).unwrap();
        let state = MoveState::first(mover::Plan {
            collection: Collection::Carts,
            moved: mover::Moved::Keys {
                scope: Scope::All,
                source: shard("shard-1"),
                target: shard("shard-2"),
            },
            freeze_ms_max: 100,
        });
        let name = MoveName::new("carts-1").unwrap();
        let record = Tenured {
            term: 3,
            holder: Some("me".to_owned()),
            state,
        };
        let seen = Seen::new(name.clone(), Some(record));
        let json = seen.to_json();
        assert_eq!(json["phase"], "planned");
        assert_eq!(json["served_by"], "shard-1");
        assert_eq!(Seen::of_json(json).unwrap(), seen);
        let never = Seen { name, record: None };
        assert_eq!(Seen::of_json(never.to_json()).unwrap(), never);
        assert!(Seen::of_json(json!([])).is_err());
    }
}
