//! The audit journal: who asked for which change, when, and what came of it.
//!
//! One control value, so that it is the same for every process. An entry is written before its change is made, and told
//! the outcome afterwards: a change without an entry cannot be, an entry without an outcome can, when somebody died in
//! between.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use engine_api::{ControlStore, SetOutcome, Timestamp, World};
use ops_api::Operator;
use serde::{Deserialize, Serialize};

/// The name of the journal in the control store.
const AUDIT_NAME: &str = "audit";

/// Changes that are remembered; the oldest are left out.
pub const ENTRIES_MAX: usize = 1_000;

/// The longest text of an entry, in characters; the rest is cut off.
const TEXT_CHARACTERS_MAX: usize = 400;

const CHANGE_ATTEMPTS_MAX: u32 = 32;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Rises by one; a gap at the front is what was left out.
    pub number: u64,
    /// By the wall clock of whoever made the change.
    pub at_unix_us: i64,
    pub who: String,
    pub what: String,
    /// `None`: it is under way, or whoever made it died.
    pub outcome: Option<String>,
}

/// Oldest first.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entries {
    next: u64,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
pub struct Journal {
    control: Arc<dyn ControlStore>,
}

impl Entry {
    pub fn at(&self) -> Timestamp {
        Timestamp::from_unix_micros(self.at_unix_us)
    }
}

impl Journal {
    pub fn new(control: Arc<dyn ControlStore>) -> Journal {
        Journal { control }
    }

    /// Oldest first.
    pub async fn entries(&self) -> Result<Vec<Entry>> {
        Ok(self.load().await?.0.entries)
    }

    /// Announces a change; its number, to tell the outcome by.
    pub async fn begin(&self, world: &dyn World, who: &Operator, what: &str) -> Result<u64> {
        let at_unix_us = world.now().unix_micros();
        // An answer that was lost may leave the entry twice; nobody is misled by that.
        self.change(|entries| {
            let number = entries.next;
            entries.next += 1;
            entries.entries.push(Entry {
                number,
                at_unix_us,
                who: who.to_string(),
                what: shortened(what),
                outcome: None,
            });
            let outgrown = entries.entries.len().saturating_sub(ENTRIES_MAX);
            entries.entries.drain(..outgrown);
            number
        })
        .await
    }

    /// Makes a change between its announcement and its outcome. What cannot be announced is not made.
    pub async fn around<T, E: fmt::Display>(
        &self,
        world: &dyn World,
        who: &Operator,
        what: &str,
        change: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<T, E>> {
        let number = self.begin(world, who, what).await?;
        let made = change.await;
        let outcome = match &made {
            Ok(_) => "done".to_owned(),
            Err(refusal) => format!("refused: {refusal}"),
        };
        if let Err(error) = self.settle(number, &outcome).await {
            tracing::warn!(what, outcome, %error, "the audit journal was not told what came of a change");
        }
        Ok(made)
    }

    pub async fn settle(&self, number: u64, outcome: &str) -> Result<()> {
        self.change(|entries| {
            let mut all = entries.entries.iter_mut();
            if let Some(entry) = all.find(|entry| entry.number == number) {
                entry.outcome = Some(shortened(outcome));
            }
        })
        .await
    }

    async fn change<T>(&self, change: impl Fn(&mut Entries) -> T) -> Result<T> {
        for _ in 0..CHANGE_ATTEMPTS_MAX {
            let (mut entries, number) = self.load().await?;
            let changed = change(&mut entries);
            let bytes = serde_json::to_vec(&entries).expect("entries are plain values only");
            let set = self.control.compare_and_set(AUDIT_NAME, number, bytes);
            match set.await {
                Ok(SetOutcome::Set { .. }) => return Ok(changed),
                Ok(SetOutcome::Lost { .. }) => {}
                Err(error) => return Err(anyhow!("the audit journal cannot be written: {error}")),
            }
        }
        Err(anyhow!(
            "others wrote to the audit journal {CHANGE_ATTEMPTS_MAX} times in between: try again"
        ))
    }

    async fn load(&self) -> Result<(Entries, Option<u64>)> {
        let value = self.control.control_get(AUDIT_NAME).await;
        let value = value.map_err(|error| anyhow!("the audit journal cannot be read: {error}"))?;
        let Some(value) = value else {
            return Ok((Entries::default(), None));
        };
        let entries = serde_json::from_slice(&value.bytes)
            .map_err(|error| anyhow!("the audit journal is damaged ({error}): restore it"))?;
        Ok((entries, Some(value.number)))
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(TEXT_CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use engine_api::RealWorld;
    use engine_api::memory::MemoryEngine;

    use super::*;

    #[tokio::test]
    async fn the_journal_keeps_the_newest_changes_with_their_outcomes() {
        let journal = Journal::new(Arc::new(MemoryEngine::new()));
        let (world, who) = (RealWorld::new(), Operator::new("ann@host/7"));
        for number in 0..ENTRIES_MAX as u64 + 3 {
            let begun = journal
                .begin(&world, &who, "cutover carts-1")
                .await
                .unwrap();
            assert_eq!(begun, number);
        }
        journal.settle(ENTRIES_MAX as u64, "done").await.unwrap();
        // Left out meanwhile: nothing is left to be told.
        journal.settle(0, "done").await.unwrap();
        let entries = journal.entries().await.unwrap();
        assert_eq!(entries.len(), ENTRIES_MAX);
        assert_eq!(entries[0].number, 3);
        assert_eq!(entries[0].outcome, None);
        assert_eq!(entries[ENTRIES_MAX - 3].outcome.as_deref(), Some("done"));
        assert_eq!(entries[0].who, "ann@host/7");
    }

    #[tokio::test]
    async fn two_who_write_at_once_leave_both_entries() {
        let control: Arc<dyn ControlStore> = Arc::new(MemoryEngine::new());
        let (world, who) = (RealWorld::new(), Operator::new("ann"));
        let journals = [Journal::new(control.clone()), Journal::new(control)];
        let begin =
            |journal: usize, what: &'static str| journals[journal].begin(&world, &who, what);
        let (one, other) = tokio::join!(begin(0, "pause a"), begin(1, "pause b"));
        assert_ne!(one.unwrap(), other.unwrap());
        assert_eq!(journals[0].entries().await.unwrap().len(), 2);
    }
}
