//! The requests, and their form on the wire. Pure.
//!
//! | request | on the wire |
//! | --- | --- |
//! | list, status | `GET /moves`, `GET /moves/NAME` |
//! | plan, start | `POST /plan`, `POST /moves` with what is to be moved |
//! | of whole collections | `POST /layout/plan`, `POST /layout/moves` with where they go |
//! | pause, resume, throttle, cutover, rollback, complete, abort | `POST /moves/NAME/pause` … |
//! | certificate | `GET /moves/NAME/certificate`, `GET /moves/NAME/rollback-certificate` |
//! | shards, a new one | `GET /shards`, `POST /shards` |
//! | the audit journal | `GET /audit` |

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::refusal::{Kind, Refusal};

#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Would it be refused? Changes nothing.
    Plan {
        moved: Value,
    },
    Start {
        moved: Value,
    },
    /// Of whole collections, to another layout. Changes nothing.
    PlanLayout {
        moved: Value,
    },
    /// The next collection, or the one that is named.
    StartLayout {
        moved: Value,
    },
    List,
    Status {
        name: String,
    },
    Ask {
        name: String,
        asked: Asked,
    },
    Certificate {
        name: String,
        which: Which,
    },
    Shards,
    AddShard,
    Audit,
}

/// What can be asked of a move that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Asked {
    Pause {},
    Resume {},
    Throttle {
        #[serde(default)]
        records_per_s: Option<u32>,
        #[serde(default)]
        bytes_per_s: Option<u64>,
        /// What 99 of 100 shoppers' requests may take meanwhile.
        #[serde(default)]
        p99_ms_max: Option<u32>,
        #[serde(default)]
        reason: Option<String>,
    },
    Cutover {
        /// `None`: now. Otherwise `ready`, a time of day as `03:00`, or `by hand`.
        #[serde(default)]
        when: Option<String>,
        /// Another budget than the one it has; only for a cutover now.
        #[serde(default)]
        freeze_ms_max: Option<u64>,
    },
    Rollback {
        /// Another budget than the one it has.
        #[serde(default)]
        freeze_ms_max: Option<u64>,
    },
    Complete {
        /// What becomes of the source: `10m`, `keep`; `None`: what the process that works for it has set.
        #[serde(default)]
        grace: Option<String>,
    },
    Abort {},
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Cutover,
    Rollback,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Post,
}

/// A request as HTTP has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wire {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
}

impl Request {
    /// Whether it changes something; such a request goes into the audit journal.
    pub fn changes(&self) -> bool {
        match self {
            Request::Start { .. }
            | Request::StartLayout { .. }
            | Request::Ask { .. }
            | Request::AddShard => true,
            Request::Plan { .. }
            | Request::PlanLayout { .. }
            | Request::List
            | Request::Status { .. }
            | Request::Certificate { .. }
            | Request::Shards
            | Request::Audit => false,
        }
    }

    pub(crate) fn to_wire(&self) -> Wire {
        let get = |path: String| (Method::Get, path, None);
        let post = |path: &str, moved: &Value| (Method::Post, path.to_owned(), Some(moved.clone()));
        let of_move = |name: &str, rest: &str| {
            let name = utf8_percent_encode(name, NON_ALPHANUMERIC);
            format!("/moves/{name}{rest}")
        };
        let (method, path, body) = match self {
            Request::Plan { moved } => post("/plan", moved),
            Request::Start { moved } => post("/moves", moved),
            Request::PlanLayout { moved } => post("/layout/plan", moved),
            Request::StartLayout { moved } => post("/layout/moves", moved),
            Request::List => get("/moves".to_owned()),
            Request::Status { name } => get(of_move(name, "")),
            Request::Ask { name, asked } => {
                let (verb, body) = asked.taken_apart();
                (Method::Post, of_move(name, &format!("/{verb}")), Some(body))
            }
            Request::Certificate { name, which } => get(match which {
                Which::Cutover => of_move(name, "/certificate"),
                Which::Rollback => of_move(name, "/rollback-certificate"),
            }),
            Request::Shards => get("/shards".to_owned()),
            Request::AddShard => (Method::Post, "/shards".to_owned(), None),
            Request::Audit => get("/audit".to_owned()),
        };
        Wire { method, path, body }
    }

