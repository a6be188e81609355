//! Why something was not done: RFC 9457 on the wire, one sentence for people.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    pub kind: Kind,
    /// What happened and what to do.
    pub detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    NotFound,
    /// Not now, or not with this plan.
    Refused,
    /// It was not understood.
    Invalid,
    /// Meant for another process: the address is an old one.
    Misdirected,
    Forbidden,
    /// Later, perhaps.
    Unavailable,
    Internal,
}

/// The members of a problem.
#[derive(Debug, Serialize, Deserialize)]
struct Problem {
    #[serde(rename = "type")]
    type_: String,
    title: String,
    status: u16,
    detail: String,
}

impl Kind {
    const ALL: [Kind; 7] = [
        Kind::NotFound,
        Kind::Refused,
        Kind::Invalid,
        Kind::Misdirected,
        Kind::Forbidden,
        Kind::Unavailable,
        Kind::Internal,
    ];

    pub(crate) fn status(self) -> u16 {
        match self {
            Kind::NotFound => 404,
            Kind::Refused => 409,
            Kind::Invalid => 422,
            Kind::Misdirected => 421,
            Kind::Forbidden => 403,
            Kind::Unavailable => 503,
            Kind::Internal => 500,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::NotFound => "not-found",
            Kind::Refused => "refused",
            Kind::Invalid => "invalid",
            Kind::Misdirected => "misdirected",
            Kind::Forbidden => "forbidden",
            Kind::Unavailable => "unavailable",
            Kind::Internal => "internal",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Kind::NotFound => "There is no such thing",
            Kind::Refused => "Not now, or not like this",
            Kind::Invalid => "Not understood",
            Kind::Misdirected => "Meant for another process",
            Kind::Forbidden => "Not from there",
            Kind::Unavailable => "Not at the moment",
            Kind::Internal => "A fault of ours",
        }
    }
}

impl Refusal {
    pub fn new(kind: Kind, detail: &str) -> Refusal {
        let detail = detail.to_owned();
        Refusal { kind, detail }
    }

    pub(crate) fn to_json(&self) -> Vec<u8> {
        let problem = Problem {
            type_: format!("/problems/{}", self.kind.name()),
            title: self.kind.title().to_owned(),
            status: self.kind.status(),
            detail: self.detail.clone(),
        };
        serde_json::to_vec(&problem).expect("texts and numbers always become JSON")
    }

    /// `None`: it is no problem of ours.
    pub(crate) fn of_json(bytes: &[u8]) -> Option<Refusal> {
        let problem: Problem = serde_json::from_slice(bytes).ok()?;
        let kind = Kind::ALL.into_iter();
        let kind = kind
            .into_iter()
            .find(|kind| kind.status() == problem.status)?;
        let detail = problem.detail;
        Some(Refusal { kind, detail })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}
