//! Upkeep of one shard: expired records, old marks and old journal entries go.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use engine_api::{Engine, EngineError, Maintenance, Timestamp, World};
use model::Lifetime;
use serde::Deserialize;

use crate::metrics::TaskCounts;

/// Items in one piece. Nothing else is written meanwhile, so it has to be short.
const PIECE_ITEMS_MAX: usize = 500;

/// Marks and entries outlive every request that may still be under way, by far.
const KEPT_S_LEAST: u32 = 900;

const HOUR_S: u32 = 3_600;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Upkeep {
    /// The pause between two rounds.
    pub every_s: Lifetime,
    /// How long the mark of a removal is kept.
    pub marks_kept_s: Lifetime,
    /// How long a journal entry is kept: who follows and falls behind further, starts anew.
    pub journal_kept_s: Lifetime,
}

impl Default for Upkeep {
    fn default() -> Upkeep {
        let seconds = |seconds| Lifetime::from_seconds(seconds).expect("the default is in range");
        Upkeep {
            every_s: seconds(10),
            marks_kept_s: seconds(24 * HOUR_S),
            journal_kept_s: seconds(HOUR_S),
        }
    }
}

impl Upkeep {
    pub fn check(&self) -> Result<()> {
        let kept = [
            ("marks_kept_s", self.marks_kept_s),
            ("journal_kept_s", self.journal_kept_s),
        ];
        for (name, kept) in kept {
            let seconds = kept.seconds();
            ensure!(
                seconds >= KEPT_S_LEAST,
                "upkeep.{name} is {seconds}: choose at least {KEPT_S_LEAST}, requests under way need them"
            );
        }
        Ok(())
    }
}

/// Piece after piece until nothing is left to do. Between two pieces the shard has
/// as long for requests as the piece took.
pub async fn round(
    engine: &dyn Engine,
    world: &dyn World,
    upkeep: &Upkeep,
    counts: &TaskCounts,
) -> Result<(), EngineError> {
    loop {
        let now = world.now();
        let began = world.elapsed();
        let done = engine
            .maintain(Maintenance {
                now,
                marks_before: before(now, upkeep.marks_kept_s),
                journal_before: before(now, upkeep.journal_kept_s),
                items_max: PIECE_ITEMS_MAX,
            })
            .await?;
        let add = |counter: &AtomicU64, count: usize| {
            counter.fetch_add(count as u64, Ordering::Relaxed);
        };
        add(&counts.expired_collected, done.expired);
        add(&counts.marks_forgotten, done.marks);
        add(&counts.journal_trimmed, done.journal_entries);
        if !done.reached(PIECE_ITEMS_MAX) {
            return Ok(());
        }
        world.sleep(world.elapsed().saturating_sub(began)).await;
    }
}

fn before(now: Timestamp, kept: Lifetime) -> Timestamp {
    let earliest = Timestamp::from_unix_micros(i64::MIN);
    now.checked_add_seconds(-i64::from(kept.seconds()))
        .unwrap_or(earliest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_hold_and_what_forgets_too_early_is_refused() {
        Upkeep::default().check().unwrap();
        let hasty = Upkeep {
            journal_kept_s: Lifetime::from_seconds(KEPT_S_LEAST - 1).unwrap(),
            ..Upkeep::default()
        };
        let refusal = hasty.check().unwrap_err().to_string();
        assert!(refusal.contains("journal_kept_s is 899"), "{refusal}");
    }
}