    pub(crate) fn of_wire(wire: Wire) -> Result<Request, Refusal> {
        let Wire { method, path, body } = wire;
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let body =
            || body.ok_or_else(|| Refusal::new(Kind::Invalid, "the body is missing: send JSON"));
        match (method, segments.as_slice()) {
            (Method::Post, ["plan"]) => Ok(Request::Plan { moved: body()? }),
            (Method::Post, ["moves"]) => Ok(Request::Start { moved: body()? }),
            (Method::Post, ["layout", "plan"]) => Ok(Request::PlanLayout { moved: body()? }),
            (Method::Post, ["layout", "moves"]) => Ok(Request::StartLayout { moved: body()? }),
            (Method::Get, ["moves"]) => Ok(Request::List),
            (Method::Get, ["moves", name]) => Ok(Request::Status { name: text(name)? }),
            (Method::Get, ["moves", name, "certificate"]) => Ok(Request::Certificate {
                name: text(name)?,
                which: Which::Cutover,
            }),
            (Method::Get, ["moves", name, "rollback-certificate"]) => Ok(Request::Certificate {
                name: text(name)?,
                which: Which::Rollback,
            }),
            (Method::Post, ["moves", name, verb]) => Ok(Request::Ask {
                name: text(name)?,
                asked: Asked::put_together(verb, body().unwrap_or_else(|_| json!({})))?,
            }),
            (Method::Get, ["shards"]) => Ok(Request::Shards),
            (Method::Post, ["shards"]) => Ok(Request::AddShard),
            (Method::Get, ["audit"]) => Ok(Request::Audit),
            _ => Err(Refusal::new(
                Kind::NotFound,
                "there is nothing here: ask /moves, /plan, /layout, /shards or /audit",
            )),
        }
    }
}

impl Asked {
    /// Its name, as it is told and typed.
    pub fn name(&self) -> String {
        self.taken_apart().0
    }

    fn taken_apart(&self) -> (String, Value) {
        let value = serde_json::to_value(self).expect("texts and numbers always become JSON");
        let Value::Object(members) = value else {
            unreachable!("an enum of structs becomes an object with one member")
        };
        let member = members.into_iter().next();
        member.expect("an enum of structs becomes an object with one member")
    }

    fn put_together(verb: &str, body: Value) -> Result<Asked, Refusal> {
        let mut members = serde_json::Map::new();
        members.insert(verb.to_owned(), body);
        serde_json::from_value(Value::Object(members)).map_err(|error| {
            Refusal::new(
                Kind::Invalid,
                &format!("this cannot be asked of a move: {error}"),
            )
        })
    }
}

fn text(segment: &str) -> Result<String, Refusal> {
    let decoded = percent_decode_str(segment).decode_utf8();
    let text = decoded.map_err(|_| Refusal::new(Kind::Invalid, "the name is no text: send UTF-8"));
    Ok(text?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(asked: Asked) -> Request {
        let name = "carts-1/ä".to_owned();
        Request::Ask { name, asked }
    }

    #[test]
    fn every_request_arrives_as_it_was_sent() {
        let moved = json!({"name": "carts-1", "slots": "0-9"});
        let name = || "carts-1".to_owned();
        for request in [
            Request::Plan {
                moved: moved.clone(),
            },
            Request::Start {
                moved: moved.clone(),
            },
            Request::PlanLayout {
                moved: moved.clone(),
            },
            Request::StartLayout { moved },
            Request::List,
            Request::Status { name: name() },
            ask(Asked::Pause {}),
            ask(Asked::Resume {}),
            ask(Asked::Throttle {
                records_per_s: Some(7),
                bytes_per_s: Some(7_000),
                p99_ms_max: None,
                reason: Some("quietly".to_owned()),
            }),
            ask(Asked::Cutover {
                when: None,
                freeze_ms_max: Some(500),
            }),
            ask(Asked::Cutover {
                when: Some("03:00".to_owned()),
                freeze_ms_max: None,
            }),
            ask(Asked::Rollback {
                freeze_ms_max: None,
            }),
            ask(Asked::Rollback {
                freeze_ms_max: Some(2_000),
            }),
            ask(Asked::Complete { grace: None }),
            ask(Asked::Complete {
                grace: Some("10m".to_owned()),
            }),
            ask(Asked::Abort {}),
            Request::Certificate {
                name: name(),
                which: Which::Cutover,
            },
            Request::Certificate {
                name: name(),
                which: Which::Rollback,
            },
            Request::Shards,
            Request::AddShard,
            Request::Audit,
        ] {
            assert_eq!(Request::of_wire(request.to_wire()), Ok(request));
        }
    }

    #[test]
    fn what_cannot_be_asked_is_refused_with_the_reason() {
        fn check(method: Method, path: &str, body: Option<Value>, kind: Kind, said: &str) {
            let path = path.to_owned();
            let refused = Request::of_wire(Wire { method, path, body }).unwrap_err();
            assert_eq!(refused.kind, kind, "{refused}");
            assert!(refused.detail.contains(said), "{refused}");
        }
        check(Method::Post, "/moves", None, Kind::Invalid, "send JSON");
        check(Method::Get, "/carts", None, Kind::NotFound, "/moves");
        check(
            Method::Post,
            "/moves/a/explode",
            None,
            Kind::Invalid,
            "explode",
        );
        let wrong = Some(json!({"records_per_s": "many"}));
        check(
            Method::Post,
            "/moves/a/throttle",
            wrong,
            Kind::Invalid,
            "many",
        );
        let unknown = Some(json!({"at": "03:00"}));
        check(
            Method::Post,
            "/moves/a/cutover",
            unknown,
            Kind::Invalid,
            "`at`",
        );
    }
}
