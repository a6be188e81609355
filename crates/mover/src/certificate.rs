//! What is kept of a cutover: from where to where, up to which seal, proven how, frozen
//! how long. A digest over all of it shows when a field was changed afterwards. It
//! guards against mistakes and bad disks, not against a forger, who could make it anew.

use engine_api::{ControlStore, Generation, Position, SetOutcome};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::error::MoveError;
use crate::freeze::FreezeParts;
use crate::phase::Way;
use crate::plan::{End, MoveName, Plan};
use crate::stall::Stall;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    pub content: Content,
    /// Of the content as JSON, in the order of its fields.
    pub digest: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Content {
    #[serde(rename = "move")]
    pub name: MoveName,
    pub direction: Direction,
    /// The mover's.
    pub term: u64,
    pub plan: Plan,
    pub generations: Generations,
    /// Of the shard that was left.
    #[serde(with = "feed::hex")]
    pub seal: Position,
    /// Of the target, before its first write.
    #[serde(with = "feed::hex")]
    pub back_from: Position,
    pub records: u64,
    pub left_root: String,
    pub entered_root: String,
    pub looked_again: u64,
    /// `None`: the process that cut over died before it could say.
    pub freeze_ms: Option<u64>,
    pub freeze_parts: FreezeParts,
    /// What clients saw; `None` likewise.
    pub stall: Option<Stall>,
    pub frozen_at_unix_us: i64,
    pub proven_at_unix_us: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    Cutover,
    Rollback,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generations {
    pub barrier: Generation,
    pub noticed: Generation,
    pub frozen: Generation,
    /// The one that gave the keys away.
    pub published: Generation,
}

impl Direction {
    /// The end that serves after a cutover in this direction.
    pub fn entered(self) -> End {
        match self {
            Direction::Cutover => End::Target,
            Direction::Rollback => End::Source,
        }
    }
}

impl Way {
    pub fn direction(&self) -> Direction {
        match self {
            Way::Forward { .. } => Direction::Cutover,
            Way::Back { .. } => Direction::Rollback,
        }
    }

    /// The end that serves until the cutover.
    pub fn left(&self) -> End {
        self.entered().other()
    }

    /// The end that serves after it.
    pub fn entered(&self) -> End {
        self.direction().entered()
    }

    pub(crate) fn barrier(&self) -> Generation {
        match self {
            Way::Forward { barrier, .. } => *barrier,
            Way::Back { settled } => settled.barrier,
        }
    }

    pub(crate) fn back_from(&self) -> &Position {
        match self {
            Way::Forward { back_from, .. } => back_from,
            Way::Back { settled } => &settled.back_from,
        }
    }
}

impl Certificate {
    pub fn of(content: Content) -> Certificate {
        let digest = digest(&content);
        Certificate { content, digest }
    }

    /// Whether nothing was changed since it was made.
    pub fn verify(&self) -> bool {
        self.digest == digest(&self.content)
    }
}

/// The certificate as it stands; `None`: there was no such cutover yet.
pub async fn certificate(
    control: &dyn ControlStore,
    name: &MoveName,
    direction: Direction,
) -> Result<Option<Certificate>, MoveError> {
    let value = control.control_get(&control_name(name, direction)).await;
    let Some(value) = value.map_err(MoveError::Control)? else {
        return Ok(None);
    };
    let certificate = serde_json::from_slice(&value.bytes);
    certificate.map(Some).map_err(|error| MoveError::Damaged {
        reason: format!("certificate: {error}"),
    })
}

/// Keeps the first: whoever comes to it a second time knows less about it.
pub(crate) async fn keep(
    control: &dyn ControlStore,
    certificate: &Certificate,
) -> Result<(), MoveError> {
    let name = control_name(&certificate.content.name, certificate.content.direction);
    let bytes = serde_json::to_vec_pretty(certificate).expect("texts and numbers become JSON");
    match control.compare_and_set(&name, None, bytes).await {
        Ok(SetOutcome::Set { .. } | SetOutcome::Lost { .. }) => Ok(()),
        Err(error) => Err(MoveError::Control(error)),
    }
}

fn control_name(name: &MoveName, direction: Direction) -> String {
    let direction = match direction {
        Direction::Cutover => "cutover",
        Direction::Rollback => "rollback",
    };
    format!("certificate-{name}-{direction}")
}

fn digest(content: &Content) -> String {
    let bytes = serde_json::to_vec(content).expect("texts and numbers become JSON");
    format!("{:032x}", xxh3_128(&bytes))
}

#[cfg(test)]
mod tests {
    use layout::{Collection, Scope};
    use router::ShardName;
    use serde_json::Value;

    use super::*;
    use crate::plan::Moved;
    use crate::stall::{Held, ProcessStall};

    fn certificate() -> Certificate {
        let shard = |name| ShardName::new(name).unwrap();
        Certificate::of(Content {
            name: MoveName::new("carts-1").unwrap(),
            direction: Direction::Cutover,
            term: 3,
            plan: Plan {
                collection: Collection::Carts,
                moved: Moved::Keys {
                    scope: Scope::All,
                    source: shard("a"),
                    target: shard("b"),
                },
                freeze_ms_max: 100,
            },
            generations: Generations {
                barrier: Generation(2),
                noticed: Generation(3),
                frozen: Generation(4),
                published: Generation(5),
            },
            seal: Position(vec![1]),
            back_from: Position(vec![2]),
            records: 10,
            left_root: "0a".into(),
            entered_root: "0b".into(),
            looked_again: 4,
            freeze_ms: Some(12),
            freeze_parts: FreezeParts {
                publish_us: Some(1),
                leases_us: Some(2),
                seal_us: Some(3),
                drain_us: Some(4),
                proof_us: Some(5),
                record_us: Some(6),
                give_us: Some(7),
            },
            stall: Some(Stall {
                all: held(3),
                processes: vec![ProcessStall {
                    process: "one".into(),
                    held: held(3),
                }],
                silent: vec!["two".into()],
            }),
            frozen_at_unix_us: 100,
            proven_at_unix_us: 200,
        })
    }

    fn held(requests: u64) -> Held {
        Held {
            requests,
            p50_us: 1,
            p99_us: 2,
            p999_us: 3,
            max_us: 4,
        }
    }

    /// Every leaf of the JSON, changed one at a time.
    fn changed(value: &Value) -> Vec<Value> {
        match value {
            Value::Object(fields) => {
                let mut all = Vec::new();
                for (name, field) in fields {
                    for other in changed(field) {
                        let mut fields = fields.clone();
                        fields.insert(name.clone(), other);
                        all.push(Value::Object(fields));
                    }
                }
                all
            }
            Value::Number(number) => vec![Value::from(number.as_i64().unwrap() + 1)],
            Value::String(text) => {
                // Another of the same kind, where only some texts are one.
                let other = match text.as_str() {
                    "cutover" => "rollback".to_owned(),
                    "carts" => "orders".to_owned(),
                    "all" => return vec![serde_json::json!({ "slots": ["0-1"] })],
                    text => format!("{text}00"),
                };
                vec![Value::String(other)]
            }
            Value::Array(items) => {
                let mut all = Vec::new();
                for (index, item) in items.iter().enumerate() {
                    for other in changed(item) {
                        let mut items = items.clone();
                        items[index] = other;
                        all.push(Value::Array(items));
                    }
                }
                all
            }
            Value::Null | Value::Bool(_) => Vec::new(),
        }
    }

    #[test]
    fn whatever_field_is_changed_the_certificate_no_longer_holds() {
        let certificate = certificate();
        assert!(certificate.verify());
        let value = serde_json::to_value(&certificate).unwrap();
        let read: Certificate = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(read, certificate);
        let all = changed(&value);
        assert_eq!(all.len(), 41, "one for each field, the digest included");
        for other in all {
            let text = other.to_string();
            let read: Certificate = serde_json::from_value(other).unwrap();
            assert!(!read.verify(), "{text}");
        }
    }
}
