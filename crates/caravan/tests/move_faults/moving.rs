//! A move as `move status` shows it, and how it is told in the table.

use anyhow::Context;
use serde_json::Value;

use crate::cell::End;

/// A move on its way.
pub struct Moving {
    pub name: String,
    /// The shard that the keys were on.
    pub from: usize,
    pub phase: String,
    pub end: End,
    /// How often each command was given.
    pub cutovers: u32,
    pub endings: u32,
    /// The reasons of cutovers and rollbacks that did not come about.
    given_up: Vec<(i64, String)>,
    pub term: u64,
    /// As far as the process lived to tell it.
    freeze_ms: Option<u64>,
    freeze_back_ms: Option<u64>,
}

impl Moving {
    pub fn started(name: String, from: usize, end: End) -> Moving {
        Moving {
            name,
            from,
            phase: "planned".to_owned(),
            end,
            cutovers: 0,
            endings: 0,
            given_up: Vec::new(),
            term: 0,
            freeze_ms: None,
            freeze_back_ms: None,
        }
    }

    /// How it got on after the kill.
    pub fn story(&self) -> String {
        let mut told = Vec::new();
        if self.term > 1 {
            told.push(format!("taken over, term {}", self.term));
        }
        match self.given_up.as_slice() {
            [] => told.push("went on by itself".to_owned()),
            reasons => {
                let reasons: Vec<&str> = reasons.iter().map(|(_, why)| why.as_str()).collect();
                let commands = self.cutovers + self.endings;
                told.push(format!(
                    "given up ({}), repeated by command ({commands} commands in all)",
                    reasons.join("; ")
                ));
            }
        }
        told.join(", ")
    }

    pub fn freezes(&self) -> String {
        let shown = |ms: Option<u64>| ms.map_or("unknown".to_owned(), |ms| format!("{ms} ms"));
        match self.end {
            End::Aborted => "none".to_owned(),
            End::Completed => shown(self.freeze_ms),
            End::RolledBack => {
                let (there, back) = (shown(self.freeze_ms), shown(self.freeze_back_ms));
                format!("{there}, back {back}")
            }
        }
    }

    pub fn note(&mut self, status: &Value) -> anyhow::Result<()> {
        let phase = status["phase"].as_str().context("a phase")?;
        self.phase = phase.to_owned();
        self.term = status["term"].as_u64().context("a term")?;
        let freeze_ms = status["shown"]["freeze_ms"].as_u64();
        match phase {
            "settling" | "completed" | "cleaning up" | "cleaned up" => self.freeze_ms = freeze_ms,
            "rolled back" => self.freeze_back_ms = freeze_ms,
            _ => {}
        }
        let given_up = &status["given_up"];
        if let (Some(at), Some(why)) = (given_up["at_unix_us"].as_i64(), given_up["why"].as_str())
            && self.given_up.last().is_none_or(|(last, _)| *last != at)
        {
            self.given_up.push((at, why.to_owned()));
        }
        Ok(())
    }
}
